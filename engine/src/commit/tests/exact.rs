//! Exact dependencies: a transaction waits for its predecessors only. And the rules by clocks.

use super::super::metrics::Stage;
use super::*;
use crate::base::depth::depth;
use crate::base::random::Random;
use std::collections::BTreeMap;

fn world(logs: usize) -> World {
    world_by(Dependency::Exact, logs)
}

fn world_by(rule: Dependency, logs: usize) -> World {
    World::with(
        Settings { logs, ..settings(Preset::Autonomous) }.with_protocol(|axes| axes.dependency = Some(rule)),
        Hooks::default(),
    )
}

fn reading(world: &World, read: &[Csn], waits: bool) -> Pending {
    let mut pending = world.pending(Csn::ZERO, Durability::Durable, waits);
    read.iter().for_each(|csn| pending.predecessors.add(*csn));
    pending.dsn = read.iter().copied().max().unwrap_or(Csn::ZERO);
    pending
}

/// Commits `read`ers in `log`, waiting.
fn committed(world: &World, log: u32, read: &[Csn]) -> Ticket {
    let pending = reading(world, read, true);
    let ticket = world.precommit(log, pending).expect("pre-commits");
    world.commit.waits().finish(ticket, &pending).expect("commits");
    ticket
}

fn lazy(world: &World, log: u32, read: &[Csn]) -> Ticket {
    let pending = Pending { durability: Durability::Lazy, ..reading(world, read, false) };
    world.precommit(log, pending).expect("pre-commits")
}

#[test]
fn a_commit_waits_for_what_it_read_and_not_for_what_lies_below() {
    let world = world(3);
    let straggler = lazy(&world, 2, &[]);
    let read = lazy(&world, 1, &[]);
    let ticket = committed(&world, 0, &[read.csn]);
    assert_eq!(world.durable_csns(), [read.csn, ticket.csn].into(), "the straggler's log was written");
    assert_eq!(world.commit.progress().watermark(), straggler.csn);
    assert!(
        world.commit.progress().is_committed(ticket.csn) && world.commit.progress().is_committed(read.csn)
    );
    assert!(!world.commit.progress().is_committed(straggler.csn));
    assert_eq!(world.commit.inspect().metrics().false_waits.get(), 0);
}

#[test]
fn a_chain_is_committed_when_its_last_link_is_durable() {
    let world = world(3);
    let mut chain = vec![lazy(&world, 2, &[])];
    for link in 0..60u32 {
        let last = chain[chain.len() - 1].csn;
        // Sometimes through others, so that the way branches.
        let other = chain[chain.len() / 2].csn;
        chain.push(lazy(&world, link % 3, &[last, other]));
    }
    lazy(&world, 2, &[]);
    assert!(chain.iter().all(|ticket| !world.commit.progress().is_committed_ticket(*ticket)));
    world.commit.waits().wait_committed(chain[60].csn).expect("commits");
    assert!(chain.iter().all(|ticket| world.commit.progress().is_committed_ticket(*ticket)));
    let durable = world.durable_csns();
    assert!(chain.iter().all(|ticket| durable.contains(&ticket.csn)));
}

#[test]
fn a_reader_of_a_durable_version_waits_for_its_reads() {
    let world = world(3);
    let straggler = lazy(&world, 1, &[]);
    let between = lazy(&world, 0, &[straggler.csn]);
    let behind = committed(&world, 0, &[]);
    assert_eq!(world.durable_csns(), [between.csn, behind.csn].into(), "the straggler's log was written");
    assert!(!world.commit.progress().is_committed_ticket(between));
    let last = committed(&world, 2, &[between.csn]);
    assert!(world.durable_csns().is_superset(&[straggler.csn, last.csn].into()));
}

#[test]
fn a_reader_of_too_many_versions_waits_for_the_watermark() {
    let world = world(2);
    let straggler = lazy(&world, 1, &[]);
    let read: Vec<Csn> = (0..20).map(|_| lazy(&world, 0, &[]).csn).collect();
    let ticket = committed(&world, 0, &read);
    assert!(
        world.commit.progress().watermark() > ticket.dsn && world.durable_csns().contains(&straggler.csn)
    );
    // What it does not list others cannot look through.
    let last = committed(&world, 1, &[ticket.csn]);
    assert!(world.commit.progress().is_committed_ticket(last));
}

#[test]
fn a_reader_waits_for_each_version_that_it_read() {
    let world = world(3);
    lazy(&world, 2, &[]);
    let read = [lazy(&world, 0, &[]).csn, lazy(&world, 1, &[]).csn];
    let pending = reading(&world, &read, false);
    world.commit.enqueue_read_only(LogId(0), &pending).expect("queued");
    let tickets = world.commit.waits().tickets_of_reader(LogId(0), &pending);
    assert_eq!(tickets.len(), 2);
    world.commit.waits().wait(tickets, None).expect("commits");
    world.commit.waits().finish_read_only(&pending).expect("committed already");
    // The straggler is counted, too, if the flusher has run: it writes everything below a lazy
    // commit.
    eventually("all counted", || world.commit.inspect().metrics().of_stage(Stage::Total).len() >= 4);
}

#[test]
fn those_behind_one_that_is_held_up_are_acknowledged() {
    let world = world(2);
    world.disk.hold();
    // Log 1 is being written and does not come to an end.
    let slow = world.asynchronous(1, Csn::ZERO, Durability::Durable).expect("pre-commits");
    eventually("it is written", || world.disk.writes() == 1);
    let pending = reading(&world, &[slow.csn], false);
    let held_up = world.precommit(0, pending).expect("pre-commits");
    let behind = world.asynchronous(0, Csn::ZERO, Durability::Durable).expect("pre-commits");
    world.disk.release();
    world.commit.waits().wait([held_up, behind], None).expect("commits");
    eventually("all counted", || world.commit.inspect().metrics().committed_writers.get() == 3);
}

/// Threads commit with random predecessors. Whenever a commit is acknowledged, all that it lists,
/// directly or not, must be durable.
fn run(rule: Dependency, threads: u32, commits: u64) -> World {
    let world = world_by(rule, 3);
    world.disk.set_delay(Duration::from_micros(30));
    let lists: Mutex<BTreeMap<Csn, Vec<Csn>>> = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (world, lists) = (&world, &lists);
            scope.spawn(move || {
                let mut random = Random::from_seed(u64::from(thread) + 7);
                for i in 0..commits {
                    let newest = world.commit.progress().newest_drawn().0;
                    let mut read = Vec::new();
                    for _ in 0..random.below(9) {
                        let csn = Csn(newest.saturating_sub(random.below(12)));
                        // It can only have seen what is published.
                        let known = lists.lock().contains_key(&csn);
                        if known && world.commit.listing().is_to_be_listed(csn) {
                            read.push(csn);
                        }
                    }
                    let waits = random.chance(3, 4);
                    let pending = reading(world, &read, waits);
                    let ticket = world.precommit(thread % 3, pending).expect("pre-commits");
                    lists.lock().insert(ticket.csn, read);
                    let waited =
                        waits.then(|| world.commit.waits().finish(ticket, &pending).expect("commits"));
                    if waits && i % 16 == 0 {
                        check(world, &lists.lock(), ticket.csn);
                    }
                    let now = world.clock.now();
                    world.commit.end_of_transaction(ticket.log, now, now, waited);
                }
            });
        }
    });
    world.commit.waits().flush_all().expect("the disk is whole");
    world
}

fn check(world: &World, lists: &BTreeMap<Csn, Vec<Csn>>, csn: Csn) {
    let durable = world.durable_csns();
    let mut open = vec![csn];
    while let Some(csn) = open.pop() {
        assert!(durable.contains(&csn), "{csn} is volatile, and its dependent was acknowledged");
        open.extend(lists.get(&csn).into_iter().flatten());
    }
}

#[test]
fn acknowledged_means_durable_with_all_that_is_listed() {
    for rule in [Dependency::Exact, Dependency::Gsn, Dependency::GsnRfa] {
        let world = run(rule, 6, depth(1200).min(300));
        let metrics = world.commit.inspect().metrics();
        eventually("all counted", || {
            metrics.committed_writers.get() == world.commit.progress().newest_drawn().0
        });
    }
}

#[test]
fn by_clocks_a_busy_log_holds_back_and_an_idle_one_does_not() {
    let world = world_by(Dependency::Gsn, 3);
    let first = committed(&world, 0, &[]);
    let second = committed(&world, 0, &[]);
    assert!(
        world.commit.progress().is_committed_ticket(first)
            && world.commit.progress().is_committed_ticket(second)
    );
    // Its clock is behind, so later commits of other logs need it written.
    let straggler = lazy(&world, 1, &[]);
    let third = committed(&world, 0, &[]);
    assert!(world.durable_csns().contains(&straggler.csn), "its GSN is not above");
    // A record drawn after a scan has a GSN above everything that was there.
    let later = lazy(&world, 2, &[]);
    assert!(
        world.commit.progress().is_committed_ticket(third)
            && !world.commit.progress().is_committed_ticket(later)
    );
}

#[test]
fn rfa_waits_for_earlier_records_of_its_own_log_only() {
    let world = world_by(Dependency::GsnRfa, 3);
    let straggler = lazy(&world, 1, &[]);
    let local = lazy(&world, 0, &[]);
    let ticket = committed(&world, 0, &[local.csn]);
    assert_eq!(world.durable_csns(), [local.csn, ticket.csn].into(), "no other log was written");
    // One that needs the other log; then one that has met nothing, behind it.
    let needs_others = lazy(&world, 0, &[straggler.csn]);
    let behind = committed(&world, 0, &[]);
    assert!(world.durable_csns().is_superset(&[straggler.csn, needs_others.csn, behind.csn].into()));
}
