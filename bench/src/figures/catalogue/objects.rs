//! Commits on object storage: restricted decentralized logging and record-level dependencies, 2026.

use super::measures::{
    COMMIT_MS, MODEL, absent, at, bars, claim, direction, figure, lines, log_bars, log_lines, modelled, of,
    other, over, single, tail, with_throughput,
};
use crate::figures::spec::{Axis, Chart, Choice, Claim, Figure, Holds, Measure, Ours, Part};

const SETTING: &str =
    "c6in.8xlarge: 16 workers on 16 cores, S3 and EBS of one zone, 10 s, snapshot isolation.";
const SCALED: &str = "The same number of workers on 2 cores, models of the five devices in memory, 200,000 rows, 1 to 2 s. \
     The devices take milliseconds, so latency is theirs; throughput is bounded by two cores.";

/// Ten operations; all reads or all updates, by the share of the mix.
fn ycsb(mix: &str, distribution: &str) -> String {
    format!(
        "ycsb --rows 200000 --value-bytes 80 --mix {mix} --mix-per transaction --ops 10 \
         --distribution {distribution} --commit async --checkpoint none"
    )
}

const TPCC: &str = "tpcc --small --warehouses 100 --home random --commit async --checkpoint none";

/// The published timeout is not stated; 10 ms is a little more than one append.
const TIMEOUT: &str = "--flush-interval-us 10000";

/// One log for each thread, whose transactions commit in the order of the whole database.
fn naive(dependency: &str) -> String {
    format!(
        "--preset pipelined --layout per-thread --logs {{x}} --writer flusher-per-log --dependency {dependency} \
         --flush-unit 512k --log-buffer 512k {TIMEOUT}"
    )
}

/// Two threads for each log.
fn shared(dependency: &str) -> String {
    format!(
        "--preset restricted --logs {{x/2}} --dependency {dependency} \
         --flush-unit 1000k --log-buffer 1m {TIMEOUT}"
    )
}

const S3X: &str = "--device sim:s3-express";
const GP3: &str = "--device sim:ebs-gp3:iops=8000,rate=250m";
const IO2: &str = "--device sim:ebs-io2:iops=8000";

fn on(name: &str, protocol: &str, device: &str) -> Choice {
    Choice::new(name, &format!("{protocol} {device}"))
}

fn five() -> Vec<Choice> {
    vec![
        on("S3 Standard", &naive("dsn"), "--device sim:s3-standard"),
        on("S3X", &naive("csn"), S3X),
        on("gp3", &naive("csn"), GP3),
        on("io2", &naive("csn"), IO2),
        on("Milliscale", &shared("dsn"), S3X),
    ]
}

fn threads(values: &str) -> Axis {
    Axis::flag("threads", "--threads", values)
}

const UNIFORM: &str = "uniform";
const ZIPFIAN: &str = "zipfian";
const WRITES: Measure = other("appends", "requests", "/device_writes", 1.0);

fn measures() -> Vec<Measure> {
    with_throughput(COMMIT_MS, &[WRITES])
}

fn by_threads(mix: &str, variants: &[Choice], charts: &[Chart]) -> Vec<Part> {
    let part = |name, distribution| {
        over(
            name,
            &ycsb(mix, distribution),
            threads("(2) (8) 16"),
            variants.to_vec(),
            measures(),
            charts.to_vec(),
        )
    };
    vec![part(UNIFORM, UNIFORM), part(ZIPFIAN, ZIPFIAN)]
}

/// Returns how much shorter the first variant's latency is, in percent.
fn shorter(
    published: f64,
    (part, one, other): (&'static str, &'static str, &'static str),
    measure: &'static str,
    holds: Holds,
) -> Claim {
    let latency = if measure == "mean" { "mean latency" } else { measure };
    claim(
        format!("{latency} of {one} against {other}, {part}"),
        published,
        "%",
        Ours::Change(of(part, "16", one, measure), of(part, "16", other, measure)),
        holds,
        "16 workers share two cores: the wait for a processor is as long as what the technique saves",
    )
}

/// Name of the model's part with the zipfian distribution.
const ZIPFIAN_MODEL: &str = "model of a larger machine, zipfian";
const WITH_MODEL: &str = "The same number of workers on 2 cores, models of the five devices in memory, 200,000 rows, 1 to 2 s. \
     The devices take milliseconds, so latency is theirs; throughput is bounded by two cores. \
     A discrete-event model shows 16 cores, with times of execution and shares of dependent transactions that are assumed.";

/// Returns the parts of the model for both distributions, each over 1 to 16 threads on as many
/// cores.
fn on_16_cores(uniform: &str, zipfian: &str, variants: &[&str]) -> Vec<Part> {
    let part = |figure| {
        let charts = vec![lines("throughput"), log_lines("mean")];
        modelled(figure, ("threads", "1 2 4 8 16"), variants, charts)
    };
    vec![part(uniform), Part { name: ZIPFIAN_MODEL, ..part(zipfian) }]
}

/// Returns by how much the first series of the model has a shorter mean latency than the second.
fn modelled_shorter(
    published: f64,
    part: &'static str,
    (one, other): (&'static str, &'static str),
    holds: Holds,
) -> Claim {
    let distribution = if part == MODEL { UNIFORM } else { ZIPFIAN };
    let text = format!("model, 16 cores: mean latency of {one} against {other}, {distribution}");
    let ours = Ours::Change(of(part, "16", one, "mean"), of(part, "16", other, "mean"));
    let otherwise = "the shares of transactions that wait for other logs are assumed";
    claim(text, published, "%", ours, holds, otherwise)
}

const BELOW: Holds = Holds::AtMost(0.0);
const NEAR: Holds = Holds::Between(-25.0, 25.0);

fn ycsb_a() -> Figure {
    let pair = (UNIFORM, "Milliscale", "S3X");
    let zipf = (ZIPFIAN, "Milliscale", "S3X");
    figure(
        "MS-F9",
        "YCSB-A: throughput and mean latency by threads",
        SETTING,
        WITH_MODEL,
        [
            by_threads("a", &five(), &[lines("throughput"), log_lines("mean")]),
            on_16_cores("MS-F9", "MS-F9b", &["S3 Standard", "S3 Express", "gp3", "io2", "Milliscale"]),
        ]
        .concat(),
        vec![
            shorter(-28.4, pair, "mean", BELOW),
            shorter(0.0, zipf, "mean", NEAR),
            modelled_shorter(-28.4, MODEL, ("Milliscale", "S3 Express"), BELOW),
            modelled_shorter(0.0, ZIPFIAN_MODEL, ("Milliscale", "S3 Express"), NEAR),
        ],
    )
}

fn workloads() -> Vec<Figure> {
    let curves = [lines("throughput"), log_lines("mean")];
    let pair = (UNIFORM, "Milliscale", "S3X");
    let zipf = (ZIPFIAN, "Milliscale", "S3X");
    vec![
        ycsb_a(),
        figure(
            "MS-F10",
            "YCSB-B: throughput and mean latency by threads",
            SETTING,
            SCALED,
            by_threads("b", &five(), &curves),
            vec![shorter(-42.0, pair, "mean", BELOW)],
        ),
        figure(
            "MS-F11",
            "YCSB-A: tail latency, 16 threads",
            SETTING,
            SCALED,
            by_threads("a", &five(), &[tail("16")]),
            vec![
                shorter(-62.4, pair, "p99.9", BELOW),
                shorter(-51.8, zipf, "p99.9", BELOW),
                shorter(-56.2, pair, "p99.99", BELOW),
                shorter(-51.6, zipf, "p99.99", BELOW),
            ],
        ),
        figure(
            "MS-F12",
            "YCSB-B: tail latency, 16 threads",
            SETTING,
            SCALED,
            by_threads("b", &five(), &[tail("16")]),
            vec![Claim { published: None, ..shorter(0.0, pair, "p99.9", BELOW) }],
        ),
    ]
}

fn levels() -> Figure {
    let rules = |mix| {
        let variants =
            vec![on("transaction-level", &naive("csn"), S3X), on("record-level", &naive("dsn"), S3X)];
        over(
            "",
            &ycsb(mix, UNIFORM),
            threads("16"),
            variants,
            measures(),
            vec![Chart::Bars { measure: "mean", at: "16", log: false }],
        )
    };
    let named = |name, part: Part| Part { name, ..part };
    figure(
        "MS-F7",
        "Dependencies of transactions and of records, uniform",
        SETTING,
        SCALED,
        vec![named("YCSB-A", rules("a")), named("YCSB-B", rules("b"))],
        vec![
            shorter(-35.0, ("YCSB-A", "record-level", "transaction-level"), "mean", BELOW),
            shorter(-35.0, ("YCSB-B", "record-level", "transaction-level"), "mean", BELOW),
        ],
    )
}

fn tail_ablation() -> Figure {
    let techniques = [
        on("S3X", &naive("csn"), S3X),
        on("S3X + RDL", &shared("csn"), S3X),
        on("S3X + RLT", &naive("dsn"), S3X),
        on("Milliscale", &shared("dsn"), S3X),
    ];
    let growth = |variant| Ours::Ratio(of(UNIFORM, "16", variant, "p99"), of(UNIFORM, "16", variant, "p50"));
    figure(
        "MS-F13",
        "Ablation of the tail, YCSB-A, 16 threads",
        SETTING,
        SCALED,
        by_threads("a", &techniques, &[tail("16")])
            .into_iter()
            .map(|part| Part { axis: threads("16"), ..part })
            .collect(),
        vec![
            claim(
                "S3X, uniform: p99 over p50",
                5.0,
                "x",
                growth("S3X"),
                Holds::AtLeast(2.0),
                "the modelled tail begins at one append in a hundred",
            ),
            Claim {
                published: None,
                otherwise: "half as many logs hold a commit back with RDL: beside its own write it waits 5 ms with 8 \
                            logs, and 9 ms with 16",
                ..shorter(0.0, (UNIFORM, "S3X + RLT", "S3X + RDL"), "p50", BELOW)
            },
        ],
    )
}

fn volumes_by_threads(volumes: &[Choice]) -> Figure {
    figure(
        "MS-F14",
        "Both techniques on volumes, YCSB-A: throughput and mean latency",
        SETTING,
        WITH_MODEL,
        [
            by_threads("a", volumes, &[lines("throughput"), log_lines("mean")]),
            on_16_cores("MS-F14", "MS-F14b", &["gp3", "gp3+", "io2", "io2+"]),
        ]
        .concat(),
        vec![
            modelled_shorter(-26.8, MODEL, ("gp3+", "gp3"), BELOW),
            modelled_shorter(-32.8, MODEL, ("io2+", "io2"), BELOW),
            shorter(-26.8, (UNIFORM, "gp3+", "gp3"), "mean", BELOW),
            shorter(-32.8, (UNIFORM, "io2+", "io2"), "mean", BELOW),
        ],
    )
}

fn volumes() -> Vec<Figure> {
    let volumes = [
        on("gp3", &naive("csn"), GP3),
        on("gp3+", &shared("dsn"), GP3),
        on("io2", &naive("csn"), IO2),
        on("io2+", &shared("dsn"), IO2),
    ];
    vec![
        volumes_by_threads(&volumes),
        figure(
            "MS-F15",
            "Both techniques on volumes, YCSB-A: tail latency",
            SETTING,
            SCALED,
            by_threads("a", &volumes, &[tail("16")]),
            vec![
                shorter(-42.2, (UNIFORM, "gp3+", "gp3"), "p99.99", BELOW),
                shorter(-41.6, (UNIFORM, "io2+", "io2"), "p99.99", BELOW),
                shorter(-39.0, (ZIPFIAN, "gp3+", "gp3"), "p99.99", BELOW),
                Claim {
                    otherwise: "hot rows leave 5,000 transactions a second: a shared log gathers for 0.5 ms instead of \
                                0.1 ms, and the percentile is the longest of 10,000 commits",
                    ..shorter(-14.4, (ZIPFIAN, "io2+", "io2"), "p99.99", BELOW)
                },
            ],
        ),
    ]
}

const TPCC_SCALED: &str = "16 workers on 2 cores; 100 warehouses with a hundredth of the customers, orders and items. \
                  The workers share the processors, so appends are not as full as there.";
const CORES: &str = "two cores bound the throughput of all variants: 44 to 54 us of processor time a transaction, which \
                     differs as much between two runs of one variant";

fn tpcc_change(one: &'static str, other: &'static str, measure: &'static str) -> Ours {
    Ours::Change(at("16", one, measure), at("16", other, measure))
}

fn grid() -> Figure {
    let sizes = [("256k", "224k"), ("512k", "448k"), ("1m", "960k"), ("2m", "1m")];
    let sizes = Axis {
        name: "buffer of a log",
        values: sizes
            .map(|(buffer, unit)| Choice::new(buffer, &format!("--log-buffer {buffer} --flush-unit {unit}")))
            .to_vec(),
    };
    let sharing = ["1", "2", "4"].map(|count| {
        let logs = 16 / count.parse::<u32>().unwrap_or(1);
        let flags = format!("--preset restricted --logs {logs} --dependency dsn");
        Choice::new(&format!("{count}:1"), &format!("--threads 16 {flags} {TIMEOUT} {S3X}"))
    });
    let grid = over("", TPCC, sizes, sharing.to_vec(), measures(), vec![lines("throughput"), lines("mean")]);
    figure(
        "MS-F4",
        "Threads for each log, and the size of its buffer: TPC-C",
        SETTING,
        TPCC_SCALED,
        vec![grid],
        vec![direction(
            "throughput of 2:1 with 1 MiB against 1:1 with 512 KiB",
            "%",
            Ours::Change(at("1m", "2:1", "throughput"), at("512k", "1:1", "throughput")),
            Holds::AtLeast(-10.0),
            CORES,
        )],
    )
}

fn appends() -> Figure {
    let appends = over(
        "",
        TPCC,
        threads("(4) 16"),
        vec![on("S3X", &naive("csn"), S3X), on("Milliscale", &shared("dsn"), S3X)],
        measures(),
        vec![lines("appends"), lines("throughput")],
    );
    figure(
        "MS-F16",
        "Number of appends, TPC-C",
        SETTING,
        TPCC_SCALED,
        vec![appends],
        vec![claim(
            "appends of Milliscale against S3X",
            -50.0,
            "%",
            tpcc_change("Milliscale", "S3X", "appends"),
            Holds::AtMost(-30.0),
            "a log is written when 10 ms have passed, however many threads share it",
        )],
    )
}

fn tpcc() -> Vec<Figure> {
    let part = |charts: &[Chart]| over("", TPCC, threads("(4) 16"), five(), measures(), charts.to_vec());
    vec![
        figure(
            "MS-F17",
            "TPC-C: throughput and mean latency by threads",
            SETTING,
            TPCC_SCALED,
            vec![part(&[lines("throughput"), log_lines("mean")])],
            vec![
                claim(
                    "throughput of Milliscale against S3X",
                    3.8,
                    "%",
                    tpcc_change("Milliscale", "S3X", "throughput"),
                    Holds::AtLeast(-10.0),
                    CORES,
                ),
                claim(
                    "throughput of Milliscale against gp3",
                    23.0,
                    "%",
                    tpcc_change("Milliscale", "gp3", "throughput"),
                    Holds::AtLeast(-10.0),
                    CORES,
                ),
            ],
        ),
        figure(
            "MS-F18",
            "TPC-C: tail latency, 16 threads",
            SETTING,
            TPCC_SCALED,
            vec![part(&[tail("16")])],
            vec![direction(
                "p99.9: Milliscale over S3X",
                "x",
                Ours::Ratio(at("16", "Milliscale", "p99.9"), at("16", "S3X", "p99.9")),
                Holds::AtMost(1.1),
                CORES,
            )],
        ),
    ]
}

fn options() -> Figure {
    let options = single(
        &format!("{} --threads 16", ycsb("a", UNIFORM)),
        five()
            .into_iter()
            .map(|choice| Choice { flags: choice.flags.replace("{x/2}", "8").replace("{x}", "16"), ..choice })
            .collect(),
        measures(),
        vec![log_bars("mean"), bars("appends")],
    );
    let naive = "--preset pipelined --layout per-thread --logs 4 --writer flusher-per-log";
    let costs = priced(
        "cost",
        vec![Choice::new("naive", naive), Choice::new("restricted", "--preset restricted --logs 2")],
    );
    figure(
        "MS-F1",
        "Latency and cost of the options of storage",
        SETTING,
        "Latency on models of the devices; cost of requests and bytes counted on a directory as a store of objects.",
        vec![Part { name: "latency", ..options }, costs],
        vec![
            direction(
                "S3X, naive, over gp3: mean latency",
                "x",
                Ours::Ratio(of("latency", "", "S3X", "mean"), of("latency", "", "gp3", "mean")),
                Holds::AtLeast(1.0),
                "the volume's 8,000 requests a second are shared by 16 logs, and objects have no such limit",
            ),
            direction(
                "cost of restricted logging over a log for each thread",
                "x",
                Ours::Ratio(of("cost", "", "restricted", "cost"), of("cost", "", "naive", "cost")),
                Holds::AtMost(1.0),
                "a directory answers at once, so the number of appends is not bounded by their latency",
            ),
        ],
    )
}

/// The database lies in a store of objects: a directory, with the prices of S3 Express.
fn priced(name: &'static str, variants: Vec<Choice>) -> Part {
    let measures = vec![
        other("puts", "requests", "/requests/puts", 1.0),
        other("cost of the run", "USD x 10^6", "/requests/dollars", 1e6),
        other("cost", "USD per million transactions", "/requests/dollars_per_million_transactions", 1.0),
    ];
    let command = "ycsb --rows 2000 --value-bytes 80 --mix a --ops 10 --threads 4 --commit async --path file://{here}/objects";
    Part { name, ..single(command, variants, measures, vec![bars("cost")]) }
}

fn full_records() -> Figure {
    let part = single(
        "tpcc --small --warehouses 2 --threads 2 --commit async --device sim:nvme-enterprise --checkpoint none",
        vec![Choice::new("delta", "--delta true"), Choice::new("full", "--delta false")],
        vec![other("log", "bytes/tx", "/log_bytes_per_transaction", 1.0)],
        vec![bars("log")],
    );
    figure(
        "MS-X1",
        "Records of changed bytes and of whole rows, TPC-C",
        SETTING,
        "2 threads, 2 warehouses. A changed row is logged as one range of bytes, from the first to the last changed one.",
        vec![part],
        vec![claim(
            "log with records of changed bytes, against whole rows",
            -66.0,
            "%",
            Ours::Change(at("", "delta", "log"), at("", "full", "log")),
            Holds::AtMost(-10.0),
            "most of the log are inserted rows, which have no smaller form, and both forms have headers",
        )],
    )
}

fn cost() -> Figure {
    figure(
        "MS-X2",
        "Cost of a million requests",
        "2 GB in a million appends of 2 KB: 1.13 USD, and 0.0032 USD for each GB.",
        "Requests and bytes counted on a directory as a store of objects; the prices are the published ones.",
        vec![priced("", vec![Choice::new("restricted", "--preset restricted --logs 2")])],
        vec![claim(
            "USD for a million requests, bytes included",
            1.14,
            "USD",
            Ours::Ratio(at("", "restricted", "cost of the run"), at("", "restricted", "puts")),
            Holds::Between(1.13, 3.0),
            "few and large requests: bytes cost more than requests",
        )],
    )
}

fn appends_by_size() -> Figure {
    let sizes = Axis {
        name: "bytes of a request",
        values: [("256 KiB", "262144"), ("512 KiB", "524288"), ("1 MiB", "1048576"), ("2 MiB", "2097152")]
            .map(|(name, key)| Choice::new(name, "").keyed(key))
            .to_vec(),
    };
    let devices = vec![
        Choice::new("S3 Standard", "--device sim:s3-standard"),
        Choice::new("S3 Express", "--device sim:s3-express"),
    ];
    let path = "/writes[bytes={x}&writers=1&durable=true]/p50_us";
    let append = Part {
        seconds: (20.0, 40.0),
        ..over(
            "",
            "device --sweep",
            sizes,
            devices,
            vec![other("median", "ms", path, 1e-3)],
            vec![log_lines("median")],
        )
    };
    figure(
        "MS-F2",
        "Latency of appends by size",
        "S3 Standard and S3 Express One Zone, one request at a time.",
        "The models of both, so this shows that the models are what was published.",
        vec![append],
        vec![
            claim(
                "S3 Express, 512 KiB",
                8.0,
                "ms",
                Ours::Value(at("512 KiB", "S3 Express", "median")),
                Holds::Between(7.0, 10.0),
                "other programs ran beside the model",
            ),
            claim(
                "S3 Express, 2 MiB",
                22.0,
                "ms",
                Ours::Value(at("2 MiB", "S3 Express", "median")),
                Holds::Between(19.0, 27.0),
                "other programs ran beside the model",
            ),
            claim(
                "S3 Standard, 2 MiB",
                77.0,
                "ms",
                Ours::Value(at("2 MiB", "S3 Standard", "median")),
                Holds::Between(69.0, 92.0),
                "other programs ran beside the model",
            ),
        ],
    )
}

/// Returns the figures of the paper in its order.
pub(super) fn figures() -> Vec<Figure> {
    let mut all = vec![
        options(),
        appends_by_size(),
        absent("MS-F3", "Logs, objects and parts", "a drawing; the guide describes the objects"),
        grid(),
        absent(
            "MS-F5",
            "A transaction waits for an unrelated one",
            "a trace; a unit test of the commit rule runs it",
        ),
        absent("MS-F6", "Commit numbers over several logs", "a drawing"),
        levels(),
        absent(
            "MS-F8",
            "What record-level dependencies can and cannot do",
            "a trace; AC-T0 counts such waits",
        ),
    ];
    all.extend(workloads());
    all.push(tail_ablation());
    all.extend(volumes());
    all.push(appends());
    all.extend(tpcc());
    all.extend([full_records(), cost()]);
    all
}
