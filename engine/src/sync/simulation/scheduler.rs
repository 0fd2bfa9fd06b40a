//! The scheduler: gives the baton to one thread of a simulation at a time.

use super::epochs::{self, Epochs};
use super::gate::Gate;
use super::planned_panic::{ARMED, Armed, Planned, PlannedPanic};
use super::tasks::{Condition, LEFT, Plan, State, Summary, Task};
use crate::base::environment::Environment;
use crate::base::random::Random;
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Nanoseconds that an operation takes.
const OPERATION_NS: u64 = 10;
/// After one operation in this many, time passes to the end of the next sleep.
const OFF_CPU: u64 = 200_000;
/// In this many decisions before a run is given up, each thread records its backtrace.
const LAST_DECISIONS: u64 = 3000;
thread_local! {
    static ME: RefCell<Option<(Arc<Simulation>, usize)>> = const { RefCell::new(None) };
}

#[derive(Debug)]
pub(super) struct Simulation {
    environment: Arc<Environment>,
    pub(super) epochs: Epochs,
    state: Mutex<State>,
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

/// Records a backtrace whenever a thread begins to sleep, for the report of a run that is given up.
/// Slow.
pub fn remember_places() {
    PLACES.store(true, Ordering::Relaxed);
}

/// A scheduling point: another thread may get the baton.
#[inline]
pub fn point() {
    let _ = LEFT.try_with(|left| match left.get() {
        0 => (),
        1 => decide(Condition::Ready, false),
        n => left.set(n - 1),
    });
}

/// Runs `f` without scheduling points, so that an observer does not change the run. `f` must not
/// block.
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
    may_strike();
    let until = until(Some(time));
    decide(Condition::Waits { address: None, until }, false);
}

/// Sleeps until a call of [`wake`] with the address, or for `timeout`.
pub(super) fn wait(address: usize, timeout: Option<Duration>) {
    decide(Condition::Waits { address: Some(address), until: until(timeout) }, false);
}

/// Makes the threads that sleep on the address ready.
pub(super) fn wake(address: usize) {
    in_simulation(|simulation, _| simulation.lock().wake(address));
}

/// Advances the time of the simulation.
pub fn jump(time: Duration) {
    in_simulation(|simulation, _| simulation.environment.advance(time.as_nanos() as u64));
}

/// See [`Environment::leaps`].
#[must_use]
pub fn preemptions() -> u64 {
    in_simulation(|simulation, _| simulation.environment.preemptions()).unwrap_or(0)
}

/// Returns the number of the calling thread in its simulation; the caller of [`run`] is 0.
#[must_use]
pub fn task() -> Option<usize> {
    in_simulation(|_, task| task)
}

fn until(timeout: Option<Duration>) -> Option<u64> {
    let now = in_simulation(|simulation, _| simulation.environment.now())?;
    timeout.map(|time| now.saturating_add(time.as_nanos() as u64))
}

/// Calls `f` with the calling thread's simulation and the thread's number. Returns `None` outside a
/// simulation.
pub(super) fn in_simulation<T>(f: impl FnOnce(&Arc<Simulation>, usize) -> T) -> Option<T> {
    ME.try_with(|me| me.borrow().as_ref().map(|(simulation, me)| f(simulation, *me))).ok().flatten()
}

/// Sets the condition of the calling thread and gives the baton to the chosen thread.
#[cold]
fn decide(condition: Condition, yields: bool) {
    in_simulation(|simulation, me| simulation.decide(me, condition, yields));
}

/// The system's error if it has no further thread.
const EAGAIN: i32 = 11;

/// Starts a thread. It runs when it gets the baton.
pub(super) fn spawn<T: Send + 'static>(
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
    pub(super) fn is_finished(&self) -> bool {
        self.simulation.lock().tasks[self.task].condition == Condition::Ended
    }

    pub(super) fn join(self) -> std::thread::Result<T> {
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
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
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

    /// The first step of a thread that has got the baton.
    fn take_baton(&self, me: usize) {
        let ended = {
            let mut state = self.lock();
            state.give_operations(me);
            state.ended.take()
        };
        if let Some(thread) = ended {
            // The thread only drops its thread-locals; the runtime reports a panic in one of them.
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

    /// Ends the calling thread.
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

    /// Chooses the next thread. `me` had the baton and may keep it.
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
            // A yielding thread waits for a sleeping one.
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

    /// Advances the time to the end of the next sleep. Returns false if no thread sleeps until a
    /// time.
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
                print_place(place);
            }
        }
        if let Some((thread, place)) = &state.panic.struck {
            eprintln!("a planned panic struck {thread}:");
            print_place(place);
        }
        std::process::exit(STUCK)
    }
}

/// Panics if a planned panic strikes the calling thread now.
#[inline]
pub(super) fn may_strike() {
    if ARMED.load(Ordering::Relaxed) > 0 && !std::thread::panicking() && epochs::takes_part() {
        strike();
    }
}

#[cold]
fn strike() {
    let strikes = in_simulation(|simulation, task| {
        let State { tasks, panic, .. } = &mut *simulation.lock();
        panic.strikes(&tasks[task].name)
    });
    if strikes == Some(true) {
        std::panic::resume_unwind(Box::new(PlannedPanic));
    }
}

/// Lets `after` more blocking operations of threads whose names begin with `threads` succeed. The
/// thread that starts the next one panics with [`PlannedPanic`].
pub fn panic_later(threads: &'static str, after: u64) {
    in_simulation(|simulation, _| simulation.lock().panic.arm(Armed { threads, after }));
}

/// Returns the thread that a planned panic has struck in this simulation.
#[must_use]
pub fn planned_panic() -> Option<String> {
    let struck =
        |simulation: &Simulation| simulation.lock().panic.struck.as_ref().map(|(thread, _)| thread.clone());
    in_simulation(|simulation, _| struck(simulation)).flatten()
}

/// Prints the frames of the engine above the scheduler.
fn print_place(place: &Backtrace) {
    let text = place.to_string();
    let ours = text.lines().filter(|line| line.contains("src/") && !line.contains("/rustc/"));
    ours.filter(|line| !line.contains("sync/simulation")).for_each(|line| eprintln!("  {}", line.trim()));
}

/// Exit code of a process whose simulation cannot continue.
pub const STUCK: i32 = 86;
