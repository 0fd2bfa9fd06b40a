//! `bench --help`: the usual options on one page, all options of one workload on a page each, and
//! those of the commit protocol on one more.

use super::workload_name::Workload;
use clap::{Arg, ArgAction, Command, ValueEnum};
use std::fmt::Write as _;

/// Options on the page of all workloads.
const USUAL: [&str; 18] = [
    "threads",
    "seconds",
    "rows",
    "value_bytes",
    "ops",
    "read_percent",
    "path",
    "memory_bytes",
    "device",
    "commit",
    "level",
    "preset",
    "reopen",
    "check",
    "live",
    "plot",
    "report",
    "json",
];

/// Options of some workloads only: those that other workloads refuse, or do not look at.
const SOME: [(&[&str], &[Workload]); 12] = {
    use Workload::{
        Ablation, Compare, Counter, Device, Figures, Instructions, Live, Load, Mixed, Put, Queue, Scan, Soak,
        Tatp, Tpcb, Tpcc, Ycsb,
    };
    [
        (&["rows"], &[Ycsb, Live, Put, Load, Scan, Soak, Mixed, Ablation, Compare]),
        (&["value_bytes"], &[Ycsb, Live, Put, Load, Queue, Scan, Soak, Mixed, Ablation, Compare]),
        (&["ops"], &[Ycsb, Live, Put, Soak, Mixed, Ablation, Compare]),
        (&["read_percent", "zipf"], &[Ycsb, Live, Soak, Mixed, Ablation, Compare]),
        (&["only"], &[Tpcc, Tatp]),
        (&["ablation_of", "as_published"], &[Ablation]),
        (&["sweep"], &[Device]),
        (&["engines"], &[Compare, Instructions]),
        (&["rounds"], &[Compare]),
        (&["names"], &[Compare, Figures, Instructions]),
        (
            &[
                "reopen",
                "plot",
                "report",
                "live",
                "rate",
                "arrivals",
                "open_loop",
                "runs",
                "checkpoint_every",
                "snapshots",
            ],
            &[Ycsb, Live, Put, Soak, Mixed, Tpcc, Tpcb, Tatp, Counter, Queue],
        ),
        (&["engine"], &[Ycsb, Live, Put, Mixed, Tpcc, Tpcb, Tatp, Counter, Queue, Device]),
    ]
};

/// Groups of a single workload, by the heading.
const GROUPS: [(&str, &[Workload]); 10] = [
    ("Figures", &[Workload::Figures]),
    ("ycsb", &[Workload::Ycsb, Workload::Live, Workload::Mixed]),
    ("load", &[Workload::Load]),
    ("tpcc, mixed", &[Workload::Tpcc, Workload::Mixed]),
    ("tpcb", &[Workload::Tpcb]),
    ("tatp", &[Workload::Tatp]),
    ("counter", &[Workload::Counter]),
    ("queue", &[Workload::Queue]),
    ("model", &[Workload::Model]),
    ("instructions", &[Workload::Instructions]),
];

/// Options of `instructions`, beside its group.
const INSTRUCTIONS: [&str; 11] = [
    "names",
    "engines",
    "rows",
    "value_bytes",
    "preset",
    "logs",
    "path",
    "memory_bytes",
    "compression",
    "seed",
    "json",
];

/// Groups that do not go with the raw device, nor with loads and scans.
const TRANSACTIONS: [&str; 2] = ["Commit", "Isolation and locks"];

fn belongs(argument: &Arg, workload: Workload) -> bool {
    let id = argument.get_id().as_str();
    let heading = argument.get_help_heading().unwrap_or_default();
    if let Some((_, of)) = GROUPS.iter().find(|(name, _)| *name == heading) {
        return of.contains(&workload);
    }
    if workload == Workload::Figures {
        return ["names", "seconds"].contains(&id);
    }
    if workload == Workload::Model {
        return ["threads", "seconds", "rate", "seed", "device", "json"].contains(&id);
    }
    if workload == Workload::Instructions {
        return INSTRUCTIONS.contains(&id);
    }
    if workload == Workload::Device {
        let has_database =
            heading.starts_with("Commit") || ["Database", "Checkpoints and recovery"].contains(&heading);
        return id == "path" || !has_database && heading != TRANSACTIONS[1] && is_of(id, workload);
    }
    let reads_or_loads = matches!(workload, Workload::Load | Workload::Scan);
    !(reads_or_loads && heading == TRANSACTIONS[1]) && is_of(id, workload)
}

/// Returns whether an argument changes the commit protocol.
fn is_of_protocol(argument: &Arg) -> bool {
    argument.get_help_heading().is_some_and(|heading| heading.starts_with("Commit protocol"))
}

fn is_of(id: &str, workload: Workload) -> bool {
    SOME.iter().all(|(ids, of)| !ids.contains(&id) || of.contains(&workload))
}

/// Returns the command `bench` with the options that change the commit protocol.
pub fn protocol_page(bench: Command) -> Command {
    let hidden: Vec<_> =
        bench.get_arguments().filter(|a| !is_of_protocol(a)).map(|a| a.get_id().clone()).collect();
    let bench = hidden.iter().fold(bench, |bench, id| bench.mut_arg(id, |argument| argument.hide(true)));
    with_short_help(bench)
        .about("Change single choices of the commit protocol, for experiments")
        .override_usage("quench bench WORKLOAD [OPTIONS]")
        .after_help("docs/guide/benchmark.md explains more.")
}

/// Lets `--help` print what `-h` prints: a line or two for each option.
fn with_short_help(bench: Command) -> Command {
    bench
        .disable_help_flag(true)
        .arg(Arg::new("help").short('h').long("help").action(ArgAction::HelpShort).help("Print this page"))
}

/// Returns the command `bench` with the options of a page of its help: of one workload, or the
/// usual ones.
pub fn page(bench: Command, workload: Option<Workload>) -> Command {
    let about = match workload {
        Some(workload) => {
            let value = workload.to_possible_value();
            let help = value.as_ref().and_then(|value| value.get_help()).map(ToString::to_string);
            format!("{}: {}", workload.name(), help.unwrap_or_default())
        }
        None => format!("Measure commits, reads, scans, recovery, or the raw device\n\n{}", workloads()),
    };
    let shows = |argument: &Arg| match workload {
        Some(workload) => {
            argument.get_id() != "workload" && !is_of_protocol(argument) && belongs(argument, workload)
        }
        None => USUAL.contains(&argument.get_id().as_str()),
    };
    let hidden: Vec<_> = bench.get_arguments().filter(|a| !shows(a)).map(|a| a.get_id().clone()).collect();
    let bench = hidden.iter().fold(bench, |bench, id| bench.mut_arg(id, |argument| argument.hide(true)));
    match workload {
        Some(workload) => with_short_help(bench)
            .about(about)
            .override_usage(format!("quench bench {} [OPTIONS]", workload.name()))
            .mut_arg("log_device", |argument| argument.hide_possible_values(true))
            .after_help(AFTER),
        None => with_short_help(bench)
            .about(about)
            .mut_arg("workload", |argument| argument.hide(true))
            .mut_arg("device", |argument| argument.hide_possible_values(true).help(DEVICE)),
    }
}

/// After the options of a workload.
const AFTER: &str = "\
`quench bench WORKLOAD --help-protocol` has the options that change single choices of the commit protocol.
Sizes are bytes; k, m, g and t are powers of 1024. docs/guide/benchmark.md explains more, and the modelled devices.";

/// Of the device, on the page of the usual options.
const DEVICE: &str = "Model the speed of this device (sim:nvme-enterprise, sim:s3-express and others)";

/// Returns the workloads, a line each.
fn workloads() -> String {
    let mut text = String::from("Workloads:");
    for value in Workload::value_variants().iter().filter_map(ValueEnum::to_possible_value) {
        let help = value.get_help().map(ToString::to_string).unwrap_or_default();
        let _ = write!(text, "\n  {:<12} {help}", value.get_name());
    }
    text
}

/// Returns the workload that the arguments of the process name, if any.
pub fn workload_of(arguments: &[String]) -> Option<Workload> {
    arguments.iter().find_map(|argument| Workload::from_str(argument, false).ok())
}
