//! Waiting for something that another thread ends.

use crate::sync::{Event, Mutex};
use std::sync::Arc;

/// Calls `start` with a function that takes a result, and returns the result when that function was
/// called, from whatever thread.
pub(super) fn wait_for<T: Send + 'static>(start: impl FnOnce(Box<dyn FnOnce(T) + Send>)) -> T {
    let ended = Arc::new((Mutex::new(None), Event::new()));
    let told = ended.clone();
    start(Box::new(move |result| {
        *told.0.lock() = Some(result);
        told.1.notify_all();
    }));
    loop {
        let ticket = ended.1.ticket();
        if let Some(result) = ended.0.lock().take() {
            return result;
        }
        ended.1.wait(ticket, None);
    }
}

/// Starts `count` things, each by a call of `start` with its index and a function that takes its
/// result, and returns all results in order when all have ended.
pub(super) fn wait_for_all<T: Send + 'static>(
    count: usize,
    mut start: impl FnMut(usize, Box<dyn FnOnce(T) + Send>),
) -> Vec<T> {
    let results = Arc::new((Mutex::new((0, (0..count).map(|_| None).collect::<Vec<_>>())), Event::new()));
    for index in 0..count {
        let told = results.clone();
        start(
            index,
            Box::new(move |result| {
                let mut state = told.0.lock();
                state.0 += 1;
                state.1[index] = Some(result);
                drop(state);
                told.1.notify_all();
            }),
        );
    }
    loop {
        let ticket = results.1.ticket();
        {
            let mut state = results.0.lock();
            if state.0 == count {
                return state.1.drain(..).flatten().collect();
            }
        }
        results.1.wait(ticket, None);
    }
}
