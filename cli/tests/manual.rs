//! Help, man pages and completions.

use crate::support::*;
use std::collections::BTreeSet;

const WORKLOADS: [&str; 18] = [
    "ycsb",
    "tpcc",
    "tpcb",
    "tatp",
    "counter",
    "queue",
    "mixed",
    "live",
    "put",
    "load",
    "scan",
    "soak",
    "device",
    "model",
    "instructions",
    "ablation",
    "compare",
    "figures",
];

fn said(arguments: &[&str]) -> String {
    let output = run(arguments);
    expect_code(&output, 0);
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the long options that a page describes.
fn options(page: &str) -> BTreeSet<&str> {
    let words =
        page.lines().filter_map(|line| line.trim_start().strip_prefix("--").map(|_| line.trim_start()));
    words.filter_map(|line| line.split([' ', '=']).next()).collect()
}

#[test]
fn the_help_of_bench_is_one_page_and_names_all_workloads() {
    for form in [&["bench", "--help"][..], &["bench", "-h"], &["help", "bench"]] {
        let page = said(form);
        assert!(page.lines().count() < 75, "{} lines", page.lines().count());
        assert!(WORKLOADS.iter().all(|name| page.contains(&format!("\n  {name} "))), "{page}");
        assert!(page.contains("--threads") && !page.contains("--warehouses <"), "{page}");
    }
}

#[test]
fn each_workload_has_a_page_of_its_own_options() {
    let pages: Vec<(&str, String)> =
        WORKLOADS.iter().map(|name| (*name, said(&["bench", name, "-h"]))).collect();
    let of = |name: &str| &pages.iter().find(|(other, _)| *other == name).expect("a workload").1;
    assert!(of("tpcc").contains("--warehouses") && of("mixed").contains("--warehouses"));
    assert!(!of("put").contains("--warehouses") && !of("tpcc").contains("--value-bytes"));
    assert!(of("tatp").contains("--subscribers") && of("load").contains("--rows"));
    assert!(!of("device").contains("--rows") && !of("device").contains("--commit"), "{}", of("device"));
    assert!(of("ablation").contains("--of") && of("compare").contains("--engines"));
    let protocol = said(&["bench", "put", "--help-protocol"]);
    assert!(protocol.contains("--steal-group") && !protocol.contains("--threads "), "{protocol}");
    for (name, page) in pages.iter().map(|(name, page)| (*name, page)).chain([("protocol", &protocol)]) {
        assert!(
            page.lines().count() <= 120,
            "{name}: {} lines are more than two screens",
            page.lines().count()
        );
        assert_eq!(page.contains("--steal-group"), name == "protocol", "{page}");
    }
    // The man page has all options, and each is on the page of a workload.
    let manual = said(&["man", "bench"]).replace("\\-", "-");
    let pages = pages.iter().map(|(_, page)| page).chain([&protocol]);
    let all: BTreeSet<&str> = pages.flat_map(|page| options(page)).collect();
    assert!(all.len() > 60, "{all:?}");
    for option in &all {
        assert!(manual.contains(option), "{option} is in the manual");
    }
    let described = manual.split("\\fB").filter_map(|part| part.split("\\fR").next());
    let described: BTreeSet<&str> = described.filter(|word| word.starts_with("--")).collect();
    let missing: Vec<_> =
        described.iter().filter(|word| !all.contains(**word) && **word != "--help").collect();
    assert!(missing.is_empty(), "on no page: {missing:?}");
}

#[test]
fn the_help_lists_commands_and_exit_codes() {
    let page = said(&["--help"]);
    for wanted in ["create", "load", "shell", "completions", "man", "  3    busy"] {
        assert!(page.contains(wanted), "{wanted}: {page}");
    }
}

#[test]
fn completions_are_made_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = said(&["completions", shell]);
        assert!(text.contains("quench") && text.contains("salvage") && text.contains("skip-bad"), "{shell}");
        assert!(!text.contains("torture-child"), "{shell} completes a hidden command");
    }
    let bash =
        std::process::Command::new("bash").args(["-n", "-c", &said(&["completions", "bash"])]).status();
    assert!(bash.is_ok_and(|status| status.success()), "bash parses its completions");
    assert_eq!(run(&["completions", "tcsh"]).status.code(), Some(2));
}

#[test]
fn man_pages_are_printed_and_written() {
    let dir = directory();
    let target = dir.path().join("share/man1");
    assert!(said(&["man"]).contains(".TH quench 1"), "{}", said(&["man"]));
    assert!(said(&["man", "load"]).contains(".TH quench-load 1"));
    assert!(said(&["man", "load"]).contains("bad lines"));
    let unknown = run(&["man", "lod"]);
    expect_code(&unknown, 2);
    said(&["man", "--to", text(&target)]);
    for page in ["quench.1", "quench-load.1", "quench-shell.1", "quench-bench.1"] {
        let written = std::fs::read_to_string(target.join(page)).expect(page);
        assert!(written.lines().count() > 10, "{page}");
    }
    assert!(!target.join("quench-torture-child.1").exists(), "hidden commands have no page");
}
