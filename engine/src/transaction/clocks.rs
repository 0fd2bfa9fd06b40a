//! The clocks of pages, for the dependency rules that go by them.
//!
//! A page's clock is the highest GSN of a transaction that changed it, and the log of that one. It stays when the page leaves memory, and when
//! the page is freed: whoever gets the page next then waits for more than it needs. Only leaves have clocks: splits, which change
//! the nodes above them, are not logged, and nobody depends on them.
//!
//! They live beside the pages, in chunks that are made when a page in them is first changed. Without such a rule there are none.

use super::active::ActiveTransaction;
use crate::base::{Account, Charge, Csn, Gsn, LogId, PageId};
use crate::commit::Ticket;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::cell::{Cell, RefCell};
use std::sync::{Arc, OnceLock};

/// Pages of a chunk.
const CHUNK: usize = if cfg!(loom) { 2 } else { 4096 };
/// Chunks. Pages beyond them share clocks.
const CHUNKS: usize = match () {
    () if cfg!(loom) => 1,
    () if cfg!(any(miri, feature = "shuttle")) => 16,
    () => 16_384,
};
const LOG_BITS: u32 = 8;
/// Room for the leaves that a transaction changes.
const LEAVES_FIRST: usize = 16;

type Chunk = Box<[AtomicU64]>;

/// See the module's text.
#[derive(Debug)]
pub(super) struct PageClocks {
    /// Made at the first change.
    chunks: OnceLock<Box<[OnceLock<Chunk>]>>,
    /// For chunks, and the list of them.
    charge: Charge,
}

impl PageClocks {
    /// None yet; those that are made are charged to `memory`.
    pub(super) fn new(memory: &Arc<Account>) -> PageClocks {
        PageClocks { chunks: OnceLock::new(), charge: memory.charge(0) }
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
        let chunks = self.chunks.get_or_init(|| self.charged(CHUNKS, OnceLock::new));
        let chunk = chunks[chunk].get_or_init(|| self.charged(CHUNK, || AtomicU64::new(0)));
        chunk[at].fetch_max(gsn.0 << LOG_BITS | u64::from(log.0 & 0xff), Ordering::AcqRel);
    }

    fn charged<T>(&self, count: usize, new: impl Fn() -> T) -> Box<[T]> {
        self.charge.add((count * size_of::<T>()) as u64);
        (0..count).map(|_| new()).collect()
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
    /// Leaves that it changed, some of them more than once.
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

    /// It met something of `log`; up to `reach` all is durable.
    fn raise(&self, gsn: Gsn, log: LogId, reach: Gsn) {
        self.gsn.set(self.gsn.get().max(gsn));
        if gsn > reach {
            self.meet(log);
        }
    }

    fn meet_page(&self, pages: &PageClocks, page: PageId, reach: Gsn) {
        let (gsn, log) = pages.get(page);
        self.raise(gsn, log, reach);
    }

    /// It changes a leaf, which it has met; the change will be in `log`.
    fn change_page(&self, pages: &PageClocks, page: PageId, log: LogId) {
        let gsn = Gsn(self.gsn.get().0 + 1);
        self.gsn.set(gsn);
        pages.raise(page, gsn, log);
        let mut changed = self.changed.borrow_mut();
        if changed.last() == Some(&page) {
            return;
        }
        // Leaves that are there twice go before the list grows.
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

    /// Bytes allocated.
    pub(super) fn list_bytes(&self) -> usize {
        self.changed.borrow().capacity() * size_of::<PageId>()
    }

    /// Its record drew `gsn` in `log`.
    fn raise_changed(&self, pages: &PageClocks, gsn: Gsn, log: LogId) {
        for page in self.changed.borrow().iter() {
            pages.raise(*page, gsn, log);
        }
    }

    /// Whether all it met that may not be durable is in `log`; none: it commits to several.
    fn is_alone(&self, log: Option<LogId>) -> bool {
        match self.met.get() {
            Met::Nothing => log.is_some(),
            Met::One(met) => log == Some(met),
            Met::Several => false,
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
        clock.meet_page(&self.system.page_clocks, page, self.system.commit().reach());
    }

    /// Changed a leaf.
    #[inline]
    pub(super) fn changed_leaf(&self, page: PageId) {
        if let Some(clock) = &self.clock {
            self.met_page_clock(clock, page);
            let log = self.system.commit().log_of_page(page).unwrap_or(clock.home);
            clock.change_page(&self.system.page_clocks, page, log);
        }
    }

    /// Met a version of a transaction that may not be committed. False if what that depends on is not known.
    #[inline]
    pub(super) fn met_version(&self, csn: Csn) -> bool {
        let Some(clock) = &self.clock else { return true };
        let Some((gsn, log)) = self.system.commit().clock_of(csn) else { return false };
        clock.raise(gsn, log, self.system.commit().reach());
        clock.meet(log);
        true
    }

    /// Its clock, and whether all it met is in `log`, which it commits to if that is one, as far as it may not be durable.
    pub(super) fn clock_now(&self, log: Option<LogId>) -> (Gsn, bool) {
        let Some(clock) = &self.clock else { return (Gsn(0), false) };
        (clock.gsn.get(), self.chunks.is_none() && clock.is_alone(log))
    }

    /// It drew its GSN: the leaves that it changed get it. Before anybody sees that it is committed.
    pub(super) fn raise_changed(&self, ticket: Ticket) {
        let Some(clock) = &self.clock else { return };
        // If W has passed it nobody need wait for it.
        if let Some((gsn, log)) = self.system.commit().clock_of(ticket.csn) {
            clock.raise_changed(&self.system.page_clocks, gsn, log);
        }
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;

    #[test]
    fn a_clock_only_rises_and_is_of_one_page() {
        let clocks = PageClocks::new(&Arc::default());
        assert_eq!(clocks.get(PageId(7)), (Gsn(0), LogId(0)));
        clocks.raise(PageId(7), Gsn(10), LogId(3));
        clocks.raise(PageId(7), Gsn(9), LogId(4));
        assert_eq!(clocks.get(PageId(7)), (Gsn(10), LogId(3)));
        assert_eq!(clocks.get(PageId(8)), (Gsn(0), LogId(0)));
        clocks.raise(PageId(u32::MAX.into()), Gsn(11), LogId(255));
        assert_eq!(clocks.get(PageId(u32::MAX.into())), (Gsn(11), LogId(255)));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;
    use loom::thread::spawn;

    const PAGE: PageId = PageId(1);

    fn pages() -> Arc<PageClocks> {
        let pages = Arc::new(PageClocks::new(&std::sync::Arc::default()));
        // Made here: loom sees nothing of the making.
        pages.raise(PAGE, Gsn(1), LogId(0));
        pages
    }

    #[test]
    fn a_page_has_the_highest_clock_and_its_own_log_whoever_raises_it_beside() {
        loom::model(|| {
            let pages = pages();
            let raising = [(5, 1), (7, 2)].map(|(gsn, log)| {
                let theirs = pages.clone();
                spawn(move || theirs.raise(PAGE, Gsn(gsn), LogId(log)))
            });
            let known = [(Gsn(1), LogId(0)), (Gsn(5), LogId(1)), (Gsn(7), LogId(2))];
            let (first, second) = (pages.get(PAGE), pages.get(PAGE));
            assert!(known.contains(&first) && known.contains(&second) && first <= second);
            raising.into_iter().for_each(|thread| thread.join().expect("no panic"));
            assert_eq!(pages.get(PAGE), (Gsn(7), LogId(2)));
        });
    }

    /// Two change a leaf, in any order; the second to be drawn is above the first if it saw its version.
    #[test]
    fn who_sees_a_change_has_a_clock_above_it_and_knows_its_log() {
        loom::model(|| {
            let pages = pages();
            let visible = Arc::new(AtomicBool::new(false));
            let (theirs, stamp) = (pages.clone(), visible.clone());
            let writer = spawn(move || {
                let clock = TransactionClock::new(LogId(1));
                clock.meet_page(&theirs, PAGE, Gsn(1));
                clock.change_page(&theirs, PAGE, LogId(1));
                // Its log was ahead.
                clock.raise_changed(&theirs, Gsn(40), LogId(1));
                stamp.store(true, Ordering::Release);
            });
            let clock = TransactionClock::new(LogId(2));
            let seen = visible.load(Ordering::Acquire);
            clock.meet_page(&pages, PAGE, Gsn(1));
            clock.change_page(&pages, PAGE, LogId(2));
            if seen {
                assert!(clock.gsn.get() > Gsn(40), "{:?} saw 40", clock.gsn.get());
                assert!(!clock.is_alone(Some(LogId(2))), "what it saw is in log 1");
            }
            writer.join().expect("no panic");
            let (gsn, _) = pages.get(PAGE);
            assert!(gsn >= Gsn(40) && gsn >= clock.gsn.get(), "the page fell behind");
        });
    }
}
