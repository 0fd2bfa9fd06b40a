//! Logs in mapped memory, step by step.

use super::failure::in_time;
use super::*;
use crate::base::settings::{Layout, MemoryFence};
use crate::commit::start::place_buffers;
use crate::device::mapped::MappedMemory;
use crate::device::topology::NumaNodes;

/// Log 0 is drained up to `last`. Meanwhile a transaction of log 1, far ahead, draws the next CSN,
/// and one of log 0 the CSN after that.
#[test]
fn a_drained_log_does_not_take_another_logs_clock() {
    let settings = Settings { logs: 2, ..super::settings(Preset::Passive) }
        .with_protocol(|axes| axes.dependency = Some(Dependency::Gsn));
    let world = World::with(settings, Hooks::default());
    let core = &world.commit;
    let lazy = |log| world.asynchronous(log, Csn::ZERO, Durability::Lazy).expect("pre-commits");
    lazy(0);
    let latch = |log: usize| core.durability.logs[log].log.lock();
    let last = latch(0).last_unfenced_csn().expect("lazy commits are not fenced");
    let pending = world.pending(Csn::ZERO, Durability::Lazy, false);
    let (body, kind) = ([1; 40], RecordKind::Whole);
    let far = Record { body: &body, body_crc: crc(&body), operations: 1, gsn: Gsn(150), kind };
    let far = world
        .commit
        .precommit(LogId(1), far, &pending, || true)
        .expect("pre-commits")
        .expect("not withdrawn");
    assert_eq!(far.csn, last.next());
    let volatile = lazy(0);
    {
        let mut latch = latch(1);
        latch.fence();
        core.durability.settle(&core.durability.logs[1], &latch);
    }
    {
        let mut latch = latch(0);
        latch.fenced_up_to(last);
        core.durability.settle(&core.durability.logs[0], &latch);
    }
    // What drew its clock beside the drain may be anywhere below that of the other log's record.
    let clocks = core.clocks.as_ref().expect("the rule goes by them").clocks();
    assert!(clocks.holds_back(LogId(0), Gsn(150)), "a record that is not durable may be within reach");
    core.durability.rescan();
    assert!(world.commit.progress().watermark() <= volatile.csn);
    // A waiter for it causes the fence.
    world.commit.waits().wait([volatile], None).expect("commits");
    assert!(world.durable_csns().contains(&volatile.csn));
}

/// A committer that fences for itself has W computed only now and then, and never after a failure.
#[test]
fn what_was_committed_before_a_failure_can_be_read_after_it() {
    for preset in [Preset::Passive, Preset::PerTransaction] {
        let world = World::new(preset, 1);
        let core = &world.commit;
        let ticket = if preset == Preset::Passive {
            world.blocking(0, Csn::ZERO).expect("commits")
        } else {
            let ticket = world.asynchronous(0, Csn::ZERO, Durability::Lazy).expect("room");
            let log = &core.durability.logs[0];
            let _leader = core.writes.try_become_leader(log).expect("no thread leads");
            let block = log.take_block().expect("just appended");
            core.writes.write_inline(log, block, &world.commit.inspect().metrics().leader_flushes);
            ticket
        };
        core.failure.fail(Error::new(ErrorKind::Io, "a write failed"));
        assert!(world.commit.progress().is_committed_ticket(ticket), "{preset}");
        world.commit.waits().wait_committed(ticket.csn).unwrap_or_else(|error| panic!("{preset}: {error}"));
    }
}

/// W rises when a log is fenced, but the fencing thread does not compute W and notifies no waiter.
#[test]
fn a_fenced_straggler_releases_the_commits_it_held_up() {
    let settings = Settings { logs: 2, ..super::settings(Preset::Passive) }
        .with_protocol(|axes| axes.dependency = Some(Dependency::Dsn));
    let world = World::with(settings, Hooks::default());
    let straggler = world.asynchronous(0, Csn::ZERO, Durability::Lazy).expect("room");
    let held_up = world.asynchronous(1, straggler.csn, Durability::Durable).expect("room");
    world.blocking(0, Csn::ZERO).expect("commits");
    let now = world.clock.now();
    world.commit.end_of_transaction(LogId(1), now, now, None);
    eventually("acknowledged", || world.commit.progress().is_committed_ticket(held_up));
    eventually("counted", || world.commit.inspect().metrics().committed_writers.get() == 3);
}

/// Regression: one log held W back with a record outside mapped memory, and another with an
/// unfenced record. The fence of the second counted as everything that was needed, so the first was
/// never written, and a future hung.
#[test]
fn a_block_is_demanded_beside_a_fence() {
    let settings = Settings { logs: 3, ..super::settings(Preset::Passive) }.with(|s| {
        s.protocol_mut().dependency = Some(Dependency::Csn);
        s.lab.log_buffer_bytes = 64 << 10;
    });
    let mut world = World::with(settings, Hooks::default());
    world.body_bytes = 70 << 10;
    world.asynchronous(0, Csn::ZERO, Durability::Lazy).expect("room");
    world.body_bytes = 100;
    world.asynchronous(1, Csn::ZERO, Durability::Lazy).expect("room");
    let ticket = world.asynchronous(2, Csn::ZERO, Durability::Lazy).expect("room");
    world.commit.waiting.demand_others(ticket);
    eventually("written", || world.commit.progress().is_committed_ticket(ticket));
}

/// A thread that fences for others acknowledges nothing, so a committer with a full queue does.
#[test]
fn a_full_queue_is_emptied_by_a_committer() {
    let settings = super::settings(Preset::Passive).with(|s| {
        s.lab.queue_entries = 1024;
        s.protocol_mut().set_acknowledger(Acknowledger::Leader);
    });
    let mut world = World::with(settings, Hooks::default());
    world.body_bytes = 1;
    for _ in 0..1023 {
        world.asynchronous(0, Csn::ZERO, Durability::Lazy).expect("room");
    }
    // The flusher has looked, and does not again.
    std::thread::sleep(Duration::from_millis(5));
    let world = Arc::new(world);
    let theirs = world.clone();
    in_time("a full queue", move || theirs.asynchronous(0, Csn::ZERO, Durability::Lazy)).expect("room");
}

/// Two logs, each with the records of some pages.
fn by_page(fence: MemoryFence) -> World {
    let settings = Settings { logs: 2, ..super::settings(Preset::Passive) }.with_protocol(|axes| {
        axes.set_layout(Layout::ByPage);
        axes.writer = WriterOptions::Memory { fence };
    });
    World::with(settings, Hooks::default())
}

#[test]
fn records_of_one_transaction_in_two_logs_are_fenced_once() {
    let fences = |memory_fence| {
        let world = by_page(memory_fence);
        let pending = world.pending(Csn::ZERO, Durability::Durable, true);
        let ticket = world.precommit_divided(pending).expect("room");
        // Before a waiter could cause a fence.
        let durable = world.durable_csns();
        assert!(durable.contains(&ticket.csn) && durable.contains(&Csn(ticket.csn.0 - 1)), "{durable:?}");
        world.commit.waits().finish(ticket, &pending).expect("commits");
        (world.commit.inspect().metrics().fences.get(), world.commit.inspect().metrics().drained.get())
    };
    assert_eq!(fences(MemoryFence::Beside), (1, 0));
    assert_eq!(fences(MemoryFence::Latched), (2, 0));
}

#[test]
fn a_fence_holds_latches_only_if_the_settings_say_so() {
    for (memory_fence, stores_before) in [(MemoryFence::Beside, 2), (MemoryFence::Latched, 1)] {
        let world = by_page(memory_fence);
        let pending = world.pending(Csn::ZERO, Durability::Durable, true);
        // Takes the buffers, which stores their entries and fences these.
        world.precommit_divided(pending).expect("room");
        let (reached, go_on) = world.mapped.as_ref().expect("in mapped memory").panic_later(stores_before);
        std::thread::scope(|scope| {
            let committer = scope.spawn(|| world.precommit_divided(pending));
            reached.recv_timeout(Duration::from_secs(300)).expect("a fence follows the stores");
            let logs = &world.commit.durability.logs;
            let are_free = || logs.iter().all(|log| log.log.try_lock().is_some());
            match memory_fence {
                MemoryFence::Beside => eventually("free latches", are_free),
                MemoryFence::Latched => assert!(!are_free()),
            }
            go_on.send(()).expect("it waits");
            assert!(committer.join().is_err(), "the planned panic");
        });
    }
}

/// Regression of seed 726267: a thread that panicked in a store released the latch before the
/// commit layer was poisoned. A waiter for the latch then appended behind the hole, fenced, and was
/// acknowledged.
#[test]
fn a_panic_under_the_latch_acknowledges_no_waiter() {
    let mut struck = 0;
    loop {
        let settings = super::settings(Preset::Passive)
            .with_protocol(|axes| axes.writer = WriterOptions::Memory { fence: MemoryFence::Latched });
        let world = World::with(settings, Hooks::default());
        let mapped = world.mapped.as_ref().expect("in mapped memory");
        let (reached, go_on) = mapped.panic_later(struck);
        let (first, second) = std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                let told = world.blocking(0, Csn::ZERO);
                mapped.calm();
                told
            });
            let is_struck = reached.recv_timeout(Duration::from_secs(300)).is_ok();
            let second = scope.spawn(|| world.blocking(0, Csn::ZERO));
            if is_struck {
                // Most likely it waits for the latch then.
                std::thread::sleep(Duration::from_millis(20));
                go_on.send(()).expect("it waits");
            }
            (first.join(), second.join().expect("nothing is planned for it"))
        });
        let core = &world.commit;
        core.durability.settle(&core.durability.logs[0], &core.durability.logs[0].log.lock());
        core.durability.rescan();
        let durable = world.durable_csns();
        assert!((1..world.commit.progress().watermark().0).all(|csn| durable.contains(&Csn(csn))));
        let is_kept = |told: Result<Ticket>| told.is_ok_and(|ticket| durable.contains(&ticket.csn));
        if let Ok(first) = first {
            assert!(is_kept(first) && is_kept(second));
            break;
        }
        let error = second.expect_err("poisoned before the latch was free");
        assert_eq!(error.kind(), ErrorKind::Poisoned);
        struck += 1;
    }
    assert!(struck >= 3, "an entry, a record and a fence: {struck}");
}

#[test]
fn mapped_buffers_are_placed_on_the_nodes_of_their_logs() {
    let placed = |logs: usize, nodes: &NumaNodes| {
        let mapped = Arc::new(Mapped::new(needed_bytes(logs, MAPPED_BYTES)));
        let memory = LogMemory::prepare(mapped.clone(), DATABASE, MemoryId(5), logs, MAPPED_BYTES, 1 << 20);
        place_buffers(&memory.expect("large enough"), logs, nodes);
        (mapped.placed(), mapped.bytes())
    };
    let two = NumaNodes::of(&[(0, &[0, 1]), (8, &[2, 3])]);
    let (ranges, end) = placed(4, &two);
    assert_eq!(ranges.iter().map(|(.., node)| *node).collect::<Vec<_>>(), [0, 0, 8, 8]);
    assert!(ranges.iter().all(|(_, bytes, _)| *bytes == 2 * MAPPED_BYTES), "{ranges:?}");
    assert!(ranges.windows(2).all(|two| two[0].0 + two[0].1 == two[1].0), "side by side: {ranges:?}");
    assert_eq!(ranges.last().map(|(offset, bytes, _)| offset + bytes), Some(end), "to the end of the memory");
    assert_eq!(placed(4, &NumaNodes::default()).0, [], "nothing is placed on a machine of one node");
}
