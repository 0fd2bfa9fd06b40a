//! The whole commit path under a controlled scheduler: random interleavings of committers, leader, flusher and close.
//!
//! Time stands still unless a committer moves it, so that a due time never hides a lost wake-up: whoever is stranded stays so,
//! and the scheduler reports the deadlock.

use super::*;
use shuttle::thread;

/// Of each script and preset.
const SCHEDULES: usize = 5000;

fn explore(settings: &Settings, script: fn(&World, u32)) {
    let settings = settings.clone();
    shuttle::check_random(
        move || {
            let clock = Clock::manual();
            clock.advance(Duration::from_millis(1));
            let world = Arc::new(World::with_clock(settings.clone(), Hooks::default(), clock));
            let threads: Vec<_> = (0..3)
                .map(|i| {
                    let world = world.clone();
                    thread::spawn(move || script(&world, i))
                })
                .collect();
            for thread in threads {
                thread.join().expect("no panic");
            }
            world.commit.close().expect("the disk is whole");
            assert!(world.commit.watermark() > world.commit.newest_drawn());
            assert_eq!(world.commit.metrics().committed_writers.get(), world.commit.newest_drawn().0);
        },
        SCHEDULES,
    );
}

fn presets() -> Vec<Settings> {
    all().into_iter().map(|settings| Settings { log_buffer_bytes: 64 << 10, ..settings }).collect()
}

fn told(world: &World, ticket: Ticket) {
    let durable = world.durable_csns();
    assert!(durable.contains(&ticket.csn), "{ticket:?}");
    assert!((1..=ticket.dsn.0).all(|csn| durable.contains(&Csn(csn))), "{ticket:?}");
}

#[test]
fn blocking_committers_are_never_stranded_and_never_told_too_early() {
    for settings in presets() {
        explore(&settings, |world, thread| {
            let log = thread % world.commit.core.writers.len() as u32;
            for _ in 0..2 {
                told(world, world.blocking(log, world.commit.newest_drawn()).expect("commits"));
            }
        });
    }
}

#[test]
fn waiters_for_records_that_nobody_flushes_are_never_stranded() {
    for settings in presets() {
        explore(&settings, |world, thread| {
            let log = thread % world.commit.core.writers.len() as u32;
            let lazy = world.asynchronous(log, world.commit.newest_drawn(), Durability::Lazy).expect("lazy");
            let handle = world.asynchronous(log, lazy.csn, Durability::Durable).expect("asynchronous");
            world.commit.end_of_transaction(LogId(log), world.clock.now(), world.clock.now(), false);
            if thread == 0 {
                world.commit.wait_committed(handle.csn).expect("commits");
            }
            world.commit.wait(handle, None).expect("commits");
            told(world, handle);
            world.clock.advance(Duration::from_micros(300));
        });
    }
}
