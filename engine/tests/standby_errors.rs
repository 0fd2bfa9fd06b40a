//! A standby whose store does not answer for a moment, and one that begins in the middle of a long
//! transaction.

use crate::objects::{Kind, open, settings, store};
use crate::objects_several::Zones;
use crate::standby::{PATIENCE, standby_in};
use crate::support::in_time;
use quenchdb::internals::device::objects::RequestKind;
use quenchdb::internals::device::objects::simulated::{Fault, FaultKind, SimulatedClient};
use quenchdb::{Database, Preset, Settings, Standby, Transaction};
use std::sync::Arc;
use std::time::Duration;

/// Transactions of which each is read by the standby with a fault.
const ROUNDS: u64 = 60;

fn put(db: &Database, key: &str) {
    let table = db.table_or_create("t").expect("no fault");
    let mut tx = db.begin().expect("free");
    tx.insert(&table, key, [7; 300]).expect("alone");
    tx.commit().expect("no fault");
}

fn reach(standby: &Standby, db: &Database, context: &str) {
    let newest = db.statistics().newest_csn;
    let reached = standby.wait_for(newest, PATIENCE).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert!(reached, "{context}: {:?} of CSN {newest}", standby.statistics());
}

/// Lets requests of the standby's machine fail, one in each round. Without a checkpoint there is no
/// new base that would help: what is lost stays lost.
fn follow_beside_faults(db: &Database, standby: &Standby, clients: &[Arc<SimulatedClient>]) {
    let mut failed = 0;
    for round in 0..ROUNDS {
        let client = &clients[round as usize % clients.len()];
        let request = if round % 3 == 0 { RequestKind::Head } else { RequestKind::Get };
        let fault = Fault { request: Some(request), after: round / 3 % 4, ..Fault::once(FaultKind::Denied) };
        client.inject(fault);
        put(db, &format!("{round:03}"));
        for _ in 0..20 {
            failed += u64::from(standby.statistics().failure.is_some());
            std::thread::sleep(Duration::from_millis(1));
        }
        reach(standby, db, &format!("round {round}"));
    }
    let (statistics, snapshot) = (standby.statistics(), standby.snapshot().expect("free"));
    let table = snapshot.table("t").expect("is there");
    assert_eq!(snapshot.range(&table, ..).count() as u64, ROUNDS + 1);
    assert_eq!(statistics.new_bases, 0, "{statistics:?}");
    assert!(failed > 0, "no read failed");
}

#[test]
fn a_read_that_fails_costs_a_standby_nothing() {
    in_time("reads that fail", 300, || {
        for kind in Kind::ALL {
            let settings = settings(Preset::Auto).with(|s| s.lab.checkpoint_log_bytes = 0);
            let store = store(700, kind);
            let (_machine, db) = open(&settings, &store).expect("opens");
            put(&db, "first");
            let (client, storage) = crate::objects::connect(&store);
            let standby = standby_in(storage, &settings).expect("a database");
            reach(&standby, &db, "begun");
            follow_beside_faults(&db, &standby, &[client]);
        }
    });
}

#[test]
fn a_read_that_fails_in_several_buckets_costs_nothing() {
    in_time("reads that fail in several buckets", 300, || {
        let zones = Zones::new(3, 701);
        let db = zones.connect().open().expect("opens");
        put(&db, "first");
        let machine = zones.connect();
        let standby = standby_in(machine.storage.clone(), &crate::objects_several::settings());
        let standby = standby.expect("a database");
        reach(&standby, &db, "begun");
        follow_beside_faults(&db, &standby, &machine.clients);
    });
}

/// Inserts rows, enough for several chunks.
fn insert_many(tx: &mut Transaction, db: &Database, letter: &str) {
    let table = db.table("t").expect("is there");
    (0..40).for_each(|row| {
        tx.insert(&table, format!("{letter}{row:02}"), [1; 100]).expect("alone");
    });
}

fn rows(standby: &Standby) -> usize {
    let snapshot = standby.snapshot().expect("free");
    let table = snapshot.table("t").expect("is there");
    snapshot.range(&table, ..).count()
}

/// Begins a standby between the chunks of a transaction, above a checkpoint that has only the first
/// of them below it. The transaction is shown when it commits, and is there after a promotion.
fn begin_within_a_transaction(db: &Database, follow: &dyn Fn() -> Standby, context: &str) {
    put(db, "first");
    let mut long = db.begin().expect("free");
    insert_many(&mut long, db, "a");
    put(db, "second");
    db.checkpoint().expect("no fault");
    let standby = follow();
    insert_many(&mut long, db, "b");
    put(db, "third");
    reach(&standby, db, context);
    assert_eq!(rows(&standby), 3, "{context}: not committed yet");
    long.commit().expect("no fault");
    reach(&standby, db, context);
    assert_eq!(rows(&standby), 83, "{context}: committed");
    let statistics = standby.statistics();
    assert!(statistics.failure.is_none() && statistics.new_bases == 0, "{context}: {statistics:?}");
    let promoted = standby.promote().unwrap_or_else(|error| panic!("{context}: {error}"));
    let table = promoted.table("t").expect("is there");
    assert_eq!(promoted.begin_read().expect("free").range(&table, ..).count(), 83, "{context}: promoted");
}

fn in_chunks(settings: Settings) -> Settings {
    settings.with(|s| (s.lab.chunk_bytes, s.lab.checkpoint_log_bytes) = (512, 0))
}

#[test]
fn a_standby_that_begins_within_a_transaction_shows_all_of_it() {
    in_time("standbys that begin within a transaction", 300, || {
        for (seed, kind) in (710..).zip(Kind::ALL) {
            for preset in [Preset::Auto, Preset::Autonomous] {
                let (settings, store) = (in_chunks(settings(preset)), store(seed, kind));
                let (_machine, db) = open(&settings, &store).expect("opens");
                let follow = || crate::standby::standby(&store, &settings);
                begin_within_a_transaction(&db, &follow, &format!("{kind:?}, {preset:?}"));
            }
        }
        let zones = Zones::new(3, 720);
        let settings = in_chunks(crate::objects_several::settings());
        let builder = Database::builder().settings(settings.clone()).storage(zones.connect().storage);
        let db = builder.open("several").expect("opens");
        let follow = || standby_in(zones.connect().storage, &settings).expect("a database");
        begin_within_a_transaction(&db, &follow, "several buckets");
    });
}

/// The same in a directory, where the writer has to end before a promotion.
#[test]
fn a_standby_of_a_directory_may_begin_within_a_transaction() {
    in_time("a standby that begins within a transaction", 120, || {
        let directory = tempfile::tempdir().expect("space");
        let path = directory.path().join("db");
        let settings = in_chunks(settings(Preset::Auto));
        let db = Database::builder().settings(settings).open(&path).expect("opens");
        put(&db, "first");
        let mut long = db.begin().expect("free");
        insert_many(&mut long, &db, "a");
        put(&db, "second");
        db.checkpoint().expect("space");
        let standby = Database::builder().memory_bytes(4 << 20).open_standby(&path).expect("a database");
        insert_many(&mut long, &db, "b");
        put(&db, "third");
        reach(&standby, &db, "not committed yet");
        assert_eq!(rows(&standby), 3);
        long.commit().expect("space");
        reach(&standby, &db, "committed");
        assert_eq!(rows(&standby), 83);
    });
}
