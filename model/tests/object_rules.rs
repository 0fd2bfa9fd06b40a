//! The rules for databases in a store of objects: the right ones hold in every state, each wrong
//! one has a counterexample.

use quench_model::objects::explore::{Scenario, WrongVariant, explore};
use quench_model::objects::{collect, streams, takeover};
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
    for WrongVariant { name, scenario, breaks } in variants {
        let broken = explore(&scenario).broken;
        println!("{name}: {broken:?}");
        assert_eq!(broken.map(|found| found.violation), Some(breaks), "{name}");
    }
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
