//! Tables of this engine: which preset for which load and device. No paper has them.

use super::measures::{COMMIT_US, at, bars_of, direction, figure, log_lines, over, with_throughput};
use crate::figures::spec::{Axis, Choice, Figure, Holds, Ours, Part};

/// Presets whose commits survive a power cut, each as it is named.
const PRESETS: [&str; 5] = ["auto", "group", "pipelined", "autonomous", "restricted"];

/// Threads, and how they commit; `--quick` measures those at the beginning.
const LOADS: [(&str, &str, bool); 6] = [
    ("2 async", "--threads 2 --commit async", true),
    ("16 blocking", "--threads 16", true),
    ("1 async", "--threads 1 --commit async", false),
    ("64 async", "--threads 64 --commit async", false),
    ("1 blocking", "--threads 1", false),
    ("64 blocking", "--threads 64", false),
];

fn table(id: &'static str, title: &'static str, device: &str, here: &'static str) -> Figure {
    let loads = LOADS.map(|(name, flags, quick)| Choice { quick, ..Choice::new(name, flags) });
    let presets = PRESETS.map(|name| Choice::new(name, &format!("--preset {name}")));
    let part = Part {
        seconds: (0.5, 1.0),
        ..over(
            "",
            &format!("put {device}"),
            Axis { name: "threads", values: loads.to_vec() },
            presets.to_vec(),
            with_throughput(COMMIT_US, &[]),
            vec![log_lines("throughput"), log_lines("p99"), bars_of("throughput", "2 async")],
        )
    };
    figure(
        id,
        title,
        "",
        here,
        vec![part],
        vec![direction(
            "throughput of auto, over the best other preset, where it is furthest behind",
            "x",
            Ours::LeastAgainstOthers(at("", "auto", "throughput")),
            Holds::AtLeast(0.95),
            "with 16 blocking threads the background thread of pipelined writes sooner than a leader; two logs, or \
             fewer writes, save processor time of asynchronous threads",
        )],
    )
}

/// Returns the tables.
pub(super) fn figures() -> Vec<Figure> {
    vec![
        table("Q-T1", "Presets by load, the disk of this machine", "", "Small rows are inserted; 2 cores."),
        table(
            "Q-T2",
            "Presets by load, a fast device",
            "--device sim:nvme-enterprise",
            "Small rows are inserted; 2 cores; a modelled device with a durable cache.",
        ),
        table(
            "Q-T3",
            "Presets by load, a slow device",
            "--device sim:custom:write=500us",
            "Small rows are inserted; 2 cores; a modelled device that does one write of 500 us at a time.",
        ),
    ]
}
