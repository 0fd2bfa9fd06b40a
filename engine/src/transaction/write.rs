//! Writing: find the entry, decide by its stamp, leave a version behind, change the page, note the redo.

use super::active::{ActiveTransaction, Change, Isolation, put_back};
use super::catalog::TableState;
use super::descriptor::{Descriptors, RowHolder, RowWait};
use super::large::Replaced;
use super::versions::{Before, Undo, Version, VersionHandle};
use super::view::Sight;
use crate::base::planted::{self, Bug};
use crate::base::{Csn, Error, ErrorKind, Result, TableId};
use crate::sync::epoch::{Guard, pin};
use crate::tree::{Held, LargeReference, LeafHint, LeafWrite, REFERENCE_BYTES};
use std::sync::Arc;

/// What to do with an entry.
#[derive(Clone, Copy, Debug)]
enum Intent<'a> {
    Put(&'a [u8]),
    /// Refer to a large value, whose pages and redo are written.
    PutLarge(&'a LargeReference),
    Delete,
    /// Hold it against other writers without changing it.
    Lock,
}

/// What a look at a latched entry decided.
enum Attempt {
    /// Done; true if the key was there before.
    Done(bool),
    /// Another transaction holds the row.
    Wait(RowHolder),
    /// The stamp changed while we looked.
    Again,
}

/// Checkpoints that a write waits for on a full disk, where each gives back about half of what is reserved, or without memory for versions,
/// where the next one holds only newer ones.
const CHECKPOINTS_WAITED_FOR: u32 = 2;
/// Own changes searched for one that can be overwritten in place.
const RECENT_CHANGES: usize = 16;

impl ActiveTransaction {
    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// `Conflict`; `InvalidArgument` for sizes; `OutOfMemory` at a bound; `NotFound` for a dropped table.
    pub fn insert(&mut self, table: &Arc<TableState>, key: &[u8], value: &[u8]) -> Result<()> {
        self.system.check_key(table, key)?;
        if key.len() + value.len() > self.system.limits.entry_bytes_max {
            self.system.check_value(table, value.len() as u64)?;
            return self.insert_large(table, key, &mut { value }).map(drop);
        }
        self.make_room(key.len() + value.len())?;
        self.change(table, key, Intent::Put(value)).map(drop)
    }

    /// Has the entry at `key` refer to a large value of this transaction.
    pub(super) fn change_to_large(
        &mut self,
        table: &Arc<TableState>,
        key: &[u8],
        reference: &LargeReference,
    ) -> Result<()> {
        self.change(table, key, Intent::PutLarge(reference)).map(drop)
    }

    /// Deletes `key`; true if it was there.
    ///
    /// # Errors
    /// As [`ActiveTransaction::insert`].
    pub fn remove(&mut self, table: &Arc<TableState>, key: &[u8]) -> Result<bool> {
        self.system.check_key(table, key)?;
        self.make_room(key.len())?;
        self.change(table, key, Intent::Delete)
    }

    /// Reads `key` and holds it, there or not, against other writers until the end.
    ///
    /// # Errors
    /// As [`ActiveTransaction::insert`].
    pub fn get_for_update(
        &mut self,
        table: &Arc<TableState>,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool> {
        self.system.check_key(table, key)?;
        // There is no redo, but a key to be kept.
        self.check_memory(key.len())?;
        self.change(table, key, Intent::Lock)?;
        let (found, csn, leaf) = self.system.read(&table.tree, key, self.view(), value)?;
        self.met_leaf(leaf);
        self.depend_on(csn);
        Ok(found)
    }

    fn change(&mut self, table: &Arc<TableState>, key: &[u8], intent: Intent<'_>) -> Result<bool> {
        self.check_unbroken()?;
        self.touch(table)?;
        self.view();
        let room = match intent {
            Intent::Put(value) => value.len(),
            Intent::PutLarge(_) => REFERENCE_BYTES,
            Intent::Delete | Intent::Lock => 0,
        };
        let (mut relieved, mut waited, mut checkpoints, mut row_wait) = (None, 0, 0, None);
        loop {
            let guard = pin();
            let mut hint = self.take_hint(table.id);
            let attempt = {
                let leaf = table.tree.write(key, room, &mut hint);
                leaf.and_then(|leaf| leaf.reserve().map(|()| leaf))
                    .map(|mut leaf| self.attempt(table, &mut leaf, key, intent, &guard))
            };
            self.scratch.hint = ((self.system.number, table.id), hint);
            let attempt = match attempt {
                Err(error) if error.kind() == ErrorKind::OutOfSpace && waited < CHECKPOINTS_WAITED_FOR => {
                    waited += 1;
                    drop(guard);
                    if !self.system.commit().await_checkpoint() {
                        return Err(error);
                    }
                    row_wait = None;
                    continue;
                }
                attempt => attempt?,
            };
            let attempt = match attempt {
                // Versions that nobody needs may not have been given back yet.
                Err(error)
                    if error.kind() == ErrorKind::OutOfMemory && checkpoints <= CHECKPOINTS_WAITED_FOR =>
                {
                    drop(guard);
                    relieved = match relieved {
                        None => Some(self.system.relieve()),
                        Some(ended) => self.system.relieve_after_checkpoint(ended),
                    };
                    if relieved.is_none() {
                        return Err(error);
                    }
                    checkpoints += 1;
                    // That was not for the row.
                    row_wait = None;
                    continue;
                }
                attempt => attempt?,
            };
            match attempt {
                Attempt::Done(existed) => return Ok(existed),
                Attempt::Again => self.system.check_whole()?,
                Attempt::Wait(holder) => {
                    drop(guard);
                    let most = self.system.limits.lock_wait;
                    let row_wait = row_wait.get_or_insert_with(|| RowWait::begin(most));
                    self.wait_for(table, holder, row_wait)?;
                }
            }
        }
    }

    fn take_hint(&mut self, table: TableId) -> LeafHint {
        if self.scratch.hint.0 == (self.system.number, table) {
            std::mem::take(&mut self.scratch.hint.1)
        } else {
            LeafHint::default()
        }
    }

    fn wait_for(&self, table: &TableState, holder: RowHolder, row_wait: &RowWait) -> Result<()> {
        let (system, counters) = (&self.system, self.system.counters());
        let began = system.clock.now();
        let is_whole = || system.check_whole();
        let ended = system.descriptors.wait_for(self.id, holder, row_wait, &is_whole);
        is_whole()?;
        counters.row_waits.add(1);
        counters.row_wait_ns.add(system.clock.now().0.saturating_sub(began.0));
        ended.map_err(|error| {
            counters.conflicts.add(1);
            error.at(crate::base::Location::Table(table.name.clone()))
        })
    }

    /// Looks at the latched entry and changes it if that is allowed now.
    fn attempt(
        &mut self,
        table: &Arc<TableState>,
        leaf: &mut LeafWrite<'_>,
        key: &[u8],
        intent: Intent<'_>,
        guard: &Guard,
    ) -> Result<Attempt> {
        self.met_leaf(leaf.page_id());
        let Some(entry) = leaf.entry() else {
            if !matches!(intent, Intent::Delete) {
                self.apply(table, leaf, key, intent, Undo { prior: 0, before: Before::Absent }, guard)?;
            }
            return Ok(Attempt::Done(false));
        };
        let system = self.system.clone();
        let view = super::view::View { snapshot: self.snapshot.get(), own: self.own };
        let (sight, version) = view.sight(entry.stamp, &system.versions, &system.descriptors, guard);
        let csn = match sight {
            Sight::InProgress(other) => return Ok(Attempt::Wait(system.descriptors.holder(other))),
            Sight::Again => return Ok(Attempt::Again),
            Sight::LeftBehind => {
                if let (Some(handle), Some(version)) = (VersionHandle::from_word(entry.stamp), version) {
                    put_back(leaf, version.undo);
                    self.give_up_version(handle, guard);
                }
                return Ok(Attempt::Again);
            }
            Sight::TooNew(_) if self.isolation == Isolation::Snapshot && !planted::is(Bug::NoConflict) => {
                return Err(system.conflict("the row was changed after this transaction's snapshot", table));
            }
            Sight::TooNew(csn) | Sight::Seen(csn) => csn,
        };
        self.depend_on(csn);
        let existed = !entry.tombstone;
        let own = version.filter(|version| version.stamp == self.own);
        if own.is_some() {
            self.scratch.redo.changes_again();
        }
        if matches!(intent, Intent::Delete) && !existed || matches!(intent, Intent::Lock) && own.is_some() {
            return Ok(Attempt::Done(existed));
        }
        if let Some(own) = own
            && self.overwrite_in_place(leaf, key, intent, entry.stamp, own)?
        {
            return Ok(Attempt::Done(existed));
        }
        let before = match intent {
            Intent::Lock => Before::Unchanged,
            _ if entry.tombstone => Before::Tombstone,
            _ => match leaf.reference()? {
                Some(reference) => Before::Reference(Box::new(reference)),
                None => {
                    leaf.copy_value(&mut self.scratch.value);
                    Before::Value(self.scratch.value.as_slice().into())
                }
            },
        };
        let replaced = if let Before::Reference(reference) = &before { Some(**reference) } else { None };
        let change = self.scratch.changes.len();
        self.apply(table, leaf, key, intent, Undo { prior: entry.stamp, before }, guard)?;
        self.scratch.replaced.extend(replaced.map(|reference| {
            // What only locked the row did not bring the value.
            let is_lock = version.is_some_and(|version| matches!(version.undo.before, Before::Unchanged));
            Replaced { change, birth: if is_lock { Csn::ZERO } else { csn }, reference }
        }));
        Ok(Attempt::Done(existed))
    }

    /// Changes the entry and remembers how to take it back.
    fn apply(
        &mut self,
        table: &Arc<TableState>,
        leaf: &mut LeafWrite<'_>,
        key: &[u8],
        intent: Intent<'_>,
        undo: Undo,
        guard: &Guard,
    ) -> Result<()> {
        let place = place_of_key(self.scratch.keys.len(), key.len())?;
        let old_value = match &undo.before {
            Before::Value(_) => Some(std::mem::take(&mut self.scratch.value)),
            _ => None,
        };
        let absent = matches!(undo.before, Before::Absent);
        let shard = Descriptors::slot(self.id);
        let version = self.system.versions.create(shard, self.own, undo, guard)?;
        // Who meets the row from the same thread would wait for itself.
        self.system.descriptors.set_thread(self.id);
        self.changed_leaf(leaf.page_id());
        let word = version.word();
        let table_index = self.table_index(table);
        self.redo_of_leaf(leaf.page_id());
        self.note_redo(table, key, intent, old_value.as_deref());
        match intent {
            Intent::Put(value) => leaf.put(word, false, value),
            Intent::PutLarge(reference) => leaf.put_reference(word, reference),
            Intent::Delete => leaf.put(word, true, &[]),
            Intent::Lock if absent => leaf.put(word, true, &[]),
            Intent::Lock => leaf.set_stamp(word),
        }
        // Its entry is one of a deleted key, whoever deleted it.
        let deleted = matches!(intent, Intent::Delete)
            || matches!(intent, Intent::Lock) && leaf.entry().is_some_and(|entry| entry.tombstone);
        self.scratch.keys.extend_from_slice(key);
        self.scratch.changes.push(Change {
            table: table_index,
            key: place,
            version,
            deleted,
            lock: matches!(intent, Intent::Lock),
        });
        self.count_deletion(key.len(), false, deleted);
        if let Some(buffer) = old_value {
            self.scratch.value = buffer;
        }
        Ok(())
    }

    /// A second change of the same row since the last savepoint needs no further version.
    fn overwrite_in_place(
        &mut self,
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
        let handle = VersionHandle::from_word(word);
        let changes = &mut self.scratch.changes;
        let recent = self.savepoint_changes.max(changes.len().saturating_sub(RECENT_CHANGES));
        let found = changes[recent..].iter_mut().rev().find(|c| Some(c.version) == handle && !c.lock);
        let Some(change) = found else { return Ok(false) };
        let deletes = matches!(intent, Intent::Delete);
        let deleted = std::mem::replace(&mut change.deleted, deletes);
        let table = self.scratch.tables[change.table as usize].clone();
        let page = leaf.page_id();
        let mut old_value = std::mem::take(&mut self.scratch.value);
        let old = leaf.entry().is_some_and(|entry| entry.held() == Held::Value).then(|| {
            leaf.copy_value(&mut old_value);
            old_value.as_slice()
        });
        self.redo_of_leaf(page);
        self.note_redo(&table, key, intent, old);
        self.scratch.value = old_value;
        self.count_deletion(key.len(), deleted, deletes);
        match intent {
            Intent::Put(value) => leaf.put(word, false, value),
            Intent::PutLarge(reference) => leaf.put_reference(word, reference),
            Intent::Delete => leaf.put(word, true, &[]),
            Intent::Lock => {}
        }
        if let (Some(large), false) = (large, matches!(intent, Intent::Lock)) {
            self.give_up_own(&table, &large);
        }
        Ok(true)
    }

    fn table_index(&mut self, table: &Arc<TableState>) -> u32 {
        let tables = &mut self.scratch.tables;
        let known = tables.iter().rposition(|known| Arc::ptr_eq(known, table));
        known.unwrap_or_else(|| {
            tables.push(table.clone());
            tables.len() - 1
        }) as u32
    }

    /// Appends the operation: of a same-length overwrite only the changed bytes.
    fn note_redo(&mut self, table: &TableState, key: &[u8], intent: Intent<'_>, old: Option<&[u8]>) {
        let redo = &mut self.scratch.redo;
        match (intent, old) {
            (Intent::Put(new), Some(old)) if old.len() == new.len() => {
                let (start, end) = changed_range(old, new);
                if end - start + PATCH_OVERHEAD_BYTES < new.len() {
                    redo.patch(table.id, key, start, &new[start..end]);
                } else {
                    redo.put(table.id, key, new);
                }
            }
            (Intent::Put(new), _) => redo.put(table.id, key, new),
            (Intent::Delete, _) => redo.delete(table.id, key),
            (Intent::PutLarge(_) | Intent::Lock, _) => {}
        }
    }
}

/// Where a key of `len` bytes comes to lie behind `before` bytes of others.
fn place_of_key(before: usize, len: usize) -> Result<(u32, u32)> {
    let place = |at: usize| {
        u32::try_from(at).map_err(|_| {
            Error::new(
                ErrorKind::OutOfMemory,
                "the keys that a transaction changes or locks are at most 4 GiB",
            )
        })
    };
    Ok((place(before)?, place(before + len)?))
}

/// A patch names an offset, which costs up to this many bytes.
const PATCH_OVERHEAD_BYTES: usize = 3;

/// The smallest range in which two slices of one length differ; empty if they are equal.
fn changed_range(old: &[u8], new: &[u8]) -> (usize, usize) {
    let start = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let same_end =
        old[start..].iter().rev().zip(new[start..].iter().rev()).take_while(|(a, b)| a == b).count();
    (start, new.len() - same_end)
}

#[cfg(test)]
mod tests {
    use super::{changed_range, place_of_key};
    use crate::base::ErrorKind;

    #[test]
    fn the_changed_range_is_the_smallest() {
        assert_eq!(changed_range(b"abcdef", b"abXdYf"), (2, 5));
        assert_eq!(changed_range(b"abc", b"abc"), (3, 3));
        assert_eq!(changed_range(b"abc", b"xyz"), (0, 3));
        assert_eq!(changed_range(b"", b""), (0, 0));
        assert_eq!(changed_range(b"aaaa", b"aaba"), (2, 3));
    }

    /// They began at the front again: a rollback put other rows back, and left these.
    #[test]
    fn keys_that_cannot_be_found_again_are_refused() {
        assert_eq!(place_of_key(0, 5).expect("little"), (0, 5));
        let most = u32::MAX as usize;
        assert_eq!(place_of_key(most - 5, 5).expect("the last ones"), (u32::MAX - 5, u32::MAX));
        for (before, len) in [(most - 4, 5), (most, 1), (most + 1, 1), (most * 2, 1)] {
            assert_eq!(place_of_key(before, len).expect_err("too much").kind(), ErrorKind::OutOfMemory);
        }
    }
}
