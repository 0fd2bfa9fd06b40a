//! Unit tests of `cohort`.

use super::*;
use crate::base::settings::Preset;
use crate::commit::tests::World;

const WRITE: u64 = 100_000;

/// Threads that commit in turn, at times of the test's choosing.
struct Bank {
    world: World,
    cohort: Cohort,
    csn: u64,
    now: u64,
}

impl Bank {
    fn new() -> Bank {
        Bank { world: World::new(Preset::Group, 1), cohort: Cohort::new(), csn: 0, now: 1 }
    }

    fn latched(&self, f: impl FnOnce(&Cohort, &LogGuard<'_>)) {
        f(&self.cohort, &self.world.commit.durability.logs[0].log.lock());
    }

    /// Appends a commit. Returns true if its committer should write at once.
    fn appends(&mut self) -> bool {
        self.csn += 1;
        self.latched(|cohort, latch| cohort.joined(Csn(self.csn), latch));
        self.cohort.expected_until(Nanos(self.now)).is_none()
    }

    fn seals(&self) {
        self.latched(Cohort::sealed);
    }

    fn completes(&mut self) {
        let begun = self.now;
        self.now += WRITE;
        self.latched(|cohort, latch| cohort.write_completed(Nanos(begun), Nanos(self.now), latch));
    }

    fn writes(&mut self) {
        self.seals();
        self.completes();
    }
}

#[test]
fn a_single_committer_does_not_wait() {
    let mut bank = Bank::new();
    for _ in 0..5 {
        assert!(bank.appends());
        bank.writes();
    }
}

#[test]
fn two_that_took_turns_go_together_and_the_last_leads() {
    let mut bank = Bank::new();
    assert!(bank.appends());
    bank.seals();
    assert!(bank.appends(), "the lead is taken, but that is not its business");
    bank.completes();
    assert!(bank.cohort.expected_until(Nanos(bank.now)).is_some(), "the first is expected back");
    assert_eq!([1, 2, 3].map(|csn| bank.cohort.is_timekeeper(Csn(csn))), [None, Some(true), Some(false)]);
    assert!(bank.appends(), "all are there");
    bank.writes();
    assert!(!bank.appends(), "now it waits for the other");
    assert!(bank.appends());
    bank.writes();
}

#[test]
fn the_time_is_that_of_a_write_and_ends() {
    let mut bank = Bank::new();
    bank.appends();
    bank.appends();
    bank.writes();
    bank.appends();
    let until = bank.cohort.expected_until(Nanos(bank.now)).expect("the other is expected");
    assert_eq!(until, Nanos(bank.now + WRITE));
    assert_eq!(bank.cohort.expected_until(until), None);
}

/// Returns the number of writes without a wait after the cohort did not arrive `misses` times.
fn pause_after(misses: u32) -> u32 {
    let mut bank = Bank::new();
    bank.appends();
    bank.appends();
    bank.writes();
    let mut missed = 0;
    while missed < misses {
        if !bank.appends() {
            missed += 1;
        }
        bank.now += 2 * WRITE;
        // Two other commits, unrelated to the ones that were released.
        bank.seals();
        bank.appends();
        bank.appends();
        bank.completes();
    }
    let mut writes = 0;
    while bank.cohort.expected_until(Nanos(bank.now)).is_none() {
        bank.seals();
        bank.appends();
        bank.completes();
        writes += 1;
        assert!(writes <= 2 * PAUSE_MAX, "it is never tried again");
    }
    writes
}

#[test]
fn misses_make_the_wait_for_a_cohort_rarer() {
    let pauses: Vec<u32> = (1..14).map(pause_after).collect();
    assert_eq!(pauses[0], 0, "one miss is an accident");
    assert!(pauses.windows(2).all(|two| two[0] <= two[1]), "{pauses:?}");
    assert!(pauses[12] >= PAUSE_MAX - 1 && pauses[12] <= PAUSE_MAX + 1, "{pauses:?}");
}

#[test]
fn a_large_cohort_counts_at_once_and_for_many_writes() {
    let mut bank = Bank::new();
    let write_of = |bank: &mut Bank, commits: usize| {
        for _ in 0..commits {
            bank.appends();
        }
        bank.writes();
    };
    write_of(&mut bank, 3);
    assert_eq!(bank.cohort.peak(), 3);
    write_of(&mut bank, 60);
    assert_eq!(bank.cohort.peak(), 60);
    for _ in 0..10 {
        write_of(&mut bank, 2);
    }
    assert!((17..60).contains(&bank.cohort.peak()), "{}", bank.cohort.peak());
    for _ in 0..100 {
        write_of(&mut bank, 2);
    }
    assert_eq!(bank.cohort.peak(), 2);
}
