//! The images of all pages: the mapping of the last committed checkpoint, and two overlays above
//! it.
//!
//! ```text
//!   look-up:   next  ──absent?──▶  in_checkpoint  ──absent?──▶  mapping
//!              images for the      images of the                the last durable
//!              next checkpoint     open checkpoint              checkpoint
//! ```

use super::super::blob::BlobRef;
use super::super::block::{BlockNumber, BlockRef};
use super::overlay::Overlay;
use super::table::Mapping;
use crate::base::PageId;
use crate::base::planted::{self, Bug};

/// Replaced images, by the overlay that replaces them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Replaced {
    /// Replaced by an image for the next checkpoint.
    pub next: u64,
    /// Replaced by an image of the open checkpoint.
    pub in_checkpoint: u64,
}

/// Whether an image of a page in each overlay replaces another image.
#[derive(Clone, Copy, Debug)]
pub struct Replaces {
    next: bool,
    in_checkpoint: bool,
}

/// See the module's text. Absent in an overlay = the page was removed.
#[derive(Debug)]
pub struct Images {
    /// As of the last committed checkpoint.
    pub mapping: Mapping,
    /// Changes by the open checkpoint.
    pub in_checkpoint: Overlay,
    /// Changes for the next checkpoint.
    pub next: Overlay,
    /// Replaced images.
    pub replaced: Replaced,
    /// The catalog of the last committed checkpoint.
    pub catalog: Option<BlobRef>,
    /// Its blocks.
    pub catalog_blocks: Vec<BlockNumber>,
}

impl Images {
    /// The images of `mapping`, with empty overlays of `per_part` pages a part.
    #[must_use]
    pub fn new(
        mapping: Mapping,
        per_part: usize,
        catalog: Option<BlobRef>,
        catalog_blocks: Vec<BlockNumber>,
    ) -> Images {
        let (in_checkpoint, next) = (Overlay::new(per_part), Overlay::new(per_part));
        Images { mapping, in_checkpoint, next, replaced: Replaced::default(), catalog, catalog_blocks }
    }

    /// Returns the newest image of `page`.
    #[must_use]
    pub fn look_up(&self, page: PageId) -> BlockRef {
        let newer = self.next.get(page).or_else(|| self.in_checkpoint.get(page));
        newer.unwrap_or_else(|| self.mapping.get(page))
    }

    /// Moves every image for the next checkpoint into the one that begins.
    pub fn begin_checkpoint(&mut self) {
        debug_assert!(self.in_checkpoint.len() == 0, "the last checkpoint took all its images");
        debug_assert!(self.replaced.in_checkpoint == 0, "no image of the last checkpoint is counted");
        debug_assert!(self.in_checkpoint.len() == 0, "the last checkpoint took all its images");
        debug_assert!(self.replaced.in_checkpoint == 0, "no image of the last checkpoint is counted");
        std::mem::swap(&mut self.in_checkpoint, &mut self.next);
        self.replaced = Replaced { next: 0, in_checkpoint: self.replaced.next };
    }

    /// Sets the image of a page for the next checkpoint; returns an image that no manifest needs
    /// (F2). `more_may_arrive`: an image for the open checkpoint may still be with a writer.
    #[must_use = "the image is to be freed"]
    pub fn set_next(&mut self, page: PageId, reference: BlockRef, more_may_arrive: bool) -> Option<BlockRef> {
        let before = self.replaces(page);
        let replaced = self.next.set(page, reference);
        let more_may_arrive = more_may_arrive && !planted::is(Bug::RemovalForgotten);
        let has_no_image = self.in_checkpoint.get(page).is_none() && self.mapping.get(page).is_absent();
        if reference.is_absent() && has_no_image && !more_may_arrive {
            // The page was never written and is removed now: nothing changed.
            self.next.remove(page);
        }
        self.recount(before, self.replaces(page));
        debug_assert!(self.look_up(page) == reference, "the newest image of a page is found");
        debug_assert!(self.replaced.next <= self.next.len(), "each image replaces at most one");
        debug_assert!(self.look_up(page) == reference, "the newest image of a page is found");
        debug_assert!(self.replaced.next <= self.next.len(), "each image replaces at most one");
        replaced.filter(|replaced| !replaced.is_absent())
    }

    /// Sets the image of a page in the open checkpoint; returns an image that no manifest needs
    /// (F2).
    #[must_use = "the image is to be freed"]
    pub fn set_in_checkpoint(&mut self, page: PageId, reference: BlockRef) -> Option<BlockRef> {
        let before = self.replaces(page);
        let mut replaced = self.in_checkpoint.set(page, reference);
        if planted::is(Bug::BlockReusedEarly) && replaced.is_none() && !reference.is_absent() {
            replaced = Some(self.mapping.set(page, BlockRef::ABSENT));
        }
        if reference.is_absent() && self.mapping.get(page).is_absent() {
            self.in_checkpoint.remove(page);
        }
        self.recount(before, self.replaces(page));
        debug_assert!(
            self.replaced.in_checkpoint <= self.in_checkpoint.len(),
            "each image replaces at most one"
        );
        debug_assert!(
            self.replaced.in_checkpoint <= self.in_checkpoint.len(),
            "each image replaces at most one"
        );
        replaced.filter(|replaced| !replaced.is_absent())
    }

    /// Moves an image that was taken out of an abandoned checkpoint to the next one; returns an
    /// image that no manifest needs (F2).
    #[must_use = "the image is to be freed"]
    pub fn take_back(&mut self, page: PageId, reference: BlockRef) -> Option<BlockRef> {
        self.recount(self.replaces_with(page, Some(reference)), self.replaces(page));
        if self.next.get(page).is_none() {
            return self.set_next(page, reference, false);
        }
        // The newer image had replaced this one; from now on it replaces the image in the mapping.
        if self.look_up(page).is_absent() {
            // If the page is removed and in no checkpoint, its entry is dropped.
            let dropped = self.set_next(page, BlockRef::ABSENT, false);
            debug_assert!(dropped.is_none(), "the entry was absent");
        }
        Some(reference).filter(|reference| !reference.is_absent())
    }

    /// Returns which images of `page` in the overlays replace others.
    #[must_use]
    pub fn replaces(&self, page: PageId) -> Replaces {
        self.replaces_with(page, self.in_checkpoint.get(page))
    }

    /// As [`Images::replaces`], if the open checkpoint had this image of the page.
    #[must_use]
    pub fn replaces_with(&self, page: PageId, in_checkpoint: Option<BlockRef>) -> Replaces {
        let stored = self.mapping.get(page);
        let older = in_checkpoint.unwrap_or(stored);
        Replaces {
            next: self.next.get(page).is_some() && !older.is_absent(),
            in_checkpoint: in_checkpoint.is_some() && !stored.is_absent(),
        }
    }

    /// Updates the counts after the overlays of one page changed.
    pub fn recount(&mut self, before: Replaces, now: Replaces) {
        let Replaced { next, in_checkpoint } = &mut self.replaced;
        debug_assert!(*next >= u64::from(before.next), "what an image replaces was counted");
        debug_assert!(
            *in_checkpoint >= u64::from(before.in_checkpoint),
            "what an image replaces was counted"
        );
        debug_assert!(*next >= u64::from(before.next), "what an image replaces was counted");
        debug_assert!(
            *in_checkpoint >= u64::from(before.in_checkpoint),
            "what an image replaces was counted"
        );
        *next = *next + u64::from(now.next) - u64::from(before.next);
        *in_checkpoint = *in_checkpoint + u64::from(now.in_checkpoint) - u64::from(before.in_checkpoint);
    }

    /// Parts of the mapping and of both overlays.
    #[must_use]
    pub fn part_count(&self) -> usize {
        self.mapping.part_count().max(self.in_checkpoint.part_count()).max(self.next.part_count())
    }
}
