//! The lines by which two builds are compared.

use std::collections::BTreeSet;
use std::process::{Command, Output};

fn traces(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quench-sim")).arg("traces").args(arguments).output().expect("it starts")
}

/// Returns the lines of eight seeds on a disk and one on a store of objects.
fn lines(arguments: &[&str]) -> Vec<String> {
    let output = traces(&[&["--seeds", "8..16", "--points", "1"], arguments].concat());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    said.lines().map(str::to_string).collect()
}

#[test]
fn traces_of_the_same_build_are_equal_and_of_two_seeds_differ() {
    let interrupted = lines(&[]);
    assert_eq!(interrupted, lines(&["--processes", "1"]));
    let uninterrupted = lines(&["--uninterrupted"]);
    assert_eq!(uninterrupted, lines(&["--uninterrupted"]));
    let seeds: Vec<&str> = interrupted.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(seeds, ["8", "9", "10", "11", "12", "13", "14", "15", "1000000001"]);
    let hashes: BTreeSet<&str> =
        interrupted.iter().chain(&uninterrupted).filter_map(|line| line.split(' ').nth(2)).collect();
    assert!(hashes.len() > seeds.len(), "{hashes:?}");
    for line in &interrupted {
        let operations = line.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok());
        assert!(operations.is_some_and(|n| n > 10), "{line}");
    }
}

#[test]
fn traces_without_seeds_are_refused() {
    for seeds in ["8", "8..8", "8..end"] {
        let output = traces(&["--seeds", seeds]);
        assert_eq!(output.status.code(), Some(2), "{seeds}");
    }
}
