//! Each peer gives the guarantees of the trait `Store`, and the workloads find their rows after a
//! close and an open.

use anyhow::Result;
use quench_bench::driver::{Finished, Run};
use quench_bench::engine::Engine;
use quench_bench::peers::{Peers, Settings, Visit};
use quench_bench::plan::{Checkpoints, CommitMode, Plan};
use quench_bench::store::{Error, Handle, Level, Reader, Session, Step, Store, Transaction};
use quench_bench::tpcc::schema::Scale;
use quench_bench::tpcc::{Home, Selection, Tpcc};
use quench_bench::traffic::BlockDevice;
use quench_bench::workload::{Acknowledged, Seat, Workload};
use quench_bench::ycsb::{Mix, Ycsb};
use quench_bench::{put, rows};
use quench_peers::BuiltIn;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// The peers that this build contains.
fn peers() -> impl Iterator<Item = Engine> {
    Engine::ALL.into_iter().filter(|engine| BuiltIn.contains(*engine))
}

const THREADS: usize = 3;
const VALUE_BYTES: usize = 100;

fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory")
}

fn open<V: Visit>(engine: Engine, directory: &Path, visit: V) -> V::Output {
    let (memory_bytes, tables) = (64 << 20, Settings::TABLES);
    let settings = Settings { memory_bytes, bounded: false, threads: THREADS, tables };
    BuiltIn.open(engine, directory, &settings, visit).unwrap_or_else(|error| panic!("{engine}: {error:#}"))
}

fn plan(rows: u64) -> Plan {
    Plan {
        pins: false,
        threads: THREADS,
        duration: Duration::from_millis(300),
        warm_up: Some(Duration::from_millis(50)),
        interval: Duration::from_secs(1),
        commit: CommitMode::Blocking,
        rate: None,
        level: Level::Durable,
        snapshots: true,
        checkpoints: Checkpoints::Automatic,
        rows,
        value_bytes: VALUE_BYTES,
        field_bytes: None,
        operations: 1,
        read_percent: 50,
        zipf: 0.0,
        memory_bytes: 64 << 20,
        seed: 1,
    }
}

fn quiet(_: &str, _: u64, _: u64) {}

/// All rows of `table`.
fn all<S: Store>(store: &S, table: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let table = store.table(table).expect("a table");
    let mut session = store.session(Level::Durable).expect("a session");
    let mut rows = Vec::new();
    let mut reader = session.begin_read().expect("a snapshot");
    let each = |key: &[u8], value: &[u8]| {
        rows.push((key.to_vec(), value.to_vec()));
        Step::Continue(())
    };
    reader.scan(&table, &[0], &[u8::MAX; 40], each).expect("read");
    rows
}

struct Put<'a>(&'a Path);

impl Visit for Put<'_> {
    type Output = Finished;

    fn visit<S: Store>(self, store: &S) -> Result<Finished> {
        let (plan, parameters, device) = (plan(0), BTreeMap::new(), BlockDevice::of(self.0)?);
        put::run(&Run {
            workload: "put",
            parameters: &parameters,
            kinds: put::KINDS,
            store,
            plan: &plan,
            progress: &quiet,
            block_device: device.as_ref(),
            while_working: None,
            watch: None,
            ledger: None,
        })
    }
}

struct ReadPut;

impl Visit for ReadPut {
    type Output = u64;

    fn visit<S: Store>(self, store: &S) -> Result<u64> {
        let rows = all(store, put::TABLE);
        for (key, value) in &rows {
            let key = u64::from_be_bytes(key[..].try_into()?);
            assert!(rows::is_value_of(key, value, VALUE_BYTES), "{key}");
        }
        Ok(rows.len() as u64)
    }
}

#[test]
fn put_rows_exist_after_a_reopen() {
    for engine in peers() {
        let directory = directory();
        let finished = open(engine, directory.path(), Put(directory.path()));
        let written = finished.written_bytes / (rows::KEY_BYTES + VALUE_BYTES) as u64;
        assert!(
            finished.report.committed > 10 && written >= finished.report.committed,
            "{engine}: {written}"
        );
        assert_eq!(open(engine, directory.path(), ReadPut), written, "{engine}");
        let report = &finished.report;
        let latency = report.write_latency_us.expect("measured");
        assert!(latency.p50 > 0.0 && latency.p99 >= latency.p50, "{engine}: {latency:?}");
        assert!(report.cpu_us_per_transaction > 0.0);
        let Some(traffic) = &report.traffic else { continue };
        assert!(traffic.bytes_per_transaction > 108.0, "{engine}: {traffic:?}");
        assert!(traffic.committed >= report.committed, "{engine}: {traffic:?}");
    }
}

/// Fills, runs, and checks a workload; or only checks.
struct Work<'a, W> {
    workload: &'a W,
    plan: &'a Plan,
    runs: bool,
    acknowledged: Acknowledged,
}

impl<W: Workload> Visit for Work<'_, W> {
    type Output = Acknowledged;

    fn visit<S: Store>(self, store: &S) -> Result<Acknowledged> {
        let Work { workload, plan, runs, mut acknowledged } = self;
        if runs {
            workload.populate(store, THREADS, &quiet)?;
            workload.begin(store)?;
            let run = Run {
                workload: workload.name(),
                parameters: &workload.parameters(),
                kinds: workload.kinds(),
                store,
                plan,
                progress: &quiet,
                block_device: None,
                while_working: None,
                watch: None,
                ledger: None,
            };
            let workers = (0..THREADS).map(|index| workload.worker(store, Seat::of(index)));
            let finished = run.drive(workers.collect::<Result<_>>()?)?;
            assert!(finished.report.committed > 10, "{:?}", finished.report);
            acknowledged = finished.acknowledged;
        }
        let checked = workload.check(store, THREADS, &acknowledged, &quiet)?;
        assert!(checked.is_sound() && checked.rows > 100, "{:?}", checked.problems);
        Ok(acknowledged)
    }
}

fn work_and_check<W: Workload>(engine: Engine, workload: &W, plan: &Plan) {
    let directory = directory();
    let work = |runs, acknowledged| Work { workload, plan, runs, acknowledged };
    let acknowledged = open(engine, directory.path(), work(true, Acknowledged::new()));
    open(engine, directory.path(), work(false, acknowledged));
}

#[test]
fn ycsb_keeps_every_row_and_every_acknowledged_insert() {
    for engine in peers() {
        for mix in ["a", "d", "e", "f"] {
            let (mix_found, access) = Mix::named(mix).expect("a mix");
            let plan = Plan { zipf: 0.99, ..plan(2000) };
            work_and_check(engine, &Ycsb::new(&plan, mix, mix_found, access), &plan);
        }
    }
}

#[test]
fn tpcc_is_consistent_on_every_engine() {
    for engine in peers() {
        let tpcc = Tpcc {
            warehouses: 1,
            scale: Scale::SMALL,
            selection: Selection::Weighted,
            home: Home::Fixed,
            pace: 0.0,
            population_seed: 1,
            run_seed: 2,
        };
        work_and_check(engine, &tpcc, &plan(0));
    }
}

/// Threads that add to one counter.
struct Increments;

const INCREMENTS: u64 = 40;

fn increment<S: Session>(session: &mut S, table: &S::Table) -> quench_bench::store::Result<()> {
    let (mut transaction, mut value) = (session.begin()?, Vec::new());
    assert!(transaction.get(table, b"counter", &mut value)?);
    let count = u64::from_be_bytes(value[..].try_into().map_err(Error::wrong)?);
    transaction.insert(table, b"counter", &(count + 1).to_be_bytes())?;
    transaction.commit()
}

impl Visit for Increments {
    type Output = u64;

    fn visit<S: Store>(self, store: &S) -> Result<u64> {
        let table = store.table("t")?;
        let mut session = store.session(Level::Durable)?;
        let set = session.begin().and_then(|mut transaction| {
            transaction.insert(&table, b"counter", &0u64.to_be_bytes())?;
            transaction.commit_async()
        });
        assert!(set.map_err(Error::into_failure)?.is_done());
        drop(session);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let mut session = store.session(Level::Durable).expect("a session");
                    let mut left = INCREMENTS;
                    while left > 0 {
                        match increment(&mut session, &table) {
                            Ok(()) => left -= 1,
                            Err(Error::Conflict) => {}
                            Err(Error::Failed(error)) => panic!("{error:#}"),
                        }
                    }
                });
            }
        });
        let rows = all(store, "t");
        Ok(u64::from_be_bytes(rows[0].1[..].try_into()?))
    }
}

#[test]
fn increments_of_several_threads_are_not_lost() {
    for engine in peers() {
        let directory = directory();
        let count = open(engine, directory.path(), Increments);
        assert_eq!(count, INCREMENTS * THREADS as u64, "{engine}");
    }
}

/// One session, one transaction after the other.
struct Alone;

fn keys<R: Reader>(reader: &mut R, table: &R::Table, from: &[u8], to: &[u8], back: bool) -> Vec<u8> {
    let mut found = Vec::new();
    let each = |key: &[u8], value: &[u8]| {
        assert_eq!(key, value);
        found.push(key[0]);
        if found.len() == 4 { Step::Break(()) } else { Step::Continue(()) }
    };
    let scanned =
        if back { reader.scan_back(table, from, to, each) } else { reader.scan(table, from, to, each) };
    scanned.expect("read");
    found
}

impl Visit for Alone {
    type Output = ();

    fn visit<S: Store>(self, store: &S) -> Result<()> {
        let (table, other) = (store.table("t")?, store.table("other")?);
        let mut session = store.session(Level::Lazy)?;
        let mut transaction = session.begin().map_err(Error::into_failure)?;
        for key in b"bdfh" {
            transaction.insert(&table, &[*key], &[*key]).map_err(Error::into_failure)?;
        }
        transaction.insert(&other, b"c", b"").map_err(Error::into_failure)?;
        transaction.commit().map_err(Error::into_failure)?;
        store.make_durable()?;

        let mut transaction = session.begin().map_err(Error::into_failure)?;
        transaction.insert(&table, b"e", b"e").map_err(Error::into_failure)?;
        assert!(transaction.remove(&table, b"d").map_err(Error::into_failure)?);
        assert!(!transaction.remove(&table, b"d").map_err(Error::into_failure)?, "it sees its own delete");
        assert!(!transaction.remove(&table, b"x").map_err(Error::into_failure)?);
        assert_eq!(keys(&mut transaction, &table, b"a", b"z", false), b"befh");
        assert_eq!(keys(&mut transaction, &table, b"b", b"h", true), b"feb", "the end is not in it");
        let mut value = b"before".to_vec();
        assert!(!transaction.get(&table, b"d", &mut value).map_err(Error::into_failure)?);
        assert!(transaction.get(&table, b"e", &mut value).map_err(Error::into_failure)?);
        assert_eq!(value, b"e");
        transaction.abort();

        let mut reader = session.begin_read().map_err(Error::into_failure)?;
        assert_eq!(keys(&mut reader, &table, b"a", b"z", false), b"bdfh", "all of it was taken back");
        assert_eq!(keys(&mut reader, &table, b"c", b"h", false), b"df");
        assert_eq!(keys(&mut reader, &table, b"c", b"g", true), b"fd");
        assert!(reader.get(&other, b"c", &mut value).map_err(Error::into_failure)?);
        assert!(value.is_empty());
        drop(reader);
        let dropped = session.begin().and_then(|mut transaction| transaction.insert(&table, b"z", b"z"));
        dropped.map_err(Error::into_failure)?;
        assert_eq!(all(store, "t").len(), 4, "what is dropped is taken back too");
        store.checkpoint(false)?;
        assert!(store.session(Level::BoundedLoss).is_err());
        Ok(())
    }
}

struct Count;

impl Visit for Count {
    type Output = usize;

    fn visit<S: Store>(self, store: &S) -> Result<usize> {
        Ok(all(store, "t").len())
    }
}

#[test]
fn transaction_sees_its_writes_and_rolls_back_without_commit() {
    for engine in peers() {
        let directory = directory();
        open(engine, directory.path(), Alone);
        assert_eq!(open(engine, directory.path(), Count), 4, "{engine}");
    }
}

#[test]
fn a_directory_that_is_none_is_one_clear_error() {
    for engine in peers() {
        let directory = directory();
        let file = directory.path().join("file");
        std::fs::write(&file, b"not a directory").expect("written");
        let settings = Settings { memory_bytes: 64 << 20, bounded: true, threads: 1, tables: 1 };
        let error = BuiltIn.open(engine, &file, &settings, Count).expect_err("refused");
        assert!(format!("{error:#}").contains(engine.name()), "{engine}: {error:#}");
    }
}
