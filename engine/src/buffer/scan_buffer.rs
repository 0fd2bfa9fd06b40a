//! The scan buffer: a long scan reads images of evicted pages into memory of its own, and the pages
//! stay evicted.
//!
//! A scan that is larger than memory gains nothing from bringing pages in. Each page pushes out
//! another, which other threads may still need. And giving page memory back to the system and
//! taking it again costs as much as the rest of the scan.
//!
//! ```text
//!   scan      fill(A)   fill(B): has A       fill(C): has B
//!               |        |    uses A          |    uses B
//!   thread      +-- A ---++------- B ---------++------- C ...
//! ```
//!
//! 1. A copy counts only as long as its page is still Evicted with the version that it had before
//!    the image was read. Each way out of that state, and each way back, leaves another version
//!    ([`super::latch`]). So the copy equals the page at that moment, as if it had been brought in
//!    then.
//! 2. All scan buffers together take at most an eighth of the memory, and are charged to the
//!    account.
//! 3. A scan buffer is only a help: a page without a copy is brought into memory as always, also
//!    one that cannot be read.

use super::bytes::{PageBytes, PageBytesMut};
use super::frames::{FrameTable, STAMPED_IMAGE};
use super::latch::Version;
use super::memory::PageMemory;
use super::region::Region;
use super::source::PageSource;
use crate::base::account::Charge;
use crate::base::planted::{self, Bug};
use crate::base::{PageId, allocation_failure};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Event, Mutex};
use std::sync::Arc;

/// Pages of a window, at most; and the part of memory that a window takes at most.
const WINDOW_PAGES_MAX: u64 = 256;
const WINDOW_PART: u64 = 64;
/// The part of memory that all windows take at most.
const ALL_WINDOWS_PART: u64 = 8;
/// The part of memory that a scan brings in before it uses a buffer, and that must not be free
/// then.
const LONG_SCAN_PART: u64 = 8;

/// The state that all scan buffers share.
#[derive(Default)]
pub(super) struct ScanBuffers {
    /// Leaves that a scan brings in before it uses a buffer, however much memory is free; `None`
    /// lets memory decide.
    from_leaves: Option<u64>,
    /// Bytes of all windows.
    bytes: AtomicU64,
    /// Pages of which scans have used copies.
    used: AtomicU64,
}

impl ScanBuffers {
    pub(super) fn new(from_leaves: Option<u64>) -> ScanBuffers {
        ScanBuffers { from_leaves, ..ScanBuffers::default() }
    }

    /// See [`super::Pool::needs_scan_buffer`].
    pub(super) fn are_needed(&self, memory: &PageMemory, pages: u64) -> bool {
        if let Some(from_leaves) = self.from_leaves {
            return pages >= from_leaves;
        }
        let max = memory.resident_pages_max();
        pages > max / LONG_SCAN_PART && memory.resident_pages() > max - max / LONG_SCAN_PART
    }

    /// Pages of which scans have used copies.
    pub(super) fn pages_used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// Pages of a window, at most.
pub(super) fn window_pages(frames: &FrameTable) -> usize {
    (frames.frames_max() / WINDOW_PART).clamp(2, WINDOW_PAGES_MAX) as usize
}

/// A page to be copied.
struct Wanted {
    page: PageId,
    /// Its version before its image was read.
    version: Version,
    own_stamps: bool,
    /// True once the copy is complete.
    is_read: bool,
}

/// Memory for copies.
struct Window {
    wanted: Vec<Wanted>,
    /// One image after the other, in mapped memory, which goes back to the system as soon as the
    /// window is dropped.
    images: Region<AtomicU64>,
    page_bytes: usize,
    all: Arc<ScanBuffers>,
    charge: Charge,
}

impl Window {
    /// Makes a window; `None` if there is no memory for it.
    fn new(memory: &PageMemory, all: &Arc<ScanBuffers>) -> Option<Window> {
        let (pages, page_bytes) = (window_pages(&memory.frames), memory.frames.page_bytes());
        let bytes = (pages * page_bytes) as u64;
        let most = memory.frames.memory_bytes() / ALL_WINDOWS_PART;
        let one_more = |now| (now + bytes <= most).then_some(now + bytes);
        if allocation_failure::is_injected() {
            return None;
        }
        let images = Region::new(pages * (page_bytes / size_of::<u64>())).ok()?;
        all.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        let wanted = Vec::with_capacity(pages);
        let charge = memory.account().charge(bytes);
        // Pages may have to leave for it.
        memory.check_budget();
        Some(Window { wanted, images, page_bytes, all: all.clone(), charge })
    }

    fn image(&self, index: usize) -> &[AtomicU64] {
        let words = self.page_bytes / size_of::<u64>();
        &self.images[index * words..][..words]
    }

    /// Notes the evicted ones of `pages`, as many as fit, for copying.
    fn want(&mut self, frames: &FrameTable, pages: &[PageId]) {
        let wanted = |page: &PageId| {
            let entry = frames.entry_of(*page)?;
            let version = entry.latch.evicted_version()?;
            let own_stamps = entry.flags() & STAMPED_IMAGE != 0;
            Some(Wanted { page: *page, version, own_stamps, is_read: false })
        };
        self.wanted.clear();
        self.wanted.extend(pages.iter().filter_map(wanted).take(window_pages(frames)));
        debug_assert!(
            (self.wanted.len() * self.page_bytes) as u64 <= self.charge.bytes(),
            "the copies of all noted pages fit in the window"
        );
    }

    /// Copies the images of the noted pages.
    fn read(&mut self, source: &dyn PageSource) {
        let pages: Vec<_> = self.wanted.iter().map(|wanted| (wanted.page, wanted.own_stamps)).collect();
        source.read_pages(&pages, &mut |index, image| match image {
            Ok(image) => {
                debug_assert_eq!(image.len(), self.page_bytes, "an image is as long as a page");
                debug_assert!(!self.wanted[index].is_read, "each page is read once");
                PageBytesMut::new(self.image(index)).copy_from(0, image);
                self.wanted[index].is_read = true;
            }
            Err(error) => tracing::debug!(%error, page = %pages[index].0, "not copied"),
        });
    }

    fn has(&self, page: PageId) -> bool {
        self.wanted.iter().any(|wanted| wanted.page == page)
    }

    /// Returns the page's copy, if it still equals the page.
    fn find(&self, frames: &FrameTable, page: PageId) -> Option<PageBytes<'_>> {
        let index = self.wanted.iter().position(|wanted| wanted.page == page)?;
        let wanted = &self.wanted[index];
        let now = frames.entry_of(page)?.latch.evicted_version();
        let is_current = now == Some(wanted.version) || planted::is(Bug::CopyIsStale);
        (wanted.is_read && is_current).then(|| PageBytes::new(self.image(index)))
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let before = self.all.bytes.fetch_sub(self.charge.bytes(), Ordering::Relaxed);
        debug_assert!(before >= self.charge.bytes(), "each window is counted");
    }
}

/// The place where a thread hands a window over to its scan.
#[derive(Default)]
struct Handover {
    window: Mutex<Option<Window>>,
    /// True once the window is there, or will never be.
    is_over: AtomicBool,
    over: Event,
}

impl Handover {
    /// Waits for the window. Returns `None` if the thread that read it could not hand it over.
    fn wait(&self) -> Option<Window> {
        loop {
            let ticket = self.over.ticket();
            if self.is_over.load(Ordering::SeqCst) {
                return self.window.lock().take();
            }
            self.over.wait(ticket, None);
        }
    }
}

/// Ends the handover when it is dropped.
struct EndOfHandover(Arc<Handover>);

impl Drop for EndOfHandover {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
        self.0.over.notify_all();
    }
}

/// A window that another thread reads. Dropping it, also by a panic, hands the window over with the
/// copies made so far.
pub(super) struct Reading {
    window: Option<Window>,
    /// A field, so that the scan is woken even if storing the window panics.
    to: EndOfHandover,
}

impl Reading {
    pub(super) fn read(&mut self, source: &dyn PageSource) {
        if let Some(window) = &mut self.window {
            window.read(source);
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        *self.to.0.window.lock() = self.window.take();
    }
}

/// A window that is being read: its pages, and where it will be handed over.
struct Coming {
    pages: Vec<PageId>,
    from: Arc<Handover>,
}

/// The copies of one scan; empty at first.
#[derive(Default)]
pub struct ScanBuffer {
    now: Option<Window>,
    coming: Option<Coming>,
}

impl std::fmt::Debug for ScanBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_empty() { "ScanBuffer(empty)" } else { "ScanBuffer(..)" })
    }
}

impl ScanBuffer {
    /// Returns whether there is no copy to be found.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.now.is_none() && self.coming.is_none()
    }

    /// Begins a window with copies of the evicted ones of `pages`, which the caller has read: see
    /// [`super::Pool::fill_scan_buffer`].
    pub(super) fn begin(
        &mut self,
        memory: &PageMemory,
        all: &Arc<ScanBuffers>,
        pages: &[PageId],
    ) -> Option<Reading> {
        let spare = self.now.take();
        self.await_coming();
        let mut window = spare.or_else(|| Window::new(memory, all))?;
        window.want(&memory.frames, pages);
        let pages = window.wanted.iter().map(|wanted| wanted.page).collect();
        let from = Arc::<Handover>::default();
        self.coming = Some(Coming { pages, from: from.clone() });
        Some(Reading { window: Some(window), to: EndOfHandover(from) })
    }

    fn await_coming(&mut self) {
        if let Some(coming) = self.coming.take() {
            self.now = coming.from.wait();
        }
    }

    /// Returns the page's copy, if there is one and it equals the page. May wait until the copy has
    /// been read; the caller holds no latch.
    pub fn find(&mut self, frames: &FrameTable, page: PageId) -> Option<PageBytes<'_>> {
        let is_coming = self.coming.as_ref().is_some_and(|coming| coming.pages.contains(&page));
        if is_coming && !self.now.as_ref().is_some_and(|now| now.has(page)) {
            // The scan is past the previous window.
            self.await_coming();
        }
        let window = self.now.as_ref()?;
        window.find(frames, page).inspect(|_| {
            window.all.used.fetch_add(1, Ordering::Relaxed);
        })
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
