//! A segment of the log that its writer fills, whatever objects hold it.

use super::body::SegmentEntry;
use super::frame::{Frame, FrameKind};
use super::patience::place;
use super::register::fenced;
use super::segment_reader::{Part, SegmentReader, read_parts};
use super::store::{ObjectStore, StoreFacts};
use super::waiting::wait_for;
use super::watch::Watch;
use crate::base::planted::{self, Bug};
use crate::base::{Error, ErrorKind, Location, Result};
use crate::device::{File, WriteEnded};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, thread};
use bytes::Bytes;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What all segments of a writer share.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) facts: StoreFacts,
    /// The header of the writer's objects.
    pub(super) header: Frame,
    /// How long a write whose outcome is unknown is sent again.
    pub(super) patience: Duration,
    /// Requests of a segment that are in flight together.
    pub(super) lanes: usize,
    pub(super) watch: Arc<Watch>,
    /// Why no block may be written any more, whatever its segment.
    pub(super) failure: OnceLock<Error>,
}

impl Writer {
    /// # Errors
    /// `Fenced`; what was found out about durable blocks.
    fn check(&self) -> Result<()> {
        match self.failure.get() {
            Some(failure) => Err(failure.duplicate()),
            None => self.watch.check(),
        }
    }
}

/// A block that is to become durable.
pub(super) struct Write {
    pub(super) body: Bytes,
    pub(super) done: WriteEnded,
}

/// A segment that takes blocks.
pub(super) trait OpenSegment: Send + Sync + std::fmt::Debug {
    /// Returns the path of its file.
    fn path(&self) -> &str;

    /// Returns what the register says of it.
    fn entry(&self, number: u64) -> SegmentEntry;

    /// Makes sure that the segment takes blocks of `bytes` in total. Called before the register
    /// names the segment.
    fn make_room(&self, bytes: u64) -> Result<()>;

    /// Notes that the register names the segment.
    fn registered(&self);

    /// Begins to write a block.
    fn submit(&self, write: Write);

    /// Returns what is confirmed at the moment.
    fn parts(&self) -> Vec<Part>;

    /// No block will come any more. Objects may be ended; this returns at once.
    fn leave(&self) {}

    /// Waits until no write is in flight. Returns false if one has failed.
    fn wait_idle(&self) -> bool;

    /// Of several buckets, gives one the durable blocks that it lacks. If that bucket counts, it
    /// gets the next blocks, too.
    ///
    /// # Errors
    /// I/O; the failure of the segment.
    fn catch_up(&self, bucket: usize) -> Result<()> {
        let _ = bucket;
        Ok(())
    }
}

/// Refuses a write to a segment that the register does not name yet (O10), or after a failure.
pub(super) fn admit(path: &str, is_registered: bool, failure: Option<&Error>) -> Result<()> {
    match failure {
        Some(failure) => Err(failure.duplicate()),
        None if is_registered || planted::is(Bug::UnregisteredSegment) => Ok(()),
        None => {
            let what = "the segment is not durable yet: its directory was not flushed";
            Err(Error::invalid(what).at(place(path, 0)))
        }
    }
}

/// Calls `decide` with a failed write in a thread of its own, because that waits and reads; without
/// a thread, `fail`.
pub(super) fn decide_elsewhere(
    name: &'static str,
    write: Write,
    decide: impl FnOnce(Write) + Send + 'static,
    fail: impl FnOnce(Write, Error),
) {
    let slot = Arc::new(Mutex::new(Some(write)));
    let taken = slot.clone();
    let spawned = thread::spawn(name, move || {
        let write = taken.lock().take();
        if let Some(write) = write {
            decide(write);
        }
    });
    if let Err(error) = spawned
        && let Some(write) = slot.lock().take()
    {
        let error = Error::io("no thread to find out what became of a block", error);
        fail(write, error.with_kind(ErrorKind::OutcomeUnknown));
    }
}

/// Returns the error for bytes that this writer did not write.
pub(super) fn intruder(writer: &Writer, name: &str, offset: u64, there: &[u8]) -> Error {
    match Frame::decode(there) {
        Some(fence) if fence.kind == FrameKind::Fence && fence.identity == writer.header.identity => {
            fenced(writer.header.epoch, fence.epoch)
        }
        _ => {
            let what = "the log object holds other bytes than this process wrote";
            Error::corruption(what).at(place(name, offset))
        }
    }
}

/// The segment as a file. Blocks name themselves, so the offset of a write is ignored, and what was
/// written is found by reading everything.
#[derive(Clone, Debug)]
pub(super) struct OpenSegmentFile {
    segment: Arc<dyn OpenSegment>,
    writer: Arc<Writer>,
    /// The length that was asked for.
    len: Arc<AtomicU64>,
}

impl OpenSegmentFile {
    pub(super) fn new(segment: Arc<dyn OpenSegment>, writer: Arc<Writer>) -> OpenSegmentFile {
        OpenSegmentFile { segment, writer, len: Arc::default() }
    }
}

impl File for OpenSegmentFile {
    fn location(&self, offset: u64) -> Location {
        place(self.segment.path(), offset)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.len.load(Ordering::Relaxed))
    }

    fn written_parts(&self) -> Option<Vec<Arc<dyn File>>> {
        let file = |part| {
            let (store, path) = (self.writer.store.clone(), self.segment.path().to_string());
            let reader = SegmentReader { store, path, parts: vec![part], patience: self.writer.patience };
            Arc::new(reader) as Arc<dyn File>
        };
        Some(self.segment.parts().into_iter().map(file).collect())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let (parts, writer) = (self.segment.parts(), &self.writer);
        read_parts(&writer.store, &parts, self.segment.path(), offset, buffer, writer.patience)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_durable_at(offset, bytes)
    }

    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        wait_for(|done| self.write_then(offset, bytes, done))
    }

    fn write_then(&self, _offset: u64, bytes: &[u8], done: WriteEnded) {
        if let Err(error) = self.writer.check() {
            return done(Err(error));
        }
        self.segment.submit(Write { body: Bytes::copy_from_slice(bytes), done });
    }

    fn end_writes(&self) {
        self.segment.leave();
    }

    /// The segment reports `OutcomeUnknown` if a block may be there, or may still come.
    fn knows_outcome(&self) -> bool {
        true
    }

    /// Every completed write is durable.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn zero_extend(&self, len: u64, _rest: &mut dyn FnMut(Duration)) -> Result<()> {
        self.segment.make_room(len)?;
        self.len.fetch_max(len, Ordering::Relaxed);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.len.store(len, Ordering::Relaxed);
        Ok(())
    }
}
