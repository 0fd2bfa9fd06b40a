//! A segment of the log while nothing is written to it: the objects that hold it, one behind the
//! other, without their headers and fences.

use super::frame::FRAME_BYTES;
use super::patience::{Patience, error_of, may_end, place, read};
use super::request::Request;
use super::store::{ObjectStore, Outcome};
use super::waiting::Pending;
use crate::base::planted::{self, Bug};
use crate::base::{Error, ErrorKind, Location, Result};
use crate::device::{File, ReadAhead, SECTOR_BYTES};
use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A long read is divided into requests of this length, which are in flight together.
const REQUEST_BYTES: u64 = 1 << 20;

/// The name of an object, and bytes of it.
pub(super) type ObjectRange = (String, Range<u64>);

/// Returns the length of the whole sectors in `len` bytes.
pub(super) fn whole_sectors(len: u64) -> u64 {
    if planted::is(Bug::StreamUncut) { len } else { len - len % SECTOR_BYTES as u64 }
}

/// A range of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// The object.
    pub name: String,
    /// The bytes of it that count.
    pub range: Range<u64>,
}

impl Part {
    /// A lane of which `len` bytes count, with its header. Blocks are whole sectors, so what is
    /// behind the last one is the beginning of a torn block. Without the cut it would shift all
    /// blocks of the lanes behind this one.
    #[must_use]
    pub fn of_lane(name: String, len: u64) -> Part {
        Part { name, range: FRAME_BYTES..whole_sectors(len).max(FRAME_BYTES) }
    }

    pub(super) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// Returns the ranges of objects that hold the bytes `range` of the parts, which stand one behind
/// the other. `None` if the parts end before.
fn ranges_in(parts: &[Part], range: Range<u64>) -> Option<Vec<ObjectRange>> {
    let (mut wanted, mut at) = (Vec::new(), 0);
    for part in parts {
        let to = range.end.min(at + part.len());
        let mut from = range.start.max(at);
        while from < to {
            let until = to.min(from + REQUEST_BYTES);
            let start = part.range.start + (from - at);
            wanted.push((part.name.clone(), start..start + (until - from)));
            from = until;
        }
        at += part.len();
    }
    debug_assert!(
        at < range.end
            || wanted.iter().map(|(_, range)| range.end - range.start).sum::<u64>()
                == range.end - range.start,
        "the ranges of the objects are as long as that of the file"
    );
    (at >= range.end).then_some(wanted)
}

/// Fills `buffer` from byte `offset` of the parts, which stand one behind the other.
///
/// # Errors
/// `Corruption` if they end before; `NotFound` if an object is missing; I/O.
pub(super) fn read_parts(
    store: &Arc<dyn ObjectStore>,
    parts: &[Part],
    path: &str,
    offset: u64,
    buffer: &mut [u8],
    patience: Duration,
) -> Result<()> {
    let end = offset + buffer.len() as u64;
    let Some(wanted) = ranges_in(parts, offset..end) else {
        let len: u64 = parts.iter().map(Part::len).sum();
        let what = format!("the file ends {} bytes early", end - len.max(offset));
        return Err(Error::corruption(what).at(place(path, offset)));
    };
    read_ranges(store, wanted, buffer, patience)
}

/// Reads ranges of objects into `buffer`, one behind the other. All are in flight together.
///
/// # Errors
/// `NotFound` if an object is missing; `Corruption` if one is too short; I/O.
pub(super) fn read_ranges(
    store: &Arc<dyn ObjectStore>,
    wanted: Vec<ObjectRange>,
    buffer: &mut [u8],
    patience: Duration,
) -> Result<()> {
    StartedReads::start(store, wanted, patience).read(buffer)
}

/// Reads of ranges of objects, all of them in flight together.
struct StartedReads {
    store: Arc<dyn ObjectStore>,
    patience: Duration,
    replies: VecDeque<(ObjectRange, Pending<Outcome>)>,
    /// Bytes of an earlier reply that were not taken yet.
    rest: Bytes,
}

impl std::fmt::Debug for StartedReads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StartedReads").field("in_flight", &self.replies.len()).finish_non_exhaustive()
    }
}

impl StartedReads {
    fn start(store: &Arc<dyn ObjectStore>, wanted: Vec<ObjectRange>, patience: Duration) -> StartedReads {
        let start = |(name, range): ObjectRange| {
            let request = Request::Get { name: name.clone(), range: Some(range.clone()) };
            ((name, range), Pending::start(|done| store.start(request, done)))
        };
        let replies = wanted.into_iter().map(start).collect();
        StartedReads { store: store.clone(), patience, replies, rest: Bytes::new() }
    }

    /// Waits for the next reply, and returns its bytes.
    fn next(&mut self) -> Result<Bytes> {
        let Some(((name, range), first)) = self.replies.pop_front() else {
            return Err(Error::corruption("more bytes are taken than were asked for"));
        };
        let reply = match first.wait() {
            Err(failure) if may_end(failure.kind) => {
                Patience::new(self.patience).pause();
                read(&*self.store, &name, Some(range.clone()), self.patience)
            }
            ended => ended,
        };
        let reply = reply.map_err(|failure| error_of(&failure, "an object cannot be read", &name))?;
        let len = (range.end - range.start) as usize;
        if reply.body.len() != len {
            let what = format!("the object ends {} bytes early", len - reply.body.len().min(len));
            return Err(Error::corruption(what).at(place(&name, range.start)));
        }
        Ok(reply.body)
    }
}

impl ReadAhead for StartedReads {
    fn read(&mut self, mut buffer: &mut [u8]) -> Result<()> {
        while !buffer.is_empty() {
            if self.rest.is_empty() {
                self.rest = self.next()?;
            }
            let (filled, behind) = buffer.split_at_mut(buffer.len().min(self.rest.len()));
            filled.copy_from_slice(&self.rest.split_to(filled.len()));
            buffer = behind;
        }
        Ok(())
    }
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct SegmentReader {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) path: String,
    pub(super) parts: Vec<Part>,
    pub(super) patience: Duration,
}

impl SegmentReader {
    fn refuse(&self) -> Error {
        let what = "a segment of an earlier writer takes no writes";
        Error::new(ErrorKind::Unsupported, what).at(place(&self.path, 0))
    }
}

impl File for SegmentReader {
    fn location(&self, offset: u64) -> Location {
        place(&self.path, offset)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.parts.iter().map(Part::len).sum())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        read_parts(&self.store, &self.parts, &self.path, offset, buffer, self.patience)
    }

    fn read_ahead(&self, ranges: &[Range<u64>]) -> Option<Box<dyn ReadAhead>> {
        let wanted = ranges.iter().map(|range| ranges_in(&self.parts, range.clone()));
        let wanted = wanted.collect::<Option<Vec<_>>>()?.concat();
        Some(Box::new(StartedReads::start(&self.store, wanted, self.patience)))
    }

    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> Result<()> {
        Err(self.refuse())
    }

    fn write_durable_at(&self, _offset: u64, _bytes: &[u8]) -> Result<()> {
        Err(self.refuse())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn zero_extend(&self, _len: u64, _rest: &mut dyn FnMut(Duration)) -> Result<()> {
        Err(self.refuse())
    }

    fn set_len(&self, _len: u64) -> Result<()> {
        Err(self.refuse())
    }
}
