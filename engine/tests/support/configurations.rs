//! Protocols with a danger of their own in a crash: one table for all tests of crashes.
//!
//! `crash` runs its workload with each of them, beside the protocols that its seeds draw. Suites
//! about one danger take their rows from here.

use super::small;
use quenchdb::{Acknowledger, Dependency, Layout, Preset, Settings, Writer};
use std::time::Duration;

/// A protocol and the sizes of its database.
#[derive(Clone, Copy)]
pub struct Configuration {
    pub name: &'static str,
    pub settings: fn() -> Settings,
}

const fn row(name: &'static str, settings: fn() -> Settings) -> Configuration {
    Configuration { name, settings }
}

pub const WORKERS_LOG: Configuration = row("a worker's log", || {
    short(Preset::Autonomous, 1).with_protocol(|axes| {
        axes.set_writer(Writer::Worker);
        axes.set_acknowledger(Acknowledger::Workers);
        axes.dependency = Some(Dependency::Dsn);
    })
});
pub const AUTONOMOUS: Configuration = row("autonomous, 3 logs", || short(Preset::Autonomous, 3));
pub const RESTRICTED: Configuration = row("restricted, 2 logs", || by_flusher(short(Preset::Restricted, 2)));
pub const GROUP: Configuration = row("group, 2 logs", || by_flusher(short(Preset::Group, 2)));
pub const PIPELINED: Configuration = row("pipelined, 2 logs", || short(Preset::Pipelined, 2));
pub const AUTO: Configuration = row("auto, 2 logs", || short(Preset::Auto, 2));
pub const PASSIVE: Configuration = row("passive, 3 logs", || short(Preset::Passive, 3));
pub const STEALING: Configuration = row("workers that steal", || stealing(Dependency::Dsn));
pub const CHUNKS: Configuration =
    row("long transactions in chunks", || small(Preset::Auto, 1).with(|s| s.lab.chunk_bytes = 512));
pub const BY_PAGE: Configuration = row("by page", || by_page(Preset::Auto));
pub const BY_PAGE_PASSIVE: Configuration = row("by page, in mapped memory", || by_page(Preset::Passive));

/// All rows.
pub const ALL: [Configuration; 11] = [
    WORKERS_LOG,
    AUTONOMOUS,
    RESTRICTED,
    GROUP,
    PIPELINED,
    AUTO,
    PASSIVE,
    STEALING,
    CHUNKS,
    BY_PAGE,
    BY_PAGE_PASSIVE,
];

/// Returns settings whose records are written at once.
fn short(preset: Preset, logs: usize) -> Settings {
    small(preset, logs).with(|s| {
        s.lab.flush_unit_bytes = 4096;
        s.protocol_mut().flush_interval = Duration::ZERO;
        s.memory_bytes = 4 << 20;
        s.log_bytes_max = 8 << 20;
    })
}

/// The flusher writes. A committer that writes for itself has no write in flight when the simulated
/// disk is stopped.
fn by_flusher(settings: Settings) -> Settings {
    settings.with_protocol(|axes| axes.set_writer(Writer::Background))
}

/// Returns settings of two workers that write each other's records.
pub fn stealing(dependency: Dependency) -> Settings {
    small(Preset::Autonomous, 2).with(|s| {
        s.protocol_mut().set_writer(Writer::Worker);
        s.protocol_mut().set_acknowledger(Acknowledger::Workers);
        s.protocol_mut().dependency = Some(dependency);
        s.protocol_mut().worker_mut().expect("workers write").stealing_group = Some(2);
        s.lab.flush_unit_bytes = 4096;
        // So that a worker writes only when it has enough bytes, including its neighbour's.
        s.protocol_mut().flush_interval = Duration::from_millis(500);
        s.protocol_mut().worker_mut().expect("workers write").idle_max = Duration::ZERO;
        s.memory_bytes = 4 << 20;
        s.log_bytes_max = 8 << 20;
    })
}

/// Returns settings of three logs between which a transaction is divided by page.
pub fn by_page(preset: Preset) -> Settings {
    small(preset, 3).with_protocol(|axes| axes.set_layout(Layout::ByPage))
}
