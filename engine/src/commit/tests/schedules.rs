//! The whole commit path under a controlled scheduler: random interleavings of committers, leader,
//! flusher and close.
//!
//! Time stands still unless a committer moves it, so that a due time never hides a lost wake-up: a
//! stranded thread stays asleep, and the scheduler reports the deadlock.

use super::preempting::Preempting;
use super::*;
use crate::base::settings::{Layout, MemoryFence};
use shuttle::thread;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

/// Of each script and point, unless QUENCH_SCHEDULES says otherwise.
const SCHEDULES: u64 = 2000;
const COMMITTERS: u32 = 3;

/// A world, and of each transaction what it met.
struct Explored {
    world: World,
    met: std::sync::Mutex<BTreeMap<Csn, Csn>>,
    /// Transactions with two fragments.
    divided: AtomicU64,
    /// Threads that have committed all they had.
    over: AtomicU64,
    /// Only real dependencies must be durable; otherwise everything below an acknowledged commit's
    /// DSN.
    exactly: bool,
}

impl Explored {
    fn new(settings: &Settings) -> Explored {
        let clock = Clock::manual();
        clock.advance(Duration::from_millis(1));
        let mut world = World::with_clock(settings.clone(), Hooks::default(), clock);
        if world.mapped.is_some() {
            // Two fill a mapped buffer.
            world.body_bytes = 26_000;
        }
        let exactly =
            matches!(Axes::of(&settings).rule(), Dependency::Exact | Dependency::Gsn | Dependency::GsnRfa);
        Explored {
            world,
            met: std::sync::Mutex::default(),
            divided: AtomicU64::new(0),
            over: AtomicU64::new(0),
            exactly,
        }
    }

    fn is_by_page(&self) -> bool {
        self.world.commit.durability.has_fragments()
    }

    fn pending(&self, durability: Durability, waits: bool) -> Pending {
        self.world.pending(self.world.commit.progress().newest_drawn(), durability, waits)
    }

    fn note(&self, ticket: Ticket, divided: bool) -> Ticket {
        let mut met = self.met.lock().expect("no panic");
        let first = if divided { Csn(ticket.csn.0 - 1) } else { ticket.csn };
        self.divided.fetch_add(divided.into(), Ordering::Relaxed);
        met.insert(ticket.csn, first);
        met.insert(first, ticket.dsn);
        ticket
    }

    /// A transaction that met the newest there is.
    fn precommit(&self, log: u32, pending: Pending) -> Ticket {
        self.note(self.world.precommit(log, pending).expect("pre-commits"), false)
    }

    /// The same, divided between two logs.
    fn precommit_divided(&self, pending: Pending) -> Ticket {
        self.note(self.world.precommit_divided(pending).expect("pre-commits"), true)
    }

    /// What a power cut leaves now has the transaction, and all it depends on.
    fn acknowledged_early(&self, ticket: Ticket) {
        let durable = self.world.durable_csns();
        let met = self.met.lock().expect("no panic");
        let mut at = ticket.csn;
        while at > Csn::ZERO {
            assert!(durable.contains(&at), "{ticket:?}: {at} is volatile");
            let next = met.get(&at).copied().unwrap_or(Csn::ZERO);
            at = if next == at { Csn::ZERO } else { next };
        }
        if !self.exactly {
            assert!((1..=ticket.dsn.0).all(|csn| durable.contains(&Csn(csn))), "{ticket:?}");
        }
    }
}

/// Runs `script` as `count` threads, in many schedules.
fn explore(settings: &Settings, count: u32, prepare: fn(&Explored), script: fn(&Explored, u32)) {
    // Shown if a schedule fails.
    println!("{} logs, {:?}", settings.logs, Axes::of(settings));
    let settings = settings.clone();
    let schedules = std::env::var("QUENCH_SCHEDULES").ok().and_then(|text| text.parse().ok());
    let mut config = shuttle::Config::new();
    // The judges read logs.
    config.stack_size = 256 << 10;
    let schedules = Preempting::new(schedules.unwrap_or(SCHEDULES));
    shuttle::Runner::new(schedules, config).run(move || {
        let explored = Arc::new(Explored::new(&settings));
        prepare(&explored);
        let threads: Vec<_> = (0..count)
            .map(|i| {
                let explored = explored.clone();
                thread::spawn(move || script(&explored, i))
            })
            .collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        let commit = &explored.world.commit;
        commit.close().expect("the disk is whole");
        assert!(commit.progress().watermark() > commit.progress().newest_drawn());
        // The first fragment of each has a CSN, too.
        let told =
            commit.inspect().metrics().committed_writers.get() + explored.divided.load(Ordering::Relaxed);
        assert_eq!(told, commit.progress().newest_drawn().0);
    });
}

fn as_it_is(_: &Explored) {}

fn small(settings: Settings) -> Settings {
    settings.with(|s| s.lab.log_buffer_bytes = 64 << 10)
}

fn points() -> Vec<Settings> {
    let mut points = all();
    let rule =
        |dependency, settings: Settings| settings.with_protocol(|axes| axes.dependency = Some(dependency));
    let by_page = |preset| {
        Settings { logs: 2, ..settings(preset) }.with_protocol(|axes| axes.set_layout(Layout::ByPage))
    };
    points.extend([
        by_page(Preset::Group),
        by_page(Preset::Pipelined),
        by_page(Preset::Restricted),
        rule(Dependency::Exact, by_page(Preset::Autonomous)),
        rule(Dependency::Csn, by_page(Preset::Auto)),
        rule(Dependency::GsnRfa, by_page(Preset::Autonomous)),
    ]);
    points.extend(passive_points());
    points.extend(
        [Preset::Group, Preset::Queued, Preset::Pipelined]
            .map(|preset| settings(preset).with_protocol(|axes| axes.append = Append::Consolidated)),
    );
    checked(points)
}

/// With the log in mapped memory.
fn passive_points() -> Vec<Settings> {
    let passive = |logs| {
        let log_memory = Some("mapped".into());
        Settings { preset: Preset::Passive, logs, log_memory, ..Settings::default() }
    };
    let rule =
        |dependency, settings: Settings| settings.with_protocol(|axes| axes.dependency = Some(dependency));
    let latched = |settings: Settings| {
        settings.with_protocol(|axes| axes.writer = WriterOptions::Memory { fence: MemoryFence::Latched })
    };
    let by_page = || passive(2).with_protocol(|axes| axes.set_layout(Layout::ByPage));
    checked(vec![
        passive(1),
        passive(2),
        latched(passive(1)),
        latched(passive(2)),
        latched(rule(Dependency::Gsn, passive(2))),
        rule(Dependency::Exact, passive(2)),
        rule(Dependency::Gsn, passive(2)),
        passive(2).with_protocol(|axes| axes.set_acknowledger(Acknowledger::Background)),
        passive(2).with_protocol(|axes| axes.set_acknowledger(Acknowledger::Leader)),
        rule(Dependency::Exact, by_page()),
        by_page(),
        latched(by_page()),
    ])
}

fn checked(points: Vec<Settings>) -> Vec<Settings> {
    for settings in &points {
        presets::check(settings, presets::log_count(settings, 2)).expect("a point on the axes");
    }
    points.into_iter().map(small).collect()
}

#[test]
fn blocking_committers_are_woken_and_never_too_early() {
    for settings in points() {
        explore(&settings, COMMITTERS, as_it_is, |explored, thread| {
            let world = &explored.world;
            let log = thread % world.commit.durability.logs.len() as u32;
            for round in 0..2 {
                let pending = explored.pending(Durability::Durable, true);
                let ticket = match explored.is_by_page() && (thread + round) % 2 == 0 {
                    true => explored.precommit_divided(pending),
                    false => explored.precommit(log, pending),
                };
                world.commit.waits().finish(ticket, &pending).expect("commits");
                explored.acknowledged_early(ticket);
            }
        });
    }
}

#[test]
fn waiters_for_lazy_records_are_never_stranded() {
    for settings in points() {
        explore(&settings, COMMITTERS, as_it_is, |explored, thread| {
            let world = &explored.world;
            let log = thread % world.commit.durability.logs.len() as u32;
            let pending = explored.pending(Durability::Lazy, false);
            let lazy = match explored.is_by_page() && thread != 1 {
                true => explored.precommit_divided(pending),
                false => explored.precommit(log, pending),
            };
            let pending = world.pending(lazy.csn, Durability::Durable, false);
            let handle = explored.precommit(log, pending);
            world.commit.end_of_transaction(LogId(log), world.clock.now(), world.clock.now(), None);
            if thread == 0 {
                world.commit.waits().wait_committed(handle.csn).expect("commits");
            }
            world.commit.waits().wait([handle], None).expect("commits");
            explored.acknowledged_early(handle);
            world.clock.advance(Duration::from_micros(300));
        });
    }
}

/// Stragglers are stored while others are drained: a barrier counts for what was stored before it.
#[test]
fn a_dependent_of_a_straggler_waits_until_it_is_fenced() {
    for settings in passive_points() {
        explore(&settings, COMMITTERS, as_it_is, |explored, thread| {
            let world = &explored.world;
            let log = thread % world.commit.durability.logs.len() as u32;
            for round in 0..6 {
                if (thread + round) % 3 > 0 {
                    explored.precommit(log, explored.pending(Durability::Lazy, false));
                    continue;
                }
                let pending = explored.pending(Durability::Durable, true);
                let ticket = explored.precommit(log, pending);
                world.commit.waits().finish(ticket, &pending).expect("commits");
                explored.acknowledged_early(ticket);
            }
        });
    }
}

/// What a write takes, so that it is worth while to wait for others.
const WRITE: Duration = Duration::from_micros(100);
/// Times a committer waited for its cohort.
static WAITED: AtomicU64 = AtomicU64::new(0);

/// Only writes and the last thread advance the clock, and both end. A thread that is still asleep
/// then stays asleep, and the scheduler reports the deadlock.
#[test]
fn a_committer_that_waits_for_its_cohort_is_woken() {
    for settings in [
        settings(Preset::Group),
        settings(Preset::Auto),
        settings(Preset::Autonomous).with_protocol(|axes| axes.set_writer(Writer::Leader)),
        Settings { logs: 2, ..settings(Preset::Auto) }.with_protocol(|axes| {
            axes.set_layout(Layout::ByPage);
            axes.set_writer(Writer::Leader);
        }),
    ] {
        let prepare =
            |explored: &Explored| explored.world.disk.each_write_takes(WRITE, &explored.world.clock);
        explore(&small(settings.clone()), COMMITTERS + 1, prepare, |explored, thread| {
            let world = &explored.world;
            if thread == COMMITTERS {
                let mut ticks = 0;
                while ticks < 20_000 && explored.over.load(Ordering::Relaxed) < COMMITTERS.into() {
                    // In small steps: a returning committer takes some fifty scheduler steps.
                    world.clock.advance(WRITE / 128);
                    thread::yield_now();
                    ticks += 1;
                }
                return;
            }
            for round in 0..3 {
                let pending = explored.pending(Durability::Durable, true);
                let ticket = match explored.is_by_page() && (thread + round) % 2 == 0 {
                    true => explored.precommit_divided(pending),
                    false => explored.precommit(0, pending),
                };
                let core = &world.commit;
                if core.writes.schedule.cohort_expected_until(core.durability.log(ticket.log)).is_some() {
                    WAITED.fetch_add(1, Ordering::Relaxed);
                }
                world.commit.waits().finish(ticket, &pending).expect("commits");
                explored.acknowledged_early(ticket);
            }
            explored.over.fetch_add(1, Ordering::Relaxed);
        });
        assert!(WAITED.swap(0, Ordering::Relaxed) > 0, "no committer waited for its cohort: {settings:?}");
    }
}
