//! Waiting for something that another thread ends.

use crate::base::clock::{Clock, Nanos};
use crate::sync::{Event, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// A result that another thread will have.
#[derive(Debug)]
pub(super) struct Pending<T>(Arc<(Mutex<Option<T>>, Event)>);

impl<T: Send + 'static> Pending<T> {
    /// Calls `start` with a function that takes the result, from whatever thread.
    pub(super) fn start(start: impl FnOnce(Box<dyn FnOnce(T) + Send>)) -> Pending<T> {
        let ended = Arc::new((Mutex::new(None), Event::new()));
        let told = ended.clone();
        start(Box::new(move |result| {
            *told.0.lock() = Some(result);
            told.1.notify_all();
        }));
        Pending(ended)
    }

    /// Waits for the result.
    pub(super) fn wait(self) -> T {
        loop {
            let ticket = self.0.1.ticket();
            if let Some(result) = self.0.0.lock().take() {
                return result;
            }
            self.0.1.wait(ticket, None);
        }
    }
}

/// Calls `start` with a function that takes a result, and returns the result when that function was
/// called, from whatever thread.
pub(super) fn wait_for<T: Send + 'static>(start: impl FnOnce(Box<dyn FnOnce(T) + Send>)) -> T {
    Pending::start(start).wait()
}

/// As [`wait_for`], for at most `most`. Returns `None` then, and if the function that takes the
/// result was dropped without a call.
pub(super) fn wait_at_most<T: Send + 'static>(
    most: Duration,
    start: impl FnOnce(Box<dyn FnOnce(T) + Send>),
) -> Option<T> {
    let shared = Arc::new((Mutex::new(Awaited { result: None, is_over: false }), Event::new()));
    let told = Told(shared.clone());
    start(Box::new(move |result| told.0.0.lock().result = Some(result)));
    let clock = Clock::real();
    let until = Nanos(clock.now().0.saturating_add(most.as_nanos() as u64));
    loop {
        let (ticket, now) = (shared.1.ticket(), clock.now());
        {
            let mut awaited = shared.0.lock();
            if awaited.result.is_some() || awaited.is_over || now >= until {
                return awaited.result.take();
            }
        }
        shared.1.wait(ticket, Some(until.since(now)));
    }
}

struct Awaited<T> {
    result: Option<T>,
    /// No result will come any more.
    is_over: bool,
}

/// Ends the wait when it is dropped, with or without a result.
struct Told<T>(Arc<(Mutex<Awaited<T>>, Event)>);

impl<T> Drop for Told<T> {
    fn drop(&mut self) {
        self.0.0.lock().is_over = true;
        self.0.1.notify_all();
    }
}

/// Starts `count` things, each by a call of `start` with its index and a function that takes its
/// result, and returns all results in order when all have ended.
pub(super) fn wait_for_all<T: Send + 'static>(
    count: usize,
    mut start: impl FnMut(usize, Box<dyn FnOnce(T) + Send>),
) -> Vec<T> {
    let all: Vec<_> = (0..count).map(|index| Pending::start(|done| start(index, done))).collect();
    all.into_iter().map(Pending::wait).collect()
}
