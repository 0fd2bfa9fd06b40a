//! What a promoted standby hands over to the recovery: the pages of its copy.
//!
//! 1. The copy makes a checkpoint of its own, in its scratch files. So its pages are as of one CSN,
//!    and stay so.
//! 2. They fit if the newest manifest of the database has the checkpoint that the copy began with:
//!    then a page that the copy has not written is the page of that checkpoint.
//! 3. A promotion needs about 64 bytes for each page for a moment: three lists and a set. With
//!    pages of 4 KiB that is 16 MiB for each GiB of the database. What stays is [`AdoptedPages`].
//! 4. Tables must be those of the checkpoint, because a copy may number and call others otherwise.
//!    The log of a database with change history is needed as a whole.
//! 5. A long transaction may have chunks at or below the checkpoint, and commit above it. What was
//!    passed over may have such chunks, which a recovery that begins above them does not look for.
//!    Then the whole log is replayed.

use super::copy::{Copy, FollowingCopy};
use crate::api::open::Handover;
use crate::base::settings::Settings;
use crate::base::{PageId, Result};
use crate::checkpoint::AdoptedPages;
use crate::device::OverlayStorage;
use crate::log::ReadLog;
use crate::recovery::Applied;
use crate::store::{BlockRef, HeldBlocks, Manifest, PageStore};
use crate::sync::{Mutex, thread};
use std::sync::Arc;

/// The pages of a copy at one CSN.
struct CopyPages {
    images: Vec<(PageId, BlockRef)>,
    catalog: Vec<u8>,
    held: HeldBlocks,
}

/// Begins to hand over a copy. `None` if nothing of it can be used.
pub(super) fn begin(following: FollowingCopy, settings: &Settings) -> Option<Handover> {
    // In a directory what was found may have to be appended again.
    let overlay = following.copy.pinned()?.clone();
    let is_whole = following.csn == following.tail.csn();
    let base = &following.copy.base;
    let has_chunks_below = base.covered < base.checkpoint;
    if !is_whole || has_chunks_below || following.has_other_tables || settings.change_history_bytes > 0 {
        return None;
    }
    let (copy, log) = (following.copy.clone(), following.tail.into_read_log());
    let pages: Arc<Mutex<Option<Result<CopyPages>>>> = Arc::default();
    // Beside the claim, which waits for the writer before.
    let (slot, of) = (pages.clone(), copy.clone());
    let thread = thread::spawn("quench-handover", move || {
        let read = pages_of(&of);
        drop(of);
        *slot.lock() = Some(read);
    });
    let thread = thread.ok()?;
    Some(Box::new(move |manifest, store| {
        // A panic leaves nothing.
        let _ = thread.join();
        let pages = pages.lock().take()?;
        let fitted = pages.and_then(|pages| fit(&copy, &overlay, log, pages, manifest, store));
        fitted.unwrap_or_else(|error| {
            tracing::warn!(%error, "the pages of the standby cannot be used: the whole log is replayed");
            None
        })
    }))
}

/// Makes a checkpoint of the copy, and returns its pages.
fn pages_of(copy: &Copy) -> Result<CopyPages> {
    let (checkpointer, store) = (copy.db.inner.checkpointer()?, &copy.db.inner.store);
    let (mut manifest, mut held) = checkpointer.hold(true)?;
    loop {
        let images = store.references();
        let (again, held_again) = checkpointer.hold(false)?;
        if again.generation == manifest.generation {
            let catalog = manifest.store.catalog.as_ref().map(|blob| store.read_blob(blob)).transpose()?;
            return Ok(CopyPages { images, catalog: catalog.unwrap_or_default(), held });
        }
        (manifest, held) = (again, held_again);
    }
}

/// Returns what recovery needs, if the copy began with the checkpoint of the manifest.
fn fit(
    copy: &Copy,
    overlay: &OverlayStorage,
    log: ReadLog,
    pages: CopyPages,
    manifest: &Manifest,
    store: &PageStore,
) -> Result<Option<Applied>> {
    let base = &copy.base;
    let is_same = manifest.database == base.database
        && (manifest.checkpoint, manifest.covered) == (base.checkpoint, base.covered)
        && manifest.store == base.store;
    if !is_same || manifest.clean || manifest.epoch != log.epoch || pages.catalog.is_empty() {
        return Ok(None);
    }
    // Both are ascending.
    let mut stored = store.references().into_iter().peekable();
    let page_bytes = store.page_bytes() as u64;
    let differs = |(page, image): &(PageId, BlockRef)| {
        while stored.next_if(|(before, _)| before < page).is_some() {}
        let at = image.block().0 * page_bytes;
        stored.peek() != Some(&(*page, *image)) || overlay.is_written(at..at + page_bytes)
    };
    let adopted = pages.images.iter().copied().filter(differs).collect();
    let adopted = AdoptedPages::new(copy.db.inner.store.clone(), pages.held, adopted);
    let (all, catalog) = (pages.images.iter().map(|(page, _)| *page).collect(), pages.catalog);
    tracing::info!(csn = log.csn.0, pages = adopted.len(), "recovery begins at what the standby has applied");
    Ok(Some(Applied { log, pages: all, adopted, catalog }))
}
