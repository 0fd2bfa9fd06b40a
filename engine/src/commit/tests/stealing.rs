//! Workers that write each other's bytes.

use super::super::core::levels;
use super::*;

/// Two or more logs, workers that write and steal, and a clock that stands still: nothing is due by
/// time.
fn settings(logs: usize) -> Settings {
    Settings { logs, ..super::settings(Preset::Autonomous) }.with(|s| {
        s.protocol_mut().worker_mut().expect("workers write").stealing_group = Some(logs);
        s.lab.flush_unit_bytes = 4096;
        s.protocol_mut().flush_interval = Duration::from_secs(1);
        s.protocol_mut().worker_mut().expect("workers write").idle_max = Duration::ZERO;
        s.protocol_mut().set_acknowledger(Acknowledger::Leader);
    })
}

fn world(settings: Settings) -> World {
    let clock = Clock::manual();
    clock.advance(Duration::from_millis(1));
    let world = World::with_clock(settings, Hooks::default(), clock);
    // Only workers and waiters write in these tests; a flusher would write what they make due.
    let flushers = &world.commit.writes.flushers;
    flushers.iter().for_each(|flusher| flusher.stop());
    eventually("no flusher", || flushers.iter().all(|flusher| flusher.has_ended()));
    world
}

impl World {
    /// The log's first write has been: from now on the interval is to be waited for. Returns CSNs
    /// written.
    fn warm(&self, logs: u32) {
        for log in 0..logs {
            self.blocking(log, Csn::ZERO).expect("commits");
        }
    }

    /// Appends `bytes` or a little more to a log, in transactions without a waiter.
    fn fill(&self, log: u32, bytes: usize) -> Ticket {
        let writer = &self.commit.durability.logs[log as usize];
        loop {
            let ticket = self.asynchronous(log, Csn::ZERO, Durability::Durable).expect("pre-commits");
            if writer.log.unsealed_bytes() >= bytes {
                return ticket;
            }
        }
    }

    fn end(&self, log: u32) {
        let begun = self.clock.now();
        self.commit.end_of_transaction(LogId(log), begun, begun, None);
        self.commit.worked(begun);
    }

    fn unsealed(&self, log: u32) -> usize {
        self.commit.durability.logs[log as usize].log.unsealed_bytes()
    }
}

#[test]
fn a_worker_writes_its_neighbours_bytes_in_the_same_write() {
    let world = world(settings(3));
    world.warm(3);
    let (own, first, second) = (world.fill(0, 2100), world.fill(1, 1200), world.fill(2, 1200));
    let before = world.commit.inspect().metrics().device_writes.get();
    world.end(0);
    assert_eq!((0..3).map(|log| world.unsealed(log)).collect::<Vec<_>>(), [0, 0, 0]);
    assert_eq!(world.commit.inspect().metrics().device_writes.get(), before + 1, "one write for three logs");
    assert_eq!(world.commit.inspect().metrics().stolen_blocks.get(), 2);
    assert!(
        !world.commit.progress().is_committed(own.csn) && !world.commit.progress().is_committed(first.csn)
    );
    // A waiter for the owner's record reaps the helper's write.
    world.commit.waits().wait([first], None).expect("commits");
    assert!([own, first, second].iter().all(|ticket| world.commit.progress().is_committed_ticket(*ticket)));
    assert!(world.durable_csns().is_superset(&[own.csn, first.csn, second.csn].into()));
    assert!(world.commit.progress().watermark() > second.csn);
    assert_eq!(world.commit.inspect().metrics().committed.get(), world.commit.progress().newest_drawn().0);
}

#[test]
fn a_worker_steals_between_a_part_of_the_unit_and_the_unit() {
    // Bits of a group of two: 2. So a helper needs half a unit, and both together a whole one.
    for (own, theirs, steals) in
        [(1000, 3500, false), (2100, 1000, false), (2100, 2500, true), (3000, 1500, true)]
    {
        let world = world(settings(2));
        world.warm(2);
        world.fill(0, own);
        world.fill(1, theirs);
        world.end(0);
        assert_eq!(world.unsealed(1) == 0, steals, "{own} and {theirs}");
        assert_eq!(world.unsealed(0) == 0, steals, "{own} and {theirs}");
    }
    // A unit is written alone.
    let world = world(settings(2));
    world.warm(2);
    world.fill(0, 4096);
    world.fill(1, 2100);
    world.end(0);
    assert!(world.unsealed(0) == 0 && world.unsealed(1) > 0);
}

#[test]
fn what_is_written_because_it_is_due_takes_neighbours_along() {
    let world = world(settings(2));
    world.warm(2);
    world.fill(1, 100);
    let own = world.fill(0, 100);
    world.clock.advance(Duration::from_secs(2));
    world.end(0);
    assert_eq!((world.unsealed(0), world.unsealed(1)), (0, 0));
    world.commit.waits().wait([own], None).expect("commits");
    assert!(world.commit.progress().watermark() > own.csn);
}

/// Full buffers are sealed ahead: behind the oldest, which is written, the next has its place
/// already.
#[test]
fn nothing_is_stolen_behind_a_block_that_is_not_the_newest() {
    let world = world(settings(2));
    world.warm(2);
    let mut all: Vec<Ticket> = Vec::new();
    for n in 0..4 {
        all.push(world.fill(0, 0));
        let log = &world.commit.durability.logs[0];
        assert!(n % 2 == 0 || log.seal_ahead(&mut log.log.lock()));
    }
    all.push(world.fill(1, 0));
    world.clock.advance(Duration::from_secs(2));
    world.end(0);
    world.commit.waits().wait(all.iter().copied(), None).expect("commits");
    let csns = all.iter().map(|ticket| ticket.csn).collect();
    assert!(world.durable_csns().is_superset(&csns), "{csns:?}");
    assert!(world.commit.inspect().metrics().stolen_blocks.get() <= 1);
}

#[test]
fn lazy_bytes_and_other_groups_are_not_stolen() {
    let lazy = world(settings(2));
    lazy.warm(2);
    lazy.asynchronous(1, Csn::ZERO, Durability::Lazy).expect("pre-commits");
    lazy.fill(0, 3900);
    lazy.clock.advance(Duration::from_secs(2));
    lazy.end(0);
    assert!(lazy.unsealed(0) == 0 && lazy.unsealed(1) > 0, "a lazy record causes no write, and joins none");
    let groups = world(
        settings(4).with_protocol(|axes| axes.worker_mut().expect("workers write").stealing_group = Some(2)),
    );
    groups.warm(4);
    for log in [0, 1, 2, 3] {
        groups.fill(log, 3000);
    }
    groups.end(1);
    let left: Vec<bool> = (0..4).map(|log| groups.unsealed(log) > 0).collect();
    assert_eq!(left, [false, false, true, true]);
    for off in [0, 1] {
        let alone = world(
            settings(2)
                .with_protocol(|axes| axes.worker_mut().expect("workers write").stealing_group = Some(off)),
        );
        alone.warm(2);
        for log in 0..2 {
            alone.fill(log, 3000);
        }
        alone.end(0);
        assert!(alone.unsealed(0) > 0 && alone.unsealed(1) > 0);
    }
}

#[test]
fn a_stolen_block_that_completes_early_is_parked() {
    let world = world(settings(2));
    world.warm(2);
    let first = world.fill(1, 4096);
    // The owner's own write is submitted, and does not complete until a thread waits for it.
    world.end(1);
    let (own, stolen) = (world.fill(0, 2100), world.fill(1, 2100));
    world.end(0);
    assert_eq!(world.commit.inspect().metrics().stolen_blocks.get(), 1);
    let core = &world.commit;
    let lead = world.commit.writes.try_become_leader(&core.durability.logs[0]).expect("free");
    assert!(core.writes.reap(&core.durability.logs[0], true));
    core.acknowledgments.publish();
    drop(lead);
    assert!(world.commit.progress().is_committed(own.csn), "the helper's own record");
    assert!(core.durability.logs[1].log.durable_csn() < first.csn, "parked behind the owner's own block");
    assert!(!world.commit.progress().is_committed(stolen.csn) && !world.durable_csns().contains(&stolen.csn));
    world.commit.waits().wait([first], None).expect("commits");
    assert!(
        world.commit.progress().is_committed_ticket(stolen),
        "the thread that completed the first block acknowledged both"
    );
}

/// Regression: a flusher that found a block of a log at each look left the log's earlier writes to
/// its worker, which could not lead. Nothing was durable until the worker's queue was full.
#[test]
fn a_flusher_reaps_what_the_worker_submitted() {
    let clock = Clock::manual();
    clock.advance(Duration::from_millis(1));
    // Nothing becomes due by time, so the flusher writes only what it is asked to.
    let world = World::with_clock(settings(2), Hooks::default(), clock);
    world.warm(2);
    let first = world.fill(0, 4096);
    world.end(0);
    let (writes, log) = (&world.commit.writes, &world.commit.durability.logs[0]);
    assert_eq!(log.in_flight(), 1, "the worker has submitted its write");
    // The disk of these tests completes a write at one look of three, unless a thread waits.
    for _ in 0..6 {
        let before = world.commit.inspect().metrics().flusher_flushes.get();
        world.asynchronous(0, Csn::ZERO, Durability::Durable).expect("room");
        writes.flushers.delegate(log, levels::NOW);
        eventually("written", || world.commit.inspect().metrics().flusher_flushes.get() > before);
        eventually("the flusher has resigned", || !log.has_leader());
    }
    assert!(log.log.durable_csn() >= first.csn, "the worker's write, and what was written after it");
}

#[test]
fn a_failed_write_of_helper_or_owner_reaches_both() {
    for victim_fails in [false, true] {
        let world = world(settings(2));
        world.warm(2);
        let before = world.commit.inspect().metrics().committed.get();
        let mut tickets = Vec::new();
        if victim_fails {
            tickets.push(world.fill(1, 4096));
            world.end(1);
        }
        tickets.extend([world.fill(0, 2100), world.fill(1, 2100)]);
        world.end(0);
        assert_eq!(world.commit.inspect().metrics().stolen_blocks.get(), 1);
        world.disk.fail_from_write(1);
        let error = world.commit.waits().wait([tickets[0]], None).expect_err("its write fails");
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
        // The other write would succeed now: it is not believed.
        world.disk.fail_from_write(0);
        for writer in &world.commit.durability.logs {
            let lead = world.commit.writes.try_become_leader(writer).expect("free");
            world.commit.writes.reap(writer, true);
            world.commit.acknowledgments.publish();
            drop(lead);
        }
        for ticket in tickets {
            let error = world.commit.waits().wait([ticket], None).expect_err("nothing is acknowledged");
            assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
            assert!(!world.commit.progress().is_committed(ticket.csn));
        }
        assert_eq!(world.commit.inspect().metrics().committed.get(), before);
        assert_eq!(world.blocking(0, Csn::ZERO).expect_err("poisoned").kind(), ErrorKind::Poisoned);
    }
}

#[test]
fn close_and_readers_complete_piggybacked_blocks() {
    let world = world(settings(3));
    world.warm(3);
    let (own, theirs) = (world.fill(0, 2100), world.fill(2, 2500));
    world.end(0);
    world.commit.waits().wait_committed(theirs.csn).expect("a reader finds the helper");
    let (later, stolen) = (world.fill(1, 2100), world.fill(2, 2500));
    world.end(1);
    world.commit.close().expect("closes");
    assert!(world.durable_csns().is_superset(&[own.csn, theirs.csn, later.csn, stolen.csn].into()));
}

#[test]
fn an_idle_log_holds_nothing_back_so_no_barrier_is_needed() {
    // Log 1 commits once and never again; log 2 never. W passes everything that log 0 draws.
    let world = World::new(Preset::Autonomous, 3);
    world.blocking(1, Csn::ZERO).expect("commits");
    for _ in 0..50 {
        let ticket = world.blocking(0, world.commit.progress().newest_drawn()).expect("commits");
        assert!(world.commit.progress().watermark() > ticket.csn);
    }
    assert_eq!(world.commit.inspect().metrics().device_writes.get(), 51, "and no log is written for it");
}

/// Percent of transactions after which a worker acknowledges, with eight workers.
fn acknowledgments(odds: u32) -> u64 {
    const WORKERS: usize = 8;
    let settings = settings(2).with_protocol(|axes| {
        axes.set_acknowledger(Acknowledger::Workers);
        axes.acknowledgment_mut().expect("workers acknowledge").odds = odds;
        axes.worker_mut().expect("workers write").stealing_group = None;
    });
    presets::check(&settings, 2).expect("a point on the axes");
    let world = world(settings);
    let (attached, done) = (std::sync::Barrier::new(WORKERS), std::sync::Barrier::new(WORKERS));
    std::thread::scope(|scope| {
        for _ in 1..WORKERS {
            scope.spawn(|| {
                world.end(1);
                attached.wait();
                done.wait();
            });
        }
        attached.wait();
        let (commit, rounds, mut at_once) = (&world.commit, 3000, 0);
        for _ in 0..rounds {
            let ticket = world.asynchronous(0, Csn::ZERO, Durability::Durable).expect("pre-commits");
            let log = &commit.durability.logs[0];
            let leader = commit.writes.try_become_leader(log);
            let block = log.take_block().expect("just appended");
            commit.writes.write_inline(log, block, &commit.inspect().metrics().leader_flushes);
            commit.durability.rescan();
            drop(leader);
            let before = commit.inspect().metrics().committed.get();
            world.end(0);
            at_once += u64::from(commit.inspect().metrics().committed.get() > before);
            assert!(commit.progress().is_committed_ticket(ticket));
        }
        done.wait();
        at_once * 100 / rounds
    })
}

#[test]
fn a_worker_acknowledges_with_odds_by_the_number_of_workers() {
    assert_eq!(acknowledgments(1), 100);
    let by_workers = acknowledgments(0);
    assert!((25..42).contains(&by_workers), "log2 of 8 workers: one in three, not {by_workers} %");
    assert!((5..16).contains(&acknowledgments(10)));
}

/// The transactions of an idle worker waited a millisecond for a worker to acknowledge them.
#[test]
fn a_forced_commit_is_acknowledged_with_its_write() {
    let settings = super::settings(Preset::Autonomous)
        .with_protocol(|axes| axes.worker_mut().expect("workers write").idle_max = Duration::from_micros(50));
    let clock = Clock::manual();
    clock.advance(Duration::from_millis(1));
    let world = World::with_clock(settings, Hooks::default(), clock);
    let metrics = world.commit.inspect().metrics();
    while metrics.idle_flushes.get() == 0 {
        world.clock.advance(Duration::from_secs(1));
        // Only a thread that sleeps is idle, whatever its clock says.
        std::thread::sleep(Duration::from_millis(1));
        world.asynchronous(0, Csn::ZERO, Durability::Durable).expect("pre-commits");
        world.end(0);
    }
    let all = world.commit.progress().newest_drawn().0;
    eventually("acknowledged, while time stands still", || metrics.committed.get() == all);
}
