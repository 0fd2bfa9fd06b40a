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
//! A preset names a page ([`choices`]). The setting `writer` chooses the page whose writer it names
//! ([`start`]). Every page works with any number of logs, dependency rule and acknowledger that
//! [`super::presets::check`] allows: those are components that a page uses.

use super::core::protocol::{Choices, Parts, Protocol};
use super::pages::{auto, flushed, group};
use super::papers::floor::{collector, per_transaction, queued};
use super::papers::{autonomous, passive};
use crate::base::settings::{Preset, Settings, Writer};
use std::sync::Arc;

/// Returns the choices of a preset.
pub fn choices(settings: &Settings) -> Choices {
    match settings.preset {
        Preset::PerTransaction => per_transaction::CHOICES,
        Preset::Group => group::CHOICES,
        Preset::Queued | Preset::Pipelined => flushed::PIPELINED,
        Preset::Autonomous => autonomous::CHOICES,
        Preset::Restricted => flushed::RESTRICTED,
        Preset::Auto if settings.log_memory.is_none() => auto::CHOICES,
        Preset::Auto | Preset::Passive => passive::CHOICES,
    }
}

/// Starts the page that runs: the one whose writer the axes name, of several the preset's.
/// `workers` are there if workers write.
pub fn start(
    settings: &Settings,
    parts: &Parts<'_>,
    workers: Option<Arc<autonomous::Workers>>,
) -> Arc<dyn Protocol> {
    let writes = parts.writes.clone();
    match (parts.axes.writer, workers) {
        (Writer::Worker, Some(workers)) => Arc::new(autonomous::Autonomous::new(parts, workers)),
        (Writer::Committer, _) => Arc::new(per_transaction::PerTransaction(writes)),
        (Writer::Background, _) if settings.preset == Preset::Queued => {
            Arc::new(queued::Queued { writes, window: parts.axes.flush_interval })
        }
        (Writer::Background | Writer::FlusherPerLog, _) => Arc::new(flushed::Flushed(writes)),
        (Writer::Memory, _) => Arc::new(passive::Passive::new(parts)),
        (Writer::Collector, _) => Arc::new(collector::Collector::new(parts)),
        (Writer::Leader, _) if settings.preset == Preset::Auto && settings.lab.writer.is_none() => {
            Arc::new(auto::Auto::new(parts))
        }
        (Writer::Leader | Writer::Worker, _) => Arc::new(group::Group::new(parts)),
    }
}
