//! Groups of threads, one step at a time, and many at once.

use super::*;
use std::sync::MutexGuard;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{scope, yield_now};

/// The numbers of threads in the order in which they had their turn.
#[derive(Default)]
struct Turns(std::sync::Mutex<Vec<u64>>);

impl Latch for Turns {
    type Guard<'a> = MutexGuard<'a, Vec<u64>>;

    fn lock(&self) -> Self::Guard<'_> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<Self::Guard<'_>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }
}

/// Notes a turn.
struct Turn {
    number: u64,
    /// The thread that ran it.
    by: Option<std::thread::ThreadId>,
    /// Begins when this says so.
    begin: Option<Receiver<()>>,
    panics: bool,
}

fn turn(number: u64) -> Turn {
    Turn { number, by: None, begin: None, panics: false }
}

impl Work<Turns> for Turn {
    fn run(&mut self, turns: &mut MutexGuard<'_, Vec<u64>>) {
        if let Some(begin) = &self.begin {
            begin.recv().expect("the test says so");
        }
        assert!(!self.panics, "planned");
        turns.push(self.number);
        self.by = Some(std::thread::current().id());
    }
}

fn await_waiting(array: &ConsolidationArray<Turns>, count: usize) {
    while array.waiting() < count {
        yield_now();
    }
}

/// Runs the works of `others` beside one whose thread holds the latch until all of them wait.
/// Returns the turns.
fn beside_a_holder(others: Vec<Turn>, check: impl Fn(std::thread::Result<(bool, Turn)>) + Sync) -> Vec<u64> {
    let (turns, array) = (Turns::default(), ConsolidationArray::new());
    let (begin, begins) = channel();
    scope(|scope| {
        let (turns, array, check) = (&turns, &array, &check);
        let count = others.len();
        scope.spawn(move || {
            let mut own = Turn { begin: Some(begins), ..turn(0) };
            let run = || array.run(turns, &mut own);
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        });
        while turns.try_lock().is_some() {
            yield_now();
        }
        for mut other in others {
            scope.spawn(move || {
                let run = || (array.run(turns, &mut other), ());
                let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
                check(ran.map(|(by_other, ())| (by_other, other)));
            });
        }
        await_waiting(array, count.min(PLACES));
        begin.send(()).expect("the holder waits");
    });
    assert_eq!(array.waiting(), 0);
    turns.0.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn work_of_a_waiting_thread_runs_once_and_before_it_returns() {
    for count in 1..=PLACES as u64 + 2 {
        let mut ran = beside_a_holder((1..=count).map(turn).collect(), |other| {
            let (by_other, other) = other.expect("no panic");
            let by = other.by.expect("it ran");
            assert_eq!(by_other, by != std::thread::current().id());
        });
        assert_eq!(ran[0], 0, "the holder's own is first");
        ran.sort_unstable();
        assert_eq!(ran, (0..=count).collect::<Vec<_>>());
    }
}

/// The holder's thread panics, and the other one returns without a result.
#[test]
fn work_that_panics_counts_as_run() {
    let ran = beside_a_holder(vec![Turn { panics: true, ..turn(1) }], |other| {
        if let Ok((_, other)) = other {
            assert_eq!(other.by, None);
        }
    });
    assert_eq!(ran, [0]);
}

#[test]
fn many_threads_run_all_their_work() {
    const THREADS: u64 = 8;
    let each = if cfg!(miri) { 5 } else { 3_000 };
    let (turns, array) = (Turns::default(), ConsolidationArray::new());
    scope(|scope| {
        for thread in 0..THREADS {
            let (turns, array) = (&turns, &array);
            scope.spawn(move || {
                for n in 0..each {
                    let mut work = turn(thread * each + n);
                    array.run(turns, &mut work);
                    assert!(work.by.is_some(), "it ran before this thread returned");
                }
            });
        }
    });
    let ran = turns.0.into_inner().expect("no panic");
    for thread in 0..THREADS {
        let own: Vec<u64> = ran.iter().copied().filter(|number| number / each == thread).collect();
        assert_eq!(own, (thread * each..(thread + 1) * each).collect::<Vec<_>>(), "once each, in order");
    }
}
