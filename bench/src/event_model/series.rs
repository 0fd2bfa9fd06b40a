//! The figures of the papers whose machines are larger than this one, as series of the model.
//!
//! | figures | machine | scaled |
//! |---|---|---|
//! | AC-F9, F12, F13, F14 | 96 to 192 threads, enterprise NVMe | queues of 2,000 transactions instead of 100 MB |
//! | GC-T2, T3 | clients beyond the cores of this machine | |
//! | ELR-F9 to F22 | 64 contexts, a disk of 170 accesses a second | |
//! | NVM-F4, F6, F8 | 48 threads on 4 sockets | |
//! | MS-F4, F9, F10, F14 | 16 threads, stores of objects and volumes | |
//!
//! The costs of the commit path are those of the caller, measured or assumed. The execution of a
//! transaction is what the paper's throughput implies, because it depends on the paper's machine
//! and rows; each function says how long. It is that of the loaded machine, so it contains what
//! cores take from each other there, and the factor measured on this machine is left out.

use super::costs::Costs;
use super::input::{ModelInput, Protocol, RowLocks};
use super::report::ModelReport;
use super::simulate::run;
use anyhow::Result;
use quenchdb::{Acknowledger, Dependency, LockRelease};
use serde::{Deserialize, Serialize};

/// One point of a series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelPoint {
    /// Position on the x axis.
    pub x: f64,
    /// The figures there.
    pub report: ModelReport,
}

/// One line of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelSeries {
    /// The figure, such as `AC-F12`.
    pub figure: String,
    /// Name of the line.
    pub name: String,
    /// Quantity and unit of the x axis.
    pub x_axis: String,
    /// What was assumed or scaled down.
    pub note: String,
    /// The points, x ascending.
    pub points: Vec<ModelPoint>,
}

/// The figures that [`figure`] knows.
pub const FIGURES: [&str; 33] = [
    "AC-F9", "AC-F9b", "AC-F12", "AC-F13", "AC-F14", "GC-T2", "GC-T3", "ELR-F9", "ELR-F10", "ELR-F11",
    "ELR-F12", "ELR-F13", "ELR-F14", "ELR-F15", "ELR-F16", "ELR-F17", "ELR-F18", "ELR-F19", "ELR-F20",
    "ELR-F21", "ELR-F22", "NVM-F4", "NVM-F4b", "NVM-F4c", "NVM-F6", "NVM-F8", "MS-F4", "MS-F9", "MS-F9b",
    "MS-F10", "MS-F10b", "MS-F14", "MS-F14b",
];

/// A figure that is being computed.
struct Figure<'a> {
    id: &'a str,
    x_axis: &'static str,
    note: &'static str,
    /// Factor of the simulated time.
    time: f64,
}

impl Figure<'_> {
    fn series(&self, name: &str, xs: &[f64], of: impl Fn(f64) -> ModelInput) -> Result<ModelSeries> {
        let mut points = Vec::with_capacity(xs.len());
        for x in xs {
            let mut input = of(*x);
            input.seconds *= self.time;
            input.warm_up_seconds *= self.time;
            points.push(ModelPoint { x: *x, report: run(&input)? });
        }
        Ok(ModelSeries {
            figure: self.id.into(),
            name: name.into(),
            x_axis: self.x_axis.into(),
            note: self.note.into(),
            points,
        })
    }
}

/// Returns the series of a figure of [`FIGURES`], with `costs` of the commit path; `None` for
/// another figure. `time` is a factor of the simulated time: 1 is enough for stable means.
///
/// # Errors
/// As [`run`].
pub fn figure(id: &str, costs: &Costs, time: f64) -> Result<Option<Vec<ModelSeries>>> {
    let costs = &Costs { beside_slowdown: 1.0, ..*costs };
    let of = |x_axis, note| Figure { id, x_axis, note, time };
    Ok(Some(match id {
        "AC-F9" | "AC-F9b" => stress(&of("threads", AC), costs, id == "AC-F9b")?,
        "AC-F12" => scalability(&of("threads", AC), costs)?,
        "AC-F13" => flush_units(&of("flush unit in KiB", AC), costs)?,
        "AC-F14" => acknowledgment_groups(&of("logs in an acknowledgment group", AC), costs)?,
        "GC-T2" => offered_load(&of("commits/s offered", GC), costs)?,
        "GC-T3" => windows(&of("threads", GC), costs)?,
        _ if id.starts_with("ELR-") => match early_release(id, &of, costs)? {
            Some(series) => series,
            None => return Ok(None),
        },
        "NVM-F4" | "NVM-F4b" | "NVM-F4c" | "NVM-F6" | "NVM-F8" => memory_logs(&of("threads", NVM), costs)?,
        "MS-F4" => shared_logs(&of("buffer in KiB", MS), costs)?,
        "MS-F9" | "MS-F9b" | "MS-F10" | "MS-F10b" | "MS-F14" | "MS-F14b" => {
            objects(&of("threads", MS), costs)?
        }
        _ => return Ok(None),
    }))
}

const AC: &str = "execution of 16 us for YCSB and 100 us for TPC-C, so that 192 threads reach the published 11 M/s; \
                  queues of 2,000 transactions a worker instead of 100 MB: latencies of full queues scale with them";
const GC: &str = "every thread is a client that only commits: no execution, a core for each";
const ELR: &str = "a transaction executes 2 ms (TPC-B), 4 ms (New Order, mix), 2 ms (Payment), 20 ms (Delivery) on \
                   64 contexts, half of it with the lock of its hot row; assumed, the paper states no times";
const NVM: &str = "10 us of execution, 48 cores; a latch comes from another core in 300 ns, as between sockets: \
                   assumed";
const MS: &str = "50 us of execution and 1,200 bytes (TPC-C), 15 us and 600 bytes (YCSB-A), 12 us and 120 bytes \
                  (YCSB-B); a quarter of the uniform and all zipfian transactions meet versions that are not \
                  durable: assumed";

fn ycsb(name: &str, workers: usize, costs: &Costs) -> ModelInput {
    let protocol = Protocol::named(name, workers).unwrap_or_default();
    ModelInput {
        workers,
        protocol: Protocol { queue_entries: 2000, ..protocol },
        read_share: 0.5,
        dependency_share: 0.05,
        log_bytes: 180,
        costs: Costs { execute_ns: 16_000.0, ..*costs },
        seconds: 0.1,
        warm_up_seconds: 0.1,
        ..ModelInput::default()
    }
}

fn tpcc(name: &str, workers: usize, costs: &Costs) -> ModelInput {
    let ycsb = ycsb(name, workers, costs);
    ModelInput {
        costs: Costs { execute_ns: 100_000.0, ..*costs },
        read_share: 0.08,
        dependency_share: 0.1,
        log_bytes: 2500,
        seconds: 0.3,
        warm_up_seconds: 0.2,
        ..ycsb
    }
}

/// The names of the model and of the paper. A worker that is the group committer is not modelled.
const VARIANTS: [(&str, &str); 4] =
    [("flush", "Flush"), ("flush-queue", "FlushQueue"), ("our-4k", "Our4KB"), ("our-16k", "Our16KB")];

fn stress(figure: &Figure<'_>, costs: &Costs, is_tpcc: bool) -> Result<Vec<ModelSeries>> {
    let of = if is_tpcc { tpcc } else { ycsb };
    let one = |(name, shown): &(&str, &str)| figure.series(shown, &[96.0], |x| of(name, x as usize, costs));
    VARIANTS.iter().map(one).collect()
}

fn scalability(figure: &Figure<'_>, costs: &Costs) -> Result<Vec<ModelSeries>> {
    let threads = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 96.0, 128.0, 192.0];
    let wanted = VARIANTS.iter().filter(|(name, _)| *name != "flush");
    wanted.map(|(name, shown)| figure.series(shown, &threads, |x| ycsb(name, x as usize, costs))).collect()
}

fn flush_units(figure: &Figure<'_>, costs: &Costs) -> Result<Vec<ModelSeries>> {
    let units = [4.0, 8.0, 16.0, 32.0, 64.0, 128.0];
    let of = |unit: f64| {
        let mut input = tpcc("our-4k", 96, costs);
        input.protocol.unit_bytes = (unit as u64) << 10;
        input
    };
    Ok(vec![figure.series("TPC-C", &units, of)?])
}

fn acknowledgment_groups(figure: &Figure<'_>, costs: &Costs) -> Result<Vec<ModelSeries>> {
    let groups = [1.0, 2.0, 4.0, 8.0];
    let grouped = |input: ModelInput, group: f64| ModelInput {
        protocol: Protocol { ack_group: group as usize, ..input.protocol },
        ..input
    };
    Ok(vec![
        figure.series("YCSB", &groups, |group| grouped(ycsb("our-4k", 96, costs), group))?,
        figure.series("TPC-C", &groups, |group| grouped(tpcc("our-4k", 96, costs), group))?,
    ])
}

fn clients(workers: usize, window_us: f64, device: &str, costs: &Costs) -> ModelInput {
    ModelInput {
        workers,
        protocol: Protocol { window_us, siblings: 0, cohort: false, ..Protocol::default() },
        device: device.into(),
        costs: Costs { execute_ns: 0.0, ..*costs },
        seconds: 2.0,
        warm_up_seconds: 0.2,
        ..ModelInput::default()
    }
}

fn offered_load(figure: &Figure<'_>, costs: &Costs) -> Result<Vec<ModelSeries>> {
    let rates = [100.0, 1000.0, 10_000.0, 50_000.0, 200_000.0];
    let of = |rate: f64| ModelInput {
        rate_tps: Some(rate),
        ..clients(512, 200.0, "sim:custom:write=500us", costs)
    };
    Ok(vec![figure.series("f = 500 us, w = 200 us", &rates, of)?])
}

fn windows(figure: &Figure<'_>, costs: &Costs) -> Result<Vec<ModelSeries>> {
    let threads = [1.0, 4.0, 16.0, 64.0, 256.0];
    let device = "sim:custom:write=20us,flush=100us";
    let of = |window: f64| {
        let name = format!("window {window} us");
        figure.series(&name, &threads, |x| clients(x as usize, window, device, costs))
    };
    [0.0, 100.0, 500.0].into_iter().map(of).collect()
}

/// A transaction with a hot row.
#[derive(Clone, Copy)]
struct Hot {
    rows: u64,
    h: f64,
    execute_us: f64,
    reads_only: bool,
}

fn with_locks(workers: usize, release: LockRelease, hot: Hot, costs: &Costs) -> ModelInput {
    let locks = RowLocks { rows: hot.rows, h: hot.h, release, locked_share: 0.5 };
    ModelInput {
        workers,
        cores: 64,
        protocol: Protocol::default(),
        locks: (!hot.reads_only).then_some(locks),
        read_share: if hot.reads_only { 1.0 } else { 0.0 },
        device: "sim:disk-170iops".into(),
        costs: Costs { execute_ns: hot.execute_us * 1e3, ..*costs },
        seconds: 20.0,
        warm_up_seconds: 3.0,
        ..ModelInput::default()
    }
}

fn released(
    figure: &Figure<'_>,
    names: [&str; 2],
    xs: &[f64],
    per_x: f64,
    hot: Hot,
    costs: &Costs,
) -> Result<Vec<ModelSeries>> {
    let of = |release| move |x: f64| with_locks((x * per_x).round().max(1.0) as usize, release, hot, costs);
    Ok(vec![
        figure.series(names[0], xs, of(LockRelease::Commit))?,
        figure.series(names[1], xs, of(LockRelease::PreCommit))?,
    ])
}

/// The transactions of TPC-C at `warehouses`: their hot rows are warehouses, or their ten
/// districts.
fn tpcc_types(warehouses: u64) -> [(&'static str, Hot); 6] {
    let hot = |rows, execute_us| Hot { rows, h: 0.5, execute_us, reads_only: false };
    let reads = Hot { reads_only: true, ..hot(1, 4000.0) };
    [
        ("mix", hot(warehouses, 4000.0)),
        ("New Order", hot(warehouses * 10, 4000.0)),
        ("Payment", hot(warehouses, 2000.0)),
        ("Delivery", hot(warehouses, 20_000.0)),
        ("Order Status", reads),
        ("Stock Level", reads),
    ]
}

fn early_release<'f>(
    id: &'f str,
    of: &dyn Fn(&'static str, &'static str) -> Figure<'f>,
    costs: &Costs,
) -> Result<Option<Vec<ModelSeries>>> {
    const THREADS: [f64; 7] = [10.0, 25.0, 50.0, 100.0, 150.0, 200.0, 400.0];
    const PER_WAREHOUSE: [f64; 6] = [0.1, 0.5, 1.0, 2.0, 3.0, 4.0];
    const PER_WAREHOUSE_10: [f64; 6] = [1.0, 2.0, 3.5, 5.0, 6.3, 10.0];
    let both = ["baseline", "early lock release"];
    let typed = |figure: &Figure<'_>, warehouses: u64, xs: &[f64], wanted: &[usize]| {
        let types = tpcc_types(warehouses);
        let mut all = Vec::new();
        for (name, hot) in wanted.iter().filter_map(|place| types.get(*place)) {
            let names = both.map(|both| format!("{name}, {both}"));
            let per_x = warehouses as f64;
            all.extend(released(figure, [&names[0], &names[1]], xs, per_x, *hot, costs)?);
        }
        anyhow::Ok(all)
    };
    let whole =
        |wanted: usize| released(&of("threads", ELR), both, &THREADS, 1.0, tpcc_types(100)[wanted].1, costs);
    let skewed = |h| Hot { rows: 1000, h, execute_us: 2000.0, reads_only: false };
    let tpcb = |h| released(&of("threads", ELR), both, &THREADS, 1.0, skewed(h), costs);
    let of_skews = |release| {
        let one = |h: f64| {
            let input = |x: f64| with_locks(x as usize, release, skewed(h), costs);
            of("threads", ELR).series(&format!("h = {h}"), &THREADS, input)
        };
        [0.5, 0.4, 0.35, 0.2].into_iter().map(one).collect::<Result<Vec<_>>>()
    };
    Ok(Some(match id {
        "ELR-F9" => typed(&of("threads per warehouse", ELR), 10, &PER_WAREHOUSE_10, &[0])?,
        "ELR-F10" => typed(&of("threads per warehouse", ELR), 10, &PER_WAREHOUSE_10, &[0, 1, 2, 3])?,
        "ELR-F11" => typed(&of("threads per warehouse", ELR), 100, &PER_WAREHOUSE, &[0])?,
        "ELR-F12" => typed(&of("threads per warehouse", ELR), 100, &PER_WAREHOUSE[1..], &[1, 2, 3, 4, 5])?,
        "ELR-F13" => whole(0)?,
        "ELR-F14" => whole(1)?,
        "ELR-F15" => whole(2)?,
        "ELR-F16" => whole(3)?,
        "ELR-F17" => of_skews(LockRelease::Commit)?,
        "ELR-F18" => tpcb(0.5)?,
        "ELR-F19" => tpcb(0.4)?,
        "ELR-F20" => tpcb(0.35)?,
        "ELR-F21" => tpcb(0.2)?,
        "ELR-F22" => of_skews(LockRelease::PreCommit)?,
        _ => return Ok(None),
    }))
}

/// A log in memory: a central one as in Aether, one for each thread, fenced or not, slow or not.
fn memory_logs(figure: &Figure<'_>, costs: &Costs) -> Result<Vec<ModelSeries>> {
    let threads = [1.0, 4.0, 8.0, 16.0, 24.0, 32.0, 40.0, 48.0];
    let of = |central: bool, fence_ns: f64, insertion_ns: f64, more_us: f64| {
        move |x: f64| {
            let workers = x as usize;
            let name = if central { "central" } else { "passive" };
            let protocol = Protocol::named(name, workers).unwrap_or_default();
            // The full mixes read more, and log less often.
            let mixed = figure.id == "NVM-F6";
            ModelInput {
                workers,
                cores: 48,
                protocol: Protocol { acknowledger: Acknowledger::Workers, ack_odds: 1, ..protocol },
                read_share: if mixed { 0.8 } else { 0.0 },
                dependency_share: 0.1,
                device: "sim:memory-0us".into(),
                costs: Costs {
                    execute_ns: (10.0 + more_us) * 1e3,
                    transfer_ns: 300.0,
                    fence_ns,
                    insertion_ns,
                    ..*costs
                },
                seconds: 0.2,
                warm_up_seconds: 0.05,
                ..ModelInput::default()
            }
        }
    };
    // TPC-B and Payment execute longer than an update of a location.
    let more = match figure.id {
        "NVM-F4b" => 10.0,
        "NVM-F4c" => 20.0,
        _ => 0.0,
    };
    let fence = costs.fence_ns;
    let mut all = vec![
        figure.series("Aether: one log", &threads, of(true, 0.0, 0.0, more))?,
        figure.series("TX-D ideal", &threads, of(false, 0.0, 0.0, more))?,
        figure.series("TX-D 1.2 us", &threads, of(false, 0.0, 1200.0, more))?,
    ];
    if matches!(figure.id, "NVM-F6" | "NVM-F8") {
        all.push(figure.series("TX-V ideal", &threads, of(false, fence, 0.0, more))?);
        all.push(figure.series("TX-V 1.2 us", &threads, of(false, fence, 1200.0, more))?);
    }
    Ok(all)
}

/// Ratio of workers to logs, and size of the buffers, on a store of objects.
fn shared_logs(figure: &Figure<'_>, costs: &Costs) -> Result<Vec<ModelSeries>> {
    let sizes = [128.0, 256.0, 512.0, 1024.0, 2048.0];
    let of = |k: usize| {
        let input = move |kib: f64| {
            let mut protocol = Protocol::restricted(16, k, "restricted");
            protocol.buffer_bytes = (kib as u64) << 10;
            protocol.unit_bytes = protocol.buffer_bytes;
            // No thread waits, and the paper states no time-out.
            protocol.interval_us = 50_000.0;
            ModelInput {
                costs: Costs { execute_ns: 50_000.0, ..*costs },
                log_bytes: 1200,
                ..over_objects(16, protocol, "sim:s3-express", 0.25)
            }
        };
        figure.series(&format!("{k} workers a log"), &sizes, input)
    };
    [1, 2, 4].into_iter().map(of).collect()
}

fn over_objects(workers: usize, protocol: Protocol, device: &str, dependency_share: f64) -> ModelInput {
    ModelInput {
        workers,
        protocol,
        device: device.into(),
        dependency_share,
        seconds: 3.0,
        warm_up_seconds: 0.5,
        ..ModelInput::default()
    }
}

/// YCSB on stores of objects and on volumes, without and with restricted logs and record-level
/// dependencies.
fn objects(figure: &Figure<'_>, costs: &Costs) -> Result<Vec<ModelSeries>> {
    const GP3: &str = "sim:ebs-gp3:iops=8000,rate=250m";
    const IO2: &str = "sim:ebs-io2:iops=8000";
    let threads = [1.0, 2.0, 4.0, 8.0, 16.0];
    let (execute_ns, log_bytes) =
        if figure.id.starts_with("MS-F10") { (12_000.0, 120) } else { (15_000.0, 600) };
    let share = if figure.id.ends_with('b') { 1.0 } else { 0.25 };
    let of = |name: &str, device: &'static str, published: bool| {
        let input = move |x: f64| {
            let workers = x as usize;
            let mut protocol = Protocol::restricted(workers, if published { 2 } else { 1 }, "restricted");
            if !published && protocol.logs > 1 {
                protocol.dependency = Dependency::Csn;
            }
            protocol.interval_us = 10_000.0;
            ModelInput {
                costs: Costs { execute_ns, ..*costs },
                log_bytes,
                ..over_objects(workers, protocol, device, share)
            }
        };
        figure.series(name, &threads, input)
    };
    if figure.id.starts_with("MS-F14") {
        return Ok(vec![
            of("gp3", GP3, false)?,
            of("gp3+", GP3, true)?,
            of("io2", IO2, false)?,
            of("io2+", IO2, true)?,
        ]);
    }
    Ok(vec![
        of("S3 Standard", "sim:s3-standard", false)?,
        of("S3 Express", "sim:s3-express", false)?,
        of("gp3", GP3, false)?,
        of("io2", IO2, false)?,
        of("Milliscale", "sim:s3-express", true)?,
    ])
}
