//! Replaying a copy of another database's log over pages that were restored from its backups.
//!
//! The rules are those of recovery (see `select`), with the checkpoint of the last backup, and two
//! questions more:
//!
//! 1. **What is known of the epochs?** A recovery of the source after the backup has discarded
//!    transactions that the log may still hold, and only the source's manifest says which. So an
//!    epoch after the backup's counts only by a manifest that is beside the log, and an earlier one
//!    only if that still has its entry; otherwise the log is refused, never guessed at.
//! 2. **Up to where?** To the end: what a recovery of the source would have given. Or to a CSN:
//!    exactly the transactions up to it, so all of them must be there or void. What lies behind it,
//!    holes included, does not matter then.
//!
//! The newest commits may be in the source's mapped memory only: what that holds is a part of the
//! log, and read with it.

use crate::base::{Csn, DatabaseId, Epoch, Error, ErrorKind, Location, Result};
use crate::device::{LOG_DIRECTORY, Storage};
use crate::log::memory::{LogMemory, find};
use crate::log::{Scan, Segment, next_id};
use crate::store::{EpochEntry, Manifest, ManifestFile, NeededMemory};
use std::sync::Arc;

/// A copy of a log, and what it is judged by.
#[derive(Debug)]
pub struct CopiedLog {
    pub(super) storage: Arc<dyn Storage>,
    /// The newest manifest that is known of the source, with the backup's checkpoint.
    pub(super) source: Manifest,
    /// The backup's epoch: what there is of earlier ones it has decided.
    backup_epoch: Epoch,
    /// Every transaction up to here was committed, as the manifest beside the log says.
    known: Csn,
    to: Option<Csn>,
    /// The content of mapped memory, as a segment without a file.
    pub(super) memory: Option<Segment>,
}

/// Maps a memory of this database for reading; `NotFound` if it is not there.
pub type MapMemory<'a> = &'a dyn Fn(DatabaseId, &NeededMemory) -> Result<LogMemory>;

impl CopiedLog {
    /// The log in `storage`, of the database whose manifest was `backup` at its last backup, to be
    /// replayed to `to`, or to its end. A manifest in `storage` is believed if it is that
    /// database's. If the newer of the two names a memory, `map` finds it.
    ///
    /// # Errors
    /// `InvalidArgument` if `to` is before the backup or the manifest is of another database;
    /// `NotFound` if there is no log, or the memory is missing and there is no `to`; `Busy` if it
    /// is in use; `Corruption`, I/O.
    pub fn new(
        storage: Arc<dyn Storage>,
        backup: &Manifest,
        to: Option<Csn>,
        map: MapMemory<'_>,
    ) -> Result<CopiedLog> {
        if let Some(to) = to.filter(|to| *to < backup.checkpoint) {
            let at = backup.checkpoint;
            return Err(Error::invalid(format!("CSN {to} is before the last backup, which is at CSN {at}")));
        }
        if storage.segments().list()?.is_empty() {
            return Err(no_log());
        }
        let newer = match ManifestFile::open(&*storage, true) {
            Ok((_, manifest)) => Some(manifest),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error.of("the log's directory")),
        };
        let known = newer.as_ref().map_or(Csn::ZERO, |newer| newer.checkpoint);
        let source = newest_of(backup, newer)?;
        let memory = match &source.log_memory {
            Some(needed) => {
                let found =
                    map(source.database, needed).and_then(|memory| read_memory(&memory, &source, &*storage));
                match found {
                    // It is missing, in use, or of a later run by now. Whether what it held is
                    // needed is question 2.
                    Err(_) if to.is_some() => None,
                    found => found?,
                }
            }
            None => None,
        };
        Ok(CopiedLog { storage, source, backup_epoch: backup.epoch, known, to, memory })
    }

    /// The CSN that was asked for.
    pub(super) fn to(&self) -> Option<Csn> {
        self.to
    }

    /// Question 1.
    pub(super) fn check_epochs(&self, scan: &Scan) -> Result<()> {
        for chain in &scan.chains {
            let (epoch, source) = (chain.epoch, &self.source);
            let decided = epoch == source.epoch
                || epoch < self.backup_epoch
                || source.epochs.iter().any(|entry| entry.epoch == epoch);
            // What an interrupted recovery wrote does not count.
            let interrupted = epoch > source.epoch && epoch <= source.reserved_epoch;
            // Chunks that the backup has covered; those of a transaction that it has not are missed
            // later.
            let covered = chain.blocks.iter().all(|block| block.last_csn() <= source.checkpoint);
            if decided || interrupted || covered {
                continue;
            }
            return Err(undecided(epoch, source));
        }
        Ok(())
    }

    /// Question 2.
    pub(super) fn check_reach(&self, frontier: Csn) -> Result<()> {
        let wanted = self.to.unwrap_or(self.known);
        if frontier > wanted {
            return Ok(());
        }
        let what = format!("the log lacks transactions that are needed to come to CSN {wanted}");
        Err(self.only_to(frontier, &Error::corruption(what)))
    }

    /// Says how far it can go.
    pub(super) fn only_to(&self, frontier: Csn, error: &Error) -> Error {
        let reach = Csn(frontier.0.saturating_sub(1)).max(self.source.checkpoint);
        let what = format!("{}; the backups and this log reach up to CSN {reach}", error.message());
        let place = error.location().cloned().unwrap_or(Location::Transaction(frontier));
        Error::new(error.kind(), what).at(place)
    }
}

/// Question 1 has no answer for this epoch.
fn undecided(epoch: Epoch, source: &Manifest) -> Error {
    let (what, advice) = if epoch > source.epoch {
        (
            "the log was written on by a later run of the database than the backup and the manifest beside the log know",
            "copy the newest MANIFEST of the source to the directory with the log",
        )
    } else {
        (
            "what a recovery discarded of an earlier run is not known any more, so its log cannot be replayed",
            "use a later backup",
        )
    };
    let place = Location::File { path: LOG_DIRECTORY.into(), offset: 0 };
    Error::invalid(format!("{what} ({epoch:?})")).with_advice(advice).at(place)
}

/// Returns the blocks in the source's memory of the run that `source` knows. Changes nothing there.
fn read_memory(memory: &LogMemory, source: &Manifest, storage: &dyn Storage) -> Result<Option<Segment>> {
    match memory.newest_epoch() {
        Some(epoch) if epoch > source.epoch => Err(undecided(epoch, source)),
        _ => find(memory, source.epoch, source.covered, next_id(storage.segments())?),
    }
}

pub(super) fn no_log() -> Error {
    let place = Location::File { path: LOG_DIRECTORY.into(), offset: 0 };
    Error::new(ErrorKind::NotFound, "there is no log in this directory").at(place)
}

/// Returns the newer manifest with the checkpoint of the backup and the epochs of both. Log that
/// the source has released since may still be there, and be needed for chunks. If it is needed and
/// gone, it is found missing.
fn newest_of(backup: &Manifest, newer: Option<Manifest>) -> Result<Manifest> {
    let Some(newer) = newer else { return Ok(backup.clone()) };
    if newer.database != backup.database {
        let (found, wanted) = (newer.database, backup.database);
        let what = format!("the log's manifest is of database {found}, the backups are of {wanted}");
        return Err(Error::invalid(what));
    }
    if newer.epoch < backup.epoch || newer.checkpoint < backup.checkpoint {
        return Err(Error::invalid("the manifest beside the log is older than the last backup"));
    }
    let mut epochs: Vec<EpochEntry> = backup.epochs.clone();
    epochs.extend(newer.epochs.iter().filter(|e| backup.epochs.iter().all(|b| b.epoch != e.epoch)).cloned());
    epochs.sort_by_key(|entry| entry.epoch);
    let Manifest { checkpoint, covered, .. } = *backup;
    Ok(Manifest { checkpoint, covered, store: backup.store.clone(), epochs, ..newer })
}
