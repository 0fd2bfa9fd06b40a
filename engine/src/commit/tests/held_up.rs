//! Transactions that the dependency rule holds up: which, for how long, and how they are counted.

use super::super::papers::clocks::stragglers::IDLE_TIMEOUT;
use super::*;
use crate::base::settings::IdleLogs;

#[test]
fn a_stricter_rule_waits_for_unrelated_commits() {
    for (dependency, waits) in [(Dependency::Dsn, false), (Dependency::Csn, true)] {
        let settings = settings(Preset::Autonomous).with_protocol(|axes| axes.dependency = Some(dependency));
        let world = World::with(settings, Hooks::default());
        let straggler = world.asynchronous(1, Csn::ZERO, Durability::Lazy).expect("pre-commits");
        let ticket = world.blocking(0, Csn::ZERO).expect("commits");
        let durable = world.durable_csns();
        assert_eq!(durable.contains(&straggler.csn), waits, "it causes the write that it waits for");
        assert!(durable.contains(&ticket.csn));
    }
}

/// Of a commit that depends on `read` of another log, is durable, and whose predecessors are not:
/// held up, and falsely so.
fn waits_of(dependency: Dependency, read: bool) -> (u64, u64) {
    let settings = settings(Preset::Autonomous).with(|s| {
        s.protocol_mut().dependency = Some(dependency);
        s.lab.count_false_waits = true;
    });
    let world = World::with(settings, Hooks::default());
    let (core, metrics) = (&world.commit, world.commit.inspect().metrics());
    let other = world.asynchronous(1, Csn::ZERO, Durability::Lazy).expect("pre-commits");
    let pending = world.pending(if read { other.csn } else { Csn::ZERO }, Durability::Durable, true);
    let ticket = world.precommit(0, pending).expect("pre-commits");
    let lead =
        world.commit.writes.try_become_leader(&core.durability.logs[0]).expect("no other thread writes");
    assert!(core.writes.write_as_leader(&lead, &metrics.leader_flushes));
    if !core.acknowledgments.is_committed(ticket) {
        core.acknowledgments.count_rule_wait(ticket, &pending);
    }
    let counted = (metrics.rule_waits.get(), metrics.false_waits.get());
    drop(lead);
    world.commit.waits().finish(ticket, &pending).expect("commits");
    counted
}

#[test]
fn a_wait_for_unrelated_commits_alone_is_false() {
    assert_eq!(waits_of(Dependency::Dsn, false), (0, 0));
    assert_eq!(waits_of(Dependency::Dsn, true), (1, 0));
    assert_eq!(waits_of(Dependency::Csn, false), (1, 1));
    assert_eq!(waits_of(Dependency::Csn, true), (1, 0));
}

/// What it waited for became durable between the two questions: of a rule that waits for nothing
/// else waits were counted as false.
#[test]
fn a_wait_that_is_over_when_it_is_looked_into_is_not_false() {
    let settings =
        settings(Preset::Autonomous).with_protocol(|axes| axes.dependency = Some(Dependency::Exact));
    let world = World::with(settings, Hooks::default());
    let (core, metrics) = (&world.commit, world.commit.inspect().metrics());
    let pending = world.pending(Csn::ZERO, Durability::Durable, true);
    let ticket = world.precommit(0, pending).expect("pre-commits");
    world.commit.waits().finish(ticket, &pending).expect("commits");
    core.acknowledgments
        .count_held_up(ticket.csn, &pending.predecessors, || core.progress().is_committed(ticket.csn));
    assert_eq!((metrics.rule_waits.get(), metrics.false_waits.get()), (1, 0));
}

/// Returns the shortest latency of several queued commits of log 1, beside log 0, which is idle,
/// and the number of barriers.
fn beside_an_idle_log(idle_logs: IdleLogs) -> (Duration, u64) {
    let dependency = Some(Dependency::Gsn);
    let settings = settings(Preset::Autonomous).with_protocol(|axes| {
        axes.dependency = dependency;
        axes.idle_logs = idle_logs;
    });
    let world = World::with(settings, Hooks::default());
    let committed = || world.commit.inspect().metrics().committed_writers.get();
    let mut shortest = Duration::MAX;
    for n in 1..=5 {
        let begun = world.clock.now();
        let ticket = world.asynchronous(1, Csn::ZERO, Durability::Durable).expect("pre-commits");
        world.commit.waits().wait([ticket], None).expect("the record is durable, and its dependencies");
        eventually("acknowledged", || committed() == n);
        shortest = shortest.min(world.clock.now().since(begun));
    }
    (shortest, world.commit.inspect().metrics().barriers.get())
}

#[test]
fn an_idle_log_holds_up_queued_commits_without_barriers() {
    let (held_up, barriers) = beside_an_idle_log(IdleLogs::Hold);
    assert!(held_up >= IDLE_TIMEOUT && barriers == 0, "{held_up:?}, {barriers} barriers");
    let (passed, barriers) = beside_an_idle_log(IdleLogs::Barrier);
    assert!(passed < IDLE_TIMEOUT && barriers == 5, "{passed:?}, {barriers} barriers");
    let (raised, barriers) = beside_an_idle_log(IdleLogs::Raise);
    assert!(raised < IDLE_TIMEOUT && barriers == 0, "{raised:?}, {barriers} barriers");
}

/// The commit of the log that was idle waits itself, because the other log is behind it.
#[test]
fn the_next_commit_of_an_idle_log_releases_the_others() {
    let settings = settings(Preset::Autonomous).with_protocol(|axes| {
        axes.dependency = Some(Dependency::Gsn);
        axes.idle_logs = IdleLogs::Hold;
    });
    let world = World::with(settings, Hooks::default());
    let first = world.asynchronous(1, Csn::ZERO, Durability::Durable).expect("pre-commits");
    world.commit.waits().wait([first], None).expect("commits");
    let rule = world.commit.clocks.as_ref().expect("the rule has clocks");
    let (stragglers, needed) = (rule.stragglers(), rule.clocks().needed_by(first.csn));
    assert!(stragglers.are_behind(needed), "log 0 has no record");
    world.asynchronous(0, Csn::ZERO, Durability::Durable).expect("pre-commits");
    assert!(!stragglers.are_behind(needed), "its new record is above");
    eventually("acknowledged", || world.commit.inspect().metrics().committed_writers.get() == 2);
}

#[test]
fn each_transaction_of_a_queue_is_counted_once_as_held_up() {
    let settings = settings(Preset::Autonomous).with(|s| {
        s.protocol_mut().dependency = Some(Dependency::Csn);
        s.lab.count_false_waits = true;
    });
    let world = World::with(settings, Hooks::default());
    let (core, metrics) = (&world.commit, world.commit.inspect().metrics());
    let other = world.asynchronous(1, Csn::ZERO, Durability::Lazy).expect("pre-commits");
    for n in 0..10 {
        let read = if n % 2 == 0 { other.csn } else { Csn::ZERO };
        world.asynchronous(0, read, Durability::Lazy).expect("pre-commits");
    }
    let lead =
        world.commit.writes.try_become_leader(&core.durability.logs[0]).expect("no other thread writes");
    assert!(core.writes.write_as_leader(&lead, &metrics.leader_flushes));
    for _ in 0..3 {
        core.acknowledgments.acknowledge_all(true);
        assert_eq!((metrics.rule_waits.get(), metrics.false_waits.get()), (10, 5));
    }
}

/// Regression: the lazy commit's log was not written for the sake of the bounded-loss commit.
/// However old the latter was, a crash lost it with everything later in its log.
#[test]
fn a_bounded_loss_commit_is_not_held_up_by_a_lazy_one() {
    for dependency in Dependency::ALL {
        for preset in [Preset::Autonomous, Preset::Restricted, Preset::Passive] {
            let chosen = Settings { logs: 2, ..settings(preset) }
                .with_protocol(|axes| axes.dependency = Some(dependency));
            if presets::check(&chosen, 2).is_err() {
                continue;
            }
            let world = World::with(chosen, Hooks::default());
            world.asynchronous(1, Csn::ZERO, Durability::Lazy).expect("room");
            let first = world.asynchronous(0, Csn::ZERO, Durability::BoundedLoss).expect("room");
            let second = world.asynchronous(0, first.csn, Durability::BoundedLoss).expect("room");
            // To ask for it causes nothing.
            eventually("as durable as was promised", || world.commit.progress().is_committed_ticket(second));
        }
    }
}

/// The lazy one's log is written when its window has passed, and not before.
#[test]
fn dependencies_of_bounded_loss_are_not_written_early() {
    let loss_window = Duration::from_secs(4);
    let settings = Settings { loss_window, ..settings(Preset::Autonomous) };
    let world = World::with_clock(settings, Hooks::default(), Clock::manual());
    world.asynchronous(1, Csn::ZERO, Durability::Lazy).expect("room");
    let first = world.asynchronous(0, Csn::ZERO, Durability::BoundedLoss).expect("room");
    world.asynchronous(0, first.csn, Durability::BoundedLoss).expect("room");
    // This is long after a lazy commit would be written for a waiter. Bounded-loss commits are due
    // at three quarters of their window.
    world.clock.advance(loss_window / 2);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(world.disk.writes(), 0);
    world.clock.advance(loss_window / 2);
    eventually("all written", || world.durable_csns().len() == 3);
}

/// Each write of one hardened the next, which needed the first: they were written as often as
/// durable ones.
#[test]
fn successive_bounded_loss_commits_are_written_together() {
    for dependency in [Dependency::Dsn, Dependency::Csn, Dependency::Exact] {
        let loss_window = Duration::from_millis(80);
        let chosen = Settings { loss_window, logs: 2, ..settings(Preset::Autonomous) }
            .with_protocol(|axes| axes.dependency = Some(dependency));
        let world = World::with(chosen, Hooks::default());
        // Others come while it writes.
        world.disk.set_delay(Duration::from_millis(1));
        let (begun, mut last) = (std::time::Instant::now(), [Csn::ZERO; 2]);
        let mut count = 0;
        while begun.elapsed() < Duration::from_millis(400) || count < 100 {
            let log = count % 2;
            last[log] = world
                .asynchronous(log as u32, last[0].max(last[1]), Durability::BoundedLoss)
                .expect("room")
                .csn;
            count += 1;
            std::thread::sleep(Duration::from_micros(200));
        }
        // Both logs every 60 ms, and perhaps once more.
        let (writes, took) = (world.disk.writes(), begun.elapsed());
        let most = 4 * (took.as_millis() as u64 / 60 + 1);
        assert!(writes <= most, "{dependency:?}: {writes} writes for {count} commits in {took:?}");
        eventually("they need each other", || {
            world.commit.durability.logs[1].flush_request.required_watermark() > Csn::ZERO
        });
    }
}

/// Regression: a log that had announced itself below W was then fenced, or finished its append,
/// without a notice. Commits held up by that log hung unless the first flusher happened to look. It
/// did not if another flusher had been woken instead, or if a thread was writing.
#[test]
fn a_log_without_writes_releases_the_commits_it_held_up() {
    for (preset, logs) in [(Preset::Restricted, 3), (Preset::Autonomous, 3)] {
        let world = World::with(Settings { logs, ..settings(preset) }, Hooks::default());
        let core = &world.commit;
        let latch = core.durability.logs[2].log.lock();
        // It has announced and drawn, and appends nothing.
        core.durability.watermark.draw(LogId(2), &latch);
        let lead =
            world.commit.writes.try_become_leader(&core.durability.logs[0]).expect("no other thread writes");
        let first = world.asynchronous(1, Csn::ZERO, Durability::Durable).expect("room");
        let second = world.asynchronous(1, first.csn, Durability::Durable).expect("room");
        eventually("durable", || core.durability.logs[1].log.durable_csn() >= second.csn);
        std::thread::sleep(Duration::from_millis(20));
        drop(lead);
        core.durability.watermark.settle(LogId(2), None, &latch);
        drop(latch);
        eventually("acknowledged", || world.commit.inspect().metrics().committed_writers.get() == 2);
    }
}
