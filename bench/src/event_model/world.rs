//! The simulated machine: threads on processors, and what they share.
//!
//! ```text
//!   asleep ── wake ──▶ idle core, or the line of woken threads ──▶ running ── yield ──▶ the line of ready threads
//! ```
//! Woken threads go before those that yielded, as a scheduler prefers threads that slept. A thread
//! keeps its core while it waits for a latch.

use super::input::ModelInput;
use super::log::{Latch, Log};
use super::queue::EventQueue;
use super::record::{Flying, Record};
use super::rows::Rows;
use super::tally::Tally;
use crate::arrivals::Arrivals;
use crate::modelled::{Device, Figures};
use quenchdb::internals::base::random::Random;
use quenchdb::{Acknowledger, Writer};
use std::collections::{BTreeSet, VecDeque};

/// Something that happens.
#[derive(Debug)]
pub(super) enum Event {
    /// The thread on this core has computed what it had to.
    Ran { core: usize, thread: usize },
    /// The time until which the thread sleeps.
    Wakes { thread: usize, token: u64, late: u64 },
}

/// What a thread does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Computes for so many nanoseconds, longer if other cores compute, too.
    Run(u64),
    /// Keeps its core for exactly so many nanoseconds.
    Hold(u64),
    /// Sleeps until another thread wakes it.
    Sleep,
    /// The same, at most until this time; a timer is late by so much.
    Until { at: u64, late: u64 },
    /// Leaves the core to others that are ready.
    Yield,
}

/// Where a thread is in its work. A stage begins when the computation before it has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Begins a transaction, or waits for one to arrive.
    Begin,
    /// Takes the row's lock.
    Lock,
    /// Has the row's lock.
    Locked,
    /// Takes the log's latch.
    Append,
    /// The record is in the buffer.
    Appended,
    /// The record is fenced in memory.
    Fenced,
    /// Waits for its commit.
    Wait,
    /// Gathers followers for the write of a log.
    Gather(usize),
    /// Seals a block of the log that it leads.
    Seal(usize),
    /// Submits what it has sealed.
    Issue,
    /// Waits for its writes.
    Flights,
    /// Is between two transactions.
    End,
    /// A flusher, or the thread that acknowledges, looks for work.
    Look,
}

/// Role of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Worker {
        log: usize,
    },
    /// Writes the logs with this number modulo the flushers.
    Flusher {
        number: usize,
    },
    Acknowledger,
}

/// One thread.
#[derive(Debug)]
pub(super) struct Thread {
    pub role: Role,
    pub stage: Stage,
    pub asleep: bool,
    /// The core on which it ran last.
    pub core: usize,
    /// Distinguishes the timer of this sleep from those of earlier ones.
    pub token: u64,
    /// Nanoseconds to compute beside the next step: wake-ups.
    pub debt: u64,
    /// When it last yielded, and whether it does so now.
    pub yielded_at: u64,
    pub yields: bool,
    /// It has slept since it asked for its last commit.
    pub slept: bool,
    /// Nanoseconds computed at all.
    pub busy: u64,
    /// Computes instead of sleeping until a write completes.
    pub spins: bool,
    /// The transaction in progress.
    pub record: Record,
    pub reads_only: bool,
    pub begun: u64,
    pub arrivals: Option<Arrivals>,
    /// Writes that it waits for.
    pub flights: Vec<Flying>,
    /// Blocks that it has sealed: log and flight.
    pub sealed: Vec<(usize, u64)>,
    /// Until when it sleeps, of a flusher.
    pub wakes_at: u64,
    /// When its last transaction ended, and its average idle time.
    pub ended: u64,
    pub idle: u64,
    pub reaped: u64,
}

/// See the module.
pub(super) struct World<'a> {
    pub input: &'a ModelInput,
    pub now: u64,
    pub events: EventQueue<Event>,
    pub threads: Vec<Thread>,
    pub logs: Vec<Log>,
    pub device: Device,
    pub rows: Rows,
    pub random: Random,
    pub tally: Tally,
    /// The counter of CSNs.
    pub draw: Latch,
    pub next_csn: u64,
    /// The log of each CSN, modulo its length.
    pub log_of: Vec<u32>,
    /// Every CSN below is durable.
    pub watermark: u64,
    /// A CSN that a queued transaction waits for.
    pub required: u64,
    /// When the first flusher acknowledges what workers left; never: the greatest number.
    pub acknowledge_at: u64,
    /// The last batch of acknowledgments left some.
    pub unfinished: bool,
    /// The log at which the next batch begins.
    pub cursor: usize,
    /// The next write is acknowledged by its writer.
    pub forced: bool,
    pub flushers: Vec<usize>,
    pub acknowledger: Option<usize>,
    pub spinning: usize,
    cores: usize,
    idle: BTreeSet<usize>,
    /// The thread, and the log, that each core had last.
    last: Vec<usize>,
    last_log: Vec<usize>,
    woken: VecDeque<usize>,
    ready: VecDeque<usize>,
}

/// The logs of a thread that writes several.
const ALL_LOGS: usize = usize::MAX;

/// No time.
pub(super) const NEVER: u64 = u64::MAX;

impl<'a> World<'a> {
    pub(super) fn new(input: &'a ModelInput, figures: &Figures) -> World<'a> {
        let protocol = &input.protocol;
        let logs = protocol.logs.clamp(1, input.workers);
        let flushers = match protocol.writer {
            Writer::FlusherPerLog => logs,
            Writer::Memory => 0,
            _ => 1,
        };
        let mut threads: Vec<Thread> = (0..input.workers)
            .map(|index| Thread::new(Role::Worker { log: index * logs / input.workers }, Stage::Begin))
            .collect();
        let flushers: Vec<usize> = (0..flushers)
            .map(|number| {
                threads.push(Thread::new(Role::Flusher { number }, Stage::Look));
                threads.len() - 1
            })
            .collect();
        let beside = protocol.acknowledger == Acknowledger::Background;
        let acknowledger = beside.then(|| {
            threads.push(Thread::new(Role::Acknowledger, Stage::Look));
            threads.len() - 1
        });
        let cores = if input.cores == 0 { threads.len() } else { input.cores };
        World {
            input,
            now: 0,
            events: EventQueue::new(),
            logs: (0..logs).map(|_| Log { requested: NEVER, ..Log::default() }).collect(),
            device: Device::new(figures, input.seed ^ 0x0d15_c0de),
            rows: Rows::new(input.locks),
            random: Random::from_seed(input.seed),
            tally: Tally::default(),
            draw: Latch::default(),
            next_csn: 1,
            log_of: vec![0; 1 << 16],
            watermark: 1,
            required: 0,
            acknowledge_at: NEVER,
            unfinished: false,
            cursor: 0,
            forced: false,
            flushers,
            acknowledger,
            spinning: 0,
            cores,
            idle: (0..cores).collect(),
            last: vec![usize::MAX; cores],
            last_log: vec![ALL_LOGS; cores],
            woken: VecDeque::new(),
            ready: VecDeque::new(),
            threads,
        }
    }

    pub(super) fn cores(&self) -> usize {
        self.cores
    }

    /// Wakes a thread that sleeps, without a cost for the waker. An idle core takes `late` to run.
    pub(super) fn rouse(&mut self, thread: usize, late: u64) {
        if !self.threads[thread].asleep {
            return;
        }
        self.threads[thread].asleep = false;
        self.threads[thread].token += 1;
        // Where it ran before, its caches are warm.
        let home = self.threads[thread].core;
        let core = if self.idle.remove(&home) { Some(home) } else { self.idle.pop_first() };
        match core {
            Some(core) => self.start(core, thread, late),
            None => self.woken.push_back(thread),
        }
    }

    /// Wakes a thread that sleeps, at the cost of `waker`.
    pub(super) fn wake(&mut self, waker: usize, thread: usize) {
        if self.threads[thread].asleep {
            let costs = &self.input.costs;
            let each = if self.idle.is_empty() { costs.wake_busy_ns } else { costs.wake_ns };
            self.threads[waker].debt += each as u64;
            self.tally.wakes += 1;
            self.rouse(thread, self.input.costs.wake_late_ns as u64);
        }
    }

    fn start(&mut self, core: usize, thread: usize, late: u64) {
        let (same, costs) = (self.last[core] == thread, &self.input.costs);
        let log = match self.threads[thread].role {
            Role::Worker { log } => log,
            _ if self.logs.len() == 1 => 0,
            _ => ALL_LOGS,
        };
        let is_cold = log != self.last_log[core] && log != ALL_LOGS;
        let switch = if same { 0.0 } else { costs.switch_ns } + if is_cold { costs.cold_ns } else { 0.0 };
        let switch = switch as u64;
        (self.last[core], self.last_log[core], self.threads[thread].core) = (thread, log, core);
        self.tally.switches += u64::from(!same);
        self.tally.busy_ns += switch;
        self.events.push(self.now + late + switch, Event::Ran { core, thread });
    }

    /// Gives a core to the next thread.
    fn release(&mut self, core: usize) {
        match self.woken.pop_front().or_else(|| self.ready.pop_front()) {
            Some(thread) => self.start(core, thread, 0),
            None => {
                self.idle.insert(core);
            }
        }
    }

    /// Returns the factor of computation on a core, by the share of the other cores that compute.
    pub(super) fn slowdown(&self) -> f64 {
        let others = self.cores - 1;
        let busy = (self.cores - self.idle.len()).saturating_sub(1).min(others);
        1.0 + (self.input.costs.beside_slowdown - 1.0) * busy as f64 / others.max(1) as f64
    }

    fn hold(&mut self, core: usize, thread: usize, ns: u64) {
        self.threads[thread].busy += ns;
        self.tally.busy_ns += ns;
        self.events.push(self.now + ns, Event::Ran { core, thread });
    }

    /// Runs `step` for the thread on `core` until it computes, sleeps or yields.
    pub(super) fn advance(
        &mut self,
        core: usize,
        thread: usize,
        mut step: impl FnMut(&mut Self, usize) -> Next,
    ) {
        loop {
            match step(self, thread) {
                Next::Run(ns) => {
                    let ns = ns + std::mem::take(&mut self.threads[thread].debt);
                    return self.hold(core, thread, (ns as f64 * self.slowdown()) as u64);
                }
                Next::Hold(ns) => return self.hold(core, thread, ns),
                Next::Yield if self.woken.is_empty() && self.ready.is_empty() => {}
                Next::Yield => {
                    self.ready.push_back(thread);
                    return self.release(core);
                }
                Next::Sleep => {
                    self.sleep(thread);
                    return self.release(core);
                }
                Next::Until { at, late } => {
                    self.sleep(thread);
                    let token = self.threads[thread].token;
                    self.events.push(at.max(self.now), Event::Wakes { thread, token, late });
                    return self.release(core);
                }
            }
        }
    }

    fn sleep(&mut self, thread: usize) {
        let it = &mut self.threads[thread];
        it.asleep = true;
        it.token += 1;
    }

    /// Waits for a write that completes at `done`: computing, if a thread may, otherwise asleep.
    pub(super) fn await_device(&mut self, thread: usize, done: u64) -> Next {
        let costs = &self.input.costs;
        let (left, spin) = (done - self.now, costs.spin_ns as u64);
        // The timers of such waits are exact.
        let wake_late = costs.wake_late_ns as u64;
        if spin == 0 {
            return Next::Until { at: done, late: wake_late };
        }
        if left > spin {
            // Its lateness is part of what is computed.
            let at = if left >= 1_000_000 { done } else { done - spin };
            return Next::Until { at, late: wake_late };
        }
        if self.spinning < (self.cores / 2).max(1) {
            (self.spinning, self.threads[thread].spins) = (self.spinning + 1, true);
            return Next::Hold(left);
        }
        Next::Until { at: done, late: wake_late }
    }

    /// Ends the computation of a thread that waited for a write.
    pub(super) fn end_spin(&mut self, thread: usize) {
        if std::mem::take(&mut self.threads[thread].spins) {
            self.spinning -= 1;
        }
    }

    /// Returns a time that varies around `ns` as the spread of the costs says.
    pub(super) fn varied(&mut self, ns: f64) -> u64 {
        let spread = self.input.costs.execute_spread;
        let exponential = -(1.0 - self.random.unit()).ln();
        (ns * (1.0 - spread + spread * exponential)) as u64
    }
}

impl Thread {
    fn new(role: Role, stage: Stage) -> Thread {
        Thread {
            role,
            stage,
            asleep: true,
            core: usize::MAX,
            token: 0,
            debt: 0,
            yielded_at: 0,
            yields: false,
            slept: false,
            busy: 0,
            spins: false,
            record: Record::default(),
            reads_only: false,
            begun: 0,
            arrivals: None,
            flights: Vec::new(),
            sealed: Vec::new(),
            wakes_at: NEVER,
            ended: 0,
            idle: 0,
            reaped: 0,
        }
    }
}
