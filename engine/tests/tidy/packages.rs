//! The packages that everything is built of: licences, sources, and what a published package needs.

use super::{report, root};
use crate::support::skipped::skip;
use serde_json::Value;
use std::process::Command;

/// Returns all packages that a build of the workspace needs here; `None` if their manifests are not
/// on this machine and cannot be downloaded.
fn packages() -> Option<Vec<Value>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let arguments = ["metadata", "--format-version", "1", "--locked", "--filter-platform", &target];
    let features = ["--features", "quench-cli/stores,quenchdb/zstd,quenchdb/metrics"];
    for offline in [&["--offline"][..], &[]] {
        let mut command = Command::new(&cargo);
        command.args(arguments).args(features).args(offline).current_dir(root());
        let output = command.output().expect("cargo is there");
        if output.status.success() {
            let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            return metadata["packages"].as_array().cloned();
        }
    }
    skip(&"the manifests of dependencies cannot be downloaded");
    None
}

/// Returns the licences that `deny.toml` allows.
fn allowed() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("deny.toml")).expect("readable");
    let list = text.split_once("allow = [").and_then(|(_, rest)| rest.split_once(']')).expect("a list").0;
    list.split('"').skip(1).step_by(2).map(str::to_string).collect()
}

/// Returns whether an expression of licences can be met with the allowed ones.
fn is_met(expression: &str, allowed: &[String]) -> bool {
    let expression = expression.trim();
    // Splits at a word outside of parentheses.
    let split = |word: &str| {
        let mut depth = 0;
        let at = expression.char_indices().position(|(at, c)| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0 && expression[at..].starts_with(word)
        })?;
        Some((&expression[..at], &expression[at + word.len()..]))
    };
    if let Some((left, right)) = split(" OR ").or_else(|| split("/")) {
        return is_met(left, allowed) || is_met(right, allowed);
    }
    if let Some((left, right)) = split(" AND ") {
        return is_met(left, allowed) && is_met(right, allowed);
    }
    match expression.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        Some(inner) => is_met(inner, allowed),
        None => allowed.iter().any(|licence| licence == expression),
    }
}

#[test]
fn expressions_of_licences_are_understood() {
    let allowed = ["MIT", "ISC", "Zlib"].map(String::from);
    for met in ["MIT", "GPL-3.0 OR MIT", "Apache-2.0/MIT", "(GPL-3.0 OR MIT) AND ISC", "MIT AND (Zlib OR X)"]
    {
        assert!(is_met(met, &allowed), "{met}");
    }
    for unmet in ["GPL-3.0", "", "MIT AND GPL-3.0", "(MIT OR ISC) AND X", "X OR (MIT AND Y)"] {
        assert!(!is_met(unmet, &allowed), "{unmet}");
    }
}

#[test]
fn packages_have_an_allowed_licence_and_a_registry() {
    let allowed = allowed();
    let Some(packages) = packages() else { return };
    assert!(packages.len() > 100 && allowed.len() > 5);
    let wrong = packages.iter().filter_map(|package| {
        let licence = package["license"].as_str().unwrap_or_default();
        // A package of the workspace has no source.
        let source = package["source"].as_str();
        let known = source.is_none_or(|source| source.starts_with("registry+"));
        let fine = known && is_met(licence, &allowed);
        (!fine).then(|| format!("{} has the licence `{licence}` and the source {source:?}", package["name"]))
    });
    report("deny.toml allows each dependency", wrong);
}

#[test]
fn published_packages_say_what_they_are() {
    let needed = ["description", "license", "readme", "keywords", "categories"];
    let Some(packages) = packages() else { return };
    let published = packages.into_iter().filter(|package| {
        package["source"].is_null() && package["publish"].as_array().is_none_or(|list| !list.is_empty())
    });
    let published: Vec<Value> = published.collect();
    assert!(published.len() >= 5, "{published:?}");
    let wrong = published.iter().flat_map(|package| {
        let lacks =
            |field: &&str| package[*field].is_null() || package[*field].as_array().is_some_and(Vec::is_empty);
        let name = package["name"].to_string();
        needed.into_iter().filter(lacks).map(move |field| format!("{name} has no {field}"))
    });
    report("a published package has all of these fields", wrong);
}

/// The comparison with other engines names the versions that the measurements use.
#[test]
fn comparison_names_the_measured_versions() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect("part of the source");
    let (page, lock) = (read("docs/guide/comparison.md"), read("peers/Cargo.lock"));
    let version = |package: &str| {
        let (_, rest) = lock.split_once(&format!("name = \"{package}\"\nversion = \"")).expect("locked");
        rest.split_once('"').expect("it ends").0.to_string()
    };
    let of_library = |package: &str| version(package).split('+').next_back().map(str::to_string);
    let named = [
        ("RocksDB", of_library("librocksdb-sys").expect("it names the library")),
        ("`heed`", version("heed")),
        ("redb", version("redb")),
        ("fjall", version("fjall")),
    ];
    for (engine, version) in named {
        assert!(page.contains(&format!("{engine} {version}")), "{engine} {version} is not in the comparison");
    }
}
