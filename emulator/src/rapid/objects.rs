//! The objects of a zonal bucket, and what a message does to them.

use super::options::{RapidMistake, RapidOptions};
use crate::log::Log;
use bytes::{Bytes, BytesMut};
use quenchdb::internals::device::objects::rapid::{Object, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
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

/// A change that survives the server, as text. Bytes stand behind it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Kept {
    Created {
        key: String,
        generation: i64,
        writer: u64,
    },
    Appended {
        key: String,
    },
    TakenOver {
        key: String,
        writer: u64,
    },
    Finalized {
        key: String,
        len: usize,
    },
    Deleted {
        key: String,
    },
    /// Numbers were given up to this one.
    Numbers {
        last: u64,
    },
}

/// All objects.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub all: BTreeMap<String, Stored>,
    /// Generations, writers and streams given so far.
    numbers: u64,
    /// The directory, if objects survive the server.
    log: Option<Log<Kept>>,
    pub mistakes: Vec<RapidMistake>,
    pub as_testbench: bool,
    keeps_open_objects: bool,
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
            size: size as i64,
            finalize_time: self.is_final.then_some(Timestamp { seconds: 1 }),
        }
    }
}

impl Objects {
    /// # Errors
    /// The directory cannot be opened.
    pub fn open_store(options: &RapidOptions) -> io::Result<Objects> {
        let RapidOptions { mistakes, as_testbench, keeps_open_objects, .. } = options.clone();
        let mut objects = Objects { mistakes, as_testbench, keeps_open_objects, ..Objects::default() };
        if let Some(directory) = &options.directory {
            objects.log = Some(Log::open(directory, |change, body| objects.apply(change, &body))?);
        }
        Ok(objects)
    }

    /// Makes a change, which survives the server if there is a directory.
    fn change(&mut self, change: Kept, body: &[u8]) -> Result<(), Status> {
        let written = self.log.as_mut().map_or(Ok(()), |log| log.add(&change, body));
        written.map_err(|error| Status::internal(error.to_string()))?;
        self.apply(change, body);
        if self.log.as_ref().is_some_and(Log::is_wasteful) {
            // Otherwise the log stays as it is.
            let _ = self.rewrite_log();
        }
        Ok(())
    }

    fn apply(&mut self, change: Kept, body: &[u8]) {
        let given = match &change {
            Kept::Created { generation, writer, .. } => (*writer).max(generation.unsigned_abs()),
            Kept::TakenOver { writer: last, .. } | Kept::Numbers { last } => *last,
            _ => 0,
        };
        self.numbers = self.numbers.max(given);
        let changes = |object: &mut Stored| match &change {
            Kept::Appended { .. } => object.durable.extend_from_slice(body),
            Kept::TakenOver { writer, .. } => object.writer = *writer,
            Kept::Finalized { len, .. } => {
                object.durable.truncate(*len);
                object.is_final = true;
            }
            Kept::Created { .. } | Kept::Deleted { .. } | Kept::Numbers { .. } => {}
        };
        match &change {
            Kept::Created { key, generation, writer } => {
                let object = Stored { generation: *generation, writer: *writer, ..Stored::default() };
                self.all.insert(key.clone(), object);
            }
            Kept::Deleted { key } => drop(self.all.remove(key)),
            Kept::Appended { key } | Kept::TakenOver { key, .. } | Kept::Finalized { key, .. } => {
                self.all.get_mut(key).into_iter().for_each(changes);
            }
            Kept::Numbers { .. } => {}
        }
    }

    /// Writes all objects to a new log.
    fn rewrite_log(&mut self) -> io::Result<()> {
        let numbers = (Kept::Numbers { last: self.numbers }, Bytes::new());
        let records = self.all.iter().flat_map(|(key, object)| {
            let Stored { generation, writer, durable, is_final, .. } = object;
            let (key, generation, writer, len) = (key.clone(), *generation, *writer, durable.len());
            let created = (Kept::Created { key: key.clone(), generation, writer }, Bytes::new());
            let appended = (Kept::Appended { key: key.clone() }, durable.clone().freeze());
            let finalized = is_final.then(|| (Kept::Finalized { key, len }, Bytes::new()));
            [created, appended].into_iter().chain(finalized)
        });
        self.log.as_mut().map_or(Ok(()), |log| log.rewrite(std::iter::once(numbers).chain(records)))
    }

    /// Makes the first `bytes` of what was not flushed durable. If that fails, none of it stays.
    fn keep(&mut self, key: &str, bytes: usize) -> Result<(), Status> {
        let Some(object) = self.all.get_mut(key) else { return Ok(()) };
        let mut rest = std::mem::take(&mut object.unflushed);
        let new = rest.split_to(bytes.min(rest.len()));
        if !new.is_empty() {
            self.change(Kept::Appended { key: key.into() }, &new)?;
        }
        if let Some(object) = self.all.get_mut(key) {
            object.unflushed = rest;
        }
        Ok(())
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
        let before = self.all.get(key).map(|object| object.revoked.clone());
        self.change(Kept::Created { key: key.into(), generation, writer }, &[])?;
        before.iter().for_each(|revoked| revoked.notify_waiters());
        if let Some(object) = self.all.get_mut(key) {
            object.stream = stream;
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
        self.keep(key, kept)?;
        if writer.is_none() {
            self.change(Kept::TakenOver { key: key.into(), writer: next_writer }, &[])?;
        }
        if let Some(object) = self.all.get_mut(key) {
            object.unflushed.clear();
            object.stream = stream;
            object.revoked.notify_waiters();
        }
        self.opened(key)
    }

    /// Forgets the handle of an object's writer.
    pub fn expire(&mut self, key: &str) -> Result<(), Status> {
        let writer = self.next();
        self.change(Kept::TakenOver { key: key.into(), writer }, &[])
    }

    /// Removes an object.
    pub fn delete(&mut self, key: &str) -> Result<(), Status> {
        let object = self.all.get(key).ok_or_else(|| absent(key))?;
        if self.keeps_open_objects && !object.is_final {
            return Err(Status::failed_precondition("the object is not finalized"));
        }
        let revoked = object.revoked.clone();
        self.change(Kept::Deleted { key: key.into() }, &[])?;
        revoked.notify_waiters();
        Ok(())
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
        let appends_again = self.makes(RapidMistake::AppendsAgain);
        let object = self.of_stream(own)?;
        let end = (object.durable.len() + object.unflushed.len()) as u64;
        let known = match end.checked_sub(offset) {
            Some(_) if appends_again => 0,
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
        let new = end.saturating_sub(object.durable.len());
        self.keep(&own.key, new)?;
        self.of_stream(own).map(|object| object.durable.len())
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
        let (end, revoked) = (end.saturating_sub(lost), own.revoked.clone());
        self.change(Kept::Finalized { key: own.key.clone(), len: end }, &[])?;
        revoked.notify_waiters();
        Ok(end)
    }

    /// The stream of an object has ended: some of what was not flushed stays.
    pub fn lose(&mut self, own: &Opened, keeps: impl FnOnce(usize) -> usize) {
        let is_own = |object: &&mut Stored| {
            (object.generation, object.stream) == (own.generation, own.stream) && !object.is_final
        };
        let Some(object) = self.all.get_mut(&own.key).filter(is_own) else { return };
        let kept = keeps(object.unflushed.len());
        // What cannot be kept is lost, as the rest is.
        let _ = self.keep(&own.key, kept);
        if let Some(object) = self.all.get_mut(&own.key) {
            object.unflushed.clear();
        }
    }
}
