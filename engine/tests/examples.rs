//! The programs in `examples` run. `cargo test` builds them; a run of this test target alone does
//! not.

use crate::support::skipped::skip;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs until it is ended.
const SERVER: &str = "prometheus";

fn names() -> Vec<String> {
    let sources = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")).expect("there");
    let stem = |path: PathBuf| Some(path.file_stem()?.to_str()?.to_string());
    let mut names: Vec<_> = sources.filter_map(|entry| stem(entry.expect("readable").path())).collect();
    names.sort();
    names
}

#[test]
fn every_example_runs() {
    let names = names();
    assert!(names.len() > 20 && names.contains(&SERVER.to_string()), "{names:?}");
    let test = std::env::current_exe().expect("known");
    let built = test.parent().and_then(Path::parent).expect("target/debug").join("examples");
    for name in names.iter().filter(|name| *name != SERVER) {
        let program = built.join(name);
        if !program.exists() {
            skip(&format!("the example {name} is not built"));
            continue;
        }
        let output = Command::new(&program).output().expect("it starts");
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {printed}");
    }
}
