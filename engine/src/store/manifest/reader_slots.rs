//! Readers of a checkpoint in other processes: they open the newest durable checkpoint beside the process that writes, and the
//! writer keeps its blocks for as long as they live.
//!
//! A reader takes a **slot**: a small file `readers/NN` that it locks and in which it says which manifest it reads. The writer
//! never waits for readers and they never wait for it; a reader that dies gives its lock up, and is forgotten.
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
//! A block that the reader of g needs is missed first by some n > g. *Who is first, 4 or a?* If 4 is not before a
//! has been completed it finds n, and the reader goes back to 3. If it is, then 1 and 3 are before b, and b finds the slot
//! locked with g in it: the block stays. Every later look finds it too. So it does not matter what b finds in a slot between 1
//! and 3 (nothing, an earlier reader's g, a torn mixture): that reader's step 4 is still to come.
//!
//! This needs that a lock, a write or a read of these files that has returned is seen by what any process begins after
//! that. System calls on one machine give that. A fence stands between 3 and 4 and between a and b, for the orders of memory
//! accesses that hardware could still change. It does not hold for a network file system: see `docs/assumptions.md`.
//!
//! *The writer opens while there are readers.* Before it takes a block it looks. A reader of an older g than the newest manifest's
//! may need any block that this does not have, so all of these are held, as missed by the newest generation. A reader whose 4 comes
//! after this look has found the newest manifest: only who has the lock of the database publishes another. A reader of a *newer* g has found
//! one that was lost since then, with the only slot that had it: it may need what is free, and blocks of the newest too. So what is free is
//! held as missed by g + 1, and no other manifest gets the generation g (see `manifest_file`, N3). A reader that has not come to 4 finds another
//! manifest there, whichever generation that has: the whole is compared.
//!
//! *The writer is killed.* Nothing is lost: slots and locks are the readers' own. *A reader is killed:* its lock is gone, and the
//! next look ignores its slot; what is left in it is overwritten by the next reader that locks it.
//!
//! # Invariants
//! - Q1: what cannot be understood (a locked slot that is torn, of a newer version, unreadable, of a generation that no manifest ever gets) counts
//!   as a reader of generation 0, which needs everything.
//! - Q2: a reader writes to its slot and to nothing else. It does not look at the log.
//! - Q3: slots are never removed: one that is removed while locked would not be seen.
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
use crate::device::{File, OpenMode, Storage};
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
/// A look at a slot keeps it locked for a moment: it may be free although it seems taken.
const ROUNDS: u32 = 3;

/// Who reads which checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CheckpointReader {
    /// Generation of its manifest, 0 if it cannot be told.
    pub generation: u64,
    /// CSN of its checkpoint, likewise.
    pub csn: Csn,
    /// Its process, likewise.
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

    /// `None` for a slot that says nothing that can be understood.
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

/// A reader's slot: as long as it lives the blocks of its checkpoint stay.
#[derive(Debug)]
pub struct ReaderSlot {
    /// Closing the file releases its lock.
    _file: Arc<dyn File>,
}

impl ReaderSlot {
    pub(super) fn new(file: Arc<dyn File>) -> ReaderSlot {
        ReaderSlot { _file: file }
    }
}

pub(super) fn lock_free_slot(storage: &dyn Storage) -> Result<Arc<dyn File>> {
    storage.create_directory(READERS_PATH)?;
    for _ in 0..ROUNDS {
        for number in 0..READERS_MAX {
            let mode = OpenMode { create: true, read_only: false, direct: false };
            let file = storage.open(&format!("{READERS_PATH}/{number:02}"), mode)?;
            if file.try_lock()? {
                return Ok(file);
            }
        }
        crate::sync::thread::sleep(std::time::Duration::from_millis(1));
    }
    let what = format!("{READERS_MAX} readers have checkpoints open: close one");
    Err(Error::new(ErrorKind::Busy, what).at(Location::File { path: READERS_PATH.into(), offset: 0 }))
}

/// The writer's view of the slots; also that of whoever wants to count them.
#[derive(Debug)]
pub struct Readers {
    storage: Arc<dyn Storage>,
    database: DatabaseId,
}

impl Readers {
    /// Of the database in `storage`.
    #[must_use]
    pub fn new(storage: Arc<dyn Storage>, database: DatabaseId) -> Readers {
        Readers { storage, database }
    }

    /// Everybody who reads a checkpoint now.
    ///
    /// # Errors
    /// I/O: the slots cannot be listed.
    pub fn list(&self) -> Result<Vec<CheckpointReader>> {
        list(&*self.storage, self.database)
    }

    /// The generations that are read (Q1).
    #[must_use]
    pub fn generations(&self) -> Vec<u64> {
        match self.list() {
            Ok(readers) => readers.iter().map(|reader| reader.generation).collect(),
            Err(error) => {
                tracing::warn!(%error, "nobody knows who reads checkpoints, so their blocks are kept");
                vec![READS_ANYTHING]
            }
        }
    }
}

fn list(storage: &dyn Storage, database: DatabaseId) -> Result<Vec<CheckpointReader>> {
    fence(Ordering::SeqCst);
    let names = storage.list(READERS_PATH)?;
    Ok(names.iter().filter_map(|name| look(storage, database, &format!("{READERS_PATH}/{name}"))).collect())
}

/// Who has this slot; the lock first, see the module's text.
fn look(storage: &dyn Storage, database: DatabaseId, path: &str) -> Option<CheckpointReader> {
    let mode = OpenMode { create: false, read_only: true, direct: false };
    let read = || -> Result<Option<CheckpointReader>> {
        let slot = storage.open(path, mode)?;
        if !slot.is_locked()? {
            return Ok(None);
        }
        let mut bytes = [0; SLOT_BYTES];
        slot.read_at(0, &mut bytes)?;
        Ok(match CheckpointReader::decode(&bytes) {
            // Left of a database that was here before.
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

/// The highest generation of a manifest that somebody may read, of which `newest` is the newest there is. What somebody reads of whom that is not known
/// can be one newer, which was lost.
pub(super) fn highest_read(storage: &dyn Storage, newest: &Manifest) -> u64 {
    let unknown = newest.generation.saturating_add(1);
    let of = |reader: &CheckpointReader| match reader.generation {
        READS_ANYTHING => unknown,
        generation => generation,
    };
    let readers = list(storage, newest.database);
    readers.map_or(unknown, |readers| readers.iter().map(of).max().unwrap_or(0))
}
