//! A bank workload whose rows record what each transaction did, and the checks of its content.
//!
//! Transactions transfer money between accounts and record each transfer in a journal. They also
//! read and lengthen chains of values, and write one large value per chain. Account balances follow
//! from the journal. A chain's journal rows have no gaps if everything that was read is still
//! there. Some transactions only read, and record the transactions that they observed; see
//! `markers`.

use super::markers::{Markers, View};
use super::returned_commits::{Commit, ReturnedCommits};
use super::{Content, Model, content};
use quenchdb::internals::base::random::Random;
use quenchdb::{CommitHandle, Database, Durability, Error, ErrorKind, Result, Table, Transaction};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub const ACCOUNTS: u8 = 6;
pub const CHAINS: u8 = 3;

/// The transaction's id: run, thread, number, 0.
pub type Id = [u8; 4];

/// The tables of the workload.
pub struct Tables {
    pub accounts: Table,
    pub journal: Table,
    chains: Table,
    pub documents: Table,
    /// Long rows, overwritten at random. Only in runs with little memory.
    ballast: Option<Table>,
    markers: Markers,
    /// The commits whose calls have returned.
    pub returned_commits: Arc<ReturnedCommits>,
}

impl Tables {
    pub fn of(db: &Database, tight: bool) -> Result<Tables> {
        Ok(Tables {
            accounts: db.table_or_create("accounts")?,
            journal: db.table_or_create("journal")?,
            chains: db.table_or_create("chains")?,
            documents: db.table_or_create("documents")?,
            ballast: if tight { Some(db.table_or_create("ballast")?) } else { None },
            markers: Markers::of(db)?,
            returned_commits: Arc::default(),
        })
    }
}

pub fn number(bytes: Option<Vec<u8>>) -> i64 {
    bytes.map_or(0, |b| i64::from_le_bytes(b.try_into().expect("eight bytes")))
}

/// Transfers money, lengthens a chain that all threads read, and records both in the journal.
pub fn step(tx: &mut Transaction, tables: &Tables, id: Id, random: &mut Random) -> Result<()> {
    let (from, to) = (random.below(ACCOUNTS.into()) as u8, random.below(ACCOUNTS.into()) as u8);
    let chain = random.below(CHAINS.into()) as u8;
    let amount = random.below(50) as i64;
    let a = number(tx.get(&tables.accounts, [from])?);
    tx.insert(&tables.accounts, [from], (a - amount).to_le_bytes())?;
    let b = number(tx.get(&tables.accounts, [to])?);
    tx.insert(&tables.accounts, [to], (b + amount).to_le_bytes())?;
    let length = number(tx.get_for_update(&tables.chains, [chain])?) + 1;
    if random.chance(1, 4) {
        // A delete and an insert of one key in one transaction; the value's length may change.
        tx.remove(&tables.chains, [chain])?;
    }
    tx.insert(&tables.chains, [chain], length.to_le_bytes())?;
    let mut row = vec![from, to, chain];
    row.extend(amount.to_le_bytes());
    row.extend(length.to_le_bytes());
    row.push(write_document(tx, tables, chain, length, random)?);
    row.push(tables.markers.insert(tx, id, random)?.unwrap_or(NO_MARKER));
    row.resize(row.len() + random.below(200) as usize, 7);
    if let Some(ballast) = &tables.ballast {
        for _ in 0..4 {
            tx.insert(ballast, [id[1], random.below(100) as u8], id.repeat(150))?;
        }
    }
    tx.insert(&tables.journal, id, row)
}

/// First byte of a journal row that is not a transfer: the rest lists the observed transactions.
const OBSERVED: u8 = u8::MAX;
/// The transaction removed no marker row.
const NO_MARKER: u8 = u8::MAX;

/// Reads marker rows and records the transactions that it observed.
fn read_markers(
    tx: &mut Transaction,
    tables: &Tables,
    id: Id,
    newest: &[Id],
    random: &mut Random,
) -> Result<()> {
    let observed = tables.markers.read(View::Transaction(tx), newest, random)?;
    tx.insert(&tables.journal, id, [&[OBSERVED], observed.as_flattened()].concat())
}

/// Only reads. Returns the transactions that it observed, which are durable now.
fn only_read(db: &Database, tables: &Tables, random: &mut Random) -> Result<Vec<Id>> {
    if random.chance(1, 2) {
        let newest = if random.chance(1, 3) {
            // After the flush, snapshots see everything that was visible before it.
            let newest = tables.markers.newest();
            db.flush()?;
            newest
        } else {
            tables.markers.newest_acknowledged()
        };
        let snapshot = db.begin_read()?;
        return tables.markers.read(View::Snapshot(&snapshot), &newest, random);
    }
    let newest = tables.markers.newest();
    let tx = db.begin()?;
    let observed = tables.markers.read(View::Transaction(&tx), &newest, random)?;
    tx.commit().map(|_| observed)
}

/// What a transaction did to its chain's document.
const UNTOUCHED: u8 = 0;
const WRITTEN: u8 = 1;
const DELETED: u8 = 2;
const WRITTEN_SMALL: u8 = 3;

/// Returns a large value that depends on the chain and on its length.
fn document(chain: u8, length: i64, small: bool) -> Vec<u8> {
    let mut random = Random::from_seed(u64::from(chain) << 32 | length as u64);
    let long = if random.chance(1, 8) { 20_000 + random.below(30_000) } else { 300 + random.below(6_000) };
    // In runs with little memory: one page or two.
    let bytes = if small { long % 6000 } else { long };
    let mut document = length.to_le_bytes().to_vec();
    document.extend((0..bytes / 8).flat_map(|_| random.next_u64().to_le_bytes()));
    document
}

/// Writes a document, deletes it, or writes one and rolls back to a savepoint.
fn write_document(
    tx: &mut Transaction,
    tables: &Tables,
    chain: u8,
    length: i64,
    random: &mut Random,
) -> Result<u8> {
    // In runs with little memory half of the documents are small. The pages of the large ones are
    // evicted before their transaction commits.
    let small = tables.ballast.is_some() && length % 2 == 0;
    let savepoint = tx.savepoint();
    if random.chance(1, 8) {
        tx.insert(&tables.documents, [chain], document(chain, length + 1, small))?;
        tx.rollback_to(savepoint)?;
    }
    if random.chance(1, 8) {
        tx.remove(&tables.documents, [chain])?;
        return Ok(DELETED);
    }
    if !random.chance(1, 3) {
        return Ok(UNTOUCHED);
    }
    if random.chance(1, 4) {
        tx.insert(&tables.documents, [chain], document(chain, length + 2, small))?;
    }
    tx.insert(&tables.documents, [chain], document(chain, length, small))?;
    Ok(if small { WRITTEN_SMALL } else { WRITTEN })
}

/// How a transaction ended, as far as its caller knows when the call returns.
pub enum CommitOutcome {
    Durable,
    /// Committed asynchronously; the handle reports when the commit is durable.
    Later(CommitHandle),
    /// Committed with bounded loss: durable once the loss window has passed, see `loss`.
    Bounded,
    /// Only read. The transactions that it observed must survive a crash.
    Observed(Vec<Id>),
    /// Committed at level written: survives a kill now, and a power cut as a lazy commit.
    Written,
    /// Committed lazily: durable after the next flush, see `returned_commits`.
    Lazy,
    /// Aborted: its changes must never be visible.
    Aborted,
}

/// Returns whether a transaction that ended with this error has certainly not committed; see
/// `Transaction::commit`.
pub fn is_certain(error: &Error) -> bool {
    let before_anything_happened = [
        ErrorKind::Conflict,
        ErrorKind::Deadlock,
        ErrorKind::LockTimeout,
        ErrorKind::Poisoned,
        ErrorKind::OutOfSpace,
        ErrorKind::OutOfMemory,
        ErrorKind::InvalidArgument,
    ];
    before_anything_happened.contains(&error.kind())
}

/// Number of ways to commit: with bounded loss, lazily or written, and five durable ways.
pub const ALL_KINDS: u64 = 7;
/// Only bounded loss and lazy: these commits request no write.
pub const LOOSE_KINDS: u64 = 2;

/// Runs a transaction that commits in one of the first `kinds` ways, and retries conflicts.
pub fn one(db: &Database, tables: &Tables, id: Id, kinds: u64, random: &mut Random) -> Result<CommitOutcome> {
    let part = random.below(10);
    if part == 0 {
        return only_read(db, tables, random).map(CommitOutcome::Observed);
    }
    let moves_money = part > 2;
    loop {
        let kind = random.below(kinds);
        // At level written a commit requests a write.
        let is_written = kind == 1 && kinds > LOOSE_KINDS && id[2].is_multiple_of(2);
        let durability = match kind {
            0 => Durability::BoundedLoss,
            1 if is_written => Durability::Written,
            1 => Durability::Lazy,
            _ => Durability::Durable,
        };
        let newest = tables.markers.newest();
        let mut tx = db.begin_with(durability)?;
        let done = if moves_money {
            step(&mut tx, tables, id, random)
        } else {
            read_markers(&mut tx, tables, id, &newest, random)
        };
        match done {
            Err(error) if error.is_retryable() => continue,
            done => done?,
        }
        if random.chance(1, 10) {
            tx.abort();
            return Ok(CommitOutcome::Aborted);
        }
        let outcome = match kind {
            0 => tx.commit().map(|_| CommitOutcome::Bounded),
            1 if is_written => tx.commit().map(|_| CommitOutcome::Written),
            1 => tx.commit().map(|_| CommitOutcome::Lazy),
            2..=4 => tx.commit_async().map(CommitOutcome::Later),
            _ => tx.commit().map(|_| CommitOutcome::Durable),
        };
        let mut outcome = outcome?;
        tables.returned_commits.returned(Commit::Journal(id));
        if moves_money {
            tables.markers.note_visible(id);
        }
        if kind == 2
            && let CommitOutcome::Later(handle) = outcome
        {
            handle.wait()?;
            outcome = CommitOutcome::Durable;
        }
        if moves_money && matches!(outcome, CommitOutcome::Durable) {
            tables.markers.note_acknowledged(id);
        }
        return Ok(outcome);
    }
}

/// Checks a database and returns its content. The transactions in `must` have to be there.
pub fn judge(db: &Database, must: &BTreeSet<Id>, context: &str) -> Content {
    judge_both(db, must, &BTreeSet::new(), context)
}

/// Checks a database and returns its content. The transactions in `must` have to be there, those in
/// `never` must not be there.
pub fn judge_both(db: &Database, must: &BTreeSet<Id>, never: &BTreeSet<Id>, context: &str) -> Content {
    let all = content(db);
    judge_content(&all, must, never, context);
    let report = db.verify(None).expect("runs");
    assert!(report.problems.is_empty(), "{context}: {:?}", report.problems);
    all
}

/// Checks content that was read from a database.
pub fn judge_content(all: &Content, must: &BTreeSet<Id>, never: &BTreeSet<Id>, context: &str) {
    let rows = |table: &str| {
        all.iter()
            .filter(|((t, _), _)| t == table)
            .map(|((_, k), v)| (k.clone(), v.clone()))
            .collect::<Vec<_>>()
    };
    let journal: Model = rows("journal").into_iter().collect();
    for id in must {
        assert!(journal.contains_key(&id[..]), "{context}: acknowledged {id:?} is lost");
    }
    for id in never {
        assert!(!journal.contains_key(&id[..]), "{context}: {id:?} is there, and was aborted");
    }
    let journal = judge_observed(journal, context);
    judge_markers(all, &journal, context);
    let mut balances: BTreeMap<u8, i64> = BTreeMap::new();
    let mut chains: BTreeMap<u8, BTreeSet<i64>> = BTreeMap::new();
    for (id, row) in &journal {
        let amount = i64::from_le_bytes(row[3..11].try_into().expect("eight bytes"));
        let length = i64::from_le_bytes(row[11..19].try_into().expect("eight bytes"));
        *balances.entry(row[0]).or_default() -= amount;
        *balances.entry(row[1]).or_default() += amount;
        assert!(chains.entry(row[2]).or_default().insert(length), "{context}: {id:?} repeats a link");
    }
    for (key, value) in rows("accounts") {
        let expected = balances.remove(&key[0]).unwrap_or(0);
        assert_eq!(number(Some(value)), expected, "{context}: account {key:?} and the journal disagree");
    }
    assert!(balances.is_empty(), "{context}: accounts are missing");
    for (chain, links) in chains {
        let last = *links.last().expect("not empty");
        assert_eq!(links.len() as i64, last, "{context}: chain {chain} has a gap, so something read is lost");
        let stored = all.get(&("chains".to_string(), vec![chain])).cloned();
        assert_eq!(number(stored), last, "{context}: chain {chain}");
    }
    judge_documents(all, &journal, context);
    for (key, row) in rows("ballast") {
        let is_whole =
            row.first_chunk().is_some_and(|id: &Id| journal.contains_key(&id[..]) && row == id.repeat(150));
        assert!(is_whole, "{context}: {key:?} of the ballast has no committed writer");
    }
}

/// Checks that each transaction in the journal is there together with all that it observed. Returns
/// the journal rows of transfers.
fn judge_observed(mut journal: Model, context: &str) -> Model {
    for (id, row) in journal.iter().filter(|(_, row)| row[0] == OBSERVED) {
        for observed in row[1..].chunks(size_of::<Id>()) {
            assert!(journal.contains_key(observed), "{context}: {id:?} observed {observed:?}, which is lost");
        }
    }
    journal.retain(|_, row| row[0] != OBSERVED);
    journal
}

/// Checks that the marker rows are those of the committed transactions, except removed ones.
fn judge_markers(all: &Content, journal: &Model, context: &str) {
    let mut expected: BTreeSet<&[u8]> = journal.keys().map(Vec::as_slice).collect();
    for (id, row) in journal.iter().filter(|(_, row)| row[20] != NO_MARKER) {
        let removed = [id[0], id[1], row[20], 0];
        assert!(
            expected.remove(&removed[..]),
            "{context}: {id:?} removed the marker of {removed:?}, which is lost"
        );
    }
    let found: BTreeSet<&[u8]> =
        all.keys().filter(|(table, _)| table == "signs").map(|(_, key)| &key[..]).collect();
    assert_eq!(found, expected, "{context}: the journal and the markers disagree");
}

/// Checks that each chain's document is the one of the last transaction that changed it.
fn judge_documents(all: &Content, journal: &Model, context: &str) {
    let mut last: BTreeMap<u8, (i64, u8)> = BTreeMap::new();
    for row in journal.values().filter(|row| row[19] != UNTOUCHED) {
        let length = i64::from_le_bytes(row[11..19].try_into().expect("eight bytes"));
        let newest = last.entry(row[2]).or_default();
        *newest = (*newest).max((length, row[19]));
    }
    for chain in 0..CHAINS {
        let stored = all.get(&("documents".to_string(), vec![chain]));
        let expected = last.get(&chain).filter(|(_, what)| *what != DELETED);
        let expected = expected.map(|(length, what)| document(chain, *length, *what == WRITTEN_SMALL));
        assert!(stored == expected.as_ref(), "{context}: document of chain {chain}, last touched {last:?}");
    }
}
