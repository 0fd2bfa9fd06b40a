//! One life of a database: a process opens it, judges it, works, and ends.

use crate::config::Trouble;
use crate::ends;
use crate::figures::Figures;
use crate::isolation::{self, Isolation, Record, Run};
use crate::known::{Found, Known};
use crate::support::bank::{ALL_KINDS, Id, Tables, Told, is_certain, one};
use crate::support::loss::{Bounded, Moment};
use crate::support::shadow::{Past, Shadow};
use crate::weak;
use quenchdb::base::clock::Clock;
use quenchdb::base::random::Random;
use quenchdb::base::surroundings::Surroundings;
use quenchdb::device::simulated::SimulatedStorage;
use quenchdb::sync::atomic::{AtomicBool, Ordering};
use quenchdb::sync::simulation::{self, Plan, PlannedPanic};
use quenchdb::sync::{Mutex, thread};
use quenchdb::{CommitHandle, Database, ErrorKind, Settings, Snapshot};
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
    /// From the lives before.
    pub known: Known,
    /// A clean end; otherwise the machine stops under it.
    pub close: bool,
    /// Whether all that is promised is judged. Not where the device broke its promises: see `weak`.
    pub judged: bool,
    pub context: String,
}

/// What happened.
#[derive(Debug, Default)]
pub struct Lived {
    /// What must be there, from so many disk operations on: acknowledged, or of bounded loss and longer ago than its window.
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
    /// The kinds of faults that fired.
    pub faults: BTreeSet<String>,
    /// What it found.
    pub found: Option<Found>,
    /// Why it could not be opened.
    pub refused: Option<quenchdb::Error>,
}

/// Whether a transaction may fail with this where nothing is wrong: memory is short, or somebody else was first; or the log is at its bound,
/// where that is so low that a life can reach it.
fn is_expected(error: &quenchdb::Error, settings: &Settings) -> bool {
    let at_bound = error.kind() == ErrorKind::OutOfSpace && settings.log_bytes_max < ROOM;
    error.kind() == ErrorKind::OutOfMemory || error.is_retryable() || at_bound
}

/// Of a log that never waits for checkpoints here.
const ROOM: u64 = 8 << 20;
/// What writing a log takes at most, on a device without troubles, with all that it waits for.
const WRITES: Duration = Duration::from_millis(10);

impl Shared {
    /// Transaction `id`, of bounded loss, has returned.
    fn is_bounded(&self, id: Id) {
        let mut bounded = self.bounded.lock().expect("no panic under it");
        bounded.iter_mut().for_each(|bounded| bounded.told(id, self.now()));
    }

    /// Whatever is overdue has to be there from now on.
    fn note_overdue(&self) {
        let mut bounded = self.bounded.lock().expect("no panic under it");
        let overdue: Vec<Id> = bounded.iter_mut().flat_map(|bounded| bounded.overdue(self.now())).collect();
        drop(bounded);
        let operations = self.disk.operations();
        self.notes.lock().overdue.extend(overdue.into_iter().map(|id| (operations, id)));
    }

    fn now(&self) -> Moment {
        Moment { time: Duration::from_nanos(self.clock.now().0), leaps: simulation::leaps() }
    }

    /// Notes why a transaction was refused. Whether others may do better.
    fn goes_on_after(&self, error: &quenchdb::Error) -> bool {
        if error.kind() == ErrorKind::OutOfMemory {
            self.notes.lock().refused_memory += 1;
            return true;
        }
        self.expect(error);
        let no_space = error.kind() == ErrorKind::OutOfSpace;
        self.notes.lock().refused_space += u64::from(no_space);
        no_space
    }

    /// Where nothing is wrong that keeps transactions from going on they have to.
    fn expect(&self, error: &quenchdb::Error) {
        let works = self.script.judged && self.script.trouble.lets_work();
        assert!(!works || is_expected(error, &self.script.settings), "{}: {error}", self.script.context);
    }
}

/// Shared by the threads of a life.
pub struct Shared {
    script: Script,
    disk: SimulatedStorage,
    pub db: Database,
    pub tables: Tables,
    /// Not in lives with troubles.
    isolation: Option<Isolation>,
    clock: Clock,
    notes: Mutex<Notes>,
    /// Not the simulation's mutexes, which a thread may be switched at, or panic: nothing is waited for under them.
    shadows: std::sync::Mutex<Vec<Arc<Past>>>,
    /// Not in lives with troubles, and no longer when the clock has jumped: nobody can say then what is overdue.
    bounded: std::sync::Mutex<Option<Bounded>>,
}

/// What is written down while they work.
#[derive(Default)]
struct Notes {
    acknowledged: Vec<(usize, Id)>,
    overdue: Vec<(usize, Id)>,
    aborted: BTreeSet<Id>,
    checkpoints: Vec<Range<usize>>,
    transactions: u64,
    refused_memory: u64,
    refused_space: u64,
    early_ends: u64,
    clock_jumps: u64,
    record: Record,
    /// Threads that let go what others have left.
    heirs: Vec<thread::JoinHandle<()>>,
}

/// Lives it.
pub fn live(disk: &SimulatedStorage, script: Script, figures: &mut Figures) -> Lived {
    let (disk, plan) = (disk.clone(), Plan::of(script.seed));
    let before = disk.fault_counts();
    let mut own = Figures { lives: 1, ..Figures::default() };
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
    script.trouble.befall(disk);
    let builder = Database::builder().settings(script.settings.clone()).storage(Arc::new(disk.clone()));
    let healer = heal_later(disk, &script);
    let db = match builder.open("simulated") {
        Ok(db) => db,
        Err(error) => {
            let is_told = script.judged || !script.trouble.lets_work() || weak::is_damage(&error);
            assert!(is_told || is_expected(&error, &script.settings), "{}: {error}", script.context);
            lived.refused = Some(error);
            healer.end();
            return lived;
        }
    };
    lived.opened_at = Some(disk.operations());
    let works = script.judged && script.trouble.lets_work();
    if works {
        lived.found = Some(script.known.judge(&db, &script.context));
    } else if !script.judged {
        let answer = weak::judge(&db, &script.known, script.trouble, &script.context);
        figures.passed(answer.name(), 1);
    }
    let tables = Tables::of(&db, script.tight);
    if let (true, Err(error)) = (works, &tables) {
        assert!(is_expected(error, &script.settings), "{}: tables: {error}", script.context);
    }
    if let Ok(tables) = tables {
        let isolation = (works && script.kinds == ALL_KINDS).then(|| begin_isolation(&db, disk, &script));
        let settings = &script.settings;
        let is_on_time = works && matches!(script.trouble, Trouble::None) && settings.log_bytes_max == ROOM;
        let bounded = is_on_time.then(|| Bounded::new(settings.loss_window, WRITES));
        let shared = Arc::new(Shared {
            script: script.clone(),
            disk: disk.clone(),
            db: db.clone(),
            tables,
            isolation: isolation.flatten(),
            clock: Clock::real(),
            notes: Mutex::default(),
            shadows: std::sync::Mutex::default(),
            bounded: std::sync::Mutex::new(bounded),
        });
        let threads: Vec<_> = (0..script.threads).filter_map(|number| start(&shared, number).ok()).collect();
        threads.into_iter().for_each(wait_for);
        let heirs = std::mem::take(&mut shared.notes.lock().heirs);
        heirs.into_iter().for_each(wait_for);
        if is_on_time && script.seed.is_multiple_of(2) {
            // Nobody does anything until all windows are over.
            thread::sleep(script.settings.loss_window + WRITES + Duration::from_micros(1));
            shared.note_overdue();
        }
        let mut notes = shared.notes.lock();
        lived.acknowledged = std::mem::take(&mut notes.acknowledged);
        lived.aborted = std::mem::take(&mut notes.aborted);
        lived.shadows = std::mem::take(&mut *shared.shadows.lock().expect("no panic under it"));
        lived.checkpoints = std::mem::take(&mut notes.checkpoints);
        figures.transactions += notes.transactions;
        figures.acknowledged += lived.acknowledged.len() as u64;
        figures.passed("loss window over", notes.overdue.len() as u64);
        figures.passed("aborted", lived.aborted.len() as u64);
        figures.passed(
            "commits of rows of its own",
            lived.shadows.iter().map(|past| past.commits() as u64).sum(),
        );
        lived.acknowledged.append(&mut notes.overdue);
        figures.happened("thread panic or early end", notes.early_ends);
        figures.happened("clock jump", notes.clock_jumps);
        figures.passed("memory short", notes.refused_memory);
        figures.passed("space refused", notes.refused_space);
        lived.isolation = judge_isolation(&shared, std::mem::take(&mut notes.record));
        figures.judged += lived.isolation.as_ref().map_or(0, |isolation| isolation.judged);
    }
    look_back(&db, figures);
    if script.close {
        let closed = db.close();
        if works {
            closed.unwrap_or_else(|error| panic!("{}, close: {error}", script.context));
        }
    } else {
        disk.stop();
        drop(db);
    }
    healer.end();
    lived
}

/// What went wrong inside the process.
fn count_own_faults(figures: &mut Figures) {
    if let Some(own) = Surroundings::of_this_thread() {
        figures.happened("memory refused", own.memory_refused());
        figures.happened("thread refused", own.threads_refused());
    }
    if let Some(thread) = simulation::planned_panic() {
        let own = thread.starts_with("quench-");
        figures.happened(if own { "panic of an engine thread" } else { "panic inside a call" }, 1);
    }
}

/// Waits for a thread; its panic is the caller's, unless it was planned.
fn wait_for(thread: thread::JoinHandle<()>) {
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

fn start(shared: &Arc<Shared>, number: u8) -> std::io::Result<thread::JoinHandle<()>> {
    let shared = shared.clone();
    thread::spawn("worker", move || work(&shared, number))
}

/// The rows that a thread owns. However it ends, what it did is noted.
struct Own<'s> {
    shadow: Option<Shadow>,
    shared: &'s Shared,
}

impl<'s> Own<'s> {
    fn of(shared: &'s Shared, number: u8) -> Own<'s> {
        let script = &shared.script;
        let shadow = Shadow::of(&shared.db, [script.number, number]);
        let shadow = shadow.map_err(|error| shared.expect(&error)).ok();
        Own { shadow, shared }
    }
}

impl Drop for Own<'_> {
    fn drop(&mut self) {
        let past = self.shadow.as_mut().map(|shadow| Arc::new(shadow.end()));
        self.shared.shadows.lock().expect("no panic under it").extend(past);
    }
}

fn work(shared: &Arc<Shared>, number: u8) {
    let script = &shared.script;
    let mut random = Random::from_seed(script.seed ^ u64::from(number) << 32);
    let mut own = Own::of(shared, number);
    let mut handles: Vec<(Id, CommitHandle)> = Vec::new();
    let mut snapshot: Option<Snapshot> = None;
    let mut record = Record::default();
    let note = |id| shared.notes.lock().acknowledged.push((shared.disk.operations(), id));
    for n in 0..script.each {
        let id = [script.number, number, n, 0];
        if script.threads_end_early && random.chance(1, 12) {
            shared.notes.lock().early_ends += 1;
            shared.notes.lock().record.absorb(std::mem::take(&mut record));
            let left = ends::end(shared, [id[0], id[1], id[2], 1], &mut random);
            let heir = move || ends::let_go(left, &mut random);
            shared.notes.lock().heirs.extend(thread::spawn("heir", heir));
            return;
        }
        if let Some(isolation) = &shared.isolation {
            let run = Run { db: &shared.db, disk: &shared.disk };
            // Refused for want of memory.
            isolation.step(&run, &mut record, &mut random).unwrap_or_else(|error| shared.expect(&error));
        }
        match one(&shared.db, &shared.tables, id, script.kinds, &mut random) {
            Ok(Told::Durable) => note(id),
            Ok(Told::Later(handle)) => handles.push((id, handle)),
            Ok(Told::Met(ids)) => ids.into_iter().for_each(note),
            Ok(Told::Bounded) => shared.is_bounded(id),
            Ok(Told::Aborted) => drop(shared.notes.lock().aborted.insert(id)),
            Ok(Told::Nothing) => {}
            Err(error) => {
                if is_certain(&error) {
                    shared.notes.lock().aborted.insert(id);
                }
                if !shared.goes_on_after(&error) {
                    break;
                }
            }
        }
        if let Some(shadow) = own.shadow.as_mut().filter(|_| random.chance(1, 2))
            && let Err(error) =
                shadow.step(&shared.db, &|| shared.disk.operations(), script.kinds, &mut random)
            && !shared.goes_on_after(&error)
        {
            break;
        }
        shared.note_overdue();
        shared.notes.lock().transactions += 1;
        for (id, _) in handles.extract_if(.., |(_, handle)| handle.is_committed()) {
            note(id);
        }
        among_transactions(shared, &mut snapshot, &mut random);
    }
    shared.notes.lock().record.absorb(record);
}

/// Reads what is there of the lives before, for the judge of isolation.
fn begin_isolation(db: &Database, disk: &SimulatedStorage, script: &Script) -> Option<Isolation> {
    let begun = Isolation::begin(&Run { db, disk }, &script.known.seen);
    begun
        .inspect_err(|error| {
            assert!(is_expected(error, &script.settings), "{}, isolation: {error}", script.context)
        })
        .ok()
}

/// Judges what transactions saw of each other.
fn judge_isolation(shared: &Shared, mut record: Record) -> Option<isolation::Lived> {
    let isolation = shared.isolation.as_ref()?;
    // Not always: whoever reads has what is read made durable.
    if shared.script.number == 0 && shared.script.seed & 8 == 0 {
        isolation.read_again(&Run { db: &shared.db, disk: &shared.disk }, &mut record);
    }
    Some(isolation.end(record, &shared.script.context))
}

/// What a thread does now and then besides.
fn among_transactions(shared: &Shared, snapshot: &mut Option<Snapshot>, random: &mut Random) {
    match random.below(60) {
        0..=2 => {
            let begin = shared.disk.operations();
            if shared.db.checkpoint().is_ok() {
                shared.notes.lock().checkpoints.push(begin..shared.disk.operations());
            }
        }
        3 => {
            let bits = 1 + random.below(22);
            // Before it happens: others notice at once.
            shared.notes.lock().clock_jumps += 1;
            *shared.bounded.lock().expect("no panic under it") = None;
            simulation::jump(Duration::from_micros(1 + random.below(1 << bits)));
        }
        4 => *snapshot = shared.db.begin_read().ok(),
        5 => *snapshot = None,
        6 => drop(shared.db.flush()),
        7..=11 => thread::sleep(Duration::from_micros(random.below(20_000))),
        _ => {}
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
