//! Reads the logs after a crash, or while no process writes them.
//!
//! Every sector of every segment is looked at: a valid block is taken and skipped over, anything
//! else is passed by. So a hole (a torn or lost block) does not hide what stands behind it; whether
//! it may be used is decided here:
//!
//! 1. Blocks at or below what the checkpoint covers do not matter, whatever they are. That is the
//!    checkpoint's CSN, or less while chunks from before it are needed.
//! 2. Of the rest, a log's *accepted* blocks in an epoch are the gap-free run of sequences that
//!    begins where what is covered ends (the first block's predecessor is at or below it). Later
//!    blocks are *beyond*. This is for tools that show the log; recovery decides by what the
//!    manifest says, and from the checkpoint on (`recovery::select`, rules 1 and 2).
//! 3. Two different blocks with one (log, epoch, sequence) above that cannot be: corruption. Nor
//!    can CSNs that do not rise with position (I3).
//!
//! **Memory.** The log may be far larger than memory. A scan remembers [`ScannedBlock`]s, some 100
//! bytes for each block (4 KiB or more), and keeps whole segments only as far as
//! [`ScanOptions::keep_bytes`] allows; the blocks of others are read a second time by [`load`].
//! Each thread has a buffer of [`ScanOptions::piece_bytes`], or the length of the longest block. As
//! many bytes may be read ahead.

use super::block::{BLOCK_HEADER_BYTES, BlockHeader, NotABlock, unknown_format};
use super::chain::{Chain, chains};
use super::pieces::Pieces;
use super::record::RecordFacts;
use super::scanned::{LeftOut, ScannedBlock, Source, leave_out};
use super::segment::Segment;
use crate::base::planted::{self, Bug};
use crate::base::scale::SCALE;
use crate::base::{Csn, DatabaseId, Epoch, Error, Location, Result};
use crate::device::{OpenMode, SECTOR_BYTES, Storage};
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Mutex, thread};
use std::sync::Arc;

/// A log with fewer bytes is read sooner than another thread is there.
const BYTES_PER_THREAD: u64 = SCALE.recovery_bytes_per_thread;

/// Options of a scan.
#[derive(Clone, Copy, Debug)]
pub struct ScanOptions {
    /// Whose log.
    pub database: DatabaseId,
    /// Nothing at or below it matters: the checkpoint's CSN, or less if chunks before it are still
    /// needed.
    pub covered: Csn,
    /// Threads that read.
    pub threads: usize,
    /// True if files are opened without the right to write.
    pub read_only: bool,
    /// Bytes that each thread reads at a time, and at most as many ahead.
    pub piece_bytes: usize,
    /// Bytes of segments that may stay in memory.
    pub keep_bytes: u64,
}

/// A segment file that was read.
#[derive(Clone, Debug)]
pub struct ScannedSegment {
    /// The file.
    pub segment: Segment,
    /// Highest CSN in any block in it, stale ones included; 0 if there is no block.
    pub max_csn: Csn,
    /// The oldest epoch of which it has a block above what is covered; `None` if it has no such
    /// block.
    pub oldest: Option<Epoch>,
    /// Lowest epoch of any block in it, stale ones included.
    pub lowest_epoch: Option<Epoch>,
}

/// The extent of the blocks in a segment.
#[derive(Clone, Copy, Debug, Default)]
struct Extent {
    max_csn: Csn,
    lowest_epoch: Option<Epoch>,
}

impl Extent {
    fn add(&mut self, header: &BlockHeader) {
        self.max_csn = self.max_csn.max(header.last_csn);
        self.lowest_epoch = Some(self.lowest_epoch.map_or(header.epoch, |lowest| lowest.min(header.epoch)));
    }
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

/// Reads all segments, and `memory`, which is what mapped memory holds: a block that is in both
/// counts as one of the segments. `progress` hears bytes done and bytes to read.
///
/// # Errors
/// `Unsupported` for blocks of a newer format; `Corruption` for whole blocks that contradict
/// themselves or each other; I/O.
pub fn scan(
    storage: &Arc<dyn Storage>,
    options: ScanOptions,
    memory: Option<&Segment>,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Scan> {
    scan_with(storage, options, memory, progress, None)
}

/// Reads a log that may be damaged in any way. Keeps nothing, leaves out unreadable places, and
/// returns an error for each of them.
///
/// # Errors
/// The directory cannot be listed.
pub fn scan_what_is_readable(storage: &Arc<dyn Storage>, options: ScanOptions) -> Result<(Scan, Vec<Error>)> {
    let left_out = Mutex::new(Vec::new());
    let options = ScanOptions { keep_bytes: 0, ..options };
    let scan = scan_with(storage, options, None, &|_, _| (), Some(&left_out))?;
    let left_out = std::mem::take(&mut *left_out.lock());
    Ok((scan, left_out))
}

fn scan_with(
    storage: &Arc<dyn Storage>,
    options: ScanOptions,
    memory: Option<&Segment>,
    progress: &(dyn Fn(u64, u64) + Sync),
    left_out: LeftOut<'_>,
) -> Result<Scan> {
    let mut segments = Vec::from_iter(memory.cloned());
    let mode = OpenMode { create: false, read_only: options.read_only, direct: true };
    for id in storage.segments().list()? {
        match storage.segments().open(id, mode).and_then(|file| Ok((file.len()?, file))) {
            Ok((len, file)) => segments.push(Segment { id, file, len, uses: 0 }),
            Err(error) => leave_out(left_out, error)?,
        }
    }
    let total: u64 = segments.iter().map(|segment| segment.len).sum();
    let worth_it = 1 + (total / BYTES_PER_THREAD) as usize;
    let options = ScanOptions { threads: options.threads.min(worth_it), ..options };
    let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
    let keep = AtomicU64::new(options.keep_bytes);
    let found = Mutex::new((Vec::new(), Vec::new()));
    let worker = || -> Result<()> {
        let mut pieces = Pieces::new(options.piece_bytes, None);
        while let Some(segment) = segments.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (blocks, Extent { max_csn, lowest_epoch }) =
                scan_segment(segment, options, &mut pieces, &keep, left_out)?;
            let oldest = blocks.iter().map(ScannedBlock::epoch).min();
            let mut found = found.lock();
            found.0.push(ScannedSegment { segment: segment.clone(), max_csn, oldest, lowest_epoch });
            found.1.extend(blocks);
            progress(done.fetch_add(segment.len, Ordering::Relaxed) + segment.len, total);
        }
        Ok(())
    };
    let threads = options.threads.min(segments.len()).max(1);
    for outcome in thread::fan_out(threads, |_| worker()) {
        outcome.unwrap_or_else(|| Err(Error::corruption("a thread that scans the log panicked")))?;
    }
    let (mut scanned, blocks) = std::mem::take(&mut *found.lock());
    let memory = memory.map(|segment| segment.id);
    scanned.retain(|found| Some(found.segment.id) != memory);
    scanned.sort_by_key(|found| found.segment.id);
    Ok(Scan { segments: scanned, chains: chains(blocks, options.covered, memory, left_out)?, bytes: total })
}

/// All whole blocks above what is covered in one segment, and of any block in it how far they
/// reach.
fn scan_segment(
    segment: &Segment,
    options: ScanOptions,
    pieces: &mut Pieces,
    keep: &AtomicU64,
    left_out: LeftOut<'_>,
) -> Result<(Vec<ScannedBlock>, Extent)> {
    let len = usize::try_from(segment.len).map_err(|_| Error::corruption("a segment is too long"))?;
    let whole = len - len % SECTOR_BYTES;
    let take = |left: u64| left.checked_sub(whole as u64);
    if keep.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
        pieces.begin();
        let (found, extent) = find_blocks(segment, options, pieces, whole, left_out)?;
        let source = Arc::new(Source { segment: segment.clone(), kept: None });
        return Ok((placed(found, &source), extent));
    }
    let mut all = Pieces::for_all(whole, options.piece_bytes);
    let (found, extent) = find_blocks(segment, options, &mut all, whole, None)?;
    if found.is_empty() {
        keep.fetch_add(whole as u64, Ordering::Relaxed);
        return Ok((Vec::new(), extent));
    }
    let source = Arc::new(Source { segment: segment.clone(), kept: all.into_buffer().map(Arc::new) });
    Ok((placed(found, &source), extent))
}

/// A block's header, the highest watermark in its records, and its offset.
type FoundBlock = (BlockHeader, Csn, usize);

fn placed(found: Vec<FoundBlock>, source: &Arc<Source>) -> Vec<ScannedBlock> {
    let block = |(header, watermark, offset)| {
        let (source, offset) = (source.clone(), offset as u64);
        ScannedBlock { header, watermark, source, offset }
    };
    found.into_iter().map(block).collect()
}

fn find_blocks(
    segment: &Segment,
    options: ScanOptions,
    pieces: &mut Pieces,
    whole: usize,
    left_out: LeftOut<'_>,
) -> Result<(Vec<FoundBlock>, Extent)> {
    let (mut blocks, mut extent, mut offset) = (Vec::new(), Extent::default(), 0);
    // Where to continue if something cannot be read and may be left out.
    let around = |pieces: &mut Pieces, offset, len, error: Error| match left_out {
        Some(list) => Ok(pieces.go_around(offset, len, error, &mut |error| list.lock().push(error))),
        None => Err(error),
    };
    while offset < whole {
        let head = match pieces.need(segment, offset, SECTOR_BYTES, whole) {
            Ok(head) => head,
            Err(error) => {
                offset = around(pieces, offset, SECTOR_BYTES, error)?;
                continue;
            }
        };
        let header = match BlockHeader::decode_head(head, options.database) {
            Ok(header) if header.device_bytes() <= whole - offset => header,
            Ok(_) | Err(NotABlock::Invalid) => {
                offset += SECTOR_BYTES;
                continue;
            }
            Err(NotABlock::UnknownFormat(version)) => {
                let error = unknown_format(version).at(segment.file.location(offset as u64));
                leave_out(left_out, error)?;
                offset += SECTOR_BYTES;
                continue;
            }
        };
        let bytes = match pieces.need(segment, offset, header.device_bytes(), whole) {
            Ok(bytes) => bytes,
            Err(error) => {
                offset = around(pieces, offset, header.device_bytes(), error)?;
                continue;
            }
        };
        let Some(payload) = header.payload_in(bytes) else {
            offset += SECTOR_BYTES;
            continue;
        };
        extent.add(&header);
        let forgotten = planted::is(Bug::CarriedBlockForgotten) && header.carrier.is_some();
        if header.last_csn > options.covered && !forgotten {
            let watermark = watermark_of(&header, payload).or_else(|(error, at)| {
                let offset = (offset + BLOCK_HEADER_BYTES + at) as u64;
                let location = Location::Segment { log: header.log, segment: segment.id, offset };
                // The records before it are whole.
                leave_out(left_out, error.at(location)).map(|()| Csn::ZERO)
            });
            blocks.push((header, watermark?, offset));
        }
        offset += header.device_bytes();
    }
    Ok((blocks, extent))
}

/// Goes over the records of a whole block: the highest watermark that can be true. Checksums of
/// records are for later.
fn watermark_of(header: &BlockHeader, payload: &[u8]) -> std::result::Result<Csn, (Error, usize)> {
    let (mut at, mut count, mut highest) = (0, 0, Csn::ZERO);
    let (mut first, mut last) = (None, None::<Csn>);
    while at < payload.len() {
        let malformed = || (Error::corruption("a log record is malformed or has a wrong checksum"), at);
        let facts = RecordFacts::of(&payload[at..]).ok_or_else(malformed)?;
        if last.is_some_and(|last| last >= facts.csn) {
            return Err((
                Error::corruption("the records of a log block are not in the order of their CSNs"),
                at,
            ));
        }
        (first, last) = (first.or(Some(facts.csn)), Some(facts.csn));
        if facts.watermark <= facts.csn && facts.csn < Csn::LIMIT {
            highest = highest.max(facts.watermark);
        }
        (at, count) = (at + facts.len, count + 1);
    }
    if (first, last, count) != (Some(header.first_csn), Some(header.last_csn), header.record_count) {
        return Err((Error::corruption("a log block does not hold the records that its header says"), 0));
    }
    Ok(highest)
}
