//! Functions and the names of tests are short.

use super::exceptions::{LONG_FUNCTIONS, LONG_TEST_NAMES};
use super::{Source, report, sources};

const LINES_MAX: usize = 70;
const TEST_NAME_CHARACTERS_MAX: usize = 60;

/// Returns the name of the function that begins in this line.
fn name(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let qualifiers = ["pub", "pub(crate)", "pub(super)", "const", "async", "unsafe", "extern", "\"C\""];
    let first = words.find(|word| !qualifiers.contains(word))?;
    let rest = (first == "fn").then(|| words.next())??;
    rest.split(['(', '<']).next()
}

/// Returns functions with their first line and their length, as rustfmt lays them out.
fn functions(source: &Source) -> Vec<(String, usize, usize)> {
    let lines: Vec<&str> = source.text.lines().collect();
    let mut found = Vec::new();
    for (first, line) in lines.iter().enumerate() {
        let Some(name) = name(line) else { continue };
        let indent = &line[..line.len() - line.trim_start().len()];
        let end = format!("{indent}}}");
        let ends = |line: &&str| {
            **line == end
                || line.starts_with(indent)
                    && line.trim_end().ends_with(';')
                    && line[indent.len()..].starts_with([')', 'f', 'p'])
        };
        let Some(len) = lines[first..].iter().position(|line| ends(line) || line.ends_with("{}")) else {
            continue;
        };
        found.push((format!("{}::{name}", source.path), first + 1, len + 1));
    }
    found
}

/// Returns the tests of a file with the lines they begin in. The table of what every preset does
/// makes a test of each row.
fn tests(source: &Source) -> Vec<(usize, &str)> {
    let (mut found, mut is_test) = (Vec::new(), false);
    let table = source.text.find("\nevery_preset! {").unwrap_or(source.text.len());
    let table_begins = source.text[..table].lines().count();
    for (number, line) in source.text.lines().enumerate() {
        let row = line.strip_prefix("        ").and_then(|row| row.strip_suffix(',')?.split_once(": "));
        if let Some((name, _)) = row.filter(|_| number > table_begins) {
            found.push((number + 1, name));
        } else if line.trim() == "#[test]" {
            is_test = true;
        } else if let Some(name) = name(line).filter(|_| is_test) {
            is_test = false;
            found.push((number + 1, name));
        }
    }
    found
}

/// Returns the names by which the test harness knows the tests of a file of the engine.
fn harness_names(source: &Source) -> Vec<String> {
    let path = source.path.trim_start_matches("engine/src/").trim_start_matches("engine/tests/");
    let module = path.trim_end_matches(".rs").trim_end_matches("/mod").replace('/', "::");
    let inline = if source.text.contains("\nmod tests {") { "tests::" } else { "" };
    tests(source).into_iter().map(|(_, name)| format!("{module}::{inline}{name}")).collect()
}

#[test]
fn detectors_of_planted_bugs_name_tests_that_exist() {
    let sources = sources(".rs");
    let engine = sources.iter().filter(|source| source.path.starts_with("engine/"));
    let names: Vec<String> = engine.flat_map(harness_names).collect();
    let detectors = sources.iter().find(|source| source.path == "sim/src/planted/detectors.rs");
    let text = &detectors.expect("it names the detectors").text;
    let calls = text.split("tests(").skip(1).filter_map(|call| call.split_once(')'));
    let filters: Vec<&str> = calls.filter_map(|(call, _)| call.split('"').nth(3)).collect();
    assert!(filters.len() > 50, "{} filters", filters.len());
    let wrong = filters.iter().filter(|filter| !names.iter().any(|name| name.contains(**filter)));
    report("a detector of a planted bug names a test", wrong);
}

#[test]
fn functions_have_at_most_70_lines() {
    let mut wrong = Vec::new();
    for source in sources(".rs") {
        for (name, line, lines) in functions(&source) {
            if lines > LINES_MAX && !LONG_FUNCTIONS.contains(&name.as_str()) {
                wrong.push(format!("\"{name}\", // line {line}: {lines} lines"));
            }
        }
    }
    report("functions have at most 70 lines", wrong);
}

#[test]
fn test_names_have_at_most_60_characters() {
    let mut wrong = Vec::new();
    for source in sources(".rs") {
        if LONG_TEST_NAMES.iter().any(|place| source.path.starts_with(place)) {
            continue;
        }
        for (number, name) in tests(&source) {
            if name.len() > TEST_NAME_CHARACTERS_MAX {
                wrong.push(format!("{}:{number}: {name}", source.path));
            }
        }
    }
    report("test names have at most 60 characters", wrong);
}
