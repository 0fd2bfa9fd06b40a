//! From settings to a point on the axes, and what is refused.
//!
//! A preset brings the choices of its page (`protocols`), and a setting changes one of
//! them. With one log the dependency rule is log order, with several DSN. Choices that contradict
//! each other, and numbers for choices that were not made, are refused with the reason: a setting
//! that is silently without effect is a wrong measurement.

use super::core::axes::Gather;
use super::core::protocol::Choices;
use super::{layout, protocols};
use crate::base::settings::{
    Acknowledger, Append, Dependency, IdleLogs, Layout, MemoryCache, MemoryFence, Preset, Queue, Settings,
    Writer,
};
use crate::base::{Error, Location, Result};

pub use super::core::axes::Axes;
pub use super::layout::log_count;

impl Axes {
    /// The axes of `settings`: its preset's, as far as no other setting says otherwise. What
    /// contradicts itself is for [`check`] to refuse.
    #[must_use]
    pub fn of(settings: &Settings) -> Axes {
        let Choices { layout, writer, acknowledger } = protocols::choices(settings);
        let layout = settings.lab.layout.unwrap_or(layout);
        // Logs that belong to pages are not those of workers.
        let writer =
            if layout == Layout::ByPage && writer == Writer::Worker { Writer::Leader } else { writer };
        let writer = settings.lab.writer.unwrap_or(writer);
        let one_log = settings.logs == 1 || settings.logs == 0 && layout == Layout::One;
        let rule = if one_log { Dependency::LogOrder } else { Dependency::Dsn };
        let is_queued = settings.preset == Preset::Queued && writer == Writer::Background;
        let most = u32::try_from(settings.lab.gather_max).ok().filter(|most| *most > 0);
        let flush_unit_bytes = settings.flush_unit_bytes();
        let fills_logs =
            settings.preset == Preset::Restricted && layout == Layout::ThreadsPerLog && settings.logs == 0;
        Axes {
            layout,
            threads_in_a_row: if fills_logs { settings.lab.threads_per_log } else { 1 },
            writer,
            acknowledger: settings.lab.acknowledger.unwrap_or(acknowledger),
            acknowledgment_group: settings.lab.acknowledgment_group,
            acknowledgment_odds: settings.lab.acknowledgment_odds,
            stealing_group: settings.lab.stealing_group,
            idle_max: settings.lab.idle_max,
            dependency: settings.lab.dependency.unwrap_or(rule),
            idle_logs: settings.lab.idle_logs,
            counts_false_waits: settings.lab.count_false_waits,
            append: settings.lab.append,
            memory_fence: settings.lab.memory_fence.unwrap_or(MemoryFence::Beside),
            queue: settings.lab.queue.unwrap_or(Queue::LockFree),
            flush_interval: settings.flush_interval(),
            window_after_arrival: is_queued,
            queues_waiters: is_queued,
            one_record_a_block: writer == Writer::Committer,
            gather_max: most,
            gather: (!settings.lab.gather_window.is_zero()).then_some(Gather {
                window: settings.lab.gather_window,
                siblings: settings.lab.gather_siblings,
            }),
            await_cohort: settings.lab.await_cohort
                && settings.lab.gather_window.is_zero()
                && !matches!(writer, Writer::Committer | Writer::Collector | Writer::Memory)
                && !is_queued,
            delegates_when_crowded: settings.preset == Preset::Auto
                && writer == Writer::Leader
                && settings.lab.writer.is_none(),
            flush_unit_bytes,
            writes_in_flight: settings.lab.writes_in_flight,
            shared_flush: settings.lab.shared_flush,
            loss_window: settings.loss_window,
        }
    }
}

/// Refuses choices that contradict each other. `logs` is how many there will be.
///
/// # Errors
/// `InvalidArgument` that names the setting and what it contradicts.
pub fn check(settings: &Settings, logs: usize) -> Result<()> {
    let axes = Axes::of(settings);
    let Axes { layout, writer, acknowledger, .. } = axes;
    let default = Settings::default();
    let refuse = |name, what: String| Err(Error::invalid(what).at(Location::Setting(name)));
    let preset = settings.preset.name();
    if settings.lab.layout == Some(Layout::One) && settings.logs > 1 {
        return refuse("logs", format!("layout = one has one log, not {}", settings.logs));
    }
    check_by_page(&axes, logs)?;
    if settings.lab.threads_per_log != default.lab.threads_per_log && layout != Layout::ThreadsPerLog {
        return refuse("threads_per_log", format!("layout = {layout} shares no log between so many threads"));
    }
    if settings.lab.threads_per_log != default.lab.threads_per_log && settings.logs > 0 {
        let what = format!("logs = {} says already how many share one", settings.logs);
        return refuse("threads_per_log", what);
    }
    if !settings.lab.gather_window.is_zero() && !matches!(writer, Writer::Leader | Writer::Worker) {
        return refuse("gather_window", format!("no leader gathers with preset {preset}, writer = {writer}"));
    }
    if settings.lab.gather_max > 0 && !matches!(writer, Writer::Leader | Writer::Worker | Writer::Memory) {
        return refuse("gather_max", format!("no leader gathers with preset {preset}, writer = {writer}"));
    }
    if settings.lab.writes_in_flight != default.lab.writes_in_flight && writer != Writer::Worker {
        let what = format!("writer = {writer} has one write of a log in flight; writer = worker has several");
        return refuse("writes_in_flight", what);
    }
    if settings.lab.acknowledgment_group != default.lab.acknowledgment_group
        && acknowledger != Acknowledger::Workers
    {
        return refuse("acknowledgment_group", format!("acknowledger = {acknowledger} has no groups"));
    }
    if settings.lab.acknowledgment_odds != default.lab.acknowledgment_odds
        && acknowledger != Acknowledger::Workers
    {
        return refuse("acknowledgment_odds", format!("acknowledger = {acknowledger} acknowledges always"));
    }
    if settings.lab.stealing_group.is_some_and(|group| group > 1) && writer != Writer::Worker {
        return refuse("stealing_group", format!("writer = {writer} steals nothing; writer = worker does"));
    }
    if settings.lab.stealing_group.is_some_and(|group| group > 1) && logs == 1 {
        return refuse("stealing_group", "there is one log, and nothing to steal".to_string());
    }
    if settings.lab.idle_max != default.lab.idle_max && writer != Writer::Worker {
        return refuse("idle_max", format!("writer = {writer} does not look how idle workers are"));
    }
    if settings.lab.shared_flush.is_some() && (logs == 1 || writer == Writer::FlusherPerLog) {
        let what = match logs {
            1 => "there is one log".to_string(),
            _ => format!("with writer = {writer} no thread writes several logs"),
        };
        return refuse("shared_flush", format!("{what}: there is no flush to share"));
    }
    if writer == Writer::Committer && logs > 1 && settings.lab.writer.is_some() {
        return refuse("writer", format!("committer is for one log, there are {logs}"));
    }
    check_append(settings, writer, logs)?;
    check_dependency(settings, &axes, logs)?;
    check_memory(settings, writer)?;
    layout::check_room(settings, logs)
}

/// Refuses groups where they are not supported.
fn check_append(settings: &Settings, writer: Writer, logs: usize) -> Result<()> {
    let refuse = |what: String| Err(Error::invalid(what).at(Location::Setting("append")));
    match settings.lab.append {
        Append::Latched => Ok(()),
        Append::Consolidated if logs > 1 => refuse(format!("consolidated is for one log, there are {logs}")),
        Append::Consolidated if writer == Writer::Memory => {
            refuse("writer = memory: a record in mapped memory is stored by its own thread".to_string())
        }
        Append::Consolidated => Ok(()),
    }
}

/// Refuses a rule that does not fit the logs, and what fits only rules that go by clocks.
fn check_dependency(settings: &Settings, axes: &Axes, logs: usize) -> Result<()> {
    let Axes { dependency, writer, .. } = *axes;
    let refuse = |name, what: String| Err(Error::invalid(what).at(Location::Setting(name)));
    if dependency == Dependency::LogOrder && logs > 1 {
        let what = format!("log-order is no order between {logs} logs; csn or dsn is");
        return refuse("dependency", what);
    }
    let has_clocks = matches!(dependency, Dependency::Gsn | Dependency::GsnRfa);
    let owner = match settings.lab.idle_logs {
        IdleLogs::Worker => Some((Writer::Worker, "worker that writes it")),
        IdleLogs::Flusher => Some((Writer::FlusherPerLog, "flusher of its own")),
        IdleLogs::Raise | IdleLogs::Barrier | IdleLogs::Hold => None,
    };
    if !matches!(settings.lab.idle_logs, IdleLogs::Raise | IdleLogs::Flusher) && !has_clocks {
        let what = format!("dependency = {dependency} has no clocks that an idle log could hold back");
        return refuse("idle_logs", what);
    }
    match owner.filter(|(owner, _)| *owner != writer) {
        Some((_, owner)) => {
            let choice = settings.lab.idle_logs;
            refuse("idle_logs", format!("{choice}: with writer = {writer} no log has a {owner}"))
        }
        None => Ok(()),
    }
}

/// Refuses settings that do not fit logs of pages.
fn check_by_page(axes: &Axes, logs: usize) -> Result<()> {
    let refuse = |name, what: &str| Err(Error::invalid(what).at(Location::Setting(name)));
    match axes.writer {
        _ if axes.layout != Layout::ByPage => Ok(()),
        _ if logs < 2 => {
            refuse("logs", "layout = by-page divides transactions between logs, and there is one")
        }
        Writer::Committer => {
            refuse("layout", "by-page: a commit may have a record in each log, writer = committer writes one")
        }
        Writer::Worker => refuse(
            "layout",
            "by-page: a log belongs to pages, writer = worker has each thread write a log of its own",
        ),
        Writer::Collector => {
            refuse("layout", "by-page: writer = collector is a baseline for logs of threads")
        }
        _ => Ok(()),
    }
}

/// Refuses settings that do not fit a log in mapped memory, or that only fit such a log.
fn check_memory(settings: &Settings, writer: Writer) -> Result<()> {
    let default = Settings::default();
    let refuse = |name, what: String| Err(Error::invalid(what).at(Location::Setting(name)));
    let preset = settings.preset;
    if writer == Writer::Memory {
        if settings.log_memory.is_none() && !settings.read_only {
            let what = format!(
                "preset {preset}, writer = memory: log buffers are in mapped memory, and this says in which file: \
                 on a DAX file system, or for example in /dev/shm where commits survive the process only"
            );
            return refuse("log_memory", what);
        }
        if settings.lab.memory_cache == MemoryCache::Durable && settings.lab.memory_fence.is_some() {
            return refuse("memory_fence", "memory_cache = durable fences no record".to_string());
        }
        let without_effect = [
            ("gather_max", settings.lab.gather_max > 0),
            ("flush_interval", settings.lab.flush_interval.is_some()),
        ];
        if let Some((name, _)) = without_effect.into_iter().find(|(_, said)| *said) {
            let what = format!("writer = memory: a record is durable by itself, {name} would have no effect");
            return refuse(name, what);
        }
        return Ok(());
    }
    let only_there = [
        ("log_memory_bytes", settings.lab.log_memory_bytes > 0),
        ("memory_cache", settings.lab.memory_cache != default.lab.memory_cache),
        ("memory_fence", settings.lab.memory_fence.is_some()),
        ("memory_store", settings.lab.memory_store.is_some()),
        ("insertion_latency", !settings.lab.insertion_latency.is_zero()),
    ];
    match only_there.into_iter().find(|(_, said)| *said) {
        Some((name, _)) if settings.log_memory.is_none() => {
            refuse(name, format!("preset {preset}, writer = {writer} has no log in mapped memory"))
        }
        _ => Ok(()),
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
