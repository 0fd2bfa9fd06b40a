//! Opens the newest durable checkpoint beside the process that writes; see `reader_slots`.

use super::file::ManifestFile;
use super::format::Manifest;
use super::reader_slots::{CheckpointReader, ReaderSlot, lock_free_slot};
use crate::base::{Error, ErrorKind, Result};
use crate::device::Storage;
use crate::sync::atomic::{Ordering, fence};

/// Each repetition costs a checkpoint that came in between.
const ANNOUNCEMENTS_MAX: u32 = 1000;

/// Opens the newest durable checkpoint beside the writer; returns its manifest, and the slot that
/// keeps its blocks.
///
/// # Errors
/// `Busy` if all slots are taken, or checkpoints come faster than the manifest can be read;
/// `Corruption` and `Unsupported` of the manifest; I/O.
pub fn open_newest_checkpoint(storage: &dyn Storage) -> Result<(Manifest, ReaderSlot)> {
    let Some(directory) = storage.directory() else {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "a store of objects has pins and no slots of readers",
        ));
    };
    let file = lock_free_slot(directory)?;
    let mut manifest = ManifestFile::read_beside_writer(storage)?;
    for _ in 0..ANNOUNCEMENTS_MAX {
        let process = crate::sync::thread::process_id();
        let reader = CheckpointReader { generation: manifest.generation, csn: manifest.checkpoint, process };
        file.write_at(0, &reader.encode(manifest.database))?;
        fence(Ordering::SeqCst);
        let again = ManifestFile::read_beside_writer(storage)?;
        // Another manifest may have this generation, if the first one was lost.
        if again == manifest {
            return Ok((manifest, ReaderSlot::new(Some(file))));
        }
        manifest = again;
    }
    let what = "checkpoints come faster than one can be opened";
    Err(Error::new(ErrorKind::Busy, what).at(file.location(0)))
}
