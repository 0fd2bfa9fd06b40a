//! The public API of the engine, as a list: a change of it is a change of a file.
//!
//! `QUENCH_BLESS=1 cargo test -p quenchdb --test engine -- public_api` writes the list again.

use super::root;
use crate::support::skipped::skip;
use std::path::Path;
use std::process::Command;

const LIST: &str = "docs/internals/public-api.txt";

/// Returns the API without features; `None` if this toolchain describes it in another format.
fn public_api() -> Option<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("public-api");
    let mut rustdoc = Command::new(cargo);
    rustdoc.args(["rustdoc", "-q", "-p", "quenchdb", "--lib", "--locked", "--target-dir"]).arg(&target);
    rustdoc.args(["--", "-Z", "unstable-options", "--output-format", "json", "--cap-lints", "allow"]);
    // The description is not stable yet.
    let output = rustdoc.env("RUSTC_BOOTSTRAP", "1").current_dir(root()).output().expect("cargo is there");
    if !output.status.success() {
        skip(&format!("rustdoc describes no API: {}", String::from_utf8_lossy(&output.stderr)));
        return None;
    }
    let api = public_api::Builder::from_rustdoc_json(target.join("doc/quenchdb.json"))
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build();
    match api {
        Ok(api) => Some(api.items().map(|item| format!("{item}\n")).collect()),
        Err(error) => {
            skip(&format!("the description of the API cannot be read: {error}"));
            None
        }
    }
}

#[test]
fn public_api_is_the_listed_one() {
    let Some(api) = public_api() else { return };
    assert!(api.contains("pub fn quenchdb::Database::begin(&self)"), "{api}");
    let path = root().join(LIST);
    if std::env::var("QUENCH_BLESS").is_ok_and(|bless| bless == "1") {
        std::fs::write(&path, &api).expect("written");
    }
    let listed = std::fs::read_to_string(&path).unwrap_or_default();
    let only = |of: &str, other: &str| -> Vec<String> {
        let others: std::collections::HashSet<&str> = other.lines().collect();
        of.lines().filter(|line| !others.contains(line)).map(str::to_string).collect()
    };
    let (new, gone) = (only(&api, &listed), only(&listed, &api));
    assert!(
        new.is_empty() && gone.is_empty(),
        "the public API has changed. If that is intended, write {LIST} again with QUENCH_BLESS=1, and say in the \
         changelog what users change.\nnew:\n{}\ngone:\n{}",
        new.join("\n"),
        gone.join("\n")
    );
}
