//! Within a module a file imports only files listed before it in its `mod.rs`.
//!
//! A `mod.rs` lists its files as layers, the lowest first. It counts as the last itself: files
//! import names that it re-exports from files before them or from other modules, and nothing that
//! it defines.

use super::exceptions::{IMPORTS, UNORDERED};
use super::{Source, report, sources};
use std::collections::{BTreeMap, BTreeSet};

/// A folder of the engine with a `mod.rs`.
struct Folder {
    /// Its files and folders in the order of `mod` lines.
    children: Vec<String>,
    /// Names that `mod.rs` re-exports, with the path they come from.
    exports: BTreeMap<String, Vec<String>>,
}

/// Returns the path of a file as a module: `engine/src/log/block.rs` is `[log, block]`.
fn module_path(path: &str) -> Option<Vec<String>> {
    let rest = path.strip_prefix("engine/src/")?.strip_suffix(".rs")?;
    let rest = rest.strip_suffix("/mod").unwrap_or(rest);
    Some(rest.split('/').map(String::from).collect())
}

fn is_test(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    path.contains("/tests/") || name.ends_with("tests.rs") || name.starts_with("test_")
}

/// Returns the text without comments and without a test module at its end.
fn code(text: &str) -> String {
    let end = text.find("\nmod tests {").unwrap_or(text.len());
    let without = |line: &str| line.split("//").next().unwrap_or("").to_string() + "\n";
    text[..end].lines().map(without).collect()
}

/// Returns the paths that a use tree names: `a::{b, c::d}` names `a::b` and `a::c::d`.
fn expand(tree: &str) -> Vec<String> {
    let Some(open) = tree.find('{') else {
        let path = tree.split(" as ").next().unwrap_or("").trim();
        return vec![path.trim_end_matches("::self").to_string()];
    };
    let close = tree.rfind('}').unwrap_or(tree.len());
    let (prefix, inner) = (tree[..open].trim(), &tree[open + 1..close]);
    let (mut depth, mut from, mut parts) = (0, 0, Vec::new());
    for (at, letter) in inner.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[from..]);
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| expand(&format!("{prefix}{}", part.trim()))).collect()
}

/// Returns the use trees of `code`, and whether each is public.
fn use_trees(code: &str) -> Vec<(bool, String)> {
    let (mut trees, mut lines) = (Vec::new(), code.lines());
    while let Some(line) = lines.next() {
        let line = line.trim();
        let is_public = line.starts_with("pub");
        let after = line.trim_start_matches(|c| c != ' ').trim_start();
        let begin = if is_public { after } else { line };
        let Some(begin) = begin.strip_prefix("use ") else { continue };
        let mut tree = begin.to_string();
        while !tree.ends_with(';') {
            let Some(line) = lines.next() else { break };
            tree.push_str(line.trim());
        }
        trees.push((is_public, tree.trim_end_matches(';').to_string()));
    }
    trees
}

/// Returns the absolute path that `path` means in the module `here`, unless it is relative or of
/// another crate.
fn absolute(here: &[String], path: &str) -> Option<Vec<String>> {
    let mut parts = path.split("::").map(|part| part.trim().to_string()).peekable();
    let mut base = match parts.peek()?.as_str() {
        "crate" => {
            parts.next();
            Vec::new()
        }
        "super" | "self" => here.to_vec(),
        _ => return None,
    };
    while let Some(part) = parts.peek() {
        match part.as_str() {
            "super" => drop(base.pop()),
            "self" => {}
            _ => break,
        }
        parts.next();
    }
    base.extend(parts.take_while(|part| !part.is_empty()));
    Some(base)
}

/// Returns paths in `code` outside use trees that begin with `super` or `crate`.
fn inline_paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in code.lines().filter(|line| !line.trim_start().starts_with("use ")) {
        for start in ["super::", "crate::"] {
            for (at, _) in line.match_indices(start) {
                let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
                if line[..at].chars().next_back().is_some_and(is_part) {
                    continue;
                }
                let end = line[at..].find(|c| !is_part(c)).map_or(line.len(), |len| at + len);
                found.push(line[at..end].trim_end_matches(':').to_string());
            }
        }
    }
    found
}

fn folder(source: &Source, here: &[String]) -> Folder {
    let code = code(&source.text);
    let declared = code.lines().filter_map(|line| {
        let line = line.trim();
        let line = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub(super) ")).unwrap_or(line);
        let line = line.strip_prefix("pub ").unwrap_or(line);
        line.strip_prefix("mod ")?.strip_suffix(';').map(String::from)
    });
    let children: Vec<String> = declared.collect();
    let mut exports = BTreeMap::new();
    for (_, tree) in use_trees(&code).into_iter().filter(|(is_public, _)| *is_public) {
        for path in expand(&tree) {
            let first = path.split("::").next().unwrap_or("");
            let from = if children.iter().any(|child| child == first) {
                [here, &path.split("::").map(String::from).collect::<Vec<_>>()].concat()
            } else {
                absolute(here, &path).unwrap_or_default()
            };
            exports.insert(path.rsplit("::").next().unwrap_or("").to_string(), from);
        }
    }
    Folder { children, exports }
}

/// Returns the later file that an import of `target` in `here` names.
fn problem(folders: &BTreeMap<Vec<String>, Folder>, here: &[String], target: &[String]) -> Option<String> {
    for depth in 1..here.len() {
        let (at, child) = (&here[..depth], &here[depth]);
        let Some(folder) = folders.get(at) else { continue };
        if UNORDERED.contains(&at.join("::").as_str()) {
            continue;
        }
        if target.len() <= depth || target[..depth] != *at || target[depth] == *child {
            continue;
        }
        let name = &target[depth];
        let place = |name: &str| folder.children.iter().position(|child| child == name);
        let own = place(child)?;
        let sibling = match (place(name), folder.exports.get(name)) {
            (Some(sibling), _) => sibling,
            (None, Some(from)) if from.len() > depth && from[..depth] == *at => place(&from[depth])?,
            (None, Some(_)) => return None,
            (None, None) => return Some(at.join("::")),
        };
        let is_test = name == "tests" || name.starts_with("test_");
        if sibling > own && !is_test {
            return Some([&at.join("::"), &folder.children[sibling][..]].join("::"));
        }
    }
    None
}

#[test]
fn files_import_only_files_listed_before_them() {
    let sources: Vec<Source> = sources(".rs").into_iter().filter(|source| !is_test(&source.path)).collect();
    let engine = sources.iter().filter_map(|source| Some((module_path(&source.path)?, source)));
    let engine: Vec<(Vec<String>, &Source)> = engine.collect();
    let folders = engine.iter().filter(|(_, source)| source.path.ends_with("/mod.rs"));
    let folders: BTreeMap<Vec<String>, Folder> =
        folders.map(|(here, source)| (here.clone(), folder(source, here))).collect();
    let mut wrong = BTreeSet::new();
    for (here, source) in &engine {
        let code = code(&source.text);
        let used = use_trees(&code).into_iter().flat_map(|(_, tree)| expand(&tree));
        for path in used.chain(inline_paths(&code)) {
            let Some(target) = absolute(here, &path) else { continue };
            let Some(later) = problem(&folders, here, &target) else { continue };
            let edge = format!("{} -> {later}", here.join("::"));
            if !IMPORTS.contains(&edge.as_str()) {
                wrong.insert(format!("\"{edge}\","));
            }
        }
    }
    report("a file imports one that its mod.rs lists later, or what its mod.rs defines", wrong);
}
