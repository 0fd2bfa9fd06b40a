//! The objects of a zonal bucket, and what a message does to them.

use super::options::{RapidMistake, RapidOptions};
use bytes::{Bytes, BytesMut};
use quenchdb::internals::device::objects::rapid::{Object, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;
use tonic::Status;

/// An object.
#[derive(Debug, Default)]
pub(super) struct Stored {
    pub generation: i64,
    /// Bytes that survive everything.
    pub durable: BytesMut,
    /// Bytes that came on the newest stream, and were not flushed.
    pub unflushed: BytesMut,
    pub is_final: bool,
    /// The writer, which its handle names.
    pub writer: u64,
    /// The newest stream.
    pub stream: u64,
    /// Wakes the streams of this object when one takes it over.
    pub revoked: Arc<Notify>,
}

/// All objects.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub all: BTreeMap<String, Stored>,
    /// Generations, writers and streams given so far.
    numbers: u64,
    pub mistakes: Vec<RapidMistake>,
    pub as_testbench: bool,
}

/// What a stream knows of its object.
#[derive(Clone, Debug)]
pub(super) struct Opened {
    pub key: String,
    pub generation: i64,
    pub writer: u64,
    pub stream: u64,
    pub revoked: Arc<Notify>,
}

pub(super) fn taken_over() -> Status {
    Status::failed_precondition("a different writer has become the exclusive writer of this object")
}

pub(super) fn finalized() -> Status {
    Status::failed_precondition("the object is finalized")
}

pub(super) fn absent(key: &str) -> Status {
    Status::not_found(format!("there is no object {key}"))
}

impl Stored {
    /// Returns the description, with the length that the caller may see.
    pub fn describe(&self, key: &str, bucket: &str, size: usize) -> Object {
        Object {
            name: key.into(),
            bucket: format!("projects/_/buckets/{bucket}"),
            generation: self.generation,
            storage_class: "RAPID".into(),
            size: size as i64,
            finalize_time: self.is_final.then_some(Timestamp { seconds: 1, nanos: 0 }),
        }
    }
}

impl Objects {
    pub fn new(options: &RapidOptions) -> Objects {
        let (mistakes, as_testbench) = (options.mistakes.clone(), options.as_testbench);
        Objects { mistakes, as_testbench, ..Objects::default() }
    }

    pub fn makes(&self, mistake: RapidMistake) -> bool {
        self.mistakes.contains(&mistake)
    }

    pub fn next(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn opened(&self, key: &str) -> Result<Opened, Status> {
        let Stored { generation, writer, stream, revoked, .. } =
            self.all.get(key).ok_or_else(|| absent(key))?;
        let (generation, writer, stream) = (*generation, *writer, *stream);
        Ok(Opened { key: key.into(), generation, writer, stream, revoked: revoked.clone() })
    }

    /// Creates an empty object that takes appends.
    pub fn create(&mut self, key: &str, wanted: Option<i64>) -> Result<Opened, Status> {
        let there = self.all.get(key).map_or(0, |object| object.generation);
        if wanted.is_some_and(|wanted| wanted != there) && !self.makes(RapidMistake::IgnoresGeneration) {
            return Err(Status::failed_precondition("the object has another generation"));
        }
        let (generation, writer, stream) = (self.next() as i64, self.next(), self.next());
        let object = Stored { generation, writer, stream, ..Stored::default() };
        if let Some(before) = self.all.insert(key.into(), object) {
            before.revoked.notify_waiters();
        }
        self.opened(key)
    }

    /// Opens an object: with the handle of a writer, or as its new writer.
    pub fn open(
        &mut self,
        key: &str,
        generation: i64,
        writer: Option<u64>,
        keeps: impl FnOnce(usize) -> usize,
    ) -> Result<Opened, Status> {
        if generation == 0 && !self.as_testbench {
            return Err(Status::invalid_argument("the generation is missing"));
        }
        let (next_writer, stream) = (self.next(), self.next());
        let object = self.all.get_mut(key).filter(|object| [0, object.generation].contains(&generation));
        let object = object.ok_or_else(|| absent(key))?;
        if object.is_final {
            return Err(finalized());
        }
        if writer.is_some_and(|writer| writer != object.writer) {
            return Err(taken_over());
        }
        // The service also persists by itself: some of what was not flushed may be there.
        let kept = keeps(object.unflushed.len());
        object.unflushed.truncate(kept);
        let kept = object.unflushed.split();
        object.durable.extend_from_slice(&kept);
        object.writer = writer.unwrap_or(next_writer);
        object.stream = stream;
        object.revoked.notify_waiters();
        self.opened(key)
    }

    /// Returns the object of a stream, if the stream may still change it.
    pub fn of_stream(&mut self, own: &Opened) -> Result<&mut Stored, Status> {
        let is_lax = self.as_testbench || self.makes(RapidMistake::NoRevocation);
        let appends_after = self.as_testbench || self.makes(RapidMistake::AppendsAfterFinalize);
        let object = self.all.get_mut(&own.key).filter(|object| object.generation == own.generation);
        let object = object.ok_or_else(|| absent(&own.key))?;
        if object.stream != own.stream && !is_lax {
            return Err(taken_over());
        }
        if object.is_final && !appends_after {
            return Err(finalized());
        }
        Ok(object)
    }

    /// Takes data on a stream. What lies below the end is taken for a repetition.
    pub fn append(&mut self, own: &Opened, offset: u64, data: &Bytes) -> Result<(), Status> {
        let ignores_gap = self.makes(RapidMistake::IgnoresGap);
        let object = self.of_stream(own)?;
        let end = (object.durable.len() + object.unflushed.len()) as u64;
        let known = match end.checked_sub(offset) {
            Some(known) => (known as usize).min(data.len()),
            None if ignores_gap => 0,
            None => {
                let what = format!("write offset {offset} does not match expected {end}");
                return Err(Status::out_of_range(what));
            }
        };
        object.unflushed.extend_from_slice(&data[known..]);
        Ok(())
    }

    /// Makes all that a stream has sent up to `end` durable. Returns the length.
    pub fn flush(&mut self, own: &Opened, end: usize) -> Result<usize, Status> {
        let object = self.of_stream(own)?;
        let new = end.saturating_sub(object.durable.len()).min(object.unflushed.len());
        let new = object.unflushed.split_to(new);
        object.durable.extend_from_slice(&new);
        Ok(object.durable.len())
    }

    /// Returns the end of what a stream has sent.
    pub fn end(&mut self, own: &Opened) -> Result<usize, Status> {
        let object = self.of_stream(own)?;
        Ok(object.durable.len() + object.unflushed.len())
    }

    /// Ends an object for ever.
    pub fn finalize(&mut self, own: &Opened, offset: u64) -> Result<usize, Status> {
        let end = self.end(own)?;
        if offset > end as u64 {
            return Err(Status::out_of_range(format!("the object has {end} bytes, and not {offset}")));
        }
        self.flush(own, end)?;
        let lost = usize::from(self.makes(RapidMistake::FinalizesShort));
        let object = self.of_stream(own)?;
        let end = end.saturating_sub(lost);
        object.durable.truncate(end);
        object.is_final = true;
        object.revoked.notify_waiters();
        Ok(end)
    }

    /// The stream of an object has ended: some of what was not flushed stays.
    pub fn lose(&mut self, own: &Opened, keeps: impl FnOnce(usize) -> usize) {
        let is_own = |object: &&mut Stored| {
            (object.generation, object.stream) == (own.generation, own.stream) && !object.is_final
        };
        if let Some(object) = self.all.get_mut(&own.key).filter(is_own) {
            let kept = keeps(object.unflushed.len());
            object.unflushed.truncate(kept);
            let kept = object.unflushed.split();
            object.durable.extend_from_slice(&kept);
        }
    }
}
