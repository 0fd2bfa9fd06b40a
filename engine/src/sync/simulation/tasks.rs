//! The threads of a simulation, and the choice of the thread that runs next.

use super::gate::Gate;
use super::planned_panic::Planned;
use crate::base::random::Random;
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::Arc;

/// How a simulation is scheduled.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Decides everything.
    pub seed: u64,
    /// Binary logarithm of the most operations that a thread runs before it may be interrupted.
    pub stride: u32,
    /// Run the ready thread with the highest priority; otherwise choose any ready thread.
    pub priorities: bool,
    /// Threads are interrupted. Otherwise a thread runs until it waits, yields or ends, in no time:
    /// the order of threads does not depend on the number of operations.
    pub interrupts: bool,
    /// A run with more decisions counts as endless.
    pub decisions_max: u64,
}

impl Plan {
    /// Returns the plan of `seed`, between a switch at every few operations and runs without
    /// interruption.
    #[must_use]
    pub fn of(seed: u64) -> Plan {
        let mut random = Random::from_seed(seed ^ 0x5c4e_d01e);
        let stride = [3, 6, 9, 12, 16][random.below(5) as usize];
        Plan { seed, stride, priorities: random.chance(1, 3), interrupts: true, decisions_max: 100_000_000 }
    }

    /// Returns the plan of `seed` without interruptions.
    #[must_use]
    pub fn uninterrupted(seed: u64) -> Plan {
        Plan { interrupts: false, ..Plan::of(seed) }
    }
}

/// What a simulation did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Number of decisions.
    pub decisions: u64,
    /// Number of decisions for another thread.
    pub switches: u64,
    /// Number of threads, including the caller's.
    pub threads: u64,
    /// Number of threads that ended by a panic.
    pub panics: u64,
    /// Simulated time, in nanoseconds.
    pub nanos: u64,
    /// A hash of all decisions: two runs with equal hashes made the same decisions.
    pub fingerprint: u64,
}

/// Operations after which a thread without interruptions is interrupted: it waits for another one
/// without saying so.
const UNINTERRUPTED_MAX: u32 = 1 << 24;

/// One decision in this many changes a priority.
const PRIORITY_CHANGE: u64 = 64;

thread_local! {
    /// Operations of the calling thread until the next decision; 0 outside a simulation.
    pub(super) static LEFT: Cell<u32> = const { Cell::new(0) };
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) plan: Plan,
    pub(super) random: Random,
    pub(super) tasks: Vec<Task>,
    /// Operations given to the thread with the baton, or 0 if they take no time.
    pub(super) given: u32,
    pub(super) summary: Summary,
    /// The ended thread, which the next thread joins.
    pub(super) ended: Option<std::thread::JoinHandle<()>>,
    pub(super) panic: Planned,
}

#[derive(Debug)]
pub(super) struct Task {
    pub(super) name: String,
    pub(super) condition: Condition,
    pub(super) priority: u64,
    pub(super) gate: Arc<Gate>,
    pub(super) handle: Option<std::thread::JoinHandle<()>>,
    /// Where the thread gave up the baton, shortly before a run is given up.
    pub(super) place: Option<Backtrace>,
}

impl Task {
    /// Returns the address on which threads wait for the end of this thread.
    pub(super) fn address(&self) -> usize {
        Arc::as_ptr(&self.gate) as usize
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Condition {
    Ready,
    /// Waits for a wake-up of the address or for a time, whichever is first.
    Waits {
        address: Option<usize>,
        until: Option<u64>,
    },
    Ended,
}

impl Condition {
    /// Returns the condition with the address replaced by its index in `seen`, so that repeated
    /// runs print the same.
    pub(super) fn without_address(self, seen: &mut Vec<usize>) -> Condition {
        let Condition::Waits { address: Some(address), until } = self else { return self };
        let place = seen.iter().position(|known| *known == address).unwrap_or_else(|| {
            seen.push(address);
            seen.len() - 1
        });
        Condition::Waits { address: Some(place), until }
    }
}

impl State {
    /// Draws the number of operations that `me`, the calling thread, may run.
    pub(super) fn give_operations(&mut self, me: usize) {
        debug_assert_eq!(self.tasks[me].condition, Condition::Ready);
        if !self.plan.interrupts {
            self.given = 0;
            LEFT.set(UNINTERRUPTED_MAX);
            return;
        }
        // As many short stretches as long ones.
        let bits = self.random.below(u64::from(self.plan.stride) + 1);
        self.given = 1 + self.random.below(1 << bits) as u32;
        LEFT.set(self.given);
    }

    fn is_ready(&self, task: usize) -> bool {
        self.tasks[task].condition == Condition::Ready
    }

    pub(super) fn wake_sleepers(&mut self, now: u64) {
        for task in &mut self.tasks {
            if let Condition::Waits { until: Some(until), .. } = task.condition
                && until <= now
            {
                task.condition = Condition::Ready;
            }
        }
    }

    pub(super) fn wake(&mut self, address: usize) {
        for task in &mut self.tasks {
            if let Condition::Waits { address: Some(own), .. } = task.condition
                && own == address
            {
                task.condition = Condition::Ready;
            }
        }
    }

    /// Returns the ready threads without `except`.
    pub(super) fn ready(&self, except: Option<usize>) -> impl Iterator<Item = usize> {
        (0..self.tasks.len()).filter(move |task| Some(*task) != except && self.is_ready(*task))
    }

    /// Chooses a ready thread that is not `except`.
    pub(super) fn pick(&mut self, except: Option<usize>) -> usize {
        if let Some(task) = except {
            // A thread that yields gets a low priority.
            self.tasks[task].priority /= 2;
        }
        if !self.plan.priorities {
            return self.draw(except);
        }
        if self.random.chance(1, PRIORITY_CHANGE) {
            let changed = self.draw(except);
            self.tasks[changed].priority = self.random.next_u64();
        }
        let first = self.ready(except).max_by_key(|task| self.tasks[*task].priority);
        first.expect("at least one thread is ready")
    }

    fn draw(&mut self, except: Option<usize>) -> usize {
        let drawn = self.random.below(self.ready(except).count() as u64);
        self.ready(except).nth(drawn as usize).expect("at least one thread is ready")
    }
}
