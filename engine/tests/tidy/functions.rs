//! Functions are short enough to read at once, and so are the names of tests.

use super::exceptions::{LONG_FUNCTIONS, LONG_TEST_NAMES};
use super::{Source, report, sources};

const LINES_MAX: usize = 70;
const TEST_NAME_CHARACTERS_MAX: usize = 60;

/// Returns the name of the function that begins in this line.
fn name(line: &str) -> Option<&str> {
    let mut words = line.trim_start().split_whitespace();
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
        let mut is_test = false;
        for (number, line) in source.text.lines().enumerate() {
            if line.trim() == "#[test]" {
                is_test = true;
            } else if let Some(name) = name(line).filter(|_| is_test) {
                is_test = false;
                if name.len() > TEST_NAME_CHARACTERS_MAX {
                    wrong.push(format!("{}:{}: {name}", source.path, number + 1));
                }
            }
        }
    }
    report("test names have at most 60 characters", wrong);
}
