//! How do futures learn that their transaction is committed?
//!
//! Threads sleep on events and look for themselves (`leader.rs`). A future leaves its waker here, with its ticket; every
//! acknowledgment wakes those whose transaction is committed. The bound is one waker per pending future of the caller.
//! A future that is polled is a waiter like any other: it causes the writes it needs, through the flusher.

use super::levels::NOW;
use super::{Core, Ticket};
use crate::base::{ErrorKind, Result};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

/// Wakers of futures, by ticket.
#[derive(Debug)]
pub(super) struct Wakers {
    /// Length of `list`: keeps acknowledgers away from the mutex when there is none.
    count: AtomicUsize,
    list: Mutex<Vec<(Ticket, Waker)>>,
}

impl Default for Wakers {
    fn default() -> Self {
        Wakers { count: AtomicUsize::new(0), list: Mutex::new(Vec::new()) }
    }
}

impl Wakers {
    /// Adds a waker; one that would wake the same task for the same ticket is not added twice.
    fn add(&self, ticket: Ticket, waker: &Waker) {
        let mut list = self.list.lock();
        if !list.iter().any(|(t, w)| *t == ticket && w.will_wake(waker)) {
            list.push((ticket, waker.clone()));
        }
        self.count.store(list.len(), Ordering::SeqCst);
    }

    /// Wakes and forgets those whose ticket is `decided`.
    pub(super) fn wake(&self, decided: impl Fn(Ticket) -> bool) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let woken: Vec<_> = {
            let mut list = self.list.lock();
            let woken = list.extract_if(.., |(ticket, _)| decided(*ticket)).collect();
            self.count.store(list.len(), Ordering::SeqCst);
            woken
        };
        // A waker is code of the caller: not under our mutex.
        for (_, waker) in woken {
            waker.wake();
        }
    }
}

impl Core {
    pub(super) fn poll(&self, ticket: Ticket, waker: &Waker) -> Option<Result<()>> {
        if let Some(outcome) = self.outcome(ticket) {
            return Some(outcome);
        }
        if self.is_passive() {
            self.drain_behind(ticket.csn);
        }
        self.wakers.add(ticket, waker);
        let writer = self.writer(ticket.log);
        if writer.log.durable_csn() < ticket.csn {
            writer.duty.lower_due(NOW);
            self.hurry_carriers(ticket.csn);
            self.flusher_of(writer).wake_for(NOW);
        }
        self.rescan();
        self.demand_others(ticket);
        // Whoever acknowledged before the waker was there did not see it.
        self.outcome(ticket)
    }

    fn outcome(&self, ticket: Ticket) -> Option<Result<()>> {
        if self.is_committed_ticket(ticket) {
            return Some(Ok(()));
        }
        self.poison.is_raised().then(|| Err(self.poison.error(ErrorKind::OutcomeUnknown)))
    }
}
