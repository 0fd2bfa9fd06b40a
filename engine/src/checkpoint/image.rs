//! Images of pages as of the checkpoint's CSN, made by the checkpoint, by the evictor, or, as
//! copy-on-write images, by a structure change.

use crate::base::planted::{self, Bug};
use crate::base::{PageId, Result};
use crate::buffer::{ExclusiveGuard, PageBytes, Pool, Version};
use crate::device::AlignedBuffer;
use crate::sync::epoch::pin;
use crate::sync::{Mutex, MutexGuard};
use crate::transaction::CheckpointView;
use crate::tree::image::{EntryMeta, Held, Resolved, Shown, image_page};
use std::sync::Arc;

const WRITER_BYTES_MIN: u64 = 128 << 10;
const WRITER_BYTES_MAX: u64 = 2 << 20;

/// Bytes of buffers of one writer of images, in a budget of `memory_bytes`.
pub(super) fn writer_bytes(memory_bytes: u64) -> u64 {
    (memory_bytes / 64).clamp(WRITER_BYTES_MIN, WRITER_BYTES_MAX)
}

/// A copy-on-write image, waiting to be written.
pub(super) struct HandedOver {
    epoch: u32,
    pub(super) page: PageId,
    pub(super) image: AlignedBuffer,
}

/// An image of a page as of C.
#[derive(Clone, Copy, Debug)]
pub(super) struct Imaged {
    /// The version that it shows.
    pub(super) version: Version,
    /// Nothing in the page is newer than C.
    pub(super) newest: bool,
}

/// Makes images in the current checkpoint epoch.
pub struct Imager {
    pool: Arc<Pool>,
    /// Held by the checkpoint while it chooses its CSN and begins or ends its epoch, and by the
    /// evictor while it decides to which checkpoint an image belongs. So both agree on the changes
    /// in it.
    gate: Mutex<()>,
    /// The running checkpoint epoch and its view; none between checkpoints.
    running: Mutex<Option<(u32, Arc<CheckpointView>)>>,
    handed_over: Mutex<Vec<HandedOver>>,
}

impl std::fmt::Debug for Imager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let running = self.running.lock().as_ref().map(|(epoch, _)| *epoch);
        f.debug_struct("Imager").field("running", &running).finish_non_exhaustive()
    }
}

impl Imager {
    pub(super) fn new(pool: Arc<Pool>) -> Imager {
        Imager { pool, gate: Mutex::new(()), running: Mutex::new(None), handed_over: Mutex::new(Vec::new()) }
    }

    /// Locks the gate; see the field.
    pub(super) fn gate(&self) -> MutexGuard<'_, ()> {
        self.gate.lock()
    }

    /// Begins an epoch. The pool calls it before any thread can see the new epoch.
    pub(super) fn begin(&self, epoch: u32, view: Arc<CheckpointView>) {
        let before = self.running.lock().replace((epoch, view));
        debug_assert!(before.is_none(), "one checkpoint runs at a time");
    }

    /// Ends the epoch: structure changes make no more copy-on-write images.
    pub(super) fn end(&self) {
        *self.running.lock() = None;
        self.handed_over.lock().clear();
    }

    /// Returns the running epoch and its view.
    pub(super) fn running(&self) -> Option<(u32, Arc<CheckpointView>)> {
        self.running.lock().clone()
    }

    /// Takes the copy-on-write images of the running epoch. Drops images of an earlier epoch, made
    /// by a thread that was in the middle of one when the epoch ended: they are as of an older CSN.
    pub(super) fn take_handed_over(&self) -> Vec<HandedOver> {
        let epoch = self.running.lock().as_ref().map(|(epoch, _)| *epoch);
        let mut images = std::mem::take(&mut *self.handed_over.lock());
        images.retain(|image| Some(image.epoch) == epoch);
        images
    }

    /// Makes copy-on-write images before a structure change of `participants`, all latched, for
    /// those without an image in this epoch.
    pub(super) fn hand_over(&self, participants: &[&ExclusiveGuard<'_>]) {
        let differs: Vec<bool> = participants.iter().map(|guard| guard.is_dirty()).collect();
        // Before the running epoch is read: a checkpoint that begins later skips clean pages
        // without waiting for the latch. It must not skip one participant as it was and image
        // another as it will be.
        participants.iter().for_each(|guard| guard.mark_dirty());
        let Some((epoch, view)) = self.running().filter(|_| !planted::is(Bug::NotHandedOver)) else { return };
        for (guard, differs) in participants.iter().zip(differs).filter(|(guard, _)| guard.epoch() < epoch) {
            if differs {
                let mut image = AlignedBuffer::charged(self.pool.page_bytes(), self.pool.account());
                if image_latched(&view, guard.bytes(), &mut image).is_err() {
                    // The checkpoint of this epoch will fail.
                    continue;
                }
                self.handed_over.lock().push(HandedOver { epoch, page: guard.page_id(), image });
            }
            guard.set_imaged(epoch);
        }
    }

    /// Returns whether the page seems to need an image in the running epoch: a cheap look that may
    /// be wrong either way.
    pub(super) fn seems_needed(&self, page: PageId) -> bool {
        // A page that is not in memory equals its newest image.
        self.pool.frames().is_dirty(page)
            && self.pool.frames().is_resident(page)
            && self.pool.frames().epoch_of(page) < self.pool.frames().epoch()
    }

    /// Makes the image of a dirty page without an image in this epoch.
    pub(super) fn image_page(&self, page: PageId, out: &mut [u8]) -> Result<Option<Imaged>> {
        let Some((epoch, view)) = self.running() else { return Ok(None) };
        debug_assert!(epoch == self.pool.frames().epoch(), "a checkpoint runs in the newest epoch");
        if !self.pool.frames().is_allocated(page) || !self.pool.frames().is_resident(page) {
            return Ok(None);
        }
        // The page may have been freed since, or have left memory: then it equals its newest image.
        let Some(guard) = self.pool.shared_if_resident(page)? else { return Ok(None) };
        // The earlier look had no latch: only this one counts.
        if self.pool.frames().epoch_of(page) >= epoch {
            return Ok(None);
        }
        self.pool.frames().set_imaged(page, epoch);
        if !self.pool.frames().is_dirty(page) {
            return Ok(None);
        }
        Ok(match image_latched(&view, guard.bytes(), out)? {
            Shown::Nothing => None,
            shown => Some(Imaged { version: guard.version(), newest: shown == Shown::Newest }),
        })
    }
}

/// Makes the image of a latched page as of the view's CSN.
fn image_latched(view: &CheckpointView, bytes: PageBytes<'_>, out: &mut [u8]) -> Result<Shown> {
    // The page is latched, so an entry that must be read again belongs to a transaction between two
    // steps of its commit.
    let shown = image_as_of(view, bytes, out, &mut || {
        crate::sync::thread::yield_now();
        view.check_whole().is_ok()
    });
    match shown {
        Some(shown) => Ok(shown),
        None => Err(view.check_whole().expect_err("it is asked to try again until then")),
    }
}

/// Makes the image as of the view's CSN, without stamps; `None` if an entry must be read again and
/// `again` returns false. The page may be a copy whose original changes, if the epoch guard of the
/// copy still lives.
pub(super) fn image_as_of(
    view: &CheckpointView,
    bytes: PageBytes<'_>,
    out: &mut [u8],
    again: &mut dyn FnMut() -> bool,
) -> Option<Shown> {
    let guard = pin();
    let mut gave_up = false;
    let shown = image_page(bytes, out, &mut |entry: EntryMeta, value: &[u8], older: &mut Vec<u8>| {
        if entry.stamp == 0 && !entry.tombstone {
            return Resolved::Keep;
        }
        older.clear();
        older.extend_from_slice(value);
        let (held, in_progress) = loop {
            if let Some(resolved) = view.resolve(entry.stamp, entry.held(), older, &guard) {
                break resolved;
            }
            if gave_up || !again() {
                gave_up = true;
                break (Held::Nothing, false);
            }
            older.clear();
            older.extend_from_slice(value);
        };
        match held {
            Held::Nothing => Resolved::Absent,
            _ if older.as_slice() == value && held == entry.held() => {
                // A transaction that locked the row, or wrote an equal value, rolls back without a
                // reservation: the page stays dirty until then.
                if in_progress { Resolved::Same } else { Resolved::Keep }
            }
            Held::Value => Resolved::Older,
            Held::Reference => Resolved::OlderReference,
        }
    });
    (!gave_up).then_some(shown)
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;
    use crate::buffer::test_sources::Zeros;

    /// A split was about to change its clean parent when an epoch began: the checkpoint skipped the
    /// parent without waiting, and imaged the child as it was after the split.
    #[test]
    fn epoch_begun_during_a_structure_change_images_all_its_pages() {
        let pool = Pool::new(4096, 1 << 20, Arc::new(Zeros)).expect("small");
        pool.restore([PageId(1)].into_iter()).expect("one page");
        let imager = Imager::new(pool.clone());
        let guard = pool.exclusive(PageId(1)).expect("readable");
        assert!(!guard.is_dirty());
        imager.hand_over(&[&guard]);
        pool.frames().begin_epoch(Ok).expect("begins");
        assert!(imager.seems_needed(PageId(1)), "the latch is not looked at before");
    }
}
