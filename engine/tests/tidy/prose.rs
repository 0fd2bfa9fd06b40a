//! Checks how comments, documents and commits read. Exceptions are in `exceptions.rs`.

use super::exceptions::{COINED_WORDS, LONG_CELLS, WIDE_COMMENTS};
use super::{Source, report, root, sources};
use std::process::Command;

const COMMENT_COLUMNS_MAX: usize = 100;
const CELL_CHARACTERS_MAX: usize = 120;
const SUBJECT_CHARACTERS_MAX: usize = 72;

/// Only commits since then are checked.
const SUBJECTS_SINCE: &str = "2026-11-25T00:00:00Z";

/// Words and phrases for which the field, or plain English, has others.
const NEVER: [&str; 36] = [
    "who",
    "whoever",
    "whom",
    "nobody",
    "somebody",
    "everybody",
    "anybody",
    "he",
    "him",
    "lest",
    "anew",
    "mended",
    "in vain",
    "let go",
    "lets go",
    "go on",
    "goes on",
    "went on",
    "told",
    "tell",
    "tells",
    "hindrance",
    "askers",
    "unsettled",
    "births",
    "overdraft",
    "surroundings",
    "upkeep",
    "crowd",
    "thief",
    "victim",
    "needless",
    "leftovers",
    "keeps_time",
    "void csn",
    "admission",
];

fn is_in(source: &Source, places: &[&str]) -> bool {
    places.iter().any(|place| source.path.starts_with(place))
}

fn comments(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    source
        .text
        .lines()
        .enumerate()
        .filter(|(_, line)| line.trim_start().starts_with("//"))
        .map(|(n, line)| (n + 1, line))
}

/// Drawings and tables may be wider.
#[test]
fn comment_lines_have_at_most_100_columns() {
    let mut wrong = Vec::new();
    for source in sources(".rs").iter().filter(|source| !is_in(source, WIDE_COMMENTS)) {
        let mut is_drawing = false;
        for (number, line) in comments(source) {
            let text = line.trim_start().trim_start_matches(['/', '!']).trim_start();
            is_drawing ^= text.starts_with("```");
            let columns = line.chars().count();
            if columns > COMMENT_COLUMNS_MAX && !is_drawing && !text.starts_with('|') {
                wrong.push(format!("{}:{number}: {columns} columns", source.path));
            }
        }
    }
    report("comment lines have at most 100 columns", wrong);
}

/// Returns the numbers of the lines of `text` blocks in documentation that are not indented. A
/// program that joins the lines of a paragraph removes the indentation, and breaks the drawing.
fn reflowed(text: &str) -> Vec<usize> {
    let (mut found, mut is_drawing) = (Vec::new(), false);
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let Some(line) = line.strip_prefix("//!").or_else(|| line.strip_prefix("///")) else {
            is_drawing = false;
            continue;
        };
        if line.trim_start().starts_with("```") {
            is_drawing = !is_drawing && line.trim() == "```text";
        } else if is_drawing && !line.trim().is_empty() && !line.starts_with("  ") {
            found.push(number + 1);
        }
    }
    found
}

#[test]
fn lines_of_drawings_are_indented() {
    let broken = "//! ```text\n//!   1 latch\n//! 2 room 3 draw\n//!\n//! ```\n//! prose\nfn a() {}\n\
        /// ```\n/// let a = 1;\n/// ```\n    /// ```text\n    /// a > b\n    /// ```\n";
    assert_eq!(reflowed(broken), [3, 12]);
    let sources = sources(".rs");
    let wrong = sources.iter().flat_map(|source| {
        let lines = reflowed(&source.text).into_iter();
        lines.map(|line| format!("{}:{line}: indent it, or draw it again if it was reflowed", source.path))
    });
    report("lines of `text` blocks in documentation are indented by at least two spaces", wrong);
}

#[test]
fn comments_use_plain_words() {
    let mut wrong = Vec::new();
    for source in sources(".rs").iter().filter(|source| !is_in(source, COINED_WORDS)) {
        for (number, line) in comments(source) {
            let words =
                |c: char| if c.is_ascii_alphanumeric() || c == '_' { c.to_ascii_lowercase() } else { ' ' };
            let plain: String = line.chars().map(words).collect();
            let plain = format!(" {} ", plain.split_whitespace().collect::<Vec<_>>().join(" "));
            for word in NEVER.iter().filter(|word| plain.contains(&format!(" {word} "))) {
                wrong.push(format!("{}:{number}: `{word}`", source.path));
            }
        }
    }
    report("comments name things in plain words", wrong);
}

#[test]
fn table_cells_have_at_most_120_characters() {
    let mut wrong = Vec::new();
    for source in sources(".md").iter().filter(|source| !is_in(source, LONG_CELLS)) {
        for (number, line) in source.text.lines().enumerate().filter(|(_, line)| line.starts_with('|')) {
            let longest = line.split('|').map(|cell| cell.trim().chars().count()).max().unwrap_or(0);
            if longest > CELL_CHARACTERS_MAX {
                wrong.push(format!("{}:{}: a cell of {longest} characters", source.path, number + 1));
            }
        }
    }
    report("table cells have at most 120 characters", wrong);
}

/// Without the full history nothing is checked.
#[test]
fn commit_subjects_have_at_most_72_characters() {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root()).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    if git(&["rev-parse", "--is-shallow-repository"]).is_none_or(|shallow| shallow.trim() != "false") {
        return;
    }
    let since = format!("--since={SUBJECTS_SINCE}");
    let subjects = git(&["log", "--no-merges", &since, "--format=%h %s"]).unwrap_or_default();
    let is_long = |line: &&str| {
        line.split_once(' ').is_some_and(|(_, subject)| subject.chars().count() > SUBJECT_CHARACTERS_MAX)
    };
    report("commit subjects have at most 72 characters", subjects.lines().filter(is_long));
}
