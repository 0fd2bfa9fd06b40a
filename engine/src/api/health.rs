//! Whether an open database works, in one word, and why not.

use super::engine::Engine;
use crate::base::clock::Nanos;
use std::time::Duration;

/// A commit that has waited so long is a reason to look.
const PATIENCE: Duration = Duration::from_secs(2);

/// How well a database works.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum HealthState {
    /// Everything works.
    #[default]
    Healthy,
    /// Reads and commits work, or some of them; an administrator should look.
    Degraded,
    /// Nothing can be committed any more: open the database again.
    Failed,
}

impl HealthState {
    /// Returns the state as a word: `healthy`, `degraded` or `failed`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            HealthState::Healthy => "healthy",
            HealthState::Degraded => "degraded",
            HealthState::Failed => "failed",
        }
    }
}

/// The state of a database, and the reasons for it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Health {
    /// The worst that one of the reasons stands for.
    pub state: HealthState,
    /// Each one says what is wrong and what to do. None if the database is healthy.
    pub reasons: Vec<String>,
    /// Whole seconds since the oldest of the reasons began, of those for which that is known.
    pub seconds: u64,
}

impl Health {
    fn add(&mut self, state: HealthState, reason: impl Into<String>) {
        self.state = self.state.max(state);
        self.reasons.push(reason.into());
    }

    /// Adds a reason that began at a known moment.
    fn add_since(&mut self, engine: &Engine, since: Nanos, reason: &str, advice: &str) {
        let seconds = engine.clock.now().since(since).as_secs();
        self.seconds = self.seconds.max(seconds);
        self.add(HealthState::Degraded, format!("{reason}, for {seconds} s: {advice}"));
    }
}

/// Returns whether the database works. Takes no lock in a forked child.
pub(super) fn health(engine: &Engine) -> Health {
    let mut health = Health::default();
    if let Err(unusable) = engine.check_usable() {
        health.add(HealthState::Failed, unusable.message());
        return health;
    }
    let committed = &engine.system.committed;
    if let Err(error) = committed.check_whole().and_then(|()| committed.check_commits()) {
        health.add(HealthState::Failed, format!("{error}: open the database again"));
    }
    add_commits(engine, &mut health);
    add_memory(engine, &mut health);
    add_log(engine, &mut health);
    health
}

/// What keeps commits waiting.
fn add_commits(engine: &Engine, health: &mut Health) {
    let standing =
        engine.system.committed.running().and_then(|commit| commit.inspect().standing_write(PATIENCE));
    if let Some((log, since)) = standing {
        let what = format!("commits wait, because a write of log {log} does not complete");
        health.add_since(engine, since, &what, "look at the device, or at the store of objects");
    }
}

fn add_memory(engine: &Engine, health: &mut Health) {
    if let Some(since) = engine.system.versions.full_since() {
        let ((used, most), oldest) = (engine.system.versions.bytes(), engine.system.versions.snapshots().1);
        let what = format!(
            "commits that change rows fail, because old versions take {used} of {most} bytes (version_bytes), and \
             a snapshot or transaction at CSN {oldest} keeps them"
        );
        health.add_since(engine, since, &what, "end long snapshots and transactions");
    }
    if let Some(since) = engine.store.disk_space().disk_full_since() {
        health.add_since(engine, since, "the disk has no space for pages", "make room");
    }
    if engine.pool.eviction().has_error() {
        health.add(HealthState::Degraded, "pages cannot leave memory: the disk refuses their images");
    }
}

fn add_log(engine: &Engine, health: &mut Health) {
    let Some(writing) = &engine.writing else { return };
    let segments = &writing.segments;
    for (what, since) in segments.troubles(PATIENCE) {
        health.add_since(engine, since, &what, "look at the directory and the device");
    }
    if let Some(since) = segments.disk_full_since() {
        health.add_since(engine, since, "the disk has no space for the log", "make room");
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
