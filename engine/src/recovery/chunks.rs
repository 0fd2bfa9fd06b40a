//! The chunks of long transactions: where they are, until it is known whether their transactions
//! committed.
//!
//! Chunks come before the record that commits their transaction, and others in between, so a window
//! seldom has all of a transaction. What is remembered is where the chunks are. When the commit
//! comes they are read again, one after the other.
//!
//! ```text
//!   windows   │ c0 .. c1 │ .. c2 .. │ last ..      remembered: place, start, length of c0, c1, c2
//!   redo                              c0, c1, c2 are read, applied and forgotten one by one,
//!                                     then last;   about 150 bytes for each chunk
//! ```
//!
//! The chunks of a transaction that did not commit are remembered to the end of recovery.

use super::select::FoundRecord;
use super::window::Window;
use crate::base::planted::{self, Bug};
use crate::base::{Csn, Error, Location, Result};
use crate::log::{LoadedBlock, Part, RecordKind, ScannedBlock, counting_bytes, load};
use std::collections::HashMap;

/// A chunk that was found.
#[derive(Debug)]
struct Chunk {
    csn: Csn,
    part: Part,
    /// Bytes of operations.
    bytes: usize,
    block: ScannedBlock,
    /// Offset of its record in the block's payload.
    at: usize,
}

/// All chunks of transactions of which no commit was found yet, by the CSN of their first.
#[derive(Debug, Default)]
pub struct ChunkIndex {
    transactions: HashMap<Csn, Vec<Chunk>>,
}

impl ChunkIndex {
    /// Remembers the chunks among `records`, which ascend and are of `window`. Returns what the
    /// last parts among them continue, one for each, in their order.
    ///
    /// # Errors
    /// `Corruption` if a transaction that committed lacks a chunk, with the transaction's CSN: all
    /// below is there.
    pub fn note(
        &mut self,
        window: &Window,
        records: &[FoundRecord],
    ) -> std::result::Result<Vec<Earlier>, (Csn, Error)> {
        let mut earlier = Vec::new();
        for record in records.iter().filter(|record| record.kind.is_part()) {
            let (part, bytes, block, at) = window.part(record).map_err(|error| (record.csn, error))?;
            let first = part.first_of(record.csn);
            if record.kind == RecordKind::Chunk {
                let chunk = Chunk { csn: record.csn, part, bytes, block: block.forget_bytes(), at };
                self.transactions.entry(first).or_default().push(chunk);
                continue;
            }
            let chunks = self.transactions.remove(&first).unwrap_or_default();
            earlier.push(put_together(chunks, part, bytes).ok_or_else(|| {
                let what = format!(
                    "of a transaction with {} chunks from CSN {first} on not all are in the log",
                    part.number
                );
                (record.csn, Error::corruption(what).at(Location::Transaction(record.csn)))
            })?);
        }
        Ok(earlier)
    }
}

fn put_together(chunks: Vec<Chunk>, last: Part, last_bytes: usize) -> Option<Earlier> {
    let mut parts: Vec<_> = chunks.iter().map(|chunk| (chunk.part, chunk.bytes)).collect();
    parts.push((last, last_bytes));
    let mut slices: Vec<(Chunk, usize)> = chunks.into_iter().zip(counting_bytes(&parts)?).collect();
    slices.retain(|(_, counts)| *counts > 0);
    if planted::is(Bug::ChunkOrderIgnored) {
        slices.reverse();
    }
    // Nothing comes after the last part that could take back some of it.
    Some(Earlier { slices })
}

/// The redo of a long transaction before its last part.
#[derive(Debug)]
pub struct Earlier {
    /// Chunks, and how many bytes of each count.
    slices: Vec<(Chunk, usize)>,
}

impl Earlier {
    /// Returns the number of chunks with a CSN up to this one.
    pub fn up_to(&self, csn: Csn) -> u64 {
        self.slices.iter().filter(|(chunk, _)| chunk.csn <= csn).count() as u64
    }

    /// Reads the chunks one by one and calls `each` with the operations of each chunk.
    ///
    /// # Errors
    /// The errors of reading the log, and of `each`.
    pub fn each(&self, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut loaded: Option<LoadedBlock> = None;
        for (chunk, counts) in &self.slices {
            let block = match loaded.take() {
                Some(block) if block.block.is_at(&chunk.block) => block,
                _ => load(std::slice::from_ref(&chunk.block), 0)?.into_iter().next().ok_or_else(|| {
                    Error::corruption("a log block is gone").at(chunk.block.location(chunk.at))
                })?,
            };
            let operations = block.record_at(chunk.at).0.get(..*counts).ok_or_else(|| {
                Error::corruption("a chunk in the log is cut off").at(chunk.block.location(chunk.at))
            })?;
            each(operations)?;
            loaded = Some(block);
        }
        Ok(())
    }
}
