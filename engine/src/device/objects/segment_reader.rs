//! A segment of the log while nothing is written to it: the objects that hold it, one behind the
//! other, without their headers and fences.

use super::frame::FRAME_BYTES;
use super::patience::{Patience, error_of, may_end, place, read};
use super::request::Request;
use super::store::ObjectStore;
use super::waiting::wait_for_all;
use crate::base::{Error, ErrorKind, Location, Result};
use crate::device::File;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A long read is divided into requests of this length, which are in flight together.
const REQUEST_BYTES: u64 = 512 << 10;

/// A range of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// The object.
    pub name: String,
    /// The bytes of it that count.
    pub range: Range<u64>,
}

impl Part {
    /// A lane of which `len` bytes count, with its header.
    #[must_use]
    pub fn of_lane(name: String, len: u64) -> Part {
        Part { name, range: FRAME_BYTES..len.max(FRAME_BYTES) }
    }

    pub(super) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
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
    let (mut wanted, mut at) = (Vec::new(), 0);
    for part in parts {
        let from = offset.max(at);
        let to = end.min(at + part.len());
        let mut from_here = from;
        while from_here < to {
            let until = to.min(from_here + REQUEST_BYTES);
            let start = part.range.start + (from_here - at);
            wanted.push((part.name.clone(), start..start + (until - from_here)));
            from_here = until;
        }
        at += part.len();
    }
    if at < end {
        let what = format!("the file ends {} bytes early", end - at.max(offset));
        return Err(Error::corruption(what).at(place(path, offset)));
    }
    read_ranges(store, &wanted, buffer, patience)
}

/// Reads ranges of objects into `buffer`, one behind the other. All are in flight together.
///
/// # Errors
/// `NotFound` if an object is missing; `Corruption` if one is too short; I/O.
pub(super) fn read_ranges(
    store: &Arc<dyn ObjectStore>,
    wanted: &[(String, Range<u64>)],
    buffer: &mut [u8],
    patience: Duration,
) -> Result<()> {
    let replies = wait_for_all(wanted.len(), |index, done| {
        let (name, range) = wanted[index].clone();
        store.start(Request::Get { name, range: Some(range) }, done);
    });
    let mut at = 0;
    for ((name, range), first) in wanted.iter().zip(replies) {
        let reply = match first {
            Err(failure) if may_end(failure.kind) => {
                Patience::new(patience).pause();
                read(&**store, name, Some(range.clone()), patience)
            }
            ended => ended,
        };
        let reply = reply.map_err(|failure| error_of(&failure, "an object cannot be read", name))?;
        let len = (range.end - range.start) as usize;
        if reply.body.len() != len {
            let what = format!("the object ends {} bytes early", len - reply.body.len().min(len));
            return Err(Error::corruption(what).at(place(name, range.start)));
        }
        buffer[at..at + len].copy_from_slice(&reply.body);
        at += len;
    }
    Ok(())
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

    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> Result<()> {
        Err(self.refuse())
    }

    fn write_durable_at(&self, _offset: u64, _bytes: &[u8]) -> Result<()> {
        Err(self.refuse())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn zero_extend(&self, _len: u64) -> Result<()> {
        Err(self.refuse())
    }

    fn reserve(&self, _from: u64, _to: u64) -> Result<()> {
        Err(self.refuse())
    }

    fn set_len(&self, _len: u64) -> Result<()> {
        Err(self.refuse())
    }

    fn try_lock(&self) -> Result<bool> {
        Ok(true)
    }

    fn is_locked(&self) -> Result<bool> {
        Ok(false)
    }
}
