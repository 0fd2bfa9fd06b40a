//! Stage 2, *write pages*: image every page that changed, as of C, and write the catalog.

use super::catalog_blob::{StoredCatalog, encode_catalog};
use super::checkpointer::Checkpointer;
use super::image::{HandedOver, Imaged, writer_bytes};
use super::pace::Pacer;
use super::prepare::Prepared;
use crate::base::{Csn, PageId, Result};
use crate::buffer::Version;
use crate::store::{Heat, ImageKind, ImageWriter, Written};
use crate::sync::atomic::Ordering;
use crate::transaction::FreesPaused;

/// Images made between two looks at completed writes.
const BATCH: u64 = 64;

/// Imaged pages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) written: u64,
    /// Written pages that are [`Heat::Hot`].
    pub(super) rewritten: u64,
}

impl Checkpointer {
    /// Images every page that needs it, and writes the catalog with the deferred frees as of C.
    pub(super) fn write_pages(
        &self,
        prepared: &Prepared,
        frees_paused: &FreesPaused<'_>,
        pacer: Option<&Pacer<'_>>,
    ) -> Result<Counts> {
        let csn = prepared.view.csn();
        let bytes = writer_bytes(self.pool.frames().memory_bytes());
        let (written, counts) = (Vec::new(), Counts::default());
        let mut work = PageWork { checkpointer: self, prepared, csn, written, counts };
        let mut writer = prepared.open.writer(&*self.storage, bytes)?;
        writer.limit_run(self.pool.frames().demand().dirty.load(Ordering::Relaxed));
        let mut next = 1;
        // The page count is read again each time: a structure change that was under way when the
        // epoch began may create pages. It has ended when its other, latched pages have been
        // imaged.
        while next < self.pool.page_count() {
            let end = self.pool.page_count().min(next + BATCH);
            (next..end).try_for_each(|id| work.write_page(&mut writer, PageId(id)))?;
            work.write_handed_over(&mut writer)?;
            // A paced checkpoint waits for its writes: a pace means little while the device has a
            // backlog.
            work.complete(&mut writer, pacer.is_some())?;
            next = end;
            let done = next as f64 / self.pool.page_count() as f64;
            self.totals.lock().running = Some(done);
            prepared.view.made_progress();
            if let Some(pacer) = pacer {
                pacer.pause(done, || self.is_hurried());
            }
        }
        work.write_handed_over(&mut writer)?;
        work.complete(&mut writer, true)?;
        let retired = self.system.large_values.deferred_as_of(csn, frees_paused);
        let (tables, unfinished) = (prepared.tables.clone(), prepared.unfinished.clone());
        let former = prepared.former.clone();
        prepared.open.write_blob(&encode_catalog(&StoredCatalog { tables, retired, unfinished, former }))?;
        Ok(work.counts)
    }
}

/// Writes the images of one checkpoint.
struct PageWork<'a> {
    checkpointer: &'a Checkpointer,
    prepared: &'a Prepared,
    csn: Csn,
    written: Vec<Written>,
    counts: Counts,
}

/// A token contains the imaged version, and this bit if nothing in the page is newer than C.
const TOKEN_NEWEST: u64 = 1 << 63;

impl PageWork<'_> {
    /// A page that the checkpoint before also wrote will change again soon: it is hot. Cold are
    /// pages of a closing database, pages without an image, and pages that stayed unchanged for
    /// longer than a checkpoint.
    fn heat(&self, page: PageId) -> Heat {
        let frames = self.checkpointer.pool.frames();
        let imaged_lately = frames.epoch_of(page).saturating_add(1) >= frames.epoch();
        let hot = imaged_lately && !self.prepared.closing && self.checkpointer.store.contains(page);
        if hot { Heat::Hot } else { Heat::Cold }
    }

    fn write_page(&mut self, writer: &mut ImageWriter, page: PageId) -> Result<()> {
        let imager = &self.checkpointer.imager;
        if !imager.seems_needed(page) {
            return Ok(());
        }
        let mut imaged = Ok(None);
        let heat = self.heat(page);
        let pushed = writer.push(page, self.csn, heat, |out| {
            imaged = imager.image_page(page, out);
            let Imaged { version, newest } = imaged.as_ref().ok()?.as_ref()?;
            debug_assert!(version.to_bits() & TOKEN_NEWEST == 0, "a version leaves a bit free");
            Some((ImageKind::Settled, version.to_bits() | if *newest { TOKEN_NEWEST } else { 0 }))
        })?;
        self.counts.written += u64::from(pushed);
        self.counts.rewritten += u64::from(pushed && heat == Heat::Hot);
        imaged.map(drop)
    }

    fn write_handed_over(&mut self, writer: &mut ImageWriter) -> Result<()> {
        for HandedOver { page, image, .. } in self.checkpointer.imager.take_handed_over() {
            writer.push(page, self.csn, Heat::Hot, |out| {
                out.copy_from_slice(&image[..out.len()]);
                Some((ImageKind::Settled, 0))
            })?;
            self.counts.written += 1;
        }
        Ok(())
    }

    /// Records the images whose writes have completed.
    fn complete(&mut self, writer: &mut ImageWriter, all: bool) -> Result<()> {
        let result = writer.reap(all, &mut self.written);
        for Written { page, reference, token, .. } in self.written.drain(..) {
            self.prepared.open.record(page, reference);
            if token & TOKEN_NEWEST != 0 {
                let version = Version::from_bits(token & !TOKEN_NEWEST);
                let claimed = self.checkpointer.pool.claim_unchanged(page, version);
                if let Some(claimed) = claimed.filter(|claimed| claimed.is_dirty()) {
                    claimed.set_clean(false);
                }
            }
        }
        result
    }
}
