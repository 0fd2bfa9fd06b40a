//! Readers of checkpoints in other processes. A reader opens the newest durable checkpoint beside
//! the writing process, which keeps the checkpoint's blocks while the reader lives.
//!
//! A reader takes a **slot**: it locks a small file `readers/NN` and writes the generation of its
//! manifest into it. Writer and readers never wait for each other. The lock of a reader that dies
//! disappears.
//!
//! ```text
//!   reader                                          writer
//!   1. lock a free slot                             a. publish manifest n, which lacks some blocks of n - 1
//!   2. read the newest manifest: generation g       b. look at all slots: which are locked, and what is in them
//!   3. write g into the slot                        c. give back those of these blocks, and of those held before, that no
//!                                                      g found needs (see `free`)
//!   4. read the newest manifest again;
//!      not the same one: back to 3 with that
//!   5. read pages
//! ```
//!
//! # Why no block of a reader's checkpoint is used again
//! A block that the reader of g needs is first missing from some n > g. *Which step is first, 4 or
//! a?* If 4 follows the end of a, it finds n, and the reader goes back to 3. Otherwise 1 and 3
//! precede b, and b finds the slot locked with g in it: the block stays. Every later look finds it
//! too. The content of a slot between 1 and 3 (nothing, an earlier reader's g, a torn mixture) does
//! not matter, because step 4 of that reader is still to come.
//!
//! The argument needs that every process sees each lock, write or read of these files that has
//! returned. System calls on one machine guarantee it. A fence stands between 3 and 4 and between a
//! and b, because hardware could still reorder memory accesses. A network file system gives no such
//! guarantee: see `docs/guide/assumptions.md`.
//!
//! *The writer opens while readers exist.* It looks at the slots before it takes a block. A reader
//! of an older g may need any block that the newest manifest does not have, so all of these are
//! held, as gone in the newest generation. A reader whose step 4 follows this look has found the
//! newest manifest, because only the process with the lock of the database publishes another. A
//! reader of a *newer* g has found a manifest that was lost since then, with the only slot that had
//! it: it may need free blocks, and blocks of the newest manifest too. So free blocks are held as
//! gone in g + 1, and no other manifest gets the generation g (see `file`, N3). A reader before
//! step 4 finds another manifest there, of whichever generation, because the whole manifest is
//! compared.
//!
//! *The writer is killed.* Nothing is lost: slots and locks belong to the readers. *A reader is
//! killed:* its lock is gone, and the next look ignores its slot. The next reader that locks the
//! slot overwrites its content.
//!
//! # Invariants
//! - Q1: a locked slot that is torn, of a newer version, unreadable, or of an impossible generation
//!   counts as a reader of generation 0, which needs every block.
//! - Q2: a reader writes only to its slot. It does not read the log.
//! - Q3: slots are never removed: a slot removed while locked would not be seen.
//!
//! # A slot, little-endian
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `QUENCHRD` |
//! | 8 | 4 | format version, 1 |
//! | 12 | 4 | CRC-32C of bytes 16 to 44 |
//! | 16 | 8 | database |
//! | 24 | 8 | generation of the manifest |
//! | 32 | 8 | CSN of the checkpoint |
//! | 40 | 4 | process |

use super::format::{GENERATION_LIMIT, Manifest};
use crate::base::checksum::crc;
use crate::base::encoding::Reader;
use crate::base::{Csn, DatabaseId, Error, ErrorKind, Location, Result};
use crate::device::{Directory, File, OpenMode, Storage};
use crate::sync::atomic::{Ordering, fence};
use std::sync::Arc;

/// The generation of a reader whose checkpoint is unknown: it needs every block.
pub const READS_ANYTHING: u64 = 0;

/// The directory of the slots, in the database directory.
pub const READERS_PATH: &str = "readers";
/// Readers of checkpoints at a time.
pub const READERS_MAX: usize = 64;

const MAGIC: [u8; 8] = *b"QUENCHRD";
const VERSION: u32 = 1;
const BODY_AT: usize = 16;
const SLOT_BYTES: usize = 44;
/// Attempts to find a free slot: a look at a slot locks it for a moment.
const ATTEMPTS: u32 = 3;

/// A reader and its checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CheckpointReader {
    /// Generation of its manifest; 0 if unknown.
    pub generation: u64,
    /// CSN of its checkpoint; 0 if unknown.
    pub csn: Csn,
    /// Its process; 0 if unknown.
    pub process: u32,
}

/// Q1.
const UNKNOWN: CheckpointReader = CheckpointReader { generation: READS_ANYTHING, csn: Csn::ZERO, process: 0 };

impl CheckpointReader {
    pub(super) fn encode(&self, database: DatabaseId) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&database.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.generation.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.csn.0.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.process.to_le_bytes());
        let check = crc(&bytes[BODY_AT..]);
        bytes[12..16].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// `None` if the slot is not valid.
    fn decode(bytes: &[u8]) -> Option<(DatabaseId, CheckpointReader)> {
        let mut reader = Reader::new(bytes.get(8..SLOT_BYTES)?);
        let (version, check) = (reader.u32()?, reader.u32()?);
        if bytes[..8] != MAGIC || version != VERSION || check != crc(&bytes[BODY_AT..SLOT_BYTES]) {
            return None;
        }
        let database = DatabaseId(reader.u64()?);
        let (generation, csn, process) = (reader.u64()?, Csn(reader.u64()?), reader.u32()?);
        let reader = CheckpointReader { generation, csn, process };
        (generation < GENERATION_LIMIT).then_some((database, reader))
    }
}

/// A reader's slot, which keeps the blocks of its checkpoint while it lives.
#[derive(Debug)]
pub struct ReaderSlot {
    /// Closing the file releases its lock. None if the storage keeps everything.
    _file: Option<Arc<dyn File>>,
}

impl ReaderSlot {
    pub(in super::super) fn new(file: Option<Arc<dyn File>>) -> ReaderSlot {
        ReaderSlot { _file: file }
    }
}

/// Returns whether a file with the name of a slot is one: blank, or written by a reader.
fn is_own(slot: &dyn File) -> Result<bool> {
    let mut bytes = vec![0; slot.len()?.min(SLOT_BYTES as u64) as usize];
    slot.read_at(0, &mut bytes)?;
    Ok(bytes.starts_with(&MAGIC) || bytes.iter().all(|byte| *byte == 0))
}

pub(super) fn lock_free_slot(directory: &dyn Directory) -> Result<Arc<dyn File>> {
    directory.create_directory(READERS_PATH)?;
    for _ in 0..ATTEMPTS {
        for number in 0..READERS_MAX {
            let mode = OpenMode { create: true, read_only: false, direct: false };
            let file = directory.open(&format!("{READERS_PATH}/{number:02}"), mode)?;
            if file.try_lock()? && is_own(&*file)? {
                return Ok(file);
            }
        }
        crate::sync::thread::sleep(std::time::Duration::from_millis(1));
    }
    let what = format!("{READERS_MAX} readers have checkpoints open");
    Err(Error::new(ErrorKind::Busy, what)
        .with_advice("close one")
        .at(Location::File { path: READERS_PATH.into(), offset: 0 }))
}

/// All slots, as the writer sees them.
#[derive(Debug)]
pub struct Readers {
    storage: Arc<dyn Storage>,
    database: DatabaseId,
}

impl Readers {
    /// The slots of the database in `storage`.
    #[must_use]
    pub fn new(storage: Arc<dyn Storage>, database: DatabaseId) -> Readers {
        Readers { storage, database }
    }

    /// Returns the present readers of checkpoints.
    ///
    /// # Errors
    /// I/O: the slots cannot be listed.
    pub fn list(&self) -> Result<Vec<CheckpointReader>> {
        list(&*self.storage, self.database)
    }

    /// Returns the generations that readers have (Q1).
    #[must_use]
    pub fn generations(&self) -> Vec<u64> {
        match self.list() {
            Ok(readers) => readers.iter().map(|reader| reader.generation).collect(),
            Err(error) => {
                tracing::warn!(%error, "the readers of checkpoints are unknown, so their blocks are kept");
                vec![READS_ANYTHING]
            }
        }
    }
}

fn list(storage: &dyn Storage, database: DatabaseId) -> Result<Vec<CheckpointReader>> {
    fence(Ordering::SeqCst);
    let Some(directory) = storage.directory() else { return Ok(Vec::new()) };
    let names = directory.list(READERS_PATH)?;
    Ok(names.iter().filter_map(|name| look(directory, database, &format!("{READERS_PATH}/{name}"))).collect())
}

/// Returns the reader with this slot. Looks at the lock first, see the module's text.
fn look(directory: &dyn Directory, database: DatabaseId, path: &str) -> Option<CheckpointReader> {
    let mode = OpenMode { create: false, read_only: true, direct: false };
    let read = || -> Result<Option<CheckpointReader>> {
        let slot = directory.open(path, mode)?;
        if !slot.is_locked()? {
            return Ok(None);
        }
        let mut bytes = [0; SLOT_BYTES];
        slot.read_at(0, &mut bytes)?;
        Ok(match CheckpointReader::decode(&bytes) {
            // Of an earlier database in this directory.
            Some((of, _)) if of != database => None,
            Some((_, reader)) => Some(reader),
            None => Some(UNKNOWN),
        })
    };
    match read() {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(_) => Some(UNKNOWN),
    }
}

/// Returns the highest generation that a reader may have, beside the `newest` manifest. A reader of
/// unknown generation may have one that is newer by one and was lost.
pub(super) fn highest_read(storage: &dyn Storage, newest: &Manifest) -> u64 {
    let unknown = newest.generation.saturating_add(1);
    let of = |reader: &CheckpointReader| match reader.generation {
        READS_ANYTHING => unknown,
        generation => generation,
    };
    let readers = list(storage, newest.database);
    readers.map_or(unknown, |readers| readers.iter().map(of).max().unwrap_or(0))
}
