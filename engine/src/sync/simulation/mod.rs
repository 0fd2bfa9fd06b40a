//! A scheduler that runs one thread at a time and decides by a seed which: whole runs of the engine that can be repeated.
//!
//! ```text
//!   thread:    ── op ── op ── op ──┐ decision            ┌─ op ── op ──
//!                                  │  ready? which?      │
//!   another:                       └──▶ baton ── op ── op┘
//!
//!   op        an operation on an atomic, a lock or an event of `sync`: counted, and after a number of them, drawn from
//!             the seed, there is a decision; another when a thread cannot go on, sleeps, yields or ends
//!   baton     who has it runs; the others sleep in the kernel
//! ```
//!
//! Threads are real ones, so thread-locals, panics and stacks are what they always are; only who runs is decided here.
//!
//! 1. One thread of a simulation runs at a time. Who gets the baton, and after how many operations it is asked again,
//!    follows from the seed and from what the threads do.
//! 2. A thread that has ended is joined by whoever runs next before it does anything, so that what its thread-locals do at
//!    their end has its place in the order, too.
//! 3. Time passes by operations, by looking at the clock, and, when nobody can go on, to the next moment somebody sleeps until.
//!    Now and then to that moment although others could go on: as if they had been off the CPU.
//! 4. If nobody can go on and nobody sleeps until some time, threads wait for each other: the report names them, and the
//!    process ends, since nothing can stop them.
//!
//! Random choice among ready threads, and priorities that change a few times: Burckhardt and others, "A randomized scheduler
//! with probabilistic guarantees of finding bugs", 2010.

mod epochs;
mod gate;
mod panics;
pub mod primitives;

pub(super) use epochs::pin;
pub use panics::{PlannedPanic, panic_later, planned_panic};

use self::epochs::Epochs;
use self::gate::Gate;
use self::panics::Planned;
use self::primitives::AtomicU32;
use crate::base::environment::Environment;
use crate::base::random::Random;
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How a simulation is scheduled.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Decides everything.
    pub seed: u64,
    /// A thread goes on for up to 2 to the power of this operations before it may be interrupted.
    pub stride: u32,
    /// Threads have priorities, and the first in line runs until it cannot; otherwise any ready thread may be chosen.
    pub priorities: bool,
    /// A run of more decisions than this does not end.
    pub decisions_max: u64,
}

impl Plan {
    /// Drawn from `seed`: from a switch at every few operations to runs without interruption.
    #[must_use]
    pub fn of(seed: u64) -> Plan {
        let mut random = Random::from_seed(seed ^ 0x5c4e_d01e);
        let stride = [3, 6, 9, 12, 16][random.below(5) as usize];
        Plan { seed, stride, priorities: random.chance(1, 3), decisions_max: 100_000_000 }
    }
}

/// What a simulation did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Times it was decided who goes on.
    pub decisions: u64,
    /// Times that was another thread.
    pub switches: u64,
    /// Threads that there were, the caller's included.
    pub threads: u64,
    /// Threads that ended by a panic.
    pub panics: u64,
    /// Time that passed in the simulation.
    pub nanos: u64,
    /// Of all decisions: two runs with equal ones went the same way.
    pub fingerprint: u64,
}

/// An operation takes this long.
const OPERATION_NS: u64 = 10;
/// After one operation in so many time passes to the next moment somebody sleeps until.
const OFF_CPU: u64 = 200_000;
/// In the last so many decisions before a run is given up it is written down where threads are.
const LAST_DECISIONS: u64 = 3000;
/// One decision in so many changes a priority.
const PRIORITY_CHANGE: u64 = 64;

thread_local! {
    /// Operations until the next decision; 0 for a thread that takes part in no simulation.
    static LEFT: Cell<u32> = const { Cell::new(0) };
    static ME: RefCell<Option<(Arc<Simulation>, usize)>> = const { RefCell::new(None) };
}

#[derive(Debug)]
struct Simulation {
    environment: Arc<Environment>,
    epochs: Epochs,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    plan: Plan,
    random: Random,
    tasks: Vec<Task>,
    /// Operations that whoever has the baton was given.
    given: u32,
    summary: Summary,
    /// Has ended, and is to be joined by whoever runs next.
    ended: Option<std::thread::JoinHandle<()>>,
    panic: Planned,
}

#[derive(Debug)]
struct Task {
    name: String,
    condition: Condition,
    priority: u64,
    gate: Arc<Gate>,
    handle: Option<std::thread::JoinHandle<()>>,
    /// Where it was when it gave up the baton, shortly before a run is given up.
    place: Option<Backtrace>,
}

impl Task {
    /// What those wait for who wait for its end.
    fn address(&self) -> usize {
        Arc::as_ptr(&self.gate) as usize
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Condition {
    Ready,
    /// Until somebody wakes the address, or until a time, whatever is first.
    Waits {
        address: Option<usize>,
        until: Option<u64>,
    },
    Ended,
}

impl Condition {
    /// For people, and the same whenever the run is repeated: the address is the place in `met` where it is, or is put.
    fn without_address(self, met: &mut Vec<usize>) -> Condition {
        let Condition::Waits { address: Some(address), until } = self else { return self };
        let place = met.iter().position(|known| *known == address).unwrap_or_else(|| {
            met.push(address);
            met.len() - 1
        });
        Condition::Waits { address: Some(place), until }
    }
}

/// Runs `f`, and all threads that it starts, under a scheduler. Returns when all have ended.
///
/// # Panics
/// If `f` does, or if the calling thread takes part in a simulation already.
pub fn run<T>(plan: Plan, f: impl FnOnce() -> T) -> (T, Summary) {
    assert!(!is_simulated(), "a simulation inside a simulation");
    let simulation = Arc::new(Simulation {
        environment: Environment::new(plan.seed),
        epochs: Epochs::default(),
        state: Mutex::new(State {
            plan,
            random: Random::from_seed(plan.seed),
            tasks: Vec::new(),
            given: 0,
            summary: Summary::default(),
            ended: None,
            panic: Planned::default(),
        }),
    });
    let me = simulation.add("main", None);
    let guard = Membership::enter(&simulation, me);
    simulation.take_baton(me);
    let result = f();
    simulation.await_others(me);
    simulation.lock().panic.disarm();
    drop(guard);
    let mut summary = simulation.lock().summary;
    summary.nanos = simulation.environment.now();
    (result, summary)
}

/// True if the calling thread takes part in a simulation.
#[must_use]
pub fn is_simulated() -> bool {
    LEFT.try_with(Cell::get).unwrap_or(0) > 0
}

static PLACES: AtomicBool = AtomicBool::new(false);

/// From now on it is written down where threads are when they begin to sleep, for the report of a run that is given up. Slow.
pub fn remember_places() {
    PLACES.store(true, Ordering::Relaxed);
}

/// A place where another thread may get the baton.
#[inline]
pub fn point() {
    let _ = LEFT.try_with(|left| match left.get() {
        0 => (),
        1 => decide(Condition::Ready, false),
        n => left.set(n - 1),
    });
}

/// Runs `f` as if it were not there: what looks at a run must not change it. `f` must not wait for anybody.
pub fn aside<T>(f: impl FnOnce() -> T) -> T {
    let left = LEFT.get();
    if left > 0 {
        LEFT.set(u32::MAX);
    }
    let result = f();
    LEFT.set(left);
    result
}

/// Lets another thread run, if one can.
pub fn yield_now() {
    decide(Condition::Ready, true);
}

/// Sleeps for `time` of the simulation.
pub fn sleep(time: Duration) {
    panics::may_strike();
    let until = until(Some(time));
    decide(Condition::Waits { address: None, until }, false);
}

/// Sleeps until somebody calls [`wake`] with the address, or for `timeout`.
fn wait(address: usize, timeout: Option<Duration>) {
    decide(Condition::Waits { address: Some(address), until: until(timeout) }, false);
}

/// Sleeps while `word` is `expected`, until somebody calls [`wake_all`] with it, or for `timeout`: a futex.
pub fn wait_while(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    panics::may_strike();
    point();
    if word.real().load(Ordering::SeqCst) == expected {
        wait(std::ptr::from_ref(word) as usize, timeout);
    }
}

/// Whoever sleeps on `word` can go on.
pub fn wake_all(word: &AtomicU32) {
    wake(std::ptr::from_ref(word) as usize);
}

/// Whoever sleeps on the address can go on.
fn wake(address: usize) {
    in_simulation(|simulation, _| simulation.lock().wake(address));
}

/// Lets time jump, for all threads of the simulation.
pub fn jump(time: Duration) {
    in_simulation(|simulation, _| simulation.environment.advance(time.as_nanos() as u64));
}

/// See [`Environment::leaps`].
#[must_use]
pub fn preemptions() -> u64 {
    in_simulation(|simulation, _| simulation.environment.preemptions()).unwrap_or(0)
}

/// The number of the calling thread in its simulation, 0 for who called [`run`].
#[must_use]
pub fn task() -> Option<usize> {
    in_simulation(|_, task| task)
}

fn until(timeout: Option<Duration>) -> Option<u64> {
    let now = in_simulation(|simulation, _| simulation.environment.now())?;
    timeout.map(|time| now.saturating_add(time.as_nanos() as u64))
}

/// `f` of the calling thread's simulation and its number there; `None` if it takes part in none.
fn in_simulation<T>(f: impl FnOnce(&Arc<Simulation>, usize) -> T) -> Option<T> {
    ME.try_with(|me| me.borrow().as_ref().map(|(simulation, me)| f(simulation, *me))).ok().flatten()
}

/// The calling thread goes on as `condition` says, after whoever the scheduler chooses.
#[cold]
fn decide(condition: Condition, yields: bool) {
    in_simulation(|simulation, me| simulation.decide(me, condition, yields));
}

/// What the system says when it has no further thread.
const EAGAIN: i32 = 11;

/// Starts a thread; it runs when it is given the baton.
fn spawn<T: Send + 'static>(
    name: &str,
    f: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<SimulatedJoinHandle<T>> {
    let simulation =
        in_simulation(|simulation, _| simulation.clone()).expect("asked by a thread of a simulation");
    if simulation.environment.fails_thread_start() {
        return Err(std::io::Error::from_raw_os_error(EAGAIN));
    }
    let gate = Arc::<Gate>::default();
    let task = simulation.add(name, Some(gate.clone()));
    let result = Arc::new(Mutex::new(None));
    let (own, kept) = (simulation.clone(), result.clone());
    let body = move || {
        gate.pass();
        let membership = Membership::enter(&own, task);
        own.take_baton(task);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
        let panicked = outcome.is_err();
        *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        drop(membership);
        own.end(task, panicked);
    };
    let thread = std::thread::Builder::new().name(name.to_string()).spawn(body)?;
    simulation.lock().tasks[task].handle = Some(thread);
    point();
    Ok(SimulatedJoinHandle { simulation, task, result })
}

/// Waits for a thread of the simulation.
#[derive(Debug)]
pub struct SimulatedJoinHandle<T> {
    simulation: Arc<Simulation>,
    task: usize,
    result: Arc<Mutex<Option<std::thread::Result<T>>>>,
}

impl<T> SimulatedJoinHandle<T> {
    fn is_finished(&self) -> bool {
        self.simulation.lock().tasks[self.task].condition == Condition::Ended
    }

    fn join(self) -> std::thread::Result<T> {
        self.simulation.await_end(self.task);
        let result = self.result.lock().unwrap_or_else(PoisonError::into_inner).take();
        result.expect("written before the thread ended, and taken once")
    }
}

/// The calling thread takes part until this is dropped.
struct Membership;

impl Membership {
    fn enter(simulation: &Arc<Simulation>, task: usize) -> Membership {
        ME.set(Some((simulation.clone(), task)));
        simulation.epochs.enter();
        Environment::enter(Some(simulation.environment.clone()));
        Membership
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        epochs::leave();
        LEFT.set(0);
        ME.set(None);
        Environment::enter(None);
    }
}

impl Simulation {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, name: &str, gate: Option<Arc<Gate>>) -> usize {
        let mut state = self.lock();
        let priority = state.random.next_u64();
        let gate = gate.unwrap_or_default();
        let task = Task {
            name: name.into(),
            condition: Condition::Ready,
            priority,
            gate,
            handle: None,
            place: None,
        };
        state.tasks.push(task);
        state.summary.threads += 1;
        state.tasks.len() - 1
    }

    /// The first thing a thread does that was given the baton.
    fn take_baton(&self, me: usize) {
        let ended = {
            let mut state = self.lock();
            state.give_operations(me);
            state.ended.take()
        };
        if let Some(thread) = ended {
            // It has no more to do than to drop its thread-locals; a panic in one of them is reported by the runtime.
            let _ = thread.join();
        }
    }

    fn decide(&self, me: usize, condition: Condition, yields: bool) {
        let (next, own) = {
            let mut state = self.lock();
            let sleeps = PLACES.load(Ordering::Relaxed) && condition != Condition::Ready;
            if sleeps || state.summary.decisions + LAST_DECISIONS > state.plan.decisions_max {
                state.tasks[me].place = Some(Backtrace::force_capture());
            }
            state.tasks[me].condition = condition;
            let next = self.choose(&mut state, Some(me), yields);
            if next == me {
                state.give_operations(me);
                return;
            }
            (state.tasks[next].gate.clone(), state.tasks[me].gate.clone())
        };
        // Without the lock, which the next thread needs at once.
        next.open();
        own.pass();
        self.take_baton(me);
    }

    /// A thread has ended.
    fn end(&self, me: usize, panicked: bool) {
        let mut state = self.lock();
        state.tasks[me].condition = Condition::Ended;
        state.summary.panics += u64::from(panicked);
        state.ended = state.tasks[me].handle.take();
        let address = state.tasks[me].address();
        state.wake(address);
        let next = self.choose(&mut state, None, false);
        let gate = state.tasks[next].gate.clone();
        drop(state);
        gate.open();
    }

    /// Sleeps until a thread has ended.
    fn await_end(&self, task: usize) {
        loop {
            let address = {
                let state = self.lock();
                if state.tasks[task].condition == Condition::Ended {
                    return;
                }
                state.tasks[task].address()
            };
            wait(address, None);
        }
    }

    fn await_others(&self, me: usize) {
        let mut task = 0;
        while task < self.lock().tasks.len() {
            if task != me {
                self.await_end(task);
            }
            task += 1;
        }
    }

    /// Who runs next. `me` had the baton and may keep it.
    fn choose(&self, state: &mut State, me: Option<usize>, yields: bool) -> usize {
        state.summary.decisions += 1;
        self.environment.advance(u64::from(state.given) * OPERATION_NS);
        if state.summary.decisions > state.plan.decisions_max {
            self.give_up(state, "the run does not end");
        }
        if state.random.chance(u64::from(state.given), OFF_CPU) {
            self.environment.count_preemption();
            self.pass_to_next_time(state);
        }
        state.wake_sleepers(self.environment.now());
        let others = |state: &State| state.ready(me).next().is_some();
        if yields && !others(state) && state.random.chance(1, 4) {
            // Whoever yields waits for somebody who sleeps.
            self.pass_to_next_time(state);
            state.wake_sleepers(self.environment.now());
        }
        if state.ready(None).next().is_none() {
            if !self.pass_to_next_time(state) {
                self.give_up(state, "all threads wait for each other");
            }
            state.wake_sleepers(self.environment.now());
        }
        let next = state.pick(if yields && others(state) { me } else { None });
        state.summary.switches += u64::from(Some(next) != me);
        let mixed = state.summary.fingerprint ^ (next as u64 + 1) ^ self.environment.now().rotate_left(32);
        state.summary.fingerprint = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        next
    }

    /// False if nobody sleeps until some time.
    fn pass_to_next_time(&self, state: &State) -> bool {
        let next = state.tasks.iter().filter_map(|task| match task.condition {
            Condition::Waits { until, .. } => until,
            _ => None,
        });
        next.min().inspect(|until| self.environment.advance_to(*until)).is_some()
    }

    fn give_up(&self, state: &State, why: &str) -> ! {
        eprintln!("simulation of seed {}: {why} ({:?})", state.plan.seed, state.summary);
        let mut places = Vec::new();
        for (number, task) in state.tasks.iter().enumerate() {
            let condition = task.condition.without_address(&mut places);
            eprintln!("thread {number} {}: {condition:?}", task.name);
            if let Some(place) = task.place.as_ref().filter(|_| task.condition != Condition::Ended) {
                tell(place);
            }
        }
        if let Some((thread, place)) = &state.panic.struck {
            eprintln!("a planned panic struck {thread}:");
            tell(place);
        }
        std::process::exit(STUCK)
    }
}

/// Only what is ours and above the scheduler.
fn tell(place: &Backtrace) {
    let text = place.to_string();
    let ours = text.lines().filter(|line| line.contains("src/") && !line.contains("/rustc/"));
    ours.filter(|line| !line.contains("sync/simulation")).for_each(|line| eprintln!("  {}", line.trim()));
}

/// Exit code of a process whose simulation cannot go on.
pub const STUCK: i32 = 86;

impl State {
    /// Draws for how many operations `me`, the calling thread, goes on.
    fn give_operations(&mut self, me: usize) {
        debug_assert_eq!(self.tasks[me].condition, Condition::Ready);
        // As many short stretches as long ones.
        let bits = self.random.below(u64::from(self.plan.stride) + 1);
        self.given = 1 + self.random.below(1 << bits) as u32;
        LEFT.set(self.given);
    }

    fn is_ready(&self, task: usize) -> bool {
        self.tasks[task].condition == Condition::Ready
    }

    fn wake_sleepers(&mut self, now: u64) {
        for task in &mut self.tasks {
            if let Condition::Waits { until: Some(until), .. } = task.condition
                && until <= now
            {
                task.condition = Condition::Ready;
            }
        }
    }

    fn wake(&mut self, address: usize) {
        for task in &mut self.tasks {
            if let Condition::Waits { address: Some(own), .. } = task.condition
                && own == address
            {
                task.condition = Condition::Ready;
            }
        }
    }

    /// Those who can go on, but not `except`.
    fn ready(&self, except: Option<usize>) -> impl Iterator<Item = usize> {
        (0..self.tasks.len()).filter(move |task| Some(*task) != except && self.is_ready(*task))
    }

    /// One of the ready, but not `except`.
    fn pick(&mut self, except: Option<usize>) -> usize {
        if let Some(task) = except {
            // Whoever yields goes to the end of the line.
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
        first.expect("somebody is ready")
    }

    fn draw(&mut self, except: Option<usize>) -> usize {
        let drawn = self.random.below(self.ready(except).count() as u64);
        self.ready(except).nth(drawn as usize).expect("somebody is ready")
    }
}

#[cfg(test)]
mod tests;
