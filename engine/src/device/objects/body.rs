//! The body of the object `manifest`: what the device must know, and the engine's manifest.
//!
//! | field | form | meaning |
//! |---|---|---|
//! | magic | 8 bytes | `QNCHOBJS` |
//! | format version | 4 bytes | 1; 2 if a segment has form 2; 4 if one has form 3; 5 if one has form 4; 6 with fenced segments |
//! | CRC-32C | 4 bytes | of everything behind it |
//! | identity | 8 bytes | random, repeated in every log object |
//! | generation | varint | rises with each put |
//! | writer epoch | varint | rises with each claim |
//! | nonce | 16 bytes | random, of the writer with this epoch |
//! | closed | 1 byte, 0 or 1 | this writer has ended, and none of its requests is in flight |
//! | segments | varint count | each: number varint, epoch varint, form 1 byte, varint count of objects, varint each |
//! | | | form 3 also: blocks varint, varint count of tails, each: epoch, number, length, all varints |
//! | | | form 4 also: the generation of each object, varints |
//! | runs | varint count | each: gap to the end of the previous run, length, epoch, name, offset in the object, all varints |
//! | pages | varint | length of the file of pages |
//! | files | varint count | each: path as bytes, length, epoch and name of its object, all varints |
//! | fenced | varint count | in version 6 only; each: epoch, number, blocks, all varints |
//! | contents | bytes | the engine's manifest; empty before the first one |
//!
//! Integers of a fixed length are little-endian. Version 3 is that of a bucket of several, and has
//! such a body inside: see `buckets::record`.

use crate::base::encoding::{Reader, put_bytes, put_varint};
use crate::base::planted::{self, Bug};
use crate::base::{Error, ErrorKind, Result, checksum};
use bytes::Bytes;

/// The name of the object.
pub const MANIFEST_NAME: &str = "manifest";
pub(super) const MAGIC: [u8; 8] = *b"QNCHOBJS";
/// The version of a body whose segments all have the forms of the first version, and of others.
const VERSIONS: [u32; 5] = [1, 2, 4, 5, 6];
/// The version of the manifest in a bucket of several.
pub(super) const SEVERAL_VERSION: u32 = 3;
/// The form of a segment of several buckets of which it is decided what counts.
const ACCEPTED_FORM: u8 = 3;
/// The first bytes, with all that [`owner`] needs.
pub(super) const OWNER_BYTES: u64 = 64;
/// Bytes before the checksum, and with it.
const PREFIX_BYTES: usize = 12;
const HEADER_BYTES: usize = 16;

/// The number of a claim: one writer, from its claim to the next one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct WriterEpoch(pub u64);

/// A random number that distinguishes two writers that try to claim the same epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Nonce(pub [u8; 16]);

/// The name of an object: the epoch of its writer, and a number that this writer uses once (O1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ObjectId {
    /// The writer.
    pub epoch: WriterEpoch,
    /// The number.
    pub number: u64,
}

impl ObjectId {
    /// Returns the name of a log object.
    #[must_use]
    pub fn log_name(self) -> String {
        if planted::is(Bug::NamesRepeat) {
            return format!("log/000000-{:08}", self.number);
        }
        format!("log/{:06}-{:08}", self.epoch.0, self.number)
    }

    /// Returns the name of the content of a small file.
    #[must_use]
    pub fn file_name(self) -> String {
        format!("files/{:06}-{:08}", self.epoch.0, self.number)
    }

    /// Returns the name of an extent.
    #[must_use]
    pub fn pages_name(self) -> String {
        format!("pages/{:06}-{:08}", self.epoch.0, self.number)
    }
}

/// Returns the part of an object's name that a manifest would name, and what that part says.
pub(super) fn group_of(name: &str) -> Option<(&str, ObjectId)> {
    let (directory, rest) = name.split_once('/')?;
    let file = rest.split('/').next()?;
    let (epoch, number) = file.split_once('-')?;
    let object = ObjectId { epoch: WriterEpoch(epoch.parse().ok()?), number: number.parse().ok()? };
    Some((&name[..directory.len() + 1 + file.len()], object))
}

/// The form of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Form {
    /// Objects that take appends.
    #[default]
    Lanes = 0,
    /// One object for each block, numbered from 1.
    Numbered = 1,
    /// As `Numbered`, and its writer looks at the manifest before it reports a block (O29). So the
    /// fence need not stay.
    Watched = 2,
    /// Objects that take appends over streams. (3 is the form of an accepted segment.)
    Streams = 4,
}

impl Form {
    /// Returns whether each object is a lane, which holds many blocks.
    #[must_use]
    pub fn has_lanes(self) -> bool {
        matches!(self, Form::Lanes | Form::Streams)
    }
}

/// Returns the identity of the objects and the last claim, as the first [`OWNER_BYTES`] of a
/// manifest say. Its checksum, which covers all bytes, is not looked at.
pub(super) fn owner(bytes: &[u8]) -> Option<(u64, WriterEpoch)> {
    let mut reader = Reader::new(bytes);
    if reader.take(8)? != MAGIC || !VERSIONS.contains(&reader.u32()?) {
        return None;
    }
    let (_, identity, _) = (reader.u32()?, reader.u64()?, reader.varint()?);
    Some((identity, WriterEpoch(reader.varint()?)))
}

/// A segment of the log, and the objects that hold it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SegmentEntry {
    /// The number in the segment's file name.
    pub number: u64,
    /// The writer that made it.
    pub epoch: WriterEpoch,
    /// Its form.
    pub form: Form,
    /// Numbers of its lanes; or the one number that the names of all its objects begin with.
    pub objects: Vec<u64>,
    /// Of streams, the generation of each object.
    pub generations: Vec<u64>,
    /// In several buckets, what counts of the segment of an ended writer.
    pub accepted: Option<Accepted>,
}

/// What counts of the segment of an ended writer, in several buckets: its first blocks, and behind
/// them blocks that its successor has put into objects of its own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Accepted {
    /// Blocks from number 1 on that are in enough buckets under their own names.
    pub blocks: u64,
    /// The objects with the blocks behind them, and the length of each.
    pub tails: Vec<(ObjectId, u64)>,
}

impl SegmentEntry {
    /// Returns the segment's objects.
    pub fn ids(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.objects.iter().map(|number| ObjectId { epoch: self.epoch, number: *number })
    }

    /// Returns the objects with their generations; those without one have 0.
    pub fn streams(&self) -> impl Iterator<Item = (ObjectId, u64)> + '_ {
        self.ids().enumerate().map(|(at, id)| (id, self.generations.get(at).copied().unwrap_or(0)))
    }

    /// Returns the objects in which a successor has put the segment's last blocks.
    pub fn tails(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.accepted.iter().flat_map(|accepted| accepted.tails.iter().map(|(id, _)| *id))
    }
}

impl Accepted {
    fn decode(reader: &mut Reader<'_>) -> Option<Accepted> {
        let (blocks, mut tails) = (reader.varint()?, Vec::new());
        for _ in 0..reader.varint()? {
            let (epoch, number) = (WriterEpoch(reader.varint()?), reader.varint()?);
            tails.push((ObjectId { epoch, number }, reader.varint()?));
        }
        Some(Accepted { blocks, tails })
    }
}

/// A range of the file of pages that lies in one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Run {
    /// Its first byte in the file.
    pub start: u64,
    /// Its length in bytes.
    pub len: u64,
    /// The extent.
    pub object: ObjectId,
    /// Its first byte in the object.
    pub offset: u64,
}

/// A small file: see `files`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileEntry {
    /// Its path.
    pub path: String,
    /// Its length in bytes.
    pub len: u64,
    /// The object with its content; none of an empty file counts.
    pub object: ObjectId,
}

/// See the module's text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Body {
    /// Identity of the database's objects.
    pub identity: u64,
    /// Rises with each put.
    pub generation: u64,
    /// The last claim.
    pub epoch: WriterEpoch,
    /// The nonce of that claim.
    pub nonce: Nonce,
    /// The writer has ended, and none of its requests is in flight (O20).
    pub closed: bool,
    /// Segments of the log.
    pub segments: Vec<SegmentEntry>,
    /// The file of pages, in order.
    pub runs: Vec<Run>,
    /// Length of the file of pages.
    pub pages_len: u64,
    /// Small files, in order.
    pub files: Vec<FileEntry>,
    /// In several buckets, the segments that a takeover has ended, and how many blocks of each may
    /// count. Their fences stay, and a bucket that joins gets them, too (O23).
    pub fenced: Vec<(ObjectId, u64)>,
    /// The engine's manifest.
    pub contents: Bytes,
}

impl Body {
    /// Returns whether the creation of what will be here has only begun.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.contents.is_empty() && self.files.is_empty()
    }

    /// Returns the bytes of the object.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(256 + self.runs.len() * 16 + self.contents.len());
        out.extend_from_slice(&MAGIC);
        let version = match &self.segments {
            _ if !self.fenced.is_empty() => VERSIONS[4],
            segments if segments.iter().any(|segment| segment.accepted.is_some()) => VERSIONS[2],
            segments if segments.iter().any(|segment| segment.form == Form::Streams) => VERSIONS[3],
            segments if segments.iter().any(|segment| segment.form == Form::Watched) => VERSIONS[1],
            _ => VERSIONS[0],
        };
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.identity.to_le_bytes());
        put_varint(&mut out, self.generation);
        put_varint(&mut out, self.epoch.0);
        out.extend_from_slice(&self.nonce.0);
        out.push(u8::from(self.closed));
        put_varint(&mut out, self.segments.len() as u64);
        for segment in &self.segments {
            put_varint(&mut out, segment.number);
            put_varint(&mut out, segment.epoch.0);
            out.push(if segment.accepted.is_some() { ACCEPTED_FORM } else { segment.form as u8 });
            put_varint(&mut out, segment.objects.len() as u64);
            segment.objects.iter().for_each(|number| put_varint(&mut out, *number));
            debug_assert!(
                segment.form != Form::Streams || segment.generations.len() == segment.objects.len(),
                "each object that takes a stream has a generation"
            );
            segment.generations.iter().for_each(|generation| put_varint(&mut out, *generation));
            if let Some(Accepted { blocks, tails }) = &segment.accepted {
                put_varint(&mut out, *blocks);
                put_varint(&mut out, tails.len() as u64);
                for (id, len) in tails {
                    [id.epoch.0, id.number, *len].iter().for_each(|field| put_varint(&mut out, *field));
                }
            }
        }
        put_varint(&mut out, self.runs.len() as u64);
        let mut end = 0;
        for run in &self.runs {
            debug_assert!(run.start >= end, "runs are sorted and disjoint");
            put_varint(&mut out, run.start - end);
            put_varint(&mut out, run.len);
            put_varint(&mut out, run.object.epoch.0);
            put_varint(&mut out, run.object.number);
            put_varint(&mut out, run.offset);
            end = run.start + run.len;
        }
        put_varint(&mut out, self.pages_len);
        put_varint(&mut out, self.files.len() as u64);
        for file in &self.files {
            put_bytes(&mut out, file.path.as_bytes());
            put_varint(&mut out, file.len);
            put_varint(&mut out, file.object.epoch.0);
            put_varint(&mut out, file.object.number);
        }
        if version == VERSIONS[4] {
            put_varint(&mut out, self.fenced.len() as u64);
            for (id, blocks) in &self.fenced {
                [id.epoch.0, id.number, *blocks].iter().for_each(|field| put_varint(&mut out, *field));
            }
        }
        put_bytes(&mut out, &self.contents);
        let crc = checksum::crc(&out[HEADER_BYTES..]);
        out[PREFIX_BYTES..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
        out.into()
    }

    /// Returns the body in the bytes of the object.
    ///
    /// # Errors
    /// `Corruption`; `Unsupported` for a newer format.
    pub fn decode(bytes: &[u8]) -> Result<Body> {
        let damaged = |what: &str| Error::corruption(format!("the object is no manifest: {what}"));
        let mut reader = Reader::new(bytes);
        if reader.take(8) != Some(&MAGIC) {
            return Err(damaged("it begins with other bytes"));
        }
        let version = reader.u32().ok_or_else(|| damaged("it is too short"))?;
        if version == SEVERAL_VERSION {
            let what = "this is one of the several buckets of a database";
            let advice = "name all of its buckets, with commas between them";
            return Err(Error::new(ErrorKind::Unsupported, what).with_advice(advice));
        }
        if !VERSIONS.contains(&version) {
            let what = format!("the manifest has format version {version}; this build reads {VERSIONS:?}");
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        let crc = reader.u32().ok_or_else(|| damaged("it is too short"))?;
        if checksum::crc(&bytes[HEADER_BYTES..]) != crc {
            return Err(damaged("its checksum is wrong"));
        }
        let body = Body::decode_fields(&mut reader, version).ok_or_else(|| damaged("a field is missing"))?;
        if !reader.is_empty() {
            return Err(damaged("there are bytes behind its last field"));
        }
        Ok(body)
    }

    fn decode_fields(reader: &mut Reader<'_>, version: u32) -> Option<Body> {
        let identity = reader.u64()?;
        let (generation, epoch) = (reader.varint()?, WriterEpoch(reader.varint()?));
        let nonce = Nonce(reader.take(16)?.try_into().ok()?);
        let closed = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let mut segments = Vec::new();
        for _ in 0..reader.varint()? {
            let (number, epoch) = (reader.varint()?, WriterEpoch(reader.varint()?));
            let byte = reader.u8()?;
            let form = match byte {
                0 => Form::Lanes,
                1 | ACCEPTED_FORM => Form::Numbered,
                2 => Form::Watched,
                4 => Form::Streams,
                _ => return None,
            };
            let mut objects = Vec::new();
            for _ in 0..reader.varint()? {
                objects.push(reader.varint()?);
            }
            let mut generations = Vec::new();
            for _ in 0..if form == Form::Streams { objects.len() } else { 0 } {
                generations.push(reader.varint()?);
            }
            let accepted = if byte == ACCEPTED_FORM { Some(Accepted::decode(reader)?) } else { None };
            segments.push(SegmentEntry { number, epoch, form, objects, generations, accepted });
        }
        let (mut runs, mut end) = (Vec::new(), 0_u64);
        for _ in 0..reader.varint()? {
            let start = end.checked_add(reader.varint()?)?;
            let len = reader.varint()?;
            end = start.checked_add(len)?;
            let (epoch, number) = (WriterEpoch(reader.varint()?), reader.varint()?);
            let offset = reader.varint()?;
            runs.push(Run { start, len, object: ObjectId { epoch, number }, offset });
        }
        let pages_len = reader.varint()?;
        let mut files = Vec::new();
        for _ in 0..reader.varint()? {
            let path = String::from_utf8(reader.bytes()?.to_vec()).ok()?;
            let len = reader.varint()?;
            let (epoch, number) = (WriterEpoch(reader.varint()?), reader.varint()?);
            files.push(FileEntry { path, len, object: ObjectId { epoch, number } });
        }
        let mut fenced = Vec::new();
        for _ in 0..if version == VERSIONS[4] { reader.varint()? } else { 0 } {
            let (epoch, number) = (WriterEpoch(reader.varint()?), reader.varint()?);
            fenced.push((ObjectId { epoch, number }, reader.varint()?));
        }
        let contents = Bytes::copy_from_slice(reader.bytes()?);
        Some(Body {
            identity,
            generation,
            epoch,
            nonce,
            closed,
            segments,
            runs,
            pages_len,
            files,
            fenced,
            contents,
        })
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
