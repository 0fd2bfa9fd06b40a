//! Making a backup: full, or what has changed since an earlier one.

use super::description::{BackupId, Base, Description};
use super::progress::{PROGRESS_PAGES, ProgressFn};
use super::target::{clear, error_of, refuse_unless_empty};
use crate::base::planted::{self, Bug};
use crate::base::random::Random;
use crate::base::settings::Compression;
use crate::base::{Csn, Error, Location, PageId, Result};
use crate::device::Storage;
use crate::store::{BlockRef, Manifest, ManifestFile, PageStore, StoreCopy};
use crate::tree::image::validate_image_of;

/// The content of a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct BackupReport {
    /// Every transaction up to this one is in it, and no other.
    pub csn: Csn,
    /// Pages of the database.
    pub pages: u64,
    /// Page images copied: all of them, or those that changed since the base.
    pub pages_copied: u64,
    /// Bytes of page images copied.
    pub bytes: u64,
    /// The base's CSN; none for a full backup.
    pub base_csn: Option<Csn>,
    /// Time taken, in seconds.
    pub seconds: f64,
}

/// A checkpoint to be copied. The caller sees to it that its blocks stay (K1).
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The storage of the database.
    pub storage: &'a dyn Storage,
    /// The manifest that names the checkpoint.
    pub manifest: &'a Manifest,
    /// Compression of the images in the copy.
    pub compression: Compression,
}

/// Checks that an earlier backup is complete, before an increment is begun.
///
/// # Errors
/// `NotFound` if there is none; `Corruption`; I/O.
pub fn check_is_backup(base: &dyn Storage) -> Result<()> {
    read_base(base).map(drop)
}

fn read_base(base: &dyn Storage) -> Result<Description> {
    Description::read(base).map_err(error_of("the base"))
}

/// Copies the checkpoint to `target`, an empty directory; with `base`, only what differs from that
/// backup. Durable when it returns. (The caller, which has a clock, sets `seconds` of the report.)
///
/// # Errors
/// `AlreadyExists` or `InvalidArgument` if the target is not empty, or the base is none for this
/// database; `Corruption` if the source or the base is damaged; `OutOfSpace`; I/O. Then what was
/// written before is removed, and if that fails, too, it is no backup.
pub fn back_up(
    source: Source<'_>,
    target: &dyn Storage,
    base: Option<&dyn Storage>,
    progress: ProgressFn<'_>,
) -> Result<BackupReport> {
    let of_target = error_of("the target");
    let base = base.map(read_base).transpose()?;
    if let Some(base) = &base {
        check_base(base, source.manifest)?;
    }
    // Before the lock too, which would end a writer in a store of objects.
    refuse_unless_empty(target).map_err(of_target)?;
    let _lock = target.lock(true).map_err(of_target)?;
    refuse_unless_empty(target).map_err(of_target)?;
    copy(source, target, base.as_ref(), progress).inspect_err(|_| clear(target))
}

/// Copies to a directory that is empty and locked.
fn copy(
    source: Source<'_>,
    target: &dyn Storage,
    base: Option<&Description>,
    progress: ProgressFn<'_>,
) -> Result<BackupReport> {
    let Source { storage, manifest, compression } = source;
    let [of_source, of_target] = ["the source", "the target"].map(error_of);
    let page_bytes = manifest.page_bytes as usize;
    let store = PageStore::open_read_only(storage, manifest.database, page_bytes, &manifest.store)
        .map_err(of_source)?;
    let file = Description::begin(target).map_err(of_target)?;
    let pages = store.references();
    let changed: Vec<(PageId, BlockRef)> = match base {
        None => pages.clone(),
        Some(base) => changed_since(base, &pages),
    };
    let mut copy = StoreCopy::create(target, manifest.database, page_bytes, manifest.checkpoint, compression)
        .map_err(of_target)?;
    let (mut done, total) = (0, changed.len() as u64);
    let mut written = true;
    let copied = store.visit_images(&changed, &mut |image| {
        validate_image_of(image.kind, image.bytes)
            .map_err(|error| error.at(Location::Page { page: image.page, offset: 0 }))?;
        if done % PROGRESS_PAGES == 0 {
            progress("pages backed up", done, total);
        }
        done += 1;
        copy.push(image).inspect_err(|_| written = false)
    });
    copied.map_err(if written { of_source } else { of_target })?;
    progress("pages backed up", total, total);
    let catalog = manifest.store.catalog.as_ref().map(|blob| store.read_blob(blob)).transpose();
    let root = copy.finish(catalog.map_err(of_source)?.as_deref()).map_err(of_target)?;
    let manifest = Manifest { store: root, ..manifest.clone() };
    if base.is_none() {
        ManifestFile::create(target, &at_rest(&manifest)).map_err(of_target)?;
    }
    let description = Description {
        id: BackupId(Random::from_entropy().next_u64()),
        base: base.map(|base| Base { id: base.id, csn: base.csn() }),
        manifest,
        source: pages,
    };
    description.complete(&*file).map_err(of_target)?;
    Ok(BackupReport {
        csn: description.csn(),
        pages: description.source.len() as u64,
        pages_copied: total,
        bytes: total * page_bytes as u64,
        base_csn: description.base.map(|base| base.csn),
        seconds: 0.0,
    })
}

fn check_base(base: &Description, manifest: &Manifest) -> Result<()> {
    if base.database() != manifest.database {
        let (found, wanted) = (base.database(), manifest.database);
        let what = format!("the base is a backup of database {found}, this is {wanted}");
        return Err(Error::invalid(what));
    }
    if base.csn() > manifest.checkpoint {
        let (found, now) = (base.csn(), manifest.checkpoint);
        let what = format!("the base is at CSN {found}, later than this checkpoint at CSN {now}");
        return Err(Error::invalid(what));
    }
    Ok(())
}

/// Both ascend by page.
fn changed_since(base: &Description, pages: &[(PageId, BlockRef)]) -> Vec<(PageId, BlockRef)> {
    let (mut earlier, mut changed) = (base.source.as_slice(), Vec::new());
    for (page, reference) in pages {
        let behind = earlier.iter().take_while(|(other, _)| other < page).count();
        earlier = &earlier[behind..];
        if earlier.first().is_none_or(|known| *known != (*page, *reference)) {
            changed.push((*page, *reference));
        }
    }
    if planted::is(Bug::IncrementMissesPage) && !changed.is_empty() {
        changed.remove(0);
    }
    changed
}

/// The manifest of a database that was closed at this checkpoint.
fn at_rest(manifest: &Manifest) -> Manifest {
    Manifest {
        clean: true,
        covered: manifest.checkpoint,
        first_csn: manifest.checkpoint.next(),
        next_csn: manifest.checkpoint.next(),
        log_memory: None,
        epochs: Vec::new(),
        history: Vec::new(),
        ..manifest.clone()
    }
}
