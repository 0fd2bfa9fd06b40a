//! All claims of a report as a table in Markdown, and single pictures, for other documents.

use super::drawing::svg;
use super::entry::{Comparison, Entry, Report, Verdict};
use super::page::with_unit;
use std::fmt::Write as _;

const HEADER: &str = "| figure | what | published | ours | shape |\n|---|---|---|---|---|\n";

fn line(entry: &Entry, one: &Comparison) -> String {
    let shape = match one.holds {
        Some(true) => "same",
        Some(false) => "other",
        None => "not measured",
    };
    let (published, ours) = (with_unit(one.published, &one.unit), with_unit(one.ours, &one.unit));
    format!("| {} | {} | {published} | {ours} | {shape} |\n", entry.id, one.text)
}

/// Returns a table with a line for each claim, and the reasons for other shapes below it.
#[must_use]
pub fn summary(report: &Report) -> String {
    let mut text = String::from("# Figures of five papers, ours beside the published numbers\n\n");
    let count = |verdict| report.figures.iter().filter(|entry| entry.verdict == verdict).count();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "Version {}, {}, depth {}. {} {} figures and tables: {} of the same shape, {} of another one, {} \
         incomplete, {} not here. [The page](report.html) has the pictures, the settings and the commands.\n",
        report.version,
        report.date,
        report.depth,
        report.machine,
        report.figures.len(),
        count(Verdict::SameShape),
        count(Verdict::OtherShape),
        count(Verdict::Incomplete),
        count(Verdict::Absent),
    );
    text.push_str(HEADER);
    for entry in &report.figures {
        entry.comparisons.iter().for_each(|one| text.push_str(&line(entry, one)));
    }
    let other = |entry: &&Entry| entry.comparisons.iter().any(|one| one.because.is_some());
    if report.figures.iter().any(|entry| other(&entry)) {
        text.push_str("\n## Why a shape is another one\n\n");
    }
    for entry in report.figures.iter().filter(other) {
        for one in &entry.comparisons {
            if let Some(because) = &one.because {
                let _ = writeln!(text, "- **{}**, {}: {because}.", entry.id, one.text);
            }
        }
    }
    text
}

/// Returns the names and contents of files with a picture each, on a white background.
#[must_use]
pub fn pictures(report: &Report) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for entry in &report.figures {
        for (at, picture) in entry.pictures.iter().enumerate() {
            // A picture without numbers is missing in a report that is not complete.
            let Ok(drawn) = svg(picture) else { continue };
            let Some(begun) = drawn.find('>').map(|end| end + 1) else { continue };
            let (opening, rest) = drawn.split_at(begun);
            let background = r#"<rect width="100%" height="100%" fill="white"/>"#;
            files.push((format!("{}-{}.svg", entry.id, at + 1), format!("{opening}\n{background}{rest}")));
        }
    }
    files
}

#[cfg(test)]
mod tests;
