//! Transactions whose isolation is judged over all runs of a database: on lists, and on ranges of
//! rows.
//!
//! Two histories continue from run to run. A crash decides the outcomes of a run's transactions:
//! one reported durable before the crash is present, one that began after it never was, any other
//! may be present. The next working run begins by reading everything, and these reads join the
//! histories. The judge of rows goes by CSNs: the marks that are found show which transactions are
//! present. The others are gone for ever, with their CSNs, and the present ones must be explained
//! without them.

use crate::medium::Medium;
use crate::support::Content;
use crate::support::lists::{Ended, Lists, SOME_TIME, elements, list_transaction, read_all};
use crate::support::modes::ALL_MODES;
use crate::support::ranges::{Ranges, mark_of, number, range_transaction, scan_all};
use quench_checker::{History, Level, Observed, Outcome, Verdict, versions};
use quenchdb::internals::base::random::Random;
use quenchdb::{Database, Result, Table};
use std::collections::BTreeSet;
use std::sync::Arc;

/// So few rows that two threads access the same one within a few transactions.
const ROWS: u64 = 24;
const WIDTH: u64 = 8;

/// The span of a transaction, in operations of its disk.
#[derive(Clone, Copy)]
struct Span {
    begun: usize,
    /// From this operation on a caller may rely on the commit after a crash.
    durable: Option<usize>,
}

impl Span {
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
pub struct PriorRuns {
    lists: Lists,
    history: History,
    ranges: Ranges,
    /// Transactions on rows that are present.
    present: Vec<Observed>,
    /// Transactions on rows that may be present.
    uncertain: Vec<Observed>,
}

impl Default for PriorRuns {
    fn default() -> PriorRuns {
        let (lists, history) = (Lists::default(), History::default());
        let ranges = Ranges::of(ROWS, WIDTH, true);
        PriorRuns { lists, history, ranges, present: Vec::new(), uncertain: Vec::new() }
    }
}

impl std::fmt::Debug for PriorRuns {
    /// Without the histories, which are long.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PriorRuns { history, present, uncertain, .. } = self;
        write!(f, "{} on lists, {} on rows, {} uncertain", history.len(), present.len(), uncertain.len())
    }
}

impl PriorRuns {
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
        let mut present: Vec<Observed> = self.present.iter().chain(&self.uncertain).cloned().collect();
        present.retain(|transaction| is_marked(transaction, &marks));
        present.push(Observed { begun: u64::MAX, ended: u64::MAX, scans: vec![scan], ..Observed::default() });
        must_be_isolated(&versions::check(&present), "rows", context);
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
    before: Arc<PriorRuns>,
    /// Includes the reads at the begin of the run.
    prior: PriorRuns,
    /// The number of disk operations at the begin.
    read_at: usize,
}

/// The transactions of one thread.
#[derive(Default)]
pub struct Record {
    history: History,
    spans: Vec<Span>,
    rows: Vec<(Observed, Span)>,
    committed: u64,
}

impl Record {
    pub fn absorb(&mut self, other: Record) {
        self.committed += other.committed;
        self.history.absorb(other.history);
        self.spans.extend(other.spans);
        self.rows.extend(other.rows);
    }

    fn list_transaction(&mut self, isolation: &Isolation, run: &Run<'_>, random: &mut Random) -> Result<()> {
        let lists = &isolation.prior.lists;
        let (begun, at) = (run.medium.changes(), lists.ticks.next());
        let ended = list_transaction(run.db, &isolation.lists, lists, ALL_MODES, &mut self.history, random);
        let durable = ended.as_ref().is_ok_and(|ended| ended.durable).then(|| run.medium.changes());
        self.spans.push(Span { begun, durable });
        match ended {
            Ok(Ended { level, outcome, at: ended, .. }) => {
                self.history.end_at(level, at, ended, outcome);
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
        let begun = run.medium.changes();
        match range_transaction(run.db, &isolation.rows, &isolation.prior.ranges, ALL_MODES, random) {
            Ok(Some(committed)) => {
                let durable = committed.durable.then(|| run.medium.changes());
                self.committed += 1;
                self.rows.push((committed.observed, Span { begun, durable }));
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
    pub medium: &'r dyn Medium,
}

impl Isolation {
    /// Reads the content left by earlier runs.
    pub fn begin(run: &Run<'_>, before: &Arc<PriorRuns>) -> Result<Isolation> {
        let (lists, rows) = (run.db.table_or_create("lists")?, run.db.table_or_create("rows")?);
        let mut prior = (**before).clone();
        read_all(run.db, &lists, &prior.lists, &mut prior.history);
        let found = scan_all(run.db, &rows, &prior.ranges)?;
        let marks = marks_in(&found.scans[0]);
        let marked = prior.uncertain.drain(..).filter(|transaction| is_marked(transaction, &marks));
        prior.present.extend(marked.map(|transaction| {
            // If the time is unknown, it is not later than this.
            Observed { ended: transaction.ended.min(found.begun - 1), ..transaction }
        }));
        // CSNs above the recovered ones are drawn again: a snapshot with a discarded CSN saw the
        // same without it.
        for snapshot in prior.present.iter_mut().filter_map(|transaction| transaction.snapshot.as_mut()) {
            *snapshot = found.snapshot.map_or(*snapshot, |newest| newest.min(*snapshot));
        }
        prior.present.push(found);
        Ok(Isolation { lists, rows, before: before.clone(), prior, read_at: run.medium.changes() })
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
        let begun = run.medium.changes();
        read_all(run.db, &self.lists, &self.prior.lists, &mut record.history);
        record.spans.push(Span { begun, durable: Some(run.medium.changes()) });
    }

    /// Judges everything observed so far.
    ///
    /// # Panics
    /// If transactions were not isolated; the message says which.
    pub fn end(&self, record: Record, context: &str) -> RunRecord {
        let mut prior = self.prior.clone();
        prior.history.absorb(record.history);
        must_be_isolated(&prior.history.check(Level::Snapshot), "lists", context);
        let of_run = record.rows.iter().map(|(observed, _)| observed.clone());
        let rows: Vec<Observed> = prior.present.iter().cloned().chain(of_run).collect();
        must_be_isolated(&versions::check(&rows), "rows", context);
        let Isolation { before, read_at, .. } = self;
        let (before, spans, rows) = (before.clone(), record.spans, record.rows);
        RunRecord { before, prior, read_at: *read_at, spans, rows, judged: record.committed }
    }
}

/// The transactions of a run that has ended.
pub struct RunRecord {
    before: Arc<PriorRuns>,
    /// The run's history of lists, and the rows found at its begin.
    prior: PriorRuns,
    read_at: usize,
    /// Spans of the last transactions in the history of lists.
    spans: Vec<Span>,
    rows: Vec<(Observed, Span)>,
    /// Number of judged transactions of this run.
    pub judged: u64,
}

impl std::fmt::Debug for RunRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}; read after {} operations, {} judged", self.prior, self.read_at, self.judged)
    }
}

impl RunRecord {
    /// Returns the knowledge if the run ended after `operations` of its disk.
    pub fn after(&self, operations: usize) -> Arc<PriorRuns> {
        if operations < self.read_at {
            // No outcome was reported.
            return self.before.clone();
        }
        let mut prior = self.prior.clone();
        let first = prior.history.len() - self.spans.len();
        prior.history.revise(|index, outcome| match index.checked_sub(first) {
            Some(own) if outcome == Outcome::Committed || self.spans[own].begun > operations => {
                self.spans[own].outcome(operations)
            }
            _ => outcome,
        });
        for (observed, span) in &self.rows {
            match span.outcome(operations) {
                Outcome::Committed => prior.present.push(observed.clone()),
                Outcome::Unknown => prior.uncertain.push(observed.clone()),
                Outcome::Aborted => {}
            }
        }
        Arc::new(prior)
    }
}
