//! From blocks in any order to transactions in CSN order: the part of a feed that does not depend
//! on which process writes the log.

use super::chunks::{Chunk, ChunkIndex};
use super::merge::{FoundRecord, Merge};
use super::names::Names;
use super::selection::CountedEpochs;
use super::transaction::CommittedTransaction;
use crate::base::{Csn, Result, TableId};
use crate::commit::FeedSource;
use crate::log::{FollowedBlock, LoadedBlock, RecordKind};
use std::sync::Arc;

/// A transaction that is complete.
#[derive(Debug)]
pub(super) struct Assembled {
    csn: Csn,
    /// Chunks before the body, and the bytes that count of each.
    chunks: Vec<(Chunk, usize)>,
    body: Vec<u8>,
    names: Names,
}

impl Assembled {
    /// Returns the transaction, whose log is that of `source`, or of another process.
    pub fn into_transaction(self, source: Option<Arc<FeedSource>>) -> CommittedTransaction {
        CommittedTransaction::new(self.csn, self.chunks, self.body, self.names, source)
    }
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Assembler {
    epochs: Arc<CountedEpochs>,
    merge: Merge,
    chunks: ChunkIndex,
    names: Names,
    /// The bodies of the first fragments of a transaction, and the CSN of the first one.
    fragments: Vec<u8>,
    fragments_begin: Option<Csn>,
    /// No record below it is needed any more.
    next: Csn,
    /// The transaction that was returned last.
    returned: Csn,
    /// A record above `next` was taken from the merge.
    skipped_to: Option<Csn>,
}

impl Assembler {
    /// Begins above the CSN `after`. The tables with these names exist.
    pub fn new(
        epochs: Arc<CountedEpochs>,
        tables: impl IntoIterator<Item = (TableId, Arc<str>)>,
        after: Csn,
    ) -> Assembler {
        Assembler {
            next: epochs.first_counted(after.next()),
            epochs,
            merge: Merge::default(),
            chunks: ChunkIndex::default(),
            names: Names::new(tables),
            fragments: Vec::new(),
            fragments_begin: None,
            returned: after,
            skipped_to: None,
        }
    }

    /// Returns the CSN of the record that is taken next.
    pub fn next_csn(&self) -> Csn {
        self.next
    }

    /// Returns the CSN from which a later feed continues: everything up to there was returned, and
    /// no transaction that was not has a record there.
    pub fn csn(&self) -> Csn {
        let unfinished = self.chunks.first().into_iter().chain(self.fragments_begin);
        let first = unfinished.fold(self.next, Csn::min);
        self.returned.max(Csn(first.0 - 1))
    }

    /// Returns the CSN up to which every transaction that committed was returned.
    pub fn complete_csn(&self) -> Csn {
        let first = self.fragments_begin.unwrap_or(self.next);
        self.returned.max(Csn(first.0 - 1))
    }

    /// Returns the CSN up to which no record is needed any more: no chunk or fragment of a
    /// transaction that was not returned is there.
    pub fn covered_csn(&self) -> Csn {
        let unfinished = self.chunks.first().into_iter().chain(self.fragments_begin);
        Csn(unfinished.fold(self.next, Csn::min).0 - 1)
    }

    /// Adds blocks that were found.
    pub fn add(&mut self, blocks: Vec<FollowedBlock>) {
        self.merge.add(blocks);
    }

    /// Replaces what counts, after a recovery. What a recovery discarded is left out.
    pub fn set_epochs(&mut self, epochs: Arc<CountedEpochs>) {
        self.epochs = epochs;
        self.next = self.epochs.first_counted(self.next);
        // All fragments of a transaction count or none.
        if self.fragments_begin.is_some_and(|first| self.epochs.is_discarded(first)) {
            self.fragments_begin = None;
            self.fragments.clear();
        }
    }

    /// Forgets chunks of transactions that ended before a checkpoint: it covers them.
    pub fn forget_chunks(&mut self, covered: Csn, checkpoint: Csn) {
        if self.next > checkpoint {
            self.chunks.forget_up_to(covered);
        }
    }

    /// Returns the next transaction, if every record below `durable` is known, as far as it was not
    /// removed.
    ///
    /// # Errors
    /// `Corruption` for a damaged or contradictory record; I/O.
    pub fn next_below(&mut self, durable: Csn) -> Result<Option<Assembled>> {
        while self.skipped_to.is_none()
            && let Some((record, block)) = self.merge.next(self.next, durable, durable)?
        {
            if let Some(assembled) = self.count(&record, &block)? {
                return Ok(Some(assembled));
            }
        }
        Ok(None)
    }

    /// Returns the next transaction if all its records are known, and all records before them.
    ///
    /// # Errors
    /// As [`Assembler::next_below`].
    pub fn next_without_gap(&mut self) -> Result<Option<Assembled>> {
        while let Some((record, block)) = self.merge.next(self.next, self.next.next(), Csn::MAX)? {
            if let Some(assembled) = self.count(&record, &block)? {
                return Ok(Some(assembled));
            }
        }
        Ok(None)
    }

    /// Returns the first CSN that is known, or durable, above a missing one.
    pub fn missing_below(&mut self, durable: Csn) -> Option<Csn> {
        self.skipped_to.take().or((self.next < durable).then_some(durable))
    }

    /// Returns the transaction that a record completes, if the record counts and does.
    fn count(&mut self, record: &FoundRecord, block: &LoadedBlock) -> Result<Option<Assembled>> {
        if !self.epochs.count(record) {
            return Ok(None);
        }
        if record.csn < self.next {
            if record.kind == RecordKind::Chunk && record.csn <= self.returned {
                self.chunks.note(record, block);
            }
            return Ok(None);
        }
        if record.csn > self.next {
            self.skipped_to = Some(record.csn);
            return Ok(None);
        }
        self.next = self.epochs.first_counted(record.csn.next());
        let assembled = self.take(record, block)?;
        if assembled.is_some() {
            debug_assert!(record.csn > self.returned, "a transaction is returned once, in order");
            self.returned = record.csn;
        }
        Ok(assembled)
    }

    fn take(&mut self, record: &FoundRecord, block: &LoadedBlock) -> Result<Option<Assembled>> {
        let operations = block.record_at(record.at).0;
        let mut chunks = Vec::new();
        let body = match record.kind {
            RecordKind::Chunk => {
                self.chunks.note(record, block);
                return Ok(None);
            }
            RecordKind::Last => {
                chunks = self.chunks.take(record)?;
                operations.to_vec()
            }
            RecordKind::Whole => operations.to_vec(),
            RecordKind::Fragment => {
                self.fragments.extend_from_slice(operations);
                if let Some(fragment) = record.fragment.filter(|f| f.last_of(record.csn) > record.csn) {
                    self.fragments_begin = Some(fragment.first_of(record.csn));
                    return Ok(None);
                }
                self.fragments_begin = None;
                std::mem::take(&mut self.fragments)
            }
        };
        // Changes of the catalog are transactions of their own.
        let changes_catalog = crate::log::begins_with_catalog_change(&body);
        if changes_catalog {
            self.names.apply_new(&body)?;
        }
        let names = self.names.clone();
        if changes_catalog {
            self.names.apply_drops(&body)?;
        }
        Ok(Some(Assembled { csn: record.csn, chunks, body, names }))
    }
}
