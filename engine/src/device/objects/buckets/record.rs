//! The object `manifest` in a bucket of several: what this bucket has promised and accepted.
//!
//! | field | form | meaning |
//! |---|---|---|
//! | magic | 8 bytes | `QNCHOBJS` |
//! | format version | 4 bytes | 3 |
//! | CRC-32C | 4 bytes | of everything behind it |
//! | identity | 8 bytes | that of the database, as in the body |
//! | promised | varint, 16 bytes | writer epoch and nonce of the last claim that this bucket knows |
//! | own | 8 bytes | identity of this bucket |
//! | members | varint count | each: identity 8 bytes, name as bytes, epoch and generation as varints |
//! | body | bytes | the body that this bucket has accepted: see `body` |
//!
//! The epoch and generation of a member are those of the newest body that it was known to have
//! accepted: a bucket whose own body is older came back old (O35).

use super::super::body::{Body, MAGIC, Nonce, SEVERAL_VERSION, WriterEpoch};
use crate::base::encoding::{Reader, put_bytes, put_varint};
use crate::base::{Error, ErrorKind, Result, checksum};
use bytes::Bytes;

const PREFIX_BYTES: usize = 12;
const HEADER_BYTES: usize = 16;

/// A claim. No two claims of one writer epoch are confirmed, because a bucket promises an epoch
/// to one nonce.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ballot {
    /// The writer epoch.
    pub epoch: WriterEpoch,
    /// The writer.
    pub nonce: Nonce,
}

/// The order of bodies: by the epoch of the writer that put them, then by generation.
pub type Turn = (WriterEpoch, u64);

/// A bucket of the database.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Member {
    /// Random. A bucket that was emptied or restored joins under another identity.
    pub id: u64,
    /// Its URL, for people and to find it.
    pub name: String,
    /// The newest body that it was known to have accepted.
    pub confirmed: Turn,
}

/// See the module's text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// The last claim.
    pub promised: Ballot,
    /// Identity of this bucket.
    pub own: u64,
    /// All buckets.
    pub members: Vec<Member>,
    /// The accepted body. Its epoch and nonce are those of the writer that put it.
    pub body: Body,
}

impl Record {
    /// Returns the order of the accepted body.
    #[must_use]
    pub fn turn(&self) -> Turn {
        (self.body.epoch, self.body.generation)
    }

    /// Returns the bytes of the object.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let body = self.body.encode();
        let mut out = Vec::with_capacity(256 + body.len());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&SEVERAL_VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.body.identity.to_le_bytes());
        put_varint(&mut out, self.promised.epoch.0);
        out.extend_from_slice(&self.promised.nonce.0);
        out.extend_from_slice(&self.own.to_le_bytes());
        put_varint(&mut out, self.members.len() as u64);
        for member in &self.members {
            out.extend_from_slice(&member.id.to_le_bytes());
            put_bytes(&mut out, member.name.as_bytes());
            put_varint(&mut out, member.confirmed.0.0);
            put_varint(&mut out, member.confirmed.1);
        }
        put_bytes(&mut out, &body);
        let crc = checksum::crc(&out[HEADER_BYTES..]);
        out[PREFIX_BYTES..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
        out.into()
    }

    /// Returns the record in the bytes of the object.
    ///
    /// # Errors
    /// `Corruption`; `Unsupported` for a newer format, or the manifest of a database in one bucket.
    pub fn decode(bytes: &[u8]) -> Result<Record> {
        let damaged = |what: &str| Error::corruption(format!("the object is no manifest: {what}"));
        let mut reader = Reader::new(bytes);
        if reader.take(8) != Some(&MAGIC) {
            return Err(damaged("it begins with other bytes"));
        }
        match reader.u32() {
            Some(SEVERAL_VERSION) => {}
            Some(1 | 2) => {
                let what = "the bucket holds a database of one bucket";
                return Err(Error::new(ErrorKind::Unsupported, what).with_advice("name only that bucket"));
            }
            Some(version) => {
                let what = format!("the manifest has format version {version}, which this build cannot read");
                return Err(Error::new(ErrorKind::Unsupported, what));
            }
            None => return Err(damaged("it is too short")),
        }
        let crc = reader.u32().ok_or_else(|| damaged("it is too short"))?;
        if checksum::crc(&bytes[HEADER_BYTES..]) != crc {
            return Err(damaged("its checksum is wrong"));
        }
        let record = Record::decode_fields(&mut reader);
        let (record, body) = record.ok_or_else(|| damaged("a field is missing"))?;
        if !reader.is_empty() {
            return Err(damaged("there are bytes behind its last field"));
        }
        Ok(Record { body: Body::decode(&body)?, ..record })
    }

    fn decode_fields(reader: &mut Reader<'_>) -> Option<(Record, Vec<u8>)> {
        let _identity = reader.u64()?;
        let (epoch, nonce) = (WriterEpoch(reader.varint()?), Nonce(reader.take(16)?.try_into().ok()?));
        let (own, mut members) = (reader.u64()?, Vec::new());
        for _ in 0..reader.varint()? {
            let (id, name) = (reader.u64()?, String::from_utf8(reader.bytes()?.to_vec()).ok()?);
            let confirmed = (WriterEpoch(reader.varint()?), reader.varint()?);
            members.push(Member { id, name, confirmed });
        }
        let body = reader.bytes()?.to_vec();
        let record = Record { promised: Ballot { epoch, nonce }, own, members, body: Body::default() };
        Some((record, body))
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;

    fn record() -> Record {
        let members =
            (1..4).map(|id| Member { id, name: format!("s3://b{id}"), confirmed: (WriterEpoch(2), id) });
        let body = Body { identity: 77, epoch: WriterEpoch(3), generation: 300, ..Body::default() };
        let promised = Ballot { epoch: WriterEpoch(4), nonce: Nonce([7; 16]) };
        Record { promised, own: 2, members: members.collect(), body }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        assert_eq!(Record::decode(&record().encode()).expect("whole"), record());
    }

    #[test]
    fn every_changed_or_missing_byte_of_a_record_is_refused() {
        let bytes = record().encode();
        for end in 0..bytes.len() {
            Record::decode(&bytes[..end]).expect_err("it is cut");
            let mut changed = bytes.to_vec();
            changed[end] ^= 0x10;
            Record::decode(&changed).expect_err("it is changed");
        }
    }

    #[test]
    fn one_bucket_and_several_refuse_each_other() {
        let error = Body::decode(&record().encode()).expect_err("one of several");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let error = Record::decode(&Body::default().encode()).expect_err("one alone");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}
