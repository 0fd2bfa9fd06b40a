//! Reading the logs after a crash, or beside nobody.
//!
//! Every sector of every segment is looked at: a valid block is taken and skipped over, anything else is passed by. So a
//! hole (a torn or lost block) does not hide what stands behind it; whether it may be used is decided here:
//!
//! 1. Blocks at or below the checkpoint do not matter, whatever they are.
//! 2. Of the rest, a log's *accepted* blocks in an epoch are the gap-free run of sequences that begins where the
//!    checkpoint ends (the first block's predecessor is at or below it). What follows is *beyond*: only its watermarks
//!    count, as witnesses of what must be there (invariant I10).
//! 3. Two different blocks with one (log, epoch, sequence) above the checkpoint cannot be: corruption.

use super::DIRECTORY;
use super::block::{BLOCK_HEADER_BYTES, BlockHeader, NotABlock};
use super::record::Record;
use super::segment::{Segment, id_of, path_of};
use crate::base::{Csn, DatabaseId, Epoch, Error, ErrorKind, Location, LogId, Result, SegmentId};
use crate::device::{AlignedBuffer, OpenMode, SECTOR_BYTES, Storage};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A whole block found in a segment.
#[derive(Clone, Debug)]
pub struct ScannedBlock {
    header: BlockHeader,
    /// Where it is.
    pub segment: SegmentId,
    /// Byte offset in the segment.
    pub offset: u64,
    bytes: Arc<AlignedBuffer>,
}

impl ScannedBlock {
    /// The log it belongs to.
    #[must_use]
    pub fn log(&self) -> LogId {
        self.header.log
    }

    /// The epoch in which it was written.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.header.epoch
    }

    /// Its sequence in log and epoch.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.header.sequence
    }

    /// CSN of its last record.
    #[must_use]
    pub fn last_csn(&self) -> Csn {
        self.header.last_csn
    }

    /// Bytes on the device.
    #[must_use]
    pub fn device_bytes(&self) -> usize {
        self.header.device_bytes()
    }

    /// Where byte `at` of the payload is.
    #[must_use]
    pub fn location(&self, at: usize) -> Location {
        Location::Segment {
            log: self.header.log,
            segment: self.segment,
            offset: self.offset + (BLOCK_HEADER_BYTES + at) as u64,
        }
    }

    /// Its records with their byte position in the payload. A whole block with a malformed record was written by a bug
    /// or on purpose: the iterator ends with an error that names the place.
    pub fn records(&self) -> impl Iterator<Item = Result<(usize, Record<'_>)>> {
        let start = self.offset as usize + BLOCK_HEADER_BYTES;
        let payload = &self.bytes[start..start + self.header.payload_len as usize];
        let mut at = 0;
        std::iter::from_fn(move || {
            if at >= payload.len() {
                return None;
            }
            let position = at;
            match Record::decode(&payload[at..]) {
                Ok(record) => {
                    at += record.bytes.len();
                    Some(Ok((position, record)))
                }
                Err(error) => {
                    at = payload.len();
                    Some(Err(error.at(self.location(position))))
                }
            }
        })
    }
}

/// A segment file that was read.
#[derive(Clone, Debug)]
pub struct ScannedSegment {
    /// The file.
    pub segment: Segment,
    /// Highest CSN in any block in it, stale ones included.
    pub max_csn: Csn,
}

/// What one log holds of one epoch above the checkpoint.
#[derive(Clone, Debug)]
pub struct Chain {
    /// The log.
    pub log: LogId,
    /// The epoch.
    pub epoch: Epoch,
    /// The gap-free run, in order.
    pub accepted: Vec<ScannedBlock>,
    /// Whole blocks behind a hole.
    pub beyond: Vec<ScannedBlock>,
}

/// Everything that was found.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// All segment files.
    pub segments: Vec<ScannedSegment>,
    /// By epoch, then log.
    pub chains: Vec<Chain>,
    /// Bytes read.
    pub bytes: u64,
}

/// Reads all segments with `threads` threads. `progress` hears bytes done and bytes to read.
///
/// # Errors
/// `Unsupported` for blocks of a newer format; `Corruption` where two different blocks claim one place; I/O.
pub fn scan(
    storage: &Arc<dyn Storage>,
    database: DatabaseId,
    checkpoint: Csn,
    threads: usize,
    read_only: bool,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Scan> {
    let mut segments = Vec::new();
    for name in storage.list(DIRECTORY)? {
        let Some(id) = id_of(&name) else { continue };
        let mode = OpenMode { create: false, read_only, direct: true };
        let file = storage.open(&path_of(id), mode)?;
        let len = file.len()?;
        segments.push(Segment { id, file, len });
    }
    let total: u64 = segments.iter().map(|segment| segment.len).sum();
    let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
    let found = Mutex::new((Vec::new(), Vec::new()));
    let worker = || -> Result<()> {
        while let Some(segment) = segments.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (blocks, max_csn) = scan_segment(segment, database, checkpoint)?;
            let mut found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            found.0.push(ScannedSegment { segment: segment.clone(), max_csn });
            found.1.extend(blocks);
            progress(done.fetch_add(segment.len, Ordering::Relaxed) + segment.len, total);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (1..threads.min(segments.len())).map(|_| scope.spawn(worker)).collect();
        let first = worker();
        workers.into_iter().try_for_each(|handle| {
            handle.join().unwrap_or_else(|_| Err(Error::corruption("a thread that scans the log panicked")))
        })?;
        first
    })?;
    let (mut scanned, blocks) = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    scanned.sort_by_key(|found| found.segment.id);
    Ok(Scan { segments: scanned, chains: chains(blocks, checkpoint)?, bytes: total })
}

/// All whole blocks above the checkpoint in one segment, and the highest CSN of any block in it.
fn scan_segment(
    segment: &Segment,
    database: DatabaseId,
    checkpoint: Csn,
) -> Result<(Vec<ScannedBlock>, Csn)> {
    let len = usize::try_from(segment.len).map_err(|_| Error::corruption("a segment is too long"))?;
    let whole = len - len % SECTOR_BYTES;
    if whole == 0 {
        return Ok((Vec::new(), Csn::ZERO));
    }
    let mut bytes = AlignedBuffer::zeroed(whole);
    segment.file.read_at(0, &mut bytes)?;
    let bytes = Arc::new(bytes);
    let (mut blocks, mut max_csn, mut offset) = (Vec::new(), Csn::ZERO, 0);
    while offset < whole {
        match BlockHeader::decode(&bytes[offset..], database) {
            Ok(header) => {
                max_csn = max_csn.max(header.last_csn);
                if header.last_csn > checkpoint {
                    let (segment, bytes) = (segment.id, bytes.clone());
                    blocks.push(ScannedBlock { header, segment, offset: offset as u64, bytes });
                }
                offset += header.device_bytes();
            }
            Err(NotABlock::Invalid) => offset += SECTOR_BYTES,
            Err(NotABlock::NewerFormat(version)) => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!(
                        "log format {version} is newer than {}, the newest this build reads",
                        super::block::VERSION
                    ),
                )
                .at(segment.file.location(offset as u64)));
            }
        }
    }
    Ok((blocks, max_csn))
}

/// Sorts blocks into chains (rules 2 and 3).
fn chains(blocks: Vec<ScannedBlock>, checkpoint: Csn) -> Result<Vec<Chain>> {
    let mut by_log: BTreeMap<(Epoch, LogId), BTreeMap<u64, ScannedBlock>> = BTreeMap::new();
    for block in blocks {
        let place = by_log.entry((block.epoch(), block.log())).or_default();
        let sequence = block.sequence();
        if let Some(other) = place.get(&sequence)
            && other.header != block.header
        {
            return Err(Error::corruption(format!(
                "two different blocks are number {sequence} of log {} in epoch {}",
                block.log(),
                block.epoch()
            ))
            .at(block.location(0)));
        }
        place.insert(sequence, block);
    }
    Ok(by_log.into_iter().map(|((epoch, log), blocks)| chain(log, epoch, blocks, checkpoint)).collect())
}

fn chain(log: LogId, epoch: Epoch, blocks: BTreeMap<u64, ScannedBlock>, checkpoint: Csn) -> Chain {
    let mut chain = Chain { log, epoch, accepted: Vec::new(), beyond: Vec::new() };
    for (sequence, block) in blocks {
        let follows = match chain.accepted.last() {
            Some(last) => chain.beyond.is_empty() && sequence == last.sequence() + 1,
            None => chain.beyond.is_empty() && block.header.previous_csn <= checkpoint,
        };
        if follows { chain.accepted.push(block) } else { chain.beyond.push(block) }
    }
    chain
}
