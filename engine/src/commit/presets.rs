//! Which protocol runs? The one `match` from a preset to the axes that the rest of this room reads.
//!
//! | axis | `per-transaction` | `group` | `autonomous` |
//! |---|---|---|---|
//! | log layout | one log | one log | one log per thread |
//! | a block holds | one transaction | whoever arrived, or `gather_max` | whoever arrived |
//! | who writes, blocking | each committer its own block | the committer that leads | the committer that leads |
//! | who writes, asynchronous | flusher thread | flusher thread | flusher thread, or the worker through its queue |
//! | who acknowledges | whoever completed a write | the same | the same |
//! | dependency rule | DSN below the watermark | the same | the same |
//!
//! With one log the dependency rule costs nothing: a DSN is below the transaction's own CSN, and W passes both at once.

use crate::base::settings::{MethodSetting, Preset, Settings};
use std::time::Duration;

/// Who writes for committers that do not wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AsyncWriter {
    /// The flusher thread, for all logs.
    Flusher,
    /// Each worker submits to its log's own queue at the end of a transaction; the thread looks after the rest.
    Worker,
}

/// How a leader gathers followers before it writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Gather {
    pub window: Duration,
    /// The window opens only if at least this many other transactions are in progress.
    pub siblings: usize,
}

/// A point on the axes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Axes {
    /// Seal a block after so many records; none: when somebody writes it.
    pub records_per_block: Option<u32>,
    /// A blocking committer writes its own block and nobody else's, beside others that do the same.
    pub writes_own_block: bool,
    pub gather: Option<Gather>,
    pub async_writer: AsyncWriter,
    /// Bytes in a log at which it is written although nobody waits.
    pub flush_unit_bytes: usize,
    /// Bytes in a log at which it is written although only lazy records are in it: half a buffer.
    pub full_bytes: usize,
    pub loss_window: Duration,
}

impl Axes {
    /// The axes of `settings.preset`.
    pub(super) fn of(settings: &Settings) -> Axes {
        let neutral = Axes {
            records_per_block: None,
            writes_own_block: false,
            gather: None,
            async_writer: AsyncWriter::Flusher,
            flush_unit_bytes: settings.flush_unit_bytes,
            full_bytes: settings.log_buffer_bytes / 2,
            loss_window: settings.loss_window,
        };
        match settings.preset {
            Preset::PerTransaction => Axes { records_per_block: Some(1), writes_own_block: true, ..neutral },
            Preset::Group => Axes {
                records_per_block: u32::try_from(settings.gather_max).ok().filter(|max| *max > 0),
                gather: (!settings.gather_window.is_zero())
                    .then_some(Gather { window: settings.gather_window, siblings: settings.gather_siblings }),
                ..neutral
            },
            Preset::Autonomous => Axes { async_writer: async_writer(settings.durability_method), ..neutral },
        }
    }
}

fn async_writer(method: Option<MethodSetting>) -> AsyncWriter {
    match method {
        Some(MethodSetting::WorkerDsync | MethodSetting::WorkerFlush) => AsyncWriter::Worker,
        Some(MethodSetting::Flusher) | None => AsyncWriter::Flusher,
    }
}

/// How many logs a database with `settings` has on a machine with `cores` cores.
#[must_use]
pub fn log_count(settings: &Settings, cores: usize) -> usize {
    match (settings.preset, settings.logs) {
        (Preset::PerTransaction | Preset::Group, 0) => 1,
        (Preset::Autonomous, 0) => {
            // As many as have room in the log beside a large transaction.
            let transaction = match settings.transaction_bytes_max as u64 {
                0 => settings.log_bytes_max / 16,
                said => said,
            };
            let transaction = transaction.max(settings.segment_bytes);
            let room = settings.log_bytes_max.saturating_sub(transaction);
            let fit = room / settings.bytes_of_segments_in_use(1).max(1);
            cores.clamp(1, 256).min(fit.max(1) as usize)
        }
        (_, count) => count,
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;

    #[test]
    fn a_preset_is_a_point_on_the_axes() {
        let axes = |preset| Axes::of(&Settings { preset, ..Settings::default() });
        assert_eq!(axes(Preset::PerTransaction).records_per_block, Some(1));
        assert_eq!(axes(Preset::Group).records_per_block, None);
        assert_eq!(axes(Preset::Autonomous).async_writer, AsyncWriter::Flusher);
    }

    #[test]
    fn autonomous_has_one_log_per_core_unless_told() {
        let count = |preset, logs| log_count(&Settings { preset, logs, ..Settings::default() }, 6);
        assert_eq!(count(Preset::Autonomous, 0), 6);
        assert_eq!(count(Preset::Autonomous, 3), 3);
        assert_eq!(count(Preset::Group, 0), 1);
        let many = Settings { preset: Preset::Autonomous, ..Settings::default() };
        assert_eq!(log_count(&many, 256), 60, "no more than the log has segments for");
        let chosen = Settings { logs: log_count(&many, 256), ..many };
        chosen.validate().expect("what is chosen is allowed");
    }
}
