//! Autonomous commit: "Moving on From Group Commit", SIGMOD 2025.

use super::measures::{
    COMMIT_US, MODEL, absent, at, bars, claim, direction, figure, lines, log_bars, log_lines, modelled, of,
    other, over, single, tail, with_throughput,
};
use crate::figures::spec::{Axis, Chart, Choice, Claim, Figure, Holds, Measure, Ours, Part};

const SETTING: &str = "96 threads on 96 cores, one NVMe drive, 100 M rows, buffer pool of 32 GB.";
const SCALED: &str = "2 threads on 2 cores, a model of the drive (sim:nvme-enterprise) in memory, 200,000 rows, warehouses with a hundredth of the rows. \
     Flushers, competitors' background threads and the modelled drive share the two cores with the workers, \
     so a background thread costs more here, and queues are shorter.";

const YCSB: &str = "ycsb --rows 200000 --commit async --device sim:nvme-enterprise --checkpoint none";
const TPCC: &str =
    "tpcc --small --warehouses 2 --commit async --device sim:nvme-enterprise --checkpoint none";
const TATP: &str = "tatp --subscribers 50000 --commit async --device sim:nvme-enterprise --checkpoint none";

/// A log for each thread; `{x}` is the number of threads.
const LOGS: &str = "--preset pipelined --layout per-thread --logs {x} --dependency gsn-rfa";
const WORKERS: &str = "--writer worker --flush-interval-us 1000000";
const OWN: &str = "--acknowledger workers --ack-group 2 --idle-us 50";

fn variant(name: &str, flags: &[&str]) -> Choice {
    Choice::new(name, &flags.join(" "))
}

fn flush(queue: &str) -> String {
    format!("{LOGS} --queue {queue}")
}

fn trad_queue() -> Choice {
    variant("TradQueue", &[&flush("lock-free"), "--shared-flush true"])
}

fn flush_queue() -> Choice {
    variant("FlushQueue", &[&flush("lock-free")])
}

/// Autonomous commit with this flush unit.
fn our(name: &str, unit: &str) -> Choice {
    variant(name, &[LOGS, WORKERS, OWN, "--steal-group {x<8} --flush-unit", unit])
}

fn six() -> Vec<Choice> {
    vec![
        variant("Trad", &[&flush("latched"), "--shared-flush true"]),
        trad_queue(),
        variant("Flush", &[&flush("latched")]),
        flush_queue(),
        our("Our4KB", "4k"),
        our("Our16KB", "16k"),
    ]
}

fn four() -> Vec<Choice> {
    vec![trad_queue(), flush_queue(), our("Our4KB", "4k"), our("Our16KB", "16k")]
}

fn two_threads() -> Axis {
    Axis { name: "threads", values: vec![Choice::new("2", "--threads 2")] }
}

/// What a transaction costs beside its latency.
const COSTS: [Measure; 3] = [
    other("queuing", "us", "/stages/queuing_us", 1.0),
    other("processor time", "us/tx", "/cpu_us_per_transaction", 1.0),
    other("writes", "writes/tx", "/device_writes_per_transaction", 1.0),
];

const CLOSED: &str = "autonomous commit writes small blocks by the workers themselves; on two cores each of these \
     writes takes processor time from transactions";

fn closed_loop() -> Vec<Figure> {
    let part = |command: &str| Part {
        charts: vec![Chart::Bars { measure: "throughput", at: "2", log: false }, tail("2")],
        ..over("", command, two_threads(), six(), with_throughput(COMMIT_US, &COSTS), vec![])
    };
    let p90 = |text, published| {
        claim(
            text,
            published,
            "x",
            Ours::Ratio(at("2", "FlushQueue", "p90"), at("2", "Our4KB", "p90")),
            Holds::AtLeast(1.0),
            "the flusher of a competitor wakes soon enough with two workers; queues stay short",
        )
    };
    let throughput = |text, variant, published, holds| {
        claim(
            text,
            published,
            "%",
            Ours::Change(at("2", variant, "throughput"), at("2", "TradQueue", "throughput")),
            holds,
            CLOSED,
        )
    };
    vec![
        figure(
            "AC-F9a",
            "Closed loop, YCSB",
            SETTING,
            SCALED,
            vec![part(YCSB)],
            vec![
                p90("90th percentile: FlushQueue over Our4KB", 12_431.0),
                claim(
                    "90th percentile of Our4KB",
                    175.0,
                    "us",
                    Ours::Value(at("2", "Our4KB", "p90")),
                    Holds::Shown,
                    "",
                ),
                throughput("throughput of Our4KB against TradQueue", "Our4KB", 26.1, Holds::AtLeast(0.0)),
            ],
        ),
        figure(
            "AC-F9b",
            "Closed loop, TPC-C",
            SETTING,
            SCALED,
            vec![part(TPCC)],
            vec![
                p90("90th percentile: FlushQueue over Our4KB", 283.0),
                throughput("throughput of Our16KB against TradQueue", "Our16KB", 0.0, Holds::AtLeast(-10.0)),
            ],
        ),
        figure(
            "AC-F9c",
            "Closed loop, TATP",
            "96 threads on 96 cores, 1 M subscribers.",
            SCALED,
            vec![part(TATP)],
            vec![Claim { published: None, ..p90("90th percentile: FlushQueue over Our4KB", 0.0) }],
        ),
    ]
}

fn open_loop() -> Vec<Figure> {
    let total = [
        other("throughput", "tx/s", "/throughput_tps", 1.0),
        other("p50", "us", "/total_latency_us/p50", 1.0),
        other("p90", "us", "/total_latency_us/p90", 1.0),
        other("p99", "us", "/total_latency_us/p99", 1.0),
    ];
    let part = |command: &str, rates: &str| {
        // Two threads, whatever the axis is.
        let variants = four().into_iter().map(|choice| Choice {
            flags: format!("--threads 2 {}", choice.flags.replace("{x}", "2").replace("{x<8}", "2")),
            ..choice
        });
        let axis = Axis::flag("offered load, tx/s", "--rate", rates);
        over("", command, axis, variants.collect(), total.to_vec(), vec![log_lines("p99")])
    };
    let because = "on two cores the client threads, which wait for arrivals, and the flushers wake in turn";
    vec![
        figure(
            "AC-F10a",
            "Open loop, YCSB: latency by offered load",
            SETTING,
            "2 threads; 1,000 to 100,000 transactions arrive per second.",
            vec![part(YCSB, "1000 10000 (30000) 100000")],
            vec![
                claim(
                    "99th percentile of Our4KB at 10,000/s",
                    100.0,
                    "us",
                    Ours::Value(at("10000", "Our4KB", "p99")),
                    Holds::Shown,
                    "",
                ),
                direction(
                    "99th percentile at 10,000/s: FlushQueue over Our4KB",
                    "x",
                    Ours::Ratio(at("10000", "FlushQueue", "p99"), at("10000", "Our4KB", "p99")),
                    Holds::AtLeast(1.0),
                    because,
                ),
            ],
        ),
        figure(
            "AC-F10b",
            "Open loop, TPC-C: latency by offered load",
            SETTING,
            "2 threads, 2 warehouses; 1,000 to 10,000 transactions arrive per second.",
            vec![part(TPCC, "1000 (3000) 10000")],
            vec![
                claim(
                    "99th percentile at 1,000/s: best competitor over Our4KB",
                    1.78,
                    "x",
                    Ours::Ratio(at("1000", "FlushQueue", "p99"), at("1000", "Our4KB", "p99")),
                    Holds::AtLeast(1.0),
                    "beyond the 90th percentile this is the time of the longest transactions, 0.3 ms with every variant",
                ),
                direction(
                    "90th percentile at 1,000/s: FlushQueue over Our4KB",
                    "x",
                    Ours::Ratio(at("1000", "FlushQueue", "p90"), at("1000", "Our4KB", "p90")),
                    Holds::AtLeast(1.0),
                    because,
                ),
            ],
        ),
    ]
}

fn ablation() -> Figure {
    let rows = vec![
        variant("Flush", &[&flush("latched")]),
        variant("+ queue", &[&flush("lock-free")]),
        variant("+ autonomous flush", &[LOGS, WORKERS, "--steal-group 1 --idle-us 0 --flush-unit 4k"]),
        variant("+ autonomous acknowledgment", &[LOGS, WORKERS, OWN, "--steal-group 1 --flush-unit 4k"]),
        variant("+ stealing", &[LOGS, WORKERS, OWN, "--steal-group {x<8} --flush-unit 4k"]),
    ];
    let charts =
        vec![Chart::Bars { measure: "throughput", at: "2", log: false }, log_p("p90"), log_p("p99.9")];
    figure(
        "AC-F11",
        "Ablation, YCSB: one technique more in each row",
        SETTING,
        SCALED,
        vec![over("", YCSB, two_threads(), rows, with_throughput(COMMIT_US, &[]), charts)],
        vec![
            claim(
                "throughput of the lock-free queue",
                21.5,
                "%",
                Ours::Change(at("2", "+ queue", "throughput"), at("2", "Flush", "throughput")),
                Holds::AtLeast(-10.0),
                "our queue is pushed under the log's latch, so its own latch is not contended with two workers",
            ),
            claim(
                "90th percentile: before autonomous flush over after all techniques",
                8_867.0,
                "x",
                Ours::Ratio(at("2", "+ queue", "p90"), at("2", "+ stealing", "p90")),
                Holds::AtLeast(1.0),
                "queues stay short with two workers",
            ),
        ],
    )
}

fn log_p(measure: &'static str) -> Chart {
    Chart::Bars { measure, at: "2", log: true }
}

/// Autonomous commit by this many threads.
fn ours_with(threads: &str, flags: &str) -> Choice {
    let own = variant("", &[LOGS, WORKERS, "--acknowledger workers --idle-us 50", flags]);
    let flags = own.flags.replace("{x<8}", threads).replace("{x}", threads);
    Choice { flags: format!("--threads {threads} {flags}"), ..own }
}

fn flush_unit() -> Figure {
    let units = Axis::flag("flush unit, KiB", "--flush-unit", "4 (8) 16 (32) 64 128");
    let with_unit = |value: Choice| Choice { flags: format!("{}k", value.flags), ..value };
    let units = Axis { values: units.values.into_iter().map(with_unit).collect(), ..units };
    let part = over(
        "",
        TPCC,
        units,
        vec![ours_with("2", "--ack-group 2 --steal-group {x<8}")],
        with_throughput(COMMIT_US, &[]),
        vec![lines("throughput"), log_lines("p90")],
    );
    let model = modelled(
        "AC-F13",
        ("flush unit, KiB", "4 8 16 32 64 128"),
        &["TPC-C"],
        vec![lines("throughput"), log_lines("p90")],
    );
    figure(
        "AC-F13",
        "Flush unit, TPC-C",
        SETTING,
        "2 threads, 2 warehouses; the model has 96 threads.",
        vec![part, model],
        vec![
            direction(
                "model, 96 threads: 90th percentile, 128 KiB over 4 KiB",
                "x",
                Ours::Ratio(of(MODEL, "128", "TPC-C", "p90"), of(MODEL, "4", "TPC-C", "p90")),
                Holds::AtLeast(2.0),
                "idle workers of the model write before the unit is full",
            ),
            direction(
                "90th percentile: 128 KiB over 4 KiB",
                "x",
                Ours::Ratio(at("128", "", "p90"), at("4", "", "p90")),
                Holds::AtLeast(1.0),
                "a waiting log is written after 200 us whatever the unit is, so long units act as 200 us of log",
            ),
            direction(
                "throughput: 16 KiB over 4 KiB",
                "x",
                Ours::Ratio(at("16", "", "throughput"), at("4", "", "throughput")),
                Holds::AtLeast(0.95),
                "two workers do not saturate the modelled drive with writes of 4 KiB",
            ),
        ],
    )
}

fn acknowledgment_group() -> Figure {
    let part = |part: &'static str, command: &str| {
        over(
            part,
            command,
            Axis::flag("acknowledgment group", "--ack-group", "1 2 (4) 8"),
            vec![ours_with("8", "--steal-group {x<8} --flush-unit 4k")],
            with_throughput(COMMIT_US, &[]),
            vec![lines("throughput"), lines("p90")],
        )
    };
    let tpcc = TPCC.replace("--warehouses 2", "--warehouses 8");
    let model = modelled(
        "AC-F14",
        ("acknowledgment group", "1 2 4 8"),
        &["YCSB", "TPC-C"],
        vec![lines("throughput"), lines("p90")],
    );
    figure(
        "AC-F14",
        "Size of the acknowledgment group",
        SETTING,
        "8 threads on 2 cores: a pass over more logs costs the same processor time as there, but the \
         threads also wait for a processor, which hides most of the effect.",
        vec![part("YCSB", YCSB), part("TPC-C", &tpcc), model],
        vec![claim(
            "YCSB: throughput of 8 against 1",
            10.0,
            "%",
            Ours::Change(of("YCSB", "8", "", "throughput"), of("YCSB", "1", "", "throughput")),
            Holds::AtLeast(-10.0),
            "the passes compete with the workers for two cores",
        )],
    )
}

fn stages() -> Figure {
    let stages: [Measure; 5] = [
        other("execution", "us", "/stages/execute_us", 1.0),
        other("insertion into the log", "us", "/stages/log_insert_us", 1.0),
        other("queuing", "us", "/stages/queuing_us", 1.0),
        other("flush", "us", "/stages/writing_us", 1.0),
        other("acknowledgment", "us", "/stages/acknowledge_us", 1.0),
    ];
    let stacked = Chart::Stacked {
        measures: &["execution", "insertion into the log", "queuing", "flush", "acknowledgment"],
        at: "2",
    };
    let part = over("", YCSB, two_threads(), six(), stages.to_vec(), vec![stacked]);
    figure(
        "AC-F5",
        "Stages of a commit, YCSB",
        SETTING,
        SCALED,
        vec![part],
        vec![
            claim(
                "execution in percent of queuing, Flush",
                0.001,
                "%",
                Ours::Percent(at("2", "Flush", "execution"), at("2", "Flush", "queuing")),
                Holds::Shown,
                "",
            ),
            direction(
                "queuing over flush, Flush",
                "x",
                Ours::Ratio(at("2", "Flush", "queuing"), at("2", "Flush", "flush")),
                Holds::AtLeast(1.0),
                "with two workers the queue in front of a flush stays short",
            ),
        ],
    )
}

fn scale() -> Figure {
    let threads = Axis::flag("threads", "--threads", "2 (4) 8 (16)");
    let part = over(
        "",
        YCSB,
        threads,
        four(),
        with_throughput(COMMIT_US, &[]),
        vec![lines("throughput"), log_lines("p90")],
    );
    let model = modelled(
        "AC-F12",
        ("threads", "1 2 4 8 16 32 64 96 128 192"),
        &["TradQueue", "FlushQueue", "Our4KB", "Our16KB"],
        vec![lines("throughput"), log_lines("p90")],
    );
    figure(
        "AC-F12",
        "Scalability, YCSB",
        "1 to 192 threads on 96 cores.",
        "2 to 16 threads on 2 cores: beyond 2 threads only sharing is seen, not scaling. A discrete-event model shows the \
         rest, with costs of steps that were measured or assumed here; its transactions execute for 16 us, so that \
         192 threads reach the published throughput.",
        vec![part, model],
        vec![
            claim(
                "model: throughput of Our16KB with 192 threads",
                11e6,
                "tx/s",
                Ours::Value(of(MODEL, "192", "Our16KB", "throughput")),
                Holds::Between(8e6, 14e6),
                "the model's execution of 16 us was chosen for another version of the engine",
            ),
            direction(
                "model: throughput of FlushQueue, 192 threads over 96",
                "x",
                Ours::Ratio(
                    of(MODEL, "192", "FlushQueue", "throughput"),
                    of(MODEL, "96", "FlushQueue", "throughput"),
                ),
                Holds::AtMost(1.2),
                "the flusher of the model is no bottleneck",
            ),
            direction(
                "throughput of Our16KB: 8 threads over 2",
                "x",
                Ours::Ratio(at("8", "Our16KB", "throughput"), at("2", "Our16KB", "throughput")),
                Holds::AtLeast(0.7),
                "eight threads wait for two cores",
            ),
        ],
    )
}

fn mixed() -> Figure {
    let command = "mixed --warehouses 2 --rows 500000 --memory-bytes 192m --compression none --commit async";
    let part = over(
        "",
        command,
        two_threads(),
        four(),
        with_throughput(COMMIT_US, &COSTS),
        vec![Chart::Bars { measure: "throughput", at: "2", log: false }, tail("2")],
    );
    figure(
        "AC-F15",
        "TPC-C and YCSB together, larger than memory",
        "48 threads each, data larger than the buffer pool of 32 GB.",
        "1 thread each on the real disk; data of about 600 MB with 192 MB of memory.",
        vec![part],
        vec![
            claim(
                "90th percentile: FlushQueue over Our4KB",
                136.8,
                "x",
                Ours::Ratio(at("2", "FlushQueue", "p90"), at("2", "Our4KB", "p90")),
                Holds::AtLeast(1.0),
                "with two workers the queue in front of a flush takes 0.1 to 0.2 ms with every variant; there it took seconds",
            ),
            claim(
                "90th percentile: TradQueue over Our4KB",
                13.2,
                "x",
                Ours::Ratio(at("2", "TradQueue", "p90"), at("2", "Our4KB", "p90")),
                Holds::AtLeast(1.0),
                "with two workers the queue in front of a flush takes 0.1 to 0.2 ms with every variant; there it took seconds",
            ),
        ],
    )
}

fn device_writes() -> Vec<Figure> {
    let kinds = || vec![Choice::new("plain", "").keyed("false"), Choice::new("durable", "").keyed("true")];
    let part = |axis, path| Part {
        seconds: (5.0, 20.0),
        ..over(
            "",
            "device --sweep",
            axis,
            kinds(),
            vec![other("mean", "us", path, 1.0)],
            vec![log_lines("mean")],
        )
    };
    let figure = |id, title, part, claims| {
        let ours = "The disk of this machine, with and without a flush of its volatile cache.";
        figure(id, title, "KIOXIA CM7-R, PCIe 5.", ours, vec![part], claims)
    };
    let sizes =
        "4096 4 KiB,16384 16 KiB,65536 64 KiB,262144 256 KiB,1048576 1 MiB,16777216 16 MiB,536870912 512 MiB";
    let size = |text: &str| text.split_once(' ').map(|(bytes, name)| Choice::new(name, "").keyed(bytes));
    let sizes = Axis { name: "bytes of a write", values: sizes.split(',').filter_map(size).collect() };
    let threads = ["1", "2", "4", "8", "16", "32", "64"].map(|count| Choice::new(count, "")).to_vec();
    let threads = Axis { name: "threads", values: threads };
    vec![
        figure(
            "AC-F3a",
            "Latency of random writes by size, one thread",
            part(sizes, "/writes[bytes={x}&writers=1&durable={v}]/mean_us"),
            vec![
                claim(
                    "64 KiB over 4 KiB, plain",
                    1.0,
                    "x",
                    Ours::Ratio(at("64 KiB", "plain", "mean"), at("4 KiB", "plain", "mean")),
                    Holds::AtMost(3.0),
                    "the time of a write of this disk grows with its size",
                ),
                claim(
                    "512 MiB, plain",
                    87_000.0,
                    "us",
                    Ours::Value(at("512 MiB", "plain", "mean")),
                    Holds::Shown,
                    "",
                ),
            ],
        ),
        figure(
            "AC-F3b",
            "Latency of random writes of 4 KiB by threads",
            part(threads, "/writes[bytes=4096&writers={x}&durable={v}]/mean_us"),
            vec![direction(
                "16 threads over 1, plain",
                "x",
                Ours::Ratio(at("16", "plain", "mean"), at("1", "plain", "mean")),
                Holds::AtMost(2.0),
                "this disk does some 120,000 writes a second at most, and 8 threads reach that",
            )],
        ),
    ]
}

fn stragglers() -> Figure {
    let protocol = "--preset pipelined --layout per-thread --logs 8 --dependency gsn --idle-logs";
    let variants = [
        ("an idle log holds back", "hold"),
        ("with barrier transactions", "barrier"),
        ("clocks raised by scans (ours)", "raise"),
    ];
    let part = over(
        "",
        YCSB,
        two_threads(),
        variants.map(|(name, idle)| variant(name, &[protocol, idle])).to_vec(),
        with_throughput(COMMIT_US, &[]),
        vec![log_p("mean"), Chart::Bars { measure: "throughput", at: "2", log: false }],
    );
    figure(
        "AC-F8",
        "Stragglers and barrier transactions",
        "A trace: one idle log holds back the minimum until a barrier transaction passes it.",
        "2 threads and 8 logs, 6 of them idle. Without a barrier a commit waits for at most 10 ms.",
        vec![part],
        vec![direction(
            "mean latency: idle logs hold back, over barrier transactions",
            "x",
            Ours::Ratio(at("2", variants[0].0, "mean"), at("2", variants[1].0, "mean")),
            Holds::AtLeast(2.0),
            "the queue in front of the flush takes longer than the wait for the idle logs",
        )],
    )
}

fn rules() -> Figure {
    let rules = ["csn", "dsn", "exact", "gsn", "gsn-rfa"];
    let protocol = "--preset pipelined --layout per-thread --logs {x} --writer flusher-per-log --dependency";
    let counts = [
        other("false waits", "% of transactions", "/coordination/false_waits_percent", 1.0),
        other("log", "bytes/tx", "/log_bytes_per_transaction", 1.0),
    ];
    let chart = |measure| Chart::Bars { measure, at: "8", log: false };
    let part = over(
        "",
        YCSB,
        Axis { name: "threads", values: vec![Choice::new("8", "--threads 8")] },
        rules.map(|rule| variant(rule, &[protocol, rule])).to_vec(),
        with_throughput(COMMIT_US, &counts),
        vec![chart("false waits"), chart("log")],
    );
    figure(
        "AC-T0",
        "Rules of dependency: what they cost, and how many waits are false",
        "Distributed DGCC, Taurus (800 bytes a record with 100 workers), GSN with RFA.",
        "8 threads on 2 cores. A record here carries its dependencies in a constant number of bytes under each rule.",
        vec![part],
        vec![direction(
            "false waits: exact rule",
            "%",
            Ours::Value(at("8", "exact", "false waits")),
            Holds::AtMost(0.0),
            "a wait of the exact rule was counted as false",
        )],
    )
}

fn on_disk(presets: &[&str]) -> Part {
    single(
        "ycsb --rows 200000 --threads 2 --commit async",
        presets.iter().map(|name| variant(name, &["--preset", name])).collect(),
        with_throughput(COMMIT_US, &[]),
        vec![bars("throughput"), log_bars("p90")],
    )
}

fn protocols() -> Figure {
    let presets =
        ["per-transaction", "group", "queued", "pipelined", "passive", "autonomous", "restricted", "auto"];
    figure(
        "AC-T1",
        "Protocols: throughput and latency",
        "Group commit, flush pipelining, epochs, persistent memory, autonomous commit; words, no numbers.",
        "2 threads on the real disk; each preset keeps what it is named after. All recover, and all work with data \
         larger than memory. Epochs do not exist here: the watermark of commit numbers takes their place.",
        vec![on_disk(&presets)],
        vec![direction(
            "throughput: pipelined over per-transaction",
            "x",
            Ours::Ratio(at("", "pipelined", "throughput"), at("", "per-transaction", "throughput")),
            Holds::AtLeast(1.0),
            "asynchronous commits of one thread share a write with either preset",
        )],
    )
}

fn systems() -> Figure {
    figure(
        "AC-F1",
        "Throughput and latency of systems",
        "WiredTiger, SQLite, RocksDB, LeanStore with group commit and autonomous commit, YCSB.",
        "Three protocols of this engine on the real disk. The program in `peers/` measures RocksDB, SQLite, LMDB, redb \
         and fjall beside them: `quench bench compare ycsb`. WiredTiger and LeanStore are not in the registries.",
        vec![on_disk(&["autonomous", "pipelined", "auto"])],
        vec![direction(
            "90th percentile: pipelined over auto",
            "x",
            Ours::Ratio(at("", "pipelined", "p90"), at("", "auto", "p90")),
            Holds::AtLeast(1.0),
            "auto writes as often as pipelined: writing every 50 us made its 90th percentile a fifth shorter, and cost \
             15 % of the throughput of a fast device",
        )],
    )
}

/// Returns the figures of the paper in its order.
pub(super) fn figures() -> Vec<Figure> {
    let drawing = "a drawing";
    let mut all =
        vec![systems(), absent("AC-F2", "States of a transaction, centralized and decentralized", drawing)];
    all.extend(device_writes());
    all.push(absent("AC-F4", "Queuing in group commit", drawing));
    all.push(stages());
    all.push(absent("AC-F6", "Group commit and autonomous commit", drawing));
    all.push(absent(
        "AC-F7",
        "An example of GSN and RFA",
        "a drawing; unit tests of the rule run the example",
    ));
    all.push(stragglers());
    all.extend([rules(), protocols()]);
    all.extend(closed_loop());
    all.extend(open_loop());
    all.extend([ablation(), scale(), flush_unit(), acknowledgment_group(), mixed()]);
    all
}
