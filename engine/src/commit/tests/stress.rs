//! Many threads; their acknowledgments are checked against what a power cut would leave.

use super::*;
use crate::base::depth::depth;
use crate::base::random::Random;

/// Each thread commits with random levels and dependencies. Whenever a commit is acknowledged, its
/// record and all below its DSN must be durable at that moment.
fn run(settings: Settings, threads: u32, commits: u64, delay: Duration) -> World {
    let logs = settings.logs as u32;
    let world = World::with(settings, Hooks::default());
    world.disk.set_delay(delay);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let world = &world;
            scope.spawn(move || committer(world, thread, thread % logs, commits));
        }
    });
    world.commit.waits().flush_all().expect("the disk is whole");
    world
}

fn committer(world: &World, thread: u32, log: u32, commits: u64) {
    let mut random = Random::from_seed(thread.into());
    let mut last = None;
    for i in 0..commits {
        // Mostly the newest there is, as under contention; sometimes nothing.
        let dsn = if random.chance(1, 4) { Csn::ZERO } else { world.commit.progress().newest_drawn() };
        let told = match random.below(8) {
            0 => {
                let level = [Durability::Durable, Durability::BoundedLoss, Durability::Lazy];
                let level = level[random.below(3) as usize];
                last = Some(world.asynchronous(log, dsn, level).expect("pre-commits"));
                None
            }
            1 => last.inspect(|ticket: &Ticket| world.commit.waits().wait([*ticket], None).expect("commits")),
            2 if dsn > Csn::ZERO => {
                world.commit.waits().wait_committed(dsn).expect("commits");
                None
            }
            _ => Some(world.blocking(log, dsn).expect("commits")),
        };
        world.commit.end_of_transaction(LogId(log), world.clock.now(), world.clock.now(), None);
        // Reading back everything is slow: now and then.
        if let Some(ticket) = told
            && (i % 16 == 0)
        {
            let w = world.commit.progress().watermark();
            let durable = world.durable_csns();
            assert!(durable.contains(&ticket.csn), "{ticket:?} was acknowledged");
            let closed = w.0.max(ticket.dsn.0 + 1);
            assert!(
                (1..closed).all(|csn| durable.contains(&Csn(csn))),
                "below {closed} something is volatile"
            );
        }
    }
}

#[test]
fn acknowledged_means_durable_with_all_it_depends_on() {
    // By other rules it is not all below the DSN: see `exact`.
    let by_watermark = |settings: &Settings| {
        Axes::of(settings).rule() == Dependency::Csn
            || settings.lab.protocol.is_none_or(|axes| axes.dependency.is_none())
    };
    for settings in all().into_iter().filter(by_watermark) {
        let logs = if settings.logs == 1 { 1 } else { 3 };
        run(Settings { logs, ..settings }, 6, depth(200).max(64), Duration::ZERO);
    }
    for writer in [Writer::Worker, Writer::Leader] {
        let settings = Settings { logs: 3, ..settings(Preset::Autonomous) }
            .with_protocol(|axes| axes.set_writer(writer));
        let world = run(settings, 6, depth(200).max(64), Duration::from_micros(20));
        assert!(world.commit.progress().watermark() > world.commit.progress().newest_drawn());
    }
}

/// With more threads than processors the holder of the latch is often off the CPU.
#[test]
fn acknowledged_means_durable_for_records_appended_in_groups() {
    for preset in [Preset::Group, Preset::Pipelined] {
        let settings = settings(preset).with_protocol(|axes| axes.append = Append::Consolidated);
        let world = run(settings, 8, depth(200).max(64), Duration::ZERO);
        assert_eq!(world.durable_csns().len() as u64, world.commit.progress().newest_drawn().0, "{preset}");
    }
}

#[test]
fn a_change_of_leaders_strands_no_follower() {
    for gather_max in [None, Some(1)] {
        let settings = Settings { preset: Preset::Group, logs: 1, ..Settings::default() }
            .with_protocol(|axes| axes.gather_mut().expect("leaders gather").most = gather_max);
        let world = run(settings, 16, depth(400).min(100), Duration::from_micros(200));
        let metrics = world.commit.inspect().metrics();
        eventually("all counted", || {
            metrics.committed_writers.get() == world.commit.progress().newest_drawn().0
        });
        // Also where a leader waits for no follower: it writes what arrived during the previous
        // write.
        assert!(metrics.group_size() > 1.0, "{}", metrics.group_size());
    }
}

#[test]
fn committers_released_by_a_write_are_in_the_next_one() {
    for preset in [Preset::Group, Preset::Pipelined] {
        let clock = Clock::manual();
        clock.advance(Duration::from_millis(1));
        let settings = Settings { logs: 1, ..settings(preset) };
        let world = World::with_clock(settings, Hooks::default(), clock);
        world.disk.hold();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..2 {
                    world.blocking(0, Csn::ZERO).expect("commits");
                }
            });
            eventually("the first write has begun", || world.disk.writes() == 1);
            scope.spawn(|| world.blocking(0, Csn::ZERO).expect("commits"));
            eventually("the second waits", || world.commit.progress().newest_drawn() == Csn(2));
            // So long a write is worth as long a wait, and that does not end before the first is
            // back.
            world.clock.advance(Duration::from_millis(100));
            world.disk.release();
        });
        assert_eq!(world.commit.inspect().metrics().flushes.get(), 2, "{preset:?}");
    }
}

#[test]
fn a_slow_device_groups_by_itself() {
    let world = World::new(Preset::Auto, 1);
    world.disk.set_delay(Duration::from_millis(3));
    eventually("the writes are known to be slow", || {
        world.blocking(0, Csn::ZERO).expect("commits");
        world.commit.inspect().mean_write() >= Duration::from_millis(2)
    });
    let metrics = world.commit.inspect().metrics();
    let flushes = metrics.flushes.get();
    for _ in 0..300 {
        world.asynchronous(0, Csn::ZERO, Durability::Durable).expect("pre-commits");
    }
    world.commit.waits().flush_all().expect("the disk is whole");
    assert!(metrics.flushes.get() - flushes <= 30, "it groups by itself");
}

/// While the device does not answer a block gets long, and so do the buffers. Then blocks are short
/// for long: so do they.
#[test]
fn log_buffers_follow_a_device_that_changes_its_speed() {
    const RECORDS: u64 = 10_000;
    let mut world = World::new(Preset::Pipelined, 1);
    world.body_bytes = 500;
    let first = world.commit.inspect().log_buffer_bytes();
    world.disk.hold();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..RECORDS {
                world.asynchronous(0, Csn::ZERO, Durability::Durable).expect("pre-commits");
            }
        });
        eventually("a full buffer", || world.commit.inspect().metrics().backpressure_waits.get() > 0);
        world.disk.release();
    });
    world.commit.waits().flush_all().expect("the disk is whole");
    let longest = world.commit.inspect().log_buffer_bytes();
    assert!(longest > first && longest <= Settings::default().log_buffer_bytes(), "{longest}");
    let mut commits = 0;
    while world.commit.inspect().log_buffer_bytes() >= longest {
        world.blocking(0, Csn::ZERO).expect("commits");
        commits += 1;
        assert!(commits <= 3000, "they stay long");
    }
    assert_eq!(
        world.durable_csns().len() as u64,
        world.commit.progress().newest_drawn().0,
        "nothing is lost on the way"
    );
}

#[test]
fn threads_that_come_and_go_leave_nothing_behind() {
    let world = World::new(Preset::Autonomous, 2);
    for round in 0..20u32 {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let world = &world;
                scope.spawn(move || {
                    let dsn = world.commit.progress().newest_drawn();
                    world.asynchronous(thread % 2, dsn, Durability::Durable).expect("pre-commits");
                });
            }
        });
        let expected = u64::from(round + 1) * 4;
        eventually("flushed without them", || world.commit.inspect().metrics().committed.get() == expected);
    }
}

#[test]
fn w_never_passes_a_csn_that_is_not_durable() {
    let world = World::new(Preset::Autonomous, 4);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for log in 0..4 {
            let (world, stop) = (&world, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) && world.commit.progress().newest_drawn() < Csn(20_000) {
                    world
                        .asynchronous(log, world.commit.progress().newest_drawn(), Durability::Durable)
                        .expect("pre-commits");
                    std::thread::sleep(Duration::from_micros(50));
                }
            });
        }
        for _ in 0..depth(400).min(100) {
            let w = world.commit.durability.watermark.rescan();
            let durable = world.durable_csns();
            assert!((1..w.0).all(|csn| durable.contains(&Csn(csn))), "W = {w}");
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::SeqCst);
    });
}

#[test]
fn closing_with_commits_in_flight_loses_none() {
    for settings in all() {
        let logs = settings.logs;
        let what = format!("{settings:?}");
        let world = World::with(settings, Hooks::default());
        let accepted = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..4u32 {
                let (world, accepted) = (&world, &accepted);
                scope.spawn(move || {
                    loop {
                        let level = if thread < 2 { Durability::Durable } else { Durability::Lazy };
                        match world.asynchronous(thread % logs as u32, Csn::ZERO, level) {
                            Ok(ticket) => accepted.lock().push(ticket),
                            Err(_) => return,
                        }
                    }
                });
            }
            // On a busy machine no thread may have come far in 5 ms.
            while accepted.lock().is_empty() {
                std::thread::sleep(Duration::from_millis(5));
            }
            world.commit.close().expect("closes");
        });
        let durable = world.durable_csns();
        let accepted = accepted.lock();
        let lost: Vec<_> = accepted.iter().filter(|ticket| !durable.contains(&ticket.csn)).collect();
        assert!(lost.is_empty(), "{what}: {lost:?}");
    }
}

/// With very many waiters the flusher writes; with few, one of them does. After each switch, every
/// commit still completes.
#[test]
fn many_waiters_leave_writing_to_the_flusher() {
    let world = World::new(Preset::Auto, 1);
    world.disk.set_delay(Duration::from_micros(200));
    let flushes = || {
        let metrics = world.commit.inspect().metrics();
        (metrics.leader_flushes.get(), metrics.flusher_flushes.get())
    };
    let max_leader_waiters = 32 * crate::sync::thread::processors();
    let commit = |threads: usize| {
        let together = std::sync::Barrier::new(threads);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    together.wait();
                    (0..50).try_for_each(|_| world.blocking(0, Csn::ZERO).map(|_| ())).expect("commits")
                });
            }
        });
    };
    commit(max_leader_waiters);
    let (by_leaders, by_flusher) = flushes();
    assert!(by_flusher > 0, "{by_leaders} writes of leaders");
    // A large cohort counts for many writes.
    (0..8).for_each(|_| commit(1));
    let (by_leaders, by_flusher) = flushes();
    commit(1);
    assert!(flushes().0 > by_leaders && flushes().1 <= by_flusher + 2, "{:?}", flushes());
    assert_eq!(world.commit.inspect().metrics().committed.get(), 50 * (max_leader_waiters as u64 + 9));
}
