//! Pages whose newest image is in another store: that of a standby's copy, after a promotion.
//!
//! ```text
//!   images in the copy     7  9  12        read from there until they are brought in
//!   brought in: dirty      7               from then on pages as all others
//! ```
//!
//! 1. The images are as of one CSN, and stay as they are: their blocks are held.
//! 2. A page is brought in once. From then on, or when it was freed, its image here never counts
//!    again. The holder of the page's latch sees to that.
//! 3. The first checkpoint brings in all that are left. Until it is durable, the log has
//!    everything that these images have beyond the checkpoint before.
//! 4. An image takes 17 bytes of memory until it is brought in (a full node of the map has 11).
//!    With pages of 4 KiB that is 4.5 MiB for each GiB of pages that differ from the checkpoint.

use crate::base::{Error, Location, PageId, Result};
use crate::store::{BlockRef, HeldBlocks, ImageKind, PageStore};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeMap;
use std::sync::Arc;

/// See the module's text.
pub struct AdoptedPages {
    state: Mutex<State>,
    /// False once all were taken.
    has_some: AtomicBool,
}

struct State {
    images: BTreeMap<PageId, BlockRef>,
    /// The store that has them, with their blocks.
    source: Option<(Arc<PageStore>, HeldBlocks)>,
}

impl std::fmt::Debug for AdoptedPages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AdoptedPages({})", self.state.lock().images.len())
    }
}

impl AdoptedPages {
    /// Returns these images of `source`, whose blocks `held` keeps.
    #[must_use]
    pub fn new(
        source: Arc<PageStore>,
        held: HeldBlocks,
        images: BTreeMap<PageId, BlockRef>,
    ) -> Arc<AdoptedPages> {
        let has_some = AtomicBool::new(!images.is_empty());
        Arc::new(AdoptedPages { state: Mutex::new(State { images, source: Some((source, held)) }), has_some })
    }

    /// Returns how many were not brought in yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.lock().images.len()
    }

    /// Returns whether all were brought in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.has_some.load(Ordering::Acquire)
    }

    /// Returns whether the newest image of `page` is here.
    pub(super) fn has(&self, page: PageId) -> bool {
        !self.is_empty() && self.state.lock().images.contains_key(&page)
    }

    /// Returns at most `most` of them.
    pub(super) fn first(&self, most: usize) -> Vec<PageId> {
        self.state.lock().images.keys().take(most).copied().collect()
    }

    /// Forgets the image of a page. Returns false if there is none.
    pub(super) fn take(&self, page: PageId) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut state = self.state.lock();
        let was_there = state.images.remove(&page).is_some();
        if state.images.is_empty() {
            self.has_some.store(false, Ordering::Release);
            let source = state.source.take();
            drop(state);
            // Gives the space of the copy back, perhaps: without the lock.
            drop(source);
        }
        was_there
    }

    /// Reads the image of a page into `into`. `None` if it is not here.
    pub(super) fn read(&self, page: PageId, into: &mut [u8]) -> Option<Result<ImageKind>> {
        if self.is_empty() {
            return None;
        }
        let (reference, source) = {
            let state = self.state.lock();
            (*state.images.get(&page)?, state.source.as_ref().map(|(store, _)| store.clone()))
        };
        let mut kind =
            Err(Error::corruption("a page of the standby was not found")
                .at(Location::Page { page, offset: 0 }));
        let read = source.map_or(Ok(()), |source| {
            source.visit_images(&[(page, reference)], &mut |image| {
                into.copy_from_slice(image.bytes);
                kind = Ok(image.kind);
                Ok(())
            })
        });
        Some(read.and(kind))
    }
}
