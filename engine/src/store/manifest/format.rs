//! The manifest: the state of the database in one place that changes atomically.
//!
//! It names the checkpoint (its CSN and the root of the page store) and, for each epoch whose log
//! is still needed, what recovery accepted of it (rule 14). Everything else is found from here. See
//! `file` for its atomic replacement.
//!
//! # Format of a slot, little-endian
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `QUENCHDB` |
//! | 8 | 4 | format version, 1 |
//! | 12 | 4 | CRC-32C of bytes 0 to 11; these 16 bytes mean the same in every version |
//! | 16 | 8 | generation |
//! | 24 | 4 | length of the body |
//! | 28 | 4 | CRC-32C of bytes 16 to 27 and the body |
//! | 32 | | body |
//!
//! Body, v = varint: database id 8 bytes, page bytes v, epoch v, reserved epoch v, clean 1 byte,
//! checkpoint csn v, covered csn v, first csn v, next csn v, next table v; directory: count v, 8
//! bytes each; pages v; catalog: 0, or 1 with first 8 bytes, length v, crc 4 bytes; codecs of page
//! images, a bit each, v; unused: length v and bytes; memory-mapped log: 0, or 1 with id 8 bytes,
//! path: length v and bytes; epochs: count v, each: epoch v, first csn v, frontier v, last csn v,
//! accepted: count v, each: log v, sequence v; voids: count v, each: gap to the previous range v,
//! length - 1 v. If history is retained for change feeds, behind that: count v, for each checkpoint
//! from its beginning on: covered csn v, checkpoint csn v.

use super::super::blob::{BLOB_BYTES_MAX, BlobRef};
use super::super::block::{BlockRef, DIRECTORY_BLOCKS_MAX};
use super::super::pack::Codecs;
use super::csn_set::CsnSet;
use crate::base::checksum;
use crate::base::encoding::{Reader, put_bytes, put_varint};
use crate::base::{Csn, DatabaseId, Epoch, Error, ErrorKind, LogId, Result, TableId};

/// Space for one slot.
pub const SLOT_BYTES: usize = 1 << 20;
/// Every generation is below, so that adding to one never overflows.
pub const GENERATION_LIMIT: u64 = 1 << 63;

const MAGIC: [u8; 8] = *b"QUENCHDB";
const VERSION: u32 = 1;
const PREFIX_BYTES: usize = 16;
const HEADER_BYTES: usize = 32;

/// The root of the page store, in the manifest: everything else is reached from here.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoreRoot {
    /// The mapping's directory blocks, in order.
    pub directory: Vec<BlockRef>,
    /// Pages with an image; a check on the mapping.
    pub pages: u64,
    /// The catalog, once a checkpoint has written one.
    pub catalog: Option<BlobRef>,
    /// Codecs of compressed images.
    pub codecs: Codecs,
}

/// The last block that recovery accepts from one log of one epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AcceptedEnd {
    /// The log.
    pub log: LogId,
    /// Sequence number of its last accepted block.
    pub sequence: u64,
}

/// The final decision of a recovery about an epoch (rule 14, I9: discarded records stay discarded).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EpochEntry {
    /// The epoch.
    pub epoch: Epoch,
    /// First CSN that the epoch could draw.
    pub first_csn: Csn,
    /// F: the smallest CSN that was neither present nor aborted nor in the checkpoint.
    pub frontier: Csn,
    /// Highest decided CSN: each CSN up to it is in a checkpoint, accepted, or aborted.
    pub last_csn: Csn,
    /// The accepted end of each log, ascending by log; nothing is taken from a log that is not
    /// listed.
    pub accepted: Vec<AcceptedEnd>,
    /// Aborted CSNs: discarded by this and earlier recoveries. CSNs at or below a checkpoint, or in
    /// a later entry, may be missing.
    pub voids: CsnSet,
}

/// The mapped memory that contains the newest commits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NeededMemory {
    /// Its identity.
    pub id: u64,
    /// Its absolute path.
    pub path: String,
}

/// The manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    /// Counts publications; set by `ManifestFile::publish`, the highest valid one wins.
    pub generation: u64,
    /// The database.
    pub database: DatabaseId,
    /// Length of a page.
    pub page_bytes: u32,
    /// The running epoch, or the last one.
    pub epoch: Epoch,
    /// Highest epoch of which blocks may exist. A recovery publishes this before it writes the
    /// first block of its new epoch, so that a second attempt after a crash never shares an epoch
    /// with the first.
    pub reserved_epoch: Epoch,
    /// The database was closed; the checkpoint contains every drawn CSN.
    pub clean: bool,
    /// The page images contain all transactions up to this one.
    pub checkpoint: Csn,
    /// The log up to here is not needed. Below the checkpoint if a transaction in progress had
    /// written chunks, which are above `covered`.
    pub covered: Csn,
    /// First CSN of `epoch`: all lower ones are decided.
    pub first_csn: Csn,
    /// No CSN below this one will be drawn again.
    pub next_csn: Csn,
    /// No table id below this one will be assigned again.
    pub next_table: TableId,
    /// The page images.
    pub store: StoreRoot,
    /// Mapped memory with records of `epoch` that are in no segment. `None` if the database was
    /// closed.
    pub log_memory: Option<NeededMemory>,
    /// Earlier epochs, ascending.
    pub epochs: Vec<EpochEntry>,
    /// The checkpoints since history begins, each with up to where it covers the log, ascending.
    /// The log retains all transactions above the first one, for change feeds. Empty if no history
    /// is retained.
    pub history: Vec<(Csn, Csn)>,
}

impl Manifest {
    /// The manifest of a new, empty database: epoch 1, CSNs from 1.
    #[must_use]
    pub fn new(database: DatabaseId, page_bytes: u32) -> Manifest {
        Manifest {
            generation: 0,
            database,
            page_bytes,
            epoch: Epoch(1),
            reserved_epoch: Epoch(1),
            clean: true,
            checkpoint: Csn::ZERO,
            covered: Csn::ZERO,
            first_csn: Csn(1),
            next_csn: Csn(1),
            next_table: TableId(1),
            store: StoreRoot::default(),
            log_memory: None,
            epochs: Vec::new(),
            history: Vec::new(),
        }
    }

    /// Returns the aborted CSNs of all epochs.
    #[must_use]
    pub fn voids(&self) -> CsnSet {
        self.epochs.iter().fold(CsnSet::default(), |voids, entry| voids.union(&entry.voids))
    }

    /// Returns the CSN above which the log retains all transactions.
    #[must_use]
    pub fn history_begins(&self) -> Csn {
        self.history.first().map_or(self.checkpoint, |(_, checkpoint)| *checkpoint)
    }

    /// Adds the decision of a recovery about the last epoch. The entry has all aborted CSNs above
    /// the checkpoint, so earlier entries drop theirs. Otherwise the manifest would grow with each
    /// crash without a checkpoint until it exceeds its slot.
    pub fn add_epoch(&mut self, entry: EpochEntry) {
        let checkpoint = self.checkpoint;
        for earlier in &mut self.epochs {
            earlier.voids = earlier.voids.up_to(checkpoint);
        }
        self.epochs.push(entry);
    }

    /// Adds the epoch of a closed database, all of which the checkpoint contains.
    pub fn add_closed_epoch(&mut self) {
        if self.first_csn <= self.checkpoint {
            self.epochs.push(EpochEntry {
                epoch: self.epoch,
                first_csn: self.first_csn,
                frontier: self.next_csn,
                last_csn: self.checkpoint,
                accepted: Vec::new(),
                voids: CsnSet::default(),
            });
        }
        self.forget_covered();
    }

    /// Drops aborted CSNs, and epochs that ended, at or below the checkpoint, or where history
    /// begins.
    pub fn forget_covered(&mut self) {
        let covered = self.history_begins();
        self.epochs.retain(|entry| entry.last_csn > covered);
        for entry in &mut self.epochs {
            entry.voids = entry.voids.above(covered);
        }
    }

    /// The bytes of a slot, unpadded.
    ///
    /// # Errors
    /// `OutOfSpace` if it exceeds a slot (epochs accumulate without a checkpoint);
    /// `InvalidArgument` if decoding would refuse it.
    pub fn encode(&self) -> Result<Vec<u8>> {
        if let Some(wrong) = self.contradiction() {
            return Err(Error::invalid(format!("the manifest cannot be written: {wrong}")));
        }
        let mut bytes = Vec::with_capacity(512);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&checksum::crc(&bytes).to_le_bytes());
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.resize(HEADER_BYTES, 0);
        self.encode_body(&mut bytes);
        if bytes.len() > SLOT_BYTES {
            let what = format!("the manifest has {} bytes, which is more than a slot holds", bytes.len());
            let error = Error::new(ErrorKind::OutOfSpace, what);
            return Err(error.with_advice("let a checkpoint complete first"));
        }
        let length = (bytes.len() - HEADER_BYTES) as u32;
        bytes[24..28].copy_from_slice(&length.to_le_bytes());
        let crc = checksum::crc_append(checksum::crc(&bytes[16..28]), &bytes[HEADER_BYTES..]);
        bytes[28..32].copy_from_slice(&crc.to_le_bytes());
        Ok(bytes)
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.database.0.to_le_bytes());
        put_varint(out, self.page_bytes.into());
        put_varint(out, self.epoch.0.into());
        put_varint(out, self.reserved_epoch.0.into());
        out.push(self.clean.into());
        for csn in [self.checkpoint, self.covered, self.first_csn, self.next_csn] {
            put_varint(out, csn.0);
        }
        put_varint(out, self.next_table.0.into());
        put_varint(out, self.store.directory.len() as u64);
        for reference in &self.store.directory {
            out.extend_from_slice(&reference.0.to_le_bytes());
        }
        put_varint(out, self.store.pages);
        out.push(self.store.catalog.is_some().into());
        if let Some(catalog) = &self.store.catalog {
            out.extend_from_slice(&catalog.first.0.to_le_bytes());
            put_varint(out, catalog.len);
            out.extend_from_slice(&catalog.crc.to_le_bytes());
        }
        put_varint(out, self.store.codecs.0);
        put_bytes(out, &[]);
        out.push(self.log_memory.is_some().into());
        if let Some(memory) = &self.log_memory {
            out.extend_from_slice(&memory.id.to_le_bytes());
            put_bytes(out, memory.path.as_bytes());
        }
        put_varint(out, self.epochs.len() as u64);
        self.epochs.iter().for_each(|entry| encode_epoch(entry, out));
        if !self.history.is_empty() {
            put_varint(out, self.history.len() as u64);
            for (covered, checkpoint) in &self.history {
                put_varint(out, covered.0);
                put_varint(out, checkpoint.0);
            }
        }
    }

    /// Returns the bytes of a slot that [`Manifest::decode`] needs, by its first bytes. At most
    /// [`SLOT_BYTES`].
    #[must_use]
    pub fn slot_bytes(start: &[u8]) -> usize {
        let length =
            start.get(24..28).map_or(0, |bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        HEADER_BYTES.saturating_add(length as usize).min(SLOT_BYTES)
    }

    /// Returns whether a slot begins as one of ours does, in any version.
    #[must_use]
    pub fn begins(slot: &[u8]) -> bool {
        slot.starts_with(&MAGIC)
    }

    /// Decodes a slot of untrusted bytes.
    ///
    /// # Errors
    /// `Unsupported` for a newer version, naming both; `Corruption` otherwise; without a place.
    pub fn decode(slot: &[u8]) -> Result<Manifest> {
        let short = || Error::corruption("the slot is cut off");
        let prefix = slot.get(..PREFIX_BYTES).ok_or_else(short)?;
        if prefix[..8] != MAGIC {
            let blank = slot.iter().all(|byte| *byte == 0);
            let what = if blank { "the slot was never written" } else { "not a QuenchDB manifest" };
            return Err(Error::corruption(what));
        }
        let mut header = Reader::new(&slot[8..]);
        let mut next_u32 = || header.u32().ok_or_else(short);
        let version = next_u32()?;
        if checksum::crc(&prefix[..12]) != next_u32()? {
            return Err(Error::corruption("the checksum of the manifest's magic and version is wrong"));
        }
        if version != VERSION {
            let what =
                format!("the manifest has format version {version}, this build reads version {VERSION}");
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        let generation = header.u64().ok_or_else(short)?;
        let length = header.u32().ok_or_else(short)? as usize;
        let crc = header.u32().ok_or_else(short)?;
        let body = header.take(length).ok_or_else(|| Error::corruption("the manifest's length is wrong"))?;
        if checksum::crc_append(checksum::crc(&slot[16..28]), body) != crc {
            return Err(Error::corruption("the manifest's checksum is wrong"));
        }
        let malformed = || Error::corruption("the manifest's fields do not fit its length");
        let mut manifest = decode_body(body).ok_or_else(malformed)?;
        manifest.generation = generation;
        match manifest.contradiction() {
            Some(wrong) => Err(Error::corruption(format!("the manifest contradicts itself: {wrong}"))),
            None => Ok(manifest),
        }
    }

    /// Returns the first violated rule, if any.
    fn contradiction(&self) -> Option<&'static str> {
        let csns = [self.checkpoint, self.first_csn, self.next_csn];
        let page_bytes_ok = self.page_bytes.is_power_of_two() && (4096..=32768).contains(&self.page_bytes);
        let rules = [
            (page_bytes_ok, "the page size"),
            (self.generation < GENERATION_LIMIT, "the generation is too large"),
            (csns.iter().all(|csn| *csn < Csn::LIMIT), "a CSN is too large"),
            (self.reserved_epoch >= self.epoch, "the reserved epoch is below the running one"),
            (self.reserved_epoch.0 < u32::MAX, "there is no epoch left"),
            (self.next_table <= TableId::LIMIT, "a table identifier is too large"),
            (self.first_csn <= self.next_csn, "the next CSN is below the epoch's first"),
            (self.checkpoint < self.next_csn, "the next CSN is in the checkpoint already"),
            (self.covered <= self.checkpoint, "more of the log is covered than is in the checkpoint"),
            (!(self.clean && self.log_memory.is_some()), "it was closed, and needs mapped memory"),
            (self.store.directory.len() <= DIRECTORY_BLOCKS_MAX, "the directory is too long"),
            (self.store.catalog.is_none_or(|blob| blob.len <= BLOB_BYTES_MAX), "the catalog is too long"),
            (self.epochs.is_sorted_by(|a, b| a.epoch < b.epoch), "epochs are out of order"),
            (self.epochs.iter().all(|entry| entry.epoch < self.epoch), "an entry for the running epoch"),
            (self.epochs.iter().all(EpochEntry::is_consistent), "an epoch entry"),
            (self.epochs.iter().all(|e| e.last_csn < self.first_csn), "an epoch ends in the next one"),
            (self.history.is_sorted_by(|a, b| a.1 < b.1), "checkpoints are out of order"),
            (
                self.history.iter().all(|(covered, csn)| covered <= csn && *csn <= self.checkpoint),
                "a checkpoint of the history",
            ),
        ];
        rules.iter().find(|(holds, _)| !holds).map(|(_, what)| *what)
    }
}

impl EpochEntry {
    fn is_consistent(&self) -> bool {
        self.accepted.is_sorted_by(|a, b| a.log < b.log)
            && [self.first_csn, self.frontier, self.last_csn].iter().all(|csn| *csn < Csn::LIMIT)
            && self.voids.last().is_none_or(|last| last <= self.last_csn)
    }

    /// Returns the accepted end of `log`, if any of its blocks was accepted.
    #[must_use]
    pub fn accepted_end(&self, log: LogId) -> Option<u64> {
        self.accepted.iter().find(|end| end.log == log).map(|end| end.sequence)
    }
}

fn encode_epoch(entry: &EpochEntry, out: &mut Vec<u8>) {
    put_varint(out, entry.epoch.0.into());
    for csn in [entry.first_csn, entry.frontier, entry.last_csn] {
        put_varint(out, csn.0);
    }
    put_varint(out, entry.accepted.len() as u64);
    for end in &entry.accepted {
        put_varint(out, end.log.0.into());
        put_varint(out, end.sequence);
    }
    put_varint(out, entry.voids.ranges().len() as u64);
    let mut previous = 0;
    for (first, last) in entry.voids.ranges() {
        put_varint(out, first.0 - previous);
        put_varint(out, last.0 - first.0);
        previous = last.0;
    }
}

fn decode_body(body: &[u8]) -> Option<Manifest> {
    let mut reader = Reader::new(body);
    let r = &mut reader;
    let mut manifest = Manifest::new(DatabaseId(r.u64()?), varint_u32(r)?);
    manifest.epoch = Epoch(varint_u32(r)?);
    manifest.reserved_epoch = Epoch(varint_u32(r)?);
    manifest.clean = flag(r)?;
    manifest.checkpoint = Csn(r.varint()?);
    manifest.covered = Csn(r.varint()?);
    manifest.first_csn = Csn(r.varint()?);
    manifest.next_csn = Csn(r.varint()?);
    manifest.next_table = TableId(varint_u32(r)?);
    manifest.store.directory = list(r, |r| r.u64().map(BlockRef))?;
    manifest.store.pages = r.varint()?;
    if flag(r)? {
        manifest.store.catalog = Some(BlobRef { first: BlockRef(r.u64()?), len: r.varint()?, crc: r.u32()? });
    }
    manifest.store.codecs = Codecs(r.varint()?);
    r.bytes()?;
    if flag(r)? {
        let (id, path) = (r.u64()?, String::from_utf8(r.bytes()?.to_vec()).ok()?);
        manifest.log_memory = Some(NeededMemory { id, path });
    }
    manifest.epochs = list(r, decode_epoch)?;
    if !r.is_empty() {
        manifest.history = list(r, |r| Some((Csn(r.varint()?), Csn(r.varint()?))))?;
    }
    reader.is_empty().then_some(manifest)
}

fn decode_epoch(r: &mut Reader<'_>) -> Option<EpochEntry> {
    let epoch = Epoch(varint_u32(r)?);
    let (first_csn, frontier, last_csn) = (Csn(r.varint()?), Csn(r.varint()?), Csn(r.varint()?));
    let accepted = list(r, |r| Some(AcceptedEnd { log: LogId(varint_u32(r)?), sequence: r.varint()? }))?;
    let mut previous = 0u64;
    let ranges = list(r, |r| {
        let first = previous.checked_add(r.varint()?)?;
        let last = first.checked_add(r.varint()?)?;
        previous = last;
        Some((Csn(first), Csn(last)))
    })?;
    let voids = CsnSet::from_ranges(ranges.iter().copied());
    // Encoding never writes ranges that overlap or touch.
    (voids.ranges() == ranges).then_some(EpochEntry { epoch, first_csn, frontier, last_csn, accepted, voids })
}

/// Decodes a count and that many items. The list grows with the items, not by the claimed count.
fn list<T>(reader: &mut Reader<'_>, mut item: impl FnMut(&mut Reader<'_>) -> Option<T>) -> Option<Vec<T>> {
    let count = reader.varint()?;
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(item(reader)?);
    }
    Some(items)
}

fn flag(reader: &mut Reader<'_>) -> Option<bool> {
    match reader.u8()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn varint_u32(reader: &mut Reader<'_>) -> Option<u32> {
    reader.varint()?.try_into().ok()
}
