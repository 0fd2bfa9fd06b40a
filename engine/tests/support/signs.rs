//! Rows that say who put them up, and transactions that only read them: whoever is there after a
//! crash, so is everybody whom it met.
//!
//! A transaction of the bank puts up a sign, and often takes down the one before it of its thread.
//! Others look at signs, at one or at a range of them, and change none. What such a reader met is a
//! list of transactions: of those whose signs it saw, and of those that had taken down the signs
//! which it knew of and did not see. A reader that writes puts the list in the journal; one that
//! does not, or a snapshot, is told, and whoever is told may rely on it.

use super::bank::Id;
use quenchdb::internals::base::random::Random;
use quenchdb::{Database, Result, Snapshot, Table, Transaction};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The table, and what is known of it outside of the database.
pub struct Signs {
    table: Table,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// The newest sign of each thread: its transaction is visible to each that begins now.
    newest: BTreeMap<u8, Id>,
    /// The newest that was acknowledged: visible to each snapshot that begins now, too.
    acknowledged: BTreeMap<u8, Id>,
    /// Who took down a sign, or was the last to try.
    taken_down: BTreeMap<Id, Id>,
}

/// What one reads with.
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
        let rows = match self {
            View::Transaction(tx) => tx.range::<&[u8]>(table, bounds),
            View::Snapshot(snapshot) => snapshot.range::<&[u8]>(table, bounds),
        };
        let id = |row: Result<(Vec<u8>, Vec<u8>)>| row.map(|(key, _)| Id::try_from(&key[..]).expect("an id"));
        if back { rows.rev().map(id).collect() } else { rows.map(id).collect() }
    }
}

impl Signs {
    pub fn of(db: &Database) -> Result<Signs> {
        Ok(Signs { table: db.table_or_create("signs")?, known: Mutex::default() })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts up the sign of transaction `id`. Returns the number of the one of its thread that it
    /// takes down.
    pub fn put_up(&self, tx: &mut Transaction, id: Id, random: &mut Random) -> Result<Option<u8>> {
        tx.insert(&self.table, id, id)?;
        let before = self.known().newest.get(&id[1]).copied().filter(|_| random.chance(2, 3));
        let Some(before) = before else { return Ok(None) };
        // Who sees that it is gone finds here by whom: earlier ones that tried have not committed.
        self.known().taken_down.insert(before, id);
        tx.remove(&self.table, before)?;
        Ok(Some(before[2]))
    }

    /// Transaction `id` is visible now.
    pub fn is_up(&self, id: Id) {
        self.known().newest.insert(id[1], id);
    }

    /// Transaction `id` is acknowledged, too.
    pub fn is_acknowledged(&self, id: Id) {
        self.known().acknowledged.insert(id[1], id);
    }

    /// Signs that were up a moment ago. To be asked for before the transaction begins that looks
    /// for them.
    pub fn newest(&self) -> Vec<Id> {
        self.known().newest.values().copied().collect()
    }

    /// As [`Signs::newest`], for a snapshot, which sees what is acknowledged.
    pub fn newest_acknowledged(&self) -> Vec<Id> {
        self.known().acknowledged.values().copied().collect()
    }

    /// Looks at one of the `newest`, or at a range of signs: whom it met.
    pub fn look(&self, view: View<'_>, newest: &[Id], random: &mut Random) -> Result<Vec<Id>> {
        let Some(one) = newest.get(random.below(newest.len().max(1) as u64) as usize) else {
            return Ok(Vec::new());
        };
        let end = [one[0], one[1] + 1];
        let (seen, missing): (BTreeSet<Id>, Vec<Id>) = match random.below(4) {
            0 | 1 => match view.get(&self.table, *one)? {
                Some(row) => ([Id::try_from(&row[..]).expect("an id")].into(), Vec::new()),
                None => (BTreeSet::new(), vec![*one]),
            },
            // From the newest of a thread on, or all that there are.
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
            let by = known.taken_down.get(id).copied();
            by.unwrap_or_else(|| panic!("the sign {id:?}, which is up, is not seen (newest {newest:?})"))
        };
        Ok(seen.into_iter().chain(missing.iter().map(by)).collect())
    }
}
