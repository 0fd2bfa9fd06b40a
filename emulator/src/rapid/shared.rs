//! What all requests of a zonal bucket share.

use super::faults::{RapidFault, RapidFaults, RapidStep};
use super::objects::Objects;
use super::options::{RapidLatency, RapidMistake, RapidOptions};
use super::timer::Timer;
use quenchdb::internals::device::objects::rapid::{Bucket, GetBucketRequest};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tonic::Status;

/// What all requests share.
#[derive(Debug)]
pub(super) struct Shared {
    pub options: RapidOptions,
    objects: Mutex<Objects>,
    random: Mutex<(fastrand::Rng, RapidFaults)>,
    pub timer: Timer,
    /// Requests by method, and faults.
    counts: Mutex<BTreeMap<String, u64>>,
}

impl Shared {
    /// # Errors
    /// The system refuses a thread; the directory cannot be opened.
    pub fn new(options: RapidOptions) -> io::Result<Shared> {
        let objects = Mutex::new(Objects::open_store(&options)?);
        let random = Mutex::new((fastrand::Rng::with_seed(options.seed), options.faults.clone()));
        let timer = Timer::start()?;
        Ok(Shared { options, objects, random, timer, counts: Mutex::default() })
    }

    pub fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn random(&self) -> MutexGuard<'_, (fastrand::Rng, RapidFaults)> {
        self.random.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_faults(&self, faults: RapidFaults) {
        self.random().1 = faults;
    }

    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn count(&self, what: &str) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(what.into()).or_default() += 1;
    }

    /// Draws what goes wrong at a step.
    pub fn draw(&self, step: RapidStep) -> Option<RapidFault> {
        let fault = {
            let mut guard = self.random();
            let (random, faults) = &mut *guard;
            faults.draw(step, random)
        };
        if fault.is_some() {
            self.count("faults");
        }
        fault
    }

    pub fn chance(&self) -> bool {
        self.random().0.bool()
    }

    /// Returns the refusal of credentials: they may have expired, or lack a permission.
    pub fn denied(&self) -> Status {
        match self.chance() {
            true => Status::permission_denied("the caller lacks a permission for this bucket"),
            false => Status::unauthenticated("the credentials have expired"),
        }
    }

    pub fn below(&self, end: usize) -> usize {
        self.random().0.usize(..end.max(1))
    }

    /// Returns how many of some unflushed bytes stay when their stream ends: all, none, or a part.
    pub fn keeps_unflushed(&self) -> impl FnOnce(usize) -> usize {
        let (which, part) = {
            let mut random = self.random();
            (random.0.u8(..3), random.0.f64())
        };
        let loses = self.objects().makes(RapidMistake::UnflushedReported);
        move |bytes| match which {
            _ if loses => 0,
            0 => 0,
            1 => bytes,
            _ => (bytes as f64 * part) as usize,
        }
    }

    pub fn open_time(&self) -> Duration {
        self.options.latency.open(&mut self.random().0)
    }

    pub fn read_time(&self) -> Duration {
        self.options.latency.read(&mut self.random().0)
    }

    pub fn flush_time(&self, bytes: usize) -> Duration {
        self.options.latency.flush(bytes, &mut self.random().0)
    }

    pub async fn rest(&self, time: Duration) {
        if self.options.latency != RapidLatency::None {
            self.timer.until(Instant::now() + time).await;
        }
    }

    /// # Errors
    /// It is not the bucket of this server.
    pub fn check_bucket(&self, name: &str) -> Result<(), Status> {
        match name.strip_prefix("projects/_/buckets/") {
            Some(bucket) if bucket == self.options.bucket => Ok(()),
            Some(bucket) => Err(Status::not_found(format!("there is no bucket {bucket}"))),
            None => Err(Status::invalid_argument("the name of the bucket begins with projects/_/buckets/")),
        }
    }

    pub async fn bucket(self: Arc<Self>, message: GetBucketRequest) -> Result<Bucket, Status> {
        self.check_bucket(&message.name)?;
        let location = "us-central1".into();
        let storage_class = self.options.class.clone();
        Ok(Bucket { name: message.name, location, storage_class })
    }
}
