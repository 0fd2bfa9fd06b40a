//! Where images of evicted pages come from: the seam between the pool and the store.

use crate::base::{PageId, Result};
use crate::store::ReservedFor;

/// A source of page images. Guarantees that the pool expects of an implementation:
/// 1. `into` is filled with the newest image of `page`, or an error names the damage;
/// 2. the image is safe to use: checksum, page id and the structure of its content are verified;
/// 3. stamps are kept if this run of the engine has written them (`own_stamps`), and settled
///    otherwise;
/// 4. many threads may call it at once, and it does not use the pool.
pub trait PageSource: Send + Sync {
    /// Reads the image of `page`; `into` has the size of a page.
    ///
    /// # Errors
    /// The device's, or `Corruption`.
    fn read_page(&self, page: PageId, own_stamps: bool, into: &mut [u8]) -> Result<()>;

    /// Reads the images of several pages, each with `own_stamps`, in any order; `visit` gets each
    /// page's index and image. A source that cannot read many at once does nothing, and the pages
    /// are read one by one when they are needed.
    fn read_pages(&self, pages: &[(PageId, bool)], visit: &mut dyn FnMut(usize, Result<&[u8]>)) {
        let _ = (pages, visit);
    }

    /// Makes sure that the image of one more dirty page, clean or absent until now, will find
    /// space. Called with latches held; waits for no latch.
    ///
    /// # Errors
    /// `OutOfSpace`; the device's.
    fn reserve(&self, page: ReservedFor) -> Result<()> {
        let _ = page;
        Ok(())
    }

    /// Returns whether the newest image of `page` is in another store: then the page is dirty as
    /// soon as it is in memory.
    fn is_adopted(&self, page: PageId) -> bool {
        let _ = page;
        false
    }

    /// Notes that a page with an image in another store is in memory, so that image does not count
    /// any more. Returns whether the page has an older image in this store; `None` if its newest
    /// image is not in another store. The caller holds the page's latch.
    fn take_adopted(&self, page: PageId) -> Option<bool> {
        let _ = page;
        None
    }

    /// Forgets the image of a freed page, which was last imaged or created in `epoch`. Called with
    /// the page's latch held; does not fail or wait.
    fn freed(&self, page: PageId, epoch: u32) {
        let _ = (page, epoch);
    }
}
