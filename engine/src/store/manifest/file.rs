//! The file `MANIFEST`: two slots, so that a new manifest replaces the old one in one step.
//!
//! ```text
//!   byte 0          slot 0  (1 MiB)        publish:  1. write one slot, durably  <- the switch
//!   byte 1 MiB      slot 1  (1 MiB)                  2. write the same bytes to the other slot, durably
//! ```
//!
//! # Invariants
//! - N1: at every moment one slot holds a whole manifest. A crash in step 1 leaves the old one, in
//!   step 2 the new one.
//! - N2: outside a publication both slots are equal, so which slot is written first does not
//!   matter. Without step 2, damage to one slot later would let the previous manifest win, whose
//!   blocks and log may have been reused. Slots that *read* equal may differ on the device: one may
//!   be in a cache only (N7).
//! - N3: the valid slot with the highest generation wins; two valid slots of one generation that
//!   differ are corruption. A slot that cannot be read is not valid, and the other one is enough:
//!   by N1 and N2 it is the newest, or the publication of the newest had not ended, and no block is
//!   reused before that. But a reader may have the lost manifest, so no other manifest gets its
//!   generation: neither from this process nor, as long as the reader lives, from a later one,
//!   which finds both slots equal.
//! - N4 (I11): after a failed write nothing more is published: what the slots hold is unknown.
//! - N5: both slots have space for twice the newest manifest, so that publishing cannot run out of
//!   space. The rest of the file is a hole. A publication reserves what it lacks before it writes
//!   anything, and a checkpoint before it depends on the publication ([`ManifestFile::reserve`]).
//! - N6: a reader beside a publishing process may find both slots torn, because it reads one after
//!   the other: then it reads again. The manifest that it finds may have just passed step 1 and not
//!   be durable yet; its transactions are durable in the log.
//! - N7: an open for writing relies on durable state only, and restores N2. A process that was
//!   killed in either step, or whose flush failed, may have left a manifest that is readable but
//!   not durable, so that a power cut removes it. In step 1: blocks that only the previous manifest
//!   names would be reused before that. In step 2: the next publication might begin with the only
//!   durable slot. So each open writes the newest manifest again in its slot and, when that is
//!   durable, to the other slot, which may have been the only durable one. It does so also if both
//!   read equal: the durable one stays intact while the other is written, and writing the same
//!   bytes changes nothing. A flush is not enough: after a failed flush the next one may report
//!   success. The decoded bytes are written, because a second read may return others.
//!
//! - N8: what N7 writes again is durable already if the process that wrote it last closed the
//!   database: both of its writes had ended. It leaves a note, which is lost with the next write to
//!   the file by any process, and with the next holder of the lock. If there is a note, nothing is
//!   written again.
//!   The note itself need not be durable: after a power cut everything that is read is.
//!
//! A storage that keeps the manifest in a [`Register`](ManifestStore::Register) replaces it in one
//! step, and what is read there is durable: N1 holds by itself, and N2, N3, N5 and N7 ask for
//! nothing.

use super::format::{Manifest, SLOT_BYTES};
use super::reader_slots;
use crate::base::planted::{self, Bug};
use crate::base::{Error, ErrorKind, Location, Result};
use crate::device::{
    AlignedBuffer, Directory, File, MANIFEST_PATH, ManifestStore, Names, OpenMode, SECTOR_BYTES, Storage,
    ownership,
};
use crate::sync::Mutex;
use std::cmp::Ordering;

/// Space that each slot has at least, in bytes.
const RESERVED_BYTES: usize = 16 << 10;

/// The content of the file, by which a database is recognised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ManifestState {
    /// There is no file.
    Missing,
    /// Nothing, or zeros: a crash interrupted the creation before the first manifest.
    Blank,
    /// Something else than a manifest: the file is of another program, or damaged.
    Foreign,
    /// A slot begins like a manifest: open it.
    Written,
}

/// Returns the content of the file. The first manifest is the last step of creating a database.
///
/// # Errors
/// I/O.
pub fn manifest_state(storage: &dyn Storage) -> Result<ManifestState> {
    let file = match open_store(storage, false, true) {
        Ok(ManifestStore::File(file)) => file,
        Ok(ManifestStore::Register(register)) => {
            let is_ours = Manifest::begins(&register.read()?);
            return Ok(if is_ours { ManifestState::Written } else { ManifestState::Foreign });
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(ManifestState::Missing),
        Err(error) => return Err(error),
    };
    let mut is_blank = true;
    for slot in 0..2 {
        match read_slot(&*file, slot, SECTOR_BYTES) {
            // A slot that cannot be read may contain a manifest.
            Err(error) if error.kind() == ErrorKind::Io => return Ok(ManifestState::Written),
            Err(error) => return Err(error),
            Ok(start) if Manifest::begins(&start) => return Ok(ManifestState::Written),
            Ok(start) => is_blank &= start.iter().all(|byte| *byte == 0),
        }
    }
    // A file of others may begin with zeros, or end before the first sector does.
    if is_blank
        && let Some(directory) = storage.directory()
        && (ownership::is_blank(directory, MANIFEST_PATH, 2 * SLOT_BYTES as u64)? || is_cut_off(directory)?)
    {
        return Ok(ManifestState::Blank);
    }
    Ok(ManifestState::Foreign)
}

/// Returns whether the file is a manifest that ends within its first sector: a power cut during a
/// creation came between the parts of the first write.
fn is_cut_off(directory: &dyn Directory) -> Result<bool> {
    let start = ownership::content(directory, MANIFEST_PATH, SECTOR_BYTES - 1)?;
    Ok(start.is_some_and(|start| Manifest::decode(&start).is_ok()))
}

/// What to do without a manifest that counts.
pub const LOST_MANIFEST_ADVICE: &str = "put the manifest back, or restore from a backup; `quench verify` says what is damaged, and \
     `quench salvage` copies what can be read";

/// Reads that may find both slots torn before this is an error.
const TORN_READS_MAX: u32 = 50;
const TORN_READ_PAUSE: std::time::Duration = std::time::Duration::from_millis(2);

#[derive(Debug)]
struct Newest {
    generation: u64,
    /// Bytes of each slot that have space on the disk (N5).
    reserved: usize,
    /// N4.
    failed: bool,
    /// The error of that write.
    failure: Option<Error>,
}

/// The open manifest.
#[derive(Debug)]
pub struct ManifestFile {
    store: ManifestStore,
    newest: Mutex<Newest>,
}

impl ManifestFile {
    /// Creates the file and publishes `first`. When it returns, the database exists durably. Call
    /// it last, and only if [`manifest_state`] allows it.
    ///
    /// # Errors
    /// `OutOfSpace`; I/O.
    pub fn create(storage: &dyn Storage, first: &Manifest) -> Result<ManifestFile> {
        let manifest_file = ManifestFile::prepare(storage)?;
        storage.flush_names(Names::Root)?;
        manifest_file.publish(first)?;
        Ok(manifest_file)
    }

    /// Creates the file without a manifest, with space for some. The caller makes its name durable
    /// before anything is published. Call it only if [`manifest_state`] allows it.
    ///
    /// # Errors
    /// `OutOfSpace`; I/O.
    pub fn prepare(storage: &dyn Storage) -> Result<ManifestFile> {
        let store = open_store(storage, true, false)?;
        if let ManifestStore::File(file) = &store {
            if file.len()? > 0 {
                // What a creation that was cut short left here must not come back beside the pages
                // of this one.
                file.set_len(0)?;
                file.flush()?;
            }
            file.set_len(2 * SLOT_BYTES as u64)?;
            // Written, not only reserved: then a publication changes no metadata. The first one
            // makes them durable.
            let zeros = AlignedBuffer::zeroed(RESERVED_BYTES);
            [0, 1].into_iter().try_for_each(|slot| file.write_at(slot_offset(slot), &zeros))?;
        }
        let newest = Newest { generation: 0, reserved: RESERVED_BYTES, failed: false, failure: None };
        Ok(ManifestFile { store, newest: Mutex::new(newest) })
    }

    /// Notes for the next open that both slots hold the newest manifest durably (N8). To be called
    /// by a close, after which nothing is published.
    pub fn note_durable(storage: &dyn Storage) {
        storage.note_durable();
    }

    /// Opens the file and reads the newest manifest. Unless `read_only`, both slots contain it
    /// durably then.
    ///
    /// # Errors
    /// `NotFound`; `Corruption` that names both slots if neither is valid; `Unsupported` if either
    /// is of a newer version; I/O, also if neither is valid because one cannot be read.
    pub fn open(storage: &dyn Storage, read_only: bool) -> Result<(ManifestFile, Manifest)> {
        let store = open_store(storage, false, read_only)?;
        let Found { slot, manifest, bytes, alone, is_in_both } = find_newest(&store)?;
        let is_durable = is_in_both && is_noted_durable(storage);
        if let (ManifestStore::File(file), false, false) = (&store, read_only, is_durable) {
            // N7.
            let other = 1 - slot;
            let order = if planted::is(Bug::NewestSlotNotFirst) { [other, slot] } else { [slot, other] };
            write_slots(&**file, &bytes, &order)?;
        }
        // N3. A reader that comes from now on finds this manifest.
        let read = if read_only { 0 } else { reader_slots::highest_read(storage, &manifest) };
        let generation = (manifest.generation + u64::from(alone)).max(read);
        let newest = Newest { generation, reserved: bytes.len(), failed: false, failure: None };
        let opened = ManifestFile { store, newest: Mutex::new(newest) };
        if !read_only {
            opened.make_room(&mut opened.newest.lock(), Manifest::slot_bytes(&bytes))?;
        }
        Ok((opened, manifest))
    }

    /// Reads the newest manifest again.
    ///
    /// # Errors
    /// As [`ManifestFile::open`].
    #[cfg(test)]
    pub fn read(&self) -> Result<Manifest> {
        let _no_publication = self.newest.lock();
        find_newest(&self.store).map(|found| found.manifest)
    }

    /// Reads the newest manifest beside a process that may be publishing (N6).
    ///
    /// # Errors
    /// As [`ManifestFile::open`].
    pub fn read_beside_writer(storage: &dyn Storage) -> Result<Manifest> {
        let store = open_store(storage, false, true)?;
        let mut read = find_newest(&store);
        for _ in 1..TORN_READS_MAX {
            match &read {
                Err(error) if error.kind() == ErrorKind::Corruption => {}
                _ => break,
            }
            crate::sync::thread::sleep(TORN_READ_PAUSE);
            read = find_newest(&store);
        }
        read.map(|found| found.manifest)
    }

    /// Checks that `manifest` can be encoded, and reserves the space that publishing it takes. It
    /// stays reserved.
    ///
    /// # Errors
    /// `InvalidArgument`, `OutOfSpace`, I/O. Nothing was written: the newest manifest still counts.
    pub fn reserve(&self, manifest: &Manifest) -> Result<()> {
        // No generation is longer: its length is fixed.
        let len = manifest.encode()?.len();
        self.make_room(&mut self.newest.lock(), len)
    }

    /// Reserves the space of N5 for a manifest of `len` bytes. A full disk need not have more than
    /// `len`.
    fn make_room(&self, newest: &mut Newest, len: usize) -> Result<()> {
        let ManifestStore::File(file) = &self.store else { return Ok(()) };
        let wanted = len.saturating_mul(2).next_multiple_of(SECTOR_BYTES).clamp(RESERVED_BYTES, SLOT_BYTES);
        if newest.reserved >= wanted {
            return Ok(());
        }
        let reserve = |bytes: usize| {
            [0, 1].into_iter().try_for_each(|slot| {
                let from = slot_offset(slot);
                file.reserve(from, from + bytes as u64)
            })
        };
        match reserve(wanted) {
            Ok(()) => newest.reserved = wanted,
            Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                let least = len.next_multiple_of(SECTOR_BYTES);
                if newest.reserved < least {
                    reserve(least)?;
                    newest.reserved = least;
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Returns whether this error of [`ManifestFile::publish`] says that nothing was written.
    pub fn is_unwritten(&self, error: &Error) -> bool {
        matches!(self.store, ManifestStore::Register(_)) && error.kind() == ErrorKind::Io
    }

    /// Replaces the manifest; sets its `generation` and returns it. After `Ok` the new manifest is
    /// durable in both slots.
    ///
    /// # Errors
    /// `InvalidArgument` or `OutOfSpace` if the manifest cannot be encoded or has no space: nothing
    /// was written, and later publications may succeed. So it is after an `Io` of a register. Other
    /// I/O: the new manifest may or may not be the durable one, and
    /// `Poisoned` after that (N4).
    pub fn publish(&self, manifest: &Manifest) -> Result<u64> {
        let mut newest = self.newest.lock();
        if newest.failed {
            let what = "an earlier write of the manifest failed";
            let error = match &newest.failure {
                Some(failure) => Error::after(ErrorKind::Poisoned, what, failure),
                None => Error::new(ErrorKind::Poisoned, what),
            };
            return Err(error.at(self.store.location()));
        }
        let generation = newest.generation + 1;
        let bytes = Manifest { generation, ..manifest.clone() }.encode()?;
        let buffer = aligned(&bytes);
        self.make_room(&mut newest, bytes.len())?;
        // Set before writing: any early end of this call, a panic included, ends publishing.
        newest.failed = true;
        if let Err(error) = self.replace(&buffer) {
            if self.is_unwritten(&error) {
                newest.failed = false;
                return Err(error);
            }
            newest.failure = Some(error.duplicate());
            return Err(error);
        }
        (newest.generation, newest.failed) = (generation, false);
        Ok(generation)
    }

    fn replace(&self, bytes: &[u8]) -> Result<()> {
        match &self.store {
            ManifestStore::Register(register) => register.replace(bytes),
            ManifestStore::File(file) if planted::is(Bug::SecondSlotSkipped) => {
                write_slots(&**file, bytes, &[0])
            }
            ManifestStore::File(file) => write_slots(&**file, bytes, &[0, 1]),
        }
    }
}

pub(super) fn open_store(storage: &dyn Storage, create: bool, read_only: bool) -> Result<ManifestStore> {
    storage.manifest(OpenMode { create, read_only, direct: true })
}

fn aligned(bytes: &[u8]) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(bytes.len());
    buffer[..bytes.len()].copy_from_slice(bytes);
    buffer
}

pub(super) fn slot_offset(slot: usize) -> u64 {
    (slot * SLOT_BYTES) as u64
}

/// Returns whether the process that closed the database left the file as it is, durable (N8).
#[must_use]
pub fn is_noted_durable(storage: &dyn Storage) -> bool {
    storage.is_noted_durable() || planted::is(Bug::ManifestBelievedDurable)
}

/// Writes the slots one after the other, each when the one before is durable. A flush, and not a
/// durable write: the file may be a sparse copy, and longer than before.
fn write_slots(file: &dyn File, bytes: &[u8], slots: &[usize]) -> Result<()> {
    slots.iter().try_for_each(|slot| {
        file.write_at(slot_offset(*slot), bytes)?;
        file.flush()
    })
}

/// Reads the first `len` bytes of a slot; bytes behind the end of the file are zero.
fn read_slot(file: &dyn File, slot: usize, len: usize) -> Result<AlignedBuffer> {
    let mut buffer = AlignedBuffer::zeroed(len);
    let there = file.len()?.saturating_sub(slot_offset(slot)).min(len as u64) as usize;
    let whole_sectors = there / SECTOR_BYTES * SECTOR_BYTES;
    if whole_sectors > 0 {
        file.read_at(slot_offset(slot), &mut buffer[..whole_sectors])?;
    }
    Ok(buffer)
}

/// Most manifests are shorter.
const READ_FIRST_BYTES: usize = 4 * SECTOR_BYTES;

/// Reads as much of a slot as its manifest needs.
pub(super) fn read_manifest(file: &dyn File, slot: usize) -> Result<AlignedBuffer> {
    let start = read_slot(file, slot, READ_FIRST_BYTES)?;
    match Manifest::slot_bytes(&start) {
        len if len <= start.len() => Ok(start),
        // Reads whole sectors.
        len => read_slot(file, slot, len.next_multiple_of(SECTOR_BYTES)),
    }
}

/// The newest manifest.
struct Found {
    /// Its slot; 0 of a register.
    slot: usize,
    manifest: Manifest,
    /// The bytes that it was decoded from.
    bytes: AlignedBuffer,
    /// The other slot is not valid.
    alone: bool,
    /// The other slot has the same manifest.
    is_in_both: bool,
}

fn find_newest(store: &ManifestStore) -> Result<Found> {
    let found = |slot, bytes: AlignedBuffer, place: Location| {
        let manifest = Manifest::decode(&bytes).map_err(|error| error.at(place))?;
        Ok::<_, Error>(Found { slot, manifest, bytes, alone: false, is_in_both: false })
    };
    let file = match store {
        ManifestStore::File(file) => file,
        ManifestStore::Register(register) => {
            return found(0, aligned(&register.read()?), register.location());
        }
    };
    let read = |slot| found(slot, read_manifest(&**file, slot)?, file.location(slot_offset(slot)));
    match (read(0), read(1)) {
        (Ok(zero), Ok(one)) => match zero.manifest.generation.cmp(&one.manifest.generation) {
            Ordering::Less => Ok(one),
            Ordering::Greater => Ok(zero),
            Ordering::Equal if zero.manifest == one.manifest => Ok(Found { is_in_both: true, ..zero }),
            Ordering::Equal => {
                let what = "both slots of the manifest have the same generation but differ";
                Err(Error::corruption(what).at(file.location(0)))
            }
        },
        // A newer build has written here. The readable slot may be older.
        (Err(error), _) | (_, Err(error)) if error.kind() == ErrorKind::Unsupported => Err(error),
        (Ok(found), Err(error)) | (Err(error), Ok(found)) => {
            tracing::warn!(%error, "one slot of the manifest is not valid");
            Ok(Found { alone: true, ..found })
        }
        (Err(zero), Err(one)) => {
            // The unreadable slot may be valid at another time.
            if let Some(unread) = [&zero, &one].into_iter().find(|error| error.kind() == ErrorKind::Io) {
                return Err(unread.duplicate());
            }
            let (zero, one) = (zero.without_advice(), one.without_advice());
            let what = format!("neither slot of the manifest is valid: {zero}; {one}");
            Err(Error::corruption(what).with_advice(LOST_MANIFEST_ADVICE).at(file.location(0)))
        }
    }
}
