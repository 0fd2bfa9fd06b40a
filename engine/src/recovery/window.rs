//! The records of the log in CSN order, a window at a time.
//!
//! CSNs rise within each log and epoch, so merging them by block gives all records in order,
//! however long the log is:
//!
//! ```text
//!   log 0   [ 1  3  4 ] [ 8  9 ] | [ 14 …     blocks are taken by their first CSN
//!   log 1   [ 2  5 ] [ 6  7  10 ] | [ 11 …
//!   The window ends where the first block begins that was not taken (11 here). Records of taken
//!   blocks from there on are for the next window.
//! ```
//!
//! A window ends before a transaction that has fragments on both sides of where it would end, so
//! each window has all or none of them.
//!
//! **Memory.** A window takes blocks until it has [`WindowLimits::records`] records, or
//! [`WindowLimits::bytes`] bytes that the scan had not kept, but at least one block; as many bytes
//! may have been read ahead. Blocks that were taken once are forgotten, and with its last block a
//! segment that the scan had kept.

use super::select::{Bounds, FoundBlock, FoundLog, FoundRecord};
use super::threads;
use crate::base::{Csn, Error, Result};
use crate::log::{Batch, Chain, LoadedBlock, Part, Record, ScannedBlock};
use std::collections::VecDeque;

/// Limits of a window.
#[derive(Clone, Copy, Debug)]
pub struct WindowLimits {
    /// Bytes of blocks that are read again.
    pub bytes: usize,
    /// Records.
    pub records: usize,
    /// Threads that look at records.
    pub threads: usize,
}

/// Fewer blocks than this are looked at by one thread.
const PARALLEL_AT: usize = 8;

/// Shorter reads are slower.
const BATCH_BYTES_MIN: usize = 1 << 20;
/// A batch of blocks has this part of what a source may read ahead.
const BATCH_PART: usize = 4;

/// The blocks of one log and epoch that count.
#[derive(Debug)]
struct Source {
    blocks: std::vec::IntoIter<ScannedBlock>,
    /// Blocks before `blocks` whose reads were started.
    ahead: VecDeque<Batch>,
    /// With their bytes, before `ahead`.
    loaded: VecDeque<LoadedBlock>,
}

impl Source {
    fn new(blocks: Vec<ScannedBlock>) -> Source {
        Source { blocks: blocks.into_iter(), ahead: VecDeque::new(), loaded: VecDeque::new() }
    }

    fn next(&self) -> Option<&ScannedBlock> {
        let loaded = self.loaded.front().map(|loaded| &loaded.block);
        let ahead = || self.ahead.front().and_then(|batch| batch.blocks().first());
        loaded.or_else(ahead).or_else(|| self.blocks.as_slice().first())
    }

    /// Takes the next block. Reads `read_ahead` bytes together, and some of them ahead if the
    /// storage can.
    fn take(&mut self, read_ahead: usize) -> Result<Option<LoadedBlock>> {
        if self.loaded.is_empty() {
            let bytes = (read_ahead / BATCH_PART).max(read_ahead.min(BATCH_BYTES_MIN));
            let batch = self.ahead.pop_front().or_else(|| self.cut(bytes));
            let Some(mut batch) = batch else { return Ok(None) };
            if batch.start() {
                self.start_more(bytes, read_ahead.saturating_sub(batch.bytes()));
            }
            self.loaded = batch.load()?.into();
            debug_assert!(!self.loaded.is_empty(), "a batch has a block");
        }
        Ok(self.loaded.pop_front())
    }

    /// Removes a batch of at most `bytes` from the blocks.
    fn cut(&mut self, bytes: usize) -> Option<Batch> {
        let batch = Batch::first_of(self.blocks.as_slice(), bytes)?;
        debug_assert!(!batch.blocks().is_empty(), "a batch has a block");
        self.blocks.nth(batch.blocks().len() - 1);
        Some(batch)
    }

    /// Starts the reads of more batches, of at most `most` bytes in total.
    fn start_more(&mut self, bytes: usize, most: usize) {
        let mut started: usize = self.ahead.iter().map(Batch::bytes).sum();
        while let Some(first) = self.blocks.as_slice().first().filter(|first| !first.is_kept())
            && started + bytes.max(first.device_bytes()) <= most
            && let Some(mut batch) = self.cut(bytes)
        {
            batch.start();
            started += batch.bytes();
            self.ahead.push_back(batch);
        }
    }
}

/// All windows of a log.
#[derive(Debug)]
pub struct Windows {
    sources: Vec<Source>,
    limits: WindowLimits,
    /// Blocks of the window before that have records for the next one.
    carried: Vec<LoadedBlock>,
    /// The first CSN of the next window.
    from: Csn,
    /// Records in all windows, copies counted twice.
    records: u64,
    /// Bytes that were read a second time.
    bytes_read_again: u64,
}

/// Records between two CSNs.
#[derive(Debug)]
pub struct Window {
    blocks: Vec<LoadedBlock>,
    /// All records that count, in no order.
    pub records: Vec<FoundRecord>,
}

impl Window {
    /// Returns for one of its records that is a part: the part, the length of its operations, its
    /// block, and where in the payload it is.
    ///
    /// # Errors
    /// `Corruption` if it is none.
    pub fn part(&self, record: &FoundRecord) -> Result<(Part, usize, &ScannedBlock, usize)> {
        let no_part = || Error::corruption("a log record is no part of a transaction");
        let decoded = Record::decode(self.bytes(record))?;
        let part = decoded.part.ok_or_else(no_part)?;
        let block = self.blocks.get((record.position >> 32) as usize).ok_or_else(no_part)?;
        Ok((part, decoded.body.len(), &block.block, record.position as u32 as usize))
    }

    /// The predecessors that one of its records lists.
    ///
    /// # Errors
    /// `Corruption` if its bytes are none.
    pub fn listed(&self, record: &FoundRecord) -> Result<Vec<Csn>> {
        Ok(Record::decode(self.bytes(record))?.predecessors().collect())
    }

    /// All bytes of one of its records.
    #[must_use]
    pub fn bytes(&self, record: &FoundRecord) -> &[u8] {
        self.record(record).1
    }

    /// Returns the operations and all bytes of one of its records.
    #[must_use]
    pub fn record(&self, record: &FoundRecord) -> (&[u8], &[u8]) {
        let (block, at) = ((record.position >> 32) as usize, record.position as u32 as usize);
        self.blocks.get(block).map_or((&[], &[]), |block| block.record_at(at))
    }
}

impl Windows {
    /// The windows of those blocks of `chains` that count; `bounds` are theirs.
    #[must_use]
    pub fn new(chains: Vec<Chain>, bounds: &Bounds<'_>, limits: WindowLimits) -> Windows {
        let sources = chains.into_iter().enumerate().map(|(index, chain)| {
            let mut blocks = chain.blocks;
            blocks.retain(|block| bounds.counts(index, block.sequence()));
            blocks.shrink_to_fit();
            Source::new(blocks)
        });
        let sources: Vec<Source> = sources.filter(|source| source.next().is_some()).collect();
        let blocks = sources.iter().flat_map(|source| source.blocks.as_slice());
        let records = blocks.map(|block| block.record_count() as u64).sum();
        let (carried, from) = (Vec::new(), Csn::ZERO);
        Windows { sources, limits, carried, from, records, bytes_read_again: 0 }
    }

    /// Records in all windows together, copies counted.
    #[must_use]
    pub fn record_count(&self) -> u64 {
        self.records
    }

    /// Bytes that were read a second time, so far.
    #[must_use]
    pub fn bytes_read_again(&self) -> u64 {
        self.bytes_read_again
    }

    /// Bytes of blocks that the scan has kept and no window has taken yet. Memory has more: a
    /// segment stays there whole until its last block was taken.
    #[must_use]
    pub fn kept_bytes(&self) -> u64 {
        let left = self.sources.iter().flat_map(|source| source.blocks.as_slice());
        left.filter(|block| block.is_kept()).map(|block| block.device_bytes() as u64).sum()
    }

    /// The next window; `None` at the end.
    ///
    /// # Errors
    /// `Corruption` with the place of a malformed record or a block that changed since it was
    /// scanned; I/O.
    pub fn next(&mut self) -> Result<Option<Window>> {
        let blocks = self.take_blocks()?;
        if blocks.is_empty() {
            return Ok(None);
        }
        let end = self.lowest().map(|(_, block)| block.first_csn());
        let within = |csn: Csn| csn >= self.from && end.is_none_or(|end| csn < end);
        let threads = if blocks.len() < PARALLEL_AT { 1 } else { self.limits.threads };
        let size = blocks.len().div_ceil(threads);
        let found = threads::each(blocks.chunks(size).enumerate(), |(part, chunk)| {
            find_records(chunk, part * size, &within)
        })?;
        let mut records: Vec<FoundRecord> =
            if found.len() == 1 { found.into_iter().flatten().collect() } else { found.concat() };
        if let Some(end) = end.map(|end| before_fragments(&records, end)) {
            records.retain(|record| record.csn < end);
            self.carried = blocks.iter().filter(|block| block.block.last_csn() >= end).cloned().collect();
            self.from = end;
        }
        Ok(Some(Window { blocks, records }))
    }

    /// Carried blocks and new ones up to the limits.
    fn take_blocks(&mut self) -> Result<Vec<LoadedBlock>> {
        let mut blocks = std::mem::take(&mut self.carried);
        let (mut bytes, mut records, carried) = (0, 0, blocks.len());
        let read_ahead = self.limits.bytes / self.sources.len().max(1);
        while let Some((source, next)) = self.lowest() {
            let again = if next.is_kept() { 0 } else { next.device_bytes() };
            (bytes, records) = (bytes + again, records + next.record_count());
            if blocks.len() > carried && (bytes > self.limits.bytes || records > self.limits.records) {
                break;
            }
            self.bytes_read_again += again as u64;
            blocks.extend(self.sources[source].take(read_ahead)?);
        }
        Ok(blocks)
    }

    /// The block with the lowest first CSN, and its source.
    fn lowest(&self) -> Option<(usize, &ScannedBlock)> {
        let next = self.sources.iter().enumerate().filter_map(|(index, s)| Some((index, s.next()?)));
        next.min_by_key(|(_, block)| block.first_csn())
    }
}

/// Returns the end of a window that would end at `end`: before a transaction that would lose
/// fragments by that.
fn before_fragments(records: &[FoundRecord], end: Csn) -> Csn {
    let first = |record: &FoundRecord| {
        let fragment = record.fragment.filter(|fragment| fragment.last_of(record.csn) >= end)?;
        Some(fragment.first_of(record.csn))
    };
    records.iter().filter_map(first).fold(end, Csn::min)
}

/// The records of some blocks of a window, the first of which is its `first`th.
fn find_records(
    blocks: &[LoadedBlock],
    first: usize,
    within: &dyn Fn(Csn) -> bool,
) -> Result<Vec<FoundRecord>> {
    let mut records = Vec::with_capacity(blocks.iter().map(|block| block.block.record_count()).sum());
    for (index, loaded) in (first as u64..).zip(blocks) {
        for record in loaded.records() {
            let (at, record) = record?;
            let header = record.header;
            if !within(header.csn) {
                continue;
            }
            records.push(FoundRecord {
                epoch: header.epoch,
                log: loaded.block.log(),
                block_epoch: loaded.block.epoch(),
                operations: header.op_count.min(0xffff) as u16,
                kind: header.kind,
                fragment: record.fragment,
                rule: header.rule,
                csn: header.csn,
                dsn: header.dsn,
                watermark: header.watermark,
                fingerprint: u64::from(header.body_crc) << 32 | record.bytes.len() as u64,
                position: index << 32 | at as u64,
            });
        }
    }
    Ok(records)
}

/// Returns what the decision needs of a chain.
pub fn found(chain: &Chain) -> FoundLog {
    let blocks = chain.blocks.iter().map(|block| FoundBlock {
        sequence: block.sequence(),
        first_csn: block.first_csn(),
        last_csn: block.last_csn(),
        previous_csn: block.previous_csn(),
        watermark: block.watermark(),
    });
    FoundLog { log: chain.log, epoch: chain.epoch, blocks: blocks.collect() }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
