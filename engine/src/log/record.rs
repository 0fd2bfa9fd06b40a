//! Redo records: logical, redo-only; one per transaction, or several for one that is long.
//!
//! | offset | bytes | content (little-endian) |
//! |---|---|---|
//! | 0 | 4 | CRC-32C of bytes 4 to 56 |
//! | 4 | 4 | CRC-32C of the body |
//! | 8 | 4 | length of the whole record, a multiple of 8 |
//! | 12 | 4 | length of the body |
//! | 16 | 4 | epoch in which the CSN was drawn |
//! | 20 | 1 | dependency rule: 1 DSN, 2 exact, plus 16 for each listed predecessor |
//! | 21 | 1 | kind: 0 whole transaction, 1 chunk, 2 last part (`part`), 3 fragment (`fragment`) |
//! | 22 | 2 | number of operations, 65,535 for more |
//! | 24 | 8 | CSN |
//! | 32 | 8 | GSN, 0 under rules that need none |
//! | 40 | 8 | DSN: the highest CSN among the direct predecessors |
//! | 48 | 8 | watermark when the CSN was drawn: every CSN below it was durable |
//! | 56 | | body: 24 bytes in a part, 8 in a fragment, that identify it; operations; |
//! | | | the listed predecessors, 8 bytes each; then zeros up to the length |
//!
//! The body's checksum is computed before the log's latch is taken, the header's under it. A record
//! is identified by (epoch, CSN), so it may be copied to another place of the log unchanged.
//!
//! The listed predecessors are the CSNs of the direct predecessors that were not committed when the
//! transaction asked to commit. All are below the CSN of the record.
//!
//! | operation | bytes |
//! |---|---|
//! | put | 1, table, key, value |
//! | patch | 2, table, key, offset, bytes: a value of the same length with these bytes replaced |
//! | delete | 3, table, key |
//! | create table | 4, table, name |
//! | drop table | 5, table |
//! | put large | 6, table, key, pieces of the value (each a length above 0, and bytes), 0 |
//! | large part | 7, as put large: the value continues with the next operation, of the same row |
//! | rename table | 8, table, new name |
//! | set types | 9, table, its types (`base::table_types`) |
//!
//! Numbers are varints; keys, values and names are a varint length and bytes.

use super::fragment::Fragment;
use super::part::{PART_BYTES, Part, RecordKind};
use crate::base::checksum::crc;
use crate::base::encoding::Reader;
use crate::base::{Csn, Epoch, Error, ErrorKind, Gsn, Result, TableId, TableTypes};

/// Size of a record's header.
pub const RECORD_HEADER_BYTES: usize = 56;

/// Which dependencies a record was acknowledged by, so that recovery judges it by the same rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DependencyRule {
    /// Record level: commits when its DSN is below the watermark.
    #[default]
    Dsn,
    /// Commits when all of its predecessors that are listed are committed; all others were before
    /// it asked to.
    Exact {
        /// Number of listed predecessors, at most [`LISTED_MAX`].
        listed: u8,
    },
}

/// Predecessors that a record may list.
pub const LISTED_MAX: u8 = 15;
/// Bytes of one of them.
const LISTED_BYTES: usize = 8;

impl DependencyRule {
    fn to_byte(self) -> u8 {
        match self {
            DependencyRule::Dsn => 1,
            DependencyRule::Exact { listed } => {
                debug_assert!(listed <= LISTED_MAX, "a record lists no more predecessors");
                2 | listed << 4
            }
        }
    }

    fn from_byte(byte: u8) -> Option<DependencyRule> {
        match (byte & 15, byte >> 4) {
            (1, 0) => Some(DependencyRule::Dsn),
            (2, listed) => Some(DependencyRule::Exact { listed }),
            _ => None,
        }
    }

    /// Bytes at the end of the body that list predecessors.
    fn listed_bytes(self) -> usize {
        match self {
            DependencyRule::Dsn => 0,
            DependencyRule::Exact { listed } => usize::from(listed) * LISTED_BYTES,
        }
    }
}

/// Offset of the rule in a record.
const RULE_AT: usize = 20;
/// Offset of the kind in a record.
const KIND_AT: usize = 21;

/// A record's header, less lengths and checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecordHeader {
    /// Epoch in which the CSN was drawn.
    pub epoch: Epoch,
    /// Commit sequence number.
    pub csn: Csn,
    /// Global sequence number.
    pub gsn: Gsn,
    /// Highest CSN among the direct predecessors.
    pub dsn: Csn,
    /// Every CSN below this was durable before this one was drawn.
    pub watermark: Csn,
    /// Checksum of the body.
    pub body_crc: u32,
    /// Operations in the body.
    pub op_count: u32,
    /// Acknowledgment rule.
    pub rule: DependencyRule,
    /// Its kind.
    pub kind: RecordKind,
}

/// Bytes that a record with a body of `body_len` takes.
#[must_use]
pub fn record_bytes(body_len: usize) -> usize {
    (RECORD_HEADER_BYTES + body_len).next_multiple_of(8)
}

impl RecordHeader {
    /// The stored form, for a body of `body_len` bytes.
    #[must_use]
    pub fn encode(&self, body_len: usize) -> [u8; RECORD_HEADER_BYTES] {
        let mut out = [0; RECORD_HEADER_BYTES];
        out[4..8].copy_from_slice(&self.body_crc.to_le_bytes());
        out[8..12].copy_from_slice(&(record_bytes(body_len) as u32).to_le_bytes());
        out[12..16].copy_from_slice(&(body_len as u32).to_le_bytes());
        out[16..20].copy_from_slice(&self.epoch.0.to_le_bytes());
        out[RULE_AT] = self.rule.to_byte();
        out[KIND_AT] = self.kind as u8;
        out[22..24].copy_from_slice(&(self.op_count.min(0xffff) as u16).to_le_bytes());
        out[24..32].copy_from_slice(&self.csn.0.to_le_bytes());
        out[32..40].copy_from_slice(&self.gsn.0.to_le_bytes());
        out[40..48].copy_from_slice(&self.dsn.0.to_le_bytes());
        out[48..56].copy_from_slice(&self.watermark.0.to_le_bytes());
        let check = crc(&out[4..]);
        out[0..4].copy_from_slice(&check.to_le_bytes());
        out
    }
}

/// A record read from a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Its header.
    pub header: RecordHeader,
    /// Which part of its transaction it is; none for a whole one.
    pub part: Option<Part>,
    /// Which fragment of its transaction it is; none if that is in one log.
    pub fragment: Option<Fragment>,
    /// Its operations, encoded.
    pub body: &'a [u8],
    /// The predecessors that it lists, encoded.
    listed: &'a [u8],
    /// The whole record as it stands in the log.
    pub bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record at the start of `bytes`, checked.
    ///
    /// # Errors
    /// `Corruption`; `Unsupported` for a whole record with a dependency rule or of a kind that this
    /// build does not know. Without a place.
    pub fn decode(bytes: &'a [u8]) -> Result<Record<'a>> {
        let malformed = || Error::corruption("a log record is malformed or has a wrong checksum");
        let (record, rule, kind) = Self::parse(bytes).ok_or_else(malformed)?;
        let unknown = |what: String| {
            Err(Error::new(ErrorKind::Unsupported, format!("{what}, which this build does not know")))
        };
        let Some(rule) = DependencyRule::from_byte(rule) else {
            return unknown(format!("a log record is judged by dependency rule {rule}"));
        };
        let record = record.with_rule(rule).ok_or_else(malformed)?;
        match RecordKind::from_byte(kind) {
            Some(RecordKind::Whole) => Ok(record),
            Some(RecordKind::Fragment) => record.as_fragment().ok_or_else(malformed),
            Some(kind) => record.as_part(kind).ok_or_else(malformed),
            None => unknown(format!("a log record is of kind {kind}")),
        }
    }

    #[inline]
    fn with_rule(mut self, rule: DependencyRule) -> Option<Record<'a>> {
        if rule != DependencyRule::Dsn {
            self.header.rule = rule;
            let operations = self.body.len().checked_sub(rule.listed_bytes())?;
            (self.body, self.listed) = self.body.split_at(operations);
        }
        Some(self)
    }

    /// The predecessors that it lists.
    pub fn predecessors(&self) -> impl Iterator<Item = Csn> + use<'a> {
        let chunks = self.listed.chunks_exact(LISTED_BYTES);
        chunks.map(|csn| Csn(csn.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))))
    }

    #[cold]
    fn as_part(mut self, kind: RecordKind) -> Option<Record<'a>> {
        self.header.kind = kind;
        self.part = Some(Part::decode(self.body, kind, self.header.csn)?);
        self.body = self.body.get(kind.prefix_bytes()..)?;
        Some(self)
    }

    #[cold]
    fn as_fragment(mut self) -> Option<Record<'a>> {
        self.header.kind = RecordKind::Fragment;
        self.fragment = Some(Fragment::decode(self.body, self.header.csn)?);
        self.body = self.body.get(RecordKind::Fragment.prefix_bytes()..)?;
        Some(self)
    }

    /// The record, as if it had the default rule and were whole, and the numbers of its rule and
    /// its kind.
    fn parse(bytes: &'a [u8]) -> Option<(Record<'a>, u8, u8)> {
        let mut reader = Reader::new(bytes.get(..RECORD_HEADER_BYTES)?);
        let header_crc = reader.u32()?;
        let body_crc = reader.u32()?;
        let len = reader.u32()? as usize;
        let body_len = reader.u32()? as usize;
        let epoch = Epoch(reader.u32()?);
        let rule = reader.u8()?;
        let kind = reader.u8()?;
        let op_count = reader.u16()?;
        let header = RecordHeader {
            epoch,
            csn: Csn(reader.u64()?),
            gsn: Gsn(reader.u64()?),
            dsn: Csn(reader.u64()?),
            watermark: Csn(reader.u64()?),
            body_crc,
            op_count: op_count.into(),
            rule: DependencyRule::default(),
            kind: RecordKind::default(),
        };
        if crc(&bytes[4..RECORD_HEADER_BYTES]) != header_crc || len != record_bytes(body_len) {
            return None;
        }
        if header.csn >= Csn::LIMIT {
            return None;
        }
        let body = bytes.get(RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + body_len)?;
        let bytes = bytes.get(..len)?;
        let record = Record { header, part: None, fragment: None, body, listed: &[], bytes };
        (crc(body) == body_crc).then_some((record, rule, kind))
    }

    /// Its operations.
    pub fn operations(&self) -> impl Iterator<Item = Result<Operation<'a>>> + use<'a> {
        operations(self.body)
    }
}

/// The fields of a record that a scan needs. No checksum is verified.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordFacts {
    pub csn: Csn,
    pub watermark: Csn,
    /// Length of the whole record, which is there.
    pub len: usize,
    body_len: usize,
    /// Bytes of the body before the operations.
    prefix: usize,
    /// Bytes of the body behind the operations.
    suffix: usize,
}

impl RecordFacts {
    /// Returns the facts of the record at the start of `bytes`, if its lengths are possible.
    #[inline]
    pub fn of(bytes: &[u8]) -> Option<RecordFacts> {
        let head = bytes.first_chunk::<RECORD_HEADER_BYTES>()?;
        let u32_at = |at: usize| head[at..].first_chunk().map_or(0, |b| u32::from_le_bytes(*b)) as usize;
        let csn_at = |at: usize| Csn(head[at..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b)));
        let (len, body_len) = (u32_at(8), u32_at(12));
        let prefix = RecordKind::from_byte(head[KIND_AT]).map_or(PART_BYTES, RecordKind::prefix_bytes);
        let suffix = usize::from(head[RULE_AT] >> 4) * LISTED_BYTES;
        let possible = len == record_bytes(body_len) && len <= bytes.len() && prefix + suffix <= body_len;
        possible.then(|| RecordFacts {
            csn: csn_at(24),
            watermark: csn_at(48),
            len,
            body_len,
            prefix,
            suffix,
        })
    }

    /// Returns whether the record at the start of `bytes` is a chunk.
    pub fn is_chunk(&self, bytes: &[u8]) -> bool {
        bytes.get(KIND_AT) == Some(&(RecordKind::Chunk as u8))
    }

    /// The operations of the record at the start of `bytes`, encoded.
    pub fn body<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[RECORD_HEADER_BYTES + self.prefix..RECORD_HEADER_BYTES + self.body_len - self.suffix]
    }
}

/// One change in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation<'a> {
    /// The row has this value now.
    Put {
        /// The table.
        table: TableId,
        /// The row.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// The row has this value now, which is too long for an entry.
    PutLarge {
        /// The table.
        table: TableId,
        /// The row.
        key: &'a [u8],
        /// Its value.
        pieces: Pieces<'a>,
    },
    /// Bytes of a value that continues with the next operation of the transaction: another large
    /// part, or the put.
    LargePart {
        /// The table.
        table: TableId,
        /// The row.
        key: &'a [u8],
        /// The bytes.
        pieces: Pieces<'a>,
    },
    /// Some bytes of the row's value are replaced, its length stays.
    Patch {
        /// The table.
        table: TableId,
        /// The row.
        key: &'a [u8],
        /// First byte replaced.
        offset: usize,
        /// The new bytes.
        bytes: &'a [u8],
    },
    /// The row is gone.
    Delete {
        /// The table.
        table: TableId,
        /// The row.
        key: &'a [u8],
    },
    /// A table begins.
    CreateTable {
        /// Its identifier.
        table: TableId,
        /// Its name.
        name: &'a str,
    },
    /// A table ends.
    DropTable {
        /// Its identifier.
        table: TableId,
    },
    /// A table gets another name.
    RenameTable {
        /// Its identifier.
        table: TableId,
        /// The new name.
        name: &'a str,
    },
    /// A table gets types, or others.
    SetTypes {
        /// Its identifier.
        table: TableId,
        /// The encoded types, which are whole.
        types: EncodedTypes<'a>,
    },
}

impl<'a> Operation<'a> {
    /// The row that it is of; none for a change of the catalog.
    #[must_use]
    pub fn row(&self) -> Option<(TableId, &'a [u8])> {
        match *self {
            Operation::Put { table, key, .. }
            | Operation::PutLarge { table, key, .. }
            | Operation::LargePart { table, key, .. }
            | Operation::Patch { table, key, .. }
            | Operation::Delete { table, key } => Some((table, key)),
            Operation::CreateTable { .. }
            | Operation::DropTable { .. }
            | Operation::RenameTable { .. }
            | Operation::SetTypes { .. } => None,
        }
    }
}

/// Types of a table, in their stored form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EncodedTypes<'a> {
    encoded: &'a [u8],
}

impl<'a> EncodedTypes<'a> {
    fn parse(reader: &mut Reader<'a>) -> Option<EncodedTypes<'a>> {
        let mut ahead = reader.clone();
        TableTypes::decode(&mut ahead)?;
        let encoded = reader.take(reader.remaining() - ahead.remaining())?;
        Some(EncodedTypes { encoded })
    }

    /// Returns the types.
    ///
    /// # Errors
    /// `Corruption`, never for types that were parsed.
    pub fn decode(&self) -> Result<TableTypes> {
        TableTypes::decode(&mut Reader::new(self.encoded)).ok_or_else(malformed)
    }
}

/// The bytes of a large value, in the pieces in which they were logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pieces<'a> {
    encoded: &'a [u8],
}

impl<'a> Pieces<'a> {
    fn parse(reader: &mut Reader<'a>) -> Option<Pieces<'a>> {
        let mut ahead = reader.clone();
        while !ahead.bytes()?.is_empty() {}
        let encoded = reader.take(reader.remaining() - ahead.remaining())?;
        Some(Pieces { encoded })
    }

    /// The pieces in order.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut reader = Reader::new(self.encoded);
        std::iter::from_fn(move || reader.bytes().filter(|piece| !piece.is_empty()))
    }

    /// Length of the value.
    #[must_use]
    pub(crate) fn len(&self) -> u64 {
        self.iter().map(|piece| piece.len() as u64).sum()
    }
}

pub(super) const PUT: u8 = 1;
pub(super) const PATCH: u8 = 2;
pub(super) const DELETE: u8 = 3;
pub(super) const CREATE_TABLE: u8 = 4;
pub(super) const DROP_TABLE: u8 = 5;
pub(super) const PUT_LARGE: u8 = 6;
pub(super) const LARGE_PART: u8 = 7;
pub(super) const RENAME_TABLE: u8 = 8;
pub(super) const SET_TYPES: u8 = 9;

/// Decodes a record's body. After an error the iterator ends.
pub fn operations(body: &[u8]) -> impl Iterator<Item = Result<Operation<'_>>> {
    let mut reader = Reader::new(body);
    let mut failed = false;
    std::iter::from_fn(move || {
        if failed || reader.is_empty() {
            return None;
        }
        let operation = operation(&mut reader);
        failed = operation.is_none();
        Some(operation.ok_or_else(malformed))
    })
}

/// The first operation of an encoded body, or of a rest of it, and what follows; `None` at the end.
///
/// # Errors
/// `Corruption`, without a place.
#[inline]
pub fn first_operation(body: &[u8]) -> Result<Option<(Operation<'_>, &[u8])>> {
    if body.is_empty() {
        return Ok(None);
    }
    let mut reader = Reader::new(body);
    match operation(&mut reader) {
        Some(operation) => Ok(Some((operation, &body[body.len() - reader.remaining()..]))),
        None => Err(malformed()),
    }
}

#[cold]
fn malformed() -> Error {
    Error::corruption("an operation in a log record is malformed")
}

/// Returns true if the first operation of an encoded body changes the catalog.
#[must_use]
pub fn begins_with_catalog_change(body: &[u8]) -> bool {
    matches!(body.first(), Some(&(CREATE_TABLE | DROP_TABLE | RENAME_TABLE | SET_TYPES)))
}

fn operation<'a>(reader: &mut Reader<'a>) -> Option<Operation<'a>> {
    let kind = reader.u8()?;
    let table = TableId(u32::try_from(reader.varint()?).ok()?);
    Some(match kind {
        PUT => Operation::Put { table, key: reader.bytes()?, value: reader.bytes()? },
        PUT_LARGE => Operation::PutLarge { table, key: reader.bytes()?, pieces: Pieces::parse(reader)? },
        LARGE_PART => Operation::LargePart { table, key: reader.bytes()?, pieces: Pieces::parse(reader)? },
        PATCH => Operation::Patch {
            table,
            key: reader.bytes()?,
            offset: usize::try_from(reader.varint()?).ok()?,
            bytes: reader.bytes()?,
        },
        DELETE => Operation::Delete { table, key: reader.bytes()? },
        CREATE_TABLE => Operation::CreateTable { table, name: std::str::from_utf8(reader.bytes()?).ok()? },
        DROP_TABLE => Operation::DropTable { table },
        RENAME_TABLE => Operation::RenameTable { table, name: std::str::from_utf8(reader.bytes()?).ok()? },
        SET_TYPES => Operation::SetTypes { table, types: EncodedTypes::parse(reader)? },
        _ => return None,
    })
}
