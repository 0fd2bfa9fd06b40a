//! The programs in `examples` run. `cargo test` builds them; a run of this test target alone does
//! not.

use crate::support::skipped::skip;
use quenchdb::internals::base::depth::is_deep;
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

fn built(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().expect("known");
    let folder = test.parent().and_then(Path::parent).expect("target/debug").join("examples");
    let program = folder.join(name);
    if !program.exists() {
        skip(&format!("the example {name} is not built"));
    }
    program.exists().then_some(program)
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the first block of code in this language.
fn block(text: &str, language: &str) -> String {
    let (_, rest) = text.split_once(&format!("```{language}\n")).expect("there is a block");
    rest.split_once("```").expect("it ends").0.to_string()
}

/// The README, the front page of the documentation and the example show one program.
#[test]
fn readme_and_front_page_show_the_same_program() {
    let in_readme = block(&read("README.md"), "rust");
    let example = read("engine/examples/readme.rs");
    let (_, in_example) = example.split_once("\n\n").expect("a header, then the program");
    assert_eq!(in_example, in_readme);
    let front: String = read("engine/src/lib.rs")
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line)))
        .collect();
    assert_eq!(block(&front, ""), in_readme);
}

#[test]
fn readme_program_prints_what_the_readme_says() {
    let Some(program) = built("readme") else { return };
    let output = Command::new(&program).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), block(&read("README.md"), "text"));
}

/// Follows the README in a fresh directory. Takes minutes, because everything is compiled again.
#[test]
fn readme_steps_work_from_a_fresh_directory() {
    if !is_deep() {
        return;
    }
    let readme = read("README.md");
    let directory = tempfile::tempdir().expect("a directory for temporary files");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the engine is in the repository");
    std::os::unix::fs::symlink(root, directory.path().join("QuenchDB")).expect("created");
    let (_, from_clone) = readme.split_once("you cloned this repository").expect("the steps");
    let mut steps = Command::new("sh");
    steps.args(["-ec", &block(from_clone, "sh")]).current_dir(directory.path());
    let made = steps.output().expect("a shell");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let shop = directory.path().join("shop");
    let manifest = std::fs::read_to_string(shop.join("Cargo.toml")).expect("made");
    let (head, _) = manifest.split_once("[dependencies]").expect("the last line");
    std::fs::write(shop.join("Cargo.toml"), head.to_string() + &block(&readme, "toml")).expect("written");
    std::fs::write(shop.join("src/main.rs"), block(&readme, "rust")).expect("written");
    // The versions of this repository, so that nothing is downloaded.
    std::fs::copy(root.join("Cargo.lock"), shop.join("Cargo.lock")).expect("copied");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme");
    let mut run = Command::new("cargo");
    run.args(["run", "-q", "--offline", "--target-dir"]).arg(target).current_dir(&shop);
    let output = run.output().expect("cargo is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), block(&readme, "text"));
}

#[test]
fn every_example_runs() {
    let names = names();
    assert!(names.len() > 20 && names.contains(&SERVER.to_string()), "{names:?}");
    for name in names.iter().filter(|name| *name != SERVER) {
        let Some(program) = built(name) else { continue };
        let output = Command::new(&program).output().expect("it starts");
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {printed}");
    }
}
