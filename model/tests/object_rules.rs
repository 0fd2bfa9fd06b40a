//! The rules for databases in a store of objects: the right ones hold in every state, each wrong
//! one has a counterexample.

use quench_model::objects::explore::{Scenario, WrongVariant, explore};
use quench_model::objects::{collect, majority, streams, takeover};
use std::collections::BTreeSet;

/// Explores every run: no rule is broken. Returns what was reached.
fn hold<S: Scenario + 'static>(runs: Vec<(&str, S)>) -> BTreeSet<&'static str> {
    let mut reached = BTreeSet::new();
    for (name, scenario) in runs {
        let findings = explore(&scenario);
        println!("{name}: {} states", findings.states);
        println!("figures: {{\"model_states\": {}}}", findings.states);
        assert!(findings.broken.is_none(), "{name}: {:?}", findings.broken);
        reached.extend(findings.reached);
    }
    reached
}

/// Explores every variant: the first broken rule is the known one.
fn break_as_known<S: Scenario + 'static>(variants: Vec<WrongVariant<S>>) {
    let mut others = Vec::new();
    for WrongVariant { name, scenario, breaks } in variants {
        let broken = explore(&scenario).broken;
        println!("{name}: {broken:?}");
        let violation = broken.map(|found| found.violation);
        if violation != Some(breaks) {
            others.push((name, violation, breaks));
        }
    }
    assert!(others.is_empty(), "what breaks, and what should: {others:?}");
}

#[test]
fn takeovers_by_the_rules_lose_nothing() {
    let reached = hold(takeover::wrong::right());
    assert_eq!(reached.len(), 3, "{reached:?}");
}

#[test]
fn each_mistake_in_a_takeover_breaks_a_promise() {
    break_as_known(takeover::wrong::variants());
}

#[test]
fn streams_by_the_rules_lose_nothing() {
    let reached = hold(streams::wrong::right());
    assert_eq!(reached.len(), 3, "{reached:?}");
}

#[test]
fn each_mistake_with_streams_breaks_a_promise() {
    break_as_known(streams::wrong::variants());
}

#[test]
fn collecting_by_the_rules_loses_nothing() {
    let mut reached = hold(collect::wrong::right(false));
    if std::env::var("QUENCH_DEEP").is_ok_and(|deep| deep == "1") {
        reached.extend(hold(collect::wrong::right(true)));
    }
    assert_eq!(reached.len(), 3, "{reached:?}");
}

#[test]
fn each_mistake_in_collecting_loses_an_extent() {
    break_as_known(collect::wrong::variants());
}

#[test]
fn several_buckets_by_the_rules_lose_nothing() {
    let is_deep = std::env::var("QUENCH_DEEP").is_ok_and(|deep| deep == "1");
    let reached = hold(majority::wrong::right(is_deep));
    assert_eq!(reached.len(), 4, "{reached:?}");
}

#[test]
fn each_mistake_with_several_buckets_breaks_a_promise() {
    break_as_known(majority::wrong::variants());
}
