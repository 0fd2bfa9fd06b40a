//! Isolation, checked from outside: threads record what they did and saw. Checkers that
//! are independent of the engine (`quench-checker`) look for an order that explains the record.
//!
//! 1. Lists: transactions append to lists and read them, with every preset and layout, with
//!    evictions and checkpoints beside. `adya` also checks a sample.
//! 2. Phantoms: transactions scan ranges, and insert and delete rows in them. Each must see the
//!    state after one commit, absent rows included.
//! 3. Crashes: the same lists across power cuts and kills, in one history. Unacknowledged
//!    transactions may be there or not.
//!
//! Two million transactions each of the first two are checked (`QUENCH_JUDGED=N` for another
//! number, per kind), and a fifth of that for each further mode: snapshot isolation with locks, and
//! the ways to be serializable, alone and together. Serializable transactions must be strictly
//! serializable among themselves, also beside snapshot transactions, and across crashes.

use crate::support::in_time;
use crate::support::lists::{Ended, Lists, list_transaction, read_all};
use crate::support::modes::{ALL_MODES, Mode, SERIALIZABLE};
use crate::support::ranges::{Ranges, range_transaction};
use crate::support::test_database::TestDatabase;
use quench_checker::{History, Level, Outcome, lists::Accessed, versions};
use quenchdb::internals::base::depth::{depth, is_deep, spread};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::{Csn, Database, Durability, Layout, Preset, Settings};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const THREADS: u64 = 4;

fn wanted() -> u64 {
    let all = if is_deep() { 2_000_000 } else { 40_000 };
    std::env::var("QUENCH_JUDGED").ok().and_then(|n| n.parse().ok()).unwrap_or(all)
}

/// Returns the first round; its number is also its seed.
fn first_round() -> u64 {
    std::env::var("QUENCH_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn settings(round: u64) -> Settings {
    let preset = Preset::ALL[round as usize % Preset::ALL.len()];
    let mut settings = Settings::default().with(|s| {
        s.preset = preset;
        s.memory_bytes = if round.is_multiple_of(3) { 8 << 20 } else { 64 << 20 };
        s.segment_bytes = 4 << 20;
        s.log_bytes_max = 256 << 20;
        s.lab.checkpoint_log_bytes = 8 << 20;
        s.lock_wait = Duration::from_millis(20);
        s.logs = 1 + (round / 3 % 3) as usize;
    });
    if quenchdb::Axes::of(&settings).writer.kind() == quenchdb::Writer::Memory {
        settings.log_memory = Some("mapped-memory".into());
    }
    if round % 2 == 1 {
        let changed = settings.clone().with_protocol(|axes| axes.set_layout(Layout::ByPage));
        if quenchdb::internals::commit::presets::check(&changed, changed.logs).is_ok() {
            settings = changed;
        }
    }
    settings
}

fn judged_lists(round: u64, transactions: u64, modes: &[Mode]) -> u64 {
    let settings = settings(round);
    let context = format!("round {round}, {modes:?}, {settings:?}");
    let db = settings.open_in_memory();
    let table = db.create_table("lists").expect("new");
    let lists = Lists::default();
    let mut history = History::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (db, table, lists) = (&db, &table, &lists);
                scope.spawn(move || {
                    let mut random = Random::from_seed(round << 8 | thread);
                    let mut record = History::default();
                    for _ in 0..transactions / THREADS {
                        let begun = lists.ticks.next();
                        let ended = list_transaction(db, table, lists, modes, &mut record, &mut random);
                        let Ended { level, outcome, at, .. } = ended.expect("nothing fails");
                        record.end_at(level, begun, at, outcome);
                    }
                    record
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| history.absorb(worker.join().expect("no panic")));
    });
    read_all(&db, &table, &lists, &mut history);
    if transactions <= SAMPLE {
        judged_by_adya(&history, modes, &context);
    }
    let verdict = history.check(Level::Snapshot);
    assert!(verdict.is_valid(), "{context}: {:#?}", verdict.violations);
    verdict.judged as u64
}

/// Judges by `adya`, which knows one level for a whole history.
fn judged_by_adya(history: &History, modes: &[Mode], context: &str) {
    let is_serializable = modes.iter().all(|mode| mode.level() == Level::Serializable);
    let model = if is_serializable { "strict-serializable" } else { "strong-snapshot-isolation" };
    let theirs = adya::History::from_json(&history.to_json_lines()).expect("as they write it");
    let opts = adya::Opts { models: vec![model.into()], ..adya::Opts::default() };
    let report = adya::check(&theirs, adya::Workload::ListAppend, &opts);
    assert_eq!(report.valid, adya::Valid::True, "{context}: {:?}", report.anomalies);
}

/// Histories as short as this are checked by `adya`, too.
const SAMPLE: u64 = 4_000;
/// Transactions of one database.
const EACH: u64 = 100_000;

/// Judges lists in each preset until `wanted` transactions are judged.
fn lists_are_isolated(wanted: u64, modes: &[Mode]) {
    let begun = Instant::now();
    let each = EACH.min(wanted / Preset::ALL.len() as u64);
    let sample: u64 = spread(12, 1).map(|round| judged_lists(first_round() + round, SAMPLE, modes)).sum();
    println!("{sample} transactions judged by adya, too, in {:?}", begun.elapsed());
    let (mut judged, mut round) = (sample, 0);
    while judged < wanted || round < Preset::ALL.len() as u64 {
        judged += judged_lists(first_round() + round, each, modes);
        round += 1;
    }
    println!("{judged} transactions on lists judged in {:?}, {round} databases", begun.elapsed());
    println!("figures: {{\"judged\": {judged}}}");
}

#[test]
fn lists_of_many_threads_are_isolated() {
    lists_are_isolated(wanted(), &[Mode::Snapshot]);
}

/// So many rows that other transactions always change some.
const ROWS: u64 = 400;

fn judged_rows(round: u64, transactions: u64, modes: &[Mode]) -> u64 {
    let settings = settings(round);
    let context = format!("round {round}, {modes:?}, {settings:?}");
    let db = settings.open_in_memory();
    let table = db.create_table("rows").expect("new");
    let ranges = Ranges::of(ROWS, 24, false);
    let mut history = Vec::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (db, table, ranges) = (&db, &table, &ranges);
                scope.spawn(move || {
                    let mut random = Random::from_seed(round << 8 | 128 | thread);
                    let mut seen = Vec::new();
                    for _ in 0..transactions / THREADS {
                        match range_transaction(db, table, ranges, modes, &mut random) {
                            Ok(committed) => seen.extend(committed.map(|committed| committed.observed)),
                            Err(error) => assert!(error.is_retryable(), "{error}"),
                        }
                    }
                    seen
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| history.extend(worker.join().expect("no panic")));
    });
    let verdict = versions::check(&history);
    assert!(verdict.is_valid(), "{context}: {:#?}", verdict.violations);
    verdict.judged as u64
}

/// Judges scans in each preset until `wanted` transactions are judged.
fn rows_are_isolated(wanted: u64, modes: &[Mode]) {
    let each = EACH.min(wanted / Preset::ALL.len() as u64);
    let (begun, mut judged, mut round) = (Instant::now(), 0, 0);
    while judged < wanted || round < Preset::ALL.len() as u64 {
        judged += judged_rows(first_round() + round, each, modes);
        round += 1;
    }
    println!("{judged} transactions on rows judged in {:?}, {round} databases", begun.elapsed());
    println!("figures: {{\"judged\": {judged}}}");
}

#[test]
fn scans_see_no_phantoms() {
    rows_are_isolated(wanted(), &[Mode::Snapshot]);
}

/// Regression: a transaction at a weaker level read an unacknowledged commit, and ended. A snapshot
/// that began later did not see this commit. The list checker found it within the first 100,000
/// transactions.
pub fn a_snapshot_sees_what_any_transaction_read_before_it_began(preset: Preset) {
    for (how, name) in ["bounded loss", "lazy", "durable", "asynchronously"].into_iter().enumerate() {
        let round = Preset::ALL.iter().position(|one| *one == preset).expect("one of them") as u64;
        let disk = SimulatedStorage::new(round);
        let storage = Arc::new(disk.clone());
        let db = Database::builder().settings(settings(round)).storage(storage).open("t").expect("opens");
        let table = db.create_table("t").expect("new");
        disk.set_delay(Duration::from_millis(10));
        let mut writer = db.begin().expect("free");
        writer.insert(&table, "key", "new").expect("no conflict");
        // The handle is not polled, so the commit is not acknowledged.
        let _unasked = writer.commit_async().expect("ready");
        let level = [Durability::BoundedLoss, Durability::Lazy, Durability::Durable, Durability::Lazy][how];
        let reader = db.begin_with(level).expect("free");
        let read = reader.get(&table, "key").expect("readable");
        if how == 3 {
            let _unasked = reader.commit_async().expect("read only");
        } else {
            reader.commit().expect("read only");
        }
        let later = std::thread::scope(|scope| {
            let other = scope.spawn(|| db.begin_read().expect("free").get(&table, "key").expect("readable"));
            other.join().expect("no panic")
        });
        assert_eq!(read.as_deref(), Some(&b"new"[..]));
        assert_eq!(later, read, "{preset}, {name}: time went backwards");
    }
}

/// Regression: a thread remembered its newest commit by the address of the database's state. After
/// a close, another database was opened at the same address. Snapshots of that one used the old
/// commit's number and saw later commits. The fuzzer of the API found it.
#[test]
fn another_database_does_not_date_a_snapshot_into_the_future() {
    for round in 0..10 {
        let open = || Database::builder().memory_bytes(1 << 20).open_in_memory().expect("opens");
        let old = open();
        let table = old.create_table("t").expect("new");
        for n in 0..50u8 {
            old.transact(|tx| tx.insert(&table, [n], [n])).expect("commits");
        }
        drop(table);
        old.close().expect("closes");
        let new = open();
        let table = new.create_table("t").expect("new");
        let snapshot = new.begin_read().expect("free");
        assert!(snapshot.csn() <= new.statistics().newest_csn, "round {round}: {}", snapshot.csn());
        new.transact(|tx| tx.insert(&table, "later", "x")).expect("commits");
        assert_eq!(snapshot.get(&table, "later").expect("readable"), None, "round {round}");
    }
}

/// Regression: a thread remembered its newest commit in one database only. After a commit in
/// another database it did not see its own row.
#[test]
fn a_thread_sees_what_it_committed_in_each_of_its_databases() {
    for databases in [1, 20] {
        let in_memory = |_| Database::builder().memory_bytes(1 << 20).open_in_memory().expect("opens");
        let others: Vec<_> = (0..databases).map(in_memory).collect();
        let tables: Vec<_> = others.iter().map(|db| db.create_table("t").expect("new")).collect();
        let disk = SimulatedStorage::new(1);
        let storage = Arc::new(disk.clone());
        let db = Database::builder().settings(settings(0)).storage(storage).open("t").expect("opens");
        let table = db.create_table("t").expect("new");
        disk.set_delay(Duration::from_millis(300));
        let mut tx = db.begin().expect("free");
        tx.insert(&table, "key", "new").expect("no conflict");
        let _unasked = tx.commit_async().expect("ready");
        for (other, table) in others.iter().zip(&tables) {
            other.transact(|tx| tx.insert(table, "key", "x")).expect("commits");
        }
        let snapshot = db.begin_read().expect("free");
        let read = snapshot.get(&table, "key").expect("readable");
        assert_eq!(read.as_deref(), Some(&b"new"[..]), "{databases} other databases");
        disk.set_delay(Duration::ZERO);
    }
}

/// Regression: three transactions that validated reads of each other's rows waited for each other
/// for ever. Each looked at one of its two markers only, and once.
#[test]
fn transactions_that_validate_reads_of_each_other_end() {
    in_time("the transactions", 60, || {
        const KEYS: u8 = 6;
        let db = settings(0).open_in_memory();
        let table = db.create_table("t").expect("new");
        let options = Mode::Serializable.options(Durability::Lazy);
        std::thread::scope(|scope| {
            for own in 0..KEYS {
                let (db, table) = (&db, &table);
                scope.spawn(move || {
                    for _ in 0..depth(40_000) {
                        let mut tx = db.begin_with(options).expect("free");
                        for other in (0..KEYS).filter(|other| *other != own) {
                            tx.get(table, [other]).expect("readable");
                        }
                        tx.insert(table, [own], [own]).expect("no other transaction writes it");
                        match tx.commit() {
                            Err(error) => assert!(error.is_retryable(), "{error}"),
                            Ok(csn) => assert!(csn > Csn::ZERO),
                        }
                    }
                });
            }
        });
    });
}

/// When a transaction ran, in operations of its disk, and whether its outcome holds after a crash.
#[derive(Clone, Copy)]
struct Ran {
    run: usize,
    begun: usize,
    ended: usize,
    durable: bool,
}

/// A history that continues across crashes.
#[derive(Clone, Default)]
struct Life {
    history: History,
    ran: Vec<Ran>,
}

impl Life {
    /// Runs threads until each has done `each` transactions.
    fn work(
        &mut self,
        (disk, db): (&SimulatedStorage, &Database),
        lists: &Lists,
        run: usize,
        each: u64,
        seed: u64,
        modes: &[Mode],
    ) {
        let table = db.table_or_create("lists").expect("a whole disk");
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..2)
                .map(|thread| {
                    let table = &table;
                    scope.spawn(move || {
                        let mut random = Random::from_seed(seed ^ thread << 40);
                        let mut life = Life::default();
                        for _ in 0..each {
                            let (ops, begun) = (disk.operations(), lists.ticks.next());
                            let record = &mut life.history;
                            let ended = list_transaction(db, table, lists, modes, record, &mut random)
                                .expect("a whole disk");
                            record.end_at(ended.level, begun, ended.at, ended.outcome);
                            let durable = ended.durable;
                            life.ran.push(Ran { run, begun: ops, ended: disk.operations(), durable });
                            if random.chance(1, 60) {
                                db.checkpoint().expect("a whole disk");
                            }
                        }
                        life
                    })
                })
                .collect();
            for worker in workers {
                let life = worker.join().expect("no panic");
                self.history.absorb(life.history);
                self.ran.extend(life.ran);
            }
        });
    }

    /// Returns the history with the outcome of each transaction of unknown outcome, as the last
    /// reads show it. Without an outcome `adya` ignores what such a transaction read, although
    /// others saw its writes.
    fn as_found(&self) -> History {
        let mut last: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let mut appended: Vec<Option<(u32, u32)>> = Vec::new();
        self.history.visit(|_, _, _, told| {
            let append = told.iter().find_map(|told| match told {
                Accessed::Append(key, value) => Some((*key, *value)),
                Accessed::Read(..) => None,
            });
            appended.push(append);
            for read in told {
                if let Accessed::Read(key, values) = read {
                    last.insert(*key, values.to_vec());
                }
            }
        });
        let is_there =
            |(key, value): (u32, u32)| last.get(&key).is_some_and(|values| values.contains(&value));
        let mut found = self.history.clone();
        found.revise(|index, outcome| match outcome {
            Outcome::Unknown if appended[index].is_some_and(is_there) => Outcome::Committed,
            Outcome::Unknown => Outcome::Aborted,
            outcome => outcome,
        });
        found
    }

    /// Revises outcomes to what is known when the disk of `run` crashed after `at` operations.
    fn crash(&mut self, run: usize, at: usize) {
        let ran = &self.ran;
        self.history.revise(|index, outcome| match ran[index] {
            // The next operation's write is in flight and may be there.
            now if now.run == run && now.begun > at => Outcome::Aborted,
            now if now.run == run && (now.ended > at || !now.durable) && outcome == Outcome::Committed => {
                Outcome::Unknown
            }
            _ => outcome,
        });
    }
}

/// Number of each run's histories across crashes that `adya` checks, too: with unacknowledged
/// transactions as unknown, and with the outcomes that were found.
const JUDGED_BY_ADYA: u64 = 3;
/// Crashes one run at many moments. After each crash the history continues, is crashed again, and
/// is checked with what is there in the end.
fn judged_lives(seed: u64, points: u64, modes: &[Mode]) -> (u64, u64) {
    let mut random = Random::from_seed(seed);
    let settings = crate::support::any_protocol(seed, &mut random).with(|s| {
        s.memory_bytes = 4 << 20;
        s.segment_bytes = 64 << 10;
        s.lab.log_buffer_bytes = 64 << 10;
        s.log_bytes_max = 8 << 20;
        s.lab.checkpoint_log_bytes = if random.chance(1, 2) { 64 << 10 } else { 0 };
        s.lab.flush_unit_bytes = 4096;
    });
    let open = |disk: &SimulatedStorage| settings.try_open(disk);
    let lists = Lists::default();
    let (first_disk, mut first) = (SimulatedStorage::new(seed), Life::default());
    {
        let db = open(&first_disk).expect("a whole disk");
        first.work((&first_disk, &db), &lists, 0, 150, seed, modes);
    }
    let (mut judged, mut first_judged, mut unknown) = (0, 0, 0);
    for point in 0..points {
        let (lists, mut life, mut disk) = (lists.clone(), first.clone(), first_disk.clone());
        let mut context = format!("seed {seed}, point {point}, {modes:?}");
        for run in 0..3 {
            let at = random.below(disk.operations() as u64 + 1) as usize;
            let kind = if random.chance(1, 2) { CrashKind::PowerCut } else { CrashKind::Kill };
            context += &format!(", {kind:?} after {at} of {}", disk.operations());
            life.crash(run, at);
            disk = disk.crash(kind, at, random.next_u64());
            let db = open(&disk).unwrap_or_else(|error| panic!("{context}: {error}, {settings:?}"));
            // Reads of the recovered database are part of the history, too.
            life.work((&disk, &db), &lists, run + 1, 20, random.next_u64(), modes);
            if run == 2 {
                let table = db.table("lists").expect("made");
                read_all(&db, &table, &lists, &mut life.history);
                let here = Ran { run: 3, begun: 0, ended: 0, durable: true };
                life.ran.push(here);
            }
        }
        let mut unknowns = 0;
        life.history.visit(|_, _, outcome, _| unknowns += u64::from(outcome == Outcome::Unknown));
        let verdict = life.history.check(Level::Snapshot);
        assert!(verdict.is_valid(), "{context}: {settings:?}: {:#?}", verdict.violations);
        if point < JUDGED_BY_ADYA {
            judged_by_adya(&life.history, modes, &context);
            judged_by_adya(&life.as_found(), modes, &context);
        }
        // Transactions of the first run are the same at each point, so they count once.
        let (mut of_first, mut index) = (0, 0);
        life.history.visit(|_, _, outcome, _| {
            of_first += u64::from(outcome == Outcome::Committed && life.ran[index].run == 0);
            index += 1;
        });
        judged += verdict.judged as u64 - of_first;
        first_judged = first_judged.max(of_first);
        unknown += unknowns;
    }
    (judged + first_judged, unknown)
}

/// Judges lists across crashes of `seeds` databases. Each has another protocol.
fn lives_are_isolated(seeds: u64, points: u64, modes: &[Mode]) {
    let (begun, mut judged, mut unknown) = (Instant::now(), 0, 0);
    for seed in first_round() + 1..=first_round() + seeds {
        let (more, of_them) = judged_lives(seed, points, modes);
        judged += more;
        unknown += of_them;
    }
    println!(
        "{judged} transactions across crashes judged in {:?}, {unknown} of unknown outcome",
        begun.elapsed()
    );
    println!("figures: {{\"judged\": {judged}}}");
    assert!(judged > seeds * 100 * points && unknown > seeds * points, "{judged}, {unknown}");
}

#[test]
fn lists_are_isolated_across_crashes() {
    lives_are_isolated(if wanted() < 2_000_000 { 4 } else { 40 }, 10, &[Mode::Snapshot]);
}

/// The three tests of a set of modes, each in all presets.
macro_rules! of_modes {
    ($($name:ident: $modes:expr;)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn lists_are_isolated() {
                super::lists_are_isolated(wanted() / 5, $modes);
            }

            #[test]
            fn rows_are_isolated() {
                super::rows_are_isolated(wanted() / 5, $modes);
            }

            #[test]
            fn lists_are_isolated_across_crashes() {
                lives_are_isolated(if wanted() < 2_000_000 { 3 } else { 40 }, 3, $modes);
            }
        })*
    };
}

of_modes! {
    snapshot_locking: &[Mode::SnapshotLocking];
    serializable: &[Mode::Serializable];
    serializable_locking: &[Mode::SerializableLocking];
    late_release: &[Mode::LateRelease];
    serializable_together: SERIALIZABLE;
    together: ALL_MODES;
}
