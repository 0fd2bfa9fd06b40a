//! One of several buckets: whether it counts, what waits for it, and whether it lacks something.
//!
//! ```text
//!   Unknown ──its manifest is read──▶ Counted ──it came back old or empty──▶ Excluded
//!                                        ▲                                       │
//!                                        └──repaired, under a new identity (O35)─┘
//! ```

use super::super::request::{Failure, FailureKind, Request};
use super::super::store::{Done, ObjectStore, StoreFacts};
use crate::base::clock::Clock;
use crate::device::BucketStatistics;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Event, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// Most bytes that wait for a bucket. What comes then is not sent there if enough others take it.
pub(in super::super) const WAITING_BYTES_MAX: u64 = 32 << 20;

/// A bucket that failed is asked as late as one with this latency in microseconds.
const FAILED_MICROS: u64 = 10_000_000;

/// Whether a bucket counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Its manifest was not read yet.
    Unknown,
    /// It has kept what it confirmed, as far as its manifest shows.
    Counted,
    /// It is not used, or not until it is repaired.
    Excluded {
        /// The reason.
        why: String,
        /// The writer may fill it and make it a bucket of the database again.
        may_join: bool,
    },
}

/// What the repair of a bucket has done.
#[derive(Clone, Copy, Default, Debug)]
pub struct Progress {
    /// Objects that the bucket is known to lack.
    pub missing: u64,
    /// Objects and blocks that were copied to it, and their bytes.
    pub copied: u64,
    /// Bytes of these.
    pub copied_bytes: u64,
}

/// One of several buckets.
#[derive(Debug)]
pub struct Bucket {
    /// Its URL without secrets.
    pub name: String,
    /// Requests to it.
    pub store: Arc<dyn ObjectStore>,
    /// The bucket whose place it takes.
    pub replaces: Option<String>,
    standing: Mutex<Standing>,
    is_counted: AtomicBool,
    /// Bytes of objects and blocks whose outcome is not known yet.
    waiting: AtomicU64,
    /// How long its reads take, in microseconds: a moving average.
    micros: AtomicU64,
    /// Rises when the bucket did not get something. While it is not `repaired`, it may lack that.
    missed: AtomicU64,
    repaired: AtomicU64,
    /// Happens when the bucket begins to lack something.
    lacks: Event,
    progress: Mutex<Progress>,
    /// What the last look at its manifest found to be wrong.
    problem: Mutex<Option<String>>,
    clock: Clock,
}

impl Bucket {
    pub(super) fn new(name: String, store: Arc<dyn ObjectStore>, replaces: Option<String>) -> Arc<Bucket> {
        Arc::new(Bucket {
            name,
            store,
            replaces,
            standing: Mutex::new(Standing::Unknown),
            is_counted: AtomicBool::new(false),
            waiting: AtomicU64::new(0),
            micros: AtomicU64::new(0),
            missed: AtomicU64::new(1),
            repaired: AtomicU64::new(0),
            lacks: Event::new(),
            progress: Mutex::default(),
            problem: Mutex::default(),
            clock: Clock::real(),
        })
    }

    /// Returns whether it counts, and why not.
    pub fn standing(&self) -> Standing {
        self.standing.lock().clone()
    }

    /// Returns whether it counts.
    pub fn is_counted(&self) -> bool {
        self.is_counted.load(Ordering::SeqCst)
    }

    /// Returns whether it is not used.
    pub fn is_excluded(&self) -> bool {
        matches!(*self.standing.lock(), Standing::Excluded { .. })
    }

    /// Counts it, unless it is excluded.
    pub fn count(&self) {
        let mut standing = self.standing.lock();
        if *standing == Standing::Unknown {
            *standing = Standing::Counted;
            self.is_counted.store(true, Ordering::SeqCst);
        }
    }

    /// Counts it after it was excluded: it has everything, and a register under a new identity.
    pub fn joined(&self) {
        let mut standing = self.standing.lock();
        *standing = Standing::Counted;
        self.is_counted.store(true, Ordering::SeqCst);
        tracing::info!(bucket = %self.name, "a bucket of the database counts again");
    }

    /// Does not use it any more. `may_join` says that the writer may fill it again.
    pub fn exclude(&self, why: &str, may_join: bool) {
        {
            let mut standing = self.standing.lock();
            if matches!(*standing, Standing::Excluded { .. }) {
                return;
            }
            *standing = Standing::Excluded { why: why.into(), may_join };
            self.is_counted.store(false, Ordering::SeqCst);
        }
        tracing::warn!(bucket = %self.name, %why, "a bucket of the database is not used any more");
        self.miss();
    }

    /// Does not use an excluded bucket for another reason, which no repair ends.
    pub fn forbid(&self, why: &str) {
        *self.standing.lock() = Standing::Excluded { why: why.into(), may_join: false };
        self.is_counted.store(false, Ordering::SeqCst);
    }

    /// Takes `bytes` into account that wait for this bucket, unless they are too many. `must` takes
    /// them in any case.
    pub fn admit(&self, bytes: u64, must: bool) -> bool {
        let before = self.waiting.fetch_add(bytes, Ordering::Relaxed);
        if must || before == 0 || before + bytes <= WAITING_BYTES_MAX {
            return true;
        }
        self.release(bytes);
        false
    }

    /// The outcome of `bytes` is known.
    pub fn release(&self, bytes: u64) {
        let before = self.waiting.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "what waited was admitted");
    }

    /// Notes that the bucket did not get something that it should have.
    pub fn miss(&self) {
        let before = self.missed.fetch_add(1, Ordering::SeqCst);
        if before == self.repaired.load(Ordering::SeqCst) {
            self.lacks.notify_all();
        }
    }

    /// Returns how often the bucket did not get something.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::SeqCst)
    }

    /// Notes that the bucket has everything that it had missed when [`Bucket::missed`] returned
    /// `missed`.
    pub fn repaired(&self, missed: u64) {
        self.repaired.fetch_max(missed, Ordering::SeqCst);
    }

    /// Returns whether it has everything, as far as is known.
    pub fn is_whole(&self) -> bool {
        self.repaired.load(Ordering::SeqCst) == self.missed()
    }

    /// Happens when the bucket begins to lack something.
    pub fn lacks(&self) -> &Event {
        &self.lacks
    }

    /// Changes what is shown of its repair.
    pub fn progress(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.progress.lock());
    }

    /// Notes what a look at its manifest found to be wrong.
    pub(super) fn note(&self, problem: Option<String>) {
        *self.problem.lock() = problem;
    }

    /// Returns how long its reads take, or a long time after a failure.
    pub fn read_time(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::Relaxed))
    }

    /// Notes that it does not answer.
    pub(super) fn is_late(&self) {
        self.micros.store(FAILED_MICROS, Ordering::Relaxed);
    }

    /// Returns what is known of it.
    pub fn statistics(&self) -> BucketStatistics {
        let (standing, progress) = (self.standing(), *self.progress.lock());
        let micros = self.micros.load(Ordering::Relaxed);
        let micros = Some(micros).filter(|micros| (1..FAILED_MICROS).contains(micros));
        BucketStatistics {
            name: self.name.clone(),
            is_counted: standing == Standing::Counted,
            is_whole: standing == Standing::Counted && self.is_whole(),
            problem: match standing {
                Standing::Excluded { why, .. } => Some(why),
                Standing::Counted => None,
                Standing::Unknown => self.problem.lock().clone(),
            },
            missing_objects: progress.missing,
            copied_objects: progress.copied,
            copied_bytes: progress.copied_bytes,
            waiting_bytes: self.waiting.load(Ordering::Relaxed),
            read_latency: micros.map(Duration::from_micros),
        }
    }

    /// Sends a request, and notes how long its reply takes.
    pub(super) fn send(self: &Arc<Self>, request: Request, done: Done) {
        let (this, begun) = (self.clone(), self.clock.now());
        let noted: Done = Box::new(move |outcome| {
            let took = this.clock.now().since(begun).as_micros() as u64;
            let is_answer = outcome.as_ref().err().is_none_or(|failure| failure.kind == FailureKind::Absent);
            let sample = if is_answer { took } else { FAILED_MICROS };
            let before = this.micros.load(Ordering::Relaxed);
            // An answer after failures counts at once.
            let after = if before >= FAILED_MICROS || sample >= FAILED_MICROS {
                sample
            } else {
                (7 * before + sample) / 8
            };
            this.micros.store(after, Ordering::Relaxed);
            done(outcome);
        });
        self.store.start(request, noted);
    }
}

/// A bucket as a store that refuses everything while the bucket does not count: it may hold another
/// database.
#[derive(Debug)]
pub struct CountedBucket(pub Arc<Bucket>);

impl ObjectStore for CountedBucket {
    fn start(&self, request: Request, done: Done) {
        match self.0.is_counted() {
            true => self.0.store.start(request, done),
            false => {
                let what = format!("the bucket {} does not count", self.0.name);
                done(Err(Failure { kind: FailureKind::Denied, what }));
            }
        }
    }

    fn facts(&self) -> StoreFacts {
        self.0.store.facts()
    }
}
