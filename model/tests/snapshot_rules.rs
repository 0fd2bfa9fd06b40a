//! The rules for snapshots and stamps, and what happens without them.

use quench_model::snapshot::{ATOMIC, KEPT, REACHED_SEEN, REACHED_UNSEEN, Snapshots, Stamps, StartsAt};
use stateright::{Checker, Model};

const ENGINE: Snapshots = Snapshots::ENGINE;

fn holds(rules: Snapshots) {
    let checker = rules.checker().spawn_bfs().join();
    assert!(checker.is_done());
    println!("figures: {{\"model_states\": {}}}", checker.unique_state_count());
    checker.assert_no_discovery(ATOMIC);
    checker.assert_no_discovery(KEPT);
    checker.assert_any_discovery(REACHED_SEEN);
    checker.assert_any_discovery(REACHED_UNSEEN);
}

fn breaks(rules: Snapshots, property: &'static str) {
    rules.checker().spawn_bfs().join().assert_any_discovery(property);
}

#[test]
fn readers_at_the_newest_drawn_csn_see_commits_whole() {
    holds(ENGINE);
}

#[test]
fn readers_at_the_newest_acknowledged_csn_see_commits_whole() {
    holds(Snapshots { starts_at: StartsAt::NewestAcknowledged, ..ENGINE });
}

#[test]
fn stamps_alone_tear_a_commit() {
    for starts_at in [StartsAt::NewestDrawn, StartsAt::NewestAcknowledged] {
        breaks(Snapshots { stamps: Stamps::StampsOnly, starts_at, ..ENGINE }, ATOMIC);
    }
}

#[test]
fn a_descriptor_not_preparing_before_the_draw_tears_a_commit() {
    for starts_at in [StartsAt::NewestDrawn, StartsAt::NewestAcknowledged] {
        breaks(Snapshots { stamps: Stamps::DescriptorOnly, starts_at, ..ENGINE }, ATOMIC);
    }
}

#[test]
fn a_pin_published_after_choosing_lets_the_collector_pass() {
    for starts_at in [StartsAt::NewestDrawn, StartsAt::NewestAcknowledged] {
        breaks(Snapshots { pin_before_choosing: false, starts_at, ..ENGINE }, KEPT);
    }
}

#[test]
fn pins_loaded_before_the_bound_let_a_reader_slip_in_between() {
    breaks(Snapshots { bound_before_pins: false, ..ENGINE }, KEPT);
}

#[test]
fn a_bound_at_the_newest_drawn_csn_takes_needed_versions() {
    let rules = Snapshots { starts_at: StartsAt::NewestAcknowledged, bound: StartsAt::NewestDrawn, ..ENGINE };
    breaks(rules, KEPT);
}
