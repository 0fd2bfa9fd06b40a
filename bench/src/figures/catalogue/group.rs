//! Group commit with a leader, a queue, and the knobs of well-known databases.

use super::measures::{
    COMMIT_US, MODEL, at, bars, claim, direction, figure, lines, log_bars, log_lines, modelled, of, other,
    over, single, with_throughput,
};
use crate::figures::spec::{Axis, Choice, Figure, Holds, Measure, Ours};

const SETTING: &str = "One consumer NVMe drive of 2025, whose flush takes about 120 us.";
const DISK: &str = "The disk of this machine, 2 cores; keys are inserted, 8 bytes each.";

/// Puts of small rows that wait for their commit.
const PUT: &str = "put --value-bytes 8";
const GROUP: &str = "--preset group --await-cohort false --siblings 0";

const COMMITS: [Measure; 1] = [other("commits per write", "commits", "/commits_per_write", 1.0)];

fn measures() -> Vec<Measure> {
    with_throughput(COMMIT_US, &COMMITS)
}

fn ceilings() -> Figure {
    let devices = ["20us", "100us", "200us", "8ms"];
    let devices = Axis {
        name: "time of a flush",
        values: devices
            .map(|time| Choice::new(time, &format!("--device sim:custom:write={time},slots=1")))
            .to_vec(),
    };
    let part = over(
        "",
        &format!("{PUT} --threads 1 --preset per-transaction"),
        devices,
        vec![Choice::new("", "")],
        measures(),
        vec![log_lines("throughput")],
    );
    let ceiling = |text, x, published| {
        claim(
            text,
            published,
            "tx/s",
            Ours::Value(at(x, "", "throughput")),
            Holds::Between(published * 0.3, published * 1.1),
            "the model's waits end late: a thread that sleeps wakes tens of microseconds after its time",
        )
    };
    figure(
        "GC-T1",
        "Ceiling of one flush for each commit: 1/f",
        "Arithmetic.",
        "Modelled devices of these times, one thread. The drawn numbers include the transaction itself.",
        vec![part],
        vec![
            ceiling("f = 20 us", "20us", 50_000.0),
            ceiling("f = 100 us", "100us", 10_000.0),
            ceiling("f = 200 us", "200us", 5_000.0),
            ceiling("f = 8 ms", "8ms", 125.0),
        ],
    )
}

fn offered() -> Figure {
    let command = format!(
        "{PUT} --threads 2 --commit async {GROUP} --window-us 200 --device sim:custom:write=500us,slots=1"
    );
    let mut all = vec![
        other("throughput", "tx/s", "/throughput_tps", 1.0),
        other("mean", "us", "/commit_latency_us/mean", 1.0),
        other("model: mean", "us", "/group_model/latency_us", 1.0),
        other("model: commits per write", "commits", "/group_model/batch", 1.0),
    ];
    all.extend(COMMITS);
    let part = over(
        "",
        &command,
        Axis::flag("commits offered per second", "--rate", "(100) 1000 10000 (50000) 200000"),
        vec![Choice::new("", "")],
        all,
        vec![log_lines("commits per write"), log_lines("mean")],
    );
    figure(
        "GC-T2",
        "Offered load: commits of a group, throughput, latency",
        "f = 500 us, w = 200 us; arithmetic.",
        "A modelled device of 500 us; 2 threads.",
        vec![part],
        vec![
            claim(
                "commits per write at 10,000/s",
                7.0,
                "commits",
                Ours::Value(at("10000", "", "commits per write")),
                Holds::Between(3.5, 14.0),
                "the leader's window begins when a thread waits, not at the first arrival",
            ),
            claim(
                "latency at 10,000/s",
                600.0,
                "us",
                Ours::Value(at("10000", "", "mean")),
                Holds::Between(300.0, 1_500.0),
                "an asynchronous commit is written when a thread waits for it or the flusher wakes",
            ),
        ],
    )
}

fn windows() -> Figure {
    let variants = ["0", "100", "500"]
        .map(|window| Choice::new(&format!("window {window} us"), &format!("{GROUP} --window-us {window}")));
    let part = over(
        "",
        PUT,
        Axis::flag("threads", "--threads", "1 4 (16) 64"),
        variants.to_vec(),
        measures(),
        vec![log_lines("throughput"), log_lines("mean")],
    );
    let ratio = |threads| {
        Ours::Ratio(at(threads, "window 100 us", "throughput"), at(threads, "window 0 us", "throughput"))
    };
    let model = modelled(
        "GC-T3",
        ("threads", "1 4 16 64 256"),
        &["window 0 us", "window 100 us", "window 500 us"],
        vec![log_lines("throughput"), log_lines("mean")],
    );
    let modelled_ratio = |threads| {
        let at = |window| of(MODEL, threads, window, "throughput");
        Ours::Ratio(at("window 100 us"), at("window 0 us"))
    };
    figure(
        "GC-T3",
        "Threads and the leader's window",
        SETTING,
        DISK,
        vec![part, model],
        vec![
            claim(
                "model, a core for each thread: 64 threads, window of 100 us over none",
                2.5,
                "x",
                modelled_ratio("64"),
                Holds::AtLeast(1.0),
                "commits that arrive during a write already fill the next one, so a window only adds to it",
            ),
            claim(
                "1 thread: window of 100 us over none",
                0.5,
                "x",
                ratio("1"),
                Holds::AtMost(0.9),
                "the leader sees that no other transaction is in progress, and waits for none",
            ),
            claim(
                "64 threads: window of 100 us over none",
                2.5,
                "x",
                ratio("64"),
                Holds::AtLeast(1.0),
                "without a window the commits that arrive during a write already fill the next one: two cores \
                 produce no more",
            ),
            claim(
                "64 threads, 100 us: throughput",
                240_000.0,
                "tx/s",
                Ours::Value(at("64", "window 100 us", "throughput")),
                Holds::Shown,
                "",
            ),
        ],
    )
}

fn coalescing() -> Figure {
    let coalescing = single(
        &format!("{PUT} --threads 6 --device sim:custom:write=500us,slots=1"),
        vec![Choice::new("one by one", "--preset per-transaction"), Choice::new("group", "--preset group")],
        measures(),
        vec![bars("throughput"), bars("commits per write")],
    );
    figure(
        "GC-F1",
        "Commits that share a write",
        "Six commits in 500 us: 12,000 a second instead of 2,000.",
        "A modelled device of 500 us a write, one at a time; six threads.",
        vec![coalescing],
        vec![claim(
            "group over one write for each commit",
            6.0,
            "x",
            Ours::Ratio(at("", "group", "throughput"), at("", "one by one", "throughput")),
            Holds::AtLeast(3.0),
            "the model's waits end late",
        )],
    )
}

fn knobs() -> Figure {
    let knobs = single(
        &format!("{PUT} --threads 16"),
        vec![
            Choice::new(
                "PostgreSQL: defaults",
                "--preset group --window-us 0 --siblings 5 --await-cohort false",
            ),
            Choice::new(
                "PostgreSQL: commit_delay = 100",
                "--preset group --window-us 100 --siblings 5 --await-cohort false",
            ),
            Choice::new("PostgreSQL: synchronous_commit = off", "--preset group --level bounded"),
            Choice::new(
                "MySQL: sync delay 100, no-delay count 8",
                "--preset group --window-us 100 --siblings 0 --gather-max 8 --await-cohort false",
            ),
            Choice::new("MySQL: flush log at commit = 0", "--preset group --level lazy"),
        ],
        measures(),
        vec![log_bars("throughput")],
    );
    figure(
        "GC-T4",
        "Knobs of PostgreSQL and MySQL",
        "commit_delay, commit_siblings, synchronous_commit; innodb_flush_log_at_trx_commit, binlog delay and no-delay count.",
        "Each knob's counterpart here, 16 threads on this disk. A count of followers ends a leader's wait; it does not \
         start a write by itself.",
        vec![knobs],
        vec![direction(
            "synchronous_commit off over on",
            "x",
            Ours::Ratio(
                at("", "PostgreSQL: synchronous_commit = off", "throughput"),
                at("", "PostgreSQL: defaults", "throughput"),
            ),
            Holds::AtLeast(1.0),
            "two cores bound both",
        )],
    )
}

fn per_core() -> Figure {
    let cores = over(
        "",
        "put --value-bytes 8 --commit async --preset autonomous",
        Axis::flag("threads", "--threads", "1 2"),
        vec![Choice::new("", "")],
        measures(),
        vec![lines("throughput")],
    );
    figure(
        "GC-X1",
        "Commits per core",
        "ScyllaDB: 100,000 a core, 1.6 M with 16 cores.",
        "1 and 2 threads on 2 cores, on this disk.",
        vec![cores],
        vec![claim(
            "commits per second of one thread",
            100_000.0,
            "tx/s",
            Ours::Value(at("1", "", "throughput")),
            Holds::AtLeast(50_000.0),
            "the writes of this disk take most of a core",
        )],
    )
}

fn loop_of_flushes() -> Figure {
    let postgres = single(
        PUT,
        vec![
            Choice::new("a flush for each commit, one thread", "--threads 1 --preset per-transaction"),
            Choice::new("group, 16 threads", "--threads 16 --preset group"),
        ],
        measures(),
        vec![bars("throughput")],
    );
    figure(
        "GC-X2",
        "Group commit against a loop of flushes",
        "PostgreSQL: 30,000 commits against 8,000 flushes a second.",
        "16 threads on 2 cores, on this disk.",
        vec![postgres],
        vec![claim(
            "group over one flush for each commit",
            3.75,
            "x",
            Ours::Ratio(
                at("", "group, 16 threads", "throughput"),
                at("", "a flush for each commit, one thread", "throughput"),
            ),
            Holds::AtLeast(2.0),
            "two cores bound the group",
        )],
    )
}

/// Returns the figures of the chapter in its order.
pub(super) fn figures() -> Vec<Figure> {
    vec![ceilings(), coalescing(), offered(), windows(), knobs(), per_core(), loop_of_flushes()]
}
