//! Pacing: how fast a checkpoint writes.
//!
//! A background checkpoint should not slow other work. It has a budget: it must end before replay
//! of the log exceeds `recovery_seconds`, before the older versions that it needs fill the memory
//! for versions, before too many blocks are in use twice (see `space`), and in any case after a
//! while. The pacer compares the share of finished work with the used share of the budget, and the
//! checkpoint sleeps while it is ahead:
//!
//! ```text
//!   done  1 ┤                    ╱ work            used = the largest of
//!           │                 ╱╱╱                         log written since the beginning / what may be written
//!           │    sleeps    ╱╱╱                            version memory taken since / what may be taken
//!           │          ╱╱╱╱                               blocks replaced or changed since / what may be
//!           │        ╱╱                                   time since / SPREAD_MAX
//!         0 ┼──────────────────▶ used 1
//! ```
//!
//! No rate has to be guessed: a higher load uses the budget faster, and the checkpoint runs faster.
//! Without any budget left it runs as fast as it can.

use crate::base::clock::{Clock, Nanos};
use crate::sync::thread;
use std::time::Duration;

/// Longest time over which a checkpoint is spread.
const SPREAD_MAX: Duration = Duration::from_secs(30);
/// Time per page of a small database, which is spread less: slow enough not to disturb.
const SPREAD_PER_PAGE: Duration = Duration::from_micros(500);
/// Longest sleep before the budget is checked again.
const SLEEP: Duration = Duration::from_millis(5);
const SLEEPS_MAX: u32 = 200;
/// The work stays this far ahead of the budget, because the end of a checkpoint (mapping, flush,
/// manifest) is not paced.
const AHEAD: f64 = 0.15;

/// A quantity that grows while a checkpoint runs: the present amount, and the limit.
pub type Meter<'a> = Box<dyn Fn() -> (u64, u64) + Send + Sync + 'a>;

/// Keeps a checkpoint at the pace that its budget allows.
pub struct Pacer<'a> {
    meters: Vec<(Meter<'a>, u64)>,
    clock: Clock,
    begun: Nanos,
    spread: Duration,
    /// Ends pacing: the database is being closed.
    hurry: Box<dyn Fn() -> bool + Send + Sync + 'a>,
}

impl std::fmt::Debug for Pacer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pacer({:.2} of the budget used)", self.used())
    }
}

impl<'a> Pacer<'a> {
    /// A pacer for a database of `pages`, with a budget that begins now.
    #[must_use]
    pub fn new(
        clock: Clock,
        pages: u64,
        meters: Vec<Meter<'a>>,
        hurry: impl Fn() -> bool + Send + Sync + 'a,
    ) -> Pacer<'a> {
        let meters = meters.into_iter().map(|meter| {
            let (now, _) = meter();
            (meter, now)
        });
        let spread = SPREAD_PER_PAGE.saturating_mul(pages.min(u32::MAX.into()) as u32).min(SPREAD_MAX);
        Pacer { meters: meters.collect(), begun: clock.now(), clock, spread, hurry: Box::new(hurry) }
    }

    /// Returns the used part of the budget, 0 to 1.
    fn used(&self) -> f64 {
        let time = self.clock.now().since(self.begun).as_secs_f64() / self.spread.as_secs_f64().max(1e-6);
        let used = self.meters.iter().map(|(meter, before)| {
            let (now, most) = meter();
            now.saturating_sub(*before) as f64 / most.saturating_sub(*before).max(1) as f64
        });
        used.fold(time, f64::max).min(1.0)
    }

    /// Sleeps while the finished share `done`, 0 to 1, is ahead of the budget and `hurry` is false.
    /// The sleep is bounded, so that a stopped clock only makes the checkpoint slow.
    pub fn pause(&self, done: f64, hurry: impl Fn() -> bool) {
        for _ in 0..SLEEPS_MAX {
            if hurry() || (self.hurry)() || done <= self.used() + AHEAD {
                return;
            }
            thread::sleep(SLEEP);
        }
    }

    /// Sleeps a little unless `hurry` is true, for work after a checkpoint, which has no budget.
    pub fn rest(&self, hurry: impl Fn() -> bool) {
        if !hurry() && !(self.hurry)() {
            thread::sleep(SLEEP);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::atomic::{AtomicU64, Ordering};
    use std::sync::Arc;

    #[test]
    fn the_meter_that_is_used_up_most_counts() {
        let clock = Clock::manual();
        let (log, versions) = (Arc::new(AtomicU64::new(100)), Arc::new(AtomicU64::new(0)));
        let meter = |value: &Arc<AtomicU64>, most: u64| -> Meter<'static> {
            let value = value.clone();
            Box::new(move || (value.load(Ordering::Relaxed), most))
        };
        let meters = vec![meter(&log, 300), meter(&versions, 1000)];
        let pacer = Pacer::new(clock.clone(), u64::MAX, meters, || false);
        assert_eq!(pacer.used(), 0.0);
        log.store(150, Ordering::Relaxed);
        versions.store(100, Ordering::Relaxed);
        assert_eq!(pacer.used(), 0.25);
        versions.store(800, Ordering::Relaxed);
        assert_eq!(pacer.used(), 0.8);
        log.store(5000, Ordering::Relaxed);
        assert_eq!(pacer.used(), 1.0);
        clock.advance(SPREAD_MAX / 2);
        log.store(0, Ordering::Relaxed);
        versions.store(0, Ordering::Relaxed);
        assert_eq!(pacer.used(), 0.5);
    }

    #[test]
    fn work_ahead_of_the_budget_waits_and_work_behind_it_does_not() {
        let used = Arc::new(AtomicU64::new(0));
        let meter = used.clone();
        let meters: Vec<Meter<'_>> = vec![Box::new(move || (meter.load(Ordering::Relaxed), 100))];
        let pacer = Pacer::new(Clock::manual(), u64::MAX, meters, || false);
        pacer.pause(0.1, || false);
        let looks = AtomicU64::new(0);
        let look = || looks.fetch_add(1, Ordering::SeqCst) == u64::MAX;
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| pacer.pause(0.5, look));
            while !waiting.is_finished() && looks.load(Ordering::SeqCst) < 3 {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(looks.load(Ordering::SeqCst) >= 3, "half is done, and nothing is used");
            used.store(40, Ordering::Relaxed);
        });
        let hurried = Pacer::new(Clock::manual(), u64::MAX, Vec::new(), || true);
        hurried.pause(1.0, || false);
        let begun = std::time::Instant::now();
        pacer.rest(|| false);
        assert!(begun.elapsed() >= SLEEP);
        Pacer::new(Clock::manual(), u64::MAX, Vec::new(), || false).pause(1.0, || true);
    }
}
