//! The rules for locks, validation and early release: the right ones hold in every state that is
//! looked at, each wrong one has a counterexample.

use quench_model::locks::explore::{Findings, explore, explore_until};
use quench_model::locks::scenario::{CommitPath, Dependencies, LockNames, Release, Rules, Scenario};
use quench_model::locks::wrong::WrongVariant;
use quench_model::locks::{judge, right, wrong};
use std::collections::BTreeSet;

/// States of a scenario that are looked at if not all are: `QUENCH_DEEP=1` asks for all.
const STATES_MOST: usize = 10_000;

/// One in so many pairs of programs is run if not all are.
const PAIRS_STEP: usize = 331;

fn is_deep() -> bool {
    std::env::var("QUENCH_DEEP").is_ok_and(|deep| deep == "1")
}

/// Explores a scenario: no property fails.
fn holds(name: &str, scenario: &Scenario, states_most: Option<usize>) -> Findings {
    let findings = explore(scenario, states_most);
    println!("figures: {{\"model_states\": {}}}", findings.states);
    assert!(findings.broken.is_empty(), "{name}: {:?}: {:?}", scenario.rules, findings.broken);
    findings
}

/// Runs all programs under the right rules that `are_meant`, and returns what they reached.
fn programs_hold(are_meant: impl Fn(&Rules) -> bool) -> BTreeSet<&'static str> {
    let states_most = (!is_deep()).then_some(STATES_MOST);
    let mut reached = BTreeSet::new();
    for rules in right::rules().into_iter().filter(are_meant) {
        for (name, scenario) in right::scenarios(rules) {
            reached.extend(holds(&name, &scenario, states_most).reached);
        }
    }
    reached
}

fn is_plain(rules: &Rules) -> bool {
    rules.names == LockNames::Intervals && !rules.uses_leaf_versions
}

#[test]
fn drawing_first_holds_with_early_late_and_mixed_release() {
    for release in [Release::Early, Release::Late, Release::Mixed] {
        let are_meant = |rules: &Rules| {
            rules.commit == CommitPath::DrawFirst && rules.release == release && is_plain(rules)
        };
        let reached = programs_hold(are_meant);
        let missed = judge::REACHED.iter().find(|property| !reached.contains(*property));
        assert!(missed.is_none(), "{release:?}: {missed:?}");
    }
}

#[test]
fn one_latch_around_validation_and_draw_holds() {
    programs_hold(|rules| rules.commit == CommitPath::Atomic && is_plain(rules));
}

#[test]
fn marks_on_reads_during_the_commit_hold() {
    programs_hold(|rules| rules.commit == CommitPath::Marks && is_plain(rules));
}

#[test]
fn leaf_versions_of_settled_reads_hold() {
    programs_hold(|rules| rules.uses_leaf_versions);
}

#[test]
fn next_keys_that_are_always_transferred_hold() {
    programs_hold(|rules| rules.names == LockNames::NextKeys);
}

#[test]
fn pairs_of_small_programs_hold() {
    let step = if is_deep() { 1 } else { PAIRS_STEP };
    for rules in right::rules_of_pairs() {
        for scenario in right::pairs(rules).step_by(step) {
            holds("a pair", &scenario, None);
        }
    }
}

/// The checker finds a way to what must not happen.
fn breaks(variant: &WrongVariant, dependencies: Dependencies) {
    let findings = explore_until(&variant.by(dependencies), variant.breaks);
    println!("figures: {{\"model_states\": {}}}", findings.states);
    let broken = findings.broken.iter().find(|(property, _)| *property == variant.breaks);
    let (property, steps) = broken.unwrap_or_else(|| panic!("{}, {dependencies:?}: passes", variant.name));
    println!("{}: {property}: {steps}", variant.name);
}

#[test]
fn every_wrong_variant_has_a_counterexample() {
    let variants = wrong::variants();
    assert_eq!(variants.len(), 32);
    for variant in &variants {
        breaks(variant, Dependencies::Dsn);
        if variant.breaks_with(Dependencies::Exact) {
            breaks(variant, Dependencies::Exact);
        }
    }
}

#[test]
fn every_property_is_broken_by_a_wrong_variant() {
    let broken: BTreeSet<&str> = wrong::variants().iter().map(|variant| variant.breaks).collect();
    assert_eq!(broken, judge::ALWAYS.into_iter().collect());
}

/// A recovery by exact lists does not look for missing CSNs.
#[test]
fn void_records_that_count_as_missing_hold_with_exact_lists() {
    let variants = wrong::variants();
    let differ = variants.iter().filter(|variant| !variant.breaks_with(Dependencies::Exact));
    let [variant] = differ.collect::<Vec<_>>()[..] else { panic!("one variant differs") };
    let states_most = (!is_deep()).then_some(STATES_MOST);
    holds(variant.name, &variant.by(Dependencies::Exact), states_most);
}

#[test]
fn the_document_of_the_rules_names_every_wrong_variant() {
    let document = include_str!("../../docs/internals/locks.md");
    let named: BTreeSet<&str> = document
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("Broken by "))
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect();
    let all: BTreeSet<&str> = wrong::variants().iter().map(|variant| variant.name).collect();
    assert_eq!(named, all);
}
