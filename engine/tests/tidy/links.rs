//! Links between documents lead to files and headings that exist.

use super::{Source, report, root, sources};
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// Returns the links of a document with the numbers of their lines, code excluded.
fn links(text: &str) -> Vec<(usize, &str)> {
    let (mut found, mut is_code) = (Vec::new(), false);
    for (number, line) in text.lines().enumerate() {
        is_code ^= line.trim_start().starts_with("```");
        if is_code {
            continue;
        }
        for (at, _) in line.match_indices("](") {
            let rest = &line[at + 2..];
            found.extend(rest.split_once(')').map(|(link, _)| (number + 1, link)));
        }
    }
    found
}

/// Returns the anchors of the headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let headings = text.lines().filter(move |line| {
        is_code ^= line.starts_with("```");
        !is_code && line.starts_with('#')
    });
    let anchor = |heading: &str| {
        let kept = heading.trim_start_matches('#').trim().chars();
        let kept = kept.filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

/// Returns the path without `..`, below the root.
fn resolve(from: &str, link: &str) -> PathBuf {
    let mut path = Path::new(from).parent().unwrap_or(Path::new("")).to_path_buf();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            part => path.push(part),
        }
    }
    path
}

fn documents() -> Vec<Source> {
    sources(".md")
}

#[test]
fn links_lead_to_files_and_headings_that_exist() {
    let documents = documents();
    let mut wrong = Vec::new();
    for Source { path, text } in &documents {
        for (line, link) in links(text).into_iter().filter(|(_, link)| !link.contains("://")) {
            let (file, anchor) =
                link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
            let target = if file.is_empty() { PathBuf::from(path) } else { resolve(path, file) };
            if !root().join(&target).exists() {
                wrong.push(format!("{path}:{line}: {link}"));
            }
            let document = documents.iter().find(|document| Path::new(&document.path) == target);
            if let (Some(anchor), Some(document)) = (anchor, document)
                && !anchors(&document.text).contains(anchor)
            {
                wrong.push(format!("{path}:{line}: no heading #{anchor}"));
            }
        }
    }
    report("links lead to files and headings that exist", wrong);
}

#[test]
fn the_guide_lists_each_of_its_pages() {
    let documents = documents();
    let summary = documents.iter().find(|page| page.path == "docs/guide/SUMMARY.md").expect("it exists");
    let listed: BTreeSet<&str> = links(&summary.text).into_iter().map(|(_, link)| link).collect();
    let pages = documents.iter().filter_map(|page| page.path.strip_prefix("docs/guide/"));
    let missing = pages.filter(|page| *page != "SUMMARY.md" && !listed.contains(page));
    report("the guide lists each of its pages", missing);
}
