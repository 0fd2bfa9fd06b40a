//! Repair: the running writer gives a bucket what it lacks, and lets one join that came back old or
//! empty, or takes the place of another.
//!
//! ```text
//!   lists ──▶ copies objects that the manifest names ──▶ copies blocks of the log ──▶ puts the manifest
//!                                                                                    or joins the bucket
//! ```
//!
//! 1. Only copies are made, under the same names: a copy is what a first request would have put if
//!    it had been slow. So a copy of a writer that has ended does no more than that (O36).
//! 2. A bucket that joins has everything that was acknowledged before it stopped to count: what is
//!    confirmed later is in enough other buckets. So the repair takes the segments first, then
//!    lists the other buckets, then reads the manifest: what has left one of them is in the next
//!    one. Objects of this writer that no manifest names yet are copied, too (O35).
//! 3. A block of an earlier writer whose name is taken by a fence in some bucket is put into an
//!    object of this writer, in all of them, and the manifest names that object instead (O33).
//! 4. Fences stay for ever (O23), so a bucket must have those of all ended writers (O37). Otherwise
//!    a writer that was ended long ago reports blocks again, as soon as the buckets with its fences
//!    were emptied one after the other and filled again.
//! 5. The repair of a bucket runs when something was not sent to it, and then again with growing
//!    pauses until the bucket is whole. Each bucket has a thread, which sleeps otherwise.

use super::body::{Body, ObjectId, WriterEpoch, group_of};
use super::buckets::{Acceptors, Bucket, Buckets, Standing};
use super::frame::{Frame, FrameKind, is_fence};
use super::in_flight::InFlight;
use super::numbered::block_name;
use super::open_segment::OpenSegment;
use super::patience::{error_of, persist, read_all};
use super::pins::PREFIX as PINS;
use super::request::{Condition, FailureKind, Request};
use super::spread_segment::BLOCKS_AHEAD_MAX;
use super::store::{ObjectStore, Outcome};
use super::waiting::wait_for_all;
use crate::base::clock::{Clock, Nanos};
use crate::base::planted::{self, Bug};
use crate::base::{Error, ErrorKind, Result};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The longest pause between two attempts, and the longest time that a request is sent again.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Objects that are copied together.
const TOGETHER: usize = 4;
/// How long the end of the writer waits for requests of the repair.
const END_MAX: Duration = Duration::from_secs(1);
/// What the names of a database's objects begin with.
const OWN_NAMES: [&str; 6] = ["log/", "pages/", "files/", "pins/", "probe/", "manifest"];

/// The writer.
pub(super) trait Repaired: Send + Sync {
    /// Returns the newest confirmed body.
    fn body(&self) -> Body;

    /// Returns the segments that this writer fills, or has filled.
    fn own_segments(&self) -> Vec<Arc<dyn OpenSegment>>;

    /// Puts a manifest.
    ///
    /// # Errors
    /// As of any manifest.
    fn publish_body(&self) -> Result<()>;

    /// Leaves so many blocks of an earlier writer's segment under their own names, and puts the
    /// others into objects of this writer.
    ///
    /// # Errors
    /// I/O; as [`Repaired::publish_body`].
    fn shorten(&self, segment: u64, blocks: u64) -> Result<()>;
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Repair {
    acceptors: Arc<Acceptors>,
    patience: Duration,
    first_pause: Duration,
    is_over: AtomicBool,
    passes: InFlight,
}

impl Repair {
    /// Starts a thread for each bucket. Each waits for `first_pause` before it begins.
    ///
    /// # Errors
    /// I/O: no thread.
    pub(super) fn start(
        acceptors: &Arc<Acceptors>,
        owner: &Weak<dyn Repaired>,
        patience: Duration,
        first_pause: Duration,
    ) -> Result<Arc<Repair>> {
        let (passes, is_over) = (InFlight::default(), AtomicBool::new(false));
        let (acceptors, patience) = (acceptors.clone(), patience.min(PAUSE_MAX));
        let repair = Arc::new(Repair { acceptors, patience, first_pause, is_over, passes });
        for at in 0..repair.buckets().all().len() {
            let (own, owner) = (repair.clone(), owner.clone());
            let started = thread::spawn("quench-repair", move || own.run(at, &owner));
            if let Err(error) = started {
                repair.end();
                return Err(Error::io("no thread to repair a bucket", error));
            }
        }
        Ok(repair)
    }

    fn buckets(&self) -> &Buckets {
        self.acceptors.buckets()
    }

    /// Ends all repairs. Returns whether none of their requests is in flight; waits for that for
    /// about a second.
    pub(super) fn end(&self) -> bool {
        self.is_over.store(true, Ordering::SeqCst);
        self.buckets().all().iter().for_each(|bucket| {
            let _ = bucket.lacks().notify_all();
        });
        self.passes.wait(Some(END_MAX))
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Repairs a bucket whenever it lacks something, until the writer ends.
    fn run(&self, at: usize, owner: &Weak<dyn Repaired>) {
        let bucket = self.buckets().all()[at].clone();
        let mut pause = Some(self.first_pause);
        loop {
            self.sleep(&bucket, pause);
            if self.is_over() {
                return;
            }
            if !needs_repair(&bucket) {
                pause = None;
                continue;
            }
            self.passes.begin(1);
            // The end of the writer sees this pass, or this pass sees the end.
            let result = match owner.upgrade().filter(|_| !self.is_over()) {
                Some(owner) => self.pass(at, &bucket, &*owner),
                None => Ok(()),
            };
            self.passes.end();
            if let Err(error) = &result {
                tracing::debug!(bucket = %bucket.name, %error, "a bucket could not be repaired");
            }
            let last = pause.unwrap_or(self.first_pause);
            pause = Some(if result.is_ok() { self.first_pause } else { (2 * last).min(PAUSE_MAX) });
        }
    }

    /// Sleeps for `pause`; without one, until the bucket lacks something.
    fn sleep(&self, bucket: &Bucket, pause: Option<Duration>) {
        let clock = Clock::real();
        let until = pause.map(|pause| Nanos(clock.now().0.saturating_add(pause.as_nanos() as u64)));
        loop {
            let (ticket, now) = (bucket.lacks().ticket(), clock.now());
            let is_over = until.map_or_else(|| needs_repair(bucket), |until| now >= until);
            if is_over || self.is_over() {
                return;
            }
            bucket.lacks().wait(ticket, until.map(|until| until.since(now)));
        }
    }

    /// Gives a bucket what it lacks at the moment.
    fn pass(&self, at: usize, bucket: &Arc<Bucket>, owner: &dyn Repaired) -> Result<()> {
        let missed = bucket.missed();
        let joins = match bucket.standing() {
            Standing::Counted => false,
            Standing::Excluded { .. } => true,
            // If it can be reached, it counts from now on.
            Standing::Unknown => return self.refresh(at, owner),
        };
        if joins {
            self.check_place(at, bucket)?;
        }
        let segments = owner.own_segments();
        let unnamed = if joins { self.list_own(owner.body().epoch)? } else { BTreeSet::new() };
        let there = list(&*bucket.store, "", self.patience)?;
        self.free_of_fences(&there, owner)?;
        let mut wanted = named(&owner.body());
        wanted.extend(unnamed);
        let missing: Vec<String> = wanted.into_iter().filter(|name| !there.contains_key(name)).collect();
        bucket.progress(|progress| progress.missing = missing.len() as u64);
        if joins && planted::is(Bug::JoinedEmpty) {
            return self.acceptors.join(at, || owner.publish_body(), || owner.body());
        }
        for names in missing.chunks(TOGETHER) {
            self.copy(bucket, names, owner)?;
        }
        self.copy_pins(bucket, &there, owner)?;
        segments.iter().try_for_each(|segment| self.go_on().and_then(|()| segment.catch_up(at)))?;
        self.fence(bucket, owner)?;
        if joins {
            // What came in the meantime is copied by the next pass.
            return self.acceptors.join(at, || owner.publish_body(), || owner.body());
        }
        self.refresh(at, owner)?;
        bucket.repaired(missed);
        Ok(())
    }

    /// Puts blocks of earlier writers elsewhere in whose place a bucket has a fence.
    fn free_of_fences(&self, there: &BTreeMap<String, u64>, owner: &dyn Repaired) -> Result<()> {
        for entry in owner.body().segments {
            let blocks = entry.accepted.as_ref().map_or(0, |accepted| accepted.blocks);
            let is_fenced = |id, number| there.get(&block_name(id, number)).is_some_and(|len| is_fence(*len));
            let first = entry.ids().filter_map(|id| (1..=blocks).find(|number| is_fenced(id, *number))).min();
            if let Some(first) = first {
                self.go_on()?;
                owner.shorten(entry.number, first - 1)?;
            }
        }
        Ok(())
    }

    /// Ends earlier writers in a bucket that were ended in others (O37). Their next blocks there
    /// would have one of these numbers, whatever the bucket had before.
    fn fence(&self, bucket: &Bucket, owner: &dyn Repaired) -> Result<()> {
        let Body { identity, epoch, nonce, fenced, .. } = owner.body();
        let frame = Frame { kind: FrameKind::Fence, identity, epoch, nonce }.encode_short(true);
        let there = list(&*bucket.store, "log/", self.patience)?;
        let has: BTreeSet<ObjectId> = fenced_in(&there).collect();
        let is_missing = |id: &ObjectId| !has.contains(id) && !planted::is(Bug::FencesForgotten);
        for (id, blocks) in fenced.into_iter().filter(|(id, _)| is_missing(id)) {
            self.go_on()?;
            for number in blocks + 1..=blocks + 1 + BLOCKS_AHEAD_MAX {
                let (name, body, condition) = (block_name(id, number), frame.clone(), Condition::Absent);
                match persist(&*bucket.store, &Request::Put { name, body, condition }, self.patience) {
                    Ok(_) => {}
                    // A block that does not count, or a copy of this fence.
                    Err(failure) if failure.kind == FailureKind::Refused => {}
                    Err(failure) => {
                        return Err(error_of(&failure, "a fence cannot be put", &block_name(id, number)));
                    }
                }
            }
        }
        Ok(())
    }

    fn go_on(&self) -> Result<()> {
        match self.is_over() {
            true => Err(Error::new(ErrorKind::Io, "the writer has ended")),
            false => Ok(()),
        }
    }

    fn refresh(&self, at: usize, owner: &dyn Repaired) -> Result<()> {
        self.go_on()?;
        match self.acceptors.refresh(at, owner.body()) {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Io, "the manifest cannot be put into the bucket")),
        }
    }

    /// Checks that a bucket that joins holds nothing else.
    fn check_place(&self, at: usize, bucket: &Bucket) -> Result<()> {
        let failed = |failure| error_of(&failure, "the bucket cannot be read", "manifest");
        let refused = self.acceptors.refuses(at).map_err(failed)?;
        let refused = match refused {
            Some(what) => Some(what),
            None => {
                let there = list(&*bucket.store, "", self.patience)?;
                let is_own = |name: &String| OWN_NAMES.iter().any(|own| name.starts_with(own));
                let foreign = there.keys().find(|name| !is_own(name));
                foreign.map(|name| format!("it holds other objects, such as {name}"))
            }
        };
        let Some(what) = refused else { return Ok(()) };
        bucket.forbid(&what);
        tracing::warn!(bucket = %bucket.name, %what, "a bucket cannot join the database");
        Err(Error::new(ErrorKind::InvalidArgument, what))
    }

    /// Returns the objects of this writer in the buckets that count, whether a manifest names them
    /// or will.
    fn list_own(&self, epoch: WriterEpoch) -> Result<BTreeSet<String>> {
        let mut own = BTreeSet::new();
        for prefix in ["pages/", "files/"] {
            let listed = list(self.buckets(), prefix, self.patience)?;
            let is_own = |name: &String| group_of(name).is_some_and(|(_, object)| object.epoch == epoch);
            own.extend(listed.into_keys().filter(is_own));
        }
        Ok(own)
    }

    /// Copies objects from the other buckets.
    fn copy(&self, bucket: &Bucket, names: &[String], owner: &dyn Repaired) -> Result<()> {
        self.go_on()?;
        let wanted: Vec<_> = names.iter().map(|name| (name.clone(), None)).collect();
        let mut bodies = Vec::new();
        for (name, outcome) in names.iter().zip(read_all(self.buckets(), &wanted, self.patience)) {
            match outcome {
                Ok(reply) => bodies.push((name, reply.body)),
                // A manifest has dropped it meanwhile.
                Err(failure) if failure.kind == FailureKind::Absent && !names_it(&owner.body(), name) => {}
                Err(failure) => return Err(error_of(&failure, "an object cannot be copied", name)),
            }
        }
        // Only one writer uses the name, and always with these bytes; or there is a fence.
        let outcomes: Vec<Outcome> = wait_for_all(bodies.len(), |at, done| {
            let (name, body) = (bodies[at].0.clone(), bodies[at].1.clone());
            let condition = if name.starts_with("log/") { Condition::Absent } else { Condition::Always };
            bucket.store.start(Request::Put { name, body, condition }, done);
        });
        for ((name, _), outcome) in bodies.iter().zip(outcomes) {
            outcome.map_err(|failure| error_of(&failure, "a copy of an object cannot be put", name))?;
        }
        bucket.progress(|progress| {
            progress.missing = progress.missing.saturating_sub(names.len() as u64);
            progress.copied += bodies.len() as u64;
            progress.copied_bytes += bodies.iter().map(|(_, body)| body.len() as u64).sum::<u64>();
        });
        Ok(())
    }

    /// Copies the pins of readers, and removes the copy of one that has ended meanwhile.
    fn copy_pins(&self, bucket: &Bucket, there: &BTreeMap<String, u64>, owner: &dyn Repaired) -> Result<()> {
        let pins = list(self.buckets(), PINS, self.patience)?;
        let missing: Vec<String> = pins.into_keys().filter(|name| !there.contains_key(name)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        for names in missing.chunks(TOGETHER) {
            self.copy(bucket, names, owner)?;
        }
        for name in missing {
            let head = Request::Head { name: name.clone() };
            let sources = self.buckets().all().iter().filter(|source| source.name != bucket.name);
            let has_it = |source: &Arc<Bucket>| persist(&*source.store, &head, self.patience).is_ok();
            if !sources.filter(|source| source.is_counted()).any(has_it) {
                bucket.store.start(Request::Delete { name }, Box::new(|_| ()));
            }
        }
        Ok(())
    }
}

/// Returns whether a repair could do something for the bucket.
fn needs_repair(bucket: &Bucket) -> bool {
    match bucket.standing() {
        Standing::Unknown => true,
        Standing::Counted => !bucket.is_whole(),
        Standing::Excluded { may_join, .. } => may_join,
    }
}

/// Returns the names of all immutable objects that a manifest names.
fn named(body: &Body) -> BTreeSet<String> {
    let extents = body.runs.iter().map(|run| run.object.pages_name());
    let files = body.files.iter().filter(|file| file.len > 0).map(|file| file.object.file_name());
    let tails = body.segments.iter().flat_map(|entry| entry.tails()).map(|id| id.log_name());
    let accepted = body.segments.iter().flat_map(|entry| {
        let blocks = entry.accepted.as_ref().map_or(0, |accepted| accepted.blocks);
        entry.ids().flat_map(move |id| (1..=blocks).map(move |number| block_name(id, number)))
    });
    extents.chain(files).chain(tails).chain(accepted).collect()
}

fn names_it(body: &Body, name: &str) -> bool {
    named(body).contains(name)
}

/// Returns the segments in a list that have a fence.
fn fenced_in(there: &BTreeMap<String, u64>) -> impl Iterator<Item = ObjectId> + '_ {
    let fences = there.iter().filter(|(name, len)| name.starts_with("log/") && is_fence(**len));
    fences.filter_map(|(name, _)| group_of(name)).map(|(_, id)| id)
}

/// Returns the names and lengths of all objects of a store with this prefix.
fn list(store: &dyn ObjectStore, prefix: &str, patience: Duration) -> Result<BTreeMap<String, u64>> {
    let listed = persist(store, &Request::List { prefix: prefix.into() }, patience)
        .map_err(|failure| error_of(&failure, "the objects of a bucket cannot be listed", prefix))?
        .listed;
    Ok(listed.into_iter().map(|object| (object.name, object.len)).collect())
}
