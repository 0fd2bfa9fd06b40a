//! One behaviour at a time.

use super::super::core::levels;
use super::super::metrics::Stage;
use super::failure::in_time;
use super::*;
use crate::log::RecordKind;

#[test]
fn a_blocking_commit_is_durable_when_it_returns() {
    for settings in all() {
        let waiters_write = Axes::of(&settings).waiters_write();
        let world = World::with(settings, Hooks::default());
        for _ in 0..10 {
            let ticket = world.blocking(0, Csn::ZERO).expect("commits");
            assert!(world.durable_csns().contains(&ticket.csn));
            assert!(
                world.commit.progress().is_committed_ticket(ticket)
                    && world.commit.progress().is_committed(ticket.csn)
            );
            assert!(world.commit.progress().newest_acknowledged() >= ticket.csn);
        }
        assert_eq!(world.commit.progress().watermark(), Csn(11));
        assert_eq!(world.commit.inspect().metrics().committed.get(), 10);
        assert_eq!(world.commit.inspect().metrics().of_stage(Stage::Commit).len(), 10);
        assert_eq!(world.commit.inspect().metrics().flushes.get(), 10);
        assert_eq!(world.commit.inspect().metrics().leader_flushes.get(), if waiters_write { 10 } else { 0 });
    }
}

#[test]
fn an_asynchronous_commit_is_flushed_without_further_calls() {
    for settings in all() {
        let world = World::with(settings, Hooks::default());
        let ticket = world.asynchronous(0, Csn::ZERO, Durability::Durable).expect("pre-commits");
        eventually("committed", || world.commit.inspect().metrics().committed.get() == 1);
        assert!(world.durable_csns().contains(&ticket.csn));
        assert!(world.commit.progress().is_committed_ticket(ticket));
    }
}

#[test]
fn bounded_loss_is_flushed_in_time_and_the_flusher_sleeps() {
    for settings in all() {
        let world = World::with(settings, Hooks::default());
        let ticket = world.asynchronous(0, Csn::ZERO, Durability::BoundedLoss).expect("pre-commits");
        assert!(world.commit.progress().newest_acknowledged() >= ticket.csn, "it was acknowledged");
        eventually("durable", || world.durable_csns().contains(&ticket.csn));
        eventually("counted", || world.commit.inspect().metrics().committed.get() == 1);
        let wake_ups = || world.commit.inspect().metrics().flusher_wake_ups.get();
        eventually("no flusher wakes any more", || {
            let before = wake_ups();
            std::thread::sleep(Duration::from_millis(200));
            wake_ups() == before
        });
        assert!(wake_ups() <= 4, "{} wake-ups for one commit", wake_ups());
    }
}

#[test]
fn bounded_loss_is_flushed_when_its_window_ends_and_not_before() {
    for settings in all() {
        let clock = Clock::manual();
        clock.advance(Duration::from_millis(1));
        let world = World::with_clock(settings, Hooks::default(), clock);
        let ticket = world.asynchronous(0, Csn::ZERO, Durability::BoundedLoss).expect("pre-commits");
        // Three quarters are waited for, the last is the write's.
        let half = Settings::default().loss_window / 2;
        world.clock.advance(half);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(world.disk.writes(), 0, "at half of the window");
        world.clock.advance(half - Duration::from_millis(1));
        eventually("durable", || world.durable_csns().contains(&ticket.csn));
    }
}

#[test]
fn a_lazy_commit_causes_no_write_until_it_is_awaited() {
    for settings in all() {
        let world = World::with(settings, Hooks::default());
        let ticket = world.asynchronous(0, Csn::ZERO, Durability::Lazy).expect("pre-commits");
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(world.disk.writes(), 0);
        assert!(!world.commit.progress().is_committed(ticket.csn));
        world.commit.waits().wait_committed(ticket.csn).expect("a reader causes the write");
        assert!(world.durable_csns().contains(&ticket.csn));
    }
}

/// Regression: a record was demanded when it was drawn and not yet appended. The flusher looked,
/// found nothing, and slept again.
#[test]
fn a_record_that_was_demanded_before_it_was_there_is_written() {
    for settings in all() {
        let world = World::with(settings.clone(), Hooks::default());
        world.asynchronous(0, Csn::ZERO, Durability::Durable).expect("commits");
        eventually("the first is durable", || world.commit.progress().watermark() == Csn(2));
        world.commit.durability.logs[0].flush_request.lower_due(levels::NOW);
        std::thread::sleep(Duration::from_millis(2));
        world.asynchronous(0, Csn::ZERO, Durability::Lazy).expect("commits");
        eventually(&format!("written: {settings:?}"), || {
            world.commit.durability.rescan();
            world.commit.progress().watermark() == Csn(3)
        });
    }
}

#[test]
fn waiting_for_ones_own_asynchronous_commit_does_not_deadlock() {
    for settings in all() {
        for durability in [Durability::Durable, Durability::BoundedLoss, Durability::Lazy] {
            let world = World::with(settings.clone(), Hooks::default());
            let ticket = world.asynchronous(0, Csn::ZERO, durability).expect("pre-commits");
            world.commit.waits().wait([ticket], None).expect("commits");
            assert!(world.durable_csns().contains(&ticket.csn));
        }
    }
}

#[test]
fn a_waiting_commit_flushes_its_dependency_in_another_log() {
    let world = World::new(Preset::Autonomous, 3);
    let lazy = world.asynchronous(1, Csn::ZERO, Durability::Lazy).expect("pre-commits");
    let other = world.asynchronous(2, lazy.csn, Durability::Lazy).expect("pre-commits");
    let ticket = world.blocking(0, other.csn).expect("commits");
    let durable = world.durable_csns();
    assert!([lazy, other, ticket].iter().all(|t| durable.contains(&t.csn)));
}

#[test]
fn a_durable_asynchronous_commit_flushes_a_lazy_dependency() {
    let world = World::new(Preset::Autonomous, 2);
    let lazy = world.asynchronous(1, Csn::ZERO, Durability::Lazy).expect("pre-commits");
    let ticket = world.asynchronous(0, lazy.csn, Durability::Durable).expect("pre-commits");
    eventually("both committed", || world.commit.inspect().metrics().committed.get() == 2);
    assert!(world.commit.progress().is_committed_ticket(ticket) && world.durable_csns().contains(&lazy.csn));
}

#[test]
fn a_hardened_commit_above_an_unrelated_straggler_is_committed() {
    let world = World::new(Preset::Autonomous, 2);
    let straggler = world.asynchronous(1, Csn::ZERO, Durability::Lazy).expect("pre-commits");
    let ticket = world.blocking(0, Csn::ZERO).expect("commits");
    assert!(ticket.csn >= world.commit.progress().watermark(), "W stands before the straggler");
    assert!(
        world.commit.progress().is_committed(ticket.csn)
            && !world.commit.progress().is_committed(straggler.csn)
    );
    assert_eq!(world.durable_csns(), [ticket.csn].into());
}

#[test]
fn a_queue_acknowledges_what_is_durable_and_nothing_above() {
    for settings in all() {
        let world = World::with(settings, Hooks::default());
        let committed = || world.commit.inspect().metrics().committed.get();
        let first = world.asynchronous(0, Csn::ZERO, Durability::Durable).expect("pre-commits");
        eventually("the first is counted", || committed() == 1);
        let lazy = world.asynchronous(0, Csn::ZERO, Durability::Lazy).expect("pre-commits");
        assert_eq!(lazy.csn, first.csn.next());
        world.commit.acknowledgments.acknowledge_all(true);
        assert_eq!(committed(), 1, "the second is in no log");
        world.commit.waits().wait_committed(lazy.csn).expect("commits");
        eventually("the second is counted", || committed() == 2);
    }
}

#[test]
fn only_the_gap_free_prefix_of_blocks_is_acknowledged() {
    let settings = settings(Preset::PerTransaction);
    let world = World::with(settings, Hooks::default());
    let pending = world.pending(Csn::ZERO, Durability::Durable, true);
    let first = world.precommit(0, pending).expect("pre-commits");
    let second = world.precommit(0, pending).expect("pre-commits");
    // The second committer alone: it has to write the first one's block too before it may return.
    world.commit.waits().finish(second, &pending).expect("commits");
    assert!(world.durable_csns().is_superset(&[first.csn, second.csn].into()));
    assert!(world.commit.progress().is_committed_ticket(first));
    world.commit.waits().finish(first, &pending).expect("commits");
    assert_eq!(world.commit.inspect().metrics().flushes.get(), 2, "flushes are never shared");
}

#[test]
fn a_read_only_transaction_waits_for_what_it_read() {
    for settings in all() {
        let world = World::with(settings, Hooks::default());
        let lazy = world.asynchronous(0, Csn::ZERO, Durability::Lazy).expect("pre-commits");
        let pending = world.pending(lazy.csn, Durability::Durable, false);
        world.commit.enqueue_read_only(LogId(0), &pending).expect("queued");
        let metrics = world.commit.inspect().metrics();
        eventually("both counted", || metrics.of_stage(Stage::Total).len() == 2);
        // The flusher counts one after the other.
        eventually("the writer's latency", || !metrics.of_stage(Stage::Commit).is_empty());
        world.commit.waits().finish_read_only(&pending).expect("committed already");
        assert_eq!(world.commit.inspect().metrics().committed_writers.get(), 1);
        assert_eq!(world.commit.inspect().metrics().of_stage(Stage::Commit).len(), 1, "writers only");
        assert_eq!(world.commit.inspect().metrics().of_stage(Stage::Total).len(), 3);
    }
}

#[test]
fn a_failed_write_reaches_its_batch_and_later_commits() {
    for settings in all() {
        let world = World::with(settings, Hooks::default());
        let before = world.blocking(0, Csn::ZERO).expect("the disk is whole");
        world.disk.hold();
        world.disk.fail_from_write(1);
        let kinds: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..3).map(|_| scope.spawn(|| world.blocking(0, Csn::ZERO).map_err(|e| e.kind()))).collect();
            eventually("all pre-committed", || world.commit.progress().newest_drawn() >= Csn(3));
            world.disk.release();
            threads.into_iter().map(|t| t.join().expect("no panic")).collect()
        });
        let unknown = kinds.iter().filter(|k| **k == Err(ErrorKind::OutcomeUnknown)).count();
        assert!(unknown >= 2, "{kinds:?}");
        assert!(kinds.iter().all(Result::is_err), "{kinds:?}");
        let later = world.blocking(0, Csn::ZERO).expect_err("poisoned");
        assert_eq!(later.kind(), ErrorKind::Poisoned);
        assert_eq!(world.commit.progress().watermark(), Csn(2), "W is frozen");
        assert!(world.commit.progress().is_committed_ticket(before), "what was durable stays committed");
        assert_eq!(world.commit.poisoned().map(|e| e.kind()), Some(ErrorKind::Io));
        assert_eq!(
            world.commit.waits().wait_committed(Csn(2)).map_err(|e| e.kind()),
            Err(ErrorKind::Poisoned)
        );
        assert_eq!(world.commit.close().map_err(|e| e.kind()), Err(ErrorKind::Poisoned));
    }
}

#[test]
fn an_asynchronous_commit_that_fails_is_reported_to_waiters() {
    for settings in all() {
        let world = World::with(settings, Hooks::default());
        world.disk.fail_from_write(1);
        let ticket = world.asynchronous(0, Csn::ZERO, Durability::Durable).expect("pre-commits");
        let error = world.commit.waits().wait([ticket], None).expect_err("the disk fails");
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
        assert_eq!(world.commit.inspect().metrics().committed.get(), 0);
    }
}

#[test]
fn wait_gives_up_after_its_timeout_and_may_be_repeated() {
    let world = World::new(Preset::Group, 1);
    world.disk.hold();
    let ticket = world.asynchronous(0, Csn::ZERO, Durability::Durable).expect("pre-commits");
    eventually("the flusher is at it", || world.disk.writes() == 1);
    let error = world.commit.waits().wait([ticket], Some(Duration::from_millis(5))).expect_err("held");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    world.disk.release();
    world.commit.waits().wait([ticket], Some(Duration::from_secs(60))).expect("commits");
}

#[test]
fn close_flushes_commits_in_flight_and_refuses_new_ones() {
    for settings in all() {
        let world = World::with(settings, Hooks::default());
        let tickets: Vec<_> = [Durability::Durable, Durability::BoundedLoss, Durability::Lazy]
            .map(|level| world.asynchronous(0, Csn::ZERO, level).expect("pre-commits"))
            .into();
        world.commit.close().expect("closes");
        let durable = world.durable_csns();
        assert!(tickets.iter().all(|t| durable.contains(&t.csn)));
        assert!(tickets.iter().all(|t| world.commit.waits().wait([*t], None).is_ok()));
        assert_eq!(world.commit.inspect().metrics().committed.get(), 3);
        assert_eq!(
            world.blocking(0, Csn::ZERO).map_err(|e| e.kind()).expect_err("closed"),
            ErrorKind::InvalidArgument
        );
        world.commit.close().expect("twice is fine");
    }
}

#[test]
fn a_future_is_woken_when_its_transaction_is_committed() {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    for settings in all() {
        let world = World::with(settings, Hooks::default());
        for level in [Durability::Durable, Durability::Lazy] {
            let ticket = world.asynchronous(0, Csn::ZERO, level).expect("pre-commits");
            let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
            let mut place = WakerPlace::default();
            while world.commit.waits().poll(ticket, &waker, &mut place).is_none() {
                std::thread::park_timeout(Duration::from_secs(5));
            }
            assert!(world.durable_csns().contains(&ticket.csn));
        }
    }
}

#[test]
fn a_leader_gathers_until_there_are_enough_and_not_alone() {
    let gather = settings(Preset::Group).with_protocol(|axes| {
        axes.gather_mut().expect("leaders gather").window = Duration::from_secs(1);
        axes.gather_mut().expect("leaders gather").siblings = 2;
        axes.gather_mut().expect("leaders gather").most = Some(3);
    });
    let hooks = Hooks { in_progress: Box::new(|| 1), ..Hooks::default() };
    // The clock stands still, so a leader that gathers alone would never write.
    let alone = World::with_clock(gather.clone(), hooks, Clock::manual());
    let told = in_time("one other is in progress, two are asked for", move || {
        alone.blocking(0, Csn::ZERO).map(drop)
    });
    told.expect("commits");
    let world = Arc::new(World::with_clock(gather, Hooks::default(), Clock::manual()));
    let theirs = world.clone();
    in_time("the third fills the block", move || {
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| theirs.blocking(0, Csn::ZERO).expect("commits"));
            }
        });
    });
    assert_eq!(world.commit.inspect().metrics().flushes.get(), 1);
}

/// It slept until the device had completed the write in flight, although three buffers were free.
#[test]
fn a_full_buffer_is_sealed_and_the_next_one_filled() {
    for preset in [Preset::Group, Preset::Pipelined, Preset::Restricted, Preset::Auto] {
        let settings = settings(preset).with(|s| {
            s.lab.log_buffer_bytes = 64 << 10;
            s.lab.flush_unit_bytes = 16 << 10;
        });
        let mut world = World::with(settings, Hooks::default());
        world.body_bytes = 500;
        world.disk.hold();
        let first = world.asynchronous(0, Csn::ZERO, Durability::Durable).expect("pre-commits");
        eventually("the flusher writes", || world.disk.writes() == 1);
        let world = Arc::new(world);
        let theirs = world.clone();
        let last = in_time("three more buffers are free", move || {
            let commit = |_| theirs.asynchronous(0, Csn::ZERO, Durability::Durable).expect("pre-commits");
            (0..150 << 10).step_by(600).map(commit).fold(None, |_, ticket| Some(ticket)).expect("some")
        });
        world.disk.release();
        world.commit.waits().wait([first, last], None).expect("the disk is whole");
        assert_eq!(world.durable_csns().len() as u64, last.csn.0);
    }
}

/// They wrote side by side.
#[test]
fn per_transaction_writes_one_block_after_the_other() {
    let world = World::with(settings(Preset::PerTransaction), Hooks::default());
    world.disk.hold();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| world.blocking(0, Csn::ZERO).expect("commits"));
        }
        eventually("all are appended", || world.commit.progress().newest_drawn() == Csn(3));
        std::thread::sleep(Duration::from_millis(20));
        let begun = world.disk.writes();
        world.disk.release();
        assert_eq!(begun, 1, "writes at a time");
    });
    assert_eq!(world.commit.inspect().metrics().flushes.get(), 3, "and none is shared");
}

/// A commit after a pause was written at once, and took no place in the queue.
#[test]
fn queued_opens_a_window_with_the_first_arrival() {
    let clock = Clock::manual();
    clock.advance(Duration::from_secs(1));
    let settings = settings(Preset::Queued);
    let window = Axes::of(&settings).flush_interval;
    let world = World::with_clock(settings, Hooks::default(), clock);
    std::thread::scope(|scope| {
        let committer = scope.spawn(|| world.blocking(0, Csn::ZERO).expect("commits"));
        eventually("queued", || world.commit.acknowledgments.has_queued(LogId(0)));
        world.clock.advance(window - Duration::from_micros(250));
        let second = world.asynchronous(0, Csn::ZERO, Durability::Durable).expect("pre-commits");
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(world.disk.writes(), 0, "before the window ends");
        world.clock.advance(Duration::from_micros(250));
        committer.join().expect("no panic");
        eventually("both in one write", || world.commit.progress().is_committed_ticket(second));
    });
    assert_eq!(world.commit.inspect().metrics().flushes.get(), 1);
    eventually("each is counted once", || world.commit.inspect().metrics().committed.get() == 2);
}

#[test]
fn queued_writes_no_more_often_than_its_interval() {
    let interval = Duration::from_millis(20);
    let settings = settings(Preset::Queued).with_protocol(|axes| axes.flush_interval = interval);
    let world = World::with(settings, Hooks::default());
    let start = std::time::Instant::now();
    for _ in 0..5 {
        world.blocking(0, Csn::ZERO).expect("commits");
    }
    let flushes = world.commit.inspect().metrics().flushes.get();
    assert!(start.elapsed() >= interval * 4, "{flushes} flushes in {:?}", start.elapsed());
    // A reader is not a committer: it does not wait for the interval.
    let lazy = world.asynchronous(0, Csn::ZERO, Durability::Lazy).expect("pre-commits");
    world.commit.waits().wait_committed(lazy.csn).expect("commits");
}

#[test]
fn workers_acknowledge_their_group_and_the_flusher_the_rest() {
    let settings = Settings { logs: 3, ..settings(Preset::Autonomous) }.with_protocol(|axes| {
        axes.set_acknowledger(Acknowledger::Workers);
        axes.acknowledgment_mut().expect("workers acknowledge").group = 2;
    });
    let clock = Clock::manual();
    clock.advance(Duration::from_millis(1));
    let world = World::with_clock(settings, Hooks::default(), clock);
    let metrics = world.commit.inspect().metrics();
    let tickets: Vec<_> = (0..3)
        .map(|log| world.asynchronous(log, Csn::ZERO, Durability::Lazy).expect("pre-commits"))
        .collect();
    world.commit.waits().flush_all().expect("the disk is whole");
    // It leaves them to workers for a time, which stands still.
    assert_eq!(metrics.committed.get(), 0);
    world.commit.acknowledgments.acknowledge_group(LogId(1));
    assert_eq!(metrics.committed.get(), 2, "logs 0 and 1 are a group");
    world.clock.advance(Duration::from_millis(2));
    eventually("log 2 by the flusher", || metrics.committed.get() == 3);
    assert!(tickets.iter().all(|ticket| world.commit.progress().is_committed_ticket(*ticket)));
}

#[test]
fn a_full_queue_is_emptied_by_the_committer_that_finds_it_full() {
    let mut points = all();
    points.retain(|settings| Axes::of(settings).acknowledger.kind() != Acknowledger::Leader);
    assert!(points.len() >= 4);
    for settings in points {
        let settings = settings.with(|s| s.lab.queue_entries = 1024);
        let world = World::with(settings, Hooks::default());
        for _ in 0..5_000 {
            world.asynchronous(0, Csn::ZERO, Durability::Lazy).expect("pre-commits");
        }
        world.commit.close().expect("the disk is whole");
        assert_eq!(world.commit.inspect().metrics().committed.get(), 5_000);
    }
}

#[test]
fn a_full_queue_holds_up_committers_until_it_has_room() {
    let world = World::new(Preset::Autonomous, 2);
    for _ in 0..QUEUE_ENTRIES {
        world.asynchronous(0, Csn::ZERO, Durability::Lazy).expect("pre-commits");
    }
    world.commit.waits().flush_all().expect("the disk is whole");
    eventually("all are counted", || {
        world.commit.inspect().metrics().committed.get() == QUEUE_ENTRIES as u64
    });
}

/// An early version built the lead before it knew whether it was free; dropping it released the
/// leader's.
#[test]
fn trying_for_a_lead_that_is_taken_does_not_release_it() {
    let world = World::new(Preset::Group, 1);
    let core = &world.commit;
    let lead = world.commit.writes.try_become_leader(&core.durability.logs[0]).expect("free");
    assert!(world.commit.writes.try_become_leader(&core.durability.logs[0]).is_none());
    assert!(
        core.durability.logs[0].has_leader()
            && world.commit.writes.try_become_leader(&core.durability.logs[0]).is_none()
    );
    drop(lead);
    assert!(world.commit.writes.try_become_leader(&core.durability.logs[0]).is_some());
}

#[test]
fn a_later_block_that_completes_first_acknowledges_nothing() {
    let world = World::with(
        settings(Preset::Autonomous).with_protocol(|axes| axes.set_acknowledger(Acknowledger::Leader)),
        Hooks::default(),
    );
    world.disk.complete_in_reverse();
    let core = &world.commit;
    let (writer, queues) = (&core.durability.logs[0], &core.workers.as_ref().expect("they write").queues);
    let lead = world.commit.writes.try_become_leader(writer).expect("free");
    let tickets: Vec<_> = (0..2)
        .map(|_| {
            let ticket = world.asynchronous(0, Csn::ZERO, Durability::Durable).expect("pre-commits");
            let block = writer.take_block().expect("just appended");
            let submitted = queues.submit(&core.writes, writer, block, Vec::new(), world.clock.now());
            submitted.expect("the disk is whole");
            ticket
        })
        .collect();
    assert!(core.writes.reap(writer, true));
    core.acknowledgments.publish();
    assert_eq!(world.commit.progress().watermark(), Csn(1));
    assert!(!tickets.iter().any(|t| world.commit.progress().is_committed_ticket(*t)));
    assert_eq!(world.commit.inspect().metrics().committed.get(), 0);
    assert!(core.writes.reap(writer, true));
    core.acknowledgments.publish();
    drop(lead);
    assert!(tickets.iter().all(|t| world.commit.progress().is_committed_ticket(*t)));
    assert_eq!(world.commit.inspect().metrics().committed.get(), 2);
}

/// Regression: the caller of a flush returned before the writing thread had published the block,
/// and snapshots did not see the commit.
#[test]
fn what_a_flush_found_durable_is_acknowledged() {
    let world = World::with(settings(Preset::Autonomous), Hooks::default());
    let core = &world.commit;
    let writer = &core.durability.logs[0];
    let lead = world.commit.writes.try_become_leader(writer).expect("free");
    let ticket = world.asynchronous(0, Csn::ZERO, Durability::Durable).expect("pre-commits");
    let block = writer.take_block().expect("just appended");
    core.writes.write_inline(writer, block, &world.commit.inspect().metrics().leader_flushes);
    assert!(world.commit.progress().newest_acknowledged() < ticket.csn, "it has not published");
    world.commit.waits().flush_all().expect("the disk is whole");
    assert_eq!(world.commit.progress().newest_acknowledged(), ticket.csn);
    drop(lead);
}

#[test]
fn commits_acknowledged_before_a_failed_write_are_durable() {
    for settings in all() {
        for failure in spread(14, 4).map(|n| n + 1) {
            let world = World::with(settings.clone(), Hooks::default());
            world.disk.fail_from_write(failure);
            let told = Mutex::new(Vec::new());
            std::thread::scope(|scope| {
                for thread in 0..3u32 {
                    let (world, told) = (&world, &told);
                    scope.spawn(move || while told.lock().len() < 60 && commit_one(world, thread, told) {});
                }
            });
            let durable = world.durable_csns();
            // Where a record lists what it depends on, that is promised; otherwise all up to there.
            let lists = world.commit.durability.lists_predecessors();
            for ticket in told.lock().iter() {
                assert!(durable.contains(&ticket.csn), "{ticket:?} at failure {failure}");
                let from = if lists { ticket.dsn.0.max(1) } else { 1 };
                let kept = (from..=ticket.dsn.0).all(|csn| durable.contains(&Csn(csn)));
                assert!(kept, "{ticket:?} at failure {failure}, {settings:?}");
            }
        }
    }
}

/// One lazy, one asynchronous, one blocking commit that depends on the newest. False when the disk
/// failed.
fn commit_one(world: &World, thread: u32, told: &Mutex<Vec<Ticket>>) -> bool {
    let log = thread % world.commit.durability.logs.len() as u32;
    let outcome = || {
        world.asynchronous(log, Csn::ZERO, Durability::Lazy)?;
        let handle = world.asynchronous(log, world.commit.progress().newest_drawn(), Durability::Durable)?;
        let ticket = world.blocking(log, world.commit.progress().newest_drawn())?;
        told.lock().push(ticket);
        world.commit.waits().wait([handle], None)?;
        told.lock().push(handle);
        Ok(())
    };
    let outcome: Result<()> = outcome();
    outcome.is_ok()
}

/// Not a test: run with `--release --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn cost_of_an_asynchronous_commit() {
    for settings in all() {
        let name = settings.preset.name();
        for level in [Durability::Durable, Durability::Lazy] {
            let world = World::with(settings.clone(), Hooks::default());
            world.disk.set_delay(Duration::from_micros(100));
            world.disk.discard();
            let body = [7; 100];
            let record =
                Record { body: &body, body_crc: 1, operations: 1, gsn: Gsn(0), kind: RecordKind::Whole };
            let count = if settings.preset == Preset::PerTransaction { 2_000 } else { 1_000_000 };
            let start = std::time::Instant::now();
            for _ in 0..count {
                let pending = world.pending(Csn::ZERO, level, false);
                world
                    .commit
                    .precommit(LogId(0), record, &pending, || true)
                    .expect("pre-commits")
                    .expect("not withdrawn");
                world.commit.end_of_transaction(LogId(0), pending.begun, pending.ready, None);
            }
            let each = start.elapsed().as_nanos() / count;
            let metrics = world.commit.inspect().metrics();
            let (flushes, waits) = (metrics.flushes.get(), metrics.backpressure_waits.get());
            println!(
                "{name}, {:?}, {level:?}: {each} ns, {flushes} flushes, {waits} waits for room",
                Axes::of(&settings)
            );
        }
    }
}

#[test]
fn a_shared_flush_serves_and_fails_all_its_logs() {
    let settings =
        Settings { preset: Preset::Autonomous, logs: 4, ..Settings::default() }.with_protocol(|axes| {
            axes.set_writer(Writer::Background);
            axes.shared_flush = Some(true);
            axes.flush_interval = Duration::ZERO;
        });
    let world = World::with(settings.clone(), Hooks::default());
    let in_each = |world: &World| {
        (0..4)
            .map(|log| world.asynchronous(log, Csn::ZERO, Durability::Durable).expect("room"))
            .collect::<Vec<_>>()
    };
    // While the first is being written the others come together.
    let begun = |world: &World| {
        world.disk.hold();
        let first = world.asynchronous(0, Csn::ZERO, Durability::Durable).expect("room");
        eventually("being written", || world.disk.writes() == 1);
        let tickets = in_each(world);
        world.disk.release();
        (first, tickets)
    };
    let (first, tickets) = begun(&world);
    world.commit.waits().wait(tickets.into_iter().chain([first]), None).expect("the disk is whole");
    assert!(world.commit.inspect().metrics().shared_flushes.get() >= 1);
    assert!(world.disk.writes() < 5, "{} flushes for five blocks", world.disk.writes());
    assert_eq!(world.durable_csns().len(), 5);
    assert_eq!(world.commit.inspect().shares_flush(), Some(true));

    let world = World::with(settings, Hooks::default());
    world.disk.fail_from_write(2);
    let (first, tickets) = begun(&world);
    for ticket in tickets {
        let error = world.commit.waits().wait([ticket], None).expect_err("the flush fails");
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
        assert!(!world.commit.progress().is_committed_ticket(ticket));
    }
    assert!(world.commit.progress().is_committed_ticket(first));
    assert_eq!(world.commit.progress().watermark(), Csn(2));
    assert_eq!(world.durable_csns().len(), 1);
}
