//! Marker rows, and transactions that only read them. If a reader's result survives a crash, so
//! must all transactions that it observed.
//!
//! A transfer inserts a marker row and often removes its thread's previous one. Readers look up one
//! marker or scan a range of markers. Such a reader has observed two kinds of transactions: those
//! whose markers it saw, and those that had removed the markers that it missed. A reader that
//! writes records the list in the journal. For other readers and snapshots the list must be durable
//! when the read is acknowledged.

use super::bank::Id;
use quenchdb::internals::base::random::Random;
use quenchdb::{Database, Range, Reads, Result, Snapshot, Table, Transaction};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The table, and what is known about it outside of the database.
pub struct Markers {
    table: Table,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// The newest marker of each thread: visible to every transaction that begins now.
    newest: BTreeMap<u8, Id>,
    /// The newest acknowledged marker of each thread: visible to every snapshot that begins now.
    acknowledged: BTreeMap<u8, Id>,
    /// Marker to the last transaction that tried to remove it.
    removed: BTreeMap<Id, Id>,
}

/// The transaction or snapshot that reads.
#[derive(Clone, Copy)]
pub enum View<'a> {
    Transaction(&'a Transaction),
    Snapshot(&'a Snapshot),
}

impl View<'_> {
    fn get(self, table: &Table, key: Id) -> Result<Option<Vec<u8>>> {
        match self {
            View::Transaction(tx) => tx.get(table, key),
            View::Snapshot(snapshot) => snapshot.get(table, key),
        }
    }

    fn keys(self, table: &Table, first: &[u8], end: Bound<&[u8]>, back: bool) -> Result<BTreeSet<Id>> {
        let bounds = (Bound::Included(first), end);
        match self {
            View::Transaction(tx) => ids(tx.range(table, bounds), back),
            View::Snapshot(snapshot) => ids(snapshot.range(table, bounds), back),
        }
    }
}

fn ids<S: Reads>(rows: Range<'_, S>, back: bool) -> Result<BTreeSet<Id>> {
    let id = |row: Result<(Vec<u8>, Vec<u8>)>| row.map(|(key, _)| Id::try_from(&key[..]).expect("an id"));
    if back { rows.rev().map(id).collect() } else { rows.map(id).collect() }
}

impl Markers {
    pub fn of(db: &Database) -> Result<Markers> {
        Ok(Markers { table: db.table_or_create("signs")?, known: Mutex::default() })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Inserts the marker of transaction `id`. Returns the number of the thread's earlier
    /// transaction whose marker it removes.
    pub fn insert(&self, tx: &mut Transaction, id: Id, random: &mut Random) -> Result<Option<u8>> {
        tx.insert(&self.table, id, id)?;
        let before = self.known().newest.get(&id[1]).copied().filter(|_| random.chance(2, 3));
        let Some(before) = before else { return Ok(None) };
        // Readers that miss the marker look up its remover here. Earlier attempts did not commit.
        self.known().removed.insert(before, id);
        tx.remove(&self.table, before)?;
        Ok(Some(before[2]))
    }

    /// Records that transaction `id` is visible.
    pub fn note_visible(&self, id: Id) {
        self.known().newest.insert(id[1], id);
    }

    /// Records that transaction `id` is acknowledged.
    pub fn note_acknowledged(&self, id: Id) {
        self.known().acknowledged.insert(id[1], id);
    }

    /// Returns the newest markers. To be called before the reading transaction begins.
    pub fn newest(&self) -> Vec<Id> {
        self.known().newest.values().copied().collect()
    }

    /// As [`Markers::newest`], for snapshots, which see only acknowledged commits.
    pub fn newest_acknowledged(&self) -> Vec<Id> {
        self.known().acknowledged.values().copied().collect()
    }

    /// Reads one of the `newest` markers, or a range. Returns the transactions that it observed.
    pub fn read(&self, view: View<'_>, newest: &[Id], random: &mut Random) -> Result<Vec<Id>> {
        let Some(one) = newest.get(random.below(newest.len().max(1) as u64) as usize) else {
            return Ok(Vec::new());
        };
        let end = [one[0], one[1] + 1];
        let (seen, missing): (BTreeSet<Id>, Vec<Id>) = match random.below(4) {
            0 | 1 => match view.get(&self.table, *one)? {
                Some(row) => ([Id::try_from(&row[..]).expect("an id")].into(), Vec::new()),
                None => (BTreeSet::new(), vec![*one]),
            },
            // From a thread's newest marker on, or all markers.
            2 => {
                let back = random.chance(1, 2);
                let seen = view.keys(&self.table, one, Bound::Excluded(&end), back)?;
                let missing = [*one].into_iter().filter(|id| !seen.contains(id)).collect();
                (seen, missing)
            }
            _ => {
                let seen = view.keys(&self.table, &[], Bound::Unbounded, random.chance(1, 2))?;
                let missing = newest.iter().copied().filter(|id| !seen.contains(id)).collect();
                (seen, missing)
            }
        };
        let known = self.known();
        let by = |id: &Id| {
            let by = known.removed.get(id).copied();
            by.unwrap_or_else(|| {
                panic!("the marker {id:?}, which is visible, is not seen (newest {newest:?})")
            })
        };
        Ok(seen.into_iter().chain(missing.iter().map(by)).collect())
    }
}
