//! Backups: full, incremental, beside writers, and with failures of source and target.

use crate::support::test_database::{TestDatabase, tiny};
use crate::support::{Content, content, place};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::Storage;
use quenchdb::internals::device::simulated::{CrashKind, Fault, FaultKind, OperationKind, SimulatedStorage};
use quenchdb::{
    BackupOptions, BackupReport, Compression, Csn, Database, ErrorKind, Place, RestoreOptions, Result,
    Settings,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn settings() -> Settings {
    tiny(2 << 20)
}

fn open_read_only(disk: &SimulatedStorage) -> Result<Database> {
    // The replayed changes have to fit in memory.
    let settings = settings().with(|s| s.memory_bytes = 16 << 20);
    Database::builder().settings(settings).read_only(true).storage(Arc::new(disk.clone())).open("simulated")
}

fn back_up(db: &Database, base: Option<&SimulatedStorage>) -> Result<(SimulatedStorage, BackupReport)> {
    let target = SimulatedStorage::new(7);
    let options = BackupOptions::default().with(|s| s.base = base.map(place));
    let report = db.backup(place(&target), options)?;
    // Drops everything that is not durable yet.
    Ok((target.crash(CrashKind::PowerCut, target.operations(), 3), report))
}

fn restore(backups: &[SimulatedStorage]) -> Result<SimulatedStorage> {
    let target = SimulatedStorage::new(8);
    Database::restore(backups.iter().map(place), place(&target), RestoreOptions::default())?;
    Ok(target.crash(CrashKind::PowerCut, target.operations(), 4))
}

/// Restores `backups`, checks and uses the result, and returns its content.
fn restored_content(backups: &[SimulatedStorage]) -> Content {
    let disk = restore(backups).expect("sound backups");
    let db = settings().open(&disk);
    let found = content(&db);
    let report = db.verify(None).expect("can be checked");
    assert_eq!(report.problems, Vec::<String>::new());
    let table = db.table_or_create("new").expect("it works");
    db.transact(|tx| tx.insert(&table, "key", "value")).expect("it works");
    db.close().expect("it works");
    let db = settings().open(&disk);
    assert_eq!(content(&db).len(), found.len() + 1);
    found
}

fn fill(db: &Database, name: &str, rows: std::ops::Range<u32>, value: &str) {
    let table = db.table_or_create(name).expect("a table");
    for start in rows.clone().step_by(50) {
        db.transact(|tx| -> quenchdb::Result<()> {
            for n in start..rows.end.min(start + 50) {
                tx.insert(
                    &table,
                    format!("key {n:06}"),
                    format!("{value} {n} {}", "x".repeat(n as usize % 300)),
                )?;
            }
            Ok(())
        })
        .expect("commits");
    }
}

/// Returns a database of about a hundred pages.
fn sample() -> (SimulatedStorage, Database) {
    sample_with(Settings::default().compression)
}

fn sample_with(compression: Compression) -> (SimulatedStorage, Database) {
    let disk = SimulatedStorage::new(1);
    let settings = settings().with(|s| s.compression = compression);
    let db = settings.open(&disk);
    fill(&db, "a", 0..1500, "first");
    fill(&db, "b", 0..300, "first");
    (disk, db)
}

#[test]
fn a_full_backup_is_a_closed_database_that_nobody_can_write_to() {
    let (_, db) = sample();
    let before = content(&db);
    let (backup, report) = back_up(&db, None).expect("a sound database");
    assert_eq!((report.base_csn, report.pages_copied), (None, report.pages));
    assert_eq!(report.bytes, report.pages * 4096);
    fill(&db, "a", 0..100, "later");
    let copy = open_read_only(&backup).expect("a backup opens");
    assert_eq!(content(&copy), before);
    assert!(copy.recovery().clean);
    assert_eq!(copy.verify(None).expect("can be checked").problems, Vec::<String>::new());
    drop(copy);
    let refused = settings().try_open(&backup).expect_err("writing would spoil it");
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    assert!(refused.to_string().contains("this is a backup"), "{refused}");
    assert_eq!(restored_content(&[backup]), before);
}

#[test]
fn a_backup_of_a_read_only_database_is_as_of_its_close() {
    let (disk, db) = sample();
    let before = content(&db);
    disk.stop();
    drop(db);
    let crashed = disk.crash(CrashKind::Kill, disk.operations(), 1);
    let refused =
        open_read_only(&crashed).and_then(|db| back_up(&db, None)).expect_err("the log would be missing");
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    settings().open(&crashed).close().expect("closes");
    let (backup, _) = open_read_only(&crashed).and_then(|db| back_up(&db, None)).expect("closed");
    assert_eq!(restored_content(&[backup]), before);
}

#[test]
fn every_increment_of_a_chain_restores_its_moment() {
    let (_, db) = sample();
    // A page that is evicted beside a checkpoint may have an image in this one and in the next.
    db.checkpoint().expect("works");
    let (full, report) = back_up(&db, None).expect("sound");
    let mut chain = vec![full];
    let mut history = vec![content(&db)];
    let mut random = Random::from_seed(5);
    for step in 0..6 {
        match step {
            0 => {}
            1 => fill(&db, "a", 100..130, "changed"),
            2 => db.drop_table("b").expect("no transaction uses it"),
            3 => fill(&db, "c", 0..200, "third"),
            4 => {
                // Frees pages, so that their ids are used again.
                let table = db.table("a").expect("there");
                for start in (0..1500).step_by(50) {
                    db.transact(|tx| {
                        (start..start + 50)
                            .try_for_each(|n| tx.remove(&table, format!("key {n:06}")).map(drop))
                    })
                    .expect("commits");
                }
                fill(&db, "c", 200..260, "more");
            }
            _ => {
                for _ in 0..10 {
                    let from = random.below(1000) as u32;
                    fill(&db, "a", from..from + 20, "random");
                }
            }
        }
        let (increment, found) = back_up(&db, chain.last()).expect("sound");
        assert!(found.pages_copied < report.pages_copied, "step {step}: {found:?}");
        assert!(found.base_csn.is_some());
        if step == 0 {
            assert_eq!(found.pages_copied, 0, "nothing has changed");
        }
        chain.push(increment);
        history.push(content(&db));
    }
    for length in 1..=chain.len() {
        assert_eq!(restored_content(&chain[..length]), history[length - 1], "{length} backups");
    }
}

const ACCOUNTS: u32 = 400;

/// Stops the loops of all threads when one of the threads ends, also by a panic.
struct StopsAll<'a>(&'a AtomicBool);

impl Drop for StopsAll<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the number at the beginning of an account's row.
fn sum_of(value: &[u8]) -> i64 {
    let text = std::str::from_utf8(value).expect("our own");
    text.split(' ').next().and_then(|sum| sum.parse().ok()).expect("our own")
}

#[test]
fn backups_beside_writers_and_checkpoints_are_of_one_moment() {
    let db = settings().create(2).1;
    let table = db.create_table("accounts").expect("new");
    let ballast = "b".repeat(500);
    let row = |sum: i64| format!("{sum} {ballast}");
    db.transact(|tx| (0..ACCOUNTS).try_for_each(|n| tx.insert(&table, n.to_be_bytes(), row(100))))
        .expect("fits");
    let (stop, commits) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut chain: Vec<SimulatedStorage> = Vec::new();
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (db, table, stop, commits, row) = (&db, &table, &stop, &commits, &row);
            scope.spawn(move || {
                let _stops_all = StopsAll(stop);
                let mut random = Random::from_seed(seed);
                while !stop.load(Ordering::Relaxed) {
                    let pair = [0; 2].map(|_| (random.below(ACCOUNTS.into()) as u32).to_be_bytes());
                    let amount = random.below(10) as i64;
                    let moved = db.transact(|tx| -> quenchdb::Result<()> {
                        for (key, amount) in [(pair[0], -amount), (pair[1], amount)] {
                            let value = tx.get(table, key)?.expect("never deleted");
                            tx.insert(table, key, row(sum_of(&value) + amount))?;
                        }
                        Ok(())
                    });
                    moved.expect("conflicts are tried again");
                    commits.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            let _stops_all = StopsAll(&stop);
            while !stop.load(Ordering::Relaxed) {
                db.checkpoint().expect("a whole disk");
            }
        });
        let _stops_all = StopsAll(&stop);
        for newest_checkpoint in [false, true, false, true, false] {
            let before = commits.load(Ordering::Relaxed);
            let target = SimulatedStorage::new(3);
            let base = chain.last().map(place);
            db.backup(
                place(&target),
                BackupOptions::default().with(|s| {
                    s.base = base;
                    s.newest_checkpoint = newest_checkpoint;
                }),
            )
            .expect("sound");
            chain.push(target);
            while commits.load(Ordering::Relaxed) < before + 50 {
                assert!(!stop.load(Ordering::Relaxed), "a thread has ended");
                std::thread::yield_now();
            }
        }
    });
    for length in 1..=chain.len() {
        let found = restored_content(&chain[..length]);
        let total: i64 = found.values().map(|value| sum_of(value)).sum();
        assert_eq!((found.len(), total), (ACCOUNTS as usize, i64::from(ACCOUNTS) * 100));
    }
    // Blocks held for the backup are free again.
    let before = db.statistics().store_bytes;
    for _ in 0..20 {
        db.checkpoint().expect("a whole disk");
    }
    assert!(db.statistics().store_bytes <= before);
}

#[track_caller]
fn expect_refusal<T>(result: Result<T>, kind: ErrorKind, what: &str) {
    match result {
        Ok(_) => panic!("accepted, expected: {what}"),
        Err(error) => {
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(what), "{error}");
        }
    }
}

#[test]
fn a_base_that_does_not_fit_is_refused() {
    let (_, db) = sample();
    let (full, _) = back_up(&db, None).expect("sound");
    let (_, other) = sample();
    let (foreign, _) = back_up(&other, None).expect("sound");
    expect_refusal(back_up(&db, Some(&foreign)), ErrorKind::InvalidArgument, "of database");
    expect_refusal(back_up(&db, Some(&SimulatedStorage::new(1))), ErrorKind::NotFound, "no backup");
    let incomplete = full.duplicate();
    incomplete.write_file("BACKUP", &[]);
    expect_refusal(back_up(&db, Some(&incomplete)), ErrorKind::Corruption, "not complete");
}

#[test]
fn a_base_from_the_future_of_an_old_copy_is_refused() {
    let (disk, db) = sample();
    db.close().expect("closes");
    let copy = disk.duplicate();
    let db = settings().open(&disk);
    fill(&db, "a", 0..10, "later");
    let (later, _) = back_up(&db, None).expect("sound");
    let old = settings().open(&copy);
    expect_refusal(back_up(&old, Some(&later)), ErrorKind::InvalidArgument, "later than this checkpoint");
}

#[test]
fn a_chain_with_a_missing_or_misplaced_backup_is_refused() {
    let (_, db) = sample();
    let (full, _) = back_up(&db, None).expect("sound");
    fill(&db, "a", 0..10, "1");
    let (one, _) = back_up(&db, Some(&full)).expect("sound");
    fill(&db, "a", 10..20, "2");
    let (two, _) = back_up(&db, Some(&one)).expect("sound");
    let (full_again, _) = back_up(&db, None).expect("sound");
    let chain =
        |disks: &[&SimulatedStorage]| restore(&disks.iter().map(|disk| (*disk).clone()).collect::<Vec<_>>());
    let refused = ErrorKind::InvalidArgument;
    expect_refusal(chain(&[]), refused, "no backup");
    expect_refusal(chain(&[&one]), refused, "begin with the full backup");
    expect_refusal(chain(&[&full, &two]), refused, "backup 2 of the chain: it adds to");
    expect_refusal(chain(&[&full_again, &one]), refused, "not to the one before it");
    expect_refusal(chain(&[&full, &full_again]), refused, "only the first is");
    chain(&[&full, &one, &two]).expect("a whole chain");
}

#[test]
fn nothing_that_is_there_is_overwritten() {
    let (disk, db) = sample();
    let (full, _) = back_up(&db, None).expect("sound");
    let target = |disk: &SimulatedStorage| db.backup(place(disk), BackupOptions::default());
    let kind = ErrorKind::AlreadyExists;
    expect_refusal(target(&full), kind, "there is a backup");
    let restored = restore(std::slice::from_ref(&full)).expect("sound");
    expect_refusal(target(&restored), kind, "there is a database");
    let foreign = SimulatedStorage::new(1);
    foreign.write_file("letter", b"dear");
    expect_refusal(target(&foreign), ErrorKind::InvalidArgument, "other files");
    expect_refusal(target(&disk), kind, "there is a database");
    let onto = |disk: &SimulatedStorage| {
        Database::restore([place(&full)], place(disk), RestoreOptions::default()).map(drop)
    };
    expect_refusal(onto(&full), kind, "there is a backup");
    expect_refusal(onto(&restored), kind, "there is a database");
    expect_refusal(onto(&foreign), ErrorKind::InvalidArgument, "other files");
    // A killed probe for direct I/O leaves a file that does not count as content.
    let probed = SimulatedStorage::new(1);
    probed.write_file(".quench-direct-probe", &[0; 4096]);
    target(&probed.duplicate()).expect("as good as empty");
    onto(&probed).expect("as good as empty");
}

#[test]
fn what_a_crash_leaves_of_a_backup_is_incomplete_or_whole() {
    let (_, db) = sample();
    let before = content(&db);
    let target = SimulatedStorage::new(9);
    db.backup(place(&target), BackupOptions::default()).expect("sound");
    let (mut whole, mut incomplete) = (0, 0);
    for at in 0..=target.operations() {
        for (kind, seed) in [(CrashKind::PowerCut, at as u64), (CrashKind::Kill, 7)] {
            let crashed = target.crash(kind, at, seed);
            match restore(std::slice::from_ref(&crashed)) {
                Ok(disk) => {
                    assert_eq!(content(&settings().open(&disk)), before, "{kind:?} at {at}");
                    whole += 1;
                }
                Err(error) => {
                    assert!([ErrorKind::Corruption, ErrorKind::NotFound].contains(&error.kind()), "{error}");
                    incomplete += 1;
                    if !crashed.files().is_empty() {
                        settings().try_open(&crashed).expect_err("no database for writing");
                    }
                }
            }
        }
    }
    assert!(whole > 0 && incomplete > 20, "{whole} {incomplete}");
}

#[test]
fn what_a_crash_leaves_of_a_restore_cannot_be_opened() {
    let (_, db) = sample();
    let before = content(&db);
    let (full, _) = back_up(&db, None).expect("sound");
    let target = SimulatedStorage::new(9);
    Database::restore([place(&full)], place(&target), RestoreOptions::default()).expect("sound");
    let mut whole = 0;
    for at in 0..=target.operations() {
        let crashed = target.crash(CrashKind::PowerCut, at, at as u64);
        let nothing = crashed.files().is_empty();
        match settings().try_open(&crashed) {
            Ok(db) => {
                let found = content(&db);
                whole += usize::from(found == before);
                assert!(found == before || nothing, "at {at}: a part of it");
            }
            Err(error) => assert!(!nothing && error.kind() != ErrorKind::Io, "at {at}: {error}"),
        }
    }
    assert!(whole > 0, "at least after the last operation");
}

#[test]
fn the_source_recovers_from_a_crash_during_a_backup() {
    let (disk, db) = sample();
    let before = disk.operations();
    let target = SimulatedStorage::new(9);
    std::thread::scope(|scope| {
        scope.spawn(|| db.backup(place(&target), BackupOptions::default()).expect("sound"));
        fill(&db, "c", 0..500, "beside");
        db.checkpoint().expect("a whole disk");
    });
    let after = content(&db);
    let rows = |content: &Content| content.keys().filter(|(table, _)| table != "c").count();
    for at in before..=disk.operations() {
        let crashed = disk.crash(CrashKind::PowerCut, at, at as u64);
        let db = settings().open(&crashed);
        let found = content(&db);
        assert_eq!(rows(&found), rows(&after));
        assert!(found.iter().all(|(key, value)| after.get(key) == Some(value)));
    }
}

#[test]
fn damage_in_the_source_is_found_while_it_is_copied() {
    copies_of_damaged(Compression::None, 80);
    copies_of_damaged(Compression::Lz4, 15);
}

fn copies_of_damaged(compression: Compression, blocks_in_use: usize) {
    let (disk, db) = sample_with(compression);
    db.close().expect("closes");
    let blocks = disk.read_file("pages/data").expect("there").len() / 4096;
    let mut random = Random::from_seed(3);
    let (mut found, mut harmless) = (0, 0);
    let before = content(&open_read_only(&disk).expect("closed"));
    for block in 0..blocks {
        let damaged = disk.duplicate();
        let mut bytes = damaged.read_file("pages/data").expect("there");
        bytes[block * 4096 + random.below(4096) as usize] ^= 1 << random.below(8);
        damaged.write_file("pages/data", &bytes);
        match open_read_only(&damaged).and_then(|db| back_up(&db, None)) {
            Ok((backup, _)) => {
                harmless += 1;
                assert_eq!(content(&open_read_only(&backup).expect("whole")), before, "block {block}");
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
                assert!(error.location().is_some(), "{error}");
                found += 1;
            }
        }
    }
    assert!(found > blocks_in_use && harmless > 0, "{found} {harmless}");
}

#[test]
fn damage_in_a_backup_is_found_when_it_is_restored() {
    let (_, db) = sample();
    let (full, _) = back_up(&db, None).expect("sound");
    fill(&db, "a", 0..100, "changed");
    let (increment, _) = back_up(&db, Some(&full)).expect("sound");
    let before = content(&db);
    let mut random = Random::from_seed(4);
    for (which, path) in [(0, "BACKUP"), (1, "BACKUP"), (0, "pages/data"), (1, "pages/data")] {
        let length = [&full, &increment][which].read_file(path).expect("there").len();
        for sector in 0..length.div_ceil(4096) {
            let mut chain = [full.duplicate(), increment.duplicate()];
            let mut bytes = chain[which].read_file(path).expect("there");
            if random.chance(1, 2) {
                bytes[(sector * 4096 + random.below(4096) as usize).min(length - 1)] ^= 1 << random.below(8);
            } else {
                bytes.truncate(sector * 4096);
            }
            chain[which].write_file(path, &bytes);
            match restore(&chain) {
                Ok(disk) => assert_eq!(content(&settings().open(&disk)), before, "{path} {sector}"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Corruption, "{path} {sector}: {error}"),
            }
            chain[which] = SimulatedStorage::new(0);
        }
    }
}

#[test]
fn a_full_target_stops_the_backup_and_nothing_else() {
    let (_, db) = sample();
    for capacity in [0, 4096, 100_000, 300_000] {
        let target = SimulatedStorage::new(9);
        target.set_capacity(Some(capacity));
        expect_refusal(db.backup(place(&target), BackupOptions::default()), ErrorKind::OutOfSpace, "");
        target.set_capacity(None);
        assert!(restore(&[target]).is_err(), "it is not complete");
    }
    fill(&db, "a", 0..100, "continues");
    let (full, _) = back_up(&db, None).expect("there is space elsewhere");
    let target = SimulatedStorage::new(9);
    target.set_capacity(Some(200_000));
    let restored = Database::restore([place(&full)], place(&target), RestoreOptions::default());
    expect_refusal(restored, ErrorKind::OutOfSpace, "");
    assert_eq!(restored_content(&[full]), content(&db));
}

#[test]
fn a_target_that_fails_gives_no_complete_backup() {
    let (_, db) = sample();
    let before = content(&db);
    for operation in
        [OperationKind::Open, OperationKind::Write, OperationKind::DurableWrite, OperationKind::Flush]
    {
        for after in 0..200 {
            let target = SimulatedStorage::new(after);
            target.inject(Fault { operation, after, kind: FaultKind::Once, error: 5 });
            let made = db.backup(place(&target), BackupOptions::default());
            if target.faults_struck() == 0 {
                made.expect("nothing happened");
                break;
            }
            let crashed = target.crash(CrashKind::PowerCut, target.operations(), after);
            let restored = restore(std::slice::from_ref(&crashed));
            match (made, restored) {
                (Ok(_), restored) => {
                    let disk = restored.expect("a backup that was reported can be restored");
                    assert_eq!(content(&settings().open(&disk)), before);
                }
                // The backup may be complete although the call returned an error.
                (Err(_), Ok(disk)) => assert_eq!(content(&settings().open(&disk)), before),
                (Err(_), Err(_)) => {}
            }
        }
    }
}

#[test]
fn a_restored_database_refuses_log_and_increments_of_its_source() {
    let (disk, db) = sample();
    let (full, _) = back_up(&db, None).expect("sound");
    let before = content(&db);
    fill(&db, "a", 0..100, "later");
    let (increment, _) = back_up(&db, Some(&full)).expect("sound");
    let restored = restore(std::slice::from_ref(&full)).expect("sound");
    // Puts the original's log where the copy would create its own files.
    for path in disk.files().iter().filter(|path| path.starts_with("log/")) {
        restored.write_file(path, &disk.read_file(path).expect("listed"));
    }
    let foreign = settings().try_open(&restored).expect_err("the user put them there to be replayed");
    assert!(foreign.to_string().contains("another database"), "{foreign}");
    for path in restored.files().iter().filter(|path| path.starts_with("log/")) {
        restored.remove_file(path);
    }
    let copy = settings().open(&restored);
    assert_eq!(content(&copy), before);
    fill(&copy, "d", 0..10, "own");
    let after = content(&copy);
    restored.stop();
    drop(copy);
    let crashed = restored.crash(CrashKind::PowerCut, restored.operations(), 1);
    let copy = settings().open(&crashed);
    assert_eq!(content(&copy), after);
    expect_refusal(back_up(&copy, Some(&increment)), ErrorKind::InvalidArgument, "of database");
    assert!(copy.statistics().newest_csn > Csn(0));
}

#[test]
fn backups_work_in_directories_and_survive_reopening() {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory");
    let at = |name: &str| root.path().join(name);
    let db = settings().open_in(at("db"));
    fill(&db, "a", 0..500, "first");
    db.backup(at("deep/full"), BackupOptions::default()).expect("sound");
    db.close().expect("closes");
    let db = settings().open_in(at("db"));
    fill(&db, "a", 0..20, "second");
    let base = Some(Place::from(&at("deep/full")));
    let report = db.backup(at("one"), BackupOptions::default().with(|s| s.base = base)).expect("sound");
    assert!(report.pages_copied < report.pages, "{report:?}");
    let before = content(&db);
    db.close().expect("closes");
    let chain = [at("deep/full"), at("one")];
    let report = Database::restore(chain, at("restored"), RestoreOptions::default()).expect("sound");
    assert_eq!(report.pages, db_pages(&at("one")));
    let db = settings().open_in(at("restored"));
    assert_eq!(content(&db), before);
}

fn db_pages(backup: &std::path::Path) -> u64 {
    let trust = Settings::default().device_trust;
    let storage =
        quenchdb::internals::device::file::FileStorage::open(backup, trust, false, false).expect("there");
    let storage: Arc<dyn Storage> = Arc::new(storage);
    quenchdb::internals::backup::Description::read(&*storage).expect("complete").source.len() as u64
}
