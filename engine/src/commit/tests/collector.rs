//! One worker that writes all logs.

use super::*;

fn settings() -> Settings {
    Settings { logs: 3, ..super::settings(Preset::Autonomous) }.with(|s| {
        s.protocol_mut().set_writer(Writer::Collector);
        s.protocol_mut().set_acknowledger(Acknowledger::Leader);
        s.lab.flush_unit_bytes = 4096;
        s.protocol_mut().flush_interval = Duration::from_secs(1);
    })
}

/// A world without flushers, whose clock stands still.
fn world() -> World {
    let clock = Clock::manual();
    clock.advance(Duration::from_millis(1));
    let world = World::with_clock(settings(), Hooks::default(), clock);
    let flushers = &world.commit.writes.flushers;
    flushers.iter().for_each(|flusher| flusher.stop());
    eventually("no flusher", || flushers.iter().all(|flusher| flusher.has_ended()));
    for log in 0..3 {
        world.blocking(log, Csn::ZERO).expect("commits");
    }
    world
}

fn end(world: &World, log: u32) {
    world.commit.end_of_transaction(LogId(log), world.clock.now(), world.clock.now(), None);
}

#[test]
fn a_worker_at_a_full_unit_writes_and_acknowledges_all_logs() {
    let world = world();
    let others: Vec<_> = (1..3)
        .map(|log| world.asynchronous(log, Csn::ZERO, Durability::Durable).expect("pre-commits"))
        .collect();
    let (writes, committed) = (world.disk.writes(), world.commit.inspect().metrics().committed.get());
    let mut tickets = others;
    while world.commit.durability.logs[0].log.unsealed_bytes() < 4096 {
        end(&world, 0);
        assert_eq!(world.disk.writes(), writes, "no log is due");
        tickets.push(world.asynchronous(0, Csn::ZERO, Durability::Durable).expect("pre-commits"));
    }
    // A worker of another log.
    end(&world, 2);
    assert_eq!(world.disk.writes(), writes + 3, "one write of each log");
    assert!(tickets.iter().all(|ticket| world.commit.progress().is_committed_ticket(*ticket)));
    let counted = world.commit.inspect().metrics().committed.get() - committed;
    assert_eq!(counted, tickets.len() as u64, "acknowledged by the worker that wrote");
}

#[test]
fn a_worker_collects_when_the_interval_has_passed() {
    let world = world();
    let ticket = world.asynchronous(1, Csn::ZERO, Durability::Durable).expect("pre-commits");
    end(&world, 0);
    assert!(!world.commit.progress().is_committed_ticket(ticket));
    world.clock.advance(Duration::from_secs(2));
    end(&world, 0);
    assert!(world.commit.progress().is_committed_ticket(ticket));
}

#[test]
fn a_failed_write_of_one_log_stops_the_round() {
    let world = world();
    let tickets: Vec<_> = (0..3)
        .map(|log| world.asynchronous(log, Csn::ZERO, Durability::Durable).expect("pre-commits"))
        .collect();
    world.disk.fail_from_write(world.disk.writes() + 1);
    world.clock.advance(Duration::from_secs(2));
    end(&world, 0);
    assert!(world.commit.failure().check_commits().is_err());
    assert!(tickets.iter().any(|ticket| !world.commit.progress().is_committed_ticket(*ticket)));
}
