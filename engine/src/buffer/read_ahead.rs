//! Reading ahead: pages that a scan or redo is going to need are brought in while it works on those it has.
//!
//! It tells which pages come next ([`Pool::read_ahead`]); one thread, asleep otherwise, brings in those that are not in
//! memory, many with one read where their images lie side by side. While it is busy with what another scan asked for, the scan
//! brings them in itself, as many at once. It is only a help: what is not there when it is needed, the scan
//! reads alone, and waits for pages that are being brought in.
//!
//! Who knows which rows it needs next has the pages of all of them brought in before it goes on ([`Pool::prefetch`]): the device answers
//! many reads at a time in little more time than one.
//!
//! Bounds: pages of one request are at most [`PAGES_MAX`], and an eighth of the memory; one request waits for the thread.

use super::PageBytesMut;
use super::copies::{AllCopies, Reading};
use super::latch::State;
use super::pool::{FaultClaim, Pool, STAMPED, STAMPED_IMAGE};
use crate::base::{Error, PageId, Result};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Event, Mutex, thread};
use std::sync::Arc;

/// Pages of a request, at most.
pub const PAGES_MAX: usize = 256;

/// Of the memory, what one prefetch claims at once: less than eviction keeps free.
const PREFETCHED_PART: usize = 64;

/// What the thread is doing.
#[derive(Default)]
enum Thread {
    #[default]
    Idle,
    Asked(Work),
    Busy,
}

/// What the thread does for scans.
pub(super) enum Work {
    /// Brings these into memory.
    BringIn(Vec<PageId>),
    /// Copies images.
    Copy(Reading),
}

/// Whether to wait for memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AtLimit {
    /// Only one thread does that, which claims no more than an eighth of the memory.
    Wait,
    /// While no page is claimed.
    WaitForFirst,
}

/// What scans ask for.
#[derive(Default)]
pub(super) struct Requests {
    thread: Mutex<Thread>,
    asked: Event,
    /// Somebody serves them.
    attached: AtomicBool,
    pub(super) copies: AllCopies,
}

impl Requests {
    /// Has the thread do it, unless it is busy, or there is none.
    pub(super) fn ask(&self, work: Work) -> Result<(), Work> {
        let mut thread = self.thread.lock();
        if !matches!(*thread, Thread::Idle) || !self.attached.load(Ordering::SeqCst) {
            return Err(work);
        }
        *thread = Thread::Asked(work);
        drop(thread);
        self.asked.notify_all();
        Ok(())
    }
}

/// The thread `quench-read-ahead`; ends when this is dropped.
#[derive(Debug)]
pub struct ReadAhead {
    pool: Arc<Pool>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

impl ReadAhead {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(pool: &Arc<Pool>) -> Result<ReadAhead> {
        ReadAhead::start_by(pool, |work| thread::spawn("quench-read-ahead", work))
    }

    fn start_by(
        pool: &Arc<Pool>,
        spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> std::io::Result<thread::JoinHandle<()>>,
    ) -> Result<ReadAhead> {
        let alive = Alive(pool.clone());
        // Before it starts: it ends when nobody is attached.
        pool.ahead.attached.store(true, Ordering::SeqCst);
        let thread = spawn(Box::new(move || alive.0.serve_read_ahead()))
            .map_err(|error| Error::io("cannot start the thread that reads ahead", error))?;
        Ok(ReadAhead { pool: pool.clone(), thread: Mutex::new(Some(thread)) })
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.pool.ahead.attached.store(false, Ordering::SeqCst);
        self.pool.ahead.asked.notify_all();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.stop();
    }
}

/// When the thread ends, also by a panic, or is not started at all, nobody asks it any more: it is only a help. Who has asked is not left waiting.
struct Alive(Arc<Pool>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.ahead.attached.store(false, Ordering::SeqCst);
        let left = std::mem::take(&mut *self.0.ahead.thread.lock());
        drop(left);
    }
}

impl Pool {
    /// Whether the page exists and is not in memory.
    fn is_evicted(&self, page: PageId) -> bool {
        self.entry_of(page).is_some_and(|entry| entry.latch.state() == State::Evicted)
    }

    /// Has those of `pages` that are not in memory brought in, in the background if possible. The caller holds no latch.
    pub fn read_ahead(&self, pages: impl Iterator<Item = PageId>) {
        if !self.ahead.attached.load(Ordering::Relaxed) {
            return;
        }
        let most = PAGES_MAX.min(self.resident_pages_max() as usize / 8);
        let wanted: Vec<PageId> = pages.filter(|page| self.is_evicted(*page)).take(most).collect();
        // One page is read as fast by whoever needs it.
        if wanted.len() < 2 {
            return;
        }
        if let Err(Work::BringIn(wanted)) = self.ahead.ask(Work::BringIn(wanted)) {
            self.bring_in_parts(&wanted);
        }
    }

    /// Brings in those of `pages` that are not in memory, many at once, before this returns. The caller holds no latch.
    pub fn prefetch(&self, mut pages: Vec<PageId>) {
        pages.retain(|page| self.is_evicted(*page));
        pages.sort_unstable();
        pages.dedup();
        if pages.len() < 2 {
            return;
        }
        self.bring_in_parts(&pages);
    }

    /// Brings in `pages`, so many at once as find memory. Waits for memory before each part: who needs the pages would wait for it
    /// otherwise, and then read one alone.
    fn bring_in_parts(&self, pages: &[PageId]) {
        let most = PAGES_MAX.min(self.resident_pages_max() as usize / PREFETCHED_PART).max(1);
        let mut left = pages;
        while !left.is_empty() {
            match self.bring_in(&left[..left.len().min(most)], AtLimit::WaitForFirst) {
                0 => return,
                done => left = &left[done..],
            }
        }
    }

    fn serve_read_ahead(&self) {
        let mut done = None;
        while self.ahead.attached.load(Ordering::SeqCst) {
            let ticket = self.ahead.asked.ticket();
            let asked = {
                let thread = &mut *self.ahead.thread.lock();
                let is_asked = matches!(*thread, Thread::Asked(_));
                std::mem::replace(thread, if is_asked { Thread::Busy } else { Thread::Idle })
            };
            // Who is handed these asks for the next at once, and finds this thread idle.
            drop(done.take());
            match asked {
                Thread::Asked(Work::BringIn(pages)) => {
                    self.bring_in(&pages, AtLimit::Wait);
                }
                Thread::Asked(Work::Copy(mut reading)) => {
                    reading.read();
                    done = Some(reading);
                }
                _ if self.ahead.attached.load(Ordering::SeqCst) => self.ahead.asked.wait(ticket, None),
                _ => return,
            }
        }
    }

    /// Brings in those of `pages` that nobody else is bringing in; returns how many it came to before memory was used up, 0 if there is none. Who needs one that
    /// cannot be read finds out for itself.
    fn bring_in(&self, pages: &[PageId], at_limit: AtLimit) -> usize {
        let mut claims = Vec::with_capacity(pages.len());
        let mut done = pages.len();
        for (index, page) in pages.iter().enumerate() {
            let Some(entry) = self.entry_of(*page) else { continue };
            if entry.latch.state() != State::Evicted {
                continue;
            }
            let may_wait =
                at_limit == AtLimit::Wait || at_limit == AtLimit::WaitForFirst && claims.is_empty();
            let has_memory = if may_wait { self.take_memory().is_ok() } else { self.take_memory_now() };
            if !has_memory {
                // Who needs what is claimed waits for it: it is not kept longer. Who has waited for the first in vain gives up.
                done = if claims.is_empty() { 0 } else { index };
                break;
            }
            if entry.latch.claim_evicted() {
                claims.push((*page, FaultClaim::new(self, entry)));
            } else {
                self.give_memory(1);
            }
        }
        let wanted: Vec<(PageId, bool)> =
            claims.iter().map(|(page, claim)| (*page, claim.entry.flags() & STAMPED_IMAGE != 0)).collect();
        self.source.read_pages(&wanted, &mut |index, image| {
            let (page, claim) = &mut claims[index];
            match image {
                Ok(image) => {
                    PageBytesMut::new(self.words(*page)).copy_from(0, image);
                    let own_stamps = wanted[index].1;
                    self.set_flags(claim.entry, if own_stamps { STAMPED | STAMPED_IMAGE } else { 0 });
                    claim.succeed();
                }
                Err(error) => tracing::debug!(%error, %page, "not read ahead"),
            }
        });
        done
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;
    use crate::buffer::test_sources::{Images, PAGE_BYTES};

    #[test]
    fn nobody_asks_a_thread_that_was_not_started() {
        let pool = Pool::new(PAGE_BYTES, 64 * PAGE_BYTES as u64, Arc::new(Images::default())).expect("small");
        let refused = ReadAhead::start_by(&pool, |_| Err(std::io::ErrorKind::WouldBlock.into()));
        assert!(refused.is_err());
        let asked = pool.ahead.ask(Work::BringIn(vec![PageId(1), PageId(2)]));
        assert!(asked.is_err(), "nobody would do it");
        let _thread = ReadAhead::start(&pool).expect("a thread");
        assert!(pool.ahead.ask(Work::BringIn(vec![PageId(1), PageId(2)])).is_ok());
    }
}
