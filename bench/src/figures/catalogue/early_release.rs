//! Early lock release, with Shore-MT.

use super::measures::{
    MODEL, absent, at, claim, direction, figure, lines, log_lines, modelled, of, other, over,
};
use crate::figures::spec::{Axis, Chart, Choice, Claim, Figure, Holds, Measure, Ours, Part};

const SETTING: &str =
    "Sun T5220: 64 hardware contexts, database in memory, log on a disk of 170 accesses a second.";
const SCALED: &str = "2 cores, a model of the disk (sim:disk-170iops) under the log, a hundredth of the rows of a warehouse. \
     Threads wait for the disk most of the time, so their number may be as there.";

const LOG: &str = "--preset group --locking pessimistic --log-device sim:disk-170iops --checkpoint none";

const BASELINE: &str = "baseline";
const EARLY: &str = "early release";
const AGNOSTIC: &str = "log-agnostic";

fn release(name: &str, when: &str) -> Choice {
    Choice::new(name, &format!("--lock-release {when}"))
}

fn two() -> Vec<Choice> {
    vec![release(BASELINE, "commit"), release(EARLY, "pre-commit")]
}

fn three() -> Vec<Choice> {
    let mut all = two();
    all.push(release(AGNOSTIC, "unsafe"));
    all
}

const WAITS: [Measure; 7] = [
    other("flush wait, mean", "ms", "/contention/log_wait_us/mean", 1e-3),
    other("flush wait, standard deviation", "ms", "/contention/log_wait_us/stdev", 1e-3),
    other("p50", "ms", "/contention/log_wait_us/p50", 1e-3),
    other("p90", "ms", "/contention/log_wait_us/p90", 1e-3),
    other("p99", "ms", "/contention/log_wait_us/p99", 1e-3),
    other("p99.9", "ms", "/contention/log_wait_us/p999", 1e-3),
    other("p99.99", "ms", "/contention/log_wait_us/p9999", 1e-3),
];

fn measures() -> Vec<Measure> {
    let mut all = vec![
        other("throughput", "tx/s", "/throughput_tps", 1.0),
        other("duration, mean", "ms", "/write_latency_us/mean", 1e-3),
        other("time in lock waits", "%", "/contention/locks/percent_of_time", 1.0),
    ];
    all.extend(WAITS);
    all
}

fn tpcc(name: &'static str, warehouses: u32, threads: &str, more: &str, variants: Vec<Choice>) -> Part {
    over(
        name,
        &format!("tpcc --small --warehouses {warehouses} {more} {LOG}"),
        Axis::flag("threads", "--threads", threads),
        variants,
        measures(),
        vec![lines("throughput")],
    )
}

/// Returns the speedup of early release.
fn speedup(part: &'static str, threads: &'static str) -> Ours {
    Ours::Ratio(of(part, threads, EARLY, "throughput"), of(part, threads, BASELINE, "throughput"))
}

const DISTRICTS: &str = "the few warehouses' districts and the two cores bound both";

/// Threads of the model.
const MODELLED: &str = "10 25 50 100 150 200 400";
const MODEL_SCALED: &str = "2 cores, a model of the disk (sim:disk-170iops) under the log, a hundredth of the rows of a warehouse. \
     A discrete-event model shows 64 processors and up to 400 threads; its transactions have one hot row each, and \
     execute for times that are assumed.";
const ASSUMED: &str = "the times of execution are assumed";
/// Series of the model.
const MODEL_BASELINE: &str = "baseline";
const MODEL_EARLY: &str = "early lock release";

/// Returns a part of the model over threads.
fn modelled_by_threads(figure: &str, variants: &[&str]) -> Part {
    modelled(figure, ("threads", MODELLED), variants, vec![log_lines("throughput")])
}

/// Returns the ratio of two series of the model.
fn modelled_ratio(threads: &'static str, one: &'static str, other: &'static str) -> Ours {
    Ours::Ratio(of(MODEL, threads, one, "throughput"), of(MODEL, threads, other, "throughput"))
}

fn gains(text: &'static str, published: f64, part: &'static str, threads: &'static str, least: f64) -> Claim {
    claim(text, published, "x", speedup(part, threads), Holds::AtLeast(least), DISTRICTS)
}

/// The mix over 100 warehouses.
fn whole() -> Part {
    tpcc("", 100, "(10) 50 150", "", three())
}

fn with(charts: Vec<Chart>) -> Part {
    Part { charts, ..whole() }
}

/// One type of transaction over 100 warehouses.
fn alone(kind: &str) -> Part {
    tpcc("", 100, "50 (200)", &format!("--only {kind}"), two())
}

fn waits() -> Vec<Figure> {
    vec![
        figure(
            "ELR-F2",
            "Baseline and log-agnostic, TPC-C with 100 warehouses",
            SETTING,
            SCALED,
            vec![whole()],
            vec![claim(
                "log-agnostic over baseline, 50 threads",
                7.0,
                "x",
                Ours::Ratio(at("50", AGNOSTIC, "throughput"), at("50", BASELINE, "throughput")),
                Holds::AtLeast(2.0),
                "two cores bound both",
            )],
        ),
        figure(
            "ELR-F3",
            "Mean duration of a transaction, 100 warehouses",
            SETTING,
            SCALED,
            vec![with(vec![lines("duration, mean")])],
            vec![direction(
                "baseline: 150 threads over 50",
                "x",
                Ours::Ratio(at("150", BASELINE, "duration, mean"), at("50", BASELINE, "duration, mean")),
                Holds::AtLeast(1.0),
                "more threads share each write of the log",
            )],
        ),
        figure(
            "ELR-F4",
            "Wait for the flush, and its standard deviation",
            SETTING,
            SCALED,
            vec![with(vec![lines("flush wait, mean"), lines("flush wait, standard deviation")])],
            vec![claim(
                "baseline, 50 threads: standard deviation in percent of the mean",
                100.0,
                "%",
                Ours::Percent(
                    at("50", BASELINE, "flush wait, standard deviation"),
                    at("50", BASELINE, "flush wait, mean"),
                ),
                Holds::AtLeast(50.0),
                "the modelled disk takes the same time for each write within 20 %, and a committer waits for at most two",
            )],
        ),
        figure(
            "ELR-F5",
            "Distribution of flush waits, 50 threads",
            SETTING,
            "The same; the distribution is drawn by percentiles.",
            vec![with(vec![Chart::Across {
                measures: &["p50", "p90", "p99", "p99.9", "p99.99"],
                at: "50",
                log: false,
            }])],
            vec![claim(
                "median wait, baseline",
                8.0,
                "ms",
                Ours::Value(at("50", BASELINE, "p50")),
                Holds::Shown,
                "",
            )],
        ),
    ]
}

fn by_type() -> Vec<Figure> {
    let named = |name, part: Part| Part { name, ..part };
    vec![
        figure(
            "ELR-F11",
            "Speedup, TPC-C mix, 100 warehouses",
            SETTING,
            SCALED,
            vec![whole()],
            vec![gains("speedup at 150 threads", 2.0, "", "150", 1.1)],
        ),
        figure(
            "ELR-F12",
            "Speedup of each type of transaction alone, 100 warehouses",
            SETTING,
            SCALED,
            vec![
                named("New Order", alone("new-order")),
                named("Payment", alone("payment")),
                named("Delivery", alone("delivery")),
                named("Order Status", alone("order-status")),
                named("Stock Level", alone("stock-level")),
            ],
            vec![
                direction(
                    "Order Status, 50 threads",
                    "x",
                    speedup("Order Status", "50"),
                    Holds::Between(0.7, 1.4),
                    "read-only transactions hold no exclusive lock, so this is noise",
                ),
                direction(
                    "Payment, 50 threads",
                    "x",
                    speedup("Payment", "50"),
                    Holds::AtLeast(1.0),
                    DISTRICTS,
                ),
            ],
        ),
    ]
}

fn mix_of_many() -> Figure {
    let model = modelled_by_threads("ELR-F13", &[MODEL_BASELINE, MODEL_EARLY]);
    figure(
        "ELR-F13",
        "TPC-C mix, 100 warehouses",
        SETTING,
        MODEL_SCALED,
        vec![Part { variants: two(), ..whole() }, model],
        vec![
            direction("speedup at 150 threads", "x", speedup("", "150"), Holds::AtLeast(1.1), DISTRICTS),
            direction(
                "model, 64 processors: speedup at 400 threads",
                "x",
                modelled_ratio("400", MODEL_EARLY, MODEL_BASELINE),
                Holds::AtLeast(1.1),
                ASSUMED,
            ),
            direction(
                "model, 64 processors: baseline, 400 threads over 100",
                "x",
                Ours::Ratio(
                    of(MODEL, "400", MODEL_BASELINE, "throughput"),
                    of(MODEL, "100", MODEL_BASELINE, "throughput"),
                ),
                Holds::Between(0.5, 2.0),
                ASSUMED,
            ),
        ],
    )
}

fn types() -> Vec<Figure> {
    let one = |id, title, kind, least| {
        let otherwise =
            "50 threads on 100 warehouses wait for no lock; with 200 threads Delivery gains a quarter";
        let claim =
            direction("speedup at 50 threads", "x", speedup("", "50"), Holds::AtLeast(least), otherwise);
        figure(id, title, SETTING, SCALED, vec![alone(kind)], vec![claim])
    };
    vec![
        mix_of_many(),
        one("ELR-F14", "New Order, 100 warehouses", "new-order", 1.0),
        one("ELR-F15", "Payment, 100 warehouses", "payment", 1.0),
        one("ELR-F16", "Delivery, 100 warehouses", "delivery", 1.1),
    ]
}

/// Over 10 warehouses.
fn few() -> Vec<Figure> {
    let of_kind = |name, more: &str| tpcc(name, 10, "10 60 (100)", more, two());
    let model = modelled(
        "ELR-F9",
        ("threads per warehouse", "1 2 3.5 5 6.3 10"),
        &["mix, baseline", "mix, early lock release"],
        vec![lines("throughput")],
    );
    vec![
        figure(
            "ELR-F9",
            "TPC-C mix, 10 warehouses",
            SETTING,
            MODEL_SCALED,
            vec![of_kind("", ""), model],
            vec![
                gains("early release over baseline, 60 threads", 1.3, "", "60", 1.1),
                claim(
                    "model, 64 processors, 63 threads: early release over baseline",
                    1.3,
                    "x",
                    modelled_ratio("6.3", "mix, early lock release", "mix, baseline"),
                    Holds::AtLeast(1.1),
                    ASSUMED,
                ),
            ],
        ),
        figure(
            "ELR-F10",
            "Speedup, 10 warehouses",
            SETTING,
            SCALED,
            vec![
                of_kind("mix", ""),
                of_kind("New Order", "--only new-order"),
                of_kind("Payment", "--only payment"),
                of_kind("Delivery", "--only delivery"),
            ],
            vec![
                gains("mix, 60 threads", 1.31, "mix", "60", 1.1),
                gains("Payment, 60 threads", 2.0, "Payment", "60", 1.1),
                gains("Delivery, 60 threads", 3.0, "Delivery", "60", 1.1),
            ],
        ),
    ]
}

fn tpcb(variants: Vec<Choice>) -> Part {
    over(
        "",
        &format!("tpcb --branches 1000 --accounts 100 --branch-update first {LOG}"),
        Axis::flag("threads", "--threads", "(8) 64"),
        variants,
        measures(),
        vec![log_lines("throughput")],
    )
}

/// TPC-B, each way of release by skew.
fn skews() -> [Figure; 2] {
    let skews = ["0.5", "0.4", "0.35", "0.2"];
    let by_skew = |variant: Choice| {
        let choice = |skew| Choice::new(&format!("h = {skew}"), &format!("{} --skew {skew}", variant.flags));
        tpcb(skews.map(choice).to_vec())
    };
    let model = |figure| modelled_by_threads(figure, &["h = 0.5", "h = 0.4", "h = 0.35", "h = 0.2"]);
    [
        figure(
            "ELR-F17",
            "TPC-B, baseline by skew",
            SETTING,
            MODEL_SCALED,
            vec![by_skew(release(BASELINE, "commit")), model("ELR-F17")],
            vec![
                direction(
                    "64 threads: uniform over h = 0.2",
                    "x",
                    Ours::Ratio(at("64", "h = 0.5", "throughput"), at("64", "h = 0.2", "throughput")),
                    Holds::AtLeast(2.0),
                    "the hottest branch is not the bottleneck",
                ),
                direction(
                    "model, 64 processors, 100 threads: uniform over h = 0.2",
                    "x",
                    modelled_ratio("100", "h = 0.5", "h = 0.2"),
                    Holds::AtLeast(2.0),
                    ASSUMED,
                ),
            ],
        ),
        figure(
            "ELR-F22",
            "TPC-B, early release by skew",
            SETTING,
            MODEL_SCALED,
            vec![by_skew(release(EARLY, "pre-commit")), model("ELR-F22")],
            vec![
                claim(
                    "64 threads: uniform over h = 0.2",
                    1.0,
                    "x",
                    Ours::Ratio(at("64", "h = 0.5", "throughput"), at("64", "h = 0.2", "throughput")),
                    Holds::Between(0.5, 2.0),
                    "the hottest branch is locked while its thread waits for one of two cores",
                ),
                claim(
                    "model, 64 processors, 100 threads: uniform over h = 0.2",
                    1.0,
                    "x",
                    modelled_ratio("100", "h = 0.5", "h = 0.2"),
                    Holds::Between(0.5, 2.0),
                    "the hottest branch is locked for half of the assumed 2 ms",
                ),
            ],
        ),
    ]
}

/// TPC-B by skew.
fn bank() -> Vec<Figure> {
    let one = |id, title, skew: &str, text, published, least| {
        let with = |choice: Choice| Choice { flags: format!("{} --skew {skew}", choice.flags), ..choice };
        let part = tpcb(two().into_iter().map(with).collect());
        figure(id, title, SETTING, SCALED, vec![part], vec![gains(text, published, "", "64", least)])
    };
    let [baseline, early] = skews();
    vec![
        baseline,
        one("ELR-F18", "TPC-B, h = 0.5", "0.5", "speedup at 64 threads", 2.0, 1.0),
        one("ELR-F19", "TPC-B, h = 0.4", "0.4", "speedup at 64 threads", 2.0, 1.0),
        one("ELR-F20", "TPC-B, h = 0.35", "0.35", "speedup at 64 threads", 4.0, 1.5),
        one("ELR-F21", "TPC-B, h = 0.2", "0.2", "speedup at 64 threads", 8.0, 2.0),
        early,
    ]
}

/// Returns the figures of the paper in its order.
pub(super) fn figures() -> Vec<Figure> {
    let mut all = vec![absent("ELR-F1", "Life of a transaction", "a drawing; AC-F5 measures the stages")];
    all.extend(waits());
    for id in ["ELR-F6", "ELR-F7", "ELR-F8"] {
        all.push(absent(id, "Order of commit request and commit", "a drawing"));
    }
    all.push(absent("ELR-T1", "Experimental setup", "a list; it is stated with each figure"));
    all.extend(few());
    all.extend(by_type());
    all.extend(types());
    all.extend(bank());
    all
}
