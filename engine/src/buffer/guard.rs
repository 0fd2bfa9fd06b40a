//! The three ways to hold a page.
//!
//! Invariant: a guard's page id is inside the pool, so finding its bytes needs no check. Guards borrow the pool; the
//! pool outlives them.

use super::bytes::{PageBytes, PageBytesMut};
use super::latch::{State, Version};
use super::pool::{DIRTY, Entry, NEW, Pool, STAMPED};
use super::{Interrupt, Restart};
use crate::base::{PageId, Result};
use crate::store::ReservedFor;

/// A look at a page without holding it: nothing that was read counts before [`OptimisticGuard::validate`].
#[derive(Clone, Copy)]
pub struct OptimisticGuard<'p> {
    pool: &'p Pool,
    page: PageId,
    version: Version,
}

impl<'p> OptimisticGuard<'p> {
    #[inline]
    pub(super) fn new(pool: &'p Pool, page: PageId, version: Version) -> Self {
        OptimisticGuard { pool, page, version }
    }

    /// The page.
    #[inline]
    #[must_use]
    pub fn page_id(&self) -> PageId {
        self.page
    }

    /// What names the bytes that this guard looks at.
    #[inline]
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The page's bytes, possibly torn.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> PageBytes<'p> {
        PageBytes::new(self.pool.words(self.page))
    }

    /// Everything read through this guard so far was read from one version.
    ///
    /// # Errors
    /// It may be torn.
    #[inline]
    pub fn validate(&self) -> Result<(), Restart> {
        self.pool.entry(self.page).latch.validate(self.version)
    }

    /// Goes on to a page whose id was read from this one (optimistic latch coupling): looks at the child first and then
    /// validates this guard. So the child was the right one at the moment from which its guard counts.
    ///
    /// # Errors
    /// [`Interrupt::Restart`] if this page was changed, also when the child cannot be had: then its id was wrong.
    #[inline]
    pub fn child(&self, child: PageId) -> Result<OptimisticGuard<'p>, Interrupt> {
        let guard = self.pool.optimistic(child);
        self.validate()?;
        Ok(guard?)
    }

    /// Turns the look into an exclusive hold, if the page has not changed and nobody holds it. Never waits, so it cannot
    /// deadlock whatever else is held.
    ///
    /// # Errors
    /// The page was changed or is latched.
    #[inline]
    pub fn upgrade(self) -> Result<ExclusiveGuard<'p>, Restart> {
        self.pool.entry(self.page).latch.upgrade(self.version)?;
        Ok(ExclusiveGuard::new(self.pool, self.page))
    }

    /// Turns the look into a shared hold, if the page has not changed. Never waits.
    ///
    /// # Errors
    /// The page was changed or is being changed.
    pub fn upgrade_shared(self) -> Result<SharedGuard<'p>, Restart> {
        self.pool.entry(self.page).latch.upgrade_shared(self.version)?;
        Ok(SharedGuard::new(self.pool, self.page))
    }
}

impl std::fmt::Debug for OptimisticGuard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OptimisticGuard({}, {:?})", self.page, self.version)
    }
}

/// Keeps writers out of a page.
pub struct SharedGuard<'p> {
    pool: &'p Pool,
    page: PageId,
}

impl<'p> SharedGuard<'p> {
    pub(super) fn new(pool: &'p Pool, page: PageId) -> Self {
        SharedGuard { pool, page }
    }

    /// The page.
    #[must_use]
    pub fn page_id(&self) -> PageId {
        self.page
    }

    /// The page's bytes, not torn.
    #[must_use]
    pub fn bytes(&self) -> PageBytes<'_> {
        PageBytes::new(self.pool.words(self.page))
    }
}

impl SharedGuard<'_> {
    /// What names the page's bytes.
    #[must_use]
    pub fn version(&self) -> Version {
        self.pool.entry(self.page).latch.version_after(false)
    }
}

impl Drop for SharedGuard<'_> {
    fn drop(&mut self) {
        self.pool.entry(self.page).latch.release_shared();
    }
}

impl std::fmt::Debug for SharedGuard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedGuard({})", self.page)
    }
}

/// Holds a page alone. Dropping it lets others in; the version changes if [`ExclusiveGuard::bytes_mut`] was called.
pub struct ExclusiveGuard<'p> {
    pool: &'p Pool,
    page: PageId,
    changed: bool,
}

impl<'p> ExclusiveGuard<'p> {
    #[inline]
    pub(super) fn new(pool: &'p Pool, page: PageId) -> Self {
        ExclusiveGuard { pool, page, changed: false }
    }

    #[inline]
    fn entry(&self) -> &'p Entry {
        self.pool.entry(self.page)
    }

    /// The page.
    #[inline]
    #[must_use]
    pub fn page_id(&self) -> PageId {
        self.page
    }

    /// The pool that the page is in.
    #[inline]
    #[must_use]
    pub fn pool(&self) -> &'p Pool {
        self.pool
    }

    /// The page's bytes.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> PageBytes<'_> {
        PageBytes::new(self.pool.words(self.page))
    }

    /// The page's bytes, to change them. Does not mark the page dirty.
    #[inline]
    pub fn bytes_mut(&mut self) -> PageBytesMut<'_> {
        self.changed = true;
        // `&mut` of the one exclusive guard: nobody else writes (invariant 3 of `bytes`).
        PageBytesMut::new(self.pool.words(self.page))
    }

    /// The page differs from its image in the store.
    #[inline]
    pub fn mark_dirty(&self) {
        let entry = self.entry();
        self.pool.set_flags(entry, DIRTY | STAMPED | entry.flags() & NEW);
    }

    /// To be called before a change that can still be refused: if the page is clean, makes sure that it can be written again.
    ///
    /// # Errors
    /// `OutOfSpace`; the device's.
    #[inline]
    pub fn reserve(&self) -> Result<()> {
        if self.is_dirty() { Ok(()) } else { self.pool.reserve(ReservedFor::Change) }
    }

    /// Whether the page differs from its image in the store.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.entry().is_dirty()
    }

    /// The checkpoint round in which the page was last imaged or born.
    #[inline]
    #[must_use]
    pub fn round(&self) -> u32 {
        self.entry().round()
    }

    /// The page has been imaged in `round`.
    pub fn set_imaged(&self, round: u32) {
        self.entry().set_round(round);
    }

    /// The version that the page will have when this guard is gone, if nothing more is changed.
    #[inline]
    #[must_use]
    pub fn version_after(&self) -> Version {
        self.entry().latch.version_after(self.changed)
    }

    /// Lets others in and goes on looking.
    #[inline]
    #[must_use]
    pub fn downgrade(self) -> OptimisticGuard<'p> {
        OptimisticGuard::new(self.pool, self.page, self.version_after())
    }

    /// Ends the hold with the page evicted.
    pub(super) fn release_evicted(self) {
        let guard = std::mem::ManuallyDrop::new(self);
        guard.entry().latch.release_to(State::Evicted);
    }

    /// Ends the hold with the page free: for [`Pool::free`].
    pub(super) fn release_free(self) -> PageId {
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
