//! A report as one self-contained page: no script, no other file, light and dark, for phones too.

use super::drawing::svg;
use super::entry::{Comparison, Entry, Report, Verdict};
use crate::html::{document, number};
use anyhow::Result;
use maud::{Markup, PreEscaped, html};

/// The papers, by the beginning of the ids.
const PAPERS: [(&str, &str); 6] = [
    ("AC", "Autonomous commit (SIGMOD 2025)"),
    ("MS", "Commits on object storage: restricted logging, record-level dependencies (2026)"),
    ("ELR", "Early lock release in Shore-MT"),
    ("GC", "Group commit"),
    ("NVM", "Distributed logging and passive group commit (VLDB 2014)"),
    ("Q", "Tables of this engine"),
];

/// Returns a number with its unit, or a dash for none.
pub(super) fn with_unit(value: Option<f64>, unit: &str) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{} {unit}", number(value)).trim_end().to_string())
}

fn verdict_class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::SameShape => "same",
        Verdict::OtherShape => "other",
        Verdict::Incomplete => "incomplete",
        Verdict::Absent => "absent",
    }
}

fn comparison(comparison: &Comparison) -> Markup {
    let mark = match comparison.holds {
        Some(true) => "✓",
        Some(false) => "✗",
        None => "?",
    };
    html! {
        tr {
            td { (comparison.text)
                @if let Some(because) = &comparison.because { br; em { (because) } }
            }
            td.number { (with_unit(comparison.published, &comparison.unit)) }
            td.number { (with_unit(comparison.ours, &comparison.unit)) }
            td.number { (comparison.ratio.map(|ratio| format!("{} x", number(ratio))).unwrap_or_default()) }
            td { (mark) }
        }
    }
}

/// Returns the table of all numbers: a row for each value of the axis and variant, a column for
/// each measure.
fn numbers(entry: &Entry) -> Markup {
    let mut measures: Vec<(&str, &str)> = Vec::new();
    let mut lines: Vec<(&str, &str, &str)> = Vec::new();
    for row in &entry.rows {
        let (measure, line) = ((&*row.measure, &*row.unit), (&*row.part, &*row.x, &*row.variant));
        if !measures.contains(&measure) {
            measures.push(measure);
        }
        if lines.last() != Some(&line) {
            lines.push(line);
        }
    }
    let value = |(part, x, variant): (&str, &str, &str), (measure, unit): (&str, &str)| {
        let matches = |row: &&super::entry::Row| {
            (&*row.part, &*row.x, &*row.variant, &*row.measure, &*row.unit)
                == (part, x, variant, measure, unit)
        };
        entry.rows.iter().find(matches).map(|row| number(row.value.median)).unwrap_or_default()
    };
    html! {
        div.wide { table {
            thead { tr {
                th { "part" } th { "x" } th { "variant" }
                @for (measure, unit) in &measures { th { (measure) @if !unit.is_empty() { ", " (unit) } } }
            } }
            tbody {
                @for line in &lines {
                    tr {
                        td { (line.0) } td { (line.1) } td { (line.2) }
                        @for measure in &measures { td.number { (value(*line, *measure)) } }
                    }
                }
            }
        } }
    }
}

fn figure(entry: &Entry) -> Result<Markup> {
    let mut pictures = Vec::new();
    for picture in &entry.pictures {
        // A picture without numbers is missing in a report that is not complete.
        if let Ok(drawn) = svg(picture) {
            pictures.push((picture, drawn));
        }
    }
    let absent = entry.verdict == Verdict::Absent;
    Ok(html! {
        section.figure id=(entry.id) {
            h3 {
                a href={ "#" (entry.id) } { (entry.id) } " " (entry.title) " "
                span class={ "verdict " (verdict_class(entry.verdict)) } { (entry.verdict.words()) }
            }
            @if !entry.setting.is_empty() { p.setting { b { "There: " } (entry.setting) } }
            @if !entry.scaled.is_empty() {
                p.setting { b { (if absent { "Why: " } else { "Here: " }) } (entry.scaled) }
            }
            @for error in &entry.errors { p.error { (error) } }
            @if !pictures.is_empty() {
                div.pictures {
                    @for (picture, drawn) in &pictures {
                        figure { figcaption { (picture.title) } (PreEscaped(drawn)) }
                    }
                }
            }
            @if !entry.comparisons.is_empty() {
                div.wide { table.comparisons {
                    thead { tr { th { "" } th { "published" } th { "ours" } th { "ratio" } th { "" } } }
                    tbody { @for one in &entry.comparisons { (comparison(one)) } }
                } }
            }
            @if !entry.rows.is_empty() {
                details {
                    summary { "All numbers (median of " (entry.runs) @if entry.runs == 1 { " run)" } @else { " runs)" } }
                    (numbers(entry))
                }
                details {
                    summary { "Commands" }
                    pre { @for command in &entry.commands { (command) "\n" } }
                }
            }
        }
    })
}

fn overview(report: &Report) -> Markup {
    let count = |verdict| report.figures.iter().filter(|entry| entry.verdict == verdict).count();
    let verdicts = [Verdict::SameShape, Verdict::OtherShape, Verdict::Incomplete, Verdict::Absent];
    html! {
        p {
            (report.figures.len()) " figures and tables: "
            @for verdict in verdicts.into_iter().filter(|verdict| count(*verdict) > 0) {
                span class={ "verdict " (verdict_class(verdict)) } { (count(verdict)) " " (verdict.words()) } " "
            }
        }
        nav {
            @for entry in &report.figures {
                a class=(verdict_class(entry.verdict)) href={ "#" (entry.id) } title=(entry.title) { (entry.id) } " "
            }
        }
    }
}

/// Returns the page.
///
/// # Errors
/// A picture cannot be drawn.
pub fn page(report: &Report) -> Result<String> {
    let mut sections = Vec::new();
    for (prefix, title) in PAPERS {
        let of_paper = report.figures.iter().filter(|entry| entry.id.split('-').next() == Some(prefix));
        let figures = of_paper.map(figure).collect::<Result<Vec<Markup>>>()?;
        if !figures.is_empty() {
            sections.push((title, figures));
        }
    }
    let title = "QuenchDB: the figures of five papers, measured again";
    let body = html! {
        header {
            h1 { (title) }
            p.setting {
                "Version " (report.version) ", " (report.date) ", depth " (report.depth) ". " (report.machine)
            }
            p {
                "Each figure shows our measurement, and the published number beside ours. "
                "Machines differ, so the shape counts: which variant wins, and by how much."
            }
            (overview(report))
        }
        main {
            @for (title, figures) in &sections {
                h2 { (title) }
                @for figure in figures { (figure) }
            }
        }
    };
    Ok(document(title, &body))
}

#[cfg(test)]
mod tests;
