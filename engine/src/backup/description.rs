//! The file `BACKUP`: what a backup is, and which images of the source belong to it.
//!
//! It is created first, empty, so that an interrupted backup is not taken for a database. It is
//! filled last, so that only a complete backup has a whole one.
//!
//! # Format, little-endian
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `QUENCHBK` |
//! | 8 | 4 | format version, 1 |
//! | 12 | 4 | CRC-32C of bytes 0 to 11; these 16 bytes mean the same in every version |
//! | 16 | 8 | length of the body |
//! | 24 | 4 | CRC-32C of the body |
//! | 28 | 4 | CRC-32C of bytes 16 to 27 |
//! | 32 | | body; then zeros up to a whole sector |
//!
//! Body, v = varint: backup id 8 bytes; 0, or 1 and the base: backup id 8 bytes, csn v; manifest:
//! length v and a slot as in the file `MANIFEST`, which is the source's but for the root of the
//! page store, which is the backup's; pages of the source: count v, each ascending: gap to the
//! previous page id v, [`BlockRef`] in the source 8 bytes.

use crate::base::checksum::crc;
use crate::base::encoding::{Reader, put_bytes, put_varint};
use crate::base::{Csn, DatabaseId, Error, ErrorKind, PageId, Result};
use crate::device::{AlignedBuffer, File, Names, OpenMode, SECTOR_BYTES, Storage};
use crate::store::{BlockRef, Manifest};
use std::fmt;
use std::sync::Arc;

/// The file, in the directory of a backup.
pub const BACKUP_PATH: &str = "BACKUP";

const MAGIC: [u8; 8] = *b"QUENCHBK";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 32;

/// Random identity of a backup, by which an increment names its base.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BackupId(pub u64);

impl fmt::Display for BackupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for BackupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The backup that an incremental one adds to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Base {
    /// Which.
    pub id: BackupId,
    /// Every transaction up to this one is in it.
    pub csn: Csn,
}

/// The description of a backup.
#[derive(Clone, PartialEq, Debug)]
pub struct Description {
    /// Its identity.
    pub id: BackupId,
    /// None for a full backup.
    pub base: Option<Base>,
    /// The source's manifest at the checkpoint, with the root of this backup's pages.
    pub manifest: Manifest,
    /// Every page that the source had, ascending, and where its image was there.
    pub source: Vec<(PageId, BlockRef)>,
}

impl Description {
    /// The database that was backed up.
    #[must_use]
    pub fn database(&self) -> DatabaseId {
        self.manifest.database
    }

    /// Every transaction up to this one is in the backup.
    #[must_use]
    pub fn csn(&self) -> Csn {
        self.manifest.checkpoint
    }

    /// Returns the place of the image of `page` in the source.
    #[must_use]
    pub fn find(&self, page: PageId) -> Option<BlockRef> {
        let at = self.source.binary_search_by_key(&page, |(page, _)| *page).ok()?;
        Some(self.source[at].1)
    }

    /// Says that a backup is being made here.
    ///
    /// # Errors
    /// `OutOfSpace`; I/O.
    pub fn begin(storage: &dyn Storage) -> Result<Arc<dyn File>> {
        let file =
            storage.small_file(BACKUP_PATH, OpenMode { create: true, read_only: false, direct: true })?;
        storage.flush_names(Names::Root)?;
        Ok(file)
    }

    /// Makes the backup complete: everything else is durable.
    ///
    /// # Errors
    /// `OutOfSpace`; I/O.
    pub fn complete(&self, file: &dyn File) -> Result<()> {
        let bytes = self.encode()?;
        let mut buffer = AlignedBuffer::zeroed(bytes.len());
        buffer[..bytes.len()].copy_from_slice(&bytes);
        for at in (0..buffer.len()).step_by(WRITE_BYTES) {
            let end = buffer.len().min(at + WRITE_BYTES);
            file.write_at(at as u64, &buffer[at..end])?;
        }
        file.flush()
    }

    /// Reads the description of the backup in `storage`.
    ///
    /// # Errors
    /// `NotFound` if there is no backup; `Corruption` if it is not complete or damaged;
    /// `Unsupported` for a newer format; I/O.
    pub fn read(storage: &dyn Storage) -> Result<Description> {
        let mode = OpenMode { create: false, read_only: true, direct: true };
        let file = storage.small_file(BACKUP_PATH, mode).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::new(ErrorKind::NotFound, "there is no backup in this directory"),
            _ => error,
        })?;
        let place = || file.location(0);
        let len =
            usize::try_from(file.len()?).map_err(|_| Error::corruption("it is too long").at(place()))?;
        let whole = len / SECTOR_BYTES * SECTOR_BYTES;
        if whole == 0 {
            return Err(incomplete().at(place()));
        }
        let mut bytes = AlignedBuffer::zeroed(whole);
        file.read_at(0, &mut bytes)?;
        Self::decode(&bytes).map_err(|error| error.at(place()))
    }

    fn encode(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + 4096 + 10 * self.source.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&crc(&bytes).to_le_bytes());
        bytes.resize(HEADER_BYTES, 0);
        bytes.extend_from_slice(&self.id.0.to_le_bytes());
        bytes.push(self.base.is_some().into());
        if let Some(base) = &self.base {
            bytes.extend_from_slice(&base.id.0.to_le_bytes());
            put_varint(&mut bytes, base.csn.0);
        }
        put_bytes(&mut bytes, &self.manifest.encode()?);
        put_varint(&mut bytes, self.source.len() as u64);
        let mut previous = 0;
        for (page, reference) in &self.source {
            put_varint(&mut bytes, page.0 - previous);
            bytes.extend_from_slice(&reference.0.to_le_bytes());
            previous = page.0;
        }
        let length = (bytes.len() - HEADER_BYTES) as u64;
        let body_crc = crc(&bytes[HEADER_BYTES..]);
        bytes[16..24].copy_from_slice(&length.to_le_bytes());
        bytes[24..28].copy_from_slice(&body_crc.to_le_bytes());
        let header_crc = crc(&bytes[16..28]);
        bytes[28..32].copy_from_slice(&header_crc.to_le_bytes());
        Ok(bytes)
    }

    fn decode(bytes: &[u8]) -> Result<Description> {
        let mut header = Reader::new(bytes);
        let magic = header.take(8);
        if bytes[..HEADER_BYTES].iter().all(|byte| *byte == 0) {
            return Err(incomplete());
        }
        if magic != Some(&MAGIC) {
            return Err(Error::corruption("this is no description of a backup"));
        }
        let (version, prefix_crc) = (header.u32(), header.u32());
        if prefix_crc != Some(crc(&bytes[..12])) {
            return Err(Error::corruption("the checksum of the description's magic and version is wrong"));
        }
        if version != Some(VERSION) {
            let found = version.unwrap_or_default();
            let what = format!("the backup has format version {found}, this build reads version {VERSION}");
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        let (length, body_crc, header_crc) = (header.u64(), header.u32(), header.u32());
        if header_crc != Some(crc(&bytes[16..28])) {
            return Err(Error::corruption("the checksum of the description's header is wrong"));
        }
        let body = length.and_then(|length| header.take(usize::try_from(length).ok()?));
        let body = body.ok_or_else(incomplete)?;
        if body_crc != Some(crc(body)) {
            return Err(Error::corruption("the description's checksum is wrong, or it was not finished"));
        }
        let (manifest, description) = decode_body(body)
            .ok_or_else(|| Error::corruption("the fields of the description do not fit its length"))?;
        Ok(Description { manifest: Manifest::decode(manifest)?, ..description })
    }
}

/// Written at a time.
const WRITE_BYTES: usize = 1 << 20;

fn incomplete() -> Error {
    Error::corruption("the backup is not complete: making it was interrupted")
        .with_advice("remove it, and make another")
}

/// The manifest's bytes, and the rest.
fn decode_body(body: &[u8]) -> Option<(&[u8], Description)> {
    let mut r = Reader::new(body);
    let id = BackupId(r.u64()?);
    let base = match r.u8()? {
        0 => None,
        1 => Some(Base { id: BackupId(r.u64()?), csn: Csn(r.varint()?) }),
        _ => return None,
    };
    let manifest = r.bytes()?;
    let count = r.varint()?;
    let mut source = Vec::new();
    let mut previous = 0u64;
    for index in 0..count {
        let gap = r.varint()?;
        if gap == 0 && index > 0 {
            return None;
        }
        previous = previous.checked_add(gap)?;
        source.push((PageId(previous), BlockRef(r.u64()?)));
    }
    let none = Manifest::new(DatabaseId(0), 4096);
    r.is_empty().then_some((manifest, Description { id, base, manifest: none, source }))
}

#[cfg(test)]
mod tests;
