//! A file that counts its reads and writes: the traffic of the page store.
//!
//! Every method calls the inner file. Only successful operations count. Left out on purpose:
//! [`File::read_ahead`] and locks, which the page store does not use, and writes through a
//! [`WriteQueue`](super::WriteQueue), which use the descriptor and not [`File`]; their submitter
//! counts them.

use super::storage::{File, ReadDone, ReadRequest};
use crate::base::metrics::Counter;
use crate::base::{Location, Result};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

/// Reads and writes of one file since its opening. Approximate while threads use the file.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Number of reads.
    pub reads: Counter,
    /// Bytes read or written.
    pub read_bytes: Counter,
    /// Number of writes.
    pub writes: Counter,
    /// Bytes read or written.
    pub written_bytes: Counter,
}

impl Traffic {
    /// Counts a write of `bytes` that did not use [`CountedFile`].
    pub fn count_write(&self, bytes: usize) {
        self.writes.add(1);
        self.written_bytes.add(bytes as u64);
    }

    fn count_read(&self, bytes: usize) {
        self.reads.add(1);
        self.read_bytes.add(bytes as u64);
    }
}

/// A file that counts its traffic.
#[derive(Debug)]
pub struct CountedFile {
    inner: Arc<dyn File>,
    traffic: Arc<Traffic>,
}

impl CountedFile {
    /// Wraps `inner`. Returns the file and its counters, which start at 0.
    #[must_use]
    pub fn wrap(inner: Arc<dyn File>) -> (Arc<dyn File>, Arc<Traffic>) {
        let traffic = Arc::new(Traffic::default());
        (Arc::new(CountedFile { inner, traffic: traffic.clone() }), traffic)
    }
}

impl File for CountedFile {
    fn location(&self, offset: u64) -> Location {
        self.inner.location(offset)
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, buffer)?;
        self.traffic.count_read(buffer.len());
        Ok(())
    }

    fn read_many(&self, reads: &mut [ReadRequest<'_>], done: &mut ReadDone<'_>) {
        self.inner.read_many(reads, &mut |index, read| {
            if read.result.is_ok() {
                self.traffic.count_read(read.buffer.len());
            }
            done(index, read);
        });
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.inner.write_at(offset, bytes)?;
        self.traffic.count_write(bytes.len());
        Ok(())
    }

    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.inner.write_durable_at(offset, bytes)?;
        self.traffic.count_write(bytes.len());
        Ok(())
    }

    fn knows_outcome(&self) -> bool {
        self.inner.knows_outcome()
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn zero_extend(&self, len: u64, rest: &mut dyn FnMut(Duration)) -> Result<()> {
        self.inner.zero_extend(len, rest)
    }

    fn reserve(&self, from: u64, to: u64) -> Result<()> {
        self.inner.reserve(from, to)
    }

    fn discard(&self, from: u64, to: u64) -> Result<()> {
        self.inner.discard(from, to)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)
    }

    fn claim(&self) -> Result<()> {
        self.inner.claim()
    }

    fn unclaim(&self) {
        self.inner.unclaim();
    }

    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.inner.descriptor()
    }
}

#[cfg(test)]
mod tests;
