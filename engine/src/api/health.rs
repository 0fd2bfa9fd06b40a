//! Whether an open database works, in one word, and why not.

use super::database::Database;
use super::engine::Engine;

/// How well a database works.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum HealthState {
    /// Everything works.
    Healthy,
    /// Reads and commits work, or some of them; an administrator should look.
    Degraded,
    /// Nothing can be committed any more: open the database again.
    Failed,
}

/// The state of a database, and the reasons for it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Health {
    /// The worst that one of the reasons stands for.
    pub state: HealthState,
    /// Each one says what is wrong and what to do. None if the database is healthy.
    pub reasons: Vec<String>,
}

impl Health {
    fn add(&mut self, state: HealthState, reason: impl Into<String>) {
        self.state = self.state.max(state);
        self.reasons.push(reason.into());
    }
}

impl Database {
    /// Returns whether the database works, without using the device. Takes microseconds, so it can
    /// answer the probe of an orchestrator.
    #[must_use]
    pub fn health(&self) -> Health {
        health(&self.inner)
    }
}

fn health(engine: &Engine) -> Health {
    let mut health = Health { state: HealthState::Healthy, reasons: Vec::new() };
    if engine.is_closed() {
        health.add(HealthState::Failed, "the database is closed: open it again");
        return health;
    }
    if let Err(error) =
        engine.system.committed.check_whole().and_then(|()| engine.system.committed.check_commits())
    {
        health.add(HealthState::Failed, format!("{error}: open the database again"));
    }
    if engine.store.disk_space().is_disk_full() {
        health.add(HealthState::Degraded, "the disk has no space for pages: make room");
    }
    if engine.pool.eviction().has_error() {
        health.add(HealthState::Degraded, "pages cannot leave memory: the disk refuses their images");
    }
    if let Some(writing) = &engine.writing {
        let segments = &writing.segments;
        if segments.is_disk_full() {
            health.add(HealthState::Degraded, "the disk has no space for the log: make room");
        }
        let (used, most) = (segments.bytes_in_use(), engine.settings.log_bytes_max);
        if used > most / 10 * 9 {
            let what = format!(
                "the log holds {used} of {most} bytes (log_bytes_max): end long transactions, or find out why \
                 checkpoints fail"
            );
            health.add(HealthState::Degraded, what);
        }
    }
    health
}
