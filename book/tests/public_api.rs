//! The public API of the engine, as a list: a change of it is a change of a file. And its rules.
//!
//! Documenting the engine takes a minute, and reading that needs crates of its own. So the feature
//! `public-api` has these tests: `cargo test -p quench-book --features public-api`. With
//! `QUENCH_BLESS=1` they write the list again.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const LIST: &str = "docs/internals/public-api.txt";

/// Features with types of their own that need no large dependency.
const FEATURES: &str = "derive,postcard,zerocopy,uuid,serde,object-storage";

/// A trait that no program can name, so that no program implements [`quenchdb::Reads`].
const SEAL: &str = "quenchdb::api::range::Source";

/// The root of the repository.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Returns the API with these features; `None` if this toolchain describes it in another format.
fn public_api(features: &str) -> Option<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("public-api");
    let mut rustdoc = Command::new(cargo);
    rustdoc.args(["rustdoc", "-q", "-p", "quenchdb", "--lib", "--locked", "--features", features]);
    rustdoc.arg("--target-dir").arg(&target);
    rustdoc.args(["--", "-Z", "unstable-options", "--output-format", "json", "--cap-lints", "allow"]);
    // The description is not stable yet.
    let output = rustdoc.env("RUSTC_BOOTSTRAP", "1").current_dir(root()).output().expect("cargo is there");
    if !output.status.success() {
        println!("skipped: rustdoc describes no API: {}", String::from_utf8_lossy(&output.stderr));
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
            println!("skipped: the description of the API cannot be read: {error}");
            None
        }
    }
}

#[test]
fn public_api_is_the_listed_one() {
    let Some(api) = public_api("") else { return };
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

/// Returns the types and traits of the engine that an item names: paths up to the first word that
/// begins with a capital.
fn named_in(item: &str) -> impl Iterator<Item = String> + '_ {
    item.match_indices("quenchdb::").filter_map(|(at, _)| {
        let end = |c: char| !c.is_alphanumeric() && !['_', ':'].contains(&c);
        let path = item[at..].split(end).next().unwrap_or_default().trim_end_matches(':');
        let words: Vec<&str> = path.split("::").collect();
        let first = words.iter().position(|word| word.starts_with(char::is_uppercase))?;
        Some(words[..=first].join("::"))
    })
}

/// Returns the types, traits and constants that the items define.
fn defined(api: &str) -> BTreeSet<String> {
    let kinds = ["pub const ", "pub enum ", "pub struct ", "pub trait ", "pub type ", "pub union "];
    let definition = |item: &str| {
        let (_, rest) = kinds.iter().find_map(|kind| item.split_once(kind))?;
        named_in(rest).next()
    };
    api.lines().filter_map(definition).collect()
}

/// Returns what breaks a rule: types in signatures that no program can name, and enums to which no
/// variant can be added.
fn broken_rules(api: &str) -> Vec<String> {
    let known = defined(api);
    let unknown = |item: &str| named_in(item).find(|name| !known.contains(name) && name != SEAL);
    let unnamed = api.lines().filter_map(|item| Some(format!("{}: {item}", unknown(item)?)));
    let closed = api.lines().filter(|item| item.starts_with("pub enum ")).map(str::to_string);
    unnamed.chain(closed).collect()
}

#[test]
fn public_signatures_name_what_a_program_can_name() {
    let listed = std::fs::read_to_string(root().join(LIST)).expect("part of the source");
    assert!(defined(&listed).len() > 50, "{:?}", defined(&listed));
    let with_features = public_api(FEATURES).unwrap_or_default();
    for api in [&listed, &with_features] {
        let broken = broken_rules(api);
        assert!(broken.is_empty(), "export the types, or make the items private:\n{}", broken.join("\n"));
    }
}

#[test]
fn rules_of_the_public_api_find_what_breaks_them() {
    let api = "#[non_exhaustive] pub enum quenchdb::Open\npub enum quenchdb::Closed\n\
               pub fn quenchdb::Open::of(&quenchdb::base::Hidden) -> quenchdb::Result<quenchdb::Closed>\n\
               pub type quenchdb::Result<T> = core::result::Result<T, quenchdb::Open>\n\
               pub trait quenchdb::Reads: quenchdb::api::range::Source\n";
    let broken = broken_rules(api);
    assert_eq!(broken.len(), 2, "{broken:?}");
    assert!(broken[0].starts_with("quenchdb::base::Hidden: pub fn quenchdb::Open::of"), "{broken:?}");
    assert_eq!(broken[1], "pub enum quenchdb::Closed");
}
