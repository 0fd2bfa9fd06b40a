//! One life of a database: a process opens it, judges it, works, and ends.

use crate::again;
use crate::config::Trouble;
use crate::copies::{Backup, judge_backups, restore_with_log};
use crate::figures::Figures;
use crate::isolation;
use crate::known::{Found, Known};
use crate::look::look;
use crate::story::Story;
use crate::support::bank::{Id, Tables};
use crate::support::past::Past;
use crate::support::so_far;
use crate::weak;
use crate::work::{Done, is_expected, work_together};
use quenchdb::internals::base::environment::Environment;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::SimulatedStorage;
use quenchdb::internals::sync::atomic::{AtomicBool, Ordering};
use quenchdb::internals::sync::simulation::{self, Plan, PlannedPanic};
use quenchdb::internals::sync::thread;
use quenchdb::{Database, ErrorKind, Settings};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// What is to happen in a life.
#[derive(Clone, Debug)]
pub struct Script {
    pub seed: u64,
    pub settings: Settings,
    pub tight: bool,
    /// The number in the ids of its transactions.
    pub number: u8,
    pub threads: u8,
    pub each: u8,
    /// How transactions end, see `bank`.
    pub kinds: u64,
    pub trouble: Trouble,
    pub threads_end_early: bool,
    /// Of 60 times that a thread might make a checkpoint so many it does.
    pub checkpoint_odds: u64,
    /// From the lives before.
    pub known: Known,
    /// A clean end; otherwise the machine stops under it.
    pub close: bool,
    /// Whether all that is promised is judged. Not where the device broke its promises: see `weak`.
    pub judged: bool,
    pub context: String,
    pub story: Story,
}

/// What happened.
#[derive(Debug, Default)]
pub struct Lived {
    /// What must be there, from so many disk operations on: acknowledged, of bounded loss and longer ago than its window, or committed before
    /// a flush, a checkpoint or a closing began.
    pub acknowledged: Vec<(usize, Id)>,
    /// What must never be there.
    pub aborted: BTreeSet<Id>,
    /// Of each thread that had rows of its own.
    pub shadows: Vec<Arc<Past>>,
    /// What transactions saw of each other.
    pub isolation: Option<isolation::Lived>,
    /// The number of disk operations when it was open.
    pub opened_at: Option<usize>,
    pub checkpoints: Vec<Range<usize>>,
    pub backups: Vec<Backup>,
    /// The kinds of faults that fired.
    pub faults: BTreeSet<String>,
    /// What it found.
    pub found: Option<Found>,
    /// Why it could not be opened.
    pub refused: Option<quenchdb::Error>,
    pub story: Story,
}

/// Before one life in so many the crashed disk is recovered several times.
const RECOVERED_AGAIN: u64 = 24;

/// Lives it.
pub fn live(disk: &SimulatedStorage, script: Script, figures: &mut Figures) -> Lived {
    let (disk, plan) = (disk.clone(), Plan::of(script.seed));
    let before = disk.fault_counts();
    let mut own = Figures { lives: 1, ..Figures::default() };
    let story = script.story.clone();
    if script.judged && script.number > 0 && script.seed % RECOVERED_AGAIN == 1 {
        again::judge(&disk, &script, &mut own);
    }
    let (mut lived, summary) = simulation::run(plan, || {
        let lived = live_simulated(&disk, script, &mut own);
        count_own_faults(&mut own);
        lived
    });
    own.decisions += summary.decisions;
    own.switches += summary.switches;
    own.mix(summary.fingerprint);
    own.mix(disk.fingerprint());
    for (what, times) in disk.fault_counts().iter() {
        // What its own crash brought is counted with it.
        own.happened(what, times - if lived.opened_at.is_some() { 0 } else { before.of(what).min(times) });
    }
    lived.story = story;
    lived.faults = own.happenings.keys().cloned().collect();
    figures.merge(&own);
    lived
}

/// The newest checkpoint as readers and backups see it. What is wrong in it an opening may mend, or hide behind the log, and a later crash show.
fn judge_checkpoint(disk: &SimulatedStorage, script: &Script) {
    let builder = Database::builder().settings(script.settings.clone()).storage(Arc::new(disk.clone()));
    let report = match builder.open_checkpoint("simulated").and_then(|checkpoint| checkpoint.verify(None)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        report => report.unwrap_or_else(|error| panic!("{}: the checkpoint: {error}", script.context)),
    };
    assert!(report.problems.is_empty(), "{}: the checkpoint: {:?}", script.context, report.problems);
}

fn live_simulated(disk: &SimulatedStorage, script: Script, figures: &mut Figures) -> Lived {
    let mut lived = Lived::default();
    if script.judged && script.seed.is_multiple_of(4) {
        judge_checkpoint(disk, &script);
    }
    let restored = restore_with_log(disk, &script, figures);
    let seen = look(disk, &script, figures);
    let told = |what: &str| script.story.tell(disk, "main", what);
    if !matches!(script.trouble, Trouble::None) {
        told(&format!("from now on there may be trouble: {:?}", script.trouble));
    }
    script.trouble.befall(disk);
    let builder = Database::builder().settings(script.settings.clone()).storage(Arc::new(disk.clone()));
    let healer = heal_later(disk, &script);
    let db = match builder.open("simulated") {
        Ok(db) => db,
        Err(error) => {
            told(&format!("is refused: {error}"));
            let is_told = script.judged || !script.trouble.lets_work() || weak::is_damage(&error);
            assert!(is_told || is_expected(&error, &script.settings), "{}: {error}", script.context);
            lived.refused = Some(error);
            healer.end();
            return lived;
        }
    };
    lived.opened_at = Some(disk.operations());
    told("has opened it");
    let works = script.judged && script.trouble.lets_work();
    if works {
        let found = script.known.judge(&db, &script.context);
        for (seen, by) in [(restored, "a restored backup with the log"), (seen, "what only a reader saw")] {
            seen.iter().for_each(|seen| seen.judge(&found, &format!("{}: {by}", script.context)));
        }
        figures.passed("rows with long keys found", found.long_keys() as u64);
        lived.found = Some(found);
        told("has judged what is there");
    } else if !script.judged {
        let answer = weak::judge(&db, &script.known, script.trouble, &script.context);
        figures.passed(answer.name(), 1);
    }
    let tables = Tables::of(&db, script.tight);
    if let (true, Err(error)) = (works, &tables) {
        assert!(is_expected(error, &script.settings), "{}: tables: {error}", script.context);
    }
    let done = tables
        .map(|tables| work_together(&db, disk, &script, lived.found.as_ref(), tables, figures))
        .unwrap_or_default();
    look_back(&db, figures);
    let Done { so_far, mut made_durable, mut shadows, .. } = done;
    lived.acknowledged = done.acknowledged;
    lived.aborted = done.aborted;
    lived.checkpoints = done.checkpoints;
    lived.backups = done.backups;
    lived.isolation = done.isolation;
    if script.close {
        told("closes");
        let closed = so_far.make_durable(|| db.close());
        told(&format!("has closed: {:?}", closed.as_ref().map(Vec::len)));
        match closed {
            Ok(durable) => made_durable.extend(durable.into_iter().map(|commit| (disk.operations(), commit))),
            Err(error) => assert!(!works, "{}, close: {error}", script.context),
        }
    } else {
        told("the machine stops");
        disk.stop();
        drop(db);
    }
    healer.end();
    figures.passed("made durable by a flush, a checkpoint or a closing", made_durable.len() as u64);
    so_far::tell(&made_durable, &mut lived.acknowledged, &mut shadows);
    lived.shadows = shadows.into_iter().map(Arc::new).collect();
    judge_backups(&lived.backups, &script, &lived, figures);
    lived
}

/// What went wrong inside the process.
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

/// Waits for a thread; its panic is the caller's, unless it was planned.
pub fn wait_for(thread: thread::JoinHandle<()>) {
    if let Err(panic) = thread.join()
        && !panic.is::<PlannedPanic>()
    {
        std::panic::resume_unwind(panic);
    }
}

/// Where the device recovers: what is stuck goes on, a full disk has space again. Until the life is over.
fn heal_later(disk: &SimulatedStorage, script: &Script) -> Healer {
    let over = Arc::new(AtomicBool::new(false));
    let heals = matches!(script.trouble, Trouble::Mishap(_) | Trouble::Full(_));
    let (disk, mut random, seen) = (disk.clone(), Random::from_seed(script.seed ^ 0x4ea1), over.clone());
    let heal = move || {
        thread::sleep(Duration::from_micros(random.below(100_000)));
        disk.set_capacity(None);
        while !seen.load(Ordering::SeqCst) {
            disk.release_stuck();
            thread::sleep(Duration::from_millis(20));
        }
    };
    Healer { over, thread: heals.then(|| thread::spawn("healer", heal).ok()).flatten() }
}

struct Healer {
    over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Healer {
    fn end(self) {
        self.over.store(true, Ordering::SeqCst);
        self.thread.into_iter().for_each(wait_for);
    }
}

/// Which paths a life took.
fn look_back(db: &Database, figures: &mut Figures) {
    let (statistics, recovery) = (db.statistics(), db.recovery());
    figures.passed("pages left memory", statistics.pages_evicted);
    figures.passed("leaves copied", statistics.pages_copied);
    figures.passed("blocks stolen", statistics.stolen_blocks);
    figures.passed("flushes shared", statistics.shared_flushes);
    figures.passed("images packed", statistics.packs.images_packed);
    figures.passed("conflicts", statistics.conflicts);
    figures.passed("old chunks replayed", recovery.chunks_before_checkpoint);
}
