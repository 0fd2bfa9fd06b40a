//! The clocks of pages, for the dependency rules that go by them.
//!
//! A page's clock is the highest GSN of a transaction that changed it, and the log of that one. It stays when the page leaves memory, and when
//! the page is freed: whoever gets the page next then waits for more than it needs. Only leaves have clocks: splits, which change
//! the nodes above them, are not logged, and nobody depends on them.
//!
//! They live beside the pages, in chunks that are made when a page in them is first changed. Without such a rule there are none.

use super::active::ActiveTransaction;
use crate::base::{Csn, Gsn, LogId, PageId};
use crate::commit::{Commit, Ticket};
use crate::sync::atomic::{AtomicU64, Ordering};
use std::cell::{Cell, RefCell};
use std::sync::OnceLock;

/// Pages of a chunk.
const CHUNK: usize = 4096;
/// Chunks. Pages beyond them share clocks.
const CHUNKS: usize = if cfg!(any(miri, feature = "shuttle")) { 16 } else { 16_384 };
const LOG_BITS: u32 = 8;

type Chunk = Box<[AtomicU64]>;

/// See the module's text.
#[derive(Debug)]
pub(super) struct PageClocks {
    /// Made at the first change.
    chunks: OnceLock<Box<[OnceLock<Chunk>]>>,
}

impl PageClocks {
    pub(super) fn new() -> PageClocks {
        PageClocks { chunks: OnceLock::new() }
    }

    fn place(page: PageId) -> (usize, usize) {
        let page = page.0 as usize;
        (page / CHUNK % CHUNKS, page % CHUNK)
    }

    /// The clock of `page`, and the log of whoever raised it.
    pub(super) fn get(&self, page: PageId) -> (Gsn, LogId) {
        let (chunk, at) = PageClocks::place(page);
        let chunk = self.chunks.get().and_then(|chunks| chunks[chunk].get());
        let word = chunk.map_or(0, |chunk| chunk[at].load(Ordering::Acquire));
        (Gsn(word >> LOG_BITS), LogId((word & 0xff) as u32))
    }

    /// Raises the clock of `page` to `gsn`, of a transaction of `log`.
    pub(super) fn raise(&self, page: PageId, gsn: Gsn, log: LogId) {
        let (chunk, at) = PageClocks::place(page);
        let chunks = self.chunks.get_or_init(|| (0..CHUNKS).map(|_| OnceLock::new()).collect());
        let chunk = chunks[chunk].get_or_init(|| (0..CHUNK).map(|_| AtomicU64::new(0)).collect());
        chunk[at].fetch_max(gsn.0 << LOG_BITS | u64::from(log.0 & 0xff), Ordering::AcqRel);
    }
}

/// The clock of a transaction.
#[derive(Debug)]
pub(super) struct TransactionClock {
    gsn: Cell<Gsn>,
    /// The log of what it met that may not be durable everywhere.
    met: Cell<Met>,
    /// The log of the thread that began it.
    home: LogId,
    /// Leaves that it changed.
    changed: RefCell<Vec<PageId>>,
}

/// Through which logs something was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Met {
    Nothing,
    One(LogId),
    Several,
}

impl TransactionClock {
    pub(super) fn new(home: LogId) -> TransactionClock {
        let (gsn, met) = (Cell::new(Gsn(0)), Cell::new(Met::Nothing));
        TransactionClock { gsn, met, home, changed: RefCell::default() }
    }

    fn meet(&self, log: LogId) {
        self.met.set(match self.met.get() {
            Met::Nothing => Met::One(log),
            Met::One(one) if one == log => Met::One(one),
            Met::One(_) | Met::Several => Met::Several,
        });
    }

    fn raise(&self, gsn: Gsn, log: LogId, commit: &Commit) {
        self.gsn.set(self.gsn.get().max(gsn));
        if gsn > commit.reach() {
            self.meet(log);
        }
    }
}

impl ActiveTransaction {
    /// Looked at a leaf.
    #[inline]
    pub(super) fn met_leaf(&self, page: PageId) {
        if let Some(clock) = &self.clock {
            self.met_page_clock(clock, page);
        }
    }

    #[cold]
    fn met_page_clock(&self, clock: &TransactionClock, page: PageId) {
        let (gsn, log) = self.system.page_clocks.get(page);
        clock.raise(gsn, log, self.system.commit());
    }

    /// Changed a leaf.
    #[inline]
    pub(super) fn changed_leaf(&self, page: PageId) {
        if let Some(clock) = &self.clock {
            self.met_page_clock(clock, page);
            let gsn = Gsn(clock.gsn.get().0 + 1);
            clock.gsn.set(gsn);
            let log = self.system.commit().log_of_page(page).unwrap_or(clock.home);
            self.system.page_clocks.raise(page, gsn, log);
            let mut changed = clock.changed.borrow_mut();
            if !changed.contains(&page) {
                changed.push(page);
            }
        }
    }

    /// Met a version of a transaction that may not be committed. False if what that depends on is not known.
    #[inline]
    pub(super) fn met_version(&self, csn: Csn) -> bool {
        let Some(clock) = &self.clock else { return true };
        let Some((gsn, log)) = self.system.commit().clock_of(csn) else { return false };
        clock.raise(gsn, log, self.system.commit());
        clock.meet(log);
        true
    }

    /// Its clock, and whether all it met is in `log`, which it commits to if that is one, as far as it may not be durable.
    pub(super) fn clock_now(&self, log: Option<LogId>) -> (Gsn, bool) {
        let Some(clock) = &self.clock else { return (Gsn(0), false) };
        let alone = self.chunks.is_none()
            && match clock.met.get() {
                Met::Nothing => log.is_some(),
                Met::One(met) => log == Some(met),
                Met::Several => false,
            };
        (clock.gsn.get(), alone)
    }

    /// It drew its GSN: the leaves that it changed get it. Before anybody sees that it is committed.
    pub(super) fn raise_changed(&self, ticket: Ticket) {
        let Some(clock) = &self.clock else { return };
        // If W has passed it nobody need wait for it.
        if let Some((gsn, log)) = self.system.commit().clock_of(ticket.csn) {
            for page in clock.changed.borrow().iter() {
                self.system.page_clocks.raise(*page, gsn, log);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_only_rises_and_is_of_one_page() {
        let clocks = PageClocks::new();
        assert_eq!(clocks.get(PageId(7)), (Gsn(0), LogId(0)));
        clocks.raise(PageId(7), Gsn(10), LogId(3));
        clocks.raise(PageId(7), Gsn(9), LogId(4));
        assert_eq!(clocks.get(PageId(7)), (Gsn(10), LogId(3)));
        assert_eq!(clocks.get(PageId(8)), (Gsn(0), LogId(0)));
        clocks.raise(PageId(u32::MAX.into()), Gsn(11), LogId(255));
        assert_eq!(clocks.get(PageId(u32::MAX.into())), (Gsn(11), LogId(255)));
    }
}
