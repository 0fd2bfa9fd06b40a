//! Merges the blocks of all logs and epochs into records in CSN order.
//!
//! CSNs rise within a log and epoch, a *chain*, and the blocks of a chain are in the order of their
//! sequence numbers. Blocks may be found in any order, but of a chain all blocks with records below
//! the watermark are known before any of these records is taken.

use crate::base::{Csn, Epoch, ErrorKind, LogId, Result};
use crate::log::{FollowedBlock, Fragment, LoadedBlock, Part, RecordKind, ScannedBlock, load};
use std::collections::{BTreeMap, VecDeque};

/// Bytes of blocks that are read together.
const READ_BYTES: usize = 1 << 20;

/// A record of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundRecord {
    pub csn: Csn,
    /// The epoch that drew the CSN.
    pub epoch: Epoch,
    pub kind: RecordKind,
    pub part: Option<Part>,
    pub fragment: Option<Fragment>,
    /// Bytes of operations.
    pub bytes: usize,
    /// Position in the block's payload.
    pub at: usize,
}

/// The block whose records are taken.
#[derive(Debug)]
struct Current {
    block: LoadedBlock,
    records: VecDeque<FoundRecord>,
}

/// The blocks of a log and epoch from which not every record was taken.
#[derive(Debug, Default)]
struct Chain {
    current: Option<Current>,
    /// By sequence.
    waiting: BTreeMap<u64, FollowedBlock>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Merge {
    chains: BTreeMap<(Epoch, LogId), Chain>,
}

impl Merge {
    /// Adds blocks that were found.
    pub fn add(&mut self, blocks: Vec<FollowedBlock>) {
        for found in blocks {
            let (chain, sequence) = ((found.block.epoch(), found.block.log()), found.block.sequence());
            self.chains.entry(chain).or_default().waiting.insert(sequence, found);
        }
    }

    /// Takes the next record below `end`. Returns the record and its block. Blocks with records
    /// below `needed` only may be gone. Blocks that begin below `readable`, which is not below
    /// `end`, may be read before they are needed.
    ///
    /// # Errors
    /// `Corruption` if a block has changed since it was found, or a record is malformed; I/O.
    pub fn next(
        &mut self,
        needed: Csn,
        end: Csn,
        readable: Csn,
    ) -> Result<Option<(FoundRecord, LoadedBlock)>> {
        debug_assert!(self.chains.values().all(|chain| !chain.is_empty()), "a chain at its end is left out");
        loop {
            let chains = self.chains.iter().filter_map(|(id, chain)| Some((chain.next_csn()?, *id)));
            let Some((_, id)) = chains.min().filter(|(csn, _)| *csn < end) else { return Ok(None) };
            let Some(chain) = self.chains.get_mut(&id) else { return Ok(None) };
            let Some(current) = &mut chain.current else {
                chain.begin_block(needed, readable)?;
                if chain.is_empty() {
                    self.chains.remove(&id);
                }
                continue;
            };
            let record = current.records.pop_front().map(|record| (record, current.block.clone()));
            if current.records.is_empty() {
                chain.current = None;
                if chain.is_empty() {
                    self.chains.remove(&id);
                }
            }
            if record.is_some() {
                return Ok(record);
            }
        }
    }
}

impl Chain {
    /// The CSN of the next record; of a block that was not looked at, of its first one.
    fn next_csn(&self) -> Option<Csn> {
        match &self.current {
            Some(current) => current.records.front().map(|record| record.csn),
            None => self.waiting.values().next().map(|found| found.block.first_csn()),
        }
    }

    fn is_empty(&self) -> bool {
        self.current.is_none() && self.waiting.is_empty()
    }

    fn begin_block(&mut self, needed: Csn, readable: Csn) -> Result<()> {
        if let Err(error) = self.load_first(readable) {
            // The next attempt may read a block that is there, and has a chunk, perhaps.
            let may_be_there = error.kind() == ErrorKind::Io;
            if may_be_there
                || self.waiting.values().next().is_some_and(|first| first.block.last_csn() >= needed)
            {
                return Err(error);
            }
            self.waiting.pop_first();
            return Ok(());
        }
        let Some((_, FollowedBlock { loaded: Some(block), .. })) = self.waiting.pop_first() else {
            return Ok(());
        };
        let records = records_of(&block)?;
        self.current = Some(Current { block, records });
        Ok(())
    }

    /// Reads the first block that waits, and others behind it.
    fn load_first(&mut self, readable: Csn) -> Result<()> {
        let unread = self.waiting.values().take_while(|found| found.loaded.is_none());
        let below = unread.filter(|found| found.block.first_csn() < readable);
        let mut bytes = 0;
        let blocks: Vec<ScannedBlock> = below
            .map(|found| found.block.clone())
            .take_while(|block| {
                bytes += block.device_bytes();
                bytes == block.device_bytes() || bytes <= READ_BYTES
            })
            .collect();
        for loaded in load(&blocks, READ_BYTES)? {
            if let Some(found) = self.waiting.get_mut(&loaded.block.sequence()) {
                found.loaded = Some(loaded);
            }
        }
        Ok(())
    }
}

fn records_of(block: &LoadedBlock) -> Result<VecDeque<FoundRecord>> {
    let records = block.records().map(|record| {
        let (at, record) = record?;
        let (header, bytes) = (record.header, record.body.len());
        let (part, fragment) = (record.part, record.fragment);
        Ok(FoundRecord { csn: header.csn, epoch: header.epoch, kind: header.kind, part, fragment, bytes, at })
    });
    records.collect()
}
