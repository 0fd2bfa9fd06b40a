//! The chunks of long transactions, until their transactions commit.

use super::merge::FoundRecord;
use crate::base::{Csn, Error, Location, Result};
use crate::log::{LoadedBlock, Part, ScannedBlock, counting_bytes, load};
use std::collections::BTreeMap;

/// A chunk in the log.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    part: Part,
    /// Bytes of operations.
    bytes: usize,
    block: ScannedBlock,
    /// Position in the block's payload.
    at: usize,
}

impl Chunk {
    /// Reads the first `bytes` of operations.
    pub(super) fn read(&self, bytes: usize) -> Result<Vec<u8>> {
        let place = || self.block.location(self.at);
        let blocks = load(std::slice::from_ref(&self.block), 0)?;
        let block = blocks.first().ok_or_else(|| Error::corruption("a log block is gone").at(place()))?;
        let operations = block.record_at(self.at).0.get(..bytes);
        operations
            .map(<[u8]>::to_vec)
            .ok_or_else(|| Error::corruption("a chunk in the log is cut off").at(place()))
    }
}

/// Chunks by the CSN of the first one of their transaction, then by their own CSN.
#[derive(Debug, Default)]
pub(super) struct ChunkIndex {
    transactions: BTreeMap<Csn, BTreeMap<Csn, Chunk>>,
}

impl ChunkIndex {
    /// Remembers a chunk.
    pub fn note(&mut self, record: &FoundRecord, block: &LoadedBlock) {
        let Some(part) = record.part else { return };
        let chunk = Chunk { part, bytes: record.bytes, block: block.block.forget_bytes(), at: record.at };
        self.transactions.entry(part.first_of(record.csn)).or_default().insert(record.csn, chunk);
    }

    /// Takes the chunks that the last part of a transaction continues, each with the bytes that
    /// count of it.
    ///
    /// # Errors
    /// `Corruption` if not all are there.
    pub fn take(&mut self, last: &FoundRecord) -> Result<Vec<(Chunk, usize)>> {
        let part = last.part.unwrap_or_default();
        let chunks = self.transactions.remove(&part.first_of(last.csn)).unwrap_or_default();
        let mut parts: Vec<_> = chunks.values().map(|chunk| (chunk.part, chunk.bytes)).collect();
        parts.push((part, last.bytes));
        let counting = counting_bytes(&parts).ok_or_else(|| {
            let what = format!("of a transaction with {} chunks not all are in the log", part.number);
            Error::corruption(what).at(Location::Transaction(last.csn))
        })?;
        let chunks = chunks.into_values().zip(counting);
        Ok(chunks.filter(|(_, counts)| *counts > 0).collect())
    }

    /// Forgets transactions whose first chunk has a CSN up to `csn`.
    pub fn forget_up_to(&mut self, csn: Csn) {
        self.transactions = self.transactions.split_off(&csn.next());
    }

    /// Returns the lowest CSN of a first chunk.
    pub fn first(&self) -> Option<Csn> {
        self.transactions.keys().next().copied()
    }
}
