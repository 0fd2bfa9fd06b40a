//! Distributed logging in byte-addressable memory, with passive group commit: VLDB 2014.

use super::measures::{
    COMMIT_US, MODEL, absent, at, claim, direction, figure, lines, modelled, of, other, over, single,
    with_throughput,
};
use crate::figures::spec::{Axis, Chart, Choice, Claim, Figure, Holds, Measure, Ours, Part};

const SETTING: &str = "4 sockets, 24 cores, 48 threads, 20 logs of 64 MB in memory, scale factor 48.";
const SCALED: &str = "1 socket, 2 cores, 1 to 4 threads, a mapped file as memory, small scale factors. With two cores the central log \
     is hardly contended, so its disadvantage is small, and its consolidation array hardly used.";

fn passive(name: &str, flags: &str) -> Choice {
    Choice::new(name, &format!("--preset passive --logs 2 {flags}"))
}

const DURABLE: &str = "--memory-cache durable";
const VOLATILE: &str = "--memory-cache volatile --memory-store non-temporal";
const BY_PAGE: &str = "--layout by-page";
const SLOW: &str = "--insertion-ns 1200";

fn aether() -> Choice {
    Choice::new("Aether", "--preset pipelined --append consolidated --device sim:memory-0us")
}

const UPDATE_LOCATION: &str = "tatp --subscribers 50000 --only update-location --commit async";
const BANK: &str = "tpcb --branches 48 --accounts 1000 --commit async";
const PAYMENT: &str = "tpcc --small --warehouses 48 --only payment --commit async";

const COUNTS: [Measure; 2] = [
    other("insertion into the log", "us", "/stages/log_insert_us", 1.0),
    other("log", "bytes/tx", "/log_bytes_per_transaction", 1.0),
];

fn measures() -> Vec<Measure> {
    with_throughput(COMMIT_US, &COUNTS)
}

fn parts(workloads: &[(&'static str, &str)], variants: &[Choice]) -> Vec<Part> {
    let part = |(name, command): &(&'static str, &str)| {
        over(
            name,
            command,
            Axis::flag("threads", "--threads", "(1) 2 (4)"),
            variants.to_vec(),
            measures(),
            vec![lines("throughput")],
        )
    };
    workloads.iter().map(part).collect()
}

fn times(
    text: &'static str,
    published: f64,
    part: &'static str,
    variants: (&'static str, &'static str),
) -> Claim {
    claim(
        text,
        published,
        "x",
        Ours::Ratio(of(part, "2", variants.0, "throughput"), of(part, "2", variants.1, "throughput")),
        Holds::AtLeast(0.95),
        "two threads do not contend for a central log",
    )
}

const WRITES: [(&str, &str); 3] =
    [("TATP Update Location", UPDATE_LOCATION), ("TPC-B", BANK), ("TPC-C Payment", PAYMENT)];

const SHARES: [Measure; 6] = [
    other("locks", "%", "/time_by_category/locks", 1.0),
    other("repeated attempts", "%", "/time_by_category/repeated", 1.0),
    other("log insertion", "%", "/time_by_category/log_insert", 1.0),
    other("rest of the commit", "%", "/time_by_category/log_wait", 1.0),
    other("other work", "%", "/time_by_category/other_work", 1.0),
    other("outside of transactions", "%", "/time_by_category/outside", 1.0),
];

/// The time of the workers by category, by their number.
fn breakdown(name: &'static str, command: &str, protocol: &Choice) -> Part {
    let threads = Axis::flag("threads", "--threads", "1 2 (4)").values.into_iter();
    let with = |threads: Choice| Choice { flags: format!("{} {}", threads.flags, protocol.flags), ..threads };
    let names = &[
        "locks",
        "repeated attempts",
        "log insertion",
        "rest of the commit",
        "other work",
        "outside of transactions",
    ];
    let stacked = Chart::Stacked { measures: names, at: "" };
    Part { name, ..single(command, threads.map(with).collect(), SHARES.to_vec(), vec![stacked]) }
}

fn share(text: &'static str, part: &'static str) -> Claim {
    direction(text, "%", Ours::Value(of(part, "", "2", "log insertion")), Holds::Shown, "")
}

const STAGES_SCALED: &str = "1 to 4 threads on 2 cores. Shares of the workers' time by the stages of one transaction in sixteen. Work on the log and waits for its latch are one category; latches of pages are in other work.";

fn central_stages() -> Figure {
    figure(
        "NVM-F1",
        "Where time goes, TATP Update Location, central log",
        SETTING,
        STAGES_SCALED,
        vec![breakdown("", UPDATE_LOCATION, &aether())],
        vec![share("insertion into the log, share of the time, 2 threads", "")],
    )
}

fn scalability() -> Figure {
    let by_cache = [
        aether(),
        passive("TX-D", DURABLE),
        passive("TX-D, 1.2 us", &format!("{DURABLE} {SLOW}")),
        passive("PG-D", &format!("{DURABLE} {BY_PAGE}")),
        passive("PG-D, 1.2 us", &format!("{DURABLE} {BY_PAGE} {SLOW}")),
    ];
    let model = modelled(
        "NVM-F4",
        ("threads", "1 4 8 16 24 32 40 48"),
        &["Aether: one log", "TX-D ideal", "TX-D 1.2 us"],
        vec![lines("throughput")],
    );
    let mut parts = parts(&WRITES, &by_cache);
    parts.push(model);
    figure(
        "NVM-F4",
        "Scalability, transactions that write",
        SETTING,
        SCALED,
        parts,
        vec![
            claim(
                "model, 48 threads: TX-D over Aether",
                1.6,
                "x",
                Ours::Ratio(
                    of(MODEL, "48", "TX-D ideal", "throughput"),
                    of(MODEL, "48", "Aether: one log", "throughput"),
                ),
                Holds::AtLeast(1.2),
                "the model's latch of the central log is held for too short a time",
            ),
            times("Update Location: TX-D over Aether", 1.6, "TATP Update Location", ("TX-D", "Aether")),
            times("TPC-B: TX-D over Aether", 1.6, "TPC-B", ("TX-D", "Aether")),
            times("Payment: TX-D over Aether", 1.6, "TPC-C Payment", ("TX-D", "Aether")),
            claim(
                "Update Location: what 1.2 us for each insertion cost",
                -15.0,
                "%",
                Ours::Change(
                    of("TATP Update Location", "2", "TX-D, 1.2 us", "throughput"),
                    of("TATP Update Location", "2", "TX-D", "throughput"),
                ),
                Holds::AtLeast(-35.0),
                "our transactions are shorter than there, so the same delay is a larger share",
            ),
        ],
    )
}

fn stages() -> Figure {
    let durable = || passive("TX-D", DURABLE);
    figure(
        "NVM-F5",
        "Where time goes, transactions that write, TX-D",
        SETTING,
        STAGES_SCALED,
        vec![
            breakdown("TATP Update Location", UPDATE_LOCATION, &durable()),
            breakdown("TPC-B", BANK, &durable()),
            breakdown("TPC-C Payment", PAYMENT, &durable()),
        ],
        vec![share("Payment: insertion into the log, share of the time", "TPC-C Payment")],
    )
}

fn mixes() -> Figure {
    let mixes = [
        aether(),
        passive("TX-D", DURABLE),
        passive("PG-D", &format!("{DURABLE} {BY_PAGE}")),
        passive("TX-V", VOLATILE),
        passive("PG-V", &format!("{VOLATILE} {BY_PAGE}")),
    ];
    figure(
        "NVM-F6",
        "Full mixes",
        SETTING,
        SCALED,
        parts(
            &[
                ("TATP", "tatp --subscribers 50000 --commit async"),
                ("TPC-C", "tpcc --small --warehouses 48 --commit async"),
            ],
            &mixes,
        ),
        vec![
            claim(
                "TATP: TX-V over TX-D",
                0.96,
                "x",
                Ours::Ratio(of("TATP", "2", "TX-V", "throughput"), of("TATP", "2", "TX-D", "throughput")),
                Holds::Between(0.85, 1.15),
                "fences of a mapped file cost more here",
            ),
            times("TPC-C: TX-D over Aether", 1.0, "TPC-C", ("TX-D", "Aether")),
        ],
    )
}

fn volatile_stages() -> Figure {
    figure(
        "NVM-F7",
        "Where time goes, TPC-C, TX-V",
        SETTING,
        STAGES_SCALED,
        vec![breakdown("", "tpcc --small --warehouses 48 --commit async", &passive("TX-V", VOLATILE))],
        vec![share("insertion into the log, share of the time", "")],
    )
}

fn fences() -> Figure {
    let volatile = [
        passive("TX-D", DURABLE),
        passive("TX-V", VOLATILE),
        passive("TX-V, 1.2 us", &format!("{VOLATILE} {SLOW}")),
        passive("PG-V", &format!("{VOLATILE} {BY_PAGE}")),
        passive("PG-V, 1.2 us", &format!("{VOLATILE} {BY_PAGE} {SLOW}")),
    ];
    let model = modelled(
        "NVM-F8",
        ("threads", "1 4 8 16 24 32 40 48"),
        &["TX-D ideal", "TX-V ideal", "TX-V 1.2 us"],
        vec![lines("throughput")],
    );
    let mut parts = parts(&WRITES, &volatile);
    parts.push(model);
    figure(
        "NVM-F8",
        "Passive group commit, transactions that write",
        SETTING,
        SCALED,
        parts,
        vec![
            claim(
                "Update Location: TX-V against TX-D",
                -10.0,
                "%",
                Ours::Change(
                    of("TATP Update Location", "2", "TX-V", "throughput"),
                    of("TATP Update Location", "2", "TX-D", "throughput"),
                ),
                Holds::AtLeast(-10.0),
                "a transaction is shorter here, so the fence is a larger share",
            ),
            claim(
                "Payment: TX-V against TX-D",
                -10.0,
                "%",
                Ours::Change(
                    of("TPC-C Payment", "2", "TX-V", "throughput"),
                    of("TPC-C Payment", "2", "TX-D", "throughput"),
                ),
                Holds::AtLeast(-10.0),
                "a transaction is shorter here, so the fence is a larger share",
            ),
        ],
    )
}

fn signals() -> Figure {
    let counts = [other("drained logs", "per commit", "/coordination/drained_per_transaction", 1.0)];
    let part = over(
        "",
        UPDATE_LOCATION,
        Axis::flag("threads", "--threads", "1 2 (4)"),
        vec![passive("TX-V", VOLATILE)],
        with_throughput(COMMIT_US, &counts),
        vec![lines("throughput")],
    );
    figure(
        "NVM-X2",
        "Signals to threads that stay dirty",
        SETTING,
        "1 to 4 threads on 2 cores. A barrier in all threads of the process does what a signal does there.",
        vec![part],
        vec![claim(
            "barriers per commit, 2 threads",
            5e-5,
            "per commit",
            Ours::Value(at("2", "TX-V", "drained logs")),
            Holds::AtMost(5e-5),
            "threads lose the processor between a record and its fence more often than there",
        )],
    )
}

/// Returns the figures of the paper in its order.
pub(super) fn figures() -> Vec<Figure> {
    let one = "with one socket there is nothing to place";
    vec![
        central_stages(),
        absent("NVM-F2", "Logs by page and by transaction on several sockets", one),
        absent(
            "NVM-T1",
            "Properties of logs by page and by transaction",
            "words; the guide compares the layouts, and NVM-F4 measures both",
        ),
        absent("NVM-F3", "An example of passive group commit", "a trace; unit tests of the rule run it"),
        scalability(),
        stages(),
        mixes(),
        volatile_stages(),
        fences(),
        signals(),
        absent(
            "NVM-X1",
            "Requests that leave a core",
            "a counter of that processor, which this machine has not",
        ),
        absent("NVM-X3", "Lines of code changed", "a property of that prototype"),
    ]
}
