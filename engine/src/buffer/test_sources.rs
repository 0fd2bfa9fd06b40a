//! Sources of images for tests.

use super::PageSource;
use crate::base::{Error, Location, PageId, Result};
use crate::sync::atomic::{AtomicU32, Ordering};

/// Page size of [`Images`]; small under Miri, which is slow.
pub(super) const PAGE_BYTES: usize = if cfg!(miri) { 256 } else { 4096 };
/// A page that cannot be read.
pub(super) const DAMAGED: PageId = PageId(13);
/// A page that makes the source panic.
pub(super) const PANICS: PageId = PageId(14);

/// A source of images filled with the low byte of the page's id.
#[derive(Default)]
pub(super) struct Images {
    pub(super) reads: AtomicU32,
}

impl PageSource for Images {
    fn read_page(&self, page: PageId, _: bool, into: &mut [u8]) -> Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        assert_ne!(page, PANICS, "a bug of the source");
        if page == DAMAGED {
            return Err(Error::corruption("bad checksum").at(Location::Page { page, offset: 13 << 12 }));
        }
        into.fill(page.0 as u8);
        Ok(())
    }

    fn read_pages(&self, pages: &[(PageId, bool)], visit: &mut dyn FnMut(usize, Result<&[u8]>)) {
        for (index, (page, own_stamps)) in pages.iter().enumerate() {
            let mut image = [0; PAGE_BYTES];
            let done = self.read_page(*page, *own_stamps, &mut image);
            visit(index, done.map(|()| &image[..]));
        }
    }
}

/// A source of zeros.
#[derive(Debug)]
pub(crate) struct Zeros;

impl PageSource for Zeros {
    fn read_page(&self, _: PageId, _: bool, into: &mut [u8]) -> Result<()> {
        into.fill(0);
        Ok(())
    }
}
