//! The three ways to hold a page.
//!
//! Invariant: a guard's page id is inside the frame table, so finding its bytes needs no check.
//! Guards borrow the table, which outlives them.

use super::bytes::{PageBytes, PageBytesMut};
use super::frames::{DIRTY, Entry, Frame, FrameTable, HIDDEN_EPOCH, NEW, STAMPED};
use super::latch::{Restart, State, Version};
use crate::base::{Error, PageId};

/// Why an optimistic step failed. Code that walks pages optimistically returns this from its inner
/// loop, so that `?` serves both cases, and retries on [`Interrupt::Restart`].
#[derive(Debug)]
pub enum Interrupt {
    /// A writer changed or holds the page.
    Restart,
    /// The page cannot be read.
    Failed(Error),
}

impl From<Restart> for Interrupt {
    fn from(_: Restart) -> Interrupt {
        Interrupt::Restart
    }
}

impl From<Error> for Interrupt {
    fn from(error: Error) -> Interrupt {
        Interrupt::Failed(error)
    }
}

/// Reads a page without holding it: nothing that was read counts before
/// [`OptimisticGuard::validate`].
#[derive(Clone, Copy)]
pub struct OptimisticGuard<'p> {
    frames: &'p FrameTable,
    page: PageId,
    frame: Frame<'p>,
    version: Version,
}

impl<'p> OptimisticGuard<'p> {
    #[inline]
    pub(super) fn new(
        frames: &'p FrameTable,
        page: PageId,
        frame: Frame<'p>,
        version: Version,
    ) -> OptimisticGuard<'p> {
        OptimisticGuard { frames, page, frame, version }
    }

    /// The page.
    #[inline]
    #[must_use]
    pub fn page_id(&self) -> PageId {
        self.page
    }

    /// The version of the bytes that this guard reads.
    #[inline]
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The page's bytes, possibly torn.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> PageBytes<'p> {
        PageBytes::new(self.frame.words)
    }

    /// Confirms that everything read through this guard so far was read from one version.
    ///
    /// # Errors
    /// It may be torn.
    #[inline]
    pub fn validate(&self) -> Result<(), Restart> {
        self.frame.entry.latch.validate(self.version)
    }

    /// Latches the page exclusively if it has not changed and is not latched. Never waits, so it
    /// cannot deadlock, whatever else is held.
    ///
    /// # Errors
    /// The page was changed or is latched.
    #[inline]
    pub fn upgrade(self) -> Result<ExclusiveGuard<'p>, Restart> {
        self.frame.entry.latch.upgrade(self.version)?;
        Ok(ExclusiveGuard::of_frame(self.frames, self.page, self.frame))
    }

    /// Latches the page shared if it has not changed. Never waits.
    ///
    /// # Errors
    /// The page was changed or is being changed.
    pub fn upgrade_shared(self) -> Result<SharedGuard<'p>, Restart> {
        self.frame.entry.latch.upgrade_shared(self.version)?;
        Ok(SharedGuard::new(self.frames, self.page))
    }
}

impl std::fmt::Debug for OptimisticGuard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OptimisticGuard({}, {:?})", self.page, self.version)
    }
}

/// Keeps writers out of a page.
pub struct SharedGuard<'p> {
    frames: &'p FrameTable,
    page: PageId,
}

impl<'p> SharedGuard<'p> {
    pub(super) fn new(frames: &'p FrameTable, page: PageId) -> Self {
        SharedGuard { frames, page }
    }

    /// The page's bytes, not torn.
    #[must_use]
    pub fn bytes(&self) -> PageBytes<'_> {
        PageBytes::new(self.frames.words(self.page))
    }
}

impl SharedGuard<'_> {
    /// The version of the page's bytes.
    #[must_use]
    pub fn version(&self) -> Version {
        self.frames.entry(self.page).latch.version_after(false)
    }
}

impl Drop for SharedGuard<'_> {
    fn drop(&mut self) {
        self.frames.entry(self.page).latch.release_shared();
    }
}

impl std::fmt::Debug for SharedGuard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedGuard({})", self.page)
    }
}

/// Holds a page exclusively. Dropping it releases the page; the version changes if
/// [`ExclusiveGuard::bytes_mut`] was called.
pub struct ExclusiveGuard<'p> {
    frames: &'p FrameTable,
    page: PageId,
    frame: Frame<'p>,
    changed: bool,
}

impl<'p> ExclusiveGuard<'p> {
    #[inline]
    pub(super) fn new(frames: &'p FrameTable, page: PageId) -> Self {
        ExclusiveGuard::of_frame(frames, page, frames.frame(page))
    }

    #[inline]
    fn of_frame(frames: &'p FrameTable, page: PageId, frame: Frame<'p>) -> Self {
        ExclusiveGuard { frames, page, frame, changed: false }
    }

    #[inline]
    fn entry(&self) -> &'p Entry {
        self.frame.entry
    }

    /// The page.
    #[inline]
    #[must_use]
    pub fn page_id(&self) -> PageId {
        self.page
    }

    /// The frame table that the page is in.
    #[inline]
    #[must_use]
    pub fn frames(&self) -> &'p FrameTable {
        self.frames
    }

    /// The page's bytes.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> PageBytes<'_> {
        PageBytes::new(self.frame.words)
    }

    /// The page's bytes, to change them. Does not mark the page dirty.
    #[inline]
    pub fn bytes_mut(&mut self) -> PageBytesMut<'_> {
        self.changed = true;
        // `&mut` of the only exclusive guard: no other thread writes (invariant 3 of `bytes`).
        PageBytesMut::new(self.frame.words)
    }

    /// Notes that the page differs from its image in the store.
    #[inline]
    pub fn mark_dirty(&self) {
        let entry = self.entry();
        self.frames.set_flags(entry, DIRTY | STAMPED | entry.flags() & NEW);
    }

    /// Returns whether the page differs from its image in the store.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.entry().is_dirty()
    }

    /// Checkpoint epoch in which the page was last imaged or created.
    #[inline]
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.entry().epoch()
    }

    /// Notes that the page was imaged in `epoch`.
    pub fn set_imaged(&self, epoch: u32) {
        debug_assert!(
            epoch == HIDDEN_EPOCH || epoch <= self.frames.epoch() + 1,
            "an image is of an epoch that has begun, or just begins"
        );
        self.entry().set_epoch(epoch);
    }

    /// The version that the page will have when this guard is dropped, if nothing more is changed.
    #[inline]
    #[must_use]
    pub fn version_after(&self) -> Version {
        self.entry().latch.version_after(self.changed)
    }

    /// Releases the page and continues to read it optimistically.
    #[cfg(test)]
    #[must_use]
    pub fn downgrade(self) -> OptimisticGuard<'p> {
        OptimisticGuard::new(self.frames, self.page, self.frame, self.version_after())
    }

    /// Releases the page as evicted.
    pub(super) fn release_evicted(self) {
        let guard = std::mem::ManuallyDrop::new(self);
        guard.entry().latch.release_to(State::Evicted);
    }

    /// Releases the page as free.
    pub(super) fn release_free(self) -> PageId {
        debug_assert_eq!(self.entry().flags(), 0, "what the store needs for a page ends with it");
        let guard = std::mem::ManuallyDrop::new(self);
        guard.entry().latch.release_to(State::Free);
        guard.page
    }
}

impl Drop for ExclusiveGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.entry().latch.release(self.changed);
    }
}

impl std::fmt::Debug for ExclusiveGuard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ExclusiveGuard({})", self.page)
    }
}
