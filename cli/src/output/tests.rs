//! Tests of `output`.

use super::*;

#[test]
fn long_lines_are_broken_at_blanks_and_indented() {
    let long = format!("  {}", ["word"; 30].join(" "));
    let text = fitted(&format!("short\n{long}\n\n  two  blanks"));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines[3], lines[4]), ("short", "", "  two  blanks"));
    assert!(lines[1].starts_with("  word") && lines[2].starts_with("    word"), "{text}");
    assert!(lines.iter().all(|line| line.len() <= COLUMNS), "{text}");
    assert_eq!(text.split_whitespace().filter(|word| *word == "word").count(), 30);
    let path = "/".repeat(100);
    assert_eq!(fitted(&path), path.clone() + "\n", "what has no blank stays");
}
