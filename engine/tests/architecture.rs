//! Checks that every name in ARCHITECTURE.md and in the page on lock order exists, and every file
//! that the page for changes names.
//!
//! A name stands between backquotes and has the form `Owner::name`. The owner is a type or a
//! module. The name is a function of it (in one of the files that implement the owner), a field of
//! it (in one of the files that declare the owner), or a type in that module.

use std::fs;
use std::path::{Path, PathBuf};

struct Source {
    /// Path below `engine/src`, without the extension: `commit/mod`.
    path: String,
    text: String,
}

fn sources() -> Vec<Source> {
    fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("engine/src is readable").flatten() {
            let path = entry.path();
            if path.is_dir() {
                collect(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    collect(&root, &mut found);
    let below = |path: &Path| {
        path.strip_prefix(&root).expect("under the root").with_extension("").display().to_string()
    };
    found
        .iter()
        .map(|path| Source {
            path: below(path),
            text: fs::read_to_string(path).expect("a source file is UTF-8"),
        })
        .collect()
}

fn is_identifier(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Returns all `Owner::name` between backquotes. Skips code blocks.
fn names_in(document: &str) -> Vec<(String, String)> {
    let mut names = Vec::new();
    let mut in_block = false;
    for line in document.lines() {
        if line.starts_with("```") {
            in_block = !in_block;
        }
        if in_block {
            continue;
        }
        for word in quoted(line) {
            let Some((owner, name)) = word.rsplit_once("::") else { continue };
            let owner = owner.rsplit("::").next().unwrap_or(owner);
            if is_identifier(owner) && is_identifier(name) {
                names.push((owner.to_string(), name.to_string()));
            }
        }
    }
    names
}

/// Returns whether `word` occurs in `text` as a whole word directly after one of `keywords`.
fn declares(text: &str, keywords: &[&str], word: &str) -> bool {
    keywords.iter().any(|keyword| {
        let wanted = format!("{keyword} {word}");
        text.match_indices(&wanted).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            let after = text[at + wanted.len()..].chars().next();
            let part_of_word = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
            !part_of_word(before) && !part_of_word(after)
        })
    })
}

/// Returns whether a line of `text` begins the declaration or an implementation of `owner`.
fn implements(text: &str, owner: &str) -> bool {
    text.lines().any(|line| {
        let code = line.trim_start();
        (code.starts_with("impl") || declares(code, &["trait"], owner))
            && code.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).any(|word| word == owner)
    })
}

/// Returns whether a line of `text` declares a field with this name.
fn has_field(text: &str, name: &str) -> bool {
    let declaration = format!("{name}: ");
    text.lines().any(|line| {
        let line = line.trim_start();
        ["", "pub ", "pub(super) ", "pub(crate) "]
            .iter()
            .any(|visible| line.strip_prefix(visible).is_some_and(|rest| rest.starts_with(&declaration)))
    })
}

fn is_module(source: &Source, owner: &str) -> bool {
    source.path == owner
        || source.path.ends_with(&format!("/{owner}"))
        || source.path == format!("{owner}/mod")
        || source.path.ends_with(&format!("/{owner}/mod"))
}

/// Returns what is wrong with a name, if anything.
fn problem(sources: &[Source], owner: &str, name: &str) -> Option<String> {
    const TYPES: [&str; 4] = ["struct", "enum", "trait", "type"];
    let is_type = sources.iter().any(|source| declares(&source.text, &TYPES, owner));
    let modules: Vec<&Source> = sources.iter().filter(|source| is_module(source, owner)).collect();
    if !is_type && modules.is_empty() {
        return Some(format!("`{owner}::{name}`: there is no type and no module `{owner}`"));
    }
    let as_method =
        sources.iter().any(|source| declares(&source.text, &["fn"], name) && implements(&source.text, owner));
    let in_module =
        modules.iter().any(|source| declares(&source.text, &["fn", "struct", "enum", "trait"], name));
    let as_field = || {
        sources.iter().any(|source| declares(&source.text, &TYPES, owner) && has_field(&source.text, name))
    };
    (!(is_type && (as_method || as_field()) || in_module))
        .then(|| format!("`{owner}::{name}`: `{owner}` has no `{name}`"))
}

fn document(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(path).expect("the page is readable")
}

#[test]
fn every_name_on_the_pages_exists() {
    let sources = sources();
    for (page, names_min) in [("ARCHITECTURE.md", 20), ("docs/internals/lock-order.md", 80)] {
        let names = names_in(&document(page));
        assert!(names.len() > names_min, "{page}: {} names", names.len());
        let wrong: Vec<_> = names.iter().filter_map(|(owner, name)| problem(&sources, owner, name)).collect();
        assert!(wrong.is_empty(), "{page}:\n{}", wrong.join("\n"));
    }
}

/// Maximum number of files and layers that a blocking commit with the preset `auto` may enter,
/// besides `base` and `sync`.
const COMMIT_FILES_MAX: usize = 18;
const COMMIT_LAYERS_MAX: usize = 4;

/// The table lists each file with the functions that the commit enters there, in call order.
#[test]
fn one_commit_enters_few_files_and_each_function_is_in_its_file() {
    let document = document("ARCHITECTURE.md");
    let (_, section) =
        document.split_once("### The files that one commit enters").expect("the section is there");
    let section = section.split("\n#").next().expect("a section has text");
    let sources = sources();
    let (mut files, mut layers) = (Vec::new(), Vec::new());
    for row in section.lines().filter(|line| line.starts_with("| [")) {
        let (_, rest) = row.split_once("](engine/src/").expect("a row links its file");
        let path = rest.split(".rs)").next().expect("a link ends");
        let source = sources.iter().find(|source| source.path == path);
        let source = source.unwrap_or_else(|| panic!("{path}.rs does not exist"));
        let names = names_in(row);
        assert!(!names.is_empty(), "{path}: the row names no function");
        for (owner, name) in names {
            assert!(declares(&source.text, &["fn"], &name), "{path}.rs has no `{owner}::{name}`");
        }
        let layer = path.split('/').next().expect("a path has a layer").to_string();
        layers.push(layer);
        files.push(path.to_string());
    }
    layers.sort();
    layers.dedup();
    assert!(files.len() > 5, "the table is not empty");
    assert!(files.len() <= COMMIT_FILES_MAX, "{} files", files.len());
    assert!(layers.len() <= COMMIT_LAYERS_MAX, "layers: {layers:?}");
}

fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the words between backquotes of a row that name a file or a folder, and those in its
/// last cell that name a test.
fn files_in(row: &str) -> (Vec<&str>, Vec<&str>) {
    let is_file = |word: &str| {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "/._-".contains(c);
        word.chars().all(is_plain) && (word.contains('/') || word.ends_with(".rs"))
    };
    let is_test = |word: &str| word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let last = row.trim_end_matches('|').rsplit('|').next().unwrap_or("");
    (quoted(row).filter(|word| is_file(word)).collect(), quoted(last).filter(|word| is_test(word)).collect())
}

#[test]
fn every_file_to_open_for_a_change_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let is_file = |word: &&str| ["", "engine/src"].iter().any(|folder| root.join(folder).join(word).exists());
    let is_test = |word: &&str| {
        let folders = ["engine/tests", "cli/tests", "sim/tests"];
        folders.iter().any(|folder| root.join(folder).join(format!("{word}.rs")).exists())
    };
    let page = document("docs/internals/where-to-change.md");
    let (mut named, mut wrong) = (0, Vec::new());
    for row in page.lines().filter(|line| line.starts_with('|')) {
        let (files, tests) = files_in(row);
        named += files.len() + tests.len();
        wrong.extend(files.into_iter().filter(|word| !is_file(word)));
        wrong.extend(tests.into_iter().filter(|word| !is_test(word)));
    }
    assert!(named > 100, "{named} files and tests are named");
    assert!(wrong.is_empty(), "neither a file nor a test: {wrong:?}");
    assert_eq!(files_in("| do | `log/a.rs`, `b` | `crash` |"), (vec!["log/a.rs"], vec!["crash"]));
    assert!(!is_file(&"log/none.rs") && !is_test(&"none"));
}

#[test]
fn a_wrong_name_is_found() {
    let sources = sources();
    let wrong = |text: &str| {
        names_in(text).iter().filter(|(owner, name)| problem(&sources, owner, name).is_some()).count()
    };
    assert_eq!(wrong("`Commit::precommit`, `select::select`, `Watermark`, `a + b`"), 0);
    assert_eq!(wrong("`Commit::precommits`"), 1);
    assert_eq!(wrong("`Commits::precommit`"), 1);
    // Both parts exist, but the function is not in that module.
    assert_eq!(wrong("`Manifest::precommit`"), 1);
    assert_eq!(wrong("`blob::precommit`"), 1);
    assert_eq!(wrong("`LogWriter::leader`, `Checkpointer::published`"), 0);
    assert_eq!(wrong("`LogWriter::published`"), 1);
}
