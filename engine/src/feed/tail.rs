//! The tail of a log that another process writes: its transactions in CSN order, soon after they
//! are durable.
//!
//! ```text
//!   found      41  42  43   -   45          44 is in flight, or its block was not looked at yet
//!   returned   41  42  43                   the prefix without a gap
//! ```
//!
//! *Why no crash of the writer takes back what was returned.* Every block that is found is durable,
//! and recovery finds it, too ([`FollowedLog`]). CSNs are dense (I3), so below the first gap every
//! record is there. Recovery counts all of them: its F is above them (rule 6 of
//! `recovery::select`).
//!
//! 1. A record counts by the newest manifest that was read. Blocks of a later epoch wait for the
//!    manifest of that epoch: until it is published, nothing of that epoch was served.
//! 2. What the newest checkpoint covers was durable before that checkpoint was published. If it is
//!    not found after that, its segment is gone: the tail has fallen behind, and begins again at
//!    that checkpoint.

use super::applied::Applied;
use super::assembler::Assembler;
use super::directory::DirectoryLog;
use super::selection::CountedEpochs;
use super::transaction::CommittedTransaction;
use crate::base::{Csn, Error, ErrorKind, Location, Result, TableId};
use crate::device::{FollowedLog, NewBytes};
use crate::log::{FollowedBlock, Follower, LogView, Look, ReadLog, Readable, Segment};
use crate::store::Manifest;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes of new blocks that are kept in memory between finding and returning them.
const KEPT_BYTES: usize = 4 << 20;

/// Where the log of the other process is.
#[derive(Debug)]
pub enum TailLog {
    /// In a store of objects.
    Objects(Box<dyn FollowedLog>),
    /// In a directory of this machine.
    Directory(DirectoryLog),
}

/// See the module's text.
#[derive(Debug)]
pub struct LogTail {
    log: TailLog,
    /// The newest one that was read.
    manifest: Manifest,
    assembler: Assembler,
    /// Blocks of epochs after that of the manifest.
    later: Vec<FollowedBlock>,
    /// New bytes of a store of objects that were not read yet: each come once.
    unread: VecDeque<NewBytes>,
    /// Chunks at or below the start have not been looked for, in a directory.
    is_new: bool,
    /// The highest CSN that was found.
    newest: Csn,
    applied: Applied,
    /// All blocks were looked at after the checkpoint at this CSN had been published.
    all_read_up_to: Option<Csn>,
    /// Bytes of blocks above the checkpoint of the manifest, about.
    log_bytes: u64,
}

impl LogTail {
    /// Begins above the checkpoint of `base`, in which the tables with these names exist.
    ///
    /// # Errors
    /// As [`LogTail::refresh`].
    pub fn begin(
        log: TailLog,
        base: &Manifest,
        tables: impl IntoIterator<Item = (TableId, Arc<str>)>,
    ) -> Result<LogTail> {
        LogTail::begin_after(log, base, tables, base.checkpoint)
    }

    /// Begins above the CSN `after`, at which the tables with these names exist. If the log no
    /// longer has what follows, the tail has fallen behind.
    ///
    /// # Errors
    /// As [`LogTail::refresh`].
    pub fn begin_after(
        log: TailLog,
        manifest: &Manifest,
        tables: impl IntoIterator<Item = (TableId, Arc<str>)>,
        after: Csn,
    ) -> Result<LogTail> {
        let epochs = Arc::new(CountedEpochs::of(manifest));
        let assembler = Assembler::new(epochs, tables, after);
        let mut tail = LogTail {
            log,
            manifest: manifest.clone(),
            assembler,
            later: Vec::new(),
            unread: VecDeque::new(),
            is_new: true,
            newest: after,
            applied: Applied::default(),
            all_read_up_to: None,
            log_bytes: 0,
        };
        tail.refresh()?;
        Ok(tail)
    }

    /// Returns the CSN up to which every transaction was returned.
    #[must_use]
    pub fn csn(&self) -> Csn {
        self.assembler.complete_csn()
    }

    /// Returns the highest CSN that was found.
    #[must_use]
    pub fn newest(&self) -> Csn {
        self.newest.max(self.csn())
    }

    /// Returns the newest manifest that was read.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns whether records are known that the tail does not return, because one before them is
    /// missing.
    #[must_use]
    pub fn has_gap(&self) -> bool {
        let has_more = match &self.log {
            TailLog::Objects(_) => false,
            TailLog::Directory(log) => log.has_more(),
        };
        self.newest > self.csn() || !self.later.is_empty() || has_more
    }

    /// Reads the manifest again. Returns whether another one was published.
    ///
    /// # Errors
    /// `NotFound` if there is no database any more; `InvalidArgument` if another one has taken its
    /// place; `Corruption`, `Unsupported` for a damaged or newer manifest; I/O.
    pub fn refresh(&mut self) -> Result<bool> {
        let manifest = match &mut self.log {
            TailLog::Objects(log) => Manifest::decode(&log.read_manifest()?)?,
            TailLog::Directory(log) => log.read_manifest(self.manifest.database)?,
        };
        if manifest.database != self.manifest.database {
            let what = format!(
                "the database at this place is another one now ({}, not {})",
                manifest.database, self.manifest.database
            );
            return Err(Error::invalid(what).with_advice("open the standby again to follow that one"));
        }
        // In several buckets a manifest that was read may have been discarded by a later one of its
        // generation.
        let is_other = manifest != self.manifest;
        if is_other {
            self.assembler.set_epochs(Arc::new(CountedEpochs::of(&manifest)));
            self.assembler.forget_chunks(manifest.covered, manifest.checkpoint);
            if manifest.checkpoint > self.manifest.checkpoint {
                self.log_bytes = 0;
            }
            self.manifest = manifest;
            let later = std::mem::take(&mut self.later);
            self.add(later);
            if let TailLog::Directory(log) = &mut self.log {
                let decided = log.decided(&self.manifest);
                self.add(decided);
            }
        }
        Ok(is_other)
    }

    /// Looks for new blocks: with `all` everywhere, otherwise where some came lately. Returns
    /// whether there are any.
    ///
    /// # Errors
    /// I/O: then the next call finds what this one did not.
    pub fn look(&mut self, all: bool) -> Result<bool> {
        match &self.log {
            TailLog::Objects(_) => self.look_at_objects(all),
            TailLog::Directory(_) => self.look_at_directory(all),
        }
    }

    fn look_at_directory(&mut self, all: bool) -> Result<bool> {
        let TailLog::Directory(log) = &mut self.log else { return Ok(false) };
        let (all, with_chunks) = (all || self.is_new, self.is_new);
        let is_covered = self.assembler.next_csn() <= self.manifest.checkpoint;
        let to_the_end = all && (with_chunks || is_covered);
        let position = self.assembler.csn();
        let look = Look { position, with_chunks, all, to_the_end, keep_bytes: KEPT_BYTES };
        let (found, are_new) = log.look(look)?;
        self.is_new = false;
        self.add(found);
        Ok(are_new)
    }

    fn look_at_objects(&mut self, all: bool) -> Result<bool> {
        let TailLog::Objects(log) = &mut self.log else { return Ok(false) };
        self.unread.extend(log.poll(all)?);
        self.applied.advance(self.assembler.covered_csn(), self.manifest.epoch);
        let (mut are_there, mut keep_bytes) = (false, KEPT_BYTES);
        while let Some(new) = self.unread.pop_front() {
            let found = match self.read(&new, keep_bytes) {
                Err(error) if error.kind() == ErrorKind::Io => {
                    self.unread.push_front(new);
                    return Err(error);
                }
                found => found?,
            };
            self.applied.note(new.segment, new.position, self.assembler.csn(), &found);
            let kept = found.iter().filter(|found| found.loaded.is_some());
            keep_bytes -= kept.map(|found| found.block.device_bytes()).sum::<usize>();
            are_there |= !found.is_empty();
            self.add(found);
        }
        Ok(are_there)
    }

    /// Returns the blocks in new bytes of a store of objects. Those with chunks at or below the
    /// start are found whenever they come.
    fn read(&self, new: &NewBytes, keep_bytes: usize) -> Result<Vec<FollowedBlock>> {
        let (file, len) = (new.file.clone(), new.file.len()?);
        let segment = Segment { id: new.segment, file, len, uses: 0 };
        let readable = Readable { segment, part: 0, end: len, is_whole: true };
        let view = LogView { durable: Csn::ZERO, segments: vec![readable], newest: Csn::ZERO };
        // A reader of its own: these bytes come once.
        Follower::new(self.manifest.database).find(view, self.assembler.csn(), true, keep_bytes)
    }

    /// Returns about how many bytes the log has above the newest checkpoint.
    #[must_use]
    pub fn log_bytes(&self) -> u64 {
        self.log_bytes
    }

    /// Returns what a recovery need not read, because it was returned.
    pub fn into_read_log(mut self) -> ReadLog {
        let (csn, covered, epoch) = (self.csn(), self.assembler.covered_csn(), self.manifest.epoch);
        self.applied.advance(covered, epoch);
        self.applied.into_read_log(csn, covered, epoch)
    }

    fn add(&mut self, found: Vec<FollowedBlock>) {
        self.log_bytes += found.iter().map(|found| found.block.device_bytes() as u64).sum::<u64>();
        let epoch = self.manifest.epoch;
        let (known, later): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|found| found.block.epoch() <= epoch);
        let newest = known.iter().filter(|found| found.block.epoch() == epoch);
        self.newest = newest.map(|found| found.block.last_csn()).fold(self.newest, Csn::max);
        self.assembler.add(known);
        self.later.extend(later);
    }

    /// Returns the next transaction; `None` if it was not found yet.
    ///
    /// # Errors
    /// `FellBehind` if its segment is gone; `Corruption` for a damaged or contradictory record;
    /// I/O.
    pub fn next(&mut self) -> Result<Option<CommittedTransaction>> {
        let next = match self.assembler.next_without_gap() {
            Ok(next) => next,
            Err(error) => return Err(self.explain(error)),
        };
        // Rule 2.
        let checkpoint = if next.is_none() { self.all_read_up_to.take() } else { None };
        if checkpoint.is_some_and(|checkpoint| self.assembler.next_csn() <= checkpoint) {
            return Err(self.fell_behind());
        }
        Ok(next.map(|assembled| assembled.into_transaction(None)))
    }

    /// Looks everywhere. If the segment of the next transaction is gone, [`LogTail::next`] says so
    /// after that. To be called now and then, and when nothing came for a while.
    ///
    /// # Errors
    /// As [`LogTail::refresh`] and [`LogTail::look`].
    pub fn look_closely(&mut self) -> Result<bool> {
        // In this order: what a manifest covers was readable before it was published.
        let is_other = self.refresh()?;
        let checkpoint = self.manifest.checkpoint;
        let are_there = self.look(true)?;
        self.all_read_up_to = Some(checkpoint);
        Ok(are_there || is_other)
    }

    /// Returns the error for a read of a transaction: its segment may be gone.
    pub fn explain(&mut self, error: Error) -> Error {
        let may_be_gone = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corruption);
        if may_be_gone && self.refresh().is_ok() && self.assembler.complete_csn() <= self.manifest.checkpoint
        {
            return Error::after(ErrorKind::FellBehind, self.fell_behind().message(), &error);
        }
        error
    }

    fn fell_behind(&self) -> Error {
        let (next, checkpoint) = (self.assembler.next_csn(), self.manifest.checkpoint);
        let what = format!("the log no longer has CSN {next}: a checkpoint at CSN {checkpoint} covers it");
        let advice = "a larger `change_history_bytes` of the writer keeps the log for longer";
        Error::new(ErrorKind::FellBehind, what).with_advice(advice).at(Location::Transaction(next))
    }
}
