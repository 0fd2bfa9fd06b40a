//! Writes that never complete, buffers that never come back, threads that end or panic with bytes
//! in their log.

use super::*;
use std::time::Instant;

/// What a test thread says within a minute.
pub fn in_time<T: Send + 'static>(what: &str, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || drop(send.send(run())));
    receive.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("{what}: hangs"))
}

#[test]
fn a_write_that_never_completes_is_given_up() {
    for settings in all() {
        let what = format!("{settings:?}");
        let settings = Settings { write_deadline: Duration::from_millis(200), ..settings };
        let world = World::with(settings, Hooks::default());
        let before = world.blocking(0, Csn::ZERO).expect("commits");
        let disk = world.disk.clone();
        disk.hold();
        let world = Arc::new(world);
        let begun = Instant::now();
        let ticket = world.asynchronous(0, Csn::ZERO, Durability::Durable).expect("not poisoned yet");
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let (world, log) = (world.clone(), world.commit.durability.logs.len() as u32 - 1);
                // One of them may be inside the write: it comes back when the device does.
                std::thread::spawn(move || world.blocking(log, Csn::ZERO))
            })
            .collect();
        let theirs = world.clone();
        let told = in_time(&what, move || {
            eventually("poisoned", || theirs.commit.poisoned().is_some());
            (ticket, theirs.commit.waits().wait([ticket], None))
        });
        assert!(begun.elapsed() >= Duration::from_millis(200), "{:?}", begun.elapsed());
        assert_eq!(told.1.expect_err("unknown").kind(), ErrorKind::OutcomeUnknown, "{what}");
        let cause = world.commit.poisoned().expect("poisoned").to_string();
        assert!(cause.contains("write_deadline"), "{cause}");
        let theirs = world.clone();
        let closed = in_time(&what, move || theirs.commit.close());
        assert_eq!(closed.expect_err("poisoned").kind(), ErrorKind::Poisoned, "{what}");
        // The device answers after all: nothing is believed.
        disk.release();
        for waiter in waiters {
            let kind = waiter.join().expect("no panic").expect_err("nothing is acknowledged").kind();
            assert!(matches!(kind, ErrorKind::OutcomeUnknown | ErrorKind::Poisoned), "{what}: {kind:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
        assert!(
            !world.commit.progress().is_committed_ticket(told.0)
                && world.commit.progress().is_committed(before.csn),
            "{what}"
        );
    }
}

/// Regression: a panicking thread that was not the leader woke no waiter, and all behind it hung.
#[test]
fn a_panic_in_a_write_wakes_the_waiters_behind_it() {
    for settings in all() {
        let what = format!("{settings:?}");
        let world = Arc::new(World::with(settings, Hooks::default()));
        let before = world.blocking(0, Csn::ZERO).expect("commits");
        world.disk.panic_at_write(world.disk.writes() + 1);
        let committers: Vec<_> = (0..3)
            .map(|_| {
                let world = world.clone();
                std::thread::spawn(move || world.blocking(0, Csn::ZERO))
            })
            .collect();
        // One of them may be the thread that panics.
        let told: Vec<_> =
            in_time(&what, move || committers.into_iter().map(|committer| committer.join()).collect());
        let durable = world.durable_csns();
        let is_kept = |told: &Ticket| durable.contains(&told.csn);
        assert!(told.into_iter().flatten().flatten().all(|told| is_kept(&told)), "{what}");
        assert!(
            world.commit.failure().check_whole().is_err() && world.commit.progress().is_committed(before.csn),
            "{what}"
        );
    }
}

/// A dying device: one write has failed, another never ends.
#[test]
fn a_hanging_write_beside_a_failed_one_does_not_block_close() {
    let background = |preset| settings(preset).with_protocol(|axes| axes.set_writer(Writer::Background));
    let worker = settings(Preset::Autonomous);
    for settings in [background(Preset::Group), background(Preset::Autonomous), worker] {
        let what = format!("{settings:?}");
        let settings = Settings { write_deadline: Duration::from_millis(200), ..settings };
        let world = Arc::new(World::with(settings, Hooks::default()));
        let disk = world.disk.clone();
        disk.hold();
        let ticket = world.asynchronous(0, Csn::ZERO, Durability::Durable).expect("room");
        world.commit.end_of_transaction(LogId(0), world.clock.now(), world.clock.now(), None);
        eventually("under way", || disk.writes() == 1);
        world.commit.failure.fail(Error::new(ErrorKind::Io, "another write failed"));
        let theirs = world.clone();
        let closed = in_time(&what, move || theirs.commit.close());
        assert_eq!(closed.expect_err("poisoned").kind(), ErrorKind::Poisoned, "{what}");
        assert!(!world.commit.progress().is_committed_ticket(ticket));
        disk.release();
    }
}

/// Regression: the thread that makes segments hung in the same device. `close` did not wait for it,
/// but dropping the commit layer did.
#[test]
fn close_and_drop_do_not_wait_for_a_device_that_hangs() {
    let settings = Settings { write_deadline: Duration::from_millis(200), ..settings(Preset::Group) };
    let world = World::with(settings, Hooks::default());
    let disk = world.disk.clone();
    disk.hold_growth();
    world.asynchronous(0, Csn::ZERO, Durability::Durable).expect("room");
    eventually("a segment is made", || disk.growing() > 0);
    eventually("poisoned", || world.commit.poisoned().is_some());
    let closed = in_time("close", move || world.commit.close());
    assert_eq!(closed.expect_err("poisoned").kind(), ErrorKind::Poisoned);
    disk.release();
}

/// What had failed, or panicked, counted as under way for ever, so as hanging, and all that the
/// commit layer holds was leaked.
#[test]
fn a_flush_that_failed_does_not_hang() {
    // Side by side, because each waits for a deadline.
    std::thread::scope(|scope| {
        for (shared_flush, panics) in [(true, false), (false, false), (true, true), (false, true)] {
            scope.spawn(move || flush_that_failed_does_not_hang(shared_flush, panics));
        }
    });
}

fn flush_that_failed_does_not_hang(shared_flush: bool, panics: bool) {
    let settings =
        Settings { write_deadline: Duration::from_secs(1), logs: 4, ..settings(Preset::Autonomous) }.with(
            |s| {
                s.protocol_mut().set_writer(Writer::Background);
                s.protocol_mut().shared_flush = Some(shared_flush);
                s.protocol_mut().flush_interval = Duration::ZERO;
            },
        );
    let world = World::with(settings, Hooks::default());
    if panics {
        world.disk.panic_at_write(2);
    } else {
        world.disk.fail_from_write(2);
    }
    // While the first is being written the others come together.
    world.disk.hold();
    world.asynchronous(0, Csn::ZERO, Durability::Durable).expect("room");
    eventually("under way", || world.disk.writes() == 1);
    for log in 0..4 {
        world.asynchronous(log, Csn::ZERO, Durability::Durable).expect("room");
    }
    world.disk.release();
    eventually("poisoned", || world.commit.poisoned().is_some());
    eventually("what failed has ended", || world.commit.durability.logs.iter().all(has_ended));
    // Longer than the deadline and its last look.
    std::thread::sleep(Duration::from_millis(1600));
    let writes = Arc::downgrade(&world.commit.writes);
    drop(world);
    assert!(writes.upgrade().is_none(), "the room is left behind, as if a write hung");
}

fn has_ended(writer: &LogWriter) -> bool {
    let (begun, ended) = writer.writes();
    begun == ended
}

/// The same of a worker, whose writes are reaped later.
#[test]
fn what_was_in_a_queue_that_panicked_has_ended() {
    let worker = settings(Preset::Autonomous);
    let world = World::with(worker, Hooks::default());
    let disk = &world.disk;
    disk.panic_at_write(disk.writes() + 1);
    world.asynchronous(0, Csn::ZERO, Durability::Durable).expect("room");
    let writer = &world.commit.durability.logs[0];
    let ends = || {
        let now = world.clock.now();
        world.commit.end_of_transaction(LogId(0), now, now, None);
        world.commit.waits().flush_all()
    };
    // It may be the flusher that reaps.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(ends));
    eventually("poisoned", || world.commit.poisoned().is_some());
    eventually("it has ended", || has_ended(writer));
    assert_eq!(writer.in_flight(), 0);
}

/// A buffer has whole sectors. One that comes back longer than was asked for was no log's own any
/// more, and soon there was none.
#[test]
fn log_buffers_of_any_length_come_back() {
    for preset in [Preset::Restricted, Preset::Group, Preset::Auto] {
        let settings = settings(preset).with(|s| {
            s.lab.log_buffer_bytes = 1_000_000;
            s.lab.flush_unit_bytes = 300_000;
        });
        let mut world = World::with(settings, Hooks::default());
        world.body_bytes = 400_000;
        let world = Arc::new(world);
        for _ in 0..9 {
            let theirs = world.clone();
            in_time(preset.name(), move || theirs.blocking(0, Csn::ZERO)).expect("commits");
        }
    }
}

#[test]
fn a_slow_device_is_not_given_up() {
    let settings = Settings { write_deadline: Duration::from_secs(1), ..settings(Preset::Group) };
    let world = World::with(settings, Hooks::default());
    world.disk.set_delay(Duration::from_millis(90));
    for _ in 0..14 {
        world.blocking(0, Csn::ZERO).expect("each in time, all together longer");
    }
    world.disk.set_delay(Duration::ZERO);
    // The thread that looks sleeps by now, and is woken by the next write.
    std::thread::sleep(Duration::from_millis(300));
    world.disk.hold();
    let theirs = world.asynchronous(0, Csn::ZERO, Durability::Durable).expect("pre-commits");
    eventually("given up", || world.commit.poisoned().is_some());
    world.disk.release();
    assert_eq!(
        world.commit.waits().wait([theirs], None).expect_err("unknown").kind(),
        ErrorKind::OutcomeUnknown
    );
}

#[test]
fn what_a_thread_leaves_is_written_whether_it_ended_or_panicked() {
    for settings in all() {
        let what = format!("{settings:?}");
        let world = Arc::new(World::with(settings, Hooks::default()));
        let logs = world.commit.durability.logs.len() as u32;
        let mut tickets = Vec::new();
        for panics in [false, true] {
            let theirs = world.clone();
            let (send, receive) = std::sync::mpsc::channel();
            let thread = std::thread::spawn(move || {
                for log in 0..logs {
                    let level = if log == 0 { Durability::Durable } else { Durability::BoundedLoss };
                    send.send(theirs.asynchronous(log, Csn::ZERO, level).expect("pre-commits"))
                        .expect("heard");
                    theirs.commit.end_of_transaction(
                        LogId(log),
                        theirs.clock.now(),
                        theirs.clock.now(),
                        None,
                    );
                }
                assert!(!panics, "a transaction panics with bytes in the buffer");
            });
            assert_eq!(thread.join().is_err(), panics);
            tickets.extend(receive);
        }
        eventually(&what, || {
            tickets.iter().all(|ticket| world.commit.progress().is_committed_ticket(*ticket))
        });
        eventually(&what, || world.commit.inspect().metrics().committed.get() == tickets.len() as u64);
        assert!(world.commit.poisoned().is_none());
        let durable = world.durable_csns();
        assert!(tickets.iter().all(|ticket| durable.contains(&ticket.csn)), "{what}");
    }
}
