//! What a promoted standby hands over to recovery: the log is not replayed again, nothing is lost
//! by that, and the next recovery, from the old checkpoint, comes to the same.

use crate::objects::{connect, open, settings, store, verify};
use crate::standby::{PATIENCE, Primary, standby, without_marks};
use crate::support::{content, in_time};
use quenchdb::internals::base::depth::{depth, is_deep};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::objects::simulated::{SimulatedStore, StoreOptions};
use quenchdb::{Database, Preset, Settings};
use std::time::{Duration, Instant};

#[test]
fn a_promotion_continues_from_what_was_applied() {
    in_time("promotions", 600, || {
        let mut adopted = 0;
        for seed in 0..depth(60) {
            adopted += u64::from(promote_again_and_again(seed, seed % 2 == 0, 1 + seed as usize / 2 % 2));
        }
        assert!(adopted > 0, "no promotion took pages over");
    });
}

/// Promotes standbys of one database one after the other. Returns how many took pages over.
fn promote_again_and_again(seed: u64, appends: bool, logs: usize) -> u32 {
    let settings = settings(Preset::Auto).with(|s| s.logs = logs);
    let store = store(seed, appends);
    let mut random = Random::from_seed(seed);
    let (mut client, db) = open(&settings, &store).expect("opens");
    let mut primary = Primary::new(db, seed);
    (0..3).for_each(|_| primary.create());
    primary.note();
    let mut adopted = 0;
    for round in 0..8 {
        let context = format!("seed {seed}, round {round}");
        change(&mut primary, random.below(60));
        if random.below(3) > 0 {
            primary.db.checkpoint().expect("no fault");
        }
        change(&mut primary, random.below(10));
        let standby = standby(&store, &settings);
        change(&mut primary, random.below(80));
        let newest = primary.newest();
        if random.below(3) > 0 {
            assert!(standby.wait_for(newest, PATIENCE).expect("follows"), "{context}");
            change(&mut primary, random.below(4));
        }
        let kept = (random.below(2) == 0).then(|| standby.snapshot().expect("free"));
        if random.below(2) == 0 {
            client.stop();
        }
        let promoted = standby.promote().unwrap_or_else(|error| panic!("{context}: {error}"));
        adopted += u32::from(promoted.recovery().adopted_pages > 0);
        assert!(content(&promoted) == without_marks(&primary.model), "{context}: promoted");
        kept.iter().for_each(|snapshot| primary.check(snapshot, &context));
        primary.db = promoted;
        primary.note();
        client = end_or_continue(&mut primary, &mut random, &settings, &store, &context);
    }
    verify(&primary.db, &format!("seed {seed}"));
    drop(client);
    adopted
}

/// Lets the promoted database continue, with or without a checkpoint, or end in any way and be
/// opened again. Returns the machine that has it at the end.
fn end_or_continue(
    primary: &mut Primary,
    random: &mut Random,
    settings: &Settings,
    store: &quenchdb::internals::device::objects::simulated::SimulatedStore,
    context: &str,
) -> std::sync::Arc<quenchdb::internals::device::objects::simulated::SimulatedClient> {
    change(primary, random.below(30));
    match random.below(4) {
        0 => drop(primary.db.checkpoint().expect("no fault")),
        // The next open is the end of this one, which has made no checkpoint, perhaps.
        1 => {}
        2 => verify(&primary.db, context),
        _ => primary.db.clone().close().expect("no fault"),
    }
    change_if_open(primary, random.below(20));
    let (client, db) = open(settings, store).unwrap_or_else(|error| panic!("{context}: {error}"));
    primary.db = db;
    primary.note();
    assert!(content(&primary.db) == without_marks(&primary.model), "{context}: opened again");
    client
}

fn change(primary: &mut Primary, steps: u64) {
    for step in 0..steps {
        let names = primary.names();
        primary.change_rows(&names[step as usize % names.len()]);
        primary.note();
    }
}

fn change_if_open(primary: &mut Primary, steps: u64) {
    if primary.db.begin().is_ok() {
        change(primary, steps);
    }
}

/// CSNs that an earlier recovery has found missing, above the checkpoint and below what the standby
/// shows, are no loss for the recovery after a promotion.
#[test]
fn what_a_recovery_discarded_stays_so_after_a_promotion() {
    in_time("discarded transactions", 300, || {
        let adopted = (0..depth(400)).filter(|seed| promote_above_discarded(*seed)).count();
        assert!(adopted > 0, "no promotion took pages over");
    });
}

/// Kills a writer with two logs at work, opens the database without a checkpoint, and promotes a
/// standby. Returns whether pages were taken over.
fn promote_above_discarded(seed: u64) -> bool {
    let context = format!("seed {seed}");
    let settings = settings(Preset::Autonomous).with(|s| s.lab.checkpoint_log_bytes = 0);
    let latency = Duration::from_micros(500);
    let appends = seed.is_multiple_of(2);
    let store = SimulatedStore::with(StoreOptions { latency, appends, ..StoreOptions::new(100 + seed) });
    let (client, db) = open(&settings, &store).expect("opens");
    let table = db.create_table("t").expect("new");
    db.checkpoint().expect("no fault");
    let writers: Vec<_> = (0..4_u64)
        .map(|writer| {
            let (db, table) = (db.clone(), table.clone());
            std::thread::spawn(move || {
                for row in 0.. {
                    let Ok(mut tx) = db.begin() else { return };
                    let key = [writer.to_be_bytes(), u64::to_be_bytes(row)].concat();
                    if tx.insert(&table, key, vec![7; 200]).is_err() || tx.commit().is_err() {
                        return;
                    }
                }
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(10 + seed % 20));
    client.stop();
    writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
    drop((table, db));
    store.lose_late();
    let (client, db) = open(&settings, &store).unwrap_or_else(|error| panic!("{context}: {error}"));
    let standby = standby(&store, &settings);
    let table = db.table("t").expect("is there");
    db.transact(|tx| tx.insert(&table, "last", "x")).expect("no fault");
    let newest = db.begin_read().expect("free").csn();
    assert!(standby.wait_for(newest, PATIENCE).expect("follows"), "{context}: {:?}", standby.statistics());
    let expected = content(&db);
    client.stop();
    drop((table, db));
    let promoted = standby.promote().unwrap_or_else(|error| panic!("{context}: {error}"));
    let adopted = promoted.recovery().adopted_pages > 0;
    assert!(content(&promoted) == expected, "{context}: promoted");
    // No checkpoint: the next recovery begins at that of the first writer.
    let (_, again) = open(&settings, &store).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert!(content(&again) == expected, "{context}: opened again");
    verify(&again, &context);
    adopted
}

#[test]
fn a_standby_takes_the_newest_checkpoint_as_its_base() {
    in_time("new bases", 120, || {
        let (settings, store) = (settings(Preset::Auto), store(7, true));
        let (client, db) = open(&settings, &store).expect("opens");
        let mut primary = Primary::new(db, 7);
        primary.create();
        primary.note();
        let standby = standby(&store, &settings);
        change(&mut primary, 50);
        primary.db.checkpoint().expect("no fault");
        let begun = Instant::now();
        while standby.statistics().base_csn < primary.db.checkpoint_csn() {
            change(&mut primary, 50);
            assert!(begun.elapsed() < PATIENCE, "{:?}", standby.statistics());
        }
        assert!(standby.wait_for(primary.newest(), PATIENCE).expect("follows"));
        primary.check(&standby.snapshot().expect("free"), "after that");
        client.stop();
        let promoted = standby.promote().expect("is there");
        assert!(content(&promoted) == without_marks(&primary.model));
        let (_, storage) = connect(&store);
        let pins = quenchdb::Place::storage(storage).pins().expect("no fault");
        assert!(pins.is_empty(), "a promotion leaves no pin: {pins:?}");
    });
}

/// With `QUENCH_DEEP`: a gigabyte of log since the checkpoint.
#[test]
fn a_promotion_is_quick_however_long_the_log_is() {
    in_time("a long log", 900, || {
        let log_bytes: u64 = if is_deep() { 1 << 30 } else { 24 << 20 };
        let directory = tempfile::tempdir().expect("space");
        let url = format!("file://{}", directory.path().join("db").display());
        let settings = Settings::default().with(|s| {
            (s.memory_bytes, s.log_bytes_max, s.recovery_seconds) = (1 << 30, 4 << 30, 3600);
        });
        // No checkpoint but those of the test.
        let builder =
            || Database::builder().settings(settings.clone()).lab(|lab| lab.checkpoint_log_bytes = 0);
        let db = builder().open(&url).expect("new");
        let table = db.create_table("t").expect("new");
        let rows = log_bytes / 4096;
        let fill = |from: u64, to: u64| {
            let mut random = Random::from_seed(from);
            for _ in from / 16..to / 16 {
                let mut tx = db.begin().expect("free");
                for _ in 0..16 {
                    let value: Vec<u8> = (0..50).flat_map(|_| random.next_u64().to_be_bytes()).collect();
                    tx.insert(&table, random.below(rows).to_be_bytes(), value).expect("alone");
                }
                drop(tx.commit_async().expect("no fault"));
            }
            db.flush().expect("no fault");
        };
        fill(0, rows);
        db.checkpoint().expect("no fault");
        let standby = builder().open_standby(&url).expect("follows");
        let before = db.checkpoint_csn();
        fill(rows, rows + log_bytes / 440);
        let newest = db.begin_read().expect("free").csn();
        assert_eq!(db.checkpoint_csn(), before, "no checkpoint came in between");
        assert!(standby.wait_for(newest, Duration::from_secs(300)).expect("follows"));
        let expected = content(&db);
        let begun = Instant::now();
        let promoted = standby.promote().expect("is there");
        let took = begun.elapsed();
        let report = promoted.recovery();
        println!("promoted in {took:?} with {log_bytes} bytes of log: {report:?}");
        assert!(report.adopted_pages > 0 && report.log_bytes < log_bytes / 8, "{report:?}");
        assert!(content(&promoted) == expected, "promoted");
        // The next one begins at the old checkpoint.
        let begun = Instant::now();
        let again = builder().open(&url).expect("is there");
        println!("an ordinary open: {:?}, {:?}", begun.elapsed(), again.recovery());
        assert!(again.recovery().log_bytes > log_bytes / 2, "{:?}", again.recovery());
        assert!(content(&again) == expected, "opened again");
        if is_deep() {
            // Beside other tests; alone it takes a second and a half.
            assert!(took < Duration::from_secs(20), "{took:?}");
        }
    });
}
