//! Tests of the drivers: an open loop counts arrivals behind a stall, a closed loop does not;
//! conflicts are retried.

use super::Run;
use crate::arrivals::{Clients, Gaps, Rate};
use crate::plan::{Checkpoints, CommitMode, Plan};
use crate::report::Report;
use crate::store::{Error, Reader, Result, Store, Transaction};
use crate::watch::{Between, Sample, Watch};
use crate::workload::{Ending, Intent, Worker};
use quenchdb::{Database, Durability};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

const STALL: Duration = Duration::from_millis(600);
/// Half a second after the start of an open loop with 100 transactions a second.
const STALLS_AT: u32 = 50;

fn plan(rate: Option<Rate>, commit: CommitMode) -> Plan {
    Plan {
        pins: false,
        prices: Default::default(),
        threads: 1,
        duration: Duration::from_secs(2),
        warm_up: Some(Duration::ZERO),
        interval: Duration::from_secs(1),
        commit,
        rate,
        level: Durability::Durable,
        snapshots: false,
        checkpoints: Checkpoints::Automatic,
        rows: 1,
        value_bytes: 8,
        field_bytes: None,
        operations: 1,
        read_percent: 0,
        zipf: 0.0,
        memory_bytes: 64 << 20,
        seed: 1,
    }
}

/// Signals a worker that the measurement has begun.
#[derive(Default)]
struct Begun(OnceLock<()>);

impl Watch for Begun {
    fn sampled(&self, sample: Sample) {
        if sample.measuring {
            self.0.get_or_init(|| ());
        }
    }

    fn ends(&self) -> bool {
        false
    }
}

/// Puts one row again and again; can stall once after the begin of the measurement; has a conflict
/// in every tenth first attempt; rolls every twentieth back.
struct Stalling<'b, T> {
    table: T,
    done: u32,
    attempt: u32,
    stalls_at: Option<(u32, &'b Begun)>,
}

impl<T: Clone + Send + Sync> Worker<T> for Stalling<'_, T> {
    fn prepare(&mut self) -> Intent {
        (self.done, self.attempt) = (self.done + 1, 0);
        Intent { kind: usize::from(self.done.is_multiple_of(20)), reads_only: false }
    }

    fn run<X: Transaction<Table = T>>(&mut self, transaction: &mut X) -> Result<Ending> {
        self.attempt += 1;
        if self.done.is_multiple_of(10) && self.attempt == 1 {
            return Err(Error::Conflict);
        }
        if let Some((at, begun)) = self.stalls_at
            && at == self.done
        {
            begun.0.wait();
            std::thread::sleep(STALL);
        }
        transaction.insert(&self.table, b"row", &self.done.to_be_bytes())?;
        Ok(if self.done.is_multiple_of(20) { Ending::RollBack } else { Ending::Commit { written_bytes: 7 } })
    }

    fn read<R: Reader<Table = T>>(&mut self, _: &mut R) -> Result<()> {
        Err(Error::wrong("it writes"))
    }
}

fn stalled(rate: Option<Rate>, commit: CommitMode) -> Report {
    let database = Database::builder().memory_bytes(64 << 20).open_in_memory().expect("memory");
    let table = Store::table(&database, "t").expect("created");
    let (plan, parameters, begun) = (plan(rate, commit), BTreeMap::new(), Begun::default());
    // A closed loop may have done any number when the measurement begins, so it stalls in the
    // first: all others are measured.
    let stalls_at = Some((if rate.is_some() { STALLS_AT } else { 1 }, &begun));
    let run = Run {
        workload: "test",
        parameters: &parameters,
        kinds: &["put", "back"],
        store: &database,
        plan: &plan,
        progress: &|_, _, _| {},
        block_device: None,
        while_working: None,
        watch: Some(&begun),
        ledger: None,
    };
    run.drive(vec![Stalling { table, done: 0, attempt: 0, stalls_at }]).expect("run").report
}

/// A busy machine adds waits of its own: a run without them, in which what `is_short` looks at is,
/// or the last of ten.
fn undisturbed(rate: Option<Rate>, commit: CommitMode, is_short: impl Fn(&Report) -> bool) -> Report {
    let mut report = stalled(rate, commit);
    for _ in 1..10 {
        if is_short(&report) {
            break;
        }
        report = stalled(rate, commit);
    }
    report
}

#[test]
fn open_loop_counts_arrivals_during_a_stall_closed_does_not() {
    for commit in [CommitMode::Blocking, CommitMode::Async] {
        let closed = undisturbed(None, commit, |run| run.kinds[0].latency_us.p99 < 300_000.0);
        let put = closed.kinds[0].latency_us;
        assert!(put.p99 < 300_000.0, "a closed loop meets a stall once: {put:?}");
        let rate = Rate { per_second: 100.0, gaps: Gaps::Fixed, clients: Clients::default() };
        let keeps_up = |run: &Report| (80.0..120.0).contains(&run.throughput_tps);
        let open =
            undisturbed(Some(rate), commit, |run| run.kinds[0].latency_us.p50 < 300_000.0 && keeps_up(run));
        let put = open.kinds[0].latency_us;
        // 60 of 200 arrive during the stall: the twentieth of the slowest waited for about 400 ms.
        assert!(put.p90 > 300_000.0 && put.p50 < 300_000.0, "those behind the stall waited: {put:?}");
        assert!(keeps_up(&open), "{}", open.throughput_tps);
        for report in [closed, open] {
            assert!(report.stall_us_max >= 590_000.0, "{}", report.stall_us_max);
        }
    }
}

/// Counts samples, and ends the run after enough of them.
#[derive(Default)]
struct Watching(std::sync::Mutex<Vec<Sample>>);

const SAMPLES: usize = 5;

impl Watch for Watching {
    fn sampled(&self, sample: Sample) {
        self.0.lock().expect("no thread panics").push(sample);
    }

    fn ends(&self) -> bool {
        self.0.lock().expect("no thread panics").iter().filter(|sample| sample.measuring).count() >= SAMPLES
    }
}

#[test]
fn watch_receives_samples_and_can_end_the_run() {
    let database = Database::builder().memory_bytes(64 << 20).open_in_memory().expect("memory");
    let table = Store::table(&database, "t").expect("created");
    let warm_up = Some(Duration::from_millis(500));
    let plan = Plan { duration: Duration::from_secs(3600), warm_up, ..plan(None, CommitMode::Blocking) };
    let (parameters, watching) = (BTreeMap::new(), Watching::default());
    let run = Run {
        workload: "test",
        parameters: &parameters,
        kinds: &["put", "back"],
        store: &database,
        plan: &plan,
        progress: &|_, _, _| {},
        block_device: None,
        while_working: None,
        watch: Some(&watching),
        ledger: None,
    };
    let report =
        run.drive(vec![Stalling { table, done: 0, attempt: 0, stalls_at: None }]).expect("run").report;
    assert!((0.3..30.0).contains(&report.seconds) && report.committed > 0, "{report:?}");
    let samples = watching.0.into_inner().expect("no thread panics");
    let warm_up = samples.iter().take_while(|sample| !sample.measuring).count();
    assert!(warm_up >= 2 && samples.len() == warm_up + SAMPLES, "{warm_up} of {}", samples.len());
    for (earlier, later) in
        samples.iter().zip(&samples[1..]).filter(|pair| pair.0.measuring == pair.1.measuring)
    {
        let between = Between::of(earlier, later);
        assert!(between.seconds >= 0.1 && later.rows >= earlier.rows, "{between:?}");
    }
    // The first transactions may stall, so over all of them: each writes a row, and some meet a
    // conflict.
    let whole = Between::of(&samples[warm_up], &samples[samples.len() - 1]);
    assert!(
        whole.throughput_tps > 0.0 && whole.conflicts_per_second > 0.0 && whole.p50_us > 0.0,
        "{whole:?}"
    );
    let stages = whole.stages;
    assert!(stages.execute > 0.0 && stages.log_insert > 0.0 && stages.flush_wait > 0.0, "{stages:?}");
    assert_eq!(whole.hit_share, Some(1.0));
    // Bytes and writes are read one after the other, so the mean is a little off.
    assert!(whole.log_writes_per_second > 0.0 && whole.log_write_bytes > 4000.0, "{whole:?}");
    let gauges = samples[samples.len() - 1].gauges;
    assert!(
        gauges.pages > 0 && gauges.pages <= gauges.pages_max && gauges.memory_bytes == 64 << 20,
        "{gauges:?}"
    );
}

#[test]
#[ignore = "measures"]
fn cost_of_a_sample() {
    let database = Database::builder().memory_bytes(64 << 20).open_in_memory().expect("memory");
    let table = database.create_table("t").expect("created");
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let (database, table) = (&database, &table);
            scope.spawn(move || {
                (0..1000u32).for_each(|n| {
                    database.transact(|tx| tx.insert(table, [thread], n.to_le_bytes())).expect("committed");
                });
            });
        }
    });
    let (began, rounds) = (std::time::Instant::now(), 1000);
    let seen = (0..rounds).map(|_| std::hint::black_box(database.gauges()).log_writes).max();
    println!("{:.0} us a sample", began.elapsed().as_secs_f64() * 1e6 / f64::from(rounds));
    assert!(seen > Some(0));
}

#[test]
fn types_add_up_and_each_conflict_is_retried() {
    let report = stalled(None, CommitMode::Async);
    let [put, back] = &report.kinds[..] else { panic!("two types: {report:?}") };
    assert_eq!((put.committed, back.rolled_back), (report.committed, report.rolled_back));
    assert_eq!((put.rolled_back, back.committed), (0, 0));
    let ended = report.committed + report.rolled_back;
    assert!(report.committed.abs_diff(19 * report.rolled_back) <= 19, "{report:?}");
    assert!((ended / 10).abs_diff(report.aborted) <= 1, "{} of {ended}", report.aborted);
    assert!((report.throughput_tps * report.seconds - ended as f64).abs() < 1.0);
    // The bytes are read a moment before the types, and the worker does not wait meanwhile.
    let (bytes, expected) = (report.logical_bytes_written as f64, 7.0 * report.committed as f64);
    assert!((bytes / expected - 1.0).abs() < 0.1, "{bytes}, not {expected}");
    let stages = report.stages.expect("timed");
    assert!(stages.execute_us > 0.0 && stages.commit_call_us > 0.0, "{stages:?}");
}
