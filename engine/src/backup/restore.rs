//! Making a database of a full backup and the increments that follow it.

use super::description::{BACKUP_PATH, Description};
use super::progress::{PROGRESS_PAGES, ProgressFn};
use super::target::{RESTORING_PATH, error_of, refuse_unless_empty};
use crate::base::random::Random;
use crate::base::settings::Compression;
use crate::base::{Csn, DatabaseId, Epoch, Error, Location, PageId, Result};
use crate::device::{Names, OpenMode, Storage};
use crate::store::{BlockRef, Manifest, ManifestFile, PageStore, StoreCopy, StoredImage};
use crate::tree::image::validate_image_of;
use std::path::PathBuf;
use std::sync::Arc;

/// Pages that were brought back.
#[derive(Debug)]
pub struct Restored {
    /// The published manifest of the new database.
    pub manifest: Manifest,
    /// Pages copied.
    pub pages: u64,
    /// Bytes of page images copied.
    pub bytes: u64,
}

/// A full backup and the increments that follow it, open: each page that the last one lists is in
/// one of them.
#[derive(Debug)]
pub struct Chain {
    /// Not empty.
    links: Vec<Link>,
    /// For each link, which of its images are wanted.
    shares: Vec<Vec<(PageId, BlockRef)>>,
}

/// A backup of the chain, open.
#[derive(Debug)]
struct Link {
    /// For errors.
    name: String,
    description: Description,
    store: Arc<PageStore>,
    /// Its own images, ascending by page.
    pages: Vec<(PageId, BlockRef)>,
}

impl Chain {
    /// Opens backups, in their order, each with its path, if it has one. Only reads; images are
    /// looked at when they are restored. An error says of which backup it is.
    ///
    /// # Errors
    /// `InvalidArgument` if there is none or they do not follow each other; `NotFound`;
    /// `Corruption` if one is damaged or not complete; `Unsupported`; I/O.
    pub fn open(backups: &[(Arc<dyn Storage>, Option<PathBuf>)]) -> Result<Chain> {
        if backups.is_empty() {
            return Err(Error::invalid("there is no backup to restore"));
        }
        let links = open_links(backups)?;
        let shares = shares(&links)?;
        Ok(Chain { links, shares })
    }

    fn last(&self) -> &Link {
        self.links.last().expect("there is a backup in a chain")
    }

    /// The source's manifest at the last backup; what its log is judged by.
    #[must_use]
    pub fn source(&self) -> &Manifest {
        &self.last().description.manifest
    }
}

/// Makes a new database in `target`, for which [`begin_restore`] was called, of a chain, as of its
/// last backup, in which images are compressed like this. It cannot be opened before
/// [`finish_restore`].
///
/// # Errors
/// `Corruption` if a backup is damaged; `OutOfSpace`; I/O.
pub fn restore_pages(
    chain: &Chain,
    target: &dyn Storage,
    compression: Compression,
    progress: ProgressFn<'_>,
) -> Result<Restored> {
    let of_target = error_of("the target");
    let (last, source) = (chain.last(), chain.source());
    let (csn, page_bytes) = (source.checkpoint, source.page_bytes as usize);
    let database = DatabaseId(Random::from_entropy().next_u64());
    let mut copy = StoreCopy::create(target, database, page_bytes, csn, compression).map_err(of_target)?;
    let (mut done, total) = (0, last.description.source.len() as u64);
    for (link, wanted) in chain.links.iter().zip(&chain.shares) {
        let mut written = true;
        let copied = link.store.visit_images(wanted, &mut |image| {
            check_image(image, &last.description)?;
            if done % PROGRESS_PAGES == 0 {
                progress("pages restored", done, total);
            }
            done += 1;
            copy.push(image).inspect_err(|_| written = false)
        });
        copied.map_err(|error| error.of(if written { &link.name } else { "the target" }))?;
    }
    progress("pages restored", total, total);
    let catalog = source.store.catalog.as_ref().map(|blob| last.store.read_blob(blob)).transpose();
    let catalog = catalog.map_err(error_of(&last.name))?;
    let root = copy.finish(catalog.as_deref()).map_err(of_target)?;
    let manifest = Manifest { store: root, ..first_manifest(database, source) };
    ManifestFile::create(target, &manifest).map_err(of_target)?;
    Ok(Restored { manifest, pages: total, bytes: total * page_bytes as u64 })
}

/// Makes a new database in `target`, for which [`begin_restore`] was called, of the checkpoint that
/// `store` has open and `source` names. It cannot be opened before [`finish_restore`].
///
/// # Errors
/// As [`restore_pages`].
pub fn copy_checkpoint(
    store: &PageStore,
    source: &Manifest,
    target: &dyn Storage,
    compression: Compression,
    progress: ProgressFn<'_>,
) -> Result<()> {
    let [of_source, of_target] = ["the source", "the target"].map(error_of);
    let (csn, page_bytes) = (source.checkpoint, source.page_bytes as usize);
    let database = DatabaseId(Random::from_entropy().next_u64());
    let mut copy = StoreCopy::create(target, database, page_bytes, csn, compression).map_err(&of_target)?;
    let pages = store.references();
    let (mut done, total, mut written) = (0, pages.len() as u64, true);
    let copied = store.visit_images(&pages, &mut |image| {
        validate_image_of(image.kind, image.bytes)
            .map_err(|error| error.at(Location::Page { page: image.page, offset: 0 }))?;
        if done % PROGRESS_PAGES == 0 {
            progress("pages copied", done, total);
        }
        done += 1;
        copy.push(image).inspect_err(|_| written = false)
    });
    copied.map_err(|error| error.of(if written { "the source" } else { "the target" }))?;
    progress("pages copied", total, total);
    let catalog = source.store.catalog.as_ref().map(|blob| store.read_blob(blob)).transpose();
    let root = copy.finish(catalog.map_err(of_source)?.as_deref()).map_err(&of_target)?;
    let manifest = Manifest { store: root, ..first_manifest(database, source) };
    ManifestFile::create(target, &manifest).map_err(of_target)?;
    Ok(())
}

/// Marks an empty directory, whose lock the caller has (K3).
///
/// # Errors
/// `AlreadyExists` or `InvalidArgument` if the target is not empty; I/O.
pub fn begin_restore(target: &dyn Storage) -> Result<()> {
    refuse_unless_empty(target)?;
    let mode = OpenMode { create: true, read_only: false, direct: true };
    target.small_file(RESTORING_PATH, mode)?.flush()?;
    target.flush_names(Names::Root)
}

/// The database can be opened from now on.
///
/// # Errors
/// I/O.
pub fn finish_restore(target: &dyn Storage) -> Result<()> {
    target.remove_small_file(RESTORING_PATH)?;
    target.flush_names(Names::Root)
}

/// K4. CSNs and epochs continue those of the source, so that both mean the same in messages and in
/// a later restore.
fn first_manifest(database: DatabaseId, source: &Manifest) -> Manifest {
    let epoch = Epoch(source.reserved_epoch.0.max(source.epoch.0));
    let next = source.checkpoint.next();
    Manifest {
        epoch,
        reserved_epoch: epoch,
        checkpoint: source.checkpoint,
        covered: source.checkpoint,
        first_csn: next,
        next_csn: next,
        next_table: source.next_table,
        // The catalog is copied as it is.
        ..Manifest::new(database, source.page_bytes)
    }
}

fn open_links(backups: &[(Arc<dyn Storage>, Option<PathBuf>)]) -> Result<Vec<Link>> {
    let mut chain: Vec<Link> = Vec::with_capacity(backups.len());
    for (number, (storage, path)) in backups.iter().enumerate() {
        let path = path.as_ref().map_or(String::new(), |path| format!(", {}", path.display()));
        let name = format!("backup {} of the chain{path}", number + 1);
        let description = Description::read(&**storage).map_err(error_of(&name))?;
        check_follows(chain.last().map(|link| &link.description), &description)
            .map_err(|what| misplaced(&name, &what))?;
        let manifest = &description.manifest;
        let page_bytes = manifest.page_bytes as usize;
        let store = PageStore::open_read_only(&**storage, manifest.database, page_bytes, &manifest.store)
            .map_err(error_of(&name))?;
        let pages = store.references();
        chain.push(Link { name, description, store, pages });
    }
    Ok(chain)
}

fn misplaced(name: &str, what: &str) -> Error {
    let place = Location::File { path: BACKUP_PATH.into(), offset: 0 };
    Error::invalid(what).of(name).at(place)
}

fn check_follows(previous: Option<&Description>, next: &Description) -> std::result::Result<(), String> {
    match (previous, &next.base) {
        (None, None) => Ok(()),
        (None, Some(base)) => Err(format!(
            "it is an increment: begin with the full backup (its base is backup {} at CSN {})",
            base.id, base.csn
        )),
        (Some(_), None) => Err("it is a full backup: only the first is".into()),
        (Some(previous), Some(base)) if base.id != previous.id || next.database() != previous.database() => {
            Err(format!(
                "it adds to backup {} at CSN {}, not to the one before it, {} at CSN {}",
                base.id,
                base.csn,
                previous.id,
                previous.csn()
            ))
        }
        (Some(_), Some(_)) => Ok(()),
    }
}

/// For each backup of the chain, which of its images are wanted: of every page that the last one
/// lists, the newest.
fn shares(chain: &[Link]) -> Result<Vec<Vec<(PageId, BlockRef)>>> {
    let mut shares = vec![Vec::new(); chain.len()];
    let mut at = vec![0; chain.len()];
    let listed = chain.last().map_or(&[][..], |last| &last.description.source);
    for (page, _) in listed {
        let found = (0..chain.len()).rev().find_map(|number| {
            let pages = &chain[number].pages;
            while pages.get(at[number]).is_some_and(|(other, _)| other < page) {
                at[number] += 1;
            }
            let (other, reference) = pages.get(at[number])?;
            (other == page).then_some((number, *reference))
        });
        let Some((number, reference)) = found else {
            return Err(Error::corruption(
                "no backup of the chain has an image of a page that the last one lists",
            )
            .at(Location::Page { page: *page, offset: 0 }));
        };
        shares[number].push((*page, reference));
    }
    Ok(shares)
}

/// K2, and that the image is the one that the last backup means.
fn check_image(image: &StoredImage<'_>, last: &Description) -> Result<()> {
    let place = || Location::Page { page: image.page, offset: 0 };
    validate_image_of(image.kind, image.bytes).map_err(|error| error.at(place()))?;
    if !last.find(image.page).is_some_and(|reference| reference.means_same_as(image.reference)) {
        let what = "the newest image in the chain is not the one that the last backup lists";
        return Err(Error::corruption(what).at(place()));
    }
    Ok(())
}

impl Restored {
    /// The CSN of the restored pages.
    #[must_use]
    pub fn csn(&self) -> Csn {
        self.manifest.checkpoint
    }
}
