//! The clocks of pages, for the dependency rules that compare clocks.
//!
//! A page's clock is the highest GSN of a transaction that changed the page, and the log of that
//! transaction. The clock stays when the page leaves memory, and when the page is freed; the next
//! user of the page then waits for more than it needs. Only leaves have clocks: splits, which
//! change the nodes above, are not logged, and no transaction depends on them.
//!
//! Clocks live beside the pages, in chunks that are created when a page in them is first changed.
//! Without such a rule there are none.

use crate::base::scale::SCALE;
use crate::base::{Account, Charge, Gsn, LogId, PageId};
use crate::sync::atomic::{AtomicU64, Ordering};
use std::cell::{Cell, RefCell};
use std::sync::{Arc, OnceLock};

/// Pages of a chunk.
const CHUNK: usize = SCALE.clock_chunk;
/// Chunks. Pages beyond them share clocks.
const CHUNKS: usize = SCALE.clock_chunks;
const LOG_BITS: u32 = 8;
/// Room for the leaves that a transaction changes.
const LEAVES_FIRST: usize = 16;

type Chunk = Box<[AtomicU64]>;

/// See the module's text.
#[derive(Debug)]
pub(super) struct PageClocks {
    /// Created at the first change.
    chunks: OnceLock<Box<[OnceLock<Chunk>]>>,
    /// For the chunks, and for the list of chunks.
    charge: Charge,
}

impl PageClocks {
    /// Returns an empty set, which charges its chunks to `memory`.
    pub(super) fn new(memory: &Arc<Account>) -> PageClocks {
        PageClocks { chunks: OnceLock::new(), charge: memory.charge(0) }
    }

    fn place(page: PageId) -> (usize, usize) {
        let page = page.0 as usize;
        (page / CHUNK % CHUNKS, page % CHUNK)
    }

    /// Returns the clock of `page`, and the log of the transaction that raised it.
    pub(super) fn get(&self, page: PageId) -> (Gsn, LogId) {
        let (chunk, at) = PageClocks::place(page);
        let chunk = self.chunks.get().and_then(|chunks| chunks[chunk].get());
        let word = chunk.map_or(0, |chunk| chunk[at].load(Ordering::Acquire));
        (Gsn(word >> LOG_BITS), LogId((word & 0xff) as u32))
    }

    /// Raises the clock of `page` to `gsn`, of a transaction of `log`.
    pub(super) fn raise(&self, page: PageId, gsn: Gsn, log: LogId) {
        let (chunk, at) = PageClocks::place(page);
        let chunks = self.chunks.get_or_init(|| self.charged(CHUNKS, OnceLock::new));
        let chunk = chunks[chunk].get_or_init(|| self.charged(CHUNK, || AtomicU64::new(0)));
        chunk[at].fetch_max(gsn.0 << LOG_BITS | u64::from(log.0 & 0xff), Ordering::AcqRel);
    }

    fn charged<T>(&self, count: usize, new: impl Fn() -> T) -> Box<[T]> {
        self.charge.add((count * size_of::<T>()) as u64);
        (0..count).map(|_| new()).collect()
    }
}

/// The clock of a transaction in progress.
#[derive(Debug)]
pub(super) struct TransactionClock {
    gsn: Cell<Gsn>,
    /// The logs of changes that the transaction observed and that may not be durable everywhere.
    observed: Cell<Logs>,
    /// The log of the thread that began the transaction.
    home: LogId,
    /// Leaves that the transaction changed; some occur more than once.
    changed: RefCell<Vec<PageId>>,
}

/// The logs that hold a set of changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Logs {
    Nothing,
    One(LogId),
    Several,
}

impl TransactionClock {
    pub(super) fn gsn(&self) -> Gsn {
        self.gsn.get()
    }

    pub(super) fn home(&self) -> LogId {
        self.home
    }

    pub(super) fn new(home: LogId) -> TransactionClock {
        let (gsn, observed) = (Cell::new(Gsn(0)), Cell::new(Logs::Nothing));
        TransactionClock { gsn, observed, home, changed: RefCell::default() }
    }

    /// Notes a change in `log` that may not be durable.
    pub(super) fn observe_log(&self, log: LogId) {
        self.observed.set(match self.observed.get() {
            Logs::Nothing => Logs::One(log),
            Logs::One(one) if one == log => Logs::One(one),
            Logs::One(_) | Logs::Several => Logs::Several,
        });
    }

    /// Notes a change with `gsn` in `log`. Everything up to `reach` is durable.
    pub(super) fn raise(&self, gsn: Gsn, log: LogId, reach: Gsn) {
        self.gsn.set(self.gsn.get().max(gsn));
        if gsn > reach {
            self.observe_log(log);
        }
    }

    pub(super) fn observe_page(&self, pages: &PageClocks, page: PageId, reach: Gsn) {
        let (gsn, log) = pages.get(page);
        self.raise(gsn, log, reach);
    }

    /// Notes that the transaction changes a leaf, which it has observed. The change will be in
    /// `log`.
    pub(super) fn change_page(&self, pages: &PageClocks, page: PageId, log: LogId) {
        let gsn = Gsn(self.gsn.get().0 + 1);
        self.gsn.set(gsn);
        pages.raise(page, gsn, log);
        let mut changed = self.changed.borrow_mut();
        if changed.last() == Some(&page) {
            return;
        }
        // Duplicates are removed before the list grows.
        if changed.len() == changed.capacity() {
            changed.sort_unstable();
            changed.dedup();
            let (leaves, room) = (changed.len(), changed.capacity());
            if leaves >= room / 2 {
                changed.reserve(room.max(LEAVES_FIRST));
            }
        }
        changed.push(page);
    }

    /// Returns the bytes allocated for the list of leaves.
    pub(super) fn list_bytes(&self) -> usize {
        self.changed.borrow().capacity() * size_of::<PageId>()
    }

    /// Raises the clocks of the changed leaves to `gsn`, which the record drew in `log`.
    pub(super) fn raise_changed(&self, pages: &PageClocks, gsn: Gsn, log: LogId) {
        for page in self.changed.borrow().iter() {
            pages.raise(*page, gsn, log);
        }
    }

    /// Returns whether everything that the transaction observed and that may not be durable is in
    /// `log`; false if the transaction commits to several logs (`None`).
    pub(super) fn is_alone(&self, log: Option<LogId>) -> bool {
        match self.observed.get() {
            Logs::Nothing => log.is_some(),
            Logs::One(one) => log == Some(one),
            Logs::Several => false,
        }
    }
}

#[cfg(test)]
mod tests;
