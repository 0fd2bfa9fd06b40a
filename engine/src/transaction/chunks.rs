//! Room for redo: the redo of a long transaction goes to the log in chunks while the transaction
//! runs (see `log::part`).
//!
//! A chunk is written before the operation for which there would be no room, never in the middle of
//! one. If writing fails, nothing was changed, and the transaction can continue or abort. A chunk
//! holds redo and no state of the transaction, so an abort or a rollback does not need it.
//!
//! In memory stay the changed pages, and a version and a key for each changed row.

use super::active::ActiveTransaction;
use super::system::record_of;
use crate::base::{Error, ErrorKind, Location, Result};
use crate::commit::Record;
use crate::log::RecordKind;

impl ActiveTransaction {
    /// Makes room for an operation with `more` bytes of redo; bytes that the encoding adds are not
    /// counted.
    ///
    /// # Errors
    /// `OutOfMemory` at a bound; those of writing to the log.
    #[inline]
    pub(super) fn make_room(&mut self, more: usize) -> Result<()> {
        if !self.writes.has_room(&self.system, more) {
            self.write_chunk(more)?;
        }
        self.charge(more)
    }

    /// Charges the memory for `more` bytes of redo, or of a key without redo.
    #[inline]
    pub(super) fn charge(&mut self, more: usize) -> Result<()> {
        self.writes.charge(&self.system, more + self.dependencies.list_bytes())
    }

    #[cold]
    fn write_chunk(&mut self, more: usize) -> Result<()> {
        let (system, writes) = (&self.system, &mut *self.writes);
        let (size, max) = (writes.redo.len() + more as u64, system.limits.transaction_bytes_max as u64);
        if size > max {
            let what = format!("the transaction would log {size} bytes; log_bytes_max leaves room for {max}");
            return Err(Error::new(ErrorKind::OutOfMemory, what)
                .with_advice("commit in smaller transactions, or raise log_bytes_max")
                .at(Location::Setting("log_bytes_max")));
        }
        if writes.redo.unwritten_len() == 0 {
            return Ok(());
        }
        let commit = system.commit();
        let chunks =
            self.chunks.get_or_insert_with(|| Box::new(commit.chunks().begin(system.log_of_thread())));
        let written = writes.redo.write_chunk(|redo| {
            let record = Record { kind: RecordKind::Chunk, ..record_of(redo) };
            commit.chunks().append(chunks, record)
        });
        written.map(drop)
    }
}
