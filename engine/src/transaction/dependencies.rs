//! What a transaction depends on for having read or changed it: the highest CSN, single
//! predecessors, clocks of pages.

use super::page_clocks::TransactionClock;
use super::system::TransactionSystem;
use crate::base::planted::{self, Bug};
use crate::base::{Csn, Gsn, LogId, PageId};
use crate::commit::{Predecessors, Ticket};
use std::cell::Cell;

/// The dependencies of a transaction in progress. Readers share the transaction, hence the cells.
#[derive(Debug)]
pub(super) struct Dependencies {
    /// Highest CSN among the direct predecessors.
    dsn: Cell<Csn>,
    /// Those of them that were not committed when the transaction observed them.
    predecessors: Cell<Predecessors>,
    /// Where the dependency rule compares clocks.
    clock: Option<TransactionClock>,
}

impl Dependencies {
    pub(super) fn new(system: &TransactionSystem) -> Dependencies {
        let by_clocks = system.commit().listing().goes_by_clocks();
        Dependencies {
            dsn: Cell::new(Csn::ZERO),
            predecessors: Cell::default(),
            clock: by_clocks.then(|| TransactionClock::new(system.log_of_thread())),
        }
    }

    pub(super) fn dsn(&self) -> Csn {
        self.dsn.get()
    }

    pub(super) fn predecessors(&self) -> Predecessors {
        self.predecessors.get()
    }

    /// Makes the transaction depend on `csn`.
    pub(super) fn add(&self, system: &TransactionSystem, csn: Csn) {
        if planted::is(Bug::DependencySkipped) && csn.0.is_multiple_of(4) {
            return;
        }
        self.dsn.set(self.dsn.get().max(csn));
        let commit = system.commit();
        if commit.listing().is_to_be_listed(csn) {
            let mut predecessors = self.predecessors.get();
            if predecessors.is_full() {
                predecessors.retain(|csn| commit.listing().is_to_be_listed(csn));
            }
            if self.observe_version(system, csn) {
                predecessors.add(csn);
            } else {
                predecessors.overflow();
            }
            self.predecessors.set(predecessors);
        }
    }

    /// Makes the transaction depend on any transactions up to `csn`: which ones is not known.
    pub(super) fn add_up_to(&self, system: &TransactionSystem, csn: Csn) {
        if planted::is(Bug::DeadRangeIsNoRead) {
            return;
        }
        self.dsn.set(self.dsn.get().max(csn));
        let commit = system.commit();
        if csn >= commit.progress().watermark() && commit.listing().keeps_predecessors() {
            let mut predecessors = self.predecessors.get();
            predecessors.overflow();
            self.predecessors.set(predecessors);
        }
    }

    /// Notes that the transaction read a leaf.
    #[inline]
    pub(super) fn observe_leaf(&self, system: &TransactionSystem, page: PageId) {
        if let Some(clock) = &self.clock {
            observe_clock(system, clock, page);
        }
    }

    /// Notes that the transaction changed a leaf.
    #[inline]
    pub(super) fn changed_leaf(&self, system: &TransactionSystem, page: PageId) {
        if let Some(clock) = &self.clock {
            observe_clock(system, clock, page);
            let log = system.commit().listing().log_of_page(page).unwrap_or(clock.home());
            clock.change_page(&system.page_clocks, page, log);
        }
    }

    /// Notes a version of a transaction that may not be committed. Returns false if the
    /// dependencies of that transaction are not known.
    #[inline]
    fn observe_version(&self, system: &TransactionSystem, csn: Csn) -> bool {
        let Some(clock) = &self.clock else { return true };
        let Some((gsn, log)) = system.commit().listing().clock_of(csn) else { return false };
        clock.raise(gsn, log, system.commit().listing().reach());
        clock.observe_log(log);
        true
    }

    /// Returns the clock of the transaction, and whether everything that it observed and that may
    /// not be durable is in `log`, to which it commits; `None` if it commits to several logs.
    pub(super) fn clock(&self, log: Option<LogId>) -> (Gsn, bool) {
        let Some(clock) = &self.clock else { return (Gsn(0), false) };
        (clock.gsn(), clock.is_alone(log))
    }

    /// Raises the clocks of the changed leaves to the GSN that the transaction drew, before its
    /// commit is visible.
    #[inline]
    pub(super) fn raise_changed(&self, system: &TransactionSystem, ticket: Ticket) {
        let Some(clock) = &self.clock else { return };
        // If the watermark has passed the CSN, no transaction needs to wait for it.
        if let Some((gsn, log)) = system.commit().listing().clock_of(ticket.csn) {
            clock.raise_changed(&system.page_clocks, gsn, log);
        }
    }

    /// Returns the bytes allocated for lists.
    pub(super) fn list_bytes(&self) -> usize {
        self.clock.as_ref().map_or(0, TransactionClock::list_bytes)
    }
}

#[cold]
fn observe_clock(system: &TransactionSystem, clock: &TransactionClock, page: PageId) {
    clock.observe_page(&system.page_clocks, page, system.commit().listing().reach());
}
