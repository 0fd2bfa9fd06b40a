//! The log of a directory to which another process writes: blocks that no crash takes back.
//!
//! *Why no crash of the writer takes back what is returned.* Recovery counts a block below the
//! first missing CSN if the block is in its file when recovery reads it. So three things are asked:
//!
//! 1. **Durable.** A record stores the watermark that was computed before its own draw: every CSN
//!    strictly below was durable. What no watermark vouches for waits for the next look. If that
//!    finds nothing new, the segment is flushed, and what was found before the flush is durable. If
//!    the flush fails, only a later watermark vouches for it.
//! 2. **No recovery has begun.** A block may reach its file after a recovery has read the file;
//!    then its CSN is void. So after a block was found the note of the lock's holder must still
//!    name the epoch of the manifest. The next holder removes that note before it reads anything.
//! 3. Otherwise the block waits for the manifest of the next epoch, which says what counts.

use crate::base::planted::{self, Bug};
use crate::base::{Csn, DatabaseId, Epoch, Result};
use crate::device::Storage;
use crate::log::{FollowedBlock, Look, SegmentWatcher, in_memory};
use crate::store::{Manifest, ManifestFile};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Looks at everything after which one goes to the end of each segment.
const LOOKS_TO_THE_END: u32 = 32;

/// See the module's text.
#[derive(Debug)]
pub struct DirectoryLog {
    storage: Arc<dyn Storage>,
    watcher: SegmentWatcher,
    /// The highest watermark that was found.
    watermark: Csn,
    /// Blocks that are not known to be durable.
    pending: Vec<FollowedBlock>,
    /// Blocks that were pending when a flush failed. A later flush does not prove that they are
    /// durable.
    unflushed: Vec<FollowedBlock>,
    /// Durable blocks that a recovery may have discarded, and the epoch of the manifest then.
    doubtful: Vec<FollowedBlock>,
    epoch: Epoch,
    looks: u32,
}

impl DirectoryLog {
    /// Returns the log of a database whose manifest is `base`.
    ///
    /// # Errors
    /// `Unsupported` if a part of the log is in mapped memory.
    pub fn new(storage: Arc<dyn Storage>, base: &Manifest) -> Result<DirectoryLog> {
        if base.log_memory.is_some() {
            return Err(in_memory());
        }
        let watcher = SegmentWatcher::new(storage.clone(), base.database);
        let (pending, unflushed, doubtful) = (Vec::new(), Vec::new(), Vec::new());
        let (watermark, epoch, looks) = (base.first_csn, base.epoch, 0);
        Ok(DirectoryLog { storage, watcher, watermark, pending, unflushed, doubtful, epoch, looks })
    }

    /// Reads the manifest. If it is of another database, its log is not looked at.
    ///
    /// # Errors
    /// As [`ManifestFile::read_beside_writer`]; `Unsupported` as of [`DirectoryLog::new`].
    pub(super) fn read_manifest(&self, database: DatabaseId) -> Result<Manifest> {
        let manifest = ManifestFile::read_beside_writer(&*self.storage)?;
        if manifest.database == database && manifest.log_memory.is_some() {
            return Err(in_memory());
        }
        Ok(manifest)
    }

    /// Notes a newer manifest. Returns the blocks that waited for one of a later epoch, if it is
    /// one.
    pub(super) fn decided(&mut self, manifest: &Manifest) -> Vec<FollowedBlock> {
        // What a checkpoint covers is durable.
        self.watermark = self.watermark.max(manifest.checkpoint.next());
        if manifest.epoch <= self.epoch {
            return Vec::new();
        }
        self.epoch = manifest.epoch;
        // Rule 8 of the selection.
        self.watermark = self.watermark.max(manifest.first_csn);
        std::mem::take(&mut self.doubtful)
    }

    /// Looks for new blocks. Returns those that count, and whether any were found.
    ///
    /// # Errors
    /// I/O: then the next call returns what this one did not.
    pub(super) fn look(&mut self, look: Look) -> Result<(Vec<FollowedBlock>, bool)> {
        self.looks = if look.all { self.looks.saturating_add(1) } else { self.looks };
        let to_the_end = look.to_the_end || look.all && self.looks.is_multiple_of(LOOKS_TO_THE_END);
        let found = self.watcher.look(Look { to_the_end, ..look })?;
        let are_new = !found.is_empty();
        let watermark = found.iter().map(|found| found.block.watermark());
        self.watermark = watermark.fold(self.watermark, Csn::max);
        self.pending.extend(found);
        let is_old = !are_new && !self.pending.is_empty();
        if is_old {
            let segments: BTreeSet<_> = self.pending.iter().map(|found| found.block.segment()).collect();
            if let Err(error) = self.watcher.flush(&segments) {
                self.unflushed.append(&mut self.pending);
                return Err(error);
            }
        }
        // After the blocks were read, and flushed.
        let is_running = self.is_running()?;
        let is_vouched = |found: &mut FollowedBlock| found.block.last_csn() < self.watermark;
        let is_durable = |found: &mut FollowedBlock| is_old || is_vouched(found);
        let mut durable: Vec<FollowedBlock> = self.pending.extract_if(.., is_durable).collect();
        durable.extend(self.unflushed.extract_if(.., is_vouched));
        if is_running {
            return Ok((durable, are_new || is_old));
        }
        self.doubtful.extend(durable);
        Ok((Vec::new(), are_new))
    }

    /// Returns whether blocks are known that do not count yet.
    pub(super) fn has_more(&self) -> bool {
        !(self.pending.is_empty() && self.unflushed.is_empty() && self.doubtful.is_empty())
    }

    /// Rule 2.
    fn is_running(&self) -> Result<bool> {
        Ok(planted::is(Bug::FollowedUnlocked) || self.storage.noted_epoch()? == Some(self.epoch.0))
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
