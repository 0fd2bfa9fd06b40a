//! Power cuts and kills at every moment, on the simulated disk.
//!
//! A workload runs once. Its disk records every operation, so it can be crashed after each of them,
//! with a different fate of unflushed writes each time. After each crash the database is opened and
//! checked:
//!
//! 1. Every transaction that was acknowledged before the crash is there; one of level written is
//!    there after a kill. So is every transaction,
//!    at any durability level, that committed before the start of a flush, checkpoint or close that
//!    returned before the crash.
//! 2. Every transaction is there whole or not at all, and so is everything that it read.
//! 3. Opening again gives the same content.
//! 4. `verify` finds nothing.
//! 5. A reader that opened the newest checkpoint before the writer sees a consistent and constant
//!    state.
//! 6. More transactions run. A second crash, inside recovery or after it, is checked the same way.
//! 7. No aborted transaction is visible. A reader's record is there only with all that it observed.
//! 8. Rows that one thread owns are as after one of its commits, and its reads return its own
//!    model.
//!
//! No transaction fails on a healthy disk, except for lack of memory in runs with little memory. A
//! reopen without a crash is counted separately.
//!
//! Three of four crashes are power cuts, the others kills; each is counted. `QUENCH_CRASHES` raises
//! the number of crashes.

use crate::support::bank::{ALL_KINDS, CommitOutcome, Id, Tables, is_certain, judge_both, one};
use crate::support::checked_rows::{CheckedRows, Environment};
use crate::support::returned_commits::{self, Commit, ReturnedCommits};
use crate::support::row_history::{Keys, Owner, Reached, RowHistory, judge_rows};
use crate::support::test_database::TestDatabase;
use crate::support::{Content, configurations, content};
use quenchdb::internals::base::depth::is_deep;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::{CommitHandle, Compression, Csn, Database, Dependency, Error, ErrorKind, Preset, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// What the threads of a run know about its transactions.
#[derive(Default)]
struct Work {
    /// Acknowledged transactions with the number of disk operations at that time.
    acknowledged: Vec<(usize, Id)>,
    /// As `acknowledged`, at level written: they survive a kill.
    written: Vec<(usize, Id)>,
    /// Aborted transactions, which must never be visible.
    aborted: BTreeSet<Id>,
    histories: Vec<RowHistory>,
    /// Commits that a flush, checkpoint or close made durable, with the number of disk operations
    /// when it returned.
    made_durable: Vec<(usize, Commit)>,
}

impl Work {
    /// Adds the commits in `made_durable` to the acknowledged ones.
    fn acknowledge_durable(&mut self) {
        MADE_DURABLE.fetch_add(self.made_durable.len() as u64, Ordering::Relaxed);
        returned_commits::acknowledge(&self.made_durable, &mut self.acknowledged, &mut self.histories);
    }

    /// Returns the transactions that a crash of this kind after so many operations must keep.
    fn acknowledged_by(&self, operations: usize, crash: CrashKind) -> BTreeSet<Id> {
        let written = if crash == CrashKind::Kill { &self.written[..] } else { &[] };
        let all = self.acknowledged.iter().chain(written);
        all.filter(|(at, _)| *at <= operations).map(|(_, id)| *id).collect()
    }
}

/// Returns whether this run has so little memory that pages are evicted.
fn is_tight(seed: u64) -> bool {
    seed.is_multiple_of(3)
}

/// Returns the protocol that the seed draws; in eight of 32 runs a row of the table. Not in each
/// fourth run: the remainder of the seed chooses the preset, and two would never be drawn.
fn protocol(seed: u64, random: &mut Random) -> Settings {
    let drawn = crate::support::any_protocol(seed, random);
    let row = configurations::ALL[seed as usize % configurations::ALL.len()];
    if seed / 8 % 4 == 2 { (row.settings)() } else { drawn }
}

fn settings(seed: u64) -> Settings {
    let mut random = Random::from_seed(seed);
    protocol(seed, &mut random).with(|s| {
        s.compression = if random.chance(1, 4) { Compression::None } else { Compression::Lz4 };
        // Either a pool of a dozen pages, and a recovery that reads the log twice, in windows; or
        // memory for everything.
        s.memory_bytes = if is_tight(seed) { 1 << 20 } else { 4 << 20 };
        s.segment_bytes = 64 << 10;
        s.lab.log_buffer_bytes = 64 << 10;
        s.log_bytes_max = 8 << 20;
        s.lab.checkpoint_log_bytes = if random.chance(1, 3) { 64 << 10 } else { 0 };
        s.lab.flush_unit_bytes = 4096;
        // Writes most transactions in chunks, or only those with long documents.
        s.lab.chunk_bytes = if random.chance(1, 2) || s.lab.chunk_bytes > 0 { 512 } else { 0 };
    })
}

/// Returns the same sizes with another protocol: any protocol may open a database.
fn other_protocol(settings: &Settings, random: &mut Random) -> Settings {
    let other = crate::support::any_protocol(random.next_u64(), random);
    settings.clone().with(|s| {
        s.preset = other.preset;
        s.logs = other.logs;
        s.lab.protocol = other.lab.protocol;
        s.log_memory = other.log_memory;
    })
}

/// Opens a reader of the newest checkpoint, if there is one. Writers must keep the checkpoint.
fn open_checkpoint(disk: &SimulatedStorage, settings: &Settings, context: &str) -> Option<Database> {
    let builder = settings.on(disk);
    match builder.open_checkpoint("simulated") {
        Ok(reader) => Some(reader),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => panic!("{context}, checkpoint: {error}"),
    }
}

/// One run of the workload on a healthy disk.
#[derive(Clone, Copy)]
struct Life {
    run: u8,
    tight: bool,
    threads: u8,
    each: u8,
    seed: u64,
}

/// Long keys in one of four runs: trees of three levels.
fn keys(seed: u64) -> Keys {
    if Random::from_seed(seed).chance(1, 4) { Keys::Long } else { Keys::Short }
}

/// Runs transactions in several threads. Returns what the threads know, and the commits.
fn work(db: &Database, storage: &SimulatedStorage, life: Life) -> (Work, Arc<ReturnedCommits>) {
    let tables = Tables::of(db, life.tight).expect("a whole disk");
    let done = Mutex::new(Work::default());
    std::thread::scope(|scope| {
        for thread in 0..life.threads {
            let (done, tables) = (&done, &tables);
            scope.spawn(move || work_in(db, storage, life, thread, tables, done));
        }
    });
    let done = done.into_inner().expect("no panic");
    assert!(life.run > 0 || !done.acknowledged.is_empty(), "seed {}: nothing was acknowledged", life.seed);
    (done, tables.returned_commits)
}

fn work_in(
    db: &Database,
    storage: &SimulatedStorage,
    life: Life,
    thread: u8,
    tables: &Tables,
    done: &Mutex<Work>,
) {
    let mut random = Random::from_seed(life.seed ^ u64::from(thread) << 32);
    let mut handles: Vec<(Id, CommitHandle)> = Vec::new();
    let mut rows = CheckedRows::of(db, [life.run, thread], keys(life.seed)).expect("a whole disk");
    let done = || done.lock().expect("no panic");
    let note = |id| done().acknowledged.push((storage.operations(), id));
    let bearable = |error: Error| {
        let memory = life.tight && error.kind() == ErrorKind::OutOfMemory;
        assert!(memory, "seed {}: on a whole disk: {error}", life.seed);
        REFUSED.fetch_add(1, Ordering::Relaxed);
    };
    let note_all = |durable: Vec<Commit>| {
        let operations = storage.operations();
        done().made_durable.extend(durable.into_iter().map(|commit| (operations, commit)));
    };
    let operations = || storage.operations();
    let env = Environment {
        db,
        returned_commits: &tables.returned_commits,
        operations: &operations,
        kinds: ALL_KINDS,
    };
    for n in 0..life.each {
        let id = [life.run, thread, n, 0];
        match one(db, tables, id, ALL_KINDS, &mut random) {
            Ok(CommitOutcome::Durable) => note(id),
            Ok(CommitOutcome::Later(handle)) => handles.push((id, handle)),
            Ok(CommitOutcome::Observed(ids)) => ids.into_iter().for_each(note),
            Ok(CommitOutcome::Aborted) => drop(done().aborted.insert(id)),
            Ok(CommitOutcome::Written) => done().written.push((storage.operations(), id)),
            Ok(CommitOutcome::Bounded | CommitOutcome::Lazy) => {}
            Err(error) => {
                if is_certain(&error) {
                    done().aborted.insert(id);
                }
                bearable(error);
            }
        }
        for (id, _) in handles.extract_if(.., |(_, handle)| handle.is_committed()) {
            note(id);
        }
        if random.chance(1, 2) {
            rows.step(&env, &mut random).unwrap_or_else(bearable);
        }
        match random.below(40) {
            0 | 1 => tables.returned_commits.make_durable(|| db.checkpoint()).map_or_else(bearable, note_all),
            2 => tables.returned_commits.make_durable(|| db.flush()).map_or_else(bearable, note_all),
            _ => {}
        }
    }
    done().histories.push(rows.end());
}

/// Pages evicted in all runs together.
static EVICTED: AtomicU64 = AtomicU64::new(0);
/// Page images that shared a block with others, in all runs.
static PACKED: AtomicU64 = AtomicU64::new(0);

/// Commits first reported as durable by a flush, a checkpoint or a close, in all runs.
static MADE_DURABLE: AtomicU64 = AtomicU64::new(0);

/// Blocks that workers wrote for other logs, in all runs.
static STOLEN: AtomicU64 = AtomicU64::new(0);

/// Replayed chunks that were older than the checkpoint, in all runs.
static OLD_CHUNKS: AtomicU64 = AtomicU64::new(0);

/// Transactions refused for lack of memory.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Workloads by preset and dependency rule.
static PROTOCOLS: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

fn count_protocol(settings: &Settings, operations: u64) {
    assert!(operations > 0);
    let rule = crate::support::rule_of(settings);
    let name = format!("{} {rule}", settings.preset);
    *PROTOCOLS.lock().expect("no panic").entry(name).or_default() += 1;
}

/// Checks a database against what its runs know. Returns its content and how far each thread's own
/// rows have come.
fn judge(
    db: &Database,
    must: &BTreeSet<Id>,
    lives: &[&Work],
    least: impl Fn(&RowHistory) -> Reached,
    context: &str,
) -> (Content, BTreeMap<Owner, Reached>) {
    let never = lives.iter().flat_map(|life| &life.aborted).copied().collect();
    let content = judge_both(db, must, &never, context);
    let histories: Vec<&RowHistory> = lives.iter().flat_map(|life| &life.histories).collect();
    let states = judge_rows(&content, &db.tables(), &histories, least, context);
    (content, states)
}

/// Writes the files of a disk into a new directory, for inspection with `quench`. Returns its path.
fn keep(disk: &SimulatedStorage, name: &str) -> String {
    let directory = std::env::temp_dir().join(format!("quench-crash-{}-{name}", std::process::id()));
    for path in disk.files() {
        let file = directory.join(&path);
        std::fs::create_dir_all(file.parent().expect("in the directory")).expect("writable");
        std::fs::write(file, disk.read_file(&path).expect("listed")).expect("writable");
    }
    directory.display().to_string()
}

/// Numbers of crashes and of reopens without a crash.
#[derive(Clone, Copy, Default)]
struct Done {
    power_cuts: u64,
    kills: u64,
    reopened: u64,
}

impl Done {
    fn crashes(&self) -> u64 {
        self.power_cuts + self.kills
    }

    fn merge(self, other: Done) -> Done {
        Done {
            power_cuts: self.power_cuts + other.power_cuts,
            kills: self.kills + other.kills,
            reopened: self.reopened + other.reopened,
        }
    }

    /// Returns the kind of the next crash: three of four are power cuts, which can lose more.
    fn next_crash(&mut self, random: &mut Random) -> CrashKind {
        if random.chance(3, 4) {
            self.power_cuts += 1;
            CrashKind::PowerCut
        } else {
            self.kills += 1;
            CrashKind::Kill
        }
    }
}

/// Runs one workload and crashes it `points` times, each time followed by a second crash.
fn run(seed: u64, points: u64) -> Done {
    let settings = settings(seed);
    let mut random = Random::from_seed(seed.wrapping_mul(0x9e37));
    let storage = SimulatedStorage::new(seed);
    let first_life = {
        let db = settings.open(&storage);
        let (mut first, returned_commits) =
            work(&db, &storage, Life { run: 0, tight: is_tight(seed), threads: 2, each: 20, seed });
        let report = db.verify(None).expect("a whole disk");
        assert!(report.problems.is_empty(), "seed {seed}, first life: {:?}", report.problems);
        EVICTED.fetch_add(db.statistics().pages_evicted, Ordering::Relaxed);
        STOLEN.fetch_add(db.statistics().stolen_blocks, Ordering::Relaxed);
        PACKED.fetch_add(db.statistics().packs.images_packed, Ordering::Relaxed);
        if random.chance(1, 4) {
            let durable = returned_commits.make_durable(|| db.close()).expect("a whole disk");
            first.made_durable.extend(durable.into_iter().map(|commit| (storage.operations(), commit)));
        }
        first.acknowledge_durable();
        first
    };
    let end = storage.operations();
    let mut done = Done::default();
    count_protocol(&settings, end as u64);
    let first_settings = settings;
    for point in 0..points {
        // Every fourth time with the protocol of the first run.
        let settings = if point % 4 == 0 {
            first_settings.clone()
        } else {
            other_protocol(&first_settings, &mut random)
        };
        let at = random.below(end as u64 + 1) as usize;
        let first = done.next_crash(&mut random);
        let context = format!(
            "seed {seed}, point {point}: {first:?} after {at} of {end} operations, by {}, {settings:?}",
            first_settings.preset
        );
        let must = first_life.acknowledged_by(at, first);
        let first_fate = random.next_u64();
        let (first_at, disk) = (at, storage.crash(first, at, first_fate));
        let reader = if point % 3 == 0 { open_checkpoint(&disk, &settings, &context) } else { None };
        let judge_reader = |reader: &Database, when: &str| {
            judge(
                reader,
                &BTreeSet::new(),
                &[&first_life],
                |_| Reached::default(),
                &format!("{context}, {when}"),
            )
        };
        let read = reader.as_ref().map(|reader| judge_reader(reader, "checkpoint"));
        let db = settings.try_open(&disk).unwrap_or_else(|error| {
            let kept = keep(&storage.crash(first, at, first_fate), &format!("{seed}-{point}-first"));
            panic!("{context}: {error}; see {kept}")
        });
        OLD_CHUNKS.fetch_add(db.recovery().chunks_before_checkpoint, Ordering::Relaxed);
        let (before, states) =
            judge(&db, &must, &[&first_life], |history| history.acknowledged_by(first_at), &context);
        let recovered_at = disk.operations();
        let life = Life { run: 1, tight: is_tight(seed), threads: 1, each: 4, seed: random.next_u64() };
        let (mut more, _) = work(&db, &disk, life);
        more.acknowledge_durable();
        if let Some(reader) = reader {
            let again = judge_reader(&reader, "checkpoint again");
            assert_eq!(Some(again), read, "{context}: a reader's checkpoint has changed");
        }
        disk.stop();
        drop(db);
        // Anywhere from the first operation of recovery to the end.
        let at = random.below(disk.operations() as u64 + 1) as usize;
        let second = done.next_crash(&mut random);
        let context = format!("{context}; then {second:?} after {at} (recovery ended at {recovered_at})");
        // What is only written becomes durable when recovery has taken it.
        let mut must_now = match second {
            CrashKind::PowerCut if at < recovered_at => first_life.acknowledged_by(first_at, second),
            _ => must.clone(),
        };
        must_now.extend(more.acknowledged_by(at, second));
        if at >= recovered_at {
            // Whatever reads returned must stay.
            must_now.extend(
                before
                    .keys()
                    .filter(|(t, _)| t == "journal")
                    .map(|(_, k)| <Id>::try_from(&k[..]).expect("an id")),
            );
        }
        let (fate, disk_before) = (random.next_u64(), disk);
        let disk = disk_before.crash(second, at, fate);
        let db = settings.try_open(&disk).unwrap_or_else(|error| {
            let kept = [
                keep(&storage, &format!("{seed}-{point}-run")),
                keep(&storage.crash(first, first_at, first_fate), &format!("{seed}-{point}-first")),
                keep(&disk_before, &format!("{seed}-{point}-more")),
                keep(&disk_before.crash(second, at, fate), &format!("{seed}-{point}-second")),
            ];
            panic!("{context}: {error}; see {kept:?}")
        });
        let least = |history: &RowHistory| match states.get(&history.owner) {
            // The owner is of the second run.
            None => history.acknowledged_by(at),
            Some(state) if at >= recovered_at => *state,
            Some(_) => history.acknowledged_by(first_at),
        };
        let (once, _) = judge(&db, &must_now, &[&first_life, &more], least, &context);
        let (watermark, csn) = (db.statistics().watermark, db.statistics().newest_csn);
        assert!(watermark >= Csn(csn.0), "{context}: something recovered is not durable");
        disk.stop();
        drop(db);
        // Sometimes, with any protocol.
        if point % 9 == 0 {
            let again = disk.crash(CrashKind::PowerCut, disk.operations(), random.next_u64());
            let db = settings.try_open(&again).unwrap_or_else(|error| panic!("{context}; reopened: {error}"));
            assert_eq!(content(&db), once, "{context}: recovering twice gives something else");
            done.reopened += 1;
            again.stop();
            drop(db);
        }
    }
    done
}

fn crashes_wanted() -> u64 {
    let all = if is_deep() { 100_000 } else { 2_000 };
    std::env::var("QUENCH_CRASHES").ok().and_then(|n| n.parse().ok()).unwrap_or(all)
}

/// Threads that run workloads: more than processors, because they wait for threads of their
/// databases.
const WORKERS: u64 = 4;

#[test]
fn no_crash_loses_what_was_acknowledged() {
    let (wanted, next) = (crashes_wanted(), AtomicU64::new(0));
    let first_seed: u64 = std::env::var("QUENCH_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let step: u64 = std::env::var("QUENCH_SEED_STEP").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let done = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| {
                scope.spawn(|| {
                    let mut done = Done::default();
                    while done.crashes() * WORKERS < wanted {
                        let seed = first_seed + step * next.fetch_add(1, Ordering::Relaxed);
                        done = done.merge(run(seed, 40));
                    }
                    done
                })
            })
            .collect();
        let done = workers.into_iter().map(|worker| worker.join().expect("no violation"));
        done.fold(Done::default(), Done::merge)
    });
    let Done { power_cuts, kills, reopened } = done;
    let refused = REFUSED.load(Ordering::Relaxed);
    let evicted = EVICTED.load(Ordering::Relaxed);
    let packed = PACKED.load(Ordering::Relaxed);
    let stolen = STOLEN.load(Ordering::Relaxed);
    let made_durable = MADE_DURABLE.load(Ordering::Relaxed);
    println!(
        "{power_cuts} power cuts, {kills} kills, {reopened} opened once more, {refused} transactions refused for want of memory, {evicted} pages left memory, {packed} images were packed, {stolen} blocks stolen, {made_durable} commits made durable by a flush, a checkpoint or a closing"
    );
    println!("figures: {{\"power_cuts\": {power_cuts}, \"simulated_kills\": {kills}}}");
    let protocols = PROTOCOLS.lock().expect("no panic");
    println!("{protocols:?}");
    let old_chunks = OLD_CHUNKS.load(Ordering::Relaxed);
    println!("{old_chunks} chunks older than the checkpoint were replayed");
    assert!(wanted < 20_000 || old_chunks > 0);
    // Few workloads are short of memory.
    assert!(
        done.crashes() >= wanted
            && packed > 0
            && (evicted > 0 || wanted < 20_000)
            && (stolen > 0 || wanted < 20_000)
    );
    assert!(wanted < 20_000 || power_cuts >= wanted / 10 * 7, "three of four crashes are power cuts");
    let all = Preset::ALL.len() * Dependency::ALL.len();
    // Rows of the table may leave the rule to the preset.
    let drawn = protocols.keys().filter(|name| !name.ends_with("its own")).count();
    assert!(wanted < 20_000 || drawn == all, "presets meet rules: {protocols:?}");
}
