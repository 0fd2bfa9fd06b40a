//! Changes divided between logs by page: after a crash each transaction is there with all its
//! fragments or not at all.

use crate::support::configurations::by_page;
use crate::support::test_database::TestDatabase;
use crate::support::{content, place};
use quenchdb::internals::base::depth::{depth, is_deep};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::{Acknowledger, Axes, Database, Dependency, ErrorKind, Isolation, Preset, Settings, Writer};
use std::collections::BTreeMap;
use std::sync::Mutex;

const LOGS: usize = 3;
const ROWS: u64 = 400;
/// Rows that a transaction writes, all over the table.
const EACH: u64 = 5;

/// Returns all valid presets, with every dependency rule and several writers and acknowledgers.
fn protocols() -> Vec<Settings> {
    let presets = [
        Preset::Group,
        Preset::Pipelined,
        Preset::Autonomous,
        Preset::Restricted,
        Preset::Auto,
        Preset::Passive,
    ];
    let mut all = Vec::new();
    for preset in presets {
        for rule in Dependency::ALL.into_iter().filter(|rule| *rule != Dependency::LogOrder) {
            all.push(by_page(preset).with_protocol(|axes| axes.dependency = Some(rule)));
        }
    }
    all.push(by_page(Preset::Auto).with_protocol(|axes| axes.set_acknowledger(Acknowledger::Workers)));
    all.push(
        by_page(Preset::Autonomous).with_protocol(|axes| axes.set_acknowledger(Acknowledger::Background)),
    );
    all
}

fn name(settings: &Settings) -> String {
    let axes = Axes::of(settings);
    format!("{} {} {:?}", settings.preset, axes.rule(), axes.acknowledger)
}

fn row(transaction: u64, n: u64) -> [u8; 8] {
    ((transaction * 37 + n * 83) % ROWS).to_be_bytes()
}

/// Returns a value of an eighth of a page, so that splits soon move rows to pages of other logs.
fn value(transaction: u64) -> Vec<u8> {
    let mut value = transaction.to_be_bytes().to_vec();
    value.resize(500 + transaction as usize % 90, transaction as u8);
    value
}

/// Runs transactions one after the other, each with a row of its own that proves its commit.
/// Returns the acknowledged ones with the number of disk operations at that time.
fn work(db: &Database, disk: &SimulatedStorage, from: u64, count: u64) -> Vec<(usize, u64)> {
    let table = db.table_or_create("t").expect("made");
    let acknowledged = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (table, acknowledged) = (&table, &acknowledged);
            scope.spawn(move || {
                for transaction in (from..from + count).filter(|t| t % 2 == thread) {
                    loop {
                        let mut tx = db.begin_with(Isolation::ReadCommitted).expect("free");
                        let mut rows: Vec<_> = (0..EACH).map(|n| row(transaction, n)).collect();
                        // Sorted, because otherwise threads deadlock.
                        rows.sort_unstable();
                        let put = rows.iter().try_for_each(|row| tx.insert(table, row, value(transaction)));
                        // Writes the row again, after splits that the first writes may have caused.
                        let put = put.and_then(|()| tx.insert(table, rows[0], value(transaction)));
                        let put = put.and_then(|()| {
                            tx.insert(table, [b"done", &transaction.to_be_bytes()[..]].concat(), "x")
                        });
                        match put {
                            Ok(()) => {}
                            Err(error) if error.is_retryable() => continue,
                            Err(error) => panic!("{error}"),
                        }
                        if transaction % 3 == 0 {
                            tx.commit().expect("a whole disk");
                        } else {
                            let handle = tx.commit_async().expect("commits");
                            if transaction % 3 == 1 {
                                break;
                            }
                            handle.wait().expect("a whole disk");
                        }
                        acknowledged.lock().expect("no panic").push((disk.operations(), transaction));
                        break;
                    }
                }
            });
        }
    });
    acknowledged.into_inner().expect("no panic")
}

/// Returns the transactions that are there. Checks that each row is of one of them, and of its
/// newest writer unless both threads wrote the row.
fn judge(db: &Database, acknowledged: &[(usize, u64)], by: usize, what: &str) -> Vec<u64> {
    let all = content(db);
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes[..8].try_into().expect("eight bytes"));
    let there: Vec<u64> =
        all.keys().filter_map(|(_, key)| Some(number(key.strip_prefix(b"done")?))).collect();
    for (_, transaction) in acknowledged.iter().filter(|(at, _)| *at <= by) {
        assert!(there.contains(transaction), "{what}: {transaction} was acknowledged and is lost");
    }
    let rows: BTreeMap<u64, u64> = all
        .iter()
        .filter(|((_, key), _)| key.len() == 8)
        .map(|((_, key), value)| (number(key), number(value)))
        .collect();
    for (row, writer) in &rows {
        assert!(there.contains(writer), "{what}: row {row} is of {writer}, of which a part is lost");
    }
    for transaction in &there {
        for n in 0..EACH {
            let row = number(&row(*transaction, n));
            assert!(rows.contains_key(&row), "{what}: row {row} of {transaction} is lost");
        }
    }
    let report = db.verify(None).expect("runs");
    assert!(report.problems.is_empty(), "{what}: {:?}", report.problems);
    there
}

#[test]
fn a_transaction_has_a_record_in_each_log_of_its_pages() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (path, copy) = (directory.path().join("db"), directory.path().join("copy"));
    let db = by_page(Preset::Auto).open_in(&path);
    work(&db, &SimulatedStorage::new(1), 0, 120);
    db.flush().expect("a whole disk");
    for part in ["", "log", "pages"] {
        std::fs::create_dir(copy.join(part)).expect("a directory");
        for entry in std::fs::read_dir(path.join(part)).expect("there").map(|entry| entry.expect("readable"))
        {
            if entry.file_type().expect("known").is_file() {
                std::fs::copy(entry.path(), copy.join(part).join(entry.file_name())).expect("copied");
            }
        }
    }
    let records = Database::dump_log(&copy, None).expect("readable");
    let fragments: Vec<_> =
        records.iter().filter(|r| r.part.as_deref().is_some_and(|p| p.starts_with("fragment"))).collect();
    assert!(fragments.len() > 120, "most transactions are in several logs: {}", fragments.len());
    for log in 0..LOGS as u32 {
        let there = fragments.iter().filter(|record| record.log == log).count();
        assert!(there > fragments.len() / 10, "log {log} has {there} of {}", fragments.len());
    }
    let three =
        fragments.iter().find(|r| r.part.as_deref().is_some_and(|p| p.starts_with("fragment 1 of 3")));
    let first = three.expect("one with a fragment in each log");
    for (number, csn) in (1..=3).zip(first.csn.0..) {
        let record =
            fragments.iter().find(|record| record.csn.0 == csn).expect("the CSNs follow one another");
        let part = format!("fragment {number} of 3 of the transaction with csn {}", first.csn.0 + 2);
        assert_eq!((record.part.as_deref(), record.dsn), (Some(&part[..]), first.dsn));
        assert!(!record.operations.is_empty());
    }
}

#[test]
fn a_transaction_is_whole_or_absent_after_any_two_crashes() {
    let (mut lost, mut random) = (0, Random::from_seed(5));
    for settings in protocols() {
        let (disk, db) = settings.create(2);
        let acknowledged = work(&db, &disk, 0, 60);
        disk.stop();
        drop(db);
        let end = disk.operations();
        for crash in 0..depth(40).min(10) {
            let at = random.below(end as u64 + 1) as usize;
            let kind = if crash % 3 == 0 { CrashKind::Kill } else { CrashKind::PowerCut };
            let what = format!("{}: {kind:?} after {at} of {end}", name(&settings));
            let once = disk.crash(kind, at, random.next_u64());
            let db = settings.open(&once);
            let there = judge(&db, &acknowledged, at, &what);
            lost += db.recovery().discarded;
            // Discarded transactions stay discarded and recovered ones stay, after more commits and
            // another crash.
            let more = work(&db, &once, 1000, 10);
            once.stop();
            drop(db);
            let later = once.operations();
            let twice = once.crash(CrashKind::PowerCut, later, random.next_u64());
            let db = settings.open(&twice);
            let mut still = judge(&db, &more, later, &format!("{what}, and again"));
            still.retain(|transaction| *transaction < 1000);
            assert_eq!(still, there, "{what}: another set after the next crash");
            twice.stop();
        }
    }
    assert!(
        lost > if is_deep() { 20 } else { 0 },
        "too few crashes tore transactions to say anything: {lost}"
    );
}

#[test]
fn what_does_not_go_with_pages_is_refused_with_the_reason() {
    let refused = |settings: Settings| {
        let error = Database::builder().settings(settings).open_in_memory().expect_err("contradicts itself");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.to_string()
    };
    let one = refused(by_page(Preset::Auto).with(|s| s.logs = 1));
    assert!(one.contains("by-page divides transactions between logs, and there is one"), "{one}");
    let worker = refused(by_page(Preset::Auto).with_protocol(|axes| axes.set_writer(Writer::Worker)));
    assert!(worker.contains("a log belongs to pages"), "{worker}");
    let committer = refused(by_page(Preset::PerTransaction));
    assert!(committer.contains("writer = committer is for logs of threads"), "{committer}");
    let order =
        refused(by_page(Preset::Auto).with_protocol(|axes| axes.dependency = Some(Dependency::LogOrder)));
    assert!(order.contains("log-order"), "{order}");
}

/// A long transaction goes to one log in chunks. Large values and rolled-back rows are divided like
/// others.
#[test]
fn long_transactions_large_values_and_savepoints_are_recovered() {
    let settings = by_page(Preset::Autonomous).with(|s| s.lab.chunk_bytes = 4096);
    let (disk, db) = settings.create(3);
    let table = db.create_table("t").expect("new");
    let mut expected = BTreeMap::new();
    for round in 0..30u8 {
        let mut tx = db.begin().expect("free");
        let count = if round % 5 == 0 { 60 } else { 4 };
        for n in 0..count {
            let key = vec![n, round % 7];
            tx.insert(&table, &key, vec![round; 120]).expect("fits");
            expected.insert(key, vec![round; 120]);
        }
        let savepoint = tx.savepoint();
        for n in 0..3u8 {
            tx.insert(&table, [n * 80, 200], "taken back").expect("fits");
            tx.remove(&table, [n, round % 7]).expect("there");
        }
        tx.rollback_to(savepoint).expect("goes back");
        let large = vec![round; 3000 + usize::from(round) * 400];
        tx.insert(&table, [round % 4, 250], &large).expect("fits");
        expected.insert(vec![round % 4, 250], large);
        tx.insert(&table, [round % 4, 251], "small").expect("fits");
        tx.remove(&table, [round % 4, 251]).expect("there");
        tx.commit().expect("a whole disk");
    }
    disk.stop();
    let disk = disk.crash(CrashKind::PowerCut, disk.operations(), 1);
    let found = content(&settings.open(&disk));
    let found: BTreeMap<_, _> = found.into_iter().map(|((_, key), value)| (key, value)).collect();
    assert!(found == expected, "{} rows of {}", found.len(), expected.len());
}

/// Regression: salvage applied each fragment by itself, so half of an unacknowledged transaction
/// was there and counted as one.
#[test]
fn salvage_takes_all_fragments_of_a_transaction_or_none() {
    let (mut missing, mut random) = (0, Random::from_seed(6));
    let key = |transaction: u64, n: u64| [row(transaction, n), transaction.to_be_bytes()].concat();
    for seed in 0..30 {
        let disk = SimulatedStorage::new(seed);
        let settings = by_page(Preset::Auto);
        let db = settings.open(&disk);
        let table = db.table_or_create("t").expect("made");
        db.transact(|tx| (0..ROWS).try_for_each(|n| tx.insert(&table, n.to_be_bytes(), value(n))))
            .expect("commits");
        db.checkpoint().expect("a whole disk");
        let begun = disk.operations();
        for transaction in 0..20 {
            let mut tx = db.begin().expect("free");
            (0..EACH).for_each(|n| tx.insert(&table, key(transaction, n), "x").expect("fits"));
            drop(tx.commit_async().expect("commits"));
        }
        db.flush().expect("a whole disk");
        disk.stop();
        drop((table, db));
        let at = begun + random.below((disk.operations() - begun) as u64 + 1) as usize;
        let crashed = disk.crash(CrashKind::PowerCut, at, random.next_u64());
        let target = SimulatedStorage::new(0);
        let report = Database::salvage(place(&crashed), place(&target), settings.clone(), None);
        let report = report.expect("pages are there");
        let there = content(&settings.open(&target));
        let whole = (0..20).filter(|transaction| {
            let rows = (0..EACH).filter(|n| there.contains_key(&("t".into(), key(*transaction, *n)))).count();
            assert!(
                rows == 0 || rows as u64 == EACH,
                "seed {seed}: {rows} rows of {transaction}: {report:?}"
            );
            rows > 0
        });
        assert_eq!(whole.count() as u64, report.transactions, "seed {seed}");
        missing += usize::from(report.remarks.iter().any(|remark| remark.contains("missing")));
    }
    assert!(missing > 3, "too few crashes tore transactions to say anything: {missing}");
}
