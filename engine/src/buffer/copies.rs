//! A long scan's copies: images of pages that are not in memory are read into memory of its own, and the pages stay where they are.
//!
//! A scan that is larger than memory gains nothing from bringing pages in: each of them pushes another one out, which somebody may still
//! need, and giving page memory back to the system and taking it again costs as much as the rest of the scan.
//!
//! ```text
//!   scan      ask(A)   ask(B): has A        ask(C): has B
//!               |        |    uses A          |    uses B
//!   thread      +-- A ---++------- B ---------++------- C ...
//! ```
//!
//! 1. A copy is used only while its page is still Evicted with the version that it had before the image was read. Each way out of
//!    that state, and each way back, leaves another version ([`super::latch`]). So the copy is what the page is at that moment, as if it had
//!    been brought in then.
//! 2. The copies of all scans take at most an eighth of the memory, and are charged to the account.
//! 3. It is only a help: what is not among the copies is brought into memory as ever, and so is what could not be read.

use super::pool::{Pool, STAMPED_IMAGE};
use super::read_ahead::Work;
use super::region::Region;
use super::{PageBytes, PageBytesMut, Version};
use crate::base::account::Charge;
use crate::base::planted::{self, Bug};
use crate::base::{PageId, allocation_failure};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Event, Mutex};
use std::sync::Arc;

/// Pages of a window, at most; and of the memory, at most.
const WINDOW_PAGES_MAX: u64 = 256;
const WINDOW_PART: u64 = 64;
/// Of the memory, what all windows take at most.
const ALL_WINDOWS_PART: u64 = 8;
/// Of the memory, what a scan brings in before it has copies made instead, and what must not be free then.
const LONG_SCAN_PART: u64 = 8;

/// Of all scans.
#[derive(Default)]
pub(super) struct AllCopies {
    /// Bytes of the windows that there are.
    bytes: AtomicU64,
    /// Pages that scans have used copies of.
    used: AtomicU64,
}

/// A page that was to be copied.
struct Wanted {
    page: PageId,
    /// Before its image was read.
    version: Version,
    own_stamps: bool,
    /// Its copy is there.
    is_read: bool,
}

/// Memory for copies.
struct Window {
    wanted: Vec<Wanted>,
    /// An image after the other, mapped: it goes back to the system as soon as it is not needed.
    images: Region<AtomicU64>,
    pool: Arc<Pool>,
    charge: Charge,
}

impl Window {
    /// `None` if there is no memory for it.
    fn new(pool: &Arc<Pool>) -> Option<Window> {
        let (pages, page_bytes) = (pool.window_pages(), pool.page_bytes());
        let bytes = (pages * page_bytes) as u64;
        let all = pool.memory_bytes / ALL_WINDOWS_PART;
        let one_more = |now| (now + bytes <= all).then_some(now + bytes);
        if allocation_failure::is_injected() {
            return None;
        }
        let images = Region::new(pages * (page_bytes / size_of::<u64>())).ok()?;
        pool.ahead.copies.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        let wanted = Vec::with_capacity(pages);
        let charge = pool.account.charge(bytes);
        // Pages have to leave for it.
        pool.check_budget();
        Some(Window { wanted, images, pool: pool.clone(), charge })
    }

    fn image(&self, index: usize) -> &[AtomicU64] {
        let words = self.pool.page_bytes() / size_of::<u64>();
        &self.images[index * words..][..words]
    }

    /// Those of `pages` that are not in memory, as many as there is room for, are to be copied.
    fn want(&mut self, pages: &[PageId]) {
        let wanted = |page: &PageId| {
            let entry = self.pool.entry_of(*page)?;
            let version = entry.latch.evicted_version()?;
            let own_stamps = entry.flags() & STAMPED_IMAGE != 0;
            Some(Wanted { page: *page, version, own_stamps, is_read: false })
        };
        self.wanted.clear();
        self.wanted.extend(pages.iter().filter_map(wanted).take(self.pool.window_pages()));
    }

    fn read(&mut self) {
        let pages: Vec<_> = self.wanted.iter().map(|wanted| (wanted.page, wanted.own_stamps)).collect();
        let pool = self.pool.clone();
        pool.source.read_pages(&pages, &mut |index, image| match image {
            Ok(image) => {
                PageBytesMut::new(self.image(index)).copy_from(0, image);
                self.wanted[index].is_read = true;
            }
            Err(error) => tracing::debug!(%error, page = %pages[index].0, "not copied"),
        });
    }

    /// Whether the page was wanted.
    fn has(&self, page: PageId) -> bool {
        self.wanted.iter().any(|wanted| wanted.page == page)
    }

    /// The page's copy, if it still is what the page is.
    fn find(&self, page: PageId) -> Option<PageBytes<'_>> {
        let index = self.wanted.iter().position(|wanted| wanted.page == page)?;
        let wanted = &self.wanted[index];
        let now = self.pool.entry_of(page)?.latch.evicted_version();
        let is_current = now == Some(wanted.version) || planted::is(Bug::CopyIsStale);
        (wanted.is_read && is_current).then(|| PageBytes::new(self.image(index)))
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.pool.ahead.copies.bytes.fetch_sub(self.charge.bytes(), Ordering::Relaxed);
    }
}

/// Where a window is handed over.
#[derive(Default)]
struct Handover {
    window: Mutex<Option<Window>>,
    /// There will be no other.
    is_over: AtomicBool,
    over: Event,
}

impl Handover {
    /// `None` if who read it could not hand it over.
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

/// Says when this is dropped that nothing is handed over any more.
struct Hand(Arc<Handover>);

impl Drop for Hand {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
        self.0.over.notify_all();
    }
}

/// A window that another thread reads. It is handed over when this is dropped, also by a panic: then with what was read.
pub(super) struct Reading {
    window: Option<Window>,
    /// A field, so that who waits is told even if the window cannot be handed over.
    to: Hand,
}

impl Reading {
    pub(super) fn read(&mut self) {
        if let Some(window) = &mut self.window {
            window.read();
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        *self.to.0.window.lock() = self.window.take();
    }
}

/// A window that was asked for: its pages, and where it is handed over.
struct Coming {
    pages: Vec<PageId>,
    from: Arc<Handover>,
}

/// Those of one scan. None at first.
#[derive(Default)]
pub struct Copies {
    now: Option<Window>,
    coming: Option<Coming>,
}

impl std::fmt::Debug for Copies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_empty() { "Copies(none)" } else { "Copies(..)" })
    }
}

impl Copies {
    /// Whether there is no copy to be found.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.now.is_none() && self.coming.is_none()
    }

    /// Has copies made of those of `pages` that are not in memory, in the background if possible; at most [`Pool::window_pages`].
    /// Waits for the copies that it asked for the time before, and forgets those of before that. False if there is no memory for copies.
    /// The caller holds no latch.
    pub fn ask(&mut self, pool: &Arc<Pool>, pages: &[PageId]) -> bool {
        let spare = self.now.take();
        self.await_coming();
        let Some(mut window) = spare.or_else(|| Window::new(pool)) else { return false };
        window.want(pages);
        let pages = window.wanted.iter().map(|wanted| wanted.page).collect();
        let from = Arc::<Handover>::default();
        self.coming = Some(Coming { pages, from: from.clone() });
        let reading = Reading { window: Some(window), to: Hand(from) };
        if let Err(Work::Copy(mut reading)) = pool.ahead.ask(Work::Copy(reading)) {
            // The thread is busy with something else.
            reading.read();
        }
        true
    }

    fn await_coming(&mut self) {
        if let Some(coming) = self.coming.take() {
            self.now = coming.from.wait();
        }
    }

    /// The page's copy, if there is one and it is what the page is now. May wait until it has been read; the caller holds no latch.
    pub fn find(&mut self, page: PageId) -> Option<PageBytes<'_>> {
        let is_coming = self.coming.as_ref().is_some_and(|coming| coming.pages.contains(&page));
        if is_coming && !self.now.as_ref().is_some_and(|now| now.has(page)) {
            // The scan has left the window before behind it.
            self.await_coming();
        }
        let window = self.now.as_ref()?;
        window.find(page).inspect(|_| {
            window.pool.ahead.copies.used.fetch_add(1, Ordering::Relaxed);
        })
    }
}

impl Pool {
    /// Pages that a scan has copied at once, at most.
    #[must_use]
    pub fn window_pages(&self) -> usize {
        (self.resident_max / WINDOW_PART).clamp(2, WINDOW_PAGES_MAX) as usize
    }

    /// Whether a scan that has had so many pages brought in should have copies made from now on: it is long, and what it brings in
    /// pushes other pages out.
    #[must_use]
    pub fn is_better_copied(&self, pages: u64) -> bool {
        let max = self.resident_pages_max();
        if cfg!(feature = "simulation") {
            // Its tables are small. As good as drawn.
            return self.resident_pages() % 2 == 1;
        }
        pages > max / LONG_SCAN_PART && self.resident_pages() > max - max / LONG_SCAN_PART
    }

    /// Pages of which scans have used copies, instead of bringing them in.
    #[must_use]
    pub fn pages_copied(&self) -> u64 {
        self.ahead.copies.used.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_window_that_cannot_be_handed_over_is_told() {
        let from = Arc::<Handover>::default();
        drop(Reading { window: None, to: Hand(from.clone()) });
        assert!(from.wait().is_none());
    }
}
