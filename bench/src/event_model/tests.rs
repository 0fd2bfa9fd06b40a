//! The model against closed forms.

use super::*;
use quenchdb::LockRelease;

const DEVICE_500_US: &str = "sim:custom:write=500us";
/// One write at a time.
const DISK_500_US: &str = "sim:custom:write=500us,slots=1";

fn protocol(name: &str, workers: usize) -> Protocol {
    Protocol::named(name, workers).expect("a known protocol")
}

/// Returns an input without costs, but for an execution of `execute_us` that does not vary.
fn input(name: &str, workers: usize, execute_us: f64, device: &str) -> ModelInput {
    ModelInput {
        workers,
        protocol: protocol(name, workers),
        costs: Costs { execute_ns: execute_us * 1e3, ..Costs::none() },
        device: device.into(),
        seconds: 2.0,
        ..ModelInput::default()
    }
}

#[track_caller]
fn run_sound(input: &ModelInput) -> ModelReport {
    let report = run(input).expect("a valid input");
    assert!(report.committed > 100, "{report}");
    report
}

#[track_caller]
fn expect_near(what: &str, got: f64, wanted: f64, percent: f64) {
    let off = (got / wanted - 1.0) * 100.0;
    assert!(off.abs() <= percent, "{what}: {got}, not {wanted}: off by {off:.1} %");
}

#[test]
fn one_sync_for_each_commit_gives_one_by_f() {
    for workers in [1, 4, 16] {
        let report = run_sound(&input("per-transaction", workers, 0.0, DISK_500_US));
        expect_near("throughput", report.throughput_tps, 2000.0, 1.0);
        expect_near("commits a write", report.commits_per_write.unwrap_or(0.0), 1.0, 0.1);
        expect_near("latency", report.commit_latency_us.mean, 500.0 * workers as f64, 2.0);
    }
}

/// Groups follow each other without a pause: a cycle of w + f takes what arrives in it. A commit
/// that arrives in the window waits w/2 + f; one that arrives in the flush waits f/2 + w + f.
#[test]
fn group_with_a_window_has_the_published_batch_and_latency() {
    for (window, flush, rate) in [(200.0, 500.0, 20_000.0), (2000.0, 100.0, 20_000.0)] {
        let device = format!("sim:custom:write={flush}us");
        // So many that hardly any has two transactions at a time.
        let mut input = input("group", 4000, 0.0, &device);
        input.rate_tps = Some(rate);
        input.protocol = Protocol { window_us: window, siblings: 0, cohort: false, ..input.protocol };
        let report = run_sound(&input);
        let batch = rate * (window + flush) / 1e6;
        expect_near("batch", report.commits_per_write.unwrap_or(0.0), batch, 3.0);
        let in_window = window * (window / 2.0 + flush);
        let in_flush = flush * (flush / 2.0 + window + flush);
        let latency = (in_window + in_flush) / (window + flush);
        expect_near("latency", report.commit_latency_us.mean, latency, 3.0);
        if window > 10.0 * flush {
            expect_near("w/2 + f", report.commit_latency_us.mean, window / 2.0 + flush, 6.0);
        }
    }
}

/// Pollaczek and Khinchine: with utilization r and service time s, a queue waits r s / 2 (1 - r).
#[test]
fn open_loop_at_one_server_waits_as_m_d_1_does() {
    for percent in [30.0, 70.0, 90.0] {
        let (service_us, load) = (10.0, percent / 100.0);
        let mut input = input("passive", 1, service_us, "sim:memory-0us");
        input.rate_tps = Some(load / service_us * 1e6);
        input.seconds = 20.0;
        let report = run_sound(&input);
        let wait = load * service_us / (2.0 * (1.0 - load));
        expect_near("response time", report.total_latency_us.mean, service_us + wait, 4.0);
        expect_near("utilization", report.utilization.processors, load, 2.0);
    }
}

#[test]
fn every_protocol_obeys_littles_law() {
    for name in Protocol::NAMES {
        let mut input = input(name, 8, 20.0, "sim:nvme-enterprise");
        input.costs = Costs { execute_ns: 20_000.0, ..Costs::default() };
        for rate in [None, Some(10_000.0)] {
            input.rate_tps = rate;
            let report = run_sound(&input);
            let product = report.throughput_tps * report.total_latency_us.mean / 1e6;
            expect_near(&format!("{name} {rate:?}"), report.in_system, product, 3.0);
            if let Some(rate) = rate {
                expect_near(name, report.throughput_tps, rate, 3.0);
            }
        }
    }
}

/// Operational bounds of a closed loop: X <= min(N / (Z + f), 1 / f), and at least N / (Z + N f).
#[test]
fn closed_loop_stays_within_asymptotic_bounds() {
    let (think, write) = (2000.0, 500.0);
    for workers in [1, 2, 4, 5, 8, 32] {
        let n = workers as f64;
        let report = run_sound(&input("per-transaction", workers, think, DISK_500_US));
        let most = f64::min(n / (think + write), 1.0 / write) * 1e6;
        let least = n / (think + n * write) * 1e6;
        let got = report.throughput_tps;
        assert!(got <= most * 1.01 && got >= least * 0.99, "{workers}: {got} not in {least} .. {most}");
        if workers == 1 || workers == 32 {
            expect_near("asymptote", got, most, 1.0);
        }
    }
}

/// One row: the lock is held while the holder executes and, without early release, flushes.
#[test]
fn hot_row_is_limited_by_the_time_of_its_lock() {
    for (release, held_us) in [(LockRelease::Commit, 100.0 + 500.0), (LockRelease::PreCommit, 100.0)] {
        let mut input = input("group", 64, 100.0, DEVICE_500_US);
        input.protocol.cohort = false;
        input.locks = Some(RowLocks { rows: 1, h: 0.5, release, locked_share: 1.0 });
        let report = run_sound(&input);
        expect_near(&format!("{release:?}"), report.throughput_tps, 1e6 / held_us, 2.0);
        assert!(report.utilization.hottest_row > 0.98, "{report}");
    }
}

#[test]
fn latch_of_a_central_log_bounds_throughput() {
    let mut input = input("central", 64, 20.0, "sim:memory-0us");
    input.costs.latch_ns = 1000.0;
    input.seconds = 0.3;
    let report = run_sound(&input);
    expect_near("one record each microsecond", report.throughput_tps, 1e6, 1.0);
    input.protocol = Protocol { logs: 64, ..input.protocol };
    let report = run_sound(&input);
    expect_near("64 logs", report.throughput_tps, 64.0 / 21e-6, 2.0);
}

#[test]
fn processors_bound_throughput() {
    for cores in [1, 2, 4] {
        let mut input = input("pipelined", 16, 10.0, DEVICE_500_US);
        (input.cores, input.costs.yield_every_ns) = (cores, 50_000.0);
        let report = run_sound(&input);
        expect_near("throughput", report.throughput_tps, cores as f64 * 1e5, 2.0);
    }
}

/// A factor of computation, by the share of the other cores that compute.
#[test]
fn cores_beside_each_other_slow_each_other_down() {
    for (workers, cores, factor) in [(1, 2, 1.0), (2, 2, 1.5), (2, 3, 1.25), (4, 2, 1.5), (1, 1, 1.0)] {
        let mut input = input("passive", workers, 10.0, "sim:memory-0us");
        (input.cores, input.costs.beside_slowdown, input.seconds) = (cores, 1.5, 0.5);
        input.costs.yield_every_ns = 50_000.0;
        let report = run_sound(&input);
        let wanted = workers.min(cores) as f64 / (10.0 * factor) * 1e6;
        expect_near(&format!("{workers} on {cores}"), report.throughput_tps, wanted, 1.0);
    }
}

/// A leader whose write was shorter than a sleep yields, as in the engine. Otherwise it would have
/// the only core for ever, and the others would never commit.
#[test]
fn a_leader_that_never_sleeps_yields_to_the_others() {
    let mut input = input("group", 4, 5.0, "sim:custom:write=10us");
    (input.cores, input.costs.spin_ns, input.protocol.cohort) = (1, 50_000.0, false);
    let alone = run_sound(&input);
    assert_eq!(alone.switches_per_transaction, 0.0, "{alone}");
    input.costs.yield_every_ns = 50_000.0;
    let report = run_sound(&input);
    // It asks to commit after 5, 20, 35 and 50 us.
    expect_near("switches", report.switches_per_transaction, 0.25, 1.0);
    expect_near("throughput", report.throughput_tps, alone.throughput_tps, 1.0);
}

#[test]
fn same_seed_gives_the_same_figures_and_another_does_not() {
    let with = |seed| {
        let mut input = input("our-4k", 8, 20.0, "sim:nvme-consumer");
        (input.costs, input.seed, input.dependency_share) = (Costs::default(), seed, 0.2);
        input.seconds = 0.4;
        run_sound(&input)
    };
    assert_eq!(with(7), with(7));
    assert_ne!(with(7), with(8));
}

#[test]
fn wrong_inputs_are_refused() {
    let refused = |change: &dyn Fn(&mut ModelInput)| {
        let mut input = input("group", 1, 1.0, DEVICE_500_US);
        change(&mut input);
        run(&input).expect_err("refused").to_string()
    };
    assert!(refused(&|input| input.workers = 0).contains("at least one worker"));
    assert!(refused(&|input| input.device = "sim:floppy".into()).contains("sim:floppy"));
    assert!(refused(&|input| input.seconds = 0.0).contains("simulated seconds"));
    let endless = |input: &mut ModelInput| {
        (input.protocol, input.costs) = (protocol("pipelined", 1), Costs::none());
    };
    assert!(refused(&endless).contains("execute_ns"));
}

#[test]
fn slow_device_limits_one_sync_for_each_commit() {
    let mut input = input("per-transaction", 8, 10.0, DISK_500_US);
    input.seconds = 0.5;
    let report = run_sound(&input);
    let limits = limits(&input, &report).expect("a valid input");
    assert_eq!(limits.by, "device write", "{limits}");
    expect_near("gain", limits.gains[0].throughput_percent, 100.0, 2.0);
}

#[test]
fn every_figure_of_the_model_has_series() {
    for id in series::FIGURES {
        // A write to a store of objects takes 77 ms.
        let time = if id.starts_with("MS-") { 0.15 } else { 0.02 };
        let all = series::figure(id, &Costs::default(), time).expect("valid inputs").expect("a known figure");
        assert!(!all.is_empty(), "{id}");
        for series in all {
            assert!(series.points.is_sorted_by(|a, b| a.x < b.x), "{id}, {}", series.name);
            let works = |point: &series::ModelPoint| point.report.throughput_tps > 0.0;
            assert!(series.points.iter().any(works), "{id}, {}", series.name);
        }
    }
    assert!(series::figure("AC-F99", &Costs::default(), 1.0).expect("no run").is_none());
}

/// The shapes that the papers publish.
#[test]
fn published_shapes_hold_beyond_this_machine() {
    let figure = |id| series::figure(id, &Costs::default(), 0.6).expect("valid").expect("known");
    let at = |figure: &[series::ModelSeries], name: &str, x: f64| {
        let line = figure.iter().find(|series| series.name == name).expect("a line of this name");
        line.points.iter().find(|point| point.x == x).expect("a point").report.clone()
    };
    let commits = figure("AC-F9");
    let (ours, theirs) = (at(&commits, "Our4KB", 96.0), at(&commits, "FlushQueue", 96.0));
    assert!(ours.commit_latency_us.p90 * 10.0 < theirs.commit_latency_us.p90, "{ours}{theirs}");
    assert!(ours.throughput_tps > theirs.throughput_tps, "{ours}{theirs}");
    let locks = figure("ELR-F21");
    let (early, late) = (at(&locks, "early lock release", 100.0), at(&locks, "baseline", 100.0));
    assert!(early.throughput_tps > 3.0 * late.throughput_tps, "{early}{late}");
    let objects = figure("MS-F9");
    let (two, one) = (at(&objects, "Milliscale", 16.0), at(&objects, "S3 Express", 16.0));
    assert!(two.commit_latency_us.mean < one.commit_latency_us.mean, "{two}{one}");
    assert!(two.writes_per_second < 0.7 * one.writes_per_second, "{two}{one}");
}
