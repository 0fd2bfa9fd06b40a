//! The scorecard of the program. `QUENCH_SEEDS=N` sets the number of seeds, `QUENCH_SEED=N` the
//! first seed.

use quenchdb::internals::base::depth::depth;
use std::process::Command;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|n| n.parse().ok())
}

#[test]
fn every_measure_of_the_scorecard_is_met() {
    let seeds = number("QUENCH_SEEDS").unwrap_or_else(|| depth(2_000));
    let first = number("QUENCH_SEED").unwrap_or(1);
    let output = Command::new(env!("CARGO_BIN_EXE_quench-sim"))
        .args([
            "scorecard",
            "--simulation-only",
            "--seeds",
            &seeds.to_string(),
            "--first-seed",
            &first.to_string(),
        ])
        .output()
        .expect("it starts");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{said}");
    assert!(!said.contains("quench-sim replay"), "seeds failed:\n{said}");
    if seeds >= 2_000 {
        assert!(output.status.success(), "a measure is missed:\n{said}\n{errors}");
    }
}

#[test]
fn a_seed_that_is_no_number_is_refused() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_quench-sim")).args(["replay", "first"]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("first"));
}
