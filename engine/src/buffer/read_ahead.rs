//! Reading ahead: pages that a scan or redo is going to need are brought in while it works on
//! earlier ones.
//!
//! The scan says which pages come next ([`super::Pool::read_ahead`]). A thread, asleep otherwise,
//! brings in those that are not in memory, many with one read where their images lie side by side.
//! If the thread is busy with another scan's request, the scan brings the pages in itself, as many
//! at once. Reading ahead is only a help: a scan reads a page that is absent when needed alone, and
//! waits for pages that are being brought in.
//!
//! A caller that knows which rows it needs next has the pages of all of them brought in first
//! ([`super::Pool::prefetch`]): the device answers many reads at once in little more time than one.
//!
//! Bounds: a request has at most [`BATCH_MAX`] pages and an eighth of the memory; one request waits
//! for the thread.

use super::loader::{AtLimit, BATCH_MAX, Loader};
use super::memory::PageMemory;
use super::scan_buffer::{Reading, ScanBuffers};
use crate::base::PageId;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Event, Mutex};
use std::sync::Arc;

/// The state of the thread.
#[derive(Default)]
enum Thread {
    #[default]
    Idle,
    Asked(Work),
    Busy,
}

/// A task of the thread for a scan.
pub(super) enum Work {
    /// Brings pages into memory.
    Load(Vec<PageId>),
    /// Fills a window of a scan buffer.
    Fill(Reading),
}

/// The requests of scans, and the state of the thread that serves them.
#[derive(Default)]
pub(super) struct ReadAhead {
    thread: Mutex<Thread>,
    /// Raised when there is a request, or the thread should end.
    asked: Event,
    /// True if the thread runs.
    attached: AtomicBool,
    pub(super) scan_buffers: Arc<ScanBuffers>,
}

impl ReadAhead {
    pub(super) fn new(scan_buffers: Arc<ScanBuffers>) -> ReadAhead {
        ReadAhead { scan_buffers, ..ReadAhead::default() }
    }

    /// Asks the thread to do `work`. Returns the work if the thread is busy or does not run.
    pub(super) fn ask(&self, work: Work) -> Result<(), Work> {
        let mut thread = self.thread.lock();
        if !matches!(*thread, Thread::Idle) || !self.is_attached() {
            return Err(work);
        }
        *thread = Thread::Asked(work);
        drop(thread);
        self.asked.notify_all();
        Ok(())
    }

    fn is_attached(&self) -> bool {
        self.attached.load(Ordering::SeqCst)
    }

    /// Notes that a thread is about to call [`ReadAhead::serve`].
    pub(super) fn attach(&self) {
        self.attached.store(true, Ordering::SeqCst);
    }

    /// Lets [`ReadAhead::serve`] return.
    pub(super) fn stop(&self) {
        self.attached.store(false, Ordering::SeqCst);
        self.asked.notify_all();
    }

    /// Notes that the thread has ended, possibly by a panic. Drops its request, so that no scan
    /// waits for it.
    pub(super) fn detach(&self) {
        self.attached.store(false, Ordering::SeqCst);
        let left = std::mem::take(&mut *self.thread.lock());
        drop(left);
    }

    /// See [`super::Pool::read_ahead`].
    pub(super) fn load(&self, memory: &PageMemory, loader: &Loader, pages: impl Iterator<Item = PageId>) {
        if !self.attached.load(Ordering::Relaxed) {
            return;
        }
        let most = BATCH_MAX.min(memory.resident_pages_max() as usize / 8);
        let wanted: Vec<PageId> = pages.filter(|page| memory.frames.is_evicted(*page)).take(most).collect();
        // A single page is read as fast by the thread that needs it.
        if wanted.len() < 2 {
            return;
        }
        if let Err(Work::Load(wanted)) = self.ask(Work::Load(wanted)) {
            loader.load_all(memory, &wanted);
        }
    }

    /// Serves requests until [`ReadAhead::stop`].
    pub(super) fn serve(&self, memory: &PageMemory, loader: &Loader) {
        let mut done = None;
        while self.is_attached() {
            let ticket = self.asked.ticket();
            let asked = {
                let thread = &mut *self.thread.lock();
                let is_asked = matches!(*thread, Thread::Asked(_));
                std::mem::replace(thread, if is_asked { Thread::Busy } else { Thread::Idle })
            };
            // The scan that gets this window asks for the next at once, and finds this thread idle.
            drop(done.take());
            match asked {
                Thread::Asked(Work::Load(pages)) => {
                    loader.load_batch(memory, &pages, AtLimit::Wait);
                }
                Thread::Asked(Work::Fill(mut reading)) => {
                    reading.read(&*loader.source);
                    done = Some(reading);
                }
                _ if self.is_attached() => self.asked.wait(ticket, None),
                _ => return,
            }
        }
    }
}
