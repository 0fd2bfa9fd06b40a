//! Databases with their log in a zonal bucket: the client, the segment and the fence against an
//! emulator that is as strict as the service.

use quench_emulator::{
    RapidEmulator, RapidFault, RapidFaults, RapidLatency, RapidMistake, RapidOptions, RapidStep,
};
use quenchdb::internals::base::depth::{depth, is_deep};
use quenchdb::internals::device::objects::rapid::RapidStore;
use quenchdb::internals::device::objects::simulated::SimulatedStore;
use quenchdb::internals::device::objects::{
    CloudOptions, FailureKind, ObjectStorage, ObjectStore, ObjectUrl, Options, Reply, Request, RoutedStore,
    Version, perform,
};
use quenchdb::{Database, ErrorKind, Preset, Result, Settings, Table};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const COUNTER: &[u8] = b"counter";

pub fn start(options: RapidOptions) -> RapidEmulator {
    RapidEmulator::start(options).expect("a free port")
}

/// Connects another machine to the zonal bucket.
fn connect(emulator: &RapidEmulator) -> RapidStore {
    connect_to(&emulator.address().to_string(), "db")
}

/// Connects to a server that speaks the protocol.
fn connect_to(server: &str, prefix: &str) -> RapidStore {
    let settings = vec![("STORAGE_EMULATOR_HOST_GRPC".to_string(), server.to_string())];
    let options = CloudOptions { settings, ..CloudOptions::default() };
    let url = format!("gs://{}/{prefix}", RapidOptions::BUCKET);
    RapidStore::connect(&ObjectUrl::parse(&url).expect("a URL"), &options).expect("connects")
}

fn settings(preset: Preset) -> Settings {
    Settings::default().with(|s| {
        s.preset = preset;
        s.memory_bytes = 16 << 20;
        s.segment_bytes = 1 << 20;
        s.log_bytes_max = 64 << 20;
        s.lab.checkpoint_log_bytes = 4 << 20;
    })
}

/// Opens the database on another machine, with everything but the log in `rest`.
pub fn open(emulator: &RapidEmulator, rest: &SimulatedStore, preset: Preset) -> Result<Database> {
    open_at(connect(emulator), rest, preset)
}

fn open_at(log: RapidStore, rest: &SimulatedStore, preset: Preset) -> Result<Database> {
    let store = RoutedStore::new(Arc::new(log), rest.client());
    let (patience, watch) = (Duration::from_secs(20), Duration::from_millis(50));
    let claim_rest = Duration::from_millis(20);
    let options = Options { patience, watch, lanes: 2, claim_rest, ..Options::default() };
    let facts = store.facts();
    let storage = Arc::new(ObjectStorage::new(Arc::new(store), facts, options));
    Database::builder().settings(settings(preset)).storage(storage).open("zonal")
}

/// Runs the next transaction, and returns its number.
pub fn count(db: &Database, table: &Table, bytes: usize) -> Result<u32> {
    let mut tx = db.begin()?;
    let last = tx.get_for_update(table, COUNTER)?;
    let next = last.map_or(0, |last| u32::from_be_bytes(last[..].try_into().expect("four bytes"))) + 1;
    tx.insert(table, next.to_be_bytes(), vec![next as u8; bytes])?;
    tx.insert(table, COUNTER, next.to_be_bytes())?;
    tx.commit()?;
    Ok(next)
}

/// Checks that the rows are those from 1 to the counter, and returns the counter.
pub fn check(db: &Database, context: &str) -> u32 {
    let table = db.table("t").unwrap_or_else(|error| panic!("{context}: {error}"));
    let snapshot = db.begin_read().expect("free");
    let counter = snapshot.get(&table, COUNTER).expect("readable");
    let counter = counter.map_or(0, |last| u32::from_be_bytes(last[..].try_into().expect("four bytes")));
    let keys = snapshot.range(&table, ..).map(|row| row.expect("readable").0.to_vec());
    let keys: Vec<Vec<u8>> = keys.filter(|key| key != COUNTER).collect();
    let expected: Vec<Vec<u8>> = (1..=counter).map(|number| number.to_be_bytes().to_vec()).collect();
    assert_eq!(keys, expected, "{context}");
    counter
}

pub fn odds(faults: &str) -> RapidFaults {
    faults.parse().expect("faults")
}

fn create(store: &RapidStore, name: &str) -> Version {
    let body = vec![7; 4096].into();
    let created = perform(store, Request::Create { name: name.into(), body }).expect("a new name");
    assert_eq!(created.len, 4096);
    created.version.expect("a generation")
}

fn append(
    store: &RapidStore,
    name: &str,
    offset: u64,
    body: &[u8],
) -> std::result::Result<Reply, FailureKind> {
    let body = body.to_vec().into();
    perform(store, Request::Append { name: name.into(), offset, body, version: None })
        .map_err(|failure| failure.kind)
}

#[test]
fn stream_creates_appends_and_finalizes() {
    let emulator = start(RapidOptions::default());
    let store = connect(&emulator);
    let version = create(&store, "log/1");
    let again = Request::Create { name: "log/1".into(), body: vec![1].into() };
    assert_eq!(perform(&store, again).expect_err("it exists").kind, FailureKind::Refused);
    assert_eq!(append(&store, "log/1", 4096, b"abc").expect("on its stream").len, 4099);
    // More than a message holds.
    let long = vec![9; 5 << 20];
    let len = 4099 + long.len() as u64;
    assert_eq!(append(&store, "log/1", 4099, &long).expect("on its stream").len, len);
    let head = perform(&store, Request::Head { name: "log/1".into() }).expect("there");
    assert_eq!((head.len, head.is_final), (len, false), "a list would show an old length");
    let listed = perform(&store, Request::List { prefix: "log/".into() }).expect("there").listed;
    assert_eq!(listed.iter().map(|object| object.len).collect::<Vec<_>>(), [len]);
    let get = |range| perform(&store, Request::Get { name: "log/1".into(), range }).expect("there");
    assert_eq!(&get(Some(4095..4100)).body[..], b"\x07abc\x09");
    assert_eq!(get(None).body.len() as u64, len);
    assert!(get(Some(len..len + 1)).body.is_empty());
    let finalize = Request::Finalize { name: "log/1".into(), version: version.clone(), len };
    assert_eq!(perform(&store, finalize).expect("nothing is pending").len, len);
    let head = perform(&store, Request::Head { name: "log/1".into() }).expect("there");
    assert_eq!((head.len, head.is_final), (len, true));
    let open = Request::Open { name: "log/1".into(), version, takes_over: true };
    assert_eq!(perform(&store, open).expect_err("finalized").kind, FailureKind::Refused);
    perform(&store, Request::Delete { name: "log/1".into() }).expect("there");
    perform(&store, Request::Delete { name: "log/1".into() }).expect("absent is no failure");
    assert!(emulator.objects().is_empty());
}

#[test]
fn stream_that_is_taken_over_appends_nothing() {
    let emulator = start(RapidOptions::default());
    let (first, second) = (connect(&emulator), connect(&emulator));
    let version = create(&first, "log/1");
    append(&first, "log/1", 4096, b"abc").expect("on its stream");
    let open = |takes_over| Request::Open { name: "log/1".into(), version: version.clone(), takes_over };
    let opened = perform(&second, open(true)).expect("takes over");
    assert_eq!(opened.len, 4099);
    assert!(append(&first, "log/1", 4099, b"zombie").is_err());
    let refused = perform(&first, open(false)).expect_err("its handle is old");
    assert_eq!(refused.kind, FailureKind::Refused);
    let finalize = Request::Finalize { name: "log/1".into(), version: version.clone(), len: opened.len };
    assert_eq!(perform(&second, finalize).expect("the newest stream").len, 4099);
    assert_eq!(perform(&first, open(true)).expect_err("finalized").kind, FailureKind::Refused);
    let other = Version("99999".into());
    let open = Request::Open { name: "log/1".into(), version: other, takes_over: true };
    assert_eq!(perform(&first, open).expect_err("no such generation").kind, FailureKind::Absent);
}

#[test]
fn lost_stream_resumes_at_the_length_of_the_answer() {
    let emulator = start(RapidOptions::default());
    let store = connect(&emulator);
    let version = create(&store, "log/1");
    for (fault, least, most) in
        [(RapidFault::Before, 0, 0), (RapidFault::After, 3000, 3000), (RapidFault::Torn, 0, 3000)]
    {
        let open = || {
            let (name, version) = ("log/1".into(), version.clone());
            perform(&store, Request::Open { name, version, takes_over: false }).expect("its handle").len
        };
        let before = open();
        let mut faults = RapidFaults::default();
        faults.arm(RapidStep::Append, fault, 0);
        emulator.set_faults(faults);
        assert_eq!(append(&store, "log/1", before, &[1; 3000]).expect_err("cut"), FailureKind::Unknown);
        let after = open();
        assert!((before + least..=before + most).contains(&after), "{fault:?}: {after} after {before}");
        append(&store, "log/1", after, &[2; 100]).expect("on the new stream");
    }
}

#[test]
fn database_survives_its_close_and_its_kill() {
    let (emulator, rest) = (start(RapidOptions::default()), SimulatedStore::new(1));
    for preset in [Preset::Auto, Preset::Autonomous, Preset::PerTransaction] {
        let db = open(&emulator, &rest, preset).expect("opens");
        let table = db.table_or_create("t").expect("there or new");
        let mut last = 0;
        for _ in 0..20 {
            last = count(&db, &table, 3_000).expect("commits");
        }
        db.checkpoint().expect("no fault");
        for _ in 0..5 {
            last = count(&db, &table, 3_000).expect("commits");
        }
        drop(table);
        db.close().expect("closes");
        assert!(emulator.objects().values().all(|(_, is_final)| *is_final), "{:?}", emulator.objects());
        let db = open(&emulator, &rest, preset).expect("opens");
        assert_eq!(check(&db, "closed"), last);
        let table = db.table("t").expect("there");
        last = count(&db, &table, 100).expect("commits");
        std::mem::forget((table, db));
        let db = open(&emulator, &rest, preset).expect("takes over");
        assert_eq!(check(&db, "taken over"), last);
        assert!(db.verify(None).expect("runs").problems.is_empty());
        drop(db);
    }
}

/// One fault at each step that it fits, at several moments: of the creation of lanes, of appends,
/// of the end, of the takeover and of its publication. Nothing is lost, and the database continues.
#[test]
fn every_fault_at_every_step_loses_nothing() {
    let moments = if is_deep() { 12 } else { 3 };
    for step in RapidStep::ALL {
        for (name, fault) in RapidFault::ALL.into_iter().filter(|(_, fault)| fault.fits(step)) {
            for after in 0..moments {
                struck(step, name, fault, after);
            }
        }
    }
}

fn struck(step: RapidStep, name: &str, fault: RapidFault, after: u64) {
    let context = format!("{name} at {step:?} after {after}");
    let (emulator, rest) = (start(RapidOptions::default()), SimulatedStore::new(after));
    let arm = || {
        let mut faults = RapidFaults::default();
        faults.arm(step, fault, after);
        if step == RapidStep::Resume {
            // Something has to be resumed.
            faults.arm(RapidStep::Append, RapidFault::Torn, after);
        }
        emulator.set_faults(faults);
    };
    arm();
    let db = open(&emulator, &rest, Preset::Auto).unwrap_or_else(|error| panic!("{context}: {error}"));
    let table = db.create_table("t").unwrap_or_else(|error| panic!("{context}: {error}"));
    for number in 1..=8 {
        let counted = count(&db, &table, 700).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!(counted, number, "{context}");
    }
    // A takeover, with the writer before it alive.
    arm();
    let next = open(&emulator, &rest, Preset::Auto).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(check(&next, &context), 8, "{context}");
    count(&db, &table, 10).expect_err("it has ended");
    let theirs = next.table("t").expect("there");
    assert_eq!(count(&next, &theirs, 10).unwrap_or_else(|error| panic!("{context}: {error}")), 9);
    next.checkpoint().unwrap_or_else(|error| panic!("{context}: {error}"));
    drop((table, db, theirs));
    // An end, and a list of what is there.
    arm();
    next.close().unwrap_or_else(|error| panic!("{context}: {error}"));
    let last = open(&emulator, &rest, Preset::Auto).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(check(&last, &context), 9, "{context}");
    assert!(last.verify(None).expect("runs").problems.is_empty(), "{context}");
}

#[test]
fn ambiguous_outcomes_lose_and_repeat_nothing() {
    let wanted = depth(5_000).max(300);
    let mut faults = 0;
    for (seed, as_testbench) in [(1, false), (2, true)] {
        let emulator = start(RapidOptions { seed, as_testbench, ..RapidOptions::default() });
        let rest = SimulatedStore::new(seed);
        let db = open(&emulator, &rest, Preset::Auto).expect("opens");
        let table = db.create_table("t").expect("new");
        emulator.set_faults(odds("before=0.03,after=0.03,torn=0.04,redirect=0.05,late=0.02,expire=0.05"));
        let mut number = 0;
        while emulator.counts().get("faults").copied().unwrap_or(0) < wanted / 2 {
            number += 1;
            let counted = count(&db, &table, 50 + number as usize % 5_000);
            assert_eq!(counted.unwrap_or_else(|error| panic!("commit {number}: {error}")), number);
            if number % 500 == 0 {
                db.checkpoint().expect("no fault for ever");
            }
        }
        emulator.set_faults(RapidFaults::default());
        std::mem::forget((table, db));
        let next = open(&emulator, &rest, Preset::Auto).expect("takes over");
        assert_eq!(check(&next, "taken over"), number);
        assert!(next.verify(None).expect("runs").problems.is_empty());
        faults += emulator.counts()["faults"];
    }
    println!("{faults} faults");
    assert!(faults >= wanted, "{faults}");
}

/// A writer commits until another one ends it, which then is the writer. No writer is closed.
#[test]
fn takeovers_beside_a_living_writer_lose_nothing() {
    let presets = [Preset::Auto, Preset::Autonomous, Preset::Group, Preset::Pipelined];
    // The service revokes a stream that is taken over. It need not.
    for mistakes in [vec![], vec![RapidMistake::NoRevocation]] {
        let emulator = start(RapidOptions { mistakes: mistakes.clone(), ..RapidOptions::default() });
        let rest = SimulatedStore::new(3);
        let mut db = open(&emulator, &rest, Preset::Auto).expect("opens");
        db.create_table("t").expect("new");
        for round in 0..depth(200) as usize / 2 {
            let context = format!("takeover {round}, {mistakes:?}");
            let zombie = {
                let db = db.clone();
                std::thread::spawn(move || {
                    let (table, mut last) = (db.table("t").expect("there"), 0);
                    loop {
                        match count(&db, &table, 200) {
                            Ok(number) => last = number,
                            Err(error) => return (last, error),
                        }
                    }
                })
            };
            std::thread::sleep(Duration::from_millis(round as u64 % 7));
            let next = open(&emulator, &rest, presets[round % presets.len()]);
            let next = next.unwrap_or_else(|error| panic!("{context}: {error}"));
            let found = check(&next, &context);
            let (last, error) = zombie.join().expect("no panic");
            assert!(last <= found, "{context}: {last} was acknowledged, {found} is there");
            let kinds = [ErrorKind::Fenced, ErrorKind::OutcomeUnknown];
            assert!(kinds.contains(&error.kind()), "{context}: {error}");
            let table = next.table("t").expect("there");
            let number = count(&next, &table, 200).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_eq!(number, found + 1, "{context}");
            drop(std::mem::replace(&mut db, next));
        }
        assert!(db.verify(None).expect("runs").problems.is_empty());
    }
}

/// While the service is away, or refuses the credentials, commits wait; after that they continue.
#[test]
fn commits_wait_for_a_service_that_refuses_all() {
    for faults in ["before=1", "deny=1"] {
        let (emulator, rest) = (start(RapidOptions::default()), SimulatedStore::new(4));
        let db = open(&emulator, &rest, Preset::Auto).expect("opens");
        let table = db.create_table("t").expect("new");
        count(&db, &table, 10).expect("commits");
        emulator.set_faults(odds(faults));
        let committer = {
            let (db, table) = (db.clone(), table.clone());
            std::thread::spawn(move || count(&db, &table, 10))
        };
        std::thread::sleep(Duration::from_millis(500));
        assert!(!committer.is_finished(), "{faults}: the commit waits");
        emulator.set_faults(RapidFaults::default());
        assert_eq!(committer.join().expect("no panic").expect("goes on"), 2, "{faults}");
        drop(table);
        db.close().expect("closes");
    }
}

/// As for other stores: wrong credentials are an error at once, and the error says what to allow.
#[test]
fn refused_credentials_are_named() {
    let emulator = start(RapidOptions { faults: odds("deny=1"), ..RapidOptions::default() });
    let store = connect(&emulator);
    let (name, version) = ("log/1".to_string(), Version("1".into()));
    for request in [
        Request::Create { name: name.clone(), body: vec![1].into() },
        Request::Open { name: name.clone(), version, takes_over: true },
        Request::Head { name: name.clone() },
        Request::Get { name: name.clone(), range: None },
        Request::List { prefix: "log/".into() },
        Request::Delete { name },
    ] {
        let failure = perform(&store, request.clone()).expect_err("refused");
        assert_eq!(failure.kind, FailureKind::Forbidden, "{request:?}: {failure:?}");
        let advised = ["allow these credentials", "check the credentials"];
        assert!(advised.iter().any(|advice| failure.what.contains(advice)), "{failure:?}");
    }
    let error =
        probed(RapidOptions { faults: odds("deny=1"), ..RapidOptions::default() }).expect_err("denied");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

/// One flush confirms all appends before it, and flushes overlap.
#[test]
fn appends_in_flight_share_flushes() {
    let latency = RapidLatency::GcsRapid;
    let emulator = start(RapidOptions { latency, ..RapidOptions::default() });
    let store = connect(&emulator);
    let version = create(&store, "log/1");
    let (sender, ended) = std::sync::mpsc::channel();
    let begun = Instant::now();
    for n in 0..200_u64 {
        let (sender, body) = (sender.clone(), vec![n as u8; 512].into());
        let request = Request::Append {
            name: "log/1".into(),
            offset: 4096 + 512 * n,
            body,
            version: Some(version.clone()),
        };
        store.start(
            request,
            Box::new(move |outcome| sender.send((n, outcome.is_ok())).expect("the test listens")),
        );
    }
    let order: Vec<(u64, bool)> = (0..200).map(|_| ended.recv().expect("each ends")).collect();
    assert_eq!(order, (0..200).map(|n| (n, true)).collect::<Vec<_>>());
    // One after the other they would take more than 300 ms.
    assert!(begun.elapsed() < Duration::from_millis(200), "{:?}", begun.elapsed());
}

/// What a flush confirmed is there when a server with a directory is started again; the last handle
/// still names the writer, and what is finalized stays so.
#[test]
fn directory_keeps_what_was_confirmed() {
    let place = tempfile::tempdir().expect("a directory");
    let directory = Some(place.path().to_path_buf());
    let start = || start(RapidOptions { directory: directory.clone(), ..RapidOptions::default() });
    let emulator = start();
    let store = connect(&emulator);
    let (version, other) = (create(&store, "log/1"), create(&store, "log/2"));
    append(&store, "log/1", 4096, &[5; 3000]).expect("on its stream");
    append(&store, "log/2", 4096, b"abc").expect("on its stream");
    let finalize = Request::Finalize { name: "log/2".into(), version: other.clone(), len: 4099 };
    perform(&store, finalize).expect("nothing is pending");
    create(&store, "log/3");
    perform(&store, Request::Delete { name: "log/3".into() }).expect("there");
    let listen = emulator.address();
    let before = emulator.objects();
    let second = RapidOptions { directory: directory.clone(), ..RapidOptions::default() };
    let refused = RapidEmulator::start(second).map(drop).expect_err("the directory is in use");
    assert!(refused.to_string().contains("another emulator has the directory"), "{refused}");
    drop(emulator);
    let options = RapidOptions { listen, directory: directory.clone(), ..RapidOptions::default() };
    let emulator = RapidEmulator::start(options).expect("the port is free");
    assert_eq!(emulator.objects(), before);
    append(&store, "log/1", 7096, b"lost").expect_err("its stream has ended with the server");
    let open = |name: &str, version: &Version, takes_over| {
        perform(&store, Request::Open { name: name.into(), version: version.clone(), takes_over })
    };
    let len = open("log/1", &version, false).expect("its handle").len;
    assert_eq!(len, 7096);
    append(&store, "log/1", len, b"more").expect("on the new stream");
    assert_eq!(open("log/2", &other, true).expect_err("finalized").kind, FailureKind::Refused);
    let third = create(&store, "log/3");
    assert!(third.0.parse::<u64>().expect("a number") > other.0.parse().expect("a number"));
}

#[test]
fn mistakes_are_named_on_the_command_line() {
    for (name, mistake) in RapidMistake::ALL {
        assert_eq!(name.parse(), Ok(mistake));
    }
    assert!("no-such".parse::<RapidMistake>().is_err());
    for (name, _) in RapidFault::ALL {
        assert!(format!("{name}=0.1").parse::<RapidFaults>().is_ok());
    }
    for wrong in ["torn", "torn=2", "no-such=0.1", "torn=0.6,late=0.6"] {
        assert!(wrong.parse::<RapidFaults>().is_err(), "{wrong}");
    }
}

/// Probes the store of a database of which only the log is in the zonal bucket.
fn probed(options: RapidOptions) -> Result<()> {
    use quenchdb::internals::device::objects::{Rounds, probe, probe_races};
    let emulator = start(options);
    let rest = SimulatedStore::immediate(1);
    // The other store takes no appends.
    let rest = Arc::new(Numbered(rest.client()));
    let store = RoutedStore::new(Arc::new(connect(&emulator)), rest);
    let facts = probe(&store)?;
    assert!(facts.streams && facts.appends);
    assert!(emulator.objects().is_empty(), "{:?}", emulator.objects());
    probe_races(&store, &facts, Rounds { races: 4, reads: 4 })
}

#[derive(Debug)]
struct Numbered(Arc<quenchdb::internals::device::objects::simulated::SimulatedClient>);

impl ObjectStore for Numbered {
    fn start(&self, request: Request, done: quenchdb::internals::device::objects::Done) {
        self.0.start(request, done);
    }

    fn facts(&self) -> quenchdb::internals::device::objects::StoreFacts {
        quenchdb::internals::device::objects::StoreFacts { appends: false, ..self.0.facts() }
    }
}

#[test]
fn probe_refuses_a_server_that_breaks_a_promise() {
    probed(RapidOptions::default()).expect("a strict server");
    let faults = odds("before=0.02,after=0.02,redirect=0.05");
    probed(RapidOptions { faults, ..RapidOptions::default() }).expect("another trial");
    for (mistakes, shown) in [
        (vec![RapidMistake::IgnoresGeneration], "ignores the generation"),
        (vec![RapidMistake::FinalizesShort], "when it finalizes"),
        (vec![RapidMistake::AppendsAgain], "appends what it has already"),
        (vec![RapidMistake::IgnoresGap], "ignores the offset of an append"),
        (vec![RapidMistake::NoRevocation, RapidMistake::AppendsAfterFinalize], "finalized object grow"),
    ] {
        let error = probed(RapidOptions { mistakes, ..RapidOptions::default() }).expect_err(shown);
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(shown), "{error}");
    }
    // Google's server for tests lets a stream that is open append to a finalized object.
    let error = probed(RapidOptions { as_testbench: true, ..RapidOptions::default() }).expect_err("it grows");
    assert!(error.to_string().contains("finalized object grow"), "{error}");
    // Without revocation, but with ends that are final, a database is safe.
    let mistakes = vec![RapidMistake::NoRevocation];
    probed(RapidOptions { mistakes, ..RapidOptions::default() }).expect("the end is final");
}

#[test]
fn bucket_that_is_not_zonal_is_refused() {
    let emulator = start(RapidOptions { class: "STANDARD".into(), ..RapidOptions::default() });
    let settings = emulator.environment().map(|(name, value)| (name.to_string(), value)).to_vec();
    let options = CloudOptions { settings, ..CloudOptions::default() };
    for (bucket, said) in [(RapidOptions::BUCKET, "not zonal"), ("no-such", "there is no bucket")] {
        let url = ObjectUrl::parse(&format!("gs://{bucket}/db")).expect("a URL");
        let error = RapidStore::connect(&url, &options).map(drop).expect_err(said);
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
}

/// Google's server for tests, which `scripts/servers` installs.
struct Testbench {
    child: Child,
    address: String,
}

impl Drop for Testbench {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Testbench {
    fn start() -> Option<Testbench> {
        let place = std::env::var_os("QUENCH_SERVERS").map(PathBuf::from);
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/quench-servers"));
        let program = place.or_else(home)?.join("bin/gcs-testbench");
        if !program.exists() {
            println!("skipped: {} is missing; scripts/servers testbench installs it", program.display());
            return None;
        }
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound");
        let mut command = Command::new(program);
        command.arg(free.port().to_string()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("an installed server starts");
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        while !line.starts_with("ready") {
            line.clear();
            assert!(output.read_line(&mut line).expect("a line") > 0, "the testbench has ended");
        }
        // It prints every request.
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        Some(Testbench { child, address: free.to_string() })
    }
}

/// The lives of one writer at a time: closed, killed, taken over, and read from another machine. On
/// the emulator, and on the server that Google wrote for tests, if it is installed.
#[test]
fn lives_of_a_writer_in_servers_of_others() {
    let emulator = start(RapidOptions { as_testbench: true, ..RapidOptions::default() });
    lives(&emulator.address().to_string());
    let Some(testbench) = Testbench::start() else { return };
    lives(&testbench.address);
    let log = Arc::new(connect_to(&testbench.address, "probe"));
    let store = RoutedStore::new(log, Arc::new(Numbered(SimulatedStore::immediate(1).client())));
    let error = quenchdb::internals::device::objects::probe(&store).expect_err("it lets a stream go on");
    assert!(error.to_string().contains("finalized object grow"), "{error}");
}

fn lives(server: &str) {
    let rest = SimulatedStore::new(9);
    let prefix = format!("lives-{}", std::process::id());
    let connect = || connect_to(server, &prefix);
    let mut last = 0;
    for (round, preset) in [Preset::Auto, Preset::Autonomous, Preset::Group].into_iter().enumerate() {
        let context = format!("{server}, {preset}");
        let db = open_at(connect(), &rest, preset).unwrap_or_else(|error| panic!("{context}: {error}"));
        let table = db.table_or_create("t").expect("there or new");
        for number in 0..30 {
            last = count(&db, &table, 100 * number).unwrap_or_else(|error| panic!("{context}: {error}"));
        }
        db.checkpoint().unwrap_or_else(|error| panic!("{context}: {error}"));
        for number in 0..10 {
            last = count(&db, &table, 1_000 * number).unwrap_or_else(|error| panic!("{context}: {error}"));
        }
        // A reader on another machine, beside the writer.
        let log = perform(&connect(), Request::List { prefix: "log/".into() }).expect("listed").listed;
        assert!(log.iter().any(|object| object.len > 4096), "{context}: {log:?}");
        drop(table);
        if round == 1 {
            // The writer hangs.
            std::mem::forget(db);
        } else {
            db.close().unwrap_or_else(|error| panic!("{context}: {error}"));
        }
        let db = open_at(connect(), &rest, preset).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!(check(&db, &context), last, "{context}");
        assert!(db.verify(None).expect("runs").problems.is_empty(), "{context}");
        db.close().unwrap_or_else(|error| panic!("{context}: {error}"));
    }
    let store = connect();
    for object in perform(&store, Request::List { prefix: String::new() }).expect("listed").listed {
        perform(&store, Request::Delete { name: object.name }).expect("deleted");
    }
}

/// Returns the median.
fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Commits of one client beside raw appends with a flush, commits of many clients, and a takeover
/// beside one open and one end, all at the same server with the latency of the service. The bounds
/// leave room for a busy machine, which has three attempts: it may delay the one takeover.
#[test]
fn commits_are_about_as_fast_as_raw_appends() {
    assert!((0..3).any(|_| is_about_as_fast()), "the output has the times");
}

fn is_about_as_fast() -> bool {
    let emulator = start(RapidOptions { latency: RapidLatency::GcsRapid, ..RapidOptions::default() });
    let rest = SimulatedStore::immediate(1);
    let db = open_at(connect(&emulator), &rest, Preset::Auto).expect("opens");
    let table = db.create_table("t").expect("new");
    let (store, mut offset) = (connect(&emulator), 4096);
    let version = create(&store, "log/raw");
    let (mut raw, mut commits) = (Vec::new(), Vec::new());
    for number in 0..200_u32 {
        let begun = Instant::now();
        append(&store, "log/raw", offset, &[7; 4096]).expect("on its stream");
        offset += 4096;
        raw.push(begun.elapsed());
        let begun = Instant::now();
        db.transact(|tx| tx.insert(&table, number.to_be_bytes(), "value")).expect("commits");
        commits.push(begun.elapsed());
    }
    let (raw, commit) = (median(raw), median(commits));
    let flushes = || emulator.counts()["flushes"];
    let (before, begun) = (flushes(), Instant::now());
    std::thread::scope(|scope| {
        for client in 0..64_u8 {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                for row in 0..50_u8 {
                    db.transact(|tx| tx.insert(table, [client, row], "value")).expect("commits");
                }
            });
        }
    });
    let seconds = begun.elapsed().as_secs_f64();
    let per_flush = 3200.0 / (flushes() - before) as f64;
    let open = Request::Open { name: "log/raw".into(), version: version.clone(), takes_over: true };
    let begun = Instant::now();
    perform(&connect(&emulator), open.clone()).expect("takes over");
    let connected = begun.elapsed();
    let begun = Instant::now();
    let opened = perform(&store, open).expect("takes over");
    perform(&store, Request::Finalize { name: "log/raw".into(), version, len: opened.len }).expect("ends");
    let ending = begun.elapsed();
    std::mem::forget((table, db));
    let other = connect(&emulator);
    let routed = RoutedStore::new(Arc::new(other), rest.client());
    let options = Options { claim_rest: Duration::from_micros(1), ..Options::default() };
    let facts = routed.facts();
    let storage = ObjectStorage::new(Arc::new(routed), facts, options);
    let begun = Instant::now();
    let lock = quenchdb::internals::device::Storage::lock(&storage, true).expect("claims");
    let takeover = begun.elapsed();
    drop(lock);
    println!(
        "raw append and flush {raw:?}, commit {commit:?}; 64 clients: {:.0} commits a second, {per_flush:.1} a flush",
        3200.0 / seconds
    );
    println!("open and end {ending:?}, with a connection {connected:?}; takeover {takeover:?}");
    commit < 2 * raw && takeover < 5 * ending
}
