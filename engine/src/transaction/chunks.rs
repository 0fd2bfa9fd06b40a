//! Transactions whose redo is long: the redo goes to the log in chunks while they run (see `log::part`).
//!
//! A chunk is written before the operation for which there would be no room, never in the middle of one: if it fails nothing
//! was changed, and the transaction can go on or abort. It has nothing of the transaction's state in it but redo, so an abort or a
//! rollback needs nothing of it.
//!
//! What stays in memory of a long transaction: its changed pages, a version and a key for each changed row.

use super::active::ActiveTransaction;
use super::system::TransactionSystem;
use crate::base::{Error, ErrorKind, Location, Result};
use crate::commit::Record;
use crate::log::RecordKind;

impl ActiveTransaction {
    /// True if `more` bytes of redo may be added without a chunk.
    #[inline]
    pub(super) fn has_room(&self, more: usize) -> bool {
        self.scratch.redo.unwritten_len() + more <= self.system.limits.chunk_bytes
            && self.scratch.redo.len() + more as u64 <= self.system.limits.transaction_bytes_max as u64
    }

    /// Makes sure that an operation with `more` bytes may be added to the redo. What it takes beside them is not counted.
    #[inline]
    pub(super) fn make_room(&mut self, more: usize) -> Result<()> {
        if !self.has_room(more) {
            self.write_chunk(more)?;
        }
        self.check_memory(more)
    }

    #[cold]
    fn write_chunk(&mut self, more: usize) -> Result<()> {
        let (size, max) =
            (self.scratch.redo.len() + more as u64, self.system.limits.transaction_bytes_max as u64);
        if size > max {
            let what =
                format!("the transaction would log {size} bytes, more than transaction_bytes_max = {max}");
            return Err(
                Error::new(ErrorKind::OutOfMemory, what).at(Location::Setting("transaction_bytes_max"))
            );
        }
        if self.scratch.redo.unwritten_len() == 0 {
            return Ok(());
        }
        let system = &self.system;
        let commit = system.commit();
        let chunks = self.chunks.get_or_insert_with(|| Box::new(commit.begin_chunks(system.log_of_thread())));
        let written = self.scratch.redo.write_chunk(|redo| {
            let record = Record { kind: RecordKind::Chunk, ..TransactionSystem::record_of(redo) };
            commit.append_chunk(chunks, record)
        });
        written.map(drop)
    }
}
