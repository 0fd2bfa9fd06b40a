//! Tests of the catalogue: every claim and picture finds its points.

use super::*;
use crate::figures::entry::{Entry, Verdict};
use crate::figures::results::Results;
use crate::figures::spec::{At, Chart, Content, Depth, Ours, Part};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn regenerated() -> Vec<(Figure, Vec<Part>)> {
    let parts = |figure: Figure| match figure.content.clone() {
        Content::Regenerated { parts, .. } => Some((figure, parts)),
        Content::Absent(_) => None,
    };
    all().into_iter().filter_map(parts).collect()
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
                        let path = crate::figures::spec::filled(measure.path, x, variant);
                        put(&mut report, &path, number);
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

#[test]
fn ids_are_unique_and_at_least_sixty_figures_are_regenerated() {
    let figures = all();
    let ids: BTreeSet<&str> = figures.iter().map(|figure| figure.id).collect();
    assert_eq!(ids.len(), figures.len());
    let count = regenerated().len();
    assert!(count >= 60, "{count} of {}", figures.len());
}

#[test]
fn every_claim_and_chart_finds_its_points_at_both_depths() {
    for depth in [Depth::QUICK, Depth::FULL] {
        for (figure, parts) in regenerated() {
            let results = constant(&parts, depth, 5.0);
            let entry = Entry::of(&figure, depth, &results, Vec::new());
            assert!(!entry.comparisons.is_empty(), "{} compares nothing", figure.id);
            for one in &entry.comparisons {
                assert!(one.ours.is_some(), "{} {}: {} finds no point", figure.id, depth.name(), one.text);
            }
            assert!(!entry.pictures.is_empty(), "{} has no picture", figure.id);
            for picture in &entry.pictures {
                let drawn = picture.series.iter().flat_map(|series| &series.values).flatten().count();
                assert!(drawn > 0, "{} {}: `{}` is empty", figure.id, depth.name(), picture.title);
            }
            assert_ne!(entry.verdict, Verdict::Incomplete, "{}", figure.id);
        }
    }
}

#[test]
fn charts_name_measures_of_their_part() {
    for (figure, parts) in regenerated() {
        for part in &parts {
            for chart in &part.charts {
                let names: Vec<&str> = match chart {
                    Chart::Lines { measure, .. } | Chart::Bars { measure, .. } => vec![measure],
                    Chart::Across { measures, .. } | Chart::Stacked { measures, .. } => measures.to_vec(),
                };
                for name in names {
                    assert!(part.measure(name).is_some(), "{}: no measure {name}", figure.id);
                }
            }
        }
    }
}

#[test]
fn a_claim_that_can_fail_says_why_it_would() {
    for figure in all() {
        let Content::Regenerated { claims, .. } = &figure.content else { continue };
        for claim in claims {
            let can_fail = !claim.holds.of(f64::NAN);
            assert_eq!(can_fail, !claim.otherwise.is_empty(), "{}: {}", figure.id, claim.text);
            if let Ours::Ratio(one, other) | Ours::Change(one, other) | Ours::Percent(one, other) = claim.ours
            {
                let differ = |one: At, other: At| one != other;
                assert!(differ(one, other), "{}: {} compares a number with itself", figure.id, claim.text);
            }
        }
    }
}

#[test]
fn a_missing_point_makes_the_figure_incomplete() {
    for (figure, _) in regenerated().into_iter().take(3) {
        let entry = Entry::of(&figure, Depth::QUICK, &Results::default(), vec!["the disk is full".into()]);
        assert_eq!((entry.verdict, entry.runs), (Verdict::Incomplete, 0));
    }
}
