//! A database in the emulator: written, killed and opened again, while requests go wrong.

use crate::support::*;
use quench_emulator::{Emulator, Faults, Options};
use quenchdb::internals::device::objects::{ObjectStorage, Options as DeviceOptions, probe};
use quenchdb::{Database, Preset};
use std::sync::Arc;
use std::time::Duration;

/// Opens the database as another process would.
fn open(emulator: &Emulator, bucket: &str, preset: Preset) -> Database {
    let store = Arc::new(connect(emulator, bucket));
    let facts = probe(&*store).expect("a right server");
    let device = DeviceOptions {
        patience: Duration::from_secs(60),
        watch: Duration::from_millis(50),
        ..DeviceOptions::default()
    };
    let storage = Arc::new(ObjectStorage::new(store, facts, device));
    Database::builder().preset(preset).memory_bytes(16 << 20).storage(storage).open("objects").expect("opens")
}

#[test]
fn database_survives_faults_and_writers_that_never_close() {
    let faults: Faults =
        "throttle=0.02,deny=0.02,error-before=0.01,error-after=0.02,lost=0.02,reset=0.01,late=0.01:100ms,twice=0.02"
            .parse()
            .expect("faults");
    for (bucket, preset) in [
        (Options::DIRECTORY_BUCKET, Preset::Auto),
        (Options::DIRECTORY_BUCKET, Preset::Autonomous),
        (Options::BUCKET, Preset::Pipelined),
    ] {
        let emulator = start(Options::default());
        let mut rows = 0_u32;
        for _ in 0..3 {
            let db = open(&emulator, bucket, preset);
            emulator.set_faults(faults.clone());
            let table = db.table("t").or_else(|_| db.create_table("t")).expect("a table");
            let found = db.begin_read().expect("free").range(&table, ..).count();
            assert_eq!(found, rows as usize, "{bucket} {preset:?}");
            for _ in 0..60 {
                let mut tx = db.begin().expect("free");
                tx.insert(&table, rows.to_be_bytes(), vec![7; 200]).expect("fits");
                tx.commit().expect("faults pass");
                rows += 1;
            }
            emulator.set_faults(Faults::default());
            // The next writer takes over; this one never closes.
            std::mem::forget(db);
        }
        assert!(emulator.counts().faults > 0);
        let db = open(&emulator, bucket, preset);
        assert!(db.verify(None).expect("runs").problems.is_empty());
    }
}

#[test]
fn commit_while_the_store_refuses_waits_and_succeeds() {
    for bucket in [Options::DIRECTORY_BUCKET, Options::BUCKET] {
        let emulator = start(Options::default());
        let db = open(&emulator, bucket, Preset::Auto);
        let table = db.create_table("t").expect("new");
        emulator.set_faults("deny=1".parse().expect("faults"));
        let during = {
            let (db, table) = (db.clone(), table.clone());
            std::thread::spawn(move || db.transact(|tx| tx.insert(&table, "a", "1")))
        };
        std::thread::sleep(Duration::from_millis(700));
        assert!(!during.is_finished(), "{bucket}");
        emulator.set_faults(Faults::default());
        during.join().expect("no panic").expect("the store accepts again");
        db.transact(|tx| tx.insert(&table, "b", "1")).expect("not poisoned");
        drop(table);
        db.close().expect("closes");
    }
}
