//! How the memory is divided.
//!
//! | offset | bytes | content |
//! |---|---|---|
//! | 0 | 4096 | header |
//! | 4096 | 4096 | copy of the header, written after it, so that one of the two is always whole |
//! | 8192 | 64 for each buffer | table of buffers; then zeros up to a multiple of 4096 |
//! | | buffer bytes each | buffers |
//!
//! Header, little-endian:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `QUENCHLM` |
//! | 8 | 4 | format version, 1 |
//! | 12 | 4 | CRC-32C of bytes 0 to 12; these 16 bytes mean the same in every version |
//! | 16 | 8 | database |
//! | 24 | 8 | id of the memory, random |
//! | 32 | 8 | generation: the valid header with the higher one counts |
//! | 40 | 8 | length of the memory |
//! | 48 | 4 | bytes of a buffer, a multiple of 4096 |
//! | 52 | 4 | number of buffers |
//! | 56 | 4 | CRC-32C of bytes 16 to 56 |
//! | 60 | 4 | 0 |
//!
//! An entry of the table says what its buffer holds:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | CRC-32C of bytes 4 to 64 |
//! | 4 | 4 | magic `QBUF` |
//! | 8 | 4 | log |
//! | 12 | 4 | epoch |
//! | 16 | 8 | database |
//! | 24 | 8 | id of the memory |
//! | 32 | 8 | sequence of the block in its log and epoch, from 1 |
//! | 40 | 8 | CSN of the last record before it in its log and epoch, 0 if there is none |
//! | 48 | 16 | 0 |
//!
//! A buffer holds records from byte 80 on, where they will be in the block; the first 80 bytes are
//! not used.

use crate::base::checksum::crc;
use crate::base::encoding::Reader;
use crate::base::{Csn, DatabaseId, Epoch, Error, ErrorKind, Location, LogId, Result};
use crate::device::mapped::MappedMemory;
use crate::device::ownership::is_blank;
use crate::device::{Directory, OpenMode};
use std::sync::Arc;

const HEADER_BYTES: u64 = 4096;
const HEADER_USED: usize = 64;
const TABLE_OFFSET: u64 = 2 * HEADER_BYTES;
const ENTRY_BYTES: usize = 64;
const MAGIC: [u8; 8] = *b"QUENCHLM";
const VERSION: u32 = 1;
const ENTRY_MAGIC: u32 = u32::from_le_bytes(*b"QBUF");

/// Fewest and most buffers of a log: one is filled while another is written.
pub const BUFFERS_EACH: (u64, u64) = (2, 64);
/// A log buffer is at least so long.
const BUFFER_BYTES_LEAST: u64 = 64 << 10;

/// Which memory: random, so that another file at the same path is not taken for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryId(pub u64);

/// Length and number of buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    pub(super) buffer_bytes: u32,
    pub(super) buffers: u32,
}

/// An entry of the table of buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) log: LogId,
    pub(super) epoch: Epoch,
    pub(super) sequence: u64,
    pub(super) previous_csn: Csn,
}

/// The state of a mapped file.
#[derive(Debug)]
pub enum MemoryState {
    /// Belongs to no database: new, or its creation was interrupted.
    Blank,
    /// The memory of a database, whichever.
    Formatted(DatabaseId, LogMemory),
}

impl Layout {
    fn table_bytes(self) -> u64 {
        (u64::from(self.buffers) * ENTRY_BYTES as u64).next_multiple_of(HEADER_BYTES)
    }

    fn bytes(self) -> u64 {
        TABLE_OFFSET + self.table_bytes() + u64::from(self.buffers) * u64::from(self.buffer_bytes)
    }

    pub(super) fn entry_offset(self, buffer: u32) -> u64 {
        debug_assert!(buffer < self.buffers, "there is no buffer {buffer}");
        TABLE_OFFSET + u64::from(buffer) * ENTRY_BYTES as u64
    }

    pub(super) fn buffer_offset(self, buffer: u32) -> u64 {
        debug_assert!(buffer < self.buffers, "there is no buffer {buffer}");
        TABLE_OFFSET + self.table_bytes() + u64::from(buffer) * u64::from(self.buffer_bytes)
    }

    fn is_possible(self, bytes: u64) -> bool {
        let whole =
            self.buffer_bytes.is_multiple_of(4096) && u64::from(self.buffer_bytes) >= BUFFER_BYTES_LEAST;
        whole && self.buffers > 0 && self.bytes() <= bytes
    }
}

/// The longest buffers, but not longer than `most`, of which `logs` logs find enough in `bytes`:
/// four each if `most` allows. `None` if there is not even room for the shortest.
#[must_use]
pub fn buffer_bytes_that_fit(bytes: u64, logs: usize, most: u64) -> Option<u64> {
    let room = bytes.checked_sub(TABLE_OFFSET + HEADER_BYTES)?;
    let fair = |each: u64| room / (logs as u64 * each) / 4096 * 4096;
    let fits = fair(4).max(fair(BUFFERS_EACH.0).min(BUFFER_BYTES_LEAST)).min(most / 4096 * 4096);
    (fits >= BUFFER_BYTES_LEAST && needed_bytes(logs, fits) <= bytes).then_some(fits)
}

/// Returns the length of a memory for `logs` logs with buffers of `buffer_bytes`.
#[must_use]
pub fn needed_bytes(logs: usize, buffer_bytes: u64) -> u64 {
    let buffers = logs as u64 * BUFFERS_EACH.0;
    TABLE_OFFSET + (buffers * ENTRY_BYTES as u64).next_multiple_of(HEADER_BYTES) + buffers * buffer_bytes
}

fn at(memory: &dyn MappedMemory, offset: u64) -> Location {
    Location::File { path: memory.facts().path.display().to_string(), offset }
}

/// A whole header, or why it is none.
enum Header {
    Blank,
    Torn,
    Foreign,
    Newer(u32),
    Whole { generation: u64, database: DatabaseId, id: MemoryId, bytes: u64, layout: Layout },
}

fn parse_header(bytes: &[u8; HEADER_USED]) -> Option<Header> {
    let mut reader = Reader::new(bytes);
    let magic = reader.take(8)?;
    if magic != MAGIC {
        return Some(if magic == [0; 8] { Header::Blank } else { Header::Foreign });
    }
    let version = reader.u32()?;
    if reader.u32()? != crc(&bytes[..12]) {
        return Some(Header::Torn);
    }
    if version != VERSION {
        return Some(Header::Newer(version));
    }
    let (database, id) = (DatabaseId(reader.u64()?), MemoryId(reader.u64()?));
    let (generation, length) = (reader.u64()?, reader.u64()?);
    let layout = Layout { buffer_bytes: reader.u32()?, buffers: reader.u32()? };
    if reader.u32()? != crc(&bytes[16..56]) {
        return Some(Header::Torn);
    }
    Some(Header::Whole { generation, database, id, bytes: length, layout })
}

/// The mapped memory of a database.
#[derive(Clone, Debug)]
pub struct LogMemory {
    pub(super) memory: Arc<dyn MappedMemory>,
    pub(super) database: DatabaseId,
    pub(super) id: MemoryId,
    pub(super) layout: Layout,
}

impl LogMemory {
    /// Which memory it is.
    #[must_use]
    pub fn id(&self) -> MemoryId {
        self.id
    }

    /// The memory itself.
    #[must_use]
    pub fn mapped(&self) -> &Arc<dyn MappedMemory> {
        &self.memory
    }
}

impl LogMemory {
    /// Returns the state of `memory`.
    ///
    /// # Errors
    /// `Unsupported` for a newer format; `InvalidArgument` for something else than a memory of
    /// ours; `Corruption` if it has another length than its header says.
    pub fn look(memory: Arc<dyn MappedMemory>) -> Result<MemoryState> {
        Ok(match newest(&memory)? {
            None if !is_never_used(&*memory) => return Err(foreign(&*memory, 0)),
            None => MemoryState::Blank,
            Some((_, found)) => MemoryState::Formatted(found.database, found),
        })
    }

    /// Divides `memory` for `logs` logs of `database` with buffers of `buffer_bytes`. What was in
    /// it has to be in segments, or not to be needed. One that the database needs has this `id`,
    /// and keeps it: wherever this is cut short the database finds its memory.
    ///
    /// # Errors
    /// As [`LogMemory::look`]; `InvalidArgument` if it is too small.
    pub fn prepare(
        memory: Arc<dyn MappedMemory>,
        database: DatabaseId,
        id: MemoryId,
        logs: usize,
        buffer_bytes: u64,
        budget: u64,
    ) -> Result<LogMemory> {
        let found = newest(&memory)?;
        let needed = needed_bytes(logs, buffer_bytes);
        let layout = layout_for(memory.bytes(), logs, buffer_bytes, budget).ok_or_else(|| {
            let what = format!(
                "{} bytes are too little for {logs} logs, each with two buffers of {buffer_bytes} bytes: {needed} are needed",
                memory.bytes()
            );
            Error::invalid(what)
                .with_advice("name a longer file, or set fewer logs")
                .at(Location::Setting("log_memory"))
        })?;
        let generation = match &found {
            Some((generation, found)) if found.database == database => {
                if found.layout == layout && found.id == id {
                    // Durable: an open that finds needed records in it flushes it.
                    return Ok(found.clone());
                }
                generation + 1
            }
            _ => 1,
        };
        let made = LogMemory { memory, database, id, layout };
        // One after the other: wherever this is cut short one of them is whole. Where there was
        // none, a torn one is as good as none.
        for copy in 0..2 {
            made.memory.store(copy * HEADER_BYTES, &made.encode_header(generation));
            made.memory.fence();
        }
        Ok(made)
    }

    fn encode_header(&self, generation: u64) -> [u8; HEADER_USED] {
        let mut out = [0; HEADER_USED];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let prefix = crc(&out[..12]);
        out[12..16].copy_from_slice(&prefix.to_le_bytes());
        out[16..24].copy_from_slice(&self.database.0.to_le_bytes());
        out[24..32].copy_from_slice(&self.id.0.to_le_bytes());
        out[32..40].copy_from_slice(&generation.to_le_bytes());
        out[40..48].copy_from_slice(&self.memory.bytes().to_le_bytes());
        out[48..52].copy_from_slice(&self.layout.buffer_bytes.to_le_bytes());
        out[52..56].copy_from_slice(&self.layout.buffers.to_le_bytes());
        let rest = crc(&out[16..56]);
        out[56..60].copy_from_slice(&rest.to_le_bytes());
        out
    }

    pub(super) fn encode_entry(&self, entry: &Entry) -> [u8; ENTRY_BYTES] {
        debug_assert!(entry.sequence > 0, "sequences begin at 1");
        let mut out = [0; ENTRY_BYTES];
        out[4..8].copy_from_slice(&ENTRY_MAGIC.to_le_bytes());
        out[8..12].copy_from_slice(&entry.log.0.to_le_bytes());
        out[12..16].copy_from_slice(&entry.epoch.0.to_le_bytes());
        out[16..24].copy_from_slice(&self.database.0.to_le_bytes());
        out[24..32].copy_from_slice(&self.id.0.to_le_bytes());
        out[32..40].copy_from_slice(&entry.sequence.to_le_bytes());
        out[40..48].copy_from_slice(&entry.previous_csn.0.to_le_bytes());
        let check = crc(&out[4..]);
        out[..4].copy_from_slice(&check.to_le_bytes());
        out
    }

    /// Returns the entry of `buffer`; `None` if it is not a whole one of this memory.
    pub(super) fn entry(&self, buffer: u32) -> Option<Entry> {
        let mut bytes = [0; ENTRY_BYTES];
        self.memory.load(self.layout.entry_offset(buffer), &mut bytes);
        let mut reader = Reader::new(&bytes);
        if reader.u32()? != crc(&bytes[4..]) || reader.u32()? != ENTRY_MAGIC {
            return None;
        }
        let (log, epoch) = (LogId(reader.u32()?), Epoch(reader.u32()?));
        let ours = DatabaseId(reader.u64()?) == self.database && MemoryId(reader.u64()?) == self.id;
        let entry = Entry { log, epoch, sequence: reader.u64()?, previous_csn: Csn(reader.u64()?) };
        (ours && entry.sequence > 0 && entry.previous_csn < Csn::LIMIT).then_some(entry)
    }
}

/// As many buffers as there is room for, within bounds, a multiple of the logs.
fn layout_for(bytes: u64, logs: usize, buffer_bytes: u64, budget: u64) -> Option<Layout> {
    let logs = logs as u64;
    let affordable = (budget / (logs * buffer_bytes)).clamp(BUFFERS_EACH.0, BUFFERS_EACH.1);
    let buffer_bytes = u32::try_from(buffer_bytes).ok()?;
    (BUFFERS_EACH.0..=affordable).rev().find_map(|each| {
        let layout = Layout { buffer_bytes, buffers: u32::try_from(logs * each).ok()? };
        layout.is_possible(bytes).then_some(layout)
    })
}

fn foreign(memory: &dyn MappedMemory, offset: u64) -> Error {
    let what = "the file is not empty, and no memory-mapped log of QuenchDB";
    Error::invalid(what).with_advice("choose another, or remove it").at(at(memory, offset))
}

/// Bytes of a file that are looked at at once.
const PIECE_BYTES: usize = 64 << 10;

/// Returns whether a memory without a whole header is new, or has a part of a header or an entry of
/// ours. Another program's file may begin with zeros.
///
/// A new memory is flushed before anything but its headers is stored. So a creation that was cut
/// short leaves nothing behind the headers.
fn is_never_used(memory: &dyn MappedMemory) -> bool {
    let (len, mut piece) = (memory.bytes(), vec![0; PIECE_BYTES]);
    let mut is_blank = true;
    for offset in (0..len).step_by(PIECE_BYTES) {
        let bytes = &mut piece[..(len - offset).min(PIECE_BYTES as u64) as usize];
        memory.load(offset, bytes);
        if offset == 0 {
            if has_mark(bytes) {
                return true;
            }
            bytes.chunks_mut(HEADER_BYTES as usize).take(2).for_each(|header| header[..HEADER_USED].fill(0));
        }
        is_blank &= bytes.iter().all(|byte| *byte == 0);
    }
    is_blank
}

/// Returns whether the first bytes of a file have the magic of a header, or of an entry.
fn has_mark(start: &[u8]) -> bool {
    let (headers, table) = start.split_at(start.len().min(TABLE_OFFSET as usize));
    let has_header = headers.chunks(HEADER_BYTES as usize).any(|header| header.starts_with(&MAGIC));
    let mark = ENTRY_MAGIC.to_le_bytes();
    has_header || table.chunks(ENTRY_BYTES).any(|entry| entry.get(4..8) == Some(&mark))
}

/// Returns whether a file of the directory is a memory of ours, or blank.
///
/// # Errors
/// I/O.
pub fn is_memory_file(directory: &dyn Directory, path: &str) -> Result<bool> {
    let file = directory.open(path, OpenMode { create: false, read_only: true, direct: false })?;
    let mut start = vec![0; file.len()?.min(PIECE_BYTES as u64) as usize];
    file.read_at(0, &mut start)?;
    Ok(has_mark(&start) || is_blank(directory, path, u64::MAX)?)
}

/// The valid header of the higher generation.
fn newest(memory: &Arc<dyn MappedMemory>) -> Result<Option<(u64, LogMemory)>> {
    let mut best: Option<(u64, LogMemory)> = None;
    for copy in 0..2 {
        let mut bytes = [0; HEADER_USED];
        memory.load(copy * HEADER_BYTES, &mut bytes);
        match parse_header(&bytes) {
            Some(Header::Whole { generation, database, id, bytes, layout }) => {
                if bytes != memory.bytes() || !layout.is_possible(bytes) {
                    let what = format!(
                        "the memory-mapped log has {} bytes, and its header says {bytes}, {} buffers of {} bytes",
                        memory.bytes(),
                        layout.buffers,
                        layout.buffer_bytes
                    );
                    return Err(Error::corruption(what).at(at(&**memory, copy * HEADER_BYTES)));
                }
                if best.as_ref().is_none_or(|(other, _)| *other < generation) {
                    best = Some((generation, LogMemory { memory: memory.clone(), database, id, layout }));
                }
            }
            Some(Header::Newer(version)) => {
                let what = format!(
                    "the memory-mapped log has format version {version}, this build reads version {VERSION}"
                );
                let error = Error::new(ErrorKind::Unsupported, what);
                return Err(error.at(at(&**memory, copy * HEADER_BYTES)));
            }
            Some(Header::Foreign) => {
                return Err(foreign(&**memory, copy * HEADER_BYTES));
            }
            Some(Header::Blank | Header::Torn) | None => {}
        }
    }
    Ok(best)
}
