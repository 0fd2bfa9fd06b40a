//! How do futures learn that their transaction is committed?
//!
//! Threads sleep on events and look for themselves. A future leaves its waker here, with its
//! ticket, and every acknowledgment wakes the futures whose transaction is committed. A future that
//! is polled with another waker leaves that one instead, so there is one waker per pending future.
//! A future is a waiter like any other: polling it causes the writes that it needs.
//!
//! Wakers are code of the caller. One may wait for another commit of a log that the acknowledger
//! leads, or drop the last handle of the database, which ends the flushers. So a thread of its own
//! calls them, one after the other, and holds nothing of the commit layer. It starts with the first
//! future that is polled. No thread waits for its end: it may itself be closing the database.

use super::pending::Ticket;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Event, Mutex, thread};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

/// Wakers of futures, by ticket.
#[derive(Debug)]
pub struct Wakers {
    /// The number of wakers in `list`. Acknowledgers skip the mutex while it is 0.
    count: AtomicUsize,
    list: Mutex<List>,
    caller: Arc<Caller>,
}

#[derive(Debug, Default)]
struct List {
    /// In the order of their places.
    wakers: Vec<Left>,
    /// The place that was given out last.
    last_place: u64,
}

/// The thread that calls wakers, and what it is to call.
#[derive(Debug)]
struct Caller {
    calls: Mutex<Calls>,
    /// Notified when there is a waker to call, or when the thread is to end.
    asked: Event,
}

#[derive(Debug, Default)]
struct Calls {
    wakers: Vec<Waker>,
    thread: CallerState,
    ends: bool,
}

/// State of the thread. Without it, the acknowledger calls wakers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum CallerState {
    #[default]
    NotBegun,
    Runs,
    Ended,
}

/// A waker that was left here.
#[derive(Debug)]
struct Left {
    place: u64,
    ticket: Ticket,
    waker: Waker,
}

/// Where a future leaves its waker, once it has left one: one of each future, and none of a clone
/// of it.
#[derive(Debug, Default)]
pub struct WakerPlace(Option<u64>);

impl Clone for WakerPlace {
    fn clone(&self) -> WakerPlace {
        WakerPlace(None)
    }
}

impl Default for Wakers {
    fn default() -> Self {
        Wakers {
            count: AtomicUsize::new(0),
            list: Mutex::default(),
            caller: Arc::new(Caller { calls: Mutex::new(Calls::default()), asked: Event::new() }),
        }
    }
}

impl Caller {
    /// Starts the thread, if that has not been done. If it cannot be, the next future tries again.
    fn begin(self: &Arc<Caller>) {
        {
            let mut calls = self.calls.lock();
            if calls.thread != CallerState::NotBegun || calls.ends {
                return;
            }
            calls.thread = CallerState::Runs;
        }
        let this = self.clone();
        if let Err(error) = thread::spawn("quench-waker", move || this.run()) {
            drop(Running { caller: self, then: CallerState::NotBegun });
            tracing::debug!(%error, "cannot start a thread for wakers: acknowledgers call them");
        }
    }

    fn call(&self, mut woken: Woken) {
        let mut calls = self.calls.lock();
        if calls.thread == CallerState::Runs {
            calls.wakers.append(&mut woken.0);
            drop(calls);
            self.asked.notify_all();
        }
    }

    /// Runs the thread until it is to end and has called all.
    fn run(&self) {
        let _running = Running { caller: self, then: CallerState::Ended };
        loop {
            let ticket = self.asked.ticket();
            let woken = {
                let mut calls = self.calls.lock();
                if calls.ends && calls.wakers.is_empty() {
                    // Under the same lock: no waker is left here from now on.
                    calls.thread = CallerState::Ended;
                    return;
                }
                Woken(std::mem::take(&mut calls.wakers))
            };
            if woken.0.is_empty() {
                self.asked.wait(ticket, None);
            }
        }
    }

    fn end(&self) {
        self.calls.lock().ends = true;
        self.asked.notify_all();
    }
}

/// Marks the thread as ended when dropped, however the thread ends, and calls the wakers left to
/// it. From then on, no thread leaves wakers to it.
struct Running<'c> {
    caller: &'c Caller,
    then: CallerState,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut calls = self.caller.calls.lock();
        calls.thread = self.then;
        let woken = Woken(std::mem::take(&mut calls.wakers));
        drop(calls);
        drop(woken);
    }
}

/// Wakers that are in no list any more. Dropping this calls them, also when the thread that took
/// them panics.
#[derive(Default)]
struct Woken(Vec<Waker>);

impl Drop for Woken {
    fn drop(&mut self) {
        self.0.drain(..).for_each(call);
    }
}

/// A panic of it is its own matter.
fn call(waker: Waker) {
    if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
        tracing::warn!("the waker of a commit's future panicked");
    }
}

impl Wakers {
    /// Puts a waker at a place, instead of what was there.
    pub fn put(&self, ticket: Ticket, waker: &Waker, place: &mut WakerPlace) {
        // A scheduler that explores knows all threads.
        if place.0.is_none() && !cfg!(any(loom, feature = "shuttle")) {
            self.caller.begin();
        }
        let mut waker = waker.clone();
        // Declared after it, so that what was there is dropped without the mutex, as it is cloned:
        // both are code of the caller.
        let mut list = self.list.lock();
        let known =
            place.0.and_then(|place| list.wakers.binary_search_by_key(&place, |left| left.place).ok());
        match known {
            Some(at) => std::mem::swap(&mut list.wakers[at].waker, &mut waker),
            None => {
                list.last_place += 1;
                let new = Left { place: list.last_place, ticket, waker };
                debug_assert!(
                    list.wakers.last().is_none_or(|last| last.place < new.place),
                    "wakers are in the order of their places"
                );
                place.0 = Some(new.place);
                list.wakers.push(new);
            }
        }
        self.count.store(list.wakers.len(), Ordering::SeqCst);
    }

    /// Wakes and forgets those whose ticket is `decided`.
    pub fn wake(&self, decided: impl Fn(Ticket) -> bool) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        // Declared before the list: it is dropped without its mutex.
        let mut woken = Woken::default();
        let mut list = self.list.lock();
        woken.0.extend(list.wakers.extract_if(.., |left| decided(left.ticket)).map(|left| left.waker));
        self.count.store(list.wakers.len(), Ordering::SeqCst);
        drop(list);
        if !woken.0.is_empty() {
            self.caller.call(woken);
        }
    }

    /// Ends the thread that calls wakers, without waiting for it. From then on, a thread that wakes
    /// futures calls their wakers itself.
    pub fn end(&self) {
        self.caller.end();
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
