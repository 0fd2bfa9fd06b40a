//! One run of a database: a process opens the database, checks its content, works, and ends.

use crate::backups::{Backup, judge_backups, restore_with_log};
use crate::broken_promise;
use crate::config::PlannedFault;
use crate::figures::Figures;
use crate::isolation;
use crate::known::{Found, Known};
use crate::medium::Medium;
use crate::read_only::{EarlierContent, open_read_only};
use crate::repeated_recovery;
use crate::schedule;
use crate::support::bank::{Id, Tables};
use crate::support::returned_commits;
use crate::support::row_history::RowHistory;
use crate::trace::Trace;
use crate::work::{Done, is_expected, work_together};
use quenchdb::internals::base::environment::Environment;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::SimulatedStorage;
use quenchdb::internals::sync::atomic::{AtomicBool, Ordering};
use quenchdb::internals::sync::simulation::{self, PlannedPanic};
use quenchdb::internals::sync::thread;
use quenchdb::{Database, ErrorKind, Settings};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The plan of a run.
#[derive(Clone, Debug)]
pub struct Script {
    pub seed: u64,
    pub settings: Settings,
    pub tight: bool,
    /// The number of the run in the ids of its transactions.
    pub number: u8,
    pub threads: u8,
    pub each: u8,
    /// Number of kinds of transaction ends, see `bank`.
    pub kinds: u64,
    pub fault: PlannedFault,
    pub threads_end_early: bool,
    /// Odds, out of 60, that a thread makes a checkpoint where it may.
    pub checkpoint_odds: u64,
    /// The knowledge from earlier runs.
    pub known: Known,
    /// Whether the run closes the database; otherwise the machine stops.
    pub close: bool,
    /// Whether every promise is checked. False if the device broke its promises: see
    /// `broken_promise`.
    pub judged: bool,
    pub context: String,
    pub trace: Trace,
}

/// The record of a run.
#[derive(Debug, Default)]
pub struct RunRecord {
    /// Transactions that must survive, each with the disk operation from which on: acknowledged, of
    /// bounded loss and older than the window, or committed before a flush, checkpoint or close
    /// began.
    pub acknowledged: Vec<(usize, Id)>,
    /// Transactions that must never appear.
    pub aborted: BTreeSet<Id>,
    /// The history of each thread that owns rows.
    pub histories: Vec<Arc<RowHistory>>,
    /// What transactions observed of each other.
    pub isolation: Option<isolation::RunRecord>,
    /// The number of disk operations when the open returned.
    pub opened_at: Option<usize>,
    pub checkpoints: Vec<Range<usize>>,
    pub backups: Vec<Backup>,
    /// The kinds of faults that fired.
    pub faults: BTreeSet<String>,
    /// The content found at the open.
    pub found: Option<Found>,
    /// The error of a refused open.
    pub refused: Option<quenchdb::Error>,
    pub trace: Trace,
}

impl RunRecord {
    /// Takes the notes of the threads. Closes the database, if the script says so, or calls `stop`.
    pub fn end(
        &mut self,
        db: Database,
        done: Done,
        medium: &dyn Medium,
        script: &Script,
        stop: impl FnOnce(Database),
        figures: &mut Figures,
    ) {
        let Done { returned_commits, mut made_durable, mut histories, .. } = done;
        self.acknowledged = done.acknowledged;
        self.aborted = done.aborted;
        self.checkpoints = done.checkpoints;
        self.backups = done.backups;
        self.isolation = done.isolation;
        if script.close {
            let note = |what: &str| script.trace.note(medium, "main", what);
            note("closes the database");
            let closed = returned_commits.make_durable(|| db.close());
            note(&format!("the close returned: {:?}", closed.as_ref().map(Vec::len)));
            match closed {
                Ok(durable) => {
                    made_durable.extend(durable.into_iter().map(|commit| (medium.changes(), commit)));
                }
                Err(error) => {
                    assert!(
                        !script.judged || !script.fault.allows_work(),
                        "{}, close: {error}",
                        script.context
                    )
                }
            }
        } else {
            stop(db);
        }
        figures.passed("made durable by a flush, a checkpoint or a closing", made_durable.len() as u64);
        returned_commits::acknowledge(&made_durable, &mut self.acknowledged, &mut histories);
        self.histories = histories.into_iter().map(Arc::new).collect();
    }
}

/// One run in this many recovers the crashed disk several times before it opens it.
const RECOVERED_AGAIN: u64 = 24;

/// Executes a run.
pub fn execute(disk: &SimulatedStorage, script: Script, figures: &mut Figures) -> RunRecord {
    let (disk, plan) = (disk.clone(), schedule::of(script.seed));
    let before = disk.fault_counts();
    let mut own = Figures { runs: 1, ..Figures::default() };
    let trace = script.trace.clone();
    if script.judged && script.number > 0 && script.seed % RECOVERED_AGAIN == 1 {
        repeated_recovery::judge(&disk, &script, &mut own);
    }
    let (mut record, summary) = simulation::run(plan, || {
        let record = execute_simulated(&disk, script, &mut own);
        count_own_faults(&mut own);
        record
    });
    own.decisions += summary.decisions;
    own.switches += summary.switches;
    own.mix(summary.fingerprint);
    own.mix_journal(disk.fingerprint());
    for (what, times) in disk.fault_counts().iter() {
        // Faults of the crash that ended a run count with that run.
        own.happened(what, times - if record.opened_at.is_some() { 0 } else { before.of(what).min(times) });
    }
    record.trace = trace;
    record.faults = own.happenings.keys().cloned().collect();
    figures.merge(&own);
    record
}

/// Judges the newest checkpoint as readers and backups see it. An open may repair an error in a
/// checkpoint, or hide it behind the log until a later crash.
fn judge_checkpoint(disk: &SimulatedStorage, script: &Script) {
    let builder = Database::builder().settings(script.settings.clone()).storage(Arc::new(disk.clone()));
    let report = match builder.open_checkpoint("simulated").and_then(|checkpoint| checkpoint.verify(None)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        report => report.unwrap_or_else(|error| panic!("{}: the checkpoint: {error}", script.context)),
    };
    assert!(report.problems.is_empty(), "{}: the checkpoint: {:?}", script.context, report.problems);
}

fn execute_simulated(disk: &SimulatedStorage, script: Script, figures: &mut Figures) -> RunRecord {
    let mut record = RunRecord::default();
    if script.judged && script.seed.is_multiple_of(4) {
        judge_checkpoint(disk, &script);
    }
    let restored = restore_with_log(disk, &script, figures);
    let earlier = open_read_only(disk, &script, figures);
    let note = |what: &str| script.trace.note(disk, "main", what);
    if !matches!(script.fault, PlannedFault::None) {
        note(&format!("from now on the planned fault may occur: {:?}", script.fault));
    }
    script.fault.inject(disk);
    let builder = Database::builder().settings(script.settings.clone()).storage(Arc::new(disk.clone()));
    let repairer = repair_later(disk, &script);
    let db = match builder.open("simulated") {
        Ok(db) => db,
        Err(error) => {
            note(&format!("the open fails: {error}"));
            let is_explained =
                script.judged || !script.fault.allows_work() || broken_promise::is_damage(&error);
            assert!(is_explained || is_expected(&error, &script.settings), "{}: {error}", script.context);
            record.refused = Some(error);
            repairer.end();
            return record;
        }
    };
    record.opened_at = Some(disk.operations());
    note("the database is open");
    let works = script.judged && script.fault.allows_work();
    let before = [(restored, "a restored backup with the log"), (earlier, "the content of a read-only open")];
    record.found = judge_opened(&db, &script, before, figures);
    if record.found.is_some() {
        note("the content is correct");
    }
    let tables = Tables::of(&db, script.tight);
    if let (true, Err(error)) = (works, &tables) {
        assert!(is_expected(error, &script.settings), "{}: tables: {error}", script.context);
    }
    let medium: Arc<dyn Medium> = Arc::new(disk.clone());
    let done = tables
        .map(|tables| work_together(&db, &medium, &script, record.found.as_ref(), tables, figures))
        .unwrap_or_default();
    count_paths(&db, figures);
    let stop = |db| {
        note("the machine stops");
        disk.stop();
        drop(db);
    };
    record.end(db, done, &*medium, &script, stop, figures);
    repairer.end();
    judge_backups(&record.backups, &script, &record, figures);
    record
}

/// Judges the content of an opened database, also by what was found before the open. Returns the
/// content if every promise is judged.
fn judge_opened(
    db: &Database,
    script: &Script,
    before: [(Option<EarlierContent>, &str); 2],
    figures: &mut Figures,
) -> Option<Found> {
    if !script.judged {
        let answer = broken_promise::judge(db, &script.known, script.fault, &script.context);
        figures.passed(answer.name(), 1);
        return None;
    }
    if !script.fault.allows_work() {
        return None;
    }
    let found = script.known.judge(db, &script.context);
    for (content, by) in before {
        content.iter().for_each(|content| content.judge(&found, &format!("{}: {by}", script.context)));
    }
    figures.passed("rows with long keys found", found.long_keys() as u64);
    Some(found)
}

/// Counts the faults inside the process.
fn count_own_faults(figures: &mut Figures) {
    if let Some(own) = Environment::current() {
        figures.happened("memory refused", own.allocations_failed());
        figures.happened("thread refused", own.thread_starts_failed());
    }
    if let Some(thread) = simulation::planned_panic() {
        let own = thread.starts_with("quench-");
        figures.happened(if own { "panic of an engine thread" } else { "panic inside a call" }, 1);
    }
}

/// Waits for a thread, and passes its panic on unless the panic was planned.
pub fn wait_for(thread: thread::JoinHandle<()>) {
    if let Err(panic) = thread.join()
        && !panic.is::<PlannedPanic>()
    {
        std::panic::resume_unwind(panic);
    }
}

/// Starts a thread that repairs the device until the run ends: stuck writes complete, a full disk
/// gets space.
fn repair_later(disk: &SimulatedStorage, script: &Script) -> Repairer {
    let over = Arc::new(AtomicBool::new(false));
    let repairs = matches!(script.fault, PlannedFault::Mishap(_) | PlannedFault::Full(_));
    let (disk, mut random, is_over) = (disk.clone(), Random::from_seed(script.seed ^ 0x4ea1), over.clone());
    let repair = move || {
        thread::sleep(Duration::from_micros(random.below(100_000)));
        disk.set_capacity(None);
        while !is_over.load(Ordering::SeqCst) {
            disk.release_stuck();
            thread::sleep(Duration::from_millis(20));
        }
    };
    Repairer { over, thread: repairs.then(|| thread::spawn("repairer", repair).ok()).flatten() }
}

struct Repairer {
    over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Repairer {
    fn end(self) {
        self.over.store(true, Ordering::SeqCst);
        self.thread.into_iter().for_each(wait_for);
    }
}

/// Counts the code paths that a run took.
pub fn count_paths(db: &Database, figures: &mut Figures) {
    let (statistics, recovery) = (db.statistics(), db.recovery());
    figures.passed("pages left memory", statistics.pages_evicted);
    figures.passed("leaves copied", statistics.pages_copied);
    figures.passed("blocks stolen", statistics.stolen_blocks);
    figures.passed("flushes shared", statistics.shared_flushes);
    figures.passed("images packed", statistics.packs.images_packed);
    figures.passed("conflicts", statistics.conflicts);
    figures.passed("old chunks replayed", recovery.chunks_before_checkpoint);
}
