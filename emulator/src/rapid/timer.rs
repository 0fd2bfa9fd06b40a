//! Times of less than a millisecond, which the timers of tokio round up to whole ones.

use std::collections::BinaryHeap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{cmp, io, thread};
use tokio::sync::oneshot;

/// What waits for a moment.
#[derive(Debug)]
struct Entry {
    due: Instant,
    wakes: oneshot::Sender<()>,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.due == other.due
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The next one is the largest.
    fn cmp(&self, other: &Entry) -> cmp::Ordering {
        other.due.cmp(&self.due)
    }
}

#[derive(Debug, Default)]
struct State {
    entries: BinaryHeap<Entry>,
    is_closed: bool,
}

/// A thread that wakes tasks in time. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Timer(Arc<(Mutex<State>, Condvar)>);

impl Timer {
    /// # Errors
    /// The system refuses a thread.
    pub fn start() -> io::Result<Timer> {
        let shared: Arc<(Mutex<State>, Condvar)> = Arc::default();
        let own = shared.clone();
        thread::Builder::new().name("emulator-timer".into()).spawn(move || run(&own))?;
        Ok(Timer(shared))
    }

    /// Waits until `due`.
    pub async fn until(&self, due: Instant) {
        if due <= Instant::now() {
            return;
        }
        let (wakes, woken) = oneshot::channel();
        locked(&self.0.0).entries.push(Entry { due, wakes });
        self.0.1.notify_one();
        // Without the thread, the emulator has ended.
        let _ = woken.await;
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        locked(&self.0.0).is_closed = true;
        self.0.1.notify_one();
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run((state, changed): &(Mutex<State>, Condvar)) {
    let mut state = locked(state);
    while !state.is_closed {
        let now = Instant::now();
        while state.entries.peek().is_some_and(|entry| entry.due <= now) {
            if let Some(entry) = state.entries.pop() {
                // The task may have done something else meanwhile.
                let _ = entry.wakes.send(());
            }
        }
        let rest = state.entries.peek().map_or(Duration::from_mins(1), |entry| entry.due - now);
        state = changed.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_are_woken_in_their_order_and_not_early() {
        let timer = Timer::start().expect("a thread");
        let begun = Instant::now();
        let wait = |us| timer.until(begun + Duration::from_micros(us));
        let late = async {
            wait(1_500).await;
            begun.elapsed()
        };
        let early = async {
            wait(300).await;
            begun.elapsed()
        };
        let (late, early) = tokio::join!(late, early);
        assert!(early >= Duration::from_micros(300) && late >= Duration::from_micros(1_500));
        assert!(early < late, "{early:?}, {late:?}");
    }
}
