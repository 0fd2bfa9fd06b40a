//! Commit protocols: which thread writes a log, when, and how a committer waits.
//!
//! | page | writes | a committer that waits | after |
//! |---|---|---|---|
//! | [`per_transaction`] | each committer its own record | writes | the floor of all comparisons |
//! | [`group`] | the first waiter, for all | leads or follows | leader/follower group commit |
//! | [`queued`] | one thread, every interval | sleeps | bounded-queue writer |
//! | [`flushed`], `pipelined` | one thread, as soon as it can | sleeps | flush pipelining, Aether 2010 |
//! | [`autonomous`] | each worker its own log | leads or follows | autonomous commit, 2025 |
//! | [`flushed`], `restricted` | a thread for each log of k threads | sleeps | Milliscale, 2026 |
//! | [`passive`] | no thread: the record is durable in memory | fences | passive group commit, 2014 |
//! | [`collector`] | one worker all logs, in rounds | leads or follows | group commit over several logs |
//! | [`auto`] | the first waiter; a thread where very many wait | leads, follows or sleeps | this engine |
//!
//! Each page gives the protocol of its preset as a value ([`of`]). The writer of that value chooses
//! the page that runs ([`start`]). Every page works with any number of logs, dependency rule and
//! acknowledger that [`super::presets::check`] allows: those are components that a page uses.

use super::core::protocol::{Parts, Protocol};
use super::pages::{auto, flushed, group};
use super::papers::floor::{collector, per_transaction, queued};
use super::papers::{autonomous, passive};
use crate::base::settings::{Axes, Preset, WriterOptions};
use std::sync::Arc;

/// Returns the protocol of a preset, with its log in mapped memory if there is some.
pub fn of(preset: Preset, has_memory: bool) -> Axes {
    match preset {
        Preset::PerTransaction => per_transaction::AXES,
        Preset::Group => group::AXES,
        Preset::Queued => queued::AXES,
        Preset::Pipelined => flushed::PIPELINED,
        Preset::Autonomous => autonomous::AXES,
        Preset::Restricted => flushed::RESTRICTED,
        Preset::Auto if !has_memory => auto::AXES,
        Preset::Auto | Preset::Passive => passive::AXES,
    }
}

/// Starts the page that runs: the one whose writer the axes name. `workers` are there if workers
/// write.
pub fn start(parts: &Parts<'_>, workers: Option<Arc<autonomous::Workers>>) -> Arc<dyn Protocol> {
    let writes = parts.writes.clone();
    match (parts.axes.writer, workers) {
        (WriterOptions::Worker(_), Some(workers)) => Arc::new(autonomous::Autonomous::new(parts, workers)),
        (WriterOptions::Committer, _) => Arc::new(per_transaction::PerTransaction(writes)),
        (WriterOptions::Background { queues_waiters: true }, _) => {
            Arc::new(queued::Queued { writes, window: parts.axes.flush_interval })
        }
        (WriterOptions::Background { .. } | WriterOptions::FlusherPerLog, _) => {
            Arc::new(flushed::Flushed(writes))
        }
        (WriterOptions::Memory { .. }, _) => Arc::new(passive::Passive::new(parts)),
        (WriterOptions::Collector, _) => Arc::new(collector::Collector::new(parts)),
        (WriterOptions::Leader { adapts_to_load: true, .. }, _) => Arc::new(auto::Auto::new(parts)),
        (WriterOptions::Leader { .. } | WriterOptions::Worker(_), _) => Arc::new(group::Group::new(parts)),
    }
}
