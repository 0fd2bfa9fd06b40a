//! Tests of the catalogue: every claim and picture finds its points, and every claim can fail.

use super::*;
use crate::figures::claim::{Claim, Ours, Published, Verdict};
use crate::figures::entry::{Entry, State};
use crate::figures::results::Results;
use crate::figures::spec::{Content, Depth, Part};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A cell of a table of Markdown has at most so many characters.
const CELL_MAX: usize = 120;

fn figures() -> Vec<Figure> {
    all().expect("the files of the catalogue are sound")
}

fn regenerated() -> Vec<(Figure, Vec<Part>)> {
    let parts = |figure: Figure| match figure.content.clone() {
        Content::Regenerated { parts, .. } => Some((figure, parts)),
        Content::Absent(_) => None,
    };
    figures().into_iter().filter_map(parts).collect()
}

/// Writes `number` to a path of a report.
fn put(report: &mut Value, path: &str, number: f64) {
    let mut at = report;
    for step in path.split('/').skip(1) {
        let (field, conditions) = match step.split_once('[') {
            Some((field, rest)) => (field, rest.strip_suffix(']')),
            None => (step, None),
        };
        if !field.is_empty() {
            at = &mut at[field];
        }
        let Some(conditions) = conditions else { continue };
        if at.is_null() {
            *at = json!([]);
        }
        let mut element = json!({});
        for condition in conditions.split('&') {
            let (key, value) = condition.split_once('=').expect("a condition");
            element[key] = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
        }
        let all = at.as_array_mut().expect("an array");
        let known = all.iter().position(|one| {
            element.as_object().expect("conditions").iter().all(|(key, value)| one.get(key) == Some(value))
        });
        let place = known.unwrap_or_else(|| {
            all.push(element);
            all.len() - 1
        });
        at = &mut all[place];
    }
    *at = json!(number);
}

/// Reports of all points of a depth: every measure is `number`.
fn constant(parts: &[Part], depth: Depth, number: f64) -> Results {
    let mut results = Results::default();
    for part in parts {
        for point in part.points(depth) {
            let mut report = json!(null);
            for x in &part.axis.values {
                for variant in &part.variants {
                    for measure in &part.measures {
                        let path = crate::figures::spec::filled(&measure.path, x, variant);
                        let paths = path.split(" over ");
                        paths.for_each(|path| put(&mut report, path, number));
                    }
                }
            }
            if results.runs(&point.command) == 0 {
                results.add(&point.command, report);
            }
        }
    }
    results
}

/// Returns the claims with the ids of their figures.
fn claims() -> Vec<(String, Claim)> {
    let mut all = Vec::new();
    for figure in figures() {
        if let Content::Regenerated { claims, .. } = figure.content {
            all.extend(claims.into_iter().map(|claim| (figure.id.clone(), claim)));
        }
    }
    all
}

#[test]
fn ids_are_unique_and_at_least_sixty_figures_are_regenerated() {
    let figures = figures();
    let ids: BTreeSet<&str> = figures.iter().map(|figure| &*figure.id).collect();
    assert_eq!(ids.len(), figures.len());
    let count = regenerated().len();
    assert!(count >= 60, "{count} of {}", figures.len());
}

#[test]
fn a_wrong_row_is_refused_with_its_place() {
    let refused = |text: &str, part: &str| {
        let common = read("common.toml", COMMON).expect("common");
        let read = read("x.toml", text);
        let figures = read.and_then(|file| Common { common: &common, file: &file }.figures());
        let error = format!("{:#}", figures.expect_err("a wrong file"));
        assert!(error.contains(part), "{error}");
    };
    let figure = |claim: &str| {
        format!(
            "[[figure]]\nid = \"A-1\"\ntitle = \"\"\npart = [{{ run = \"put\", measures = [\"throughput\"] }}]\n\
             claims = [{{ says = \"fast\", {claim} }}]"
        )
    };
    refused("[[figure]]\nid = \"A-1\"\ntitel = \"\"", "catalogue/x.toml");
    refused(&figure("published = \"2 x\", measure = \"speed\""), "no `speed` of `` at ``");
    refused(&figure("published = \"2 us\", measure = \"throughput\""), "without the effect");
    refused(&figure("published = \"twice\", measure = \"throughput\""), "`twice` is no number");
    refused(&figure("published = \"2 x\", measure = \"throughput\", at = \"3\""), "figure A-1");
}

#[test]
fn every_claim_and_chart_finds_its_points_at_both_depths() {
    for depth in [Depth::QUICK, Depth::FULL] {
        for (figure, parts) in regenerated() {
            let results = constant(&parts, depth, 5.0);
            let entry = Entry::of(&figure, depth, &results, Vec::new());
            let (id, all) = (&entry.id, entry.claims.iter().chain(&entry.shown).chain(&entry.modelled));
            assert!(all.clone().count() > 0, "{id} compares nothing");
            for one in all.filter(|one| one.because.as_deref().is_none_or(|why| !is_absent(&figure, why))) {
                assert!(one.ours.is_some(), "{id} {}: {} finds no point", depth.name(), one.text);
            }
            assert!(!entry.pictures.is_empty(), "{id} has no picture");
            for picture in &entry.pictures {
                let drawn = picture.series.iter().flat_map(|series| &series.values).flatten().count();
                assert!(drawn > 0, "{id} {}: `{}` is empty", depth.name(), picture.title);
            }
            assert_eq!(entry.state, State::Measured, "{id}");
        }
    }
}

/// Returns whether a claim of the figure is absent for this reason.
fn is_absent(figure: &Figure, reason: &str) -> bool {
    let Content::Regenerated { claims, .. } = &figure.content else { return false };
    claims.iter().any(|claim| claim.ours == Ours::Absent && claim.because == reason)
}

#[test]
fn charts_name_measures_and_values_of_their_part() {
    for (figure, parts) in regenerated() {
        for part in &parts {
            for chart in &part.charts {
                for name in &chart.measures {
                    assert!(part.measure(name).is_some(), "{}: no measure `{name}`", figure.id);
                }
            }
        }
    }
}

#[test]
fn flags_and_texts_have_no_word_that_nothing_replaces() {
    let known = ["{x}", "{x/2}", "{x<8}", "{v}", "{here}", "{s3-express}", "{s3-standard}"];
    let unknown = |text: &str| known.iter().fold(text.to_string(), |text, word| text.replace(word, ""));
    for (figure, parts) in regenerated() {
        let Content::Regenerated { scaled, claims, .. } = &figure.content else { continue };
        let flags = parts.iter().flat_map(|part| {
            let choices = part.variants.iter().chain(&part.axis.values);
            [&part.command].into_iter().chain(choices.map(|choice| &choice.flags))
        });
        let reasons = claims.iter().map(|claim| &claim.because);
        for text in flags.chain(reasons).chain([&figure.setting, scaled]) {
            assert!(!unknown(text).contains('{'), "{}: {text}", figure.id);
        }
    }
}

#[test]
fn each_claim_has_a_place_and_a_band_that_can_fail() {
    let all = claims();
    assert!(all.len() >= 90, "{} claims", all.len());
    for (id, claim) in all {
        let Claim { text, place, published, without, because, .. } = &claim;
        assert!(!text.is_empty() && !place.is_empty() && !because.is_empty(), "{id}: {claim:?}");
        assert!(text.chars().count() <= CELL_MAX, "{id}: {text} is longer than a cell of a table");
        assert_ne!(*published, Published::Nothing, "{id}: {text}");
        let (least, most) = claim.band();
        let is_in =
            |number: f64| least.is_none_or(|least| number >= least) && most.is_none_or(|most| number <= most);
        assert!(least.is_some() || most.is_some(), "{id}: {text} cannot fail");
        assert!(!is_in(*without), "{id}: {text} holds without the effect");
        if let Published::Number(number) = published {
            assert!(is_in(*number), "{id}: {text} does not hold for the published number");
        }
        let verdict = |number: f64| claim.verdict(crate::figures::runs::Summary::of(vec![number]).as_ref());
        assert_eq!(verdict(*without).0, Verdict::NotHere, "{id}: {text}");
        if let Ours::Ratio(one, other) | Ours::Change(one, other) = &claim.ours {
            assert_ne!(one, other, "{id}: {text} compares a number with itself");
        }
    }
}

#[test]
fn no_claim_is_judged_by_the_event_model() {
    for (figure, parts) in regenerated() {
        let Content::Regenerated { claims, shown, modelled, .. } = &figure.content else { continue };
        let is_modelled = |name: &str| parts.iter().any(|part| part.modelled && part.name == name);
        let parts_of = |claim: &Claim| match &claim.ours {
            Ours::Value(at) | Ours::LeastAgainstOthers(at) | Ours::CountAgainstOthers(at, _) => {
                vec![at.part.clone()]
            }
            Ours::Ratio(one, other) | Ours::Change(one, other) => vec![one.part.clone(), other.part.clone()],
            Ours::Absent => Vec::new(),
        };
        for claim in claims.iter().chain(shown) {
            assert!(!parts_of(claim).iter().any(|part| is_modelled(part)), "{}: {}", figure.id, claim.text);
        }
        for claim in modelled {
            assert!(parts_of(claim).iter().all(|part| is_modelled(part)), "{}: {}", figure.id, claim.text);
            assert!(!claim.because.is_empty(), "{}: {} says no assumption", figure.id, claim.text);
        }
    }
}

#[test]
fn each_paper_has_headlines() {
    let with =
        |paper: &str| claims().iter().filter(|(id, claim)| id.starts_with(paper) && claim.headline).count();
    for paper in ["AC-", "MS-", "ELR-", "GC-", "NVM-"] {
        assert!((2..=8).contains(&with(paper)), "{paper}: {}", with(paper));
    }
}

#[test]
fn a_missing_point_makes_the_figure_incomplete() {
    for (figure, _) in regenerated().into_iter().take(3) {
        let entry = Entry::of(&figure, Depth::QUICK, &Results::default(), vec!["the disk is full".into()]);
        assert_eq!((entry.state, entry.runs), (State::Incomplete, 0));
    }
}
