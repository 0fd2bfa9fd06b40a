//! The work of a run's threads, and the notes about it.

use crate::backups::Backup;
use crate::config::PlannedFault;
use crate::early_end;
use crate::figures::Figures;
use crate::isolation::{self, Isolation, Record, Run};
use crate::known::Found;
use crate::medium::Medium;
use crate::run::{Script, wait_for};
use crate::support::bank::{ALL_KINDS, CommitOutcome, Id, Tables, is_certain, one};
use crate::support::checked_rows::{CheckedRows, Environment};
use crate::support::loss::{Bounded, Moment};
use crate::support::returned_commits::{Commit, ReturnedCommits};
use crate::support::row_history::{Keys, Reached, RowHistory};
use quenchdb::internals::base::clock::Clock;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::sync::simulation;
use quenchdb::internals::sync::{Mutex, thread};
use quenchdb::{CommitHandle, Database, ErrorKind, Result, Settings, Snapshot};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Returns true if a transaction may fail with this error on a sound device: memory is short,
/// another transaction was first, or the log is at a bound low enough for a run to reach.
pub fn is_expected(error: &quenchdb::Error, settings: &Settings) -> bool {
    let at_bound = error.kind() == ErrorKind::OutOfSpace && settings.log_bytes_max < ROOM;
    error.kind() == ErrorKind::OutOfMemory || error.is_retryable() || at_bound
}

/// Returns whether a writer may fail with this error because another machine has claimed its
/// database.
fn is_end_of_writer(error: &quenchdb::Error) -> bool {
    use ErrorKind::{Fenced, OutOfSpace, OutcomeUnknown, Poisoned};
    // The log is full if no checkpoint succeeds any more.
    let kinds = [Fenced, OutcomeUnknown, Poisoned, OutOfSpace];
    kinds.contains(&error.kind())
}

/// Log bytes that a run never exceeds, so that no commit waits for a checkpoint.
const ROOM: u64 = 8 << 20;

impl Shared {
    /// Notes an action of thread `number`.
    fn note(&self, number: u8, what: &str) {
        self.script.trace.note(&*self.medium, format_args!("thread {number}"), what);
    }

    /// Notes that bounded-loss transaction `id` has returned.
    fn note_bounded_loss(&self, id: Id) {
        let mut bounded = self.bounded.lock().expect("no panic under it");
        bounded.iter_mut().for_each(|bounded| bounded.returned(id, self.now()));
    }

    /// Requires every overdue commit to be durable from now on.
    fn note_overdue(&self) {
        let mut bounded = self.bounded.lock().expect("no panic under it");
        let overdue: Vec<Id> = bounded.iter_mut().flat_map(|bounded| bounded.overdue(self.now())).collect();
        drop(bounded);
        let operations = self.medium.changes();
        self.notes.lock().overdue.extend(overdue.into_iter().map(|id| (operations, id)));
    }

    /// Makes a call that makes everything committed so far durable.
    pub fn make_durable<T>(&self, call: impl FnOnce() -> Result<T>) -> Result<()> {
        let durable = self.tables.returned_commits.make_durable(call)?;
        let operations = self.medium.changes();
        self.notes.lock().made_durable.extend(durable.into_iter().map(|commit| (operations, commit)));
        Ok(())
    }

    fn now(&self) -> Moment {
        Moment { time: Duration::from_nanos(self.clock.now().0), leaps: simulation::preemptions() }
    }

    /// Notes why a transaction was refused. Returns true if other transactions may succeed.
    fn continues_after(&self, error: &quenchdb::Error) -> bool {
        if error.kind() == ErrorKind::OutOfMemory {
            self.notes.lock().refused_memory += 1;
            return true;
        }
        self.expect(error);
        let no_space = error.kind() == ErrorKind::OutOfSpace;
        self.notes.lock().refused_space += u64::from(no_space);
        no_space
    }

    /// Requires that transactions succeed without faults, and that a takeover has clear errors.
    fn expect(&self, error: &quenchdb::Error) {
        let Script { judged, fault, settings, context, .. } = &self.script;
        let is_expected = match fault {
            PlannedFault::Takeover => is_end_of_writer(error) || is_expected(error, settings),
            fault => !*judged || !fault.allows_work() || is_expected(error, settings),
        };
        assert!(is_expected, "{context}: {error}");
    }
}

/// State shared by the threads of a run.
pub struct Shared {
    script: Script,
    /// What the database lies on.
    pub medium: Arc<dyn Medium>,
    pub db: Database,
    pub tables: Tables,
    /// Rows of earlier runs, as they were found.
    to_adopt: Vec<(Arc<RowHistory>, Reached)>,
    /// None in runs with a planned fault.
    isolation: Option<Isolation>,
    clock: Clock,
    pub notes: Mutex<Notes>,
    /// Mutexes of the system, because the simulation may switch threads or panic at its own.
    histories: std::sync::Mutex<Vec<RowHistory>>,
    /// None in runs with a planned fault, and after a jump of the clock: then it is unknown what is
    /// overdue.
    bounded: std::sync::Mutex<Option<Bounded>>,
}

/// Notes taken while the threads work.
#[derive(Default)]
pub struct Notes {
    acknowledged: Vec<(usize, Id)>,
    overdue: Vec<(usize, Id)>,
    made_durable: Vec<(usize, Commit)>,
    aborted: BTreeSet<Id>,
    checkpoints: Vec<Range<usize>>,
    pub backups: Vec<Backup>,
    transactions: u64,
    refused_memory: u64,
    refused_space: u64,
    early_ends: u64,
    clock_jumps: u64,
    record: Record,
    /// Threads that drop the handles of threads that ended early.
    releasing_threads: Vec<thread::JoinHandle<()>>,
}

/// The work of all threads.
#[derive(Default)]
pub struct Done {
    pub acknowledged: Vec<(usize, Id)>,
    pub made_durable: Vec<(usize, Commit)>,
    pub aborted: BTreeSet<Id>,
    pub histories: Vec<RowHistory>,
    pub checkpoints: Vec<Range<usize>>,
    pub backups: Vec<Backup>,
    pub isolation: Option<isolation::RunRecord>,
    pub returned_commits: Arc<ReturnedCommits>,
}

/// Runs the threads of a run until the last has ended.
pub fn work_together(
    db: &Database,
    medium: &Arc<dyn Medium>,
    script: &Script,
    found: Option<&Found>,
    tables: Tables,
    figures: &mut Figures,
) -> Done {
    let must_work = script.judged && script.fault.allows_work();
    let isolation = (must_work && script.kinds == ALL_KINDS).then(|| begin_isolation(db, &**medium, script));
    let settings = &script.settings;
    let is_on_time =
        must_work && matches!(script.fault, PlannedFault::None) && settings.log_bytes_max == ROOM;
    let write_time = medium.write_time().filter(|_| is_on_time);
    let bounded = write_time.map(|write_time| Bounded::new(settings.loss_window, write_time));
    let shared = Arc::new(Shared {
        script: script.clone(),
        medium: medium.clone(),
        db: db.clone(),
        tables,
        to_adopt: found.map(|found| script.known.to_adopt(found)).unwrap_or_default(),
        isolation: isolation.flatten(),
        clock: Clock::real(),
        notes: Mutex::default(),
        histories: std::sync::Mutex::default(),
        bounded: std::sync::Mutex::new(bounded),
    });
    let threads: Vec<_> = (0..script.threads).filter_map(|number| start(&shared, number).ok()).collect();
    threads.into_iter().for_each(wait_for);
    let releasing_threads = std::mem::take(&mut shared.notes.lock().releasing_threads);
    releasing_threads.into_iter().for_each(wait_for);
    if let Some(write_time) = write_time.filter(|_| script.seed.is_multiple_of(2)) {
        // No thread does anything until all loss windows are over.
        thread::sleep(settings.loss_window + write_time + Duration::from_micros(1));
        shared.note_overdue();
    }
    shared.end(figures)
}

impl Shared {
    /// Returns the notes after all threads have ended.
    fn end(&self, figures: &mut Figures) -> Done {
        let mut notes = std::mem::take(&mut *self.notes.lock());
        let histories = std::mem::take(&mut *self.histories.lock().expect("no panic under it"));
        figures.transactions += notes.transactions;
        figures.acknowledged += notes.acknowledged.len() as u64;
        figures.passed("loss window over", notes.overdue.len() as u64);
        figures.passed("aborted", notes.aborted.len() as u64);
        let count =
            |what: fn(&RowHistory) -> usize| histories.iter().map(|history| what(history) as u64).sum();
        figures.passed("commits of rows of its own", count(RowHistory::commits));
        figures.passed("tables of its own created or dropped", count(RowHistory::table_changes));
        figures.passed(
            "rows of an earlier run continued",
            count(|history| usize::from(history.continues_another())),
        );
        figures.happened("thread panic or early end", notes.early_ends);
        figures.happened("clock jump", notes.clock_jumps);
        figures.passed("memory short", notes.refused_memory);
        figures.passed("space refused", notes.refused_space);
        let isolation = judge_isolation(self, std::mem::take(&mut notes.record));
        figures.judged += isolation.as_ref().map_or(0, |isolation| isolation.judged);
        notes.acknowledged.append(&mut notes.overdue);
        Done {
            acknowledged: notes.acknowledged,
            made_durable: notes.made_durable,
            aborted: notes.aborted,
            histories,
            checkpoints: notes.checkpoints,
            backups: notes.backups,
            isolation,
            returned_commits: self.tables.returned_commits.clone(),
        }
    }
}

fn start(shared: &Arc<Shared>, number: u8) -> std::io::Result<thread::JoinHandle<()>> {
    let shared = shared.clone();
    thread::spawn("worker", move || work(&shared, number))
}

/// The rows that a thread owns. The history is noted however the thread ends.
struct OwnedRows<'s> {
    rows: Option<CheckedRows>,
    shared: &'s Shared,
}

/// Draws the kind of keys, and whether the owner continues with rows of an earlier run.
const OWNERS: u64 = 0x0a11_e500;

impl<'s> OwnedRows<'s> {
    fn of(shared: &'s Shared, number: u8) -> OwnedRows<'s> {
        let script = &shared.script;
        let mut random = Random::from_seed(script.seed ^ OWNERS);
        // The rows stay for a later run that continues with them, too.
        let is_long = random.chance(1, if script.number == 0 { 4 } else { 24 });
        let keys = if is_long { Keys::Long } else { Keys::Short };
        let adopts = random.chance(1, 2);
        let rows = match shared.to_adopt.get(usize::from(number)).filter(|_| adopts) {
            Some((history, reached)) => CheckedRows::continue_from(&shared.db, history, *reached),
            None => CheckedRows::of(&shared.db, [script.number, number], keys),
        };
        let rows = rows.map_err(|error| shared.expect(&error)).ok();
        OwnedRows { rows, shared }
    }
}

impl Drop for OwnedRows<'_> {
    fn drop(&mut self) {
        let history = self.rows.as_mut().map(CheckedRows::end);
        self.shared.histories.lock().expect("no panic under it").extend(history);
    }
}

fn work(shared: &Arc<Shared>, number: u8) {
    let script = &shared.script;
    let mut random = Random::from_seed(script.seed ^ u64::from(number) << 32);
    let mut own = OwnedRows::of(shared, number);
    let mut handles: Vec<(Id, CommitHandle)> = Vec::new();
    let mut snapshot: Option<Snapshot> = None;
    let mut record = Record::default();
    let operations = || shared.medium.changes();
    let (db, returned_commits) = (&shared.db, &shared.tables.returned_commits);
    let environment = Environment { db, returned_commits, operations: &operations, kinds: script.kinds };
    let note = |what: &str| shared.note(number, what);
    let acknowledge = |id| {
        shared.notes.lock().acknowledged.push((shared.medium.changes(), id));
        note(&format!("{id:?} is durable"));
    };
    for n in 0..script.each {
        let id = [script.number, number, n, 0];
        if script.threads_end_early && random.chance(1, 12) {
            note("ends early");
            shared.notes.lock().early_ends += 1;
            shared.notes.lock().record.absorb(std::mem::take(&mut record));
            let left = early_end::end(shared, [id[0], id[1], id[2], 1], &mut random);
            let releaser = move || early_end::release(left, &mut random);
            shared.notes.lock().releasing_threads.extend(thread::spawn("releaser", releaser));
            return;
        }
        if let Some(isolation) = &shared.isolation {
            let run = Run { db: &shared.db, medium: &*shared.medium };
            // Memory was refused.
            isolation.step(&run, &mut record, &mut random).unwrap_or_else(|error| shared.expect(&error));
        }
        note(&format!("{id:?} begins"));
        let ended = one(&shared.db, &shared.tables, id, script.kinds, &mut random);
        note(&format!("{id:?} returned: {}", describe_outcome(&ended)));
        match ended {
            Ok(CommitOutcome::Durable) => acknowledge(id),
            Ok(CommitOutcome::Later(handle)) => handles.push((id, handle)),
            Ok(CommitOutcome::Observed(ids)) => ids.into_iter().for_each(acknowledge),
            Ok(CommitOutcome::Bounded) => shared.note_bounded_loss(id),
            Ok(CommitOutcome::Aborted) => drop(shared.notes.lock().aborted.insert(id)),
            Ok(CommitOutcome::Written | CommitOutcome::Lazy) => {}
            Err(error) => {
                if is_certain(&error) {
                    shared.notes.lock().aborted.insert(id);
                }
                if !shared.continues_after(&error) {
                    break;
                }
            }
        }
        if let Some(rows) = own.rows.as_mut().filter(|_| random.chance(1, 2)) {
            note("begins a step with its own rows");
            let step = rows.step(&environment, &mut random);
            note(&format!("the step returned: {step:?}"));
            if step.is_err_and(|error| !shared.continues_after(&error)) {
                break;
            }
        }
        shared.note_overdue();
        shared.notes.lock().transactions += 1;
        for (id, _) in handles.extract_if(.., |(_, handle)| handle.is_committed()) {
            acknowledge(id);
        }
        between_transactions(shared, number, &mut snapshot, &mut random);
    }
    shared.notes.lock().record.absorb(record);
}

/// Returns the reported outcome of a transaction in words, for the trace.
fn describe_outcome(ended: &Result<CommitOutcome>) -> String {
    match ended {
        Ok(CommitOutcome::Durable) => "durable".into(),
        Ok(CommitOutcome::Later(_)) => "a commit handle".into(),
        Ok(CommitOutcome::Observed(met)) => format!("read-only, observed {met:?}"),
        Ok(CommitOutcome::Bounded) => "bounded loss".into(),
        Ok(CommitOutcome::Aborted) => "aborted".into(),
        Ok(CommitOutcome::Written) => "written".into(),
        Ok(CommitOutcome::Lazy) => "lazy".into(),
        Err(error) => format!("failed: {error}"),
    }
}

/// Reads the content left by earlier runs, for the judge of isolation.
fn begin_isolation(db: &Database, medium: &dyn Medium, script: &Script) -> Option<Isolation> {
    let begun = Isolation::begin(&Run { db, medium }, &script.known.observed);
    begun
        .inspect_err(|error| {
            assert!(is_expected(error, &script.settings), "{}, isolation: {error}", script.context)
        })
        .ok()
}

/// Judges what transactions observed of each other.
fn judge_isolation(shared: &Shared, mut record: Record) -> Option<isolation::RunRecord> {
    let isolation = shared.isolation.as_ref()?;
    // Not always, because a read makes durable what it reads.
    if shared.script.number == 0 && shared.script.seed & 8 == 0 {
        isolation.read_again(&Run { db: &shared.db, medium: &*shared.medium }, &mut record);
    }
    Some(isolation.end(record, &shared.script.context))
}

/// Makes a backup, more often if an earlier one can be its base.
fn back_up(shared: &Shared, random: &mut Random) {
    let odds = if shared.notes.lock().backups.is_empty() { 8 } else { 3 };
    if random.chance(1, odds) {
        let backup = Backup::make(shared, random);
        shared.notes.lock().backups.extend(backup);
    }
}

/// Makes everything committed so far durable.
fn make_durable_traced<T>(
    shared: &Shared,
    number: u8,
    what: &str,
    call: impl FnOnce() -> Result<T>,
) -> Result<()> {
    shared.note(number, &format!("begins {what}"));
    let done = shared.make_durable(call);
    shared.note(number, &format!("{what} returned: {done:?}"));
    done
}

/// Occasional other actions of a thread. Without permission to work they return an error.
fn between_transactions(shared: &Shared, number: u8, snapshot: &mut Option<Snapshot>, random: &mut Random) {
    let db = &shared.db;
    if random.chance(shared.script.checkpoint_odds, 60) {
        let begin = shared.medium.changes();
        if make_durable_traced(shared, number, "a checkpoint", || db.checkpoint()).is_ok() {
            shared.notes.lock().checkpoints.push(begin..shared.medium.changes());
        }
        return;
    }
    match random.below(60) {
        3 => {
            let bits = 1 + random.below(22);
            // Noted before the call: other threads notice its effect at once.
            shared.notes.lock().clock_jumps += 1;
            *shared.bounded.lock().expect("no panic under it") = None;
            simulation::jump(Duration::from_micros(1 + random.below(1 << bits)));
            shared.note(number, "the clock has jumped");
        }
        4 => *snapshot = db.begin_read().ok(),
        5 => *snapshot = None,
        6 | 12 | 15 => drop(make_durable_traced(shared, number, "a flush", || db.flush())),
        13 if random.chance(1, 2) => {
            drop(make_durable_traced(shared, number, "compact", || db.compact(None)))
        }
        14 | 16 | 17 => back_up(shared, random),
        7..=11 => thread::sleep(Duration::from_micros(random.below(20_000))),
        _ => {}
    }
}
