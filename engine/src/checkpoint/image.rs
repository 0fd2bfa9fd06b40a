//! Images of pages as of the checkpoint's CSN, made by the checkpoint or handed over by a structure change.

use crate::base::{PageId, Result};
use crate::buffer::{ExclusiveGuard, PageBytes, Pool};
use crate::device::AlignedBuffer;
use crate::sync::Mutex;
use crate::sync::epoch::pin;
use crate::transaction::CheckpointView;
use crate::tree::image::{EntryMeta, Resolved, image_page};
use std::sync::Arc;

/// A page's image, waiting to be written.
pub(super) struct HandedOver {
    round: u32,
    pub(super) page: PageId,
    pub(super) image: AlignedBuffer,
}

/// Makes images in the current round.
pub(super) struct Imager {
    pool: Arc<Pool>,
    /// The round that is running and its view; none between rounds.
    running: Mutex<Option<(u32, Arc<CheckpointView>)>>,
    handed_over: Mutex<Vec<HandedOver>>,
    /// Pages that this round took for clean: dirty again if the round fails.
    cleaned: Mutex<Vec<PageId>>,
}

impl Imager {
    pub(super) fn new(pool: Arc<Pool>) -> Imager {
        Imager {
            pool,
            running: Mutex::new(None),
            handed_over: Mutex::new(Vec::new()),
            cleaned: Mutex::new(Vec::new()),
        }
    }

    /// Called by the pool at the moment the round begins, before any thread can see the new number.
    pub(super) fn begin(&self, round: u32, view: Arc<CheckpointView>) {
        self.cleaned.lock().clear();
        *self.running.lock() = Some((round, view));
    }

    /// The round is over: structure changes hand over nothing any more.
    pub(super) fn end(&self) {
        *self.running.lock() = None;
        self.handed_over.lock().clear();
    }

    /// The round failed: what it cleaned differs from the last checkpoint still (invariant 5).
    pub(super) fn mark_dirty_again(&self) {
        for page in self.cleaned.lock().drain(..) {
            self.pool.set_dirty(page);
        }
    }

    /// What structure changes handed over in the running round. What was made for an earlier round, by a thread that was
    /// in the middle of it when the round ended, is dropped: it is as of an older CSN.
    pub(super) fn take_handed_over(&self) -> Vec<HandedOver> {
        let round = self.running.lock().as_ref().map(|(round, _)| *round);
        let mut images = std::mem::take(&mut *self.handed_over.lock());
        images.retain(|image| Some(image.round) == round);
        images
    }

    /// A structure change is about to happen to `participants`, all latched: those without an image in this round get
    /// theirs now.
    pub(super) fn hand_over(&self, participants: &[&ExclusiveGuard<'_>]) {
        let Some((round, view)) = self.running.lock().clone() else { return };
        for guard in participants.iter().filter(|guard| guard.round() < round) {
            if guard.is_dirty() {
                let (image, _) = image(&view, guard.bytes(), self.pool.page_bytes());
                self.handed_over.lock().push(HandedOver { round, page: guard.page_id(), image });
            }
            guard.set_imaged(round);
        }
    }

    /// The image of a page that is dirty and has none in this round.
    pub(super) fn image_page(&self, page: PageId) -> Result<Option<AlignedBuffer>> {
        let Some((round, view)) = self.running.lock().clone() else { return Ok(None) };
        if !self.pool.is_allocated(page) || self.pool.round_of(page) >= round {
            return Ok(None);
        }
        // A page that is not resident was not changed since its last image.
        if !self.pool.is_resident(page) {
            return Ok(None);
        }
        // It may have been freed since: that is no damage.
        let Some(guard) = self.pool.shared_unless_free(page)? else { return Ok(None) };
        // Looked at without the latch before: only this look counts.
        if self.pool.round_of(page) >= round {
            return Ok(None);
        }
        self.pool.set_imaged(page, round);
        if !self.pool.is_dirty(page) {
            return Ok(None);
        }
        let (image, newest) = image(&view, guard.bytes(), self.pool.page_bytes());
        if newest {
            self.pool.clear_dirty(page);
            self.cleaned.lock().push(page);
        }
        Ok(Some(image))
    }
}

/// The page's image as of the view's CSN, and whether nothing in the page is newer.
fn image(view: &CheckpointView, bytes: PageBytes<'_>, page_bytes: usize) -> (AlignedBuffer, bool) {
    let mut out = AlignedBuffer::zeroed(page_bytes);
    let guard = pin();
    let newest = image_page(bytes, &mut out, &mut |entry: EntryMeta, value: &[u8], older: &mut Vec<u8>| {
        if entry.stamp == 0 && !entry.tombstone {
            return Resolved::Keep;
        }
        older.clear();
        older.extend_from_slice(value);
        // The page is latched, so "again" only means that a transaction is between two steps of its commit.
        let present = loop {
            if let Some(present) = view.resolve(entry.stamp, !entry.tombstone, older, &guard) {
                break present;
            }
            crate::sync::thread::yield_now();
            older.clear();
            older.extend_from_slice(value);
        };
        match present {
            true if older.as_slice() == value && !entry.tombstone => Resolved::Keep,
            true => Resolved::Older,
            false => Resolved::Absent,
        }
    });
    (out, newest)
}
