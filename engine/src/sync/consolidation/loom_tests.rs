//! Groups under loom.

use super::*;
use loom::sync::Arc;
use loom::thread::spawn;

/// Runs, and whether one is under way.
struct Runs(Mutex<u32>);

impl Latch for Runs {
    type Guard<'a> = crate::sync::MutexGuard<'a, u32>;

    fn lock(&self) -> Self::Guard<'_> {
        self.0.lock()
    }

    fn try_lock(&self) -> Option<Self::Guard<'_>> {
        self.0.try_lock()
    }
}

/// Counts a run. Loom reports accesses of two threads that are not ordered.
struct Count(loom::cell::UnsafeCell<Option<u32>>);

impl Work<Runs> for Count {
    fn run(&mut self, runs: &mut crate::sync::MutexGuard<'_, u32>) {
        **runs += 1;
        // SAFETY: the thread that runs the work is the only one that uses it; loom checks that.
        self.0.with_mut(|number| unsafe { *number = Some(**runs) });
    }
}

fn run(array: &ConsolidationArray<Runs>, runs: &Runs) -> u32 {
    let mut work = Count(loom::cell::UnsafeCell::new(None));
    array.run(runs, &mut work);
    // SAFETY: as above.
    work.0.with(|number| unsafe { *number }).expect("it ran before this thread returned")
}

fn explore(threads: usize, each: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let shared = Arc::new((ConsolidationArray::new(), Runs(Mutex::new(0))));
        let work = move |shared: &(ConsolidationArray<Runs>, Runs)| {
            (0..each).map(|_| run(&shared.0, &shared.1)).collect::<Vec<_>>()
        };
        let others: Vec<_> = (1..threads)
            .map(|_| {
                let shared = shared.clone();
                spawn(move || work(&shared))
            })
            .collect();
        let mut all = work(&shared);
        others.into_iter().for_each(|other| all.extend(other.join().expect("no panic")));
        all.sort_unstable();
        assert_eq!(all, (1..=(threads * each) as u32).collect::<Vec<_>>(), "each once");
        assert_eq!(shared.0.waiting(), 0);
    });
}

#[test]
fn work_of_two_threads_runs_once_each() {
    explore(2, 2);
}

#[test]
fn work_of_three_threads_runs_once_each() {
    explore(3, 1);
}
