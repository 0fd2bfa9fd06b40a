//! What callers know of their transactions, and the check of a database against it.

use crate::support::modes::Mode;
use quenchdb::internals::device::simulated::SimulatedStorage;
use quenchdb::{CommitHandle, Database, Durability, Error, ErrorKind, Result, Table, Transaction};
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Acknowledged,
    Unknown,
    /// Refused before it could take effect.
    No,
}

/// What a transaction did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// Read the thread's chain and set it to `n`, then wrote rows `[thread, n, 0..rows]` of `len`
    /// bytes each.
    Rows {
        thread: u8,
        n: u8,
        rows: u8,
        len: usize,
    },
    /// Removed these rows.
    Remove {
        thread: u8,
        n: u8,
        rows: u8,
    },
    Create(String),
    Drop(String),
}

/// A transaction and its outcome for the caller.
#[derive(Clone, Debug)]
pub struct Deed {
    pub what: What,
    pub outcome: Outcome,
    /// Operations of the disk when it was acknowledged.
    pub acknowledged_at: usize,
}

/// How a transaction is committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    Wait,
    /// Waited for by [`Writer::wait_all`].
    Async,
    Loss,
    Lazy,
}

/// Number of a transaction's rows, and the bytes of each.
#[derive(Clone, Copy, Debug)]
pub struct Size(pub u8, pub usize);

/// A caller that records the outcomes of its transactions.
pub struct Writer {
    pub disk: SimulatedStorage,
    pub thread: u8,
    pub deeds: Vec<Deed>,
    pub errors: Vec<Error>,
    /// The mode of further transactions.
    pub mode: Mode,
    pending: Vec<(usize, CommitHandle)>,
    next: u8,
}

pub fn value(thread: u8, n: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u8 ^ n).wrapping_mul(29).wrapping_add(thread)).collect()
}

fn fate_of(error: &Error) -> Outcome {
    if error.kind() == ErrorKind::OutcomeUnknown { Outcome::Unknown } else { Outcome::No }
}

impl Writer {
    pub fn new(disk: &SimulatedStorage, thread: u8, deeds: Vec<Deed>) -> Writer {
        let used = deeds.iter().filter_map(|deed| match deed.what {
            What::Rows { thread: of, n, .. } if of == thread => Some(n + 1),
            _ => None,
        });
        let next = used.max().unwrap_or(0);
        let (errors, pending, mode) = (Vec::new(), Vec::new(), Mode::Snapshot);
        Writer { disk: disk.clone(), thread, deeds, errors, mode, pending, next }
    }

    /// Returns the value, or records the error.
    pub fn attempt<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.errors.push(error)).ok()
    }

    fn note(&mut self, what: What, done: Result<Outcome>) {
        let outcome = done.unwrap_or_else(|error| {
            let outcome = fate_of(&error);
            self.errors.push(error);
            outcome
        });
        self.deeds.push(Deed { what, outcome, acknowledged_at: self.disk.operations() });
    }

    fn run(
        &mut self,
        db: &Database,
        what: What,
        how: How,
        work: impl FnOnce(&mut Transaction) -> Result<()>,
    ) {
        let durability = match how {
            How::Wait | How::Async => Durability::Durable,
            How::Loss => Durability::BoundedLoss,
            How::Lazy => Durability::Lazy,
        };
        let mut handle = None;
        let done = db.begin_with(self.mode.options(durability)).and_then(|mut tx| {
            work(&mut tx)?;
            match how {
                How::Wait => tx.commit().map(|_| Outcome::Acknowledged),
                How::Async => {
                    handle = Some(tx.commit_async()?);
                    Ok(Outcome::Unknown)
                }
                How::Loss | How::Lazy => tx.commit().map(|_| Outcome::Unknown),
            }
        });
        self.note(what, done);
        if let Some(handle) = handle {
            self.pending.push((self.deeds.len() - 1, handle));
        }
    }

    /// Runs the next transaction.
    pub fn put(&mut self, db: &Database, table: &Table, Size(rows, len): Size, how: How) {
        let (thread, n) = (self.thread, self.next);
        self.next += 1;
        self.run(db, What::Rows { thread, n, rows, len }, how, |tx| {
            tx.get_for_update(table, [b'c', thread])?;
            (0..rows).try_for_each(|row| tx.insert(table, [thread, n, row], value(thread, n, len)))?;
            tx.insert(table, [b'c', thread], [n])
        });
    }

    /// Runs the next transaction. It locks the row `both` before anything else, and then all rows
    /// of this thread.
    pub fn put_locked(&mut self, db: &Database, table: &Table, Size(rows, len): Size) {
        let (thread, n) = (self.thread, self.next);
        self.next += 1;
        self.run(db, What::Rows { thread, n, rows, len }, How::Wait, |tx| {
            tx.get_for_update(table, "both")?;
            tx.range(table, [thread]..[thread + 1]).try_for_each(|row| row.map(drop))?;
            (0..rows).try_for_each(|row| tx.insert(table, [thread, n, row], value(thread, n, len)))?;
            tx.insert(table, "both", [thread])?;
            tx.insert(table, [b'c', thread], [n])
        });
    }

    /// Removes the rows of an earlier transaction.
    pub fn remove(&mut self, db: &Database, table: &Table, n: u8) {
        let thread = self.thread;
        let rows = self.deeds.iter().find_map(|deed| match deed.what {
            What::Rows { thread: of, n: number, rows, .. } if (of, number) == (thread, n) => Some(rows),
            _ => None,
        });
        let rows = rows.expect("it was written");
        self.run(db, What::Remove { thread, n, rows }, How::Wait, |tx| {
            (0..rows).try_for_each(|row| tx.remove(table, [thread, n, row]).map(drop))
        });
    }

    pub fn create(&mut self, db: &Database, name: &str) {
        let done = db.create_table(name).map(|_| Outcome::Acknowledged);
        self.note(What::Create(name.into()), done);
    }

    pub fn drop_table(&mut self, db: &Database, name: &str) {
        let done = db.drop_table(name).map(|()| Outcome::Acknowledged);
        self.note(What::Drop(name.into()), done);
    }

    pub fn wait_all(&mut self) {
        for (index, handle) in std::mem::take(&mut self.pending) {
            match handle.wait() {
                Ok(()) => {
                    self.deeds[index].outcome = Outcome::Acknowledged;
                    self.deeds[index].acknowledged_at = self.disk.operations();
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
                    self.errors.push(error);
                }
            }
        }
    }

    /// Flushes. Then asynchronous and lazy commits are durable, too.
    pub fn flush(&mut self, db: &Database) {
        let flushed = db.flush();
        if self.attempt(flushed).is_some() {
            let now = self.disk.operations();
            for deed in self.deeds.iter_mut().filter(|deed| deed.outcome == Outcome::Unknown) {
                (deed.outcome, deed.acknowledged_at) = (Outcome::Acknowledged, now);
            }
        }
    }
}

/// Returns the same transactions as known after the first `operations` disk operations.
pub fn as_of(deeds: &[Deed], operations: usize) -> Vec<Deed> {
    let known = |deed: &Deed| match deed.outcome {
        Outcome::Acknowledged if deed.acknowledged_at > operations => {
            Deed { outcome: Outcome::Unknown, ..deed.clone() }
        }
        _ => deed.clone(),
    };
    deeds.iter().map(known).collect()
}

/// Checks that the database holds all acknowledged and no refused transactions, whole and in order.
pub fn judge(db: &Database, deeds: &[Deed], context: &str) {
    judge_tables(db, deeds, context);
    let Ok(table) = db.table("t") else {
        let rows =
            |deed: &&Deed| matches!(deed.what, What::Rows { .. }) && deed.outcome == Outcome::Acknowledged;
        assert!(!deeds.iter().any(|deed| rows(&deed)), "{context}: the table of acknowledged rows is lost");
        return;
    };
    let snapshot = db.begin_read().unwrap_or_else(|error| panic!("{context}: {error}"));
    let get = |key: &[u8]| {
        snapshot.get(&table, key).unwrap_or_else(|error| panic!("{context}: {key:?} cannot be read: {error}"))
    };
    let mut newest: BTreeMap<u8, Option<u8>> = BTreeMap::new();
    let mut gone: BTreeMap<u8, u8> = BTreeMap::new();
    for deed in deeds {
        let What::Rows { thread, n, rows, len } = deed.what else { continue };
        let expected = value(thread, n, len);
        let there = (0..rows)
            .filter(|row| {
                let found = get(&[thread, n, *row]);
                assert!(
                    found.is_none() || found.as_ref() == Some(&expected),
                    "{context}: {deed:?} has a wrong value"
                );
                found.is_some()
            })
            .count();
        assert!(there == 0 || there == usize::from(rows), "{context}: a part of {deed:?} is there");
        let removed = deeds.iter().find_map(|other| match other.what {
            What::Remove { thread: of, n: number, .. } if (of, number) == (thread, n) => Some(other.outcome),
            _ => None,
        });
        let is_there = there > 0;
        match (deed.outcome, removed) {
            (Outcome::No, _) => assert!(!is_there, "{context}: {deed:?} is there"),
            (_, Some(Outcome::Acknowledged)) => {
                assert!(!is_there, "{context}: {deed:?} was removed and is there")
            }
            (Outcome::Acknowledged, None | Some(Outcome::No)) => {
                assert!(is_there, "{context}: {deed:?} is lost")
            }
            _ => {}
        }
        if removed.is_none() && deed.outcome != Outcome::No {
            if is_there {
                let before = gone.get(&thread);
                assert!(
                    before.is_none(),
                    "{context}: {deed:?} is there, {before:?}, which it had read, is not"
                );
            } else {
                gone.insert(thread, n);
            }
        }
        let entry = newest.entry(thread).or_default();
        if is_there
            || removed.is_some_and(|outcome| outcome != Outcome::No) && deed.outcome == Outcome::Acknowledged
        {
            *entry = Some(n);
        }
    }
    for (thread, newest) in newest {
        let chain = get(&[b'c', thread]).map(|value| value[0]);
        let removes =
            deeds.iter().any(|deed| matches!(deed.what, What::Remove { thread: of, .. } if of == thread));
        // The removed rows may be those of the newest transaction.
        let agrees = if removes { chain >= newest } else { chain == newest };
        assert!(agrees, "{context}: the chain of {thread} is at {chain:?}, its rows at {newest:?}");
    }
}

fn judge_tables(db: &Database, deeds: &[Deed], context: &str) {
    let mut may_be: BTreeMap<&str, (bool, bool)> = BTreeMap::new();
    for deed in deeds {
        let (name, exists) = match &deed.what {
            What::Create(name) => (name.as_str(), true),
            What::Drop(name) => (name.as_str(), false),
            _ => continue,
        };
        // (may be missing, may exist)
        let state = may_be.entry(name).or_insert((true, false));
        *state = match (deed.outcome, exists) {
            (Outcome::Acknowledged, exists) => (!exists, exists),
            (Outcome::Unknown, true) => (state.0, true),
            (Outcome::Unknown, false) => (true, state.1),
            (Outcome::No, _) => *state,
        };
    }
    let names = db.tables();
    for (name, (may_miss, may_exist)) in may_be {
        let exists = names.iter().any(|found| found == name);
        assert!(if exists { may_exist } else { may_miss }, "{context}: table {name}: exists {exists}");
    }
}
