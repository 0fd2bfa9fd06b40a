//! The rules for acknowledgment and recovery: the engine's hold in every reachable state, each
//! wrong one has a counterexample.

use quench_model::machine::{
    REACHED_DISCARD, REACHED_OUT_OF_ORDER, REACHED_READ_ONLY, REACHED_SECOND_EPOCH, REACHED_STOLEN,
    REACHED_VOID, name,
};
use quench_model::state::Violation;
use quench_model::{
    ClockScan, Dependencies, Durable, Judged, Listed, ReadersClock, RecoveryDurability, Scenario, Stealing,
    StoredWatermark, Tombstones, Transaction, Voids, WatermarkScan,
};
use stateright::{Checker, HasDiscoveries, Model};

const X: u8 = 0;
const Y: u8 = 1;
const Z: u8 = 2;

const VIOLATIONS: [Violation; 7] = [
    Violation::AcknowledgedLost,
    Violation::NotClosed,
    Violation::NotRepeatable,
    Violation::Resurrected,
    Violation::ReadOnlyLost,
    Violation::HealthyRefused,
    Violation::ServedLost,
];

/// States of a scenario that are looked at if not all are: `QUENCH_DEEP=1` asks for all.
const STATES_MOST: usize = 40_000;

/// Explores everything: nothing wrong happens, and what the scenario is about does.
fn holds(scenario: Scenario, reached: &[&'static str]) {
    let is_deep = std::env::var("QUENCH_DEEP").is_ok_and(|deep| deep == "1");
    let mut checker = scenario.checker().threads(1);
    if !is_deep {
        checker = checker.target_state_count(STATES_MOST);
    }
    let checker = checker.spawn_bfs().join();
    println!("figures: {{\"model_states\": {}}}", checker.unique_state_count());
    for violation in VIOLATIONS {
        let found = checker.discovery(name(violation));
        assert!(found.is_none(), "{violation:?}: {:?}", found.map(|path| path.into_actions()));
    }
    if !is_deep {
        return;
    }
    assert!(checker.is_done());
    for reached in reached {
        checker.assert_any_discovery(reached);
    }
}

/// The checker finds a way to what must not happen.
fn breaks(scenario: Scenario, violation: Violation) {
    let wanted = HasDiscoveries::AnyOf([name(violation)].into());
    let checker = scenario.checker().threads(1).finish_when(wanted).spawn_bfs().join();
    println!("figures: {{\"model_states\": {}}}", checker.unique_state_count());
    let path = checker.assert_any_discovery(name(violation));
    println!("{violation:?}: {:?}", path.into_actions());
}

/// Three logs; each transaction reads what the one before wrote; one promises bounded loss, one
/// only reads; a second epoch builds on the remaining log.
fn chain() -> Scenario {
    Scenario::new(vec![
        Transaction::durable(1, 0, &[], &[X]),
        Transaction::bounded_loss(1, 1, &[X], &[Y]),
        Transaction::durable(1, 2, &[Y], &[Z]),
        Transaction::read_only(1, &[X, Z]),
        Transaction::durable(2, 1, &[X, Z], &[Y]),
    ])
}

/// Two independent commits of one log whose writes are in flight together, and one that reads the
/// first of them.
fn two_writes_in_flight() -> Scenario {
    Scenario::new(vec![
        Transaction::durable(1, 0, &[], &[X]),
        Transaction::durable(1, 0, &[], &[Y]),
        Transaction::durable(1, 1, &[X], &[Z]),
        Transaction::durable(2, 1, &[X, Y], &[Z]),
    ])
}

/// One run with a chain over three logs, for the scan in steps.
fn scanned(watermark: WatermarkScan) -> Scenario {
    let mut scenario = Scenario::new(vec![
        Transaction::durable(1, 0, &[], &[X]),
        Transaction::durable(1, 1, &[X], &[Y]),
        Transaction::durable(1, 2, &[Y], &[Z]),
        Transaction::read_only(1, &[Z]),
    ]);
    (scenario.in_flight_max, scenario.crashes) = (1, 1);
    scenario.with(|rules| rules.watermark = watermark)
}

/// A kill, then a power cut.
fn killed(recovery: RecoveryDurability) -> Scenario {
    let mut scenario = Scenario::new(vec![
        Transaction::durable(1, 0, &[], &[X]),
        Transaction::durable(1, 1, &[X], &[Y]),
        Transaction::durable(2, 1, &[X, Y], &[Y]),
        Transaction::durable(2, 0, &[], &[Z]),
    ]);
    scenario.first_crash_is_kill = true;
    scenario.with(|rules| rules.recovery = recovery)
}

/// A delete, a transaction that finds the row absent, and a reader.
fn deleted(tombstones: Tombstones) -> Scenario {
    let scenario = Scenario::new(vec![
        Transaction::deleting(1, 0, &[X]),
        Transaction::durable(1, 1, &[X], &[Y]),
        Transaction::read_only(1, &[X]),
        Transaction::durable(2, 1, &[X], &[Y]),
    ]);
    scenario.with(|rules| rules.tombstones = tombstones)
}

#[test]
fn dsn_acknowledgment_and_dsn_recovery_hold_over_two_crashes() {
    // In the chain out-of-order acknowledgment needs a transaction that depends on nothing.
    let mut scenario = chain();
    scenario.transactions[3] = Transaction::durable(1, 1, &[], &[Y]);
    scenario.in_flight_max = 1;
    holds(scenario, &[REACHED_OUT_OF_ORDER, REACHED_VOID, REACHED_DISCARD, REACHED_SECOND_EPOCH]);
}

#[test]
fn csn_acknowledgment_and_dsn_recovery_hold() {
    let csn = |scenario: Scenario| scenario.with(|rules| rules.dependencies = Dependencies::Csn);
    holds(csn(chain()), &[REACHED_VOID, REACHED_DISCARD, REACHED_SECOND_EPOCH, REACHED_READ_ONLY]);
    holds(csn(two_writes_in_flight()), &[REACHED_VOID, REACHED_DISCARD]);
}

#[test]
fn exact_acknowledgment_with_dsn_recovery_loses_commits() {
    // Log 0 writes nothing durable; log 2's transaction depends on log 1's only, whose CSN is the
    // higher one.
    let mut scenario = Scenario::new(vec![
        Transaction::durable(1, 0, &[], &[X]),
        Transaction::durable(1, 1, &[], &[Y]),
        Transaction::durable(1, 2, &[Y], &[Z]),
    ]);
    (scenario.in_flight_max, scenario.crashes) = (1, 1);
    breaks(scenario.with(|rules| rules.dependencies = Dependencies::Exact), Violation::AcknowledgedLost);
}

/// Exact acknowledgment, and recovery by lists.
fn exact(scenario: Scenario) -> Scenario {
    scenario.with(|rules| (rules.dependencies, rules.judged) = (Dependencies::Exact, Judged::ByList))
}

/// Log 0 is slow. Two transactions have nothing to do with it, one depends on it through another.
fn beside_a_straggler() -> Scenario {
    let mut scenario = Scenario::new(vec![
        Transaction::durable(1, 0, &[], &[X]),
        Transaction::durable(1, 1, &[], &[Y]),
        Transaction::durable(1, 2, &[Y], &[Z]),
        Transaction::durable(1, 1, &[X], &[Y]),
        Transaction::durable(2, 2, &[X, Y, Z], &[X]),
    ]);
    scenario.in_flight_max = 1;
    scenario
}

#[test]
fn exact_acknowledgment_and_lists_hold_over_two_crashes() {
    let reached = [REACHED_OUT_OF_ORDER, REACHED_VOID, REACHED_DISCARD, REACHED_SECOND_EPOCH];
    holds(exact(beside_a_straggler()), &reached);
    holds(exact(two_writes_in_flight()), &reached[..3]);
    holds(exact(chain()), &[REACHED_VOID, REACHED_DISCARD, REACHED_SECOND_EPOCH, REACHED_READ_ONLY]);
}

#[test]
fn exact_acknowledgment_holds_with_deletes_and_after_a_kill() {
    holds(exact(deleted(Tombstones::Stamped)), &[REACHED_READ_ONLY, REACHED_SECOND_EPOCH]);
    holds(exact(killed(RecoveryDurability::FlushAndReappend)), &[REACHED_SECOND_EPOCH]);
    breaks(exact(deleted(Tombstones::Purged)), Violation::NotClosed);
}

/// Acknowledgment by clocks, and recovery by lists.
fn by_clocks(dependencies: Dependencies, scenario: Scenario) -> Scenario {
    scenario.with(|rules| (rules.dependencies, rules.judged) = (dependencies, Judged::ByList))
}

/// Log 0 is slow. In log 1 one transaction reads what is in log 0, and one reads only what that
/// wrote; log 2 has nothing to do with them.
fn alone_behind_one_that_waits() -> Scenario {
    let mut scenario = Scenario::new(vec![
        Transaction::durable(1, 0, &[], &[X]),
        Transaction::durable(1, 1, &[X], &[Y]),
        Transaction::durable(1, 1, &[Y], &[Y]),
        Transaction::durable(1, 2, &[], &[Z]),
    ]);
    (scenario.in_flight_max, scenario.crashes) = (1, 1);
    scenario
}

/// A log that is far ahead, whose last record is lost, and two transactions in other logs, the
/// second of which read the first.
fn behind_one_that_is_ahead() -> Scenario {
    let mut scenario = Scenario::new(vec![
        Transaction::durable(1, 0, &[], &[X]),
        Transaction::durable(1, 0, &[], &[X]),
        Transaction::durable(1, 0, &[], &[X]),
        Transaction::durable(1, 1, &[], &[Y]),
        Transaction::durable(1, 2, &[Y], &[Z]),
    ]);
    (scenario.in_flight_max, scenario.crashes) = (1, 1);
    scenario
}

/// One that reads what a log that is ahead has last written.
fn reads_from_one_that_is_ahead() -> Scenario {
    let mut scenario = Scenario::new(vec![
        Transaction::durable(1, 0, &[], &[Z]),
        Transaction::durable(1, 0, &[], &[X]),
        Transaction::durable(1, 1, &[X], &[Y]),
        Transaction::durable(1, 2, &[Y], &[Z]),
    ]);
    (scenario.in_flight_max, scenario.crashes) = (1, 1);
    scenario
}

#[test]
fn acknowledgment_by_clocks_and_recovery_by_lists_hold() {
    holds(by_clocks(Dependencies::Gsn, reads_from_one_that_is_ahead()), &[REACHED_DISCARD]);
    let alone = by_clocks(Dependencies::GsnRfa, alone_behind_one_that_waits());
    holds(alone, &[REACHED_VOID, REACHED_DISCARD]);
}

#[test]
fn acknowledgment_by_clocks_holds_with_deletes_and_after_a_kill() {
    holds(
        by_clocks(Dependencies::GsnRfa, deleted(Tombstones::Stamped)),
        &[REACHED_READ_ONLY, REACHED_SECOND_EPOCH],
    );
    holds(
        by_clocks(Dependencies::GsnRfa, killed(RecoveryDurability::FlushAndReappend)),
        &[REACHED_SECOND_EPOCH],
    );
}

#[test]
fn transitive_remote_flush_avoidance_loses_commits() {
    let scenario = by_clocks(Dependencies::GsnRfaTransitive, alone_behind_one_that_waits());
    breaks(scenario, Violation::AcknowledgedLost);
}

#[test]
fn a_clock_not_raised_by_reading_loses_commits() {
    for rule in [Dependencies::Gsn, Dependencies::GsnRfa] {
        let scenario = by_clocks(rule, reads_from_one_that_is_ahead());
        breaks(
            scenario.with(|rules| rules.readers_clock = ReadersClock::Unchanged),
            Violation::AcknowledgedLost,
        );
    }
}

#[test]
fn a_scan_that_leaves_idle_clocks_loses_commits() {
    // Log 0 has come far; then log 1 begins, and log 2 reads from it.
    let mut scenario = reads_from_one_that_is_ahead();
    scenario.transactions[2] = Transaction::durable(1, 1, &[], &[Y]);
    let scenario = by_clocks(Dependencies::Gsn, scenario);
    holds(scenario.clone(), &[REACHED_VOID]);
    breaks(scenario.with(|rules| rules.clock_scan = ClockScan::OnlyLooks), Violation::AcknowledgedLost);
}

#[test]
fn clock_acknowledgment_with_dsn_recovery_loses_commits() {
    let scenario = by_clocks(Dependencies::GsnRfa, behind_one_that_is_ahead());
    breaks(scenario.with(|rules| rules.judged = Judged::ByDsn), Violation::AcknowledgedLost);
}

#[test]
fn direct_dependencies_only_lose_commits_with_lists_too() {
    let direct = |rules: &mut quench_model::Rules| rules.dependencies = Dependencies::DirectOnly;
    breaks(exact(chain()).with(direct), Violation::AcknowledgedLost);
}

#[test]
fn forgetting_a_durable_uncommitted_predecessor_leaves_a_gap() {
    let scenario = exact(chain()).with(|rules| rules.listed = Listed::Volatile);
    breaks(scenario, Violation::NotClosed);
}

#[test]
fn taking_a_record_because_what_it_lists_is_there_leaves_a_gap() {
    breaks(exact(chain()).with(|rules| rules.judged = Judged::ByPresence), Violation::NotClosed);
}

#[test]
fn two_writes_in_flight_per_log_hold() {
    holds(chain(), &[REACHED_VOID, REACHED_DISCARD, REACHED_SECOND_EPOCH, REACHED_READ_ONLY]);
    holds(two_writes_in_flight(), &[REACHED_OUT_OF_ORDER, REACHED_VOID, REACHED_DISCARD]);
}

/// Three logs whose workers write each other's records: one that two others read, one that depends
/// on nothing, a reader in another log, and a second epoch.
fn stolen(stealing: Stealing) -> Scenario {
    let scenario = Scenario::new(vec![
        Transaction::durable(1, 0, &[], &[X]),
        Transaction::durable(1, 1, &[], &[Y]),
        Transaction::durable(1, 2, &[X], &[Z]),
        Transaction::durable(2, 1, &[X, Z], &[Y]),
    ]);
    scenario.with(|rules| rules.stealing = stealing)
}

/// The same with two transactions of the helper's log, of one run.
fn stolen_twice(stealing: Stealing) -> Scenario {
    let mut scenario = Scenario::new(vec![
        Transaction::durable(1, 0, &[], &[X]),
        Transaction::durable(1, 0, &[], &[Y]),
        Transaction::durable(1, 1, &[], &[Z]),
        Transaction::durable(1, 1, &[X], &[X]),
    ]);
    scenario.crashes = 1;
    scenario.with(|rules| rules.stealing = stealing)
}

#[test]
fn stolen_records_in_blocks_of_their_owner_hold_by_every_rule() {
    let reached = [REACHED_STOLEN, REACHED_VOID, REACHED_DISCARD, REACHED_SECOND_EPOCH];
    holds(stolen(Stealing::OwnersBlock), &reached);
    holds(stolen(Stealing::OwnersBlock).with(|rules| rules.dependencies = Dependencies::Csn), &reached);
    let exact = stolen(Stealing::OwnersBlock).with(|rules| {
        (rules.dependencies, rules.judged) = (Dependencies::Exact, Judged::ByList);
    });
    holds(exact, &reached);
    holds(stolen_twice(Stealing::OwnersBlock), &[REACHED_STOLEN, REACHED_OUT_OF_ORDER]);
}

#[test]
fn an_owner_that_forgets_helped_records_loses_commits() {
    breaks(stolen(Stealing::Forgotten), Violation::AcknowledgedLost);
}

#[test]
fn stolen_records_in_a_helpers_block_need_all_before_it() {
    breaks(stolen_twice(Stealing::HelpersBlockAlone), Violation::AcknowledgedLost);
    holds(stolen_twice(Stealing::HelpersBlockInOrder), &[REACHED_STOLEN]);
}

#[test]
fn waiting_for_direct_dependencies_only_loses_commits() {
    breaks(chain().with(|rules| rules.dependencies = Dependencies::DirectOnly), Violation::AcknowledgedLost);
}

#[test]
fn a_frontier_at_the_highest_completion_loses_commits() {
    let scenario = two_writes_in_flight().with(|rules| rules.durable = Durable::HighestCompletion);
    breaks(scenario, Violation::AcknowledgedLost);
}

#[test]
fn a_stepwise_scan_holds_if_slots_precede_the_draw() {
    holds(scanned(WatermarkScan::AnnounceBeforeDraw), &[REACHED_READ_ONLY, REACHED_DISCARD]);
}

#[test]
fn a_scan_without_a_bound_for_idle_logs_loses_commits() {
    breaks(scanned(WatermarkScan::NoBound), Violation::AcknowledgedLost);
}

#[test]
fn a_slot_published_after_the_draw_loses_acknowledged_commits() {
    breaks(scanned(WatermarkScan::PublishAfterDraw), Violation::AcknowledgedLost);
}

#[test]
fn forgotten_voids_look_like_lost_data_to_the_next_recovery() {
    breaks(chain().with(|rules| rules.voids = Voids::Forgotten), Violation::HealthyRefused);
}

#[test]
fn a_kill_and_a_power_cut_hold_with_flush_and_copies() {
    holds(killed(RecoveryDurability::FlushAndReappend), &[REACHED_SECOND_EPOCH]);
}

#[test]
fn flush_or_copies_alone_suffice_on_an_honest_disk() {
    holds(killed(RecoveryDurability::FlushOnly), &[REACHED_SECOND_EPOCH]);
    holds(killed(RecoveryDurability::ReappendOnly), &[REACHED_SECOND_EPOCH]);
}

#[test]
fn recovery_that_makes_nothing_durable_loses_what_it_served() {
    breaks(killed(RecoveryDurability::Nothing), Violation::ServedLost);
}

#[test]
fn tombstones_carry_the_dependency_on_a_delete() {
    holds(deleted(Tombstones::Stamped), &[REACHED_READ_ONLY, REACHED_SECOND_EPOCH]);
}

#[test]
fn a_delete_without_a_tombstone_is_lost_under_those_who_saw_it() {
    breaks(deleted(Tombstones::Purged), Violation::NotClosed);
    breaks(deleted(Tombstones::Purged), Violation::ReadOnlyLost);
}

#[test]
fn read_only_transactions_that_do_not_wait_report_what_is_lost() {
    breaks(chain().with(|rules| rules.read_only_waits = false), Violation::ReadOnlyLost);
}

#[test]
fn refusing_a_csn_missing_at_the_watermark_refuses_good_data() {
    let scenario = chain().with(|rules| rules.lost_data = StoredWatermark::AtOrBelow);
    breaks(scenario, Violation::HealthyRefused);
}
