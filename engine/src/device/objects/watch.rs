//! A busy writer looks at the manifest now and then, and stops if it finds a later claim (O16).
//!
//! This is for the new writer's sake: it cannot put a fence behind an object that grows all the
//! time. No decision about a block depends on it. An idle writer does not look.

use super::body::{Body, MANIFEST_NAME, WriterEpoch};
use super::register::fenced;
use super::request::Request;
use super::store::ObjectStore;
use crate::base::Result;
use crate::base::clock::Clock;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Watch {
    store: Arc<dyn ObjectStore>,
    own: WriterEpoch,
    interval: Duration,
    clock: Clock,
    /// When the next look is due, in nanoseconds of the clock.
    next: AtomicU64,
    /// The later epoch that was found; 0 if there is none.
    later: AtomicU64,
}

impl Watch {
    pub(super) fn new(store: Arc<dyn ObjectStore>, own: WriterEpoch, interval: Duration) -> Arc<Watch> {
        let clock = Clock::real();
        let next = AtomicU64::new(clock.now().0 + interval.as_nanos() as u64);
        Arc::new(Watch { store, own, interval, clock, next, later: AtomicU64::new(0) })
    }

    /// Fails if a later claim was found. Starts the next look if it is due.
    ///
    /// # Errors
    /// `Fenced`.
    pub(super) fn check(self: &Arc<Self>) -> Result<()> {
        let later = self.later.load(Ordering::Relaxed);
        if later > 0 {
            return Err(fenced(self.own, WriterEpoch(later)));
        }
        let (now, due) = (self.clock.now().0, self.next.load(Ordering::Relaxed));
        let then = now + self.interval.as_nanos() as u64;
        if now >= due && self.next.compare_exchange(due, then, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            let this = self.clone();
            let look = Request::Get { name: MANIFEST_NAME.into(), range: None };
            self.store.start(
                look,
                Box::new(move |outcome| {
                    let body = outcome.ok().and_then(|reply| Body::decode(&reply.body).ok());
                    if let Some(body) = body.filter(|body| body.epoch > this.own) {
                        this.later.store(body.epoch.0, Ordering::Relaxed);
                    }
                }),
            );
        }
        Ok(())
    }
}
