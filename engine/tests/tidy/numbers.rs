//! The numbers of the project stand on one page, and no other page states another one.
//!
//! `QUENCH_BLESS=1 cargo test --workspace --test engine -- tidy::numbers` counts again.

use super::{Source, report, root, sources};
use quenchdb::internals::base::planted::Bug;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

const PAGE: &str = "docs/internals/numbers.md";
const BEGIN: &str = "<!-- counted -->\n";
const END: &str = "<!-- end of what is counted -->";

/// Lines and tests are rounded to so many digits, and may differ by a tenth: no change of the
/// sources needs a change of the page, except a large one.
const DIGITS: u32 = 3;
const PART: usize = 10;

/// A number that the sources decide.
struct Counted {
    what: &'static str,
    count: usize,
    is_exact: bool,
}

/// Where another page states a number of the page.
struct Statement {
    /// A part of its line.
    line: &'static str,
    /// The text behind the number.
    behind: &'static str,
    what: &'static str,
}

const STATEMENTS: [Statement; 9] = [
    Statement { line: "", behind: " planted bugs", what: "planted bugs" },
    Statement { line: "| planted bugs", behind: " |", what: "planted bugs" },
    Statement { line: "", behind: " figures and tables", what: "figures and tables of papers" },
    Statement { line: " claims:", behind: " claims", what: "claims of papers" },
    Statement { line: " claims:", behind: " reproduced", what: "claims reproduced" },
    Statement { line: " claims:", behind: " in the same direction", what: "claims in the same direction" },
    Statement { line: " claims:", behind: " not here", what: "claims not here" },
    Statement { line: "cargo test --workspace", behind: " minutes", what: "minutes of all tests" },
    Statement { line: ".ci/run", behind: " minutes", what: "minutes of `.ci/run`" },
];

/// Returns whether a file is part of the tests.
fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("tests.rs") || path.contains("/test_")
}

fn counted() -> Vec<Counted> {
    let (code, documents) = (sources(".rs"), sources(".md"));
    let lines = |of: &[Source], counts: &dyn Fn(&str) -> bool| {
        of.iter().filter(|file| counts(&file.path)).map(|file| file.text.lines().count()).sum()
    };
    let is_engine = |path: &str| path.starts_with("engine/") || path.starts_with("derive/");
    let is_test_line = |line: &&str| line.trim() == "#[test]";
    let tests = code.iter().map(|file| file.text.lines().filter(is_test_line).count()).sum();
    let summary = documents.iter().find(|page| page.path == "docs/report/README.md").expect("the report");
    let of_report = |behind: &str| numbers_before(&summary.text, behind).first().copied().expect("stated");
    let exact = |what, count| Counted { what, count, is_exact: true };
    let about = |what, count| Counted { what, count, is_exact: false };
    vec![
        exact("planted bugs", Bug::ALL.len()),
        exact("figures and tables of papers", of_report(" figures and tables")),
        exact("claims of papers", of_report(" claims")),
        exact("claims reproduced", of_report(" reproduced")),
        exact("claims in the same direction", of_report(" in the same direction")),
        exact("claims not here", of_report(" not here")),
        about("tests", tests),
        about("lines of the engine", lines(&code, &|path| is_engine(path) && !is_test(path))),
        about("lines of programs", lines(&code, &|path| !is_engine(path) && !is_test(path))),
        about("lines of tests", lines(&code, &is_test)),
        about("lines of documents", lines(&documents, &|_| true)),
    ]
}

/// Returns the numbers directly before each `behind`.
fn numbers_before(text: &str, behind: &str) -> Vec<usize> {
    let before = text.match_indices(behind).map(|(at, _)| &text[..at]);
    let number = |before: &str| {
        let begin = before.trim_end_matches(|c: char| c.is_ascii_digit() || c == ',').len();
        before[begin..].replace(',', "").parse().ok()
    };
    before.filter_map(number).collect()
}

/// Returns the number with a comma after each three digits.
pub(super) fn with_commas(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn rounded(count: usize) -> usize {
    let unit = 10_usize.pow(count.max(1).ilog10().saturating_sub(DIGITS - 1));
    (count + unit / 2) / unit * unit
}

/// Returns name and number of a row.
fn row(line: &str) -> Option<(&str, usize)> {
    let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
    let (what, number) = (cells.next()?, cells.next()?);
    Some((what, number.replace(',', "").parse().ok()?))
}

/// Returns the numbers of the page by their names.
fn stated(page: &str) -> BTreeMap<&str, usize> {
    page.lines().filter_map(row).collect()
}

/// Returns where `document` states another number than `stated`.
fn contradictions(document: &Source, stated: &BTreeMap<&str, usize>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (at, line) in document.text.lines().enumerate() {
        for statement in STATEMENTS.iter().filter(|statement| line.contains(statement.line)) {
            let known = stated.get(statement.what).copied();
            let others = numbers_before(line, statement.behind).into_iter().filter(|n| known != Some(*n));
            wrong.extend(others.map(|number| {
                let (line, what) = (at + 1, statement.what);
                format!("{}:{line}: {number}, but {PAGE} says {known:?} {what}", document.path)
            }));
        }
    }
    wrong
}

/// Returns whether the page is written again.
pub(super) fn is_blessed() -> bool {
    std::env::var_os("QUENCH_BLESS").is_some()
}

#[test]
fn the_page_of_numbers_is_what_the_sources_say() {
    let path = root().join(PAGE);
    let page = fs::read_to_string(&path).expect("the page of numbers");
    let (before, rest) = page.split_once(BEGIN).expect("the begin of what is counted");
    let (_, after) = rest.split_once(END).expect("the end of what is counted");
    let mut table = String::from("\n| what | number |\n|---|---|\n");
    let (known, mut wrong) = (stated(&page), Vec::new());
    for Counted { what, count, is_exact } in counted() {
        let number = if is_exact { count } else { rounded(count) };
        writeln!(table, "| {what} | {} |", with_commas(number)).expect("a string");
        let tolerance = if is_exact { 0 } else { count / PART };
        if known.get(what).is_none_or(|known| known.abs_diff(count) > tolerance) {
            wrong.push(format!("{what}: {count}"));
        }
    }
    if is_blessed() {
        fs::write(&path, format!("{before}{BEGIN}{table}\n{END}{after}")).expect("writable");
        return;
    }
    report("the page states other numbers; make the numbers again with QUENCH_BLESS=1", wrong);
}

#[test]
fn other_pages_state_no_other_numbers() {
    if is_blessed() {
        return;
    }
    let page = fs::read_to_string(root().join(PAGE)).expect("the page of numbers");
    let stated = stated(&page);
    let is_history = |path: &str| ["CHANGELOG.md", PAGE].contains(&path);
    let documents = sources(".md");
    let others = documents.iter().filter(|document| !is_history(&document.path));
    report("pages agree with the page of numbers", others.flat_map(|page| contradictions(page, &stated)));
}

/// Returns the numbers of a section's tables that `page` does not have.
fn unknown<'t>(section: &'t str, page: &str) -> Vec<&'t str> {
    let known: BTreeSet<&str> = page.split([' ', '|', ';']).collect();
    let rows = section.lines().filter(|line| line.starts_with('|'));
    let cells = rows.flat_map(|row| row.split('|').map(str::trim));
    let numbers = cells.filter(|cell| cell.starts_with(|c: char| c.is_ascii_digit()));
    numbers.filter(|number| !known.contains(number)).collect()
}

#[test]
fn readme_quotes_the_page_of_performance() {
    let read = |page: &str| fs::read_to_string(root().join(page)).expect("a page");
    let (readme, page) = (read("README.md"), read("docs/guide/performance.md"));
    let (_, section) = readme.split_once("\n## How fast\n").expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    assert_eq!(unknown("| puts | 1,234 | 5 |\n| 9 |", "| 1,234 us |").len(), 2);
    assert!(!unknown(section, "").is_empty(), "the section has a table");
    report("the page of performance has each number of README's table", unknown(section, &page));
}

#[test]
fn another_number_is_found() {
    let page =
        "| what | number |\n|---|---|\n| planted bugs | 1,280 |\n| minutes of all tests | 6 | today |\n";
    let stated = stated(page);
    assert_eq!(stated.get("planted bugs"), Some(&1_280));
    let count =
        |text: &str| contradictions(&Source { path: "a.md".into(), text: text.into() }, &stated).len();
    assert_eq!(count("each of 1,280 planted bugs\ncargo test --workspace  # about 6 minutes"), 0);
    assert_eq!(count("each of 119 planted bugs\n| planted bugs caught | 9 of 9 |\n"), 2);
    assert_eq!(count("cargo test --workspace # 7 minutes, or 6 minutes later\nIn 9 minutes.\n"), 1);
    assert_eq!([with_commas(7), with_commas(1_234_567), with_commas(123_456)], ["7", "1,234,567", "123,456"]);
    assert_eq!([rounded(7), rounded(1_765), rounded(78_950)], [7, 1_770, 79_000]);
}
