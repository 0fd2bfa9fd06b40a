//! Transactions whose isolation is judged over all runs of a database: on lists, and on ranges of
//! rows.
//!
//! Two histories continue from run to run. A crash decides the outcomes of a run's transactions:
//! one reported durable before the crash is present, one that began after it never was, any other
//! may be present. The next working run begins by reading everything, and these reads join the
//! histories. The judge of rows goes by CSNs: the marks that are found show which transactions are
//! present. The others are gone for ever, with their CSNs, and the present ones must be explained
//! without them.

use crate::support::Content;
use crate::support::lists::{Ended, Lists, SOME_TIME, elements, list_transaction, read_all};
use crate::support::ranges::{Ranges, mark_of, number, range_transaction, scan_all};
use quench_checker::{History, Level, Observed, Outcome, Verdict, versions};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::SimulatedStorage;
use quenchdb::{Database, Result, Table};
use std::collections::BTreeSet;
use std::sync::Arc;

/// So few rows that two threads meet within a few transactions.
const ROWS: u64 = 24;
const WIDTH: u64 = 8;

/// The span of a transaction, in operations of its disk.
#[derive(Clone, Copy)]
struct Ran {
    begun: usize,
    /// From this operation on a caller may rely on the commit after a crash.
    durable: Option<usize>,
}

impl Ran {
    /// Returns the outcome of a committed transaction if the disk stops after `operations`.
    fn outcome(self, operations: usize) -> Outcome {
        // The write that would be the next operation is in flight, and may survive.
        if self.begun > operations {
            return Outcome::Aborted;
        }
        let durable = self.durable.is_some_and(|durable| durable <= operations);
        if durable { Outcome::Committed } else { Outcome::Unknown }
    }
}

/// The knowledge from earlier runs.
#[derive(Clone)]
pub struct Past {
    lists: Lists,
    history: History,
    ranges: Ranges,
    /// Transactions on rows that are present.
    there: Vec<Observed>,
    /// Transactions on rows that may be present.
    perhaps: Vec<Observed>,
}

impl Default for Past {
    fn default() -> Past {
        let (lists, history) = (Lists::default(), History::default());
        let ranges = Ranges::of(ROWS, WIDTH, true);
        Past { lists, history, ranges, there: Vec::new(), perhaps: Vec::new() }
    }
}

impl std::fmt::Debug for Past {
    /// Without the histories, which are long.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Past { history, there, perhaps, .. } = self;
        write!(f, "{} on lists, {} on rows, {} perhaps", history.len(), there.len(), perhaps.len())
    }
}

impl Past {
    /// Judges a content in which any transaction may be missing.
    ///
    /// # Panics
    /// If the present transactions cannot be explained; the message says why.
    pub fn judge_weakly(&self, content: &Content, context: &str) {
        let now = self.lists.ticks.clone().next();
        let mut history = self.history.clone();
        history.revise(|_, outcome| match outcome {
            Outcome::Committed => Outcome::Unknown,
            outcome => outcome,
        });
        for key in self.lists.keys() {
            let row = content.get(&("lists".into(), key.to_be_bytes().to_vec()));
            history.read(key, elements(row.map(Vec::as_slice)));
        }
        history.end(now, now, Outcome::Committed);
        must_be_isolated(&history.check(Level::Snapshot), "lists", context);
        let rows_of = |name: &'static str| content.iter().filter(move |((table, _), _)| table == name);
        let made =
            rows_of("lists").all(|((_, key), _)| self.lists.keys().any(|list| list.to_be_bytes() == key[..]));
        assert!(made, "{context}: lists that no transaction made");
        let rows = rows_of("rows");
        let rows: Vec<(u64, u64)> =
            rows.map(|((_, key), value)| (number(key.clone()), number(value.clone()))).collect();
        let scan = versions::Scan { first: 0, last: u64::MAX, rows };
        let marks = marks_in(&scan);
        let mut there: Vec<Observed> = self.there.iter().chain(&self.perhaps).cloned().collect();
        there.retain(|transaction| is_marked(transaction, &marks));
        there.push(Observed { begun: u64::MAX, ended: u64::MAX, scans: vec![scan], ..Observed::default() });
        must_be_isolated(&versions::check(&there), "rows", context);
    }
}

fn marks_in(scan: &versions::Scan) -> BTreeSet<u64> {
    scan.rows.iter().map(|(row, _)| *row).collect()
}

fn is_marked(transaction: &Observed, marks: &BTreeSet<u64>) -> bool {
    mark_of(transaction).is_some_and(|mark| marks.contains(&mark))
}

fn must_be_isolated(verdict: &Verdict, what: &str, context: &str) {
    assert!(verdict.is_valid(), "{context}: isolation of {what}: {:#?}", verdict.violations);
}

/// The transactions of a run in progress.
pub struct Isolation {
    lists: Table,
    rows: Table,
    before: Arc<Past>,
    /// Includes the reads at the begin of the run.
    past: Past,
    /// The number of disk operations at the begin.
    read_at: usize,
}

/// The transactions of one thread.
#[derive(Default)]
pub struct Record {
    history: History,
    ran: Vec<Ran>,
    rows: Vec<(Observed, Ran)>,
    committed: u64,
}

impl Record {
    pub fn absorb(&mut self, other: Record) {
        self.committed += other.committed;
        self.history.absorb(other.history);
        self.ran.extend(other.ran);
        self.rows.extend(other.rows);
    }

    fn list_transaction(&mut self, isolation: &Isolation, run: &Run<'_>, random: &mut Random) -> Result<()> {
        let lists = &isolation.past.lists;
        let (begun, at) = (run.disk.operations(), lists.ticks.next());
        let ended = list_transaction(run.db, &isolation.lists, lists, &mut self.history, random);
        let durable = ended.as_ref().is_ok_and(|ended| ended.durable).then(|| run.disk.operations());
        self.ran.push(Ran { begun, durable });
        match ended {
            Ok(Ended { outcome, at: ended, .. }) => {
                self.history.end(at, ended, outcome);
                self.committed += u64::from(outcome == Outcome::Committed);
            }
            Err(error) => {
                self.history.end(at, SOME_TIME, Outcome::Unknown);
                return Err(error);
            }
        }
        Ok(())
    }

    fn range_transaction(&mut self, isolation: &Isolation, run: &Run<'_>, random: &mut Random) -> Result<()> {
        let begun = run.disk.operations();
        match range_transaction(run.db, &isolation.rows, &isolation.past.ranges, random) {
            Ok(Some(committed)) => {
                let durable = committed.durable.then(|| run.disk.operations());
                self.committed += 1;
                self.rows.push((committed.observed, Ran { begun, durable }));
            }
            Ok(None) => {}
            Err(error) if error.is_retryable() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// The tables and handles with which transactions run.
pub struct Run<'r> {
    pub db: &'r Database,
    pub disk: &'r SimulatedStorage,
}

impl Isolation {
    /// Reads the content left by earlier runs.
    pub fn begin(run: &Run<'_>, before: &Arc<Past>) -> Result<Isolation> {
        let (lists, rows) = (run.db.table_or_create("lists")?, run.db.table_or_create("rows")?);
        let mut past = (**before).clone();
        read_all(run.db, &lists, &past.lists, &mut past.history);
        let found = scan_all(run.db, &rows, &past.ranges)?;
        let marks = marks_in(&found.scans[0]);
        let marked = past.perhaps.drain(..).filter(|perhaps| is_marked(perhaps, &marks));
        past.there.extend(marked.map(|transaction| {
            // If the time is unknown, it is not later than this.
            Observed { ended: transaction.ended.min(found.begun - 1), ..transaction }
        }));
        // CSNs above the recovered ones are drawn again: a snapshot with a discarded CSN saw the
        // same without it.
        for snapshot in past.there.iter_mut().filter_map(|transaction| transaction.snapshot.as_mut()) {
            *snapshot = found.snapshot.map_or(*snapshot, |newest| newest.min(*snapshot));
        }
        past.there.push(found);
        Ok(Isolation { lists, rows, before: before.clone(), past, read_at: run.disk.operations() })
    }

    /// Runs one transaction of each kind.
    pub fn step(&self, run: &Run<'_>, record: &mut Record, random: &mut Random) -> Result<()> {
        record.list_transaction(self, run, random)?;
        if random.chance(1, 2) {
            record.range_transaction(self, run, random)?;
        }
        Ok(())
    }

    /// Reads the lists once more, as the run's last transaction.
    pub fn read_again(&self, run: &Run<'_>, record: &mut Record) {
        let begun = run.disk.operations();
        read_all(run.db, &self.lists, &self.past.lists, &mut record.history);
        record.ran.push(Ran { begun, durable: Some(run.disk.operations()) });
    }

    /// Judges everything observed so far.
    ///
    /// # Panics
    /// If transactions were not isolated; the message says which.
    pub fn end(&self, record: Record, context: &str) -> RunRecord {
        let mut past = self.past.clone();
        past.history.absorb(record.history);
        must_be_isolated(&past.history.check(Level::Snapshot), "lists", context);
        let of_life = record.rows.iter().map(|(observed, _)| observed.clone());
        let rows: Vec<Observed> = past.there.iter().cloned().chain(of_life).collect();
        must_be_isolated(&versions::check(&rows), "rows", context);
        let Isolation { before, read_at, .. } = self;
        let (before, ran, rows) = (before.clone(), record.ran, record.rows);
        RunRecord { before, past, read_at: *read_at, ran, rows, judged: record.committed }
    }
}

/// The transactions of a run that has ended.
pub struct RunRecord {
    before: Arc<Past>,
    /// The run's history of lists, and the rows found at its begin.
    past: Past,
    read_at: usize,
    /// Spans of the last transactions in the history of lists.
    ran: Vec<Ran>,
    rows: Vec<(Observed, Ran)>,
    /// Number of judged transactions of this run.
    pub judged: u64,
}

impl std::fmt::Debug for RunRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}; read after {} operations, {} judged", self.past, self.read_at, self.judged)
    }
}

impl RunRecord {
    /// Returns the knowledge if the run ended after `operations` of its disk.
    pub fn after(&self, operations: usize) -> Arc<Past> {
        if operations < self.read_at {
            // No outcome was reported.
            return self.before.clone();
        }
        let mut past = self.past.clone();
        let first = past.history.len() - self.ran.len();
        past.history.revise(|index, outcome| match index.checked_sub(first) {
            Some(own) if outcome == Outcome::Committed || self.ran[own].begun > operations => {
                self.ran[own].outcome(operations)
            }
            _ => outcome,
        });
        for (observed, ran) in &self.rows {
            match ran.outcome(operations) {
                Outcome::Committed => past.there.push(observed.clone()),
                Outcome::Unknown => past.perhaps.push(observed.clone()),
                Outcome::Aborted => {}
            }
        }
        Arc::new(past)
    }
}
