//! Planted bugs are caught: all with `QUENCH_DEEP=1`, otherwise a few, or the bugs that
//! `QUENCH_BUGS="NAME NAME"` names.

use quenchdb::internals::base::depth::is_deep;
use std::process::Command;

/// Bugs of a shallow run: detected by integration tests, by unit tests of two layers, and by seeds.
const FEW: &str =
    "fence-skipped failed-write-retried hole-is-torn-tail watermark-not-stored value-freed-early";

#[test]
fn every_planted_bug_is_caught() {
    let few = if is_deep() { "" } else { FEW };
    let names = std::env::var("QUENCH_BUGS").unwrap_or(few.into());
    let output = Command::new(env!("CARGO_BIN_EXE_quench-sim"))
        .args(["planted", "--json"])
        .args(names.split_whitespace())
        .output()
        .expect("it starts");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{errors}");
    let report: serde_json::Value =
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}\n{errors}"));
    println!("figures: {{\"planted\": {}, \"planted_caught\": {}}}", report["planted"], report["caught"]);
    assert!(output.status.success() && report["planted"] == report["caught"], "{errors}");
    assert!(!names.is_empty() || report["planted"].as_u64() > Some(40), "{}", report["planted"]);
}

#[test]
fn an_unknown_bug_is_refused_with_all_known_names() {
    let output = Command::new(env!("CARGO_BIN_EXE_quench-sim"))
        .args(["planted", "no-such-bug"])
        .output()
        .expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("no-such-bug") && errors.contains("fence-skipped"), "{errors}");
}
