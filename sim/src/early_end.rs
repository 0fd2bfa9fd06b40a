//! Threads that end early: by a panic of user code inside or between calls of the engine, or by
//! returning with open handles.
//!
//! Nothing here is ever committed except a whole row of the journal.

use crate::support::bank::{ACCOUNTS, CHAINS, Id, Tables, step};
use crate::support::returned_commits::Commit;
use crate::work::Shared;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::sync::thread;
use quenchdb::{CommitHandle, Database, Durability, Result, Snapshot, Table, Transaction};
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

/// The handles that an ending thread leaves for another thread to drop.
#[derive(Default)]
pub struct OpenHandles {
    transactions: Vec<Transaction>,
    snapshots: Vec<Snapshot>,
    handles: Vec<CommitHandle>,
}

/// The payload of a planned panic of user code.
struct Planned;

fn panic_as_planned() -> ! {
    resume_unwind(Box::new(Planned))
}

/// User code that the engine calls; panics at call number `after`.
struct Tripwire<'r> {
    after: u64,
    random: &'r mut Random,
}

impl Tripwire<'_> {
    fn step(&mut self) {
        if self.after == 0 {
            panic_as_planned();
        }
        self.after -= 1;
    }
}

/// A large value that is being produced.
impl Read for Tripwire<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.step();
        let some = 1 + self.random.below(3000) as usize;
        let some = some.min(buffer.len());
        buffer[..some].fill(9);
        Ok(some)
    }
}

/// A key whose conversion panics.
struct BadKey;

impl AsRef<[u8]> for BadKey {
    fn as_ref(&self) -> &[u8] {
        panic_as_planned()
    }
}

/// Ends the thread with an open transaction that changed rows, by a panic or a return. Returns the
/// handles that stay open.
pub fn end(shared: &Shared, id: Id, random: &mut Random) -> OpenHandles {
    let mut left = OpenHandles::default();
    let panics = random.chance(2, 3);
    // An error ends the thread, too.
    let ended = catch_unwind(AssertUnwindSafe(|| drop(open_handles(shared, id, random, panics, &mut left))));
    if let Err(panic) = ended
        && !panic.is::<Planned>()
    {
        resume_unwind(panic);
    }
    if random.chance(1, 2) { OpenHandles::default() } else { left }
}

/// Opens as many handles as possible, and then calls user code.
fn open_handles(
    shared: &Shared,
    id: Id,
    random: &mut Random,
    panics: bool,
    left: &mut OpenHandles,
) -> Result<()> {
    let (db, tables) = (&shared.db, &shared.tables);
    let durability =
        [Durability::Durable, Durability::BoundedLoss, Durability::Lazy][random.below(3) as usize];
    if random.chance(1, 2) {
        let mut tx = db.begin_with(durability)?;
        step(&mut tx, tables, id, random)?;
        left.handles.push(tx.commit_async()?);
        tables.returned_commits.returned(Commit::Journal(id));
    }
    let snapshot = db.begin_read()?;
    let reader = snapshot.read_value(&tables.documents, [random.below(CHAINS.into()) as u8])?;
    let mut rows = snapshot.range(&tables.journal, ..);
    for _ in 0..random.below(4) {
        let _ = rows.next().transpose()?;
    }
    if let Some(mut reader) = reader {
        let mut some = vec![0; random.below(5000) as usize];
        // A failed read does not matter here.
        let _ = reader.read(&mut some);
        if panics && random.chance(1, 6) {
            panic_as_planned();
        }
    }
    let mut tx = db.begin_with(durability)?;
    for _ in 0..random.below(8) {
        some_change(&mut tx, tables, random)?;
    }
    if panics {
        panic_in_a_call(db, tx, tables, random)?;
    } else if random.chance(1, 2) {
        left.transactions.push(tx);
        left.snapshots.push(db.begin_read()?);
    }
    Ok(())
}

/// Makes one change in a transaction that will not be committed.
fn some_change(tx: &mut Transaction, tables: &Tables, random: &mut Random) -> Result<()> {
    let (account, chain) = (random.below(ACCOUNTS.into()) as u8, random.below(CHAINS.into()) as u8);
    let table = one_of(tables, random);
    match random.below(8) {
        0 => drop(tx.get_for_update(&tables.accounts, [account])?),
        1 => drop(tx.remove(table, [account])?),
        2 => {
            let savepoint = tx.savepoint();
            tx.insert(table, [account], vec![3; random.below(9000) as usize])?;
            tx.rollback_to(savepoint)?;
        }
        3 => {
            let long = Tripwire { after: u64::MAX, random };
            tx.insert_from(&tables.documents, [chain], long.take(20_000))?;
        }
        4 => {
            for row in tx.range(table, ..) {
                row?;
            }
        }
        5 => drop(tx.read_value(&tables.documents, [chain])?),
        _ => tx.insert(table, [account, chain, 1], vec![5; random.below(400) as usize])?,
    }
    Ok(())
}

fn one_of<'t>(tables: &'t Tables, random: &mut Random) -> &'t Table {
    [&tables.accounts, &tables.journal, &tables.documents][random.below(3) as usize]
}

/// Panics inside a call of the engine, or between two calls.
fn panic_in_a_call(db: &Database, mut tx: Transaction, tables: &Tables, random: &mut Random) -> Result<()> {
    let after = random.below(8);
    let key = [random.below(ACCOUNTS.into()) as u8];
    match random.below(8) {
        0 => drop(tx.insert_from(&tables.documents, key, Tripwire { after, random })),
        1 => {
            let mut keys = Tripwire { after, random };
            let bad = std::iter::from_fn(|| {
                keys.step();
                Some(key)
            });
            tx.prefetch(&tables.accounts, bad)?;
        }
        2 => tx.insert(&tables.accounts, BadKey, BadKey)?,
        3 => drop(tx.range(&tables.journal, BadKey..).next()),
        4 => {
            for (number, row) in tx.range(&tables.journal, ..).rev().enumerate() {
                row?;
                if number as u64 == after {
                    panic_as_planned();
                }
            }
        }
        5 => {
            let mut calls_left = after;
            let progress = move |_: &str, _, _| {
                calls_left = calls_left.checked_sub(1).unwrap_or_else(|| panic_as_planned());
            };
            drop(db.verify(Some(Box::new(progress))));
        }
        _ => {
            drop(tx);
            db.transact(|tx| {
                for _ in 0..after {
                    some_change(tx, tables, random)?;
                }
                panic_as_planned()
            })?;
        }
    }
    panic_as_planned()
}

/// Drops the handles of an ended thread in random order, or waits for their commits first.
pub fn release(mut left: OpenHandles, random: &mut Random) {
    thread::sleep(Duration::from_micros(random.below(3_000)));
    if random.chance(1, 2) {
        left.handles.drain(..).for_each(|handle| drop(handle.wait()));
    }
    if random.chance(1, 2) {
        left.snapshots.clear();
    }
    for tx in left.transactions {
        if random.chance(1, 2) { tx.abort() } else { drop(tx) }
    }
}
