//! All claims of a report as a table in Markdown, and single pictures, for other documents.

use super::claim::Verdict;
use super::drawing::svg;
use super::entry::{Comparison, Entry, Report, State};
use super::page::{band, ours, published, verdict};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Begin of the ids of our own tables.
const OWN: &str = "Q-";
/// Begin of the reason of a figure that another machine would show.
const NEEDS: &str = "needs ";
const HEADER: &str = "| figure | claim | published | ours | verdict |\n|---|---|---|---|---|\n";

fn line(entry: &Entry, one: &Comparison) -> String {
    format!("| {} | {} | {} | {} | {} |\n", entry.id, one.text, published(one), ours(one), verdict(one))
}

/// Returns the claims of all figures with their entries.
fn claims(report: &Report) -> impl Iterator<Item = (&Entry, &Comparison)> {
    report.figures.iter().flat_map(|entry| entry.claims.iter().map(move |claim| (entry, claim)))
}

/// Returns how many figures there are, and what became of their claims.
fn counts(report: &Report) -> String {
    let count = |verdict| claims(report).filter(|(_, claim)| claim.verdict == Some(verdict)).count();
    let [reproduced, direction, noise, not_here, missing] = Verdict::ALL.map(count);
    let own = report.figures.iter().filter(|entry| entry.id.starts_with(OWN)).count();
    let missing = if missing > 0 { format!(", {missing} not measured") } else { String::new() };
    format!(
        "{} figures and tables of papers, {own} tables of our own, {} claims: {reproduced} reproduced, \
         {direction} in the same direction, {noise} within noise, {not_here} not here{missing}.",
        report.figures.len() - own,
        claims(report).count(),
    )
}

fn begin(report: &Report) -> String {
    format!(
        "# Figures of five papers, ours beside the published numbers\n\n\
         Version {}, {}, depth {}. {} {} [The page](report.html) has the pictures, the settings, the \
         places in the papers, the bands and the commands.\n\n\
         A claim is *reproduced* with half to twice the published effect. An effect is the factor, less 1, \
         between a number and the number without the effect: 1 x, 0 %, or what the claim says. With a \
         smaller or larger effect it has the *same direction*. *Within noise*, runs are on both sides of no \
         effect. Ours is the median, with the smallest and largest of the runs.\n\n",
        report.version,
        report.date,
        report.depth,
        report.machine,
        counts(report),
    )
}

/// Returns a section of the figures that are not measured, with their reasons.
fn absent(report: &Report) -> String {
    let mut text = String::from("\n## Figures that are not measured\n\n");
    for entry in report.figures.iter().filter(|entry| entry.state == State::Absent) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "- **{}**, {}: {}.", entry.id, entry.title, entry.scaled);
    }
    text
}

/// Returns a table with a line for each claim, then the bands and reasons of those that are not
/// reproduced, what the event model computes, and the figures that are not measured.
#[must_use]
pub fn summary(report: &Report) -> String {
    let mut text = begin(report);
    text.push_str(HEADER);
    claims(report).for_each(|(entry, one)| text.push_str(&line(entry, one)));
    text.push_str("\n## Why a claim is not reproduced\n\n");
    for (entry, one) in claims(report) {
        if let Some(because) = &one.because {
            let band = band(one);
            let _ = writeln!(text, "- **{}**, {} (reproduced: {band}): {because}.", entry.id, one.text);
        }
    }
    let shown = |text: &mut String, of: &dyn Fn(&Entry) -> &[Comparison]| {
        text.push_str("\n| figure | what | published | ours | |\n|---|---|---|---|---|\n");
        for entry in &report.figures {
            of(entry).iter().for_each(|one| text.push_str(&line(entry, one)));
        }
    };
    text.push_str("\n## Shown without a verdict\n");
    shown(&mut text, &|entry| &entry.shown);
    text.push_str(
        "\n## The event model for larger machines\n\nIts times are measured here or assumed, some to fit a \
         published number, so it decides no verdict; the page says what is assumed.\n",
    );
    shown(&mut text, &|entry| &entry.modelled);
    text.push_str(&absent(report));
    text
}

/// Returns what a reader of one page has to know: the counts, the headlines of the papers, reached
/// or not, and what this machine cannot show.
#[must_use]
pub fn headlines(report: &Report) -> String {
    let (depth, counts) = (&report.depth, counts(report));
    let mut text = format!(
        "{counts} Depth of the run: {depth}. The headlines of the papers, reached or not:\n\n{HEADER}"
    );
    let headlines = claims(report).filter(|(_, claim)| claim.headline);
    headlines.for_each(|(entry, one)| text.push_str(&line(entry, one)));
    let needs = |entry: &&Entry| entry.state == State::Absent && entry.scaled.starts_with(NEEDS);
    let figures = report.figures.iter().filter(needs);
    let figures = figures.map(|entry| format!("{} ({})", entry.id, entry.scaled));
    let absent = |claim: &&Comparison| claim.verdict == Some(Verdict::NotHere) && claim.ours.is_none();
    let of = |entry: &Entry| {
        let claims = entry.claims.iter().filter(absent);
        let reasons = claims.filter_map(|claim| claim.because.as_deref()).collect::<BTreeSet<_>>();
        let reasons = reasons.into_iter().collect::<Vec<_>>().join("; ");
        (!reasons.is_empty()).then(|| format!("claims of {} ({reasons})", entry.id))
    };
    let cannot: Vec<String> = figures.chain(report.figures.iter().filter_map(of)).collect();
    if !cannot.is_empty() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\nNot shown on this machine: {}.", cannot.join(", "));
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
