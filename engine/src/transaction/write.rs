//! Changing a row: find the entry, decide by its stamp, create a version, change the page, note the
//! redo.
//!
//! 1. Latch the leaf. The stamp of the entry names its last writer.
//! 2. If the writer is another transaction in progress, unlatch, wait for it, and start again. If
//!    the entry is newer than the snapshot, the change is a conflict.
//! 3. Create a version from the page's value; write the new value and the version's handle to the
//!    page.
//! 4. Append the change to the private redo buffer: only the changed bytes if the length is the
//!    same.

use super::active::{ActiveTransaction, NO_SNAPSHOT};
use super::catalog::TableState;
use super::descriptor::{Descriptors, RowHolder};
use super::locks::Request;
use super::options::{Isolation, Locking, ReadMode};
use super::rollback::put_back;
use super::system::TransactionSystem;
use super::versions::{Before, Undo, Version, VersionHandle};
use super::view::{View, Visibility};
use super::write_set::{Change, Replaced};
use crate::base::common_bytes::{common_prefix, common_suffix};
use crate::base::planted::{self, Bug};
use crate::base::{Csn, Error, ErrorKind, Result, TableId};
use crate::log::RedoBuffer;
use crate::sync::epoch::{Guard, pin};
use crate::tree::{EntryMeta, Held, LargeReference, LeafWrite, REFERENCE_BYTES};
use std::sync::Arc;

/// How an entry is to change.
#[derive(Clone, Copy, Debug)]
pub(super) enum Intent<'a> {
    Put(&'a [u8]),
    /// Refer to a large value, whose pages and redo are written.
    PutLarge(&'a LargeReference),
    Delete,
    /// Lock the row against other writers without changing it.
    Lock,
}

/// The outcome of an attempt on a latched entry.
enum Attempt {
    /// Done; true if the key existed before.
    Done(bool),
    /// Another transaction has changed the row, or locks forbid the change.
    Blocked(Option<RowHolder>),
    /// The transaction with this CSN may hold the row until it is durable.
    Late(Csn),
    /// The stamp changed meanwhile.
    Retry,
}

/// Checkpoints that a write waits for: on a full disk, where each gives back about half of what is
/// reserved, or without memory for versions, where the next checkpoint holds only newer ones. The
/// first may have begun before.
const CHECKPOINTS_WAITED_FOR: u32 = 3;

/// What one change has waited for so far.
#[derive(Default)]
pub(super) struct Waits {
    /// Checkpoints waited for on a full disk.
    for_space: u32,
    /// Attempts to get memory for versions, and how many checkpoints had ended before the last one.
    for_memory: u32,
    checkpoints_ended: Option<u64>,
}

impl Waits {
    /// Waits for a checkpoint after `OutOfSpace`; returns any other error.
    fn await_space(&mut self, system: &TransactionSystem, error: Error) -> Result<()> {
        if error.kind() != ErrorKind::OutOfSpace || self.for_space >= CHECKPOINTS_WAITED_FOR {
            return Err(error);
        }
        self.for_space += 1;
        if !system.commit().space().await_checkpoint() {
            return Err(error);
        }
        Ok(())
    }

    /// Makes room for a page after so many earlier attempts: waits for a checkpoint after
    /// `OutOfSpace`, and gives memory of versions back after the first `OutOfMemory`. Returns any
    /// other error.
    pub(super) fn await_page(system: &TransactionSystem, error: Error, attempts: u32) -> Result<()> {
        match error.kind() {
            ErrorKind::OutOfMemory if attempts == 0 => {
                system.versions.reclaim();
                Ok(())
            }
            _ => Waits { for_space: attempts, ..Waits::default() }.await_space(system, error),
        }
    }

    /// Gives memory of versions back after `OutOfMemory`; returns any other error.
    fn await_memory(&mut self, system: &TransactionSystem, error: Error) -> Result<()> {
        if error.kind() != ErrorKind::OutOfMemory || self.for_memory > CHECKPOINTS_WAITED_FOR {
            return Err(error);
        }
        // Versions that no snapshot needs may not have been given back yet.
        self.checkpoints_ended = match self.checkpoints_ended {
            None => Some(system.versions.reclaim()),
            Some(ended) => system.versions.reclaim_after_checkpoint(ended),
        };
        if self.checkpoints_ended.is_none() {
            return Err(error);
        }
        self.for_memory += 1;
        Ok(())
    }
}

impl ActiveTransaction {
    /// Deletes `key`. Returns whether it existed.
    ///
    /// # Errors
    /// As [`ActiveTransaction::insert`].
    pub fn remove(&mut self, table: &Arc<TableState>, key: &[u8]) -> Result<bool> {
        self.system.check_key(table, key)?;
        self.make_room(key.len())?;
        loop {
            let existed = self.change(table, key, Intent::Delete)?;
            // That a key does not exist is an answer. Where reads lock, it counts once it was found
            // under the lock.
            if existed || !self.note_absent(table, key)? {
                return Ok(existed);
            }
        }
    }

    /// Reads `key` and locks it, whether it exists or not, against other writers until the
    /// transaction ends.
    ///
    /// # Errors
    /// As [`ActiveTransaction::insert`].
    pub fn get_for_update(
        &mut self,
        table: &Arc<TableState>,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool> {
        self.check_may_change()?;
        self.system.check_key(table, key)?;
        if self.read_mode() == ReadMode::Lock {
            return self.get_for_later_change(table, key, value);
        }
        // A lock has no redo, but keeps a copy of the key.
        self.charge(key.len())?;
        self.change(table, key, Intent::Lock)?;
        self.touch_to_read(table)?;
        self.get_seen(table, key, value)
    }

    /// Reads `key` for a change that depends on its value. Locks the row, unless the change will
    /// fail if the row is newer than the snapshot.
    ///
    /// # Errors
    /// As [`ActiveTransaction::insert`] and [`ActiveTransaction::get`].
    pub fn get_to_change(
        &mut self,
        table: &Arc<TableState>,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool> {
        self.check_may_change()?;
        let detects_conflicts = self.options.isolation != Isolation::ReadCommitted;
        if self.options.locking == Locking::Optimistic && detects_conflicts {
            return self.get(table, key, value);
        }
        self.get_for_update(table, key, value)
    }

    /// Changes the entry of `key`, after waiting for its row, for space or for memory if need be.
    /// Returns whether the key existed.
    pub(super) fn change(&mut self, table: &Arc<TableState>, key: &[u8], intent: Intent<'_>) -> Result<bool> {
        self.check_may_change()?;
        self.touch(table)?;
        if self.options.isolation == Isolation::ReadCommitted {
            self.view();
        }
        if self.writes.set_table(table) {
            self.system.descriptors.note_change_in(self.id, table.id);
        }
        let mut request = Request::default();
        let changed = self.change_in_line(table, key, intent, &mut request);
        self.end_request(table, &request, changed.is_ok());
        if self.snapshot.get() == NO_SNAPSHOT {
            // The snapshot of a pessimistic transaction contains the row that it locked first.
            self.view();
        }
        changed
    }

    fn change_in_line(
        &mut self,
        table: &Arc<TableState>,
        key: &[u8],
        intent: Intent<'_>,
        request: &mut Request,
    ) -> Result<bool> {
        let room = match intent {
            Intent::Put(value) => value.len(),
            Intent::PutLarge(_) => REFERENCE_BYTES,
            Intent::Delete | Intent::Lock => 0,
        };
        let mut waits = Waits::default();
        loop {
            let guard = pin();
            let mut hint = self.writes.hint(&self.system, table.id);
            let attempt = {
                let leaf = table.tree.write(key, room, &mut hint);
                leaf.and_then(|leaf| leaf.reserve().map(|()| leaf))
                    .map(|mut leaf| self.attempt(table, &mut leaf, key, intent, &guard, request))
            };
            self.writes.set_hint(&self.system, table.id, hint);
            match attempt {
                Ok(Ok(Attempt::Done(existed))) => return Ok(existed),
                Ok(Ok(Attempt::Retry)) => self.system.committed.check_whole()?,
                Ok(Ok(Attempt::Blocked(holder))) => {
                    drop(guard);
                    self.await_change(table, key, holder, request)?;
                }
                Ok(Ok(Attempt::Late(csn))) => {
                    drop(guard);
                    self.await_late_release(csn)?;
                }
                Ok(Err(error)) => {
                    drop(guard);
                    waits.await_memory(&self.system, error)?;
                }
                Err(error) => {
                    drop(guard);
                    waits.await_space(&self.system, error)?;
                }
            }
        }
    }

    /// Changes the latched entry if its stamp allows that now.
    fn attempt(
        &mut self,
        table: &Arc<TableState>,
        leaf: &mut LeafWrite<'_>,
        key: &[u8],
        intent: Intent<'_>,
        guard: &Guard,
        request: &Request,
    ) -> Result<Attempt> {
        self.dependencies.observe_leaf(&self.system, leaf.page_id());
        if !matches!(intent, Intent::Delete) {
            table.dead_ranges.take_out(key, guard);
        }
        let Some(entry) = leaf.entry() else {
            return self.attempt_absent(table, leaf, key, intent, guard, request);
        };
        let system = self.system.clone();
        let view = View { snapshot: self.snapshot.get(), own: self.own };
        let versions = &system.versions.slots;
        let (visibility, version) = view.visibility(entry.stamp, versions, &system.descriptors, guard);
        let csn = match visibility {
            Visibility::InProgress(other) => {
                return Ok(Attempt::Blocked(Some(system.descriptors.holder(other))));
            }
            Visibility::Retry => return Ok(Attempt::Retry),
            Visibility::Orphaned => {
                table.dead_ranges.take_out(key, guard);
                self.take_back_orphaned(leaf, entry.stamp, version, guard);
                return Ok(Attempt::Retry);
            }
            Visibility::TooNew(_)
                if self.options.isolation != Isolation::ReadCommitted && !planted::is(Bug::NoConflict) =>
            {
                return Err(system.newer_than_snapshot(table));
            }
            Visibility::TooNew(csn) | Visibility::Visible(csn) => csn,
        };
        if self.options.locking == Locking::Pessimistic && self.is_held_late(csn) {
            return Ok(Attempt::Late(csn));
        }
        self.depend_on(csn);
        let existed = !entry.tombstone;
        let own = version.filter(|version| version.stamp == self.own);
        if own.is_some() {
            self.writes.redo.changes_again();
        }
        if matches!(intent, Intent::Delete) && !existed || matches!(intent, Intent::Lock) && own.is_some() {
            return Ok(Attempt::Done(existed));
        }
        if own.is_none() && self.is_change_forbidden(table, key, request) {
            return Ok(Attempt::Blocked(None));
        }
        if let Some(own) = own
            && self.overwrite_in_place(table.id, leaf, key, intent, entry.stamp, own)?
        {
            return Ok(Attempt::Done(existed));
        }
        let change = self.writes.changes.len();
        let replaced = self.apply_over(table, leaf, key, intent, entry, guard)?;
        self.writes.replaced.extend(replaced.map(|reference| {
            // A lock did not create the value.
            let is_lock = version.is_some_and(|version| matches!(version.undo.before, Before::Unchanged));
            Replaced { change, created: if is_lock { Csn::ZERO } else { csn }, reference }
        }));
        Ok(Attempt::Done(existed))
    }

    /// Changes an entry that exists, and notes how to take the change back. Returns the reference
    /// to a large value that the entry held.
    #[inline]
    fn apply_over(
        &mut self,
        table: &Arc<TableState>,
        leaf: &mut LeafWrite<'_>,
        key: &[u8],
        intent: Intent<'_>,
        entry: EntryMeta,
        guard: &Guard,
    ) -> Result<Option<LargeReference>> {
        let mut buffer = std::mem::take(&mut self.writes.value);
        let applied = before_image(leaf, intent, entry.tombstone, &mut buffer).and_then(|before| {
            let undo = Undo { prior: entry.stamp, before };
            self.apply(table, leaf, key, intent, undo, guard).map(|()| before.reference())
        });
        self.writes.value = buffer;
        applied
    }

    /// Creates an entry, or finds that there is none to delete.
    fn attempt_absent(
        &mut self,
        table: &Arc<TableState>,
        leaf: &mut LeafWrite<'_>,
        key: &[u8],
        intent: Intent<'_>,
        guard: &Guard,
        request: &Request,
    ) -> Result<Attempt> {
        if !matches!(intent, Intent::Delete) {
            if self.is_change_forbidden(table, key, request) {
                return Ok(Attempt::Blocked(None));
            }
            self.apply(table, leaf, key, intent, Undo { prior: 0, before: Before::Absent }, guard)?;
        }
        Ok(Attempt::Done(false))
    }

    /// Takes back the newest change of a latched entry, which its writer could not take back.
    fn take_back_orphaned(
        &self,
        leaf: &mut LeafWrite<'_>,
        stamp: u64,
        version: Option<Version<'_>>,
        guard: &Guard,
    ) {
        if let (Some(handle), Some(version)) = (VersionHandle::from_word(stamp), version) {
            put_back(leaf, &version.undo);
            self.system.versions.slots.abort(Descriptors::slot(self.id), handle, guard);
        }
    }

    /// Changes the entry, and notes how to take the change back.
    fn apply(
        &mut self,
        table: &Arc<TableState>,
        leaf: &mut LeafWrite<'_>,
        key: &[u8],
        intent: Intent<'_>,
        undo: Undo<'_>,
        guard: &Guard,
    ) -> Result<()> {
        let place = place_of_key(self.writes.keys.len(), key.len())?;
        let shard = Descriptors::slot(self.id);
        let version = self.system.versions.slots.create(shard, self.own, undo, guard)?;
        // Another transaction of the same thread that wants the row would wait for itself.
        self.system.descriptors.set_thread(self.id);
        self.dependencies.changed_leaf(&self.system, leaf.page_id());
        let word = version.word();
        self.writes.redo_of_leaf(&self.system, leaf.page_id());
        let old = match undo.before {
            Before::Value(value) if self.system.logs_patches() => Some(value),
            _ => None,
        };
        note_redo(&mut self.writes.redo, table.id, key, intent, old);
        match intent {
            Intent::Put(value) => leaf.put(word, false, value),
            Intent::PutLarge(reference) => leaf.put_reference(word, reference),
            Intent::Delete => leaf.put(word, true, &[]),
            Intent::Lock if undo.before == Before::Absent => leaf.put(word, true, &[]),
            Intent::Lock => leaf.set_stamp(word),
        }
        // True for the entry of a deleted key, whichever transaction deleted it.
        let deleted = matches!(intent, Intent::Delete)
            || matches!(intent, Intent::Lock) && leaf.entry().is_some_and(|entry| entry.tombstone);
        self.note_lock();
        self.writes.keys.extend_from_slice(key);
        let (table, lock) = (self.writes.table, matches!(intent, Intent::Lock));
        self.writes.changes.push(Change { table, key: place, version, deleted, lock });
        self.writes.count_deletion(&self.system, key.len(), false, deleted);
        Ok(())
    }

    /// Changes a row again that the transaction has changed since the last savepoint: that needs no
    /// further version. Returns false if the earlier change is needed and not found.
    fn overwrite_in_place(
        &mut self,
        table: TableId,
        leaf: &mut LeafWrite<'_>,
        key: &[u8],
        intent: Intent<'_>,
        word: u64,
        own: Version<'_>,
    ) -> Result<bool> {
        if matches!(own.undo.before, Before::Unchanged) {
            return Ok(false);
        }
        let large = leaf.reference()?;
        let deletes = matches!(intent, Intent::Delete);
        let deleted = leaf.entry().is_some_and(|entry| entry.tombstone);
        // The change that created the version is looked for only if it may be of an earlier
        // savepoint, or has to note that the row is deleted now, or no longer.
        if deletes || deleted || self.writes.savepoint_changes > 0 {
            let change = VersionHandle::from_word(word).and_then(|own| self.writes.recent_change(own));
            let Some(change) = change else { return Ok(false) };
            debug_assert_eq!(change.deleted, deleted, "a change knows whether it deleted its row");
            change.deleted = deletes;
        }
        let page = leaf.page_id();
        let mut old_value = std::mem::take(&mut self.writes.value);
        let old = leaf.entry().is_some_and(|entry| entry.held() == Held::Value).then(|| {
            leaf.copy_value(&mut old_value);
            old_value.as_slice()
        });
        self.writes.redo_of_leaf(&self.system, page);
        let old = old.filter(|_| self.system.logs_patches());
        note_redo(&mut self.writes.redo, table, key, intent, old);
        self.writes.value = old_value;
        self.writes.count_deletion(&self.system, key.len(), deleted, deletes);
        match intent {
            Intent::Put(value) => leaf.put(word, false, value),
            Intent::PutLarge(reference) => leaf.put_reference(word, reference),
            Intent::Delete => leaf.put(word, true, &[]),
            Intent::Lock => {}
        }
        if let (Some(large), false) = (large, matches!(intent, Intent::Lock))
            && let Some(value) = self.writes.take_own_value(&large)
        {
            self.system.large_values.discard(Descriptors::slot(self.id), &value);
        }
        Ok(true)
    }
}

/// Returns what the entry holds before the change. A value is copied to `buffer`.
fn before_image<'b>(
    leaf: &LeafWrite<'_>,
    intent: Intent<'_>,
    tombstone: bool,
    buffer: &'b mut Vec<u8>,
) -> Result<Before<'b>> {
    Ok(match intent {
        Intent::Lock => Before::Unchanged,
        _ if tombstone => Before::Tombstone,
        _ => match leaf.reference()? {
            Some(reference) => Before::Reference(reference),
            None => {
                leaf.copy_value(buffer);
                Before::Value(buffer)
            }
        },
    })
}

/// Appends the operation to the redo: of an overwrite of the same length only the changed bytes.
fn note_redo(redo: &mut RedoBuffer, table: TableId, key: &[u8], intent: Intent<'_>, old: Option<&[u8]>) {
    match (intent, old) {
        (Intent::Put(new), Some(old)) if old.len() == new.len() => {
            let (start, end) = changed_range(old, new);
            if end - start + PATCH_OVERHEAD_BYTES < new.len() {
                redo.patch(table, key, start, &new[start..end]);
            } else {
                redo.put(table, key, new);
            }
        }
        (Intent::Put(new), _) => redo.put(table, key, new),
        (Intent::Delete, _) => redo.delete(table, key),
        (Intent::PutLarge(_) | Intent::Lock, _) => {}
    }
}

/// Returns the place of a key of `len` bytes behind `before` bytes of other keys.
fn place_of_key(before: usize, len: usize) -> Result<(u32, u32)> {
    let place = |at: usize| {
        u32::try_from(at).map_err(|_| {
            Error::new(
                ErrorKind::OutOfMemory,
                "the keys that a transaction changes or locks are at most 4 GiB",
            )
            .with_advice("commit in smaller transactions")
        })
    };
    Ok((place(before)?, place(before + len)?))
}

/// Bytes that the offset of a patch may take.
const PATCH_OVERHEAD_BYTES: usize = 3;

/// Returns the smallest range in which two slices of one length differ; empty if they are equal.
fn changed_range(old: &[u8], new: &[u8]) -> (usize, usize) {
    let start = common_prefix(old, new);
    (start, new.len() - common_suffix(&old[start..], &new[start..]))
}

#[cfg(test)]
mod tests;
