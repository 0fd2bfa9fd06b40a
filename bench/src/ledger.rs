//! The acknowledgments that the workers of a process received before it is killed: which of their
//! writes are committed.
//!
//! ```text
//!   worker:    begin ─▶ reads, writes ─▶ number := next ─▶ entry to the file ─▶ commit
//!                ─▶ … acknowledged ─▶ number to the file
//!   SIGKILL anywhere
//!   afterwards: files, recovered database ─▶ does each row have an allowed value?
//! ```
//! The files survive the kill: the kernel has what a `write` passed to it. The engine does not use
//! them.
//!
//! # Which value a row may have
//! Two transactions that write the same row do not overlap: the second began after the first
//! pre-committed, or had a conflict. A number that is drawn after the writes and before the commit
//! lies within its transaction, so for each row the numbers are in the order of the versions,
//! whichever workers wrote them. Let `a` be the highest number of a row that was acknowledged. Then
//! the row must be as `a` left it, or as a change with a higher number did, which may have
//! committed without an acknowledgment. Every entry is in its file before its commit begins, so
//! that no value is unknown.
//!
//! A worker writes an acknowledgment with its next entry. Acknowledgments that the kill prevents
//! from being written are not required: one a worker with blocking commits; with asynchronous
//! commits, those of handles not checked yet.
//!
//! # A file, one a worker, little-endian
//!
//! | bytes | entry: | | bytes | acknowledgment: |
//! |---|---|---|---|---|
//! | 1 | 1 | | 1 | 2 |
//! | 8 | number | | 8 | number |
//! | 4 | bytes that follow: writes | | | |
//!
//! A write: 8 bytes hash of the table's name, 8 bytes hash of the value (0: deleted), 1 byte length
//! of the key, key. A last record that the kill cut off does not count: its commit had not begun.

use crate::checked::Checked;
use anyhow::{Context, Result, bail};
use quenchdb::Database;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const ENTRY: u8 = 1;
const ACKNOWLEDGED: u8 = 2;
/// Longest key whose length fits.
const KEY_BYTES_MAX: usize = 255;
const DELETED: u64 = 0;

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// Returns the hash of a value; never that of a deleted row.
fn value_hash(value: Option<&[u8]>) -> u64 {
    value.map_or(DELETED, |value| hash(value).max(1))
}

/// The writes of one attempt at a transaction.
#[derive(Debug, Default)]
pub struct Entry {
    writes: Vec<u8>,
}

impl Entry {
    /// Clears the entry.
    pub fn clear(&mut self) {
        self.writes.clear();
    }

    /// Adds a write: the row `key` of `table` was set to `value`, or deleted.
    pub fn wrote(&mut self, table: &str, key: &[u8], value: Option<&[u8]>) {
        debug_assert!(key.len() <= KEY_BYTES_MAX, "workloads have short keys");
        self.writes.extend(hash(table.as_bytes()).to_le_bytes());
        self.writes.extend(value_hash(value).to_le_bytes());
        self.writes.push(key.len() as u8);
        self.writes.extend(key);
    }

    /// Returns true without writes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }
}

/// The files of all workers of a process.
#[derive(Debug)]
pub struct Ledger {
    directory: PathBuf,
    next: AtomicU64,
    files: AtomicU64,
}

impl Ledger {
    /// Opens the files in `directory`, which exists, and appends to them.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn open(directory: &Path) -> Result<Ledger> {
        let (mut next, mut files) = (1, 0);
        for path in files_of(directory)? {
            let mut all = Known::default();
            all.read(&path)?;
            next = next.max(all.numbers_max + 1);
            files += 1;
        }
        Ok(Ledger {
            directory: directory.to_path_buf(),
            next: AtomicU64::new(next),
            files: AtomicU64::new(files),
        })
    }

    /// Returns the file of one more worker.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn writer(&self) -> Result<LedgerWriter<'_>> {
        let path = self.directory.join(format!("{:06}", self.files.fetch_add(1, Ordering::Relaxed)));
        let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(LedgerWriter { ledger: self, file, buffer: Vec::new() })
    }
}

/// The file of one worker.
#[derive(Debug)]
pub struct LedgerWriter<'l> {
    ledger: &'l Ledger,
    file: File,
    buffer: Vec<u8>,
}

impl LedgerWriter<'_> {
    /// Writes the entry of a transaction before its commit. Returns its number.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn about_to_commit(&mut self, entry: &Entry) -> Result<u64> {
        let number = self.ledger.next.fetch_add(1, Ordering::SeqCst);
        self.buffer.push(ENTRY);
        self.buffer.extend(number.to_le_bytes());
        self.buffer.extend((entry.writes.len() as u32).to_le_bytes());
        self.buffer.extend(&entry.writes);
        self.write()?;
        Ok(number)
    }

    /// Records an acknowledgment.
    pub fn acknowledged(&mut self, number: u64) {
        self.buffer.push(ACKNOWLEDGED);
        self.buffer.extend(number.to_le_bytes());
    }

    /// Writes the remaining acknowledgments.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self) -> Result<()> {
        self.file.write_all(&self.buffer).context("cannot write the ledger")?;
        self.buffer.clear();
        Ok(())
    }
}

fn files_of(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        std::fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in entries {
        files.push(entry?.path());
    }
    files.sort();
    Ok(files)
}

/// A row: the hash of the table's name, and the key.
type Row = (u64, Vec<u8>);

/// The content of the files.
#[derive(Debug, Default)]
struct Known {
    /// Number and value of each write, in no order; of several writes of one transaction the last
    /// counts.
    writes: HashMap<Row, BTreeMap<u64, u64>>,
    acknowledged: HashSet<u64>,
    numbers_max: u64,
}

impl Known {
    fn read(&mut self, path: &Path) -> Result<()> {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut rest = bytes.as_slice();
        while let Some(left) = self.read_one(rest)? {
            rest = left;
        }
        Ok(())
    }

    /// Returns the bytes after the first record of `bytes`, or `None` if that is incomplete.
    fn read_one<'b>(&mut self, bytes: &'b [u8]) -> Result<Option<&'b [u8]>> {
        let Some((tag, rest)) = bytes.split_first() else { return Ok(None) };
        let Some((number, rest)) = rest.split_first_chunk().map(|(n, rest)| (u64::from_le_bytes(*n), rest))
        else {
            return Ok(None);
        };
        match *tag {
            ACKNOWLEDGED => {
                self.acknowledged.insert(number);
                Ok(Some(rest))
            }
            ENTRY => {
                let Some((length, rest)) = rest.split_first_chunk() else { return Ok(None) };
                let length = u32::from_le_bytes(*length) as usize;
                let Some((writes, rest)) = rest.split_at_checked(length) else { return Ok(None) };
                self.numbers_max = self.numbers_max.max(number);
                self.read_writes(number, writes).context("the ledger is damaged")?;
                Ok(Some(rest))
            }
            _ => bail!("the ledger is damaged: a record of kind {tag}"),
        }
    }

    fn read_writes(&mut self, number: u64, mut writes: &[u8]) -> Option<()> {
        while !writes.is_empty() {
            let (table, rest) = writes.split_first_chunk()?;
            let (value, rest) = rest.split_first_chunk()?;
            let (length, rest) = rest.split_first()?;
            let (key, rest) = rest.split_at_checked(usize::from(*length))?;
            let row = (u64::from_le_bytes(*table), key.to_vec());
            self.writes.entry(row).or_default().insert(number, u64::from_le_bytes(*value));
            writes = rest;
        }
        Some(())
    }
}

/// Checks that every row named in the files of `directory` has an allowed value; see the module.
///
/// # Errors
/// Those of reading. Lost changes are in the result.
pub fn check(directory: &Path, database: &Database) -> Result<Checked> {
    let (mut known, mut checked) = (Known::default(), Checked::default());
    for path in files_of(directory)? {
        known.read(&path)?;
    }
    let mut tables = HashMap::new();
    for name in database.tables() {
        tables.insert(hash(name.as_bytes()), database.table(&name)?);
    }
    let (snapshot, mut value) = (database.begin_read()?, Vec::new());
    for ((table, key), versions) in &known.writes {
        let Some((newest, _)) = versions.iter().rev().find(|(number, _)| known.acknowledged.contains(number))
        else {
            continue;
        };
        checked.acknowledged_writes +=
            versions.keys().filter(|n| known.acknowledged.contains(n)).count() as u64;
        let Some(table) = tables.get(table) else {
            checked.problem(|| format!("the table of row {key:x?}, whose change was acknowledged, is gone"));
            continue;
        };
        let there = snapshot.get_into(table, key, &mut value)?;
        let found = value_hash(there.then_some(value.as_slice()));
        if !versions.range(newest..).any(|(_, value)| *value == found) {
            let what = if there { "has an older value than" } else { "is absent, without" };
            let name = table.name();
            checked.problem(|| format!("{name}: row {key:x?} {what} the change that was acknowledged last"));
        }
    }
    Ok(checked)
}

#[cfg(test)]
mod tests;
