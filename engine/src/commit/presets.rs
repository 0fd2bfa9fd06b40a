//! From settings to the protocol that runs, and what is refused.
//!
//! A preset is a value (`protocols::of`); an experiment changes parts of it (`Lab::protocol`).
//! With one log the dependency rule is log order, with several DSN. Choices that contradict each
//! other are refused with the reason: a choice that is silently without effect is a wrong
//! measurement.

use super::{layout, protocols};
use crate::base::settings::{
    Append, Axes, Dependency, IdleLogs, LayoutOptions, MemoryCache, MemoryFence, Preset, Settings,
    THREADS_PER_LOG, Writer, WriterOptions,
};
use crate::base::{Error, Location, Result};

pub use super::layout::log_count;

/// For the engine's own tools and tests.
#[cfg(any(test, feature = "internals"))]
impl Preset {
    /// Returns the protocol of this preset, for an experiment that changes parts of it.
    #[doc(hidden)]
    #[must_use]
    pub fn axes(self) -> Axes {
        protocols::of(self, false)
    }
}

/// For the engine's own tools and tests.
#[cfg(any(test, feature = "internals"))]
impl Settings {
    /// Returns the protocol, to change parts of it. Choose `preset` and `log_memory` before.
    #[doc(hidden)]
    pub fn protocol_mut(&mut self) -> &mut Axes {
        let chosen = chosen(self);
        self.lab.protocol.insert(chosen)
    }

    /// Returns the settings with the protocol after `change`.
    #[doc(hidden)]
    #[must_use]
    pub fn with_protocol(mut self, change: impl FnOnce(&mut Axes)) -> Settings {
        change(self.protocol_mut());
        self
    }
}

fn chosen(settings: &Settings) -> Axes {
    settings.lab.protocol.unwrap_or_else(|| protocols::of(settings.preset, settings.log_memory.is_some()))
}

impl Axes {
    /// Returns the protocol of `settings`, with as many logs as these say or its layout has at
    /// least. What contradicts itself is for [`check`] to refuse.
    #[must_use]
    pub fn of(settings: &Settings) -> Axes {
        let logs = match settings.logs {
            0 if chosen(settings).layout == LayoutOptions::One => 1,
            0 => 2,
            said => said,
        };
        Axes::with_logs(settings, logs)
    }

    /// Returns the protocol of `settings` with `logs` logs: with a rule and a size of flush units.
    #[must_use]
    pub fn with_logs(settings: &Settings, logs: usize) -> Axes {
        let mut axes = chosen(settings);
        let rule = if logs == 1 { Dependency::LogOrder } else { Dependency::Dsn };
        axes.dependency.get_or_insert(rule);
        if let (LayoutOptions::ThreadsPerLog { in_a_row, .. }, true) = (&mut axes.layout, settings.logs > 0) {
            *in_a_row = false;
        }
        let said = Some(settings.lab.flush_unit_bytes).filter(|bytes| *bytes > 0);
        axes.flush_unit_bytes = said.or(axes.flush_unit_bytes).or(Some(settings.log_buffer_bytes()));
        axes
    }
}

/// Refuses choices that contradict each other. `logs` is how many there will be.
///
/// # Errors
/// `InvalidArgument` that names the setting and what it contradicts.
pub fn check(settings: &Settings, logs: usize) -> Result<()> {
    match contradiction(&Axes::of(settings), settings, logs) {
        Some((name, what)) => Err(Error::invalid(what).at(Location::Setting(name))),
        None => layout::check_room(settings, logs),
    }
}

/// Returns a setting, and what it contradicts.
fn contradiction(axes: &Axes, settings: &Settings, logs: usize) -> Option<(&'static str, String)> {
    let (writer, rule, idle) = (axes.writer.kind(), axes.rule(), axes.idle_logs);
    let has_clocks = matches!(rule, Dependency::Gsn | Dependency::GsnRfa);
    let owner = match idle {
        IdleLogs::Worker => Writer::Worker,
        IdleLogs::Flusher => Writer::FlusherPerLog,
        IdleLogs::Raise | IdleLogs::Barrier | IdleLogs::Hold => writer,
    };
    let steals = matches!(axes.writer, WriterOptions::Worker(worker) if worker.stealing_group > Some(1));
    let is_latched = axes.writer == WriterOptions::Memory { fence: MemoryFence::Latched };
    let (name, why) = match (axes.layout, writer) {
        (LayoutOptions::ByPage, _) if logs < 2 => {
            ("logs", "layout = by-page divides transactions between logs, and there is one".into())
        }
        (LayoutOptions::ByPage, Writer::Committer | Writer::Worker | Writer::Collector) => {
            ("layout", format!("by-page: a log belongs to pages, writer = {writer} is for logs of threads"))
        }
        (LayoutOptions::ThreadsPerLog { threads, .. }, _)
            if threads != THREADS_PER_LOG && settings.logs > 0 =>
        {
            ("threads_per_log", format!("logs = {} says already how many share one", settings.logs))
        }
        (_, Writer::Committer) if logs > 1 && settings.preset != Preset::PerTransaction => {
            ("writer", format!("committer is for one log, there are {logs}"))
        }
        _ if steals && logs == 1 => ("stealing_group", "there is one log, and nothing to steal".into()),
        _ if axes.shared_flush.is_some() && (logs == 1 || writer == Writer::FlusherPerLog) => {
            ("shared_flush", format!("logs = {logs}, writer = {writer}: no thread writes several logs"))
        }
        _ if axes.append == Append::Consolidated && (logs > 1 || writer == Writer::Memory) => {
            ("append", format!("consolidated is for one log in a file, not logs = {logs}, writer = {writer}"))
        }
        _ if rule == Dependency::LogOrder && logs > 1 => {
            ("dependency", format!("log-order is no order between {logs} logs; csn or dsn is"))
        }
        _ if !matches!(idle, IdleLogs::Raise | IdleLogs::Flusher) && !has_clocks => {
            ("idle_logs", format!("dependency = {rule} has no clocks that an idle log could hold back"))
        }
        _ if owner != writer => {
            ("idle_logs", format!("with writer = {writer} no log has a {idle} of its own that writes it"))
        }
        _ if is_latched && settings.lab.memory_cache == MemoryCache::Durable => {
            ("memory_fence", "memory_cache = durable fences no record".into())
        }
        _ => return without_memory(settings, writer),
    };
    Some((name, why))
}

/// Returns what is missing for a log in mapped memory, or what goes only with one.
fn without_memory(settings: &Settings, writer: Writer) -> Option<(&'static str, String)> {
    let (lab, preset) = (&settings.lab, settings.preset);
    let why = format!("preset {preset}, writer = {writer} has no log in mapped memory");
    match writer {
        _ if settings.log_memory.is_some() => None,
        Writer::Memory if settings.read_only => None,
        Writer::Memory => Some((
            "log_memory",
            format!(
                "preset {preset}: log buffers are in mapped memory, and this says in which file: on a DAX file \
             system, or for example in /dev/shm where commits survive the process only"
            ),
        )),
        _ if lab.log_memory_bytes > 0 => Some(("log_memory_bytes", why)),
        _ if lab.memory_cache != MemoryCache::default() => Some(("memory_cache", why)),
        _ if lab.memory_store.is_some() => Some(("memory_store", why)),
        _ if !lab.insertion_latency.is_zero() => Some(("insertion_latency", why)),
        _ => None,
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
