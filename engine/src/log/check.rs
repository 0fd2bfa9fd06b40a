//! Checking the log: is everything that must be in it there, whole, and in order?
//!
//! The reader takes the blocks that it finds. This check looks for the blocks that must be there,
//! so the caller gives the end of each chain ([`ChainEnd`]). It may run while logs are written and
//! segments are recycled:
//!
//! 1. The ends are read before the segments, and blocks beyond them are no concern: they may be
//!    torn or in flight.
//! 2. What the checkpoint covers is read after the segments, and blocks at or below it are no
//!    concern: a segment that was recycled under the reader held only such blocks.
//!
//! ```text
//!   log 0   … 12 │ 13   14   15   ??   17   18 │ 19 (being written)
//!                checkpoint        │        end
//!                                  └ a hole: block 16, at byte 53,248 of log/00000003.seg
//! ```
//!
//! A block that cannot be read says nothing of itself, so a hole gets its place from its
//! neighbours: the blocks of a segment lie side by side. Most are of one log; where its blocks are
//! without a gap, a peer may have carried the one that is missing, and the hole is a gap among the
//! blocks of that one.
//!
//! A segment is read a piece at a time; what cannot be read costs its own sectors only.

use super::block::{BLOCK_HEADER_BYTES, BlockHeader, NotABlock, unknown_format};
use super::pieces::Pieces;
use super::record::{Record, RecordHeader};
use super::segment::Segment;
use crate::base::account::Account;
use crate::base::{Csn, DatabaseId, Epoch, Error, ErrorKind, Location, LogId, Result};
use crate::device::{LOG_DIRECTORY, OpenMode, SECTOR_BYTES, Storage};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 1 << 20;

/// The end of the part of a chain that counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChainEnd {
    /// The log.
    pub log: LogId,
    /// The epoch of the blocks.
    pub epoch: Epoch,
    /// Sequence of the last block that counts.
    pub sequence: u64,
    /// No transaction of it has a higher CSN.
    pub last_csn: Csn,
    /// Every block above what the checkpoint covers must be there. Otherwise (an earlier epoch) a
    /// hole is possible whose transactions a recovery discarded.
    pub dense: bool,
}

/// A damage, and where it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogDamage {
    /// The log.
    pub log: LogId,
    /// The epoch of the blocks.
    pub epoch: Epoch,
    /// First and last sequence of the blocks concerned.
    pub blocks: (u64, u64),
    /// The CSNs of what is damaged lie between these, both excluded.
    pub csns: (Csn, Csn),
    /// True if the blocks are lost only as far as their transactions are needed, see
    /// [`ChainEnd::dense`].
    pub conditional: bool,
    /// The place where the damage begins.
    pub location: Location,
    /// The damage in words.
    pub what: String,
}

impl fmt::Display for LogDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = self.blocks;
        let blocks =
            if first == last { format!("block {first}") } else { format!("blocks {first} to {last}") };
        write!(f, "log {}, epoch {}, {blocks}: {} (at {})", self.log, self.epoch, self.what, self.location)
    }
}

/// A whole block.
#[derive(Clone, Copy, Debug)]
struct Found {
    header: BlockHeader,
    /// Index of its segment.
    segment: usize,
    offset: u64,
}

impl Found {
    fn end(&self) -> u64 {
        self.offset + self.header.device_bytes() as u64
    }
}

/// Bytes whose header is whole, and which are no block all the same.
#[derive(Debug)]
struct Broken {
    header: BlockHeader,
    location: Location,
    what: String,
}

/// A segment, and which of its bytes whole blocks cover.
#[derive(Debug)]
struct Covered {
    segment: Segment,
    /// Ascending; blocks side by side make one range.
    ranges: Vec<(u64, u64)>,
}

impl Covered {
    fn cover(&mut self, start: u64, end: u64) {
        debug_assert!(start < end, "a block is not empty");
        debug_assert!(self.ranges.last().is_none_or(|(_, last)| *last <= start), "ranges ascend");
        match self.ranges.last_mut() {
            Some((_, last)) if *last == start => *last = end,
            _ => self.ranges.push((start, end)),
        }
    }

    fn is_uncovered(&self, offset: u64) -> bool {
        offset < self.segment.len && !self.ranges.iter().any(|(start, end)| (*start..*end).contains(&offset))
    }

    /// Returns the begin of the uncovered bytes that end at `offset`; `None` if there are
    /// none.
    fn uncovered_before(&self, offset: u64) -> Option<u64> {
        let before = self.ranges.iter().rev().find(|(start, _)| *start < offset);
        let start = before.map_or(0, |(_, end)| *end);
        (start < offset).then_some(start)
    }
}

type Sequences = BTreeMap<u64, Found>;

/// The blocks in the segments that belong to chains that count.
#[derive(Debug, Default)]
pub struct LogContents {
    /// Whole blocks that count.
    pub blocks: u64,
    /// Records in them.
    pub records: u64,
    segments: Vec<Covered>,
    chains: BTreeMap<(Epoch, LogId), Sequences>,
    broken: Vec<Broken>,
    /// In blocks that are whole.
    malformed: Vec<(Csn, LogDamage)>,
    /// Errors of places that could not be read.
    unreadable: Vec<Error>,
}

/// The blocks to read.
pub struct Wanted<'a> {
    /// Blocks of others do not count.
    pub database: DatabaseId,
    /// Blocks at or below do not count.
    pub covered: Csn,
    /// The account that pays for buffers.
    pub memory: Option<&'a Arc<Account>>,
    /// Returns the last sequence that counts of a log and epoch; 0 if none does.
    pub last_sequence: &'a dyn Fn(LogId, Epoch) -> u64,
}

/// Reads all segments, and `memory`, the content of mapped memory. Calls `seen` with the header of
/// each record that counts and the epoch of its block.
///
/// # Errors
/// The directory cannot be listed. Segments that cannot be read are among the damages.
pub fn read_contents(
    storage: &dyn Storage,
    memory: Option<&Segment>,
    wanted: &Wanted<'_>,
    seen: &mut dyn FnMut(Epoch, &RecordHeader),
    progress: &mut dyn FnMut(u64, u64),
) -> Result<LogContents> {
    let mut contents = LogContents::default();
    let mut segments = Vec::from_iter(memory.cloned());
    let mode = OpenMode { create: false, read_only: true, direct: true };
    for id in storage.segments().list()? {
        match storage.segments().open(id, mode).and_then(|file| Ok((file.len()?, file))) {
            Ok((len, file)) => segments.push(Segment { id, file, len, uses: 0 }),
            Err(error) => contents.note_unreadable(error),
        }
    }
    let total: u64 = segments.iter().map(|segment| segment.len).sum();
    let mut done = 0;
    let mut pieces = Pieces::new(PIECE_BYTES, wanted.memory.cloned());
    for segment in segments {
        done += segment.len;
        pieces.begin();
        if let Err(error) = contents.read_segment(segment, &mut pieces, wanted, seen) {
            contents.note_unreadable(error);
        }
        progress(done, total);
    }
    Ok(contents)
}

impl LogContents {
    fn note_unreadable(&mut self, error: Error) {
        // One too many, removed since the directory was listed. If it was needed its blocks will be
        // missing.
        if error.kind() != ErrorKind::NotFound {
            self.unreadable.push(error);
        }
    }

    fn read_segment(
        &mut self,
        segment: Segment,
        pieces: &mut Pieces,
        wanted: &Wanted<'_>,
        seen: &mut dyn FnMut(Epoch, &RecordHeader),
    ) -> Result<()> {
        let len = usize::try_from(segment.len).map_err(|_| Error::corruption("a segment is too long"))?;
        let whole = len - len % SECTOR_BYTES;
        let mut covered = Covered { segment, ranges: Vec::new() };
        let mut offset = 0;
        while offset < whole {
            let head = pieces.need(&covered.segment, offset, SECTOR_BYTES, whole);
            let len = match head.map(|head| BlockHeader::decode_head(head, wanted.database)) {
                Ok(Ok(header)) if header.device_bytes() <= whole - offset => header.device_bytes(),
                _ => SECTOR_BYTES,
            };
            let rest = match pieces.need(&covered.segment, offset, len, whole) {
                Ok(rest) => rest,
                // Removed meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => return Err(error),
                Err(error) => {
                    offset = pieces.go_around(offset, len, error, &mut |error| self.unreadable.push(error));
                    continue;
                }
            };
            let Ok(header) = BlockHeader::decode(rest, wanted.database) else {
                self.note_broken(rest, &covered.segment, offset as u64, wanted);
                offset += SECTOR_BYTES;
                continue;
            };
            let found = Found { header, segment: self.segments.len(), offset: offset as u64 };
            covered.cover(found.offset, found.end());
            let counts = header.sequence <= (wanted.last_sequence)(header.log, header.epoch);
            if counts && header.last_csn > wanted.covered {
                self.read_block(found, &covered.segment, rest, seen);
            }
            offset += header.device_bytes();
        }
        self.segments.push(covered);
        Ok(())
    }

    fn note_broken(&mut self, bytes: &[u8], segment: &Segment, offset: u64, wanted: &Wanted<'_>) {
        let Some((header, _)) = BlockHeader::parse(bytes) else { return };
        if header.database != wanted.database {
            return;
        }
        let what = match BlockHeader::decode_head(bytes, wanted.database) {
            Err(NotABlock::UnknownFormat(version)) => unknown_format(version).message().to_string(),
            _ => "the checksum of the block's records is wrong".to_string(),
        };
        let header = header.within_limit();
        self.broken.push(Broken { header, location: segment.file.location(offset), what });
    }

    fn read_block(
        &mut self,
        found: Found,
        segment: &Segment,
        bytes: &[u8],
        seen: &mut dyn FnMut(Epoch, &RecordHeader),
    ) {
        let header = found.header;
        self.blocks += 1;
        let payload = &bytes[BLOCK_HEADER_BYTES..BLOCK_HEADER_BYTES + header.payload_len as usize];
        let mut records = Records { header: &header, previous: header.previous_csn, count: 0 };
        let mut at = 0;
        let mut problem = None;
        while at < payload.len() && problem.is_none() {
            match records.next(&payload[at..]) {
                Ok(record) => {
                    seen(header.epoch, &record.header);
                    at += record.bytes.len();
                }
                Err(what) => problem = Some(what),
            }
        }
        self.records += u64::from(records.count);
        if let Some(what) = problem.or_else(|| records.at_the_end()) {
            let location = segment.file.location(found.offset + (BLOCK_HEADER_BYTES + at) as u64);
            let csns = (header.previous_csn, header.last_csn.next());
            self.malformed.push((header.last_csn, damage(&header, csns, location, what)));
        }
        let chain = self.chains.entry((header.epoch, header.log)).or_default();
        if let Some(other) = chain.insert(header.sequence, found)
            && other.header != header
        {
            let what = "another block has the same number".to_string();
            let csns = (header.previous_csn, header.last_csn.next());
            let location = segment.file.location(found.offset);
            self.malformed.push((header.last_csn, damage(&header, csns, location, what)));
        }
    }

    /// Returns true if there is no segment at all, readable or not.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.segments.is_empty() && self.unreadable.is_empty()
    }

    /// Returns the errors of places that could not be read.
    #[must_use]
    pub fn unreadable(&self) -> &[Error] {
        &self.unreadable
    }

    /// The end of a chain of which only this is known: every CSN below `watermark` was durable.
    /// `None` if no block shows that there was one.
    #[must_use]
    pub fn end_below(&self, log: LogId, epoch: Epoch, watermark: Csn) -> Option<ChainEnd> {
        let mut end = None;
        for (sequence, found) in self.chains.get(&(epoch, log))? {
            // What is durable is a gap-free run of blocks, so one CSN in a block vouches for all
            // blocks before it.
            if found.header.first_csn < watermark {
                end = Some((*sequence, found.header.last_csn));
            } else if found.header.previous_csn < watermark && found.header.previous_csn > Csn::ZERO {
                end = end.max(Some((sequence - 1, found.header.previous_csn)));
            }
        }
        end.map(|(sequence, last_csn)| ChainEnd { log, epoch, sequence, last_csn, dense: true })
    }

    /// Logs of which there is a block in `epoch`.
    pub fn logs_of(&self, epoch: Epoch) -> impl Iterator<Item = LogId> {
        self.chains.range((epoch, LogId(0))..=(epoch, LogId(u32::MAX))).map(|((_, log), _)| *log)
    }

    /// Everything that is wrong above `covered` with the chains up to `ends`.
    #[must_use]
    pub fn damages(&self, ends: &[ChainEnd], covered: Csn) -> Vec<LogDamage> {
        let mut all: Vec<LogDamage> = Vec::new();
        for end in ends {
            self.damages_of_chain(end, covered, &mut all);
            let of_chain = |damage: &LogDamage| {
                (damage.log, damage.epoch) == (end.log, end.epoch) && damage.blocks.1 <= end.sequence
            };
            let malformed = self.malformed.iter().filter(|(last_csn, _)| *last_csn > covered);
            all.extend(malformed.map(|(_, damage)| damage).filter(|damage| of_chain(damage)).cloned());
        }
        all
    }

    fn damages_of_chain(&self, end: &ChainEnd, covered: Csn, all: &mut Vec<LogDamage>) {
        let nothing = Sequences::new();
        let chain = self.chains.get(&(end.epoch, end.log)).unwrap_or(&nothing);
        // The last block that is covered is where the chain that counts begins, if it was seen.
        let is_covered = |found: &Found| found.header.last_csn <= covered;
        let mut previous: Option<&Found> = chain.values().take_while(|found| is_covered(found)).last();
        let mut any = false;
        for found in chain.range(..=end.sequence).map(|(_, found)| found).filter(|found| !is_covered(found)) {
            let header = &found.header;
            let first_needed = !any && header.previous_csn <= covered;
            any = true;
            match previous {
                Some(before) if before.header.sequence + 1 == header.sequence => {
                    if before.header.last_csn != header.previous_csn {
                        let location = self.location(found.segment, found.offset);
                        let csns = (before.header.last_csn, header.first_csn);
                        let what = "its header does not follow from the block before".to_string();
                        all.push(damage(header, csns, location, what));
                    }
                }
                _ if first_needed => {}
                _ => {
                    let first = previous.map_or(header.sequence - 1, |before| before.header.sequence + 1);
                    let lower = previous.map_or(covered, |before| before.header.last_csn);
                    let csns = (lower, header.previous_csn.next());
                    all.push(self.hole(end, (first, header.sequence - 1), csns, previous, Some(found)));
                }
            }
            previous = Some(found);
        }
        let last = previous.map_or(0, |found| found.header.sequence);
        let needed = if any { last < end.sequence } else { end.dense && end.last_csn > covered };
        if needed {
            let first = if previous.is_some() { last + 1 } else { end.sequence };
            let lower = previous.map_or(covered, |found| found.header.last_csn);
            let csns = (lower, end.last_csn.next());
            all.push(self.hole(end, (first, end.sequence), csns, previous, None));
        }
    }

    /// Blocks that are not there, between two that are.
    fn hole(
        &self,
        end: &ChainEnd,
        blocks: (u64, u64),
        csns: (Csn, Csn),
        previous: Option<&Found>,
        next: Option<&Found>,
    ) -> LogDamage {
        let named = self.broken.iter().find(|broken| {
            let header = &broken.header;
            (header.log, header.epoch) == (end.log, end.epoch)
                && (blocks.0..=blocks.1).contains(&header.sequence)
        });
        let damage = |location, what: &str| LogDamage {
            log: end.log,
            epoch: end.epoch,
            blocks,
            csns,
            conditional: !end.dense,
            location,
            what: what.to_string(),
        };
        if let Some(broken) = named {
            return damage(broken.location.clone(), &broken.what);
        }
        // Side by side with the next block, or else behind the previous one.
        let before_next = next.and_then(|next| {
            let start = self.segments[next.segment].uncovered_before(next.offset)?;
            Some(self.location(next.segment, start))
        });
        let behind = previous.filter(|found| self.segments[found.segment].is_uncovered(found.end()));
        let behind = behind.map(|found| self.location(found.segment, found.end()));
        let carried = || self.only_gap(end.epoch).map(|(segment, at)| self.location(segment, at));
        match before_next.or(behind).or_else(carried) {
            Some(location) => damage(location, "here should be a block, and there is no valid header"),
            None => damage(
                Location::File { path: LOG_DIRECTORY.into(), offset: 0 },
                "no segment holds it: a log segment is missing, cannot be read, or was overwritten",
            ),
        }
    }

    /// Returns the only gap between blocks of `epoch`; `None` if there are several or none.
    fn only_gap(&self, epoch: Epoch) -> Option<(usize, u64)> {
        let chains = self.chains.range((epoch, LogId(0))..=(epoch, LogId(u32::MAX)));
        let blocks = chains.flat_map(|(_, chain)| chain.values());
        let mut places: Vec<_> = blocks.map(|found| (found.segment, found.offset, found.end())).collect();
        places.sort_unstable();
        let side_by_side = places.windows(2).filter(|pair| pair[0].0 == pair[1].0 && pair[0].2 < pair[1].1);
        let mut gaps = side_by_side
            .map(|pair| (pair[0].0, pair[0].2))
            .filter(|(segment, at)| self.segments[*segment].is_uncovered(*at));
        let first = gaps.next()?;
        gaps.next().is_none().then_some(first)
    }

    fn location(&self, segment: usize, offset: u64) -> Location {
        self.segments[segment].segment.file.location(offset)
    }
}

fn damage(header: &BlockHeader, csns: (Csn, Csn), location: Location, what: String) -> LogDamage {
    let (log, epoch, sequence) = (header.log, header.epoch, header.sequence);
    LogDamage { log, epoch, blocks: (sequence, sequence), csns, conditional: false, location, what }
}

/// The records of a whole block, in turn.
struct Records<'a> {
    header: &'a BlockHeader,
    /// CSN of the record before.
    previous: Csn,
    count: u32,
}

impl Records<'_> {
    /// The record at the start of `bytes`, if it is one that belongs here.
    fn next<'b>(&mut self, bytes: &'b [u8]) -> Result<Record<'b>, String> {
        let record = Record::decode(bytes).map_err(|error| error.message().to_string())?;
        let csn = record.header.csn;
        if csn <= self.previous {
            return Err(format!("CSN {csn} follows CSN {}: CSNs rise within a log", self.previous));
        }
        if record.header.epoch > self.header.epoch {
            return Err(format!("the record of CSN {csn} is of a later epoch than its block"));
        }
        if self.count == 0 && csn != self.header.first_csn {
            return Err(format!("the first record has CSN {csn}, the header says {}", self.header.first_csn));
        }
        for operation in record.operations() {
            operation.map_err(|error| format!("CSN {csn}: {}", error.message()))?;
        }
        self.previous = csn;
        self.count += 1;
        Ok(record)
    }

    /// Returns what is wrong with the block at the end of its bytes.
    fn at_the_end(&self) -> Option<String> {
        let header = self.header;
        if self.count != header.record_count {
            return Some(format!("{} records, the header says {}", self.count, header.record_count));
        }
        (self.previous != header.last_csn).then(|| {
            format!("the last record has CSN {}, the header says {}", self.previous, header.last_csn)
        })
    }
}
