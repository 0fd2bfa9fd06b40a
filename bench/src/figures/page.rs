//! A report as one self-contained page: no script, no other file, light and dark, for phones too.

use super::claim::Verdict;
use super::drawing::svg;
use super::entry::{Comparison, Entry, Report, State};
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
fn with_unit(value: Option<f64>, unit: &str) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{} {unit}", exact(value)).trim_end().to_string())
}

/// Returns a number with three digits, also far below 1.
fn exact(value: f64) -> String {
    if value != 0.0 && value.abs() < 0.01 { format!("{value:.1e}") } else { number(value) }
}

/// Returns the published number with its unit, or the direction.
pub(super) fn published(one: &Comparison) -> String {
    one.direction.clone().unwrap_or_else(|| with_unit(one.published, &one.unit))
}

/// Returns our number with its unit, and the smallest and largest of the runs.
pub(super) fn ours(one: &Comparison) -> String {
    let Some(ours) = &one.ours else { return "-".into() };
    let spread = format!(" ({} to {})", exact(ours.min), exact(ours.max));
    let spread = if ours.runs.len() > 1 { spread } else { String::new() };
    format!("{}{spread}", with_unit(Some(ours.median), &one.unit))
}

/// Returns the band, or a dash for none.
pub(super) fn band(one: &Comparison) -> String {
    match one.band.map(|band| (band.least, band.most)) {
        Some((Some(least), Some(most))) => format!("{} to {}", exact(least), exact(most)),
        Some((Some(least), None)) => format!("from {}", exact(least)),
        Some((None, Some(most))) => format!("to {}", exact(most)),
        _ => "-".into(),
    }
}

/// Returns the words of the verdict, with how strong the effect is here.
pub(super) fn verdict(one: &Comparison) -> String {
    let Some(verdict) = one.verdict else { return "-".into() };
    match one.strength {
        Some(strength) if verdict == Verdict::SameDirection => {
            let kind = if strength < 1.0 { "weaker" } else { "stronger" };
            format!("{}, {kind}: {} of the effect", verdict.words(), exact(strength))
        }
        None if verdict == Verdict::SameDirection => format!("{}, weaker", verdict.words()),
        _ => verdict.words().into(),
    }
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Reproduced => "same",
        Verdict::SameDirection => "other",
        Verdict::NotHere => "incomplete",
        Verdict::WithinNoise | Verdict::NotMeasured => "absent",
    }
}

/// Returns the worst verdict of a figure's claims.
fn worst(entry: &Entry) -> Option<Verdict> {
    let place = |verdict: &Verdict| Verdict::ALL.iter().position(|one| one == verdict);
    entry.claims.iter().filter_map(|claim| claim.verdict).max_by_key(place)
}

fn figure_class(entry: &Entry) -> &'static str {
    worst(entry).map_or("absent", class)
}

fn comparison(one: &Comparison) -> Markup {
    html! {
        tr {
            td { (one.text)
                @if !one.place.is_empty() { br; small { (one.place) } }
                @if let Some(because) = &one.because { br; em { (because) } }
            }
            td.number { (published(one)) }
            td.number { (ours(one)) }
            td.number { (band(one)) }
            td {
                @if let Some(kind) = one.verdict {
                    span class={ "verdict " (class(kind)) } { (verdict(one)) }
                }
            }
        }
    }
}

/// Returns a table of statements beside our numbers.
fn comparisons(title: &str, all: &[Comparison]) -> Markup {
    html! {
        @if !all.is_empty() {
            div.wide { table.comparisons {
                thead { tr {
                    th { (title) } th { "published" } th { "ours (of the runs)" } th { "reproduced" } th { "" }
                } }
                tbody { @for one in all { (comparison(one)) } }
            } }
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
        let row = entry.rows.iter().find(matches);
        row.map(|row| (number(row.value.median), number(row.value.min), number(row.value.max)))
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
                        @for measure in &measures {
                            td.number { @if let Some((median, min, max)) = value(*line, *measure) {
                                (median) @if min != max { br; small { (min) " to " (max) } }
                            } }
                        }
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
    let absent = entry.state == State::Absent;
    Ok(html! {
        section.figure id=(entry.id) {
            h3 {
                a href={ "#" (entry.id) } { (entry.id) } " " (entry.title)
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
            (comparisons("claim", &entry.claims))
            (comparisons("shown without a verdict", &entry.shown))
            (comparisons("event model, without a verdict", &entry.modelled))
            @if !entry.rows.is_empty() {
                details {
                    summary {
                        "All numbers (median, smallest and largest of " (entry.runs)
                        @if entry.runs == 1 { " run)" } @else { " runs)" }
                    }
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
    let claims = || report.figures.iter().flat_map(|entry| &entry.claims);
    let count = |verdict| claims().filter(|claim| claim.verdict == Some(verdict)).count();
    html! {
        p {
            (claims().count()) " claims: "
            @for verdict in Verdict::ALL.into_iter().filter(|verdict| count(*verdict) > 0) {
                span class={ "verdict " (class(verdict)) } { (count(verdict)) " " (verdict.words()) } " "
            }
        }
        nav {
            @for entry in &report.figures {
                a class=(figure_class(entry)) href={ "#" (entry.id) } title=(entry.title) { (entry.id) } " "
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
                "Each claim stands beside our number, as a median, with the smallest and largest of the runs. "
                "It is reproduced with half to twice the published effect; a smaller or larger one has the same "
                "direction; within noise, runs are on both sides of no effect. The event model decides no verdict."
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
