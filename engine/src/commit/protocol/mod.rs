//! Commit protocols, one page each: which thread writes a log, when, and how a committer waits.
//!
//! | page | writes | a committer that waits | after |
//! |---|---|---|---|
//! | [`per_transaction`] | each committer its own record | writes | the floor of all comparisons |
//! | [`group`] | the first waiter, for all | leads or follows | leader/follower group commit |
//! | [`queued`] | one thread, every interval | sleeps | bounded-queue writer |
//! | [`pipelined`] | one thread, as soon as it can | sleeps | flush pipelining, Aether 2010 |
//! | [`autonomous`] | each worker its own log | leads or follows | autonomous commit, 2025 |
//! | [`restricted`] | a thread for each log of k threads | sleeps | Milliscale, 2026 |
//! | [`passive`] | no thread: the record is durable in memory | fences | passive group commit, 2014 |
//! | [`collector`] | one worker all logs, in rounds | leads or follows | group commit over several logs |
//! | [`auto`] | the first waiter; a thread where very many wait | leads, follows or sleeps | this engine |
//!
//! A preset names a page, and [`page`] is the one match from presets to pages. The setting `writer`
//! chooses the page whose writer it names. Every page works with any number of logs, dependency
//! rule and acknowledger that [`super::presets::check`] allows: those are components that a page
//! uses.

mod page;
mod per_transaction;
mod group;
mod queued;
mod pipelined;
mod autonomous;
mod restricted;
mod passive;
mod auto;
mod collector;

pub(super) use page::{Choices, Page, Parts, Protocol};

use crate::base::settings::{Preset, Settings, Writer};

/// Returns the page of a preset.
fn page(preset: Preset) -> &'static Page {
    match preset {
        Preset::PerTransaction => &per_transaction::PAGE,
        Preset::Group => &group::PAGE,
        Preset::Queued => &queued::PAGE,
        Preset::Pipelined => &pipelined::PAGE,
        Preset::Autonomous => &autonomous::PAGE,
        Preset::Restricted => &restricted::PAGE,
        Preset::Passive => &passive::PAGE,
        Preset::Auto => &auto::PAGE,
    }
}

/// Returns the choices of a preset.
pub(super) fn choices(settings: &Settings) -> Choices {
    match settings.preset {
        Preset::Auto if settings.log_memory.is_some() => page(Preset::Passive).choices,
        preset => page(preset).choices,
    }
}

/// Returns the page that runs: the preset's, unless `writer` is that of another one.
pub(super) fn page_of(settings: &Settings, writer: Writer) -> &'static Page {
    let own = page(settings.preset);
    let is_auto = settings.preset == Preset::Auto;
    if own.choices.writer == writer && !(is_auto && settings.writer.is_some()) {
        return own;
    }
    page(match writer {
        Writer::Collector => return &collector::PAGE,
        Writer::Committer => Preset::PerTransaction,
        Writer::Leader => Preset::Group,
        Writer::Background => Preset::Pipelined,
        Writer::FlusherPerLog => Preset::Restricted,
        Writer::Worker => Preset::Autonomous,
        Writer::Memory => Preset::Passive,
    })
}
