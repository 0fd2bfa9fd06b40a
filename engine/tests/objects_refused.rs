//! Stores that refuse requests for a while: expired credentials, a permission, a clock. A refused
//! request has a known outcome, so nothing is lost, and nothing is unknown.

use crate::objects::{Kind, check, connect, count, open, settings, store, verify};
use crate::support::in_time;
use quenchdb::internals::device::objects::simulated::{Fault, FaultKind, SimulatedStore};
use quenchdb::internals::device::objects::{ObjectStorage, ObjectStore, Options, RequestKind};
use quenchdb::{Database, ErrorKind, Preset};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Refuses all requests on names with this prefix from now on.
fn refuse(store: &SimulatedStore, prefix: &str) {
    let (kind, prefix) = (FaultKind::Forbidden, prefix.to_string());
    store.inject(Fault { kind, request: None, prefix, after: 0, for_ever: true });
}

/// Opens the database on a machine that gives up soon.
fn open_impatient(store: &SimulatedStore, preset: Preset) -> Database {
    let client = store.client();
    let options = Options { patience: Duration::from_millis(300), lanes: 2, ..Options::default() };
    let storage = Arc::new(ObjectStorage::new(client.clone(), client.facts(), options));
    Database::builder().settings(settings(preset)).storage(storage).open("objects").expect("opens")
}

#[test]
fn commit_while_the_store_refuses_waits_and_succeeds() {
    in_time("commits that wait", 120, || {
        for (kind, preset) in
            Kind::ALL.into_iter().flat_map(|kind| [Preset::Auto, Preset::Pipelined].map(|p| (kind, p)))
        {
            let store = store(1, kind);
            let (client, db) = open(&settings(preset), &store).expect("opens");
            let table = db.create_table("t").expect("new");
            count(&db, &table, 100).expect("commits");
            refuse(&store, "");
            let during = {
                let (db, table) = (db.clone(), table.clone());
                std::thread::spawn(move || count(&db, &table, 100))
            };
            std::thread::sleep(Duration::from_millis(200));
            assert!(!during.is_finished(), "{preset}, {kind:?}");
            store.heal();
            assert_eq!(during.join().expect("no panic").expect("the store accepts again"), 2);
            assert_eq!(count(&db, &table, 100).expect("not poisoned"), 3);
            db.checkpoint().expect("no fault");
            drop(table);
            db.close().expect("closes");
            client.kill();
        }
    });
}

#[test]
fn commit_that_is_refused_to_the_end_is_known_to_be_lost() {
    in_time("commits that are refused", 120, || {
        for (appends, preset) in
            [true, false].into_iter().flat_map(|a| [Preset::Auto, Preset::Queued].map(|p| (a, p)))
        {
            let context = format!("{preset}, appends {appends}");
            let store = store(2, appends);
            let db = open_impatient(&store, preset);
            let table = db.create_table("t").expect("new");
            count(&db, &table, 100).expect("commits");
            refuse(&store, "");
            let error = count(&db, &table, 100).expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Io, "{context}: {error}");
            assert!(error.to_string().contains("simulated: forbidden"), "{context}: {error}");
            let later = count(&db, &table, 100).expect_err("commits have stopped");
            assert_eq!(later.kind(), ErrorKind::Poisoned, "{context}: {later}");
            store.heal();
            drop((table, db));
            let (client, db) = open(&settings(preset), &store).expect("opens");
            assert_eq!(check(&db, &context), 1, "{context}");
            verify(&db, &context);
            let table = db.table("t").expect("is there");
            assert_eq!(count(&db, &table, 100).expect("commits"), 2, "{context}");
            drop((table, db));
            client.kill();
        }
    });
}

#[test]
fn refusals_after_a_lost_reply_leave_the_outcome_unknown() {
    in_time("lost replies and refusals", 120, || {
        for appends in [true, false] {
            let store = store(3, appends);
            let db = open_impatient(&store, Preset::Auto);
            let table = db.create_table("t").expect("new");
            count(&db, &table, 100).expect("commits");
            let lost = Fault { prefix: "log/".into(), ..Fault::once(FaultKind::LostReply) };
            store.inject(lost);
            refuse(&store, "");
            let error = count(&db, &table, 100).expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "appends {appends}: {error}");
            store.heal();
            drop((table, db));
            let (client, db) = open(&settings(Preset::Auto), &store).expect("opens");
            assert_eq!(check(&db, "the first copy took effect"), 2, "appends {appends}");
            drop(db);
            client.kill();
        }
    });
}

#[test]
fn checkpoint_that_is_refused_costs_only_time() {
    in_time("checkpoints that are refused", 120, || {
        for prefix in ["manifest", "pages/"] {
            let store = store(4, true);
            let db = open_impatient(&store, Preset::Auto);
            let table = db.create_table("t").expect("new");
            count(&db, &table, 100).expect("commits");
            refuse(&store, prefix);
            let error = db.checkpoint().expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Io, "{prefix}: {error}");
            count(&db, &table, 100).expect("the log is accepted");
            store.heal();
            db.checkpoint().unwrap_or_else(|error| panic!("{prefix}: {error}"));
            count(&db, &table, 100).expect("commits");
            verify(&db, prefix);
            drop(table);
            db.close().expect("closes");
            let (client, db) = open(&settings(Preset::Auto), &store).expect("opens");
            assert_eq!(check(&db, prefix), 3);
            drop(db);
            client.kill();
        }
    });
}

#[test]
fn reader_without_access_hears_of_it_at_once() {
    let store = store(5, true);
    let (writer, db) = open(&settings(Preset::Auto), &store).expect("opens");
    drop(db);
    writer.kill();
    refuse(&store, "");
    let (_, probed) = connect(&store);
    let client = store.client();
    let options = Options { patience: Duration::from_secs(60), ..Options::default() };
    let storage = ObjectStorage::unprobed(client.clone(), client.facts(), options);
    drop(probed);
    let began = Instant::now();
    let read = Database::builder().read_only(true).storage(Arc::new(storage)).open("objects");
    let error = read.expect_err("no access");
    assert!(error.to_string().contains("simulated: forbidden"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    // A refusal after the first answers is waited for.
    store.heal();
    let request = Some(RequestKind::Get);
    for after in 1..4 {
        let prefix = String::new();
        store.inject(Fault { kind: FaultKind::Forbidden, request, prefix, after, for_ever: false });
    }
    let client = store.client();
    let storage = ObjectStorage::unprobed(client.clone(), client.facts(), options);
    let read = Database::builder().read_only(true).storage(Arc::new(storage)).open("objects");
    drop(read.expect("opens"));
    client.kill();
}
