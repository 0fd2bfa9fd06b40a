//! The page source of the buffer pool: reads page images from the store, and checks them before the
//! tree sees them.

use super::adopted_pages::AdoptedPages;
use super::replay_model::ReadCost;
use crate::base::clock::Clock;
use crate::base::{Location, PageId, Result};
use crate::buffer::PageSource;
use crate::store::{ImageKind, PageStore, ReservedFor};
use crate::tree::image::{settle_image, validate_image_of};
use std::sync::Arc;

/// Pages read at open to measure the cost of reading.
const SAMPLED_PAGES: usize = 64;

/// Stored pages, as the buffer pool reads them.
pub struct StoredPages {
    store: Arc<PageStore>,
    clock: Clock,
    cost: Arc<ReadCost>,
    /// Set after the promotion of a standby.
    adopted: Option<Arc<AdoptedPages>>,
}

impl StoredPages {
    /// Returns the pages of `store`, after reading some of them to measure the cost. A page that
    /// cannot be read is reported to the first thread that needs it.
    #[must_use]
    pub fn open(
        store: Arc<PageStore>,
        clock: Clock,
        cost: Arc<ReadCost>,
        adopted: Option<Arc<AdoptedPages>>,
    ) -> StoredPages {
        let stored = StoredPages { store, clock, cost, adopted };
        let pages = stored.store.sample_pages(SAMPLED_PAGES);
        let sample: Vec<(PageId, bool)> = pages.into_iter().map(|page| (page, false)).collect();
        stored.read_pages(&sample, &mut |_, _| ());
        stored
    }
}

impl PageSource for StoredPages {
    fn read_page(&self, page: PageId, own_stamps: bool, into: &mut [u8]) -> Result<()> {
        if let Some(read) = self.adopted.as_ref().and_then(|adopted| adopted.read(page, into)) {
            return check_and_settle(page, read?, false, into);
        }
        let begun = self.clock.now();
        let kind = self.store.read_page(page, into)?;
        self.cost.note(self.clock.now().since(begun));
        check_and_settle(page, kind, own_stamps, into)
    }

    fn read_pages(&self, pages: &[(PageId, bool)], visit: &mut dyn FnMut(usize, Result<&[u8]>)) {
        let is_here = |page: PageId| self.adopted.as_ref().is_some_and(|adopted| adopted.has(page));
        if pages.iter().any(|(page, _)| is_here(*page)) {
            // From a local disk: one after the other.
            let mut image = vec![0; self.store.page_bytes()];
            for (index, (page, own_stamps)) in pages.iter().enumerate() {
                let read = self.read_page(*page, *own_stamps, &mut image);
                visit(index, read.map(|()| &*image));
            }
            return;
        }
        let ids: Vec<PageId> = pages.iter().map(|(page, _)| *page).collect();
        let begun = self.clock.now();
        let mut first = true;
        self.store.read_pages(&ids, &mut |index, read| {
            if std::mem::take(&mut first) {
                self.cost.note_many(pages.len(), self.clock.now().since(begun));
            }
            let (page, own_stamps) = pages[index];
            let read = read
                .and_then(|(kind, image)| check_and_settle(page, kind, own_stamps, image).map(|()| &*image));
            visit(index, read);
        });
    }

    fn reserve(&self, page: ReservedFor) -> Result<()> {
        self.store.disk_space().reserve(page)
    }

    fn is_adopted(&self, page: PageId) -> bool {
        self.adopted.as_ref().is_some_and(|adopted| adopted.has(page))
    }

    fn take_adopted(&self, page: PageId) -> Option<bool> {
        let taken = self.adopted.as_ref().is_some_and(|adopted| adopted.take(page));
        taken.then(|| self.store.contains(page))
    }

    fn freed(&self, page: PageId, epoch: u32) {
        if let Some(adopted) = &self.adopted {
            adopted.take(page);
        }
        self.store.freed(page, epoch);
    }
}

fn check_and_settle(page: PageId, kind: ImageKind, own_stamps: bool, image: &mut [u8]) -> Result<()> {
    validate_image_of(kind, image).map_err(|error| error.at(Location::Page { page, offset: 0 }))?;
    if kind == ImageKind::Stamped && !own_stamps {
        settle_image(image);
    }
    Ok(())
}
