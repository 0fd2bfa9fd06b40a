//! Several buckets as one store: immutable objects in a majority, reads from whichever has them.
//!
//! 1. A put goes to all buckets that count, and succeeds when enough of them confirmed it (O30).
//!    Names are used once (O1), so each copy of a name has the same bytes, except fences, which are
//!    no copies: see 3.
//! 2. A read asks one bucket after the other, the fastest first. An object is absent if so many
//!    buckets do not have it that it never was in a majority.
//! 3. A list is the union of a majority. Where one bucket has a block and another a fence of the
//!    same name, the block is shown and read.
//! 4. A read of `manifest` reads a majority and returns the newest body, with the last claim that
//!    any of them has promised. A bucket that is older than what it once confirmed is not counted.
//! 5. What waits for a slow bucket is bounded. Beyond that, an object is not sent there.

use super::super::body::{Body, MANIFEST_NAME};
use super::super::frame::is_fence;
use super::super::request::{Condition, Failure, FailureKind, Listed, Reply, Request, Version};
use super::super::store::{Done, ObjectStore, Outcome, StoreFacts};
use super::record::Record;
use crate::base::clock::Clock;
use crate::base::planted::{self, Bug};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

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
    /// It is not used until it is repaired.
    Excluded(String),
}

/// One of several buckets.
#[derive(Debug)]
pub struct Bucket {
    /// Its URL without secrets.
    pub name: String,
    /// Requests to it.
    pub store: Arc<dyn ObjectStore>,
    standing: Mutex<Standing>,
    /// Bytes of objects and blocks whose outcome is not known yet.
    waiting: AtomicU64,
    /// How long its reads take, in microseconds: a moving average.
    micros: AtomicU64,
    clock: Clock,
}

impl Bucket {
    fn new(name: String, store: Arc<dyn ObjectStore>) -> Arc<Bucket> {
        let (standing, waiting, micros) =
            (Mutex::new(Standing::Unknown), AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Bucket { name, store, standing, waiting, micros, clock: Clock::real() })
    }

    /// Returns whether it counts.
    pub fn standing(&self) -> Standing {
        self.standing.lock().clone()
    }

    /// Returns whether it counts.
    pub fn is_counted(&self) -> bool {
        *self.standing.lock() == Standing::Counted
    }

    /// Returns whether it is not used until it is repaired.
    pub fn is_excluded(&self) -> bool {
        matches!(*self.standing.lock(), Standing::Excluded(_))
    }

    /// Counts it, unless it is excluded.
    pub fn count(&self) {
        let mut standing = self.standing.lock();
        if *standing == Standing::Unknown {
            *standing = Standing::Counted;
        }
    }

    /// Does not use it any more.
    pub fn exclude(&self, why: &str) {
        let before = std::mem::replace(&mut *self.standing.lock(), Standing::Excluded(why.into()));
        if !matches!(before, Standing::Excluded(_)) {
            tracing::warn!(bucket = %self.name, %why, "a bucket of the database is not used any more");
        }
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

    /// Sends a request, and notes how long its reply takes.
    fn send(self: &Arc<Self>, request: Request, done: Done) {
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

type Replies = Vec<(usize, Outcome)>;
/// Looks at the replies so far, with the number of those that are missing, and returns the outcome
/// of the whole when it is known. Also called for later replies, with `true`.
type Judge = Box<dyn FnMut(&Replies, usize, bool) -> Option<Outcome> + Send>;

/// A request to several buckets.
struct Asked {
    replies: Replies,
    left: usize,
    judge: Judge,
    done: Option<Done>,
}

impl Asked {
    /// Returns the call that ends the request, if it ends now.
    fn judge(&mut self) -> Option<(Done, Outcome)> {
        let outcome = (self.judge)(&self.replies, self.left, self.done.is_none())?;
        Some((self.done.take()?, outcome))
    }
}

/// See the module's text. Clones share the buckets.
#[derive(Clone, Debug)]
pub struct Buckets {
    all: Arc<Vec<Arc<Bucket>>>,
    /// Copies that make an object or a block durable.
    durable: usize,
}

/// Returns the failure that says most about a request to several buckets, or one with `what`.
fn failure_of(replies: &Replies, what: &str) -> Failure {
    let rank = |kind: FailureKind| match kind {
        FailureKind::Throttled | FailureKind::Unknown => 0,
        FailureKind::Again => 1,
        FailureKind::Forbidden => 2,
        _ => 3,
    };
    let failures = replies.iter().filter_map(|(_, outcome)| outcome.as_ref().err());
    match failures.min_by_key(|failure| rank(failure.kind)) {
        Some(failure) => Failure { kind: failure.kind, what: format!("{what}: {}", failure.what) },
        None => Failure { kind: FailureKind::Unknown, what: what.into() },
    }
}

fn successes(replies: &Replies) -> usize {
    replies.iter().filter(|(_, outcome)| outcome.is_ok()).count()
}

impl Buckets {
    /// Joins stores, each with its URL. `all` says whether each copy must be confirmed, or a
    /// majority.
    #[must_use]
    pub fn new(stores: Vec<(String, Arc<dyn ObjectStore>)>, all: bool) -> Buckets {
        let buckets: Vec<_> = stores.into_iter().map(|(name, store)| Bucket::new(name, store)).collect();
        let durable = if all { buckets.len() } else { buckets.len() / 2 + 1 };
        Buckets { all: Arc::new(buckets), durable }
    }

    /// Returns the buckets.
    #[must_use]
    pub fn all(&self) -> &[Arc<Bucket>] {
        &self.all
    }

    /// Returns how many buckets are a majority.
    #[must_use]
    pub fn quorum(&self) -> usize {
        self.all.len() / 2 + 1
    }

    /// Returns how many copies make an object durable.
    #[must_use]
    pub fn durable(&self) -> usize {
        match planted::is(Bug::OneBucketAcknowledges) {
            true => 1,
            false => self.durable,
        }
    }

    fn ask(&self, targets: &[usize], request: &Request, judge: Judge, done: Done) {
        let asked = Asked { replies: Vec::new(), left: targets.len(), judge, done: Some(done) };
        let asked = Arc::new(Mutex::new(asked));
        if targets.is_empty() {
            let ended = asked.lock().judge();
            return ended.into_iter().for_each(|(done, outcome)| done(outcome));
        }
        for &target in targets {
            let asked = asked.clone();
            let replied = move |outcome| {
                let ended = {
                    let mut asked = asked.lock();
                    asked.left -= 1;
                    asked.replies.push((target, outcome));
                    asked.judge()
                };
                ended.into_iter().for_each(|(done, outcome)| done(outcome));
            };
            self.all[target].send(request.clone(), Box::new(replied));
        }
    }

    fn targets(&self, which: impl Fn(&Bucket) -> bool) -> Vec<usize> {
        (0..self.all.len()).filter(|target| which(&self.all[*target])).collect()
    }

    fn put(&self, request: &Request, bytes: u64, done: Done) {
        let counted = self.targets(Bucket::is_counted);
        let (needed, mut left) = (self.durable(), counted.len());
        let mut targets = Vec::new();
        for target in counted {
            match self.all[target].admit(bytes, left <= needed) {
                true => targets.push(target),
                false => left -= 1,
            }
        }
        let (all, mut released) = (self.all.clone(), 0);
        let judge: Judge = Box::new(move |replies, left, is_over| {
            replies[released..].iter().for_each(|(target, _)| all[*target].release(bytes));
            released = replies.len();
            if is_over {
                return None;
            }
            if let (true, Some(reply)) = (successes(replies) >= needed, first_of(replies)) {
                return Some(Ok(reply));
            }
            let is_hopeless = successes(replies) + left < needed;
            is_hopeless.then(|| Err(failure_of(replies, "too few buckets have taken an object")))
        });
        self.ask(&targets, request, judge, done);
    }

    /// Asks one bucket after the other, until one has the object.
    fn read(self, mut order: Vec<usize>, request: Request, mut replies: Replies, done: Done) {
        let Some(target) = order.pop() else {
            let is_absent = |(target, outcome): &&(usize, Outcome)| {
                let failure = outcome.as_ref().err();
                failure.is_some_and(|failure| failure.kind == FailureKind::Absent)
                    && !self.all[*target].is_excluded()
            };
            let absent = replies.iter().filter(is_absent).count();
            let never = self.all.len() - self.quorum() + 1;
            let what = format!("`{}` is in none of the buckets that answer", request.name());
            let failure = match absent >= never {
                true => Failure { kind: FailureKind::Absent, what },
                false => {
                    let mut failure = failure_of(&replies, &what);
                    if failure.kind == FailureKind::Absent {
                        failure.kind = FailureKind::Unknown;
                    }
                    failure
                }
            };
            return done(Err(failure));
        };
        let (bucket, again) = (self.all[target].clone(), request.clone());
        let replied = move |outcome: Outcome| match outcome {
            Ok(reply) if !(again.name().starts_with("log/") && is_fence(reply.len)) => done(Ok(reply)),
            Ok(_) => {
                let failure = Failure { kind: FailureKind::Absent, what: "a fence is in its place".into() };
                replies.push((target, Err(failure)));
                self.read(order, again, replies, done);
            }
            Err(failure) => {
                replies.push((target, Err(failure)));
                self.read(order, again, replies, done);
            }
        };
        bucket.send(request, Box::new(replied));
    }

    /// Returns all buckets, the best one last.
    fn order(&self) -> Vec<usize> {
        let mut order = self.targets(|_| true);
        let rank = |target: &usize| {
            let bucket = &self.all[*target];
            (bucket.is_counted(), std::cmp::Reverse(bucket.micros.load(Ordering::Relaxed)))
        };
        order.sort_by_key(rank);
        order
    }

    fn list(&self, request: &Request, done: Done) {
        let counted = self.targets(Bucket::is_counted);
        // Before a manifest was read, what lies in any of them counts.
        let (targets, needed) = match counted.len() >= self.quorum() {
            true => (counted, self.quorum()),
            false => (self.targets(|_| true), self.all.len()),
        };
        let judge: Judge = Box::new(move |replies, left, is_over| {
            if is_over {
                return None;
            }
            if successes(replies) >= needed {
                return Some(Ok(Reply { listed: union_of(replies), ..Reply::default() }));
            }
            let is_hopeless = successes(replies) + left < needed;
            is_hopeless.then(|| Err(failure_of(replies, "too few buckets can be listed")))
        });
        self.ask(&targets, request, judge, done);
    }

    fn delete(&self, request: &Request, done: Done) {
        let needed = self.quorum();
        let judge: Judge = Box::new(move |replies, left, _| {
            (left == 0).then(|| match successes(replies) >= needed {
                true => Ok(Reply::default()),
                false => Err(failure_of(replies, "too few buckets have removed an object")),
            })
        });
        self.ask(&self.targets(Bucket::is_counted), request, judge, done);
    }

    fn look(&self, range: Option<Range<u64>>, done: Done) {
        let this = self.clone();
        let judge: Judge = Box::new(move |replies, left, is_over| {
            let found = this.found(replies);
            // Fewer may be those of another database.
            if found.good.len() >= this.quorum() {
                found.good.iter().for_each(|(target, _)| this.all[*target].count());
            }
            if is_over {
                return None;
            }
            // A database is created in all buckets before a writer claims it.
            let needed = if found.is_unclaimed() { this.all.len() } else { this.quorum() };
            if found.good.len() >= needed {
                return Some(Ok(found.shown(replies, range.clone())));
            }
            (left == 0).then(|| Err(found.why_not(this.all.len(), this.quorum(), replies)))
        });
        let request = Request::Get { name: MANIFEST_NAME.into(), range: None };
        self.ask(&self.targets(|bucket| !bucket.is_excluded()), &request, judge, done);
    }

    fn found(&self, replies: &Replies) -> Found {
        let mut found = Found::default();
        for (target, outcome) in replies {
            let reply = match outcome {
                Ok(reply) => reply,
                Err(failure) if failure.kind == FailureKind::Absent => {
                    found.absent.push(self.all[*target].name.clone());
                    if self.all[*target].is_counted() {
                        self.all[*target].exclude("its manifest is gone: it was emptied");
                    }
                    continue;
                }
                Err(_) => {
                    found.failed += 1;
                    continue;
                }
            };
            let record = Record::decode(&reply.body).map_err(|error| error.to_string());
            match record.and_then(|record| self.check(*target, &record).map(|()| record)) {
                Ok(record) => found.good.push((*target, record)),
                Err(what) => found.wrong.push(format!("{}: {what}", self.all[*target].name)),
            }
        }
        found.drop_old();
        found
    }

    /// Checks that a record is that of this bucket, in a database of exactly these buckets. Returns
    /// what is wrong.
    pub fn check(&self, target: usize, record: &Record) -> Result<(), String> {
        let own = &self.all[target].name;
        let (mut given, mut named): (Vec<&str>, Vec<&str>) = (
            self.all.iter().map(|bucket| &bucket.name[..]).collect(),
            record.members.iter().map(|member| &member.name[..]).collect(),
        );
        given.sort_unstable();
        named.sort_unstable();
        if given != named {
            let missing: Vec<_> = named.iter().filter(|name| !given.contains(name)).copied().collect();
            let foreign: Vec<_> = given.iter().filter(|name| !named.contains(name)).copied().collect();
            let list = |names: Vec<&str>| if names.is_empty() { "none".into() } else { names.join(", ") };
            return Err(format!(
                "the database has other buckets than were given: missing {}, not of the database {}",
                list(missing),
                list(foreign)
            ));
        }
        match record.members.iter().find(|member| member.id == record.own) {
            Some(member) if member.name == *own => Ok(()),
            Some(member) => Err(format!("it is a copy of the bucket {}", member.name)),
            None => Err("it was a bucket of the database, and was replaced".into()),
        }
    }
}

fn first_of(replies: &Replies) -> Option<Reply> {
    replies.iter().find_map(|(_, outcome)| outcome.as_ref().ok()).cloned()
}

/// Returns all objects of several lists. A block counts more than a fence of its name.
fn union_of(replies: &Replies) -> Vec<Listed> {
    let mut union: BTreeMap<&str, u64> = BTreeMap::new();
    for listed in
        replies.iter().filter_map(|(_, outcome)| outcome.as_ref().ok()).flat_map(|reply| &reply.listed)
    {
        let len = union.entry(&listed.name).or_insert(listed.len);
        if is_fence(*len) {
            *len = listed.len;
        }
    }
    union.into_iter().map(|(name, len)| Listed { name: name.into(), len }).collect()
}

/// Returns the identity that most buckets have: the others hold another database.
pub(super) fn most_frequent(identities: impl Iterator<Item = u64>) -> Option<u64> {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    identities.for_each(|identity| *counts.entry(identity).or_default() += 1);
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(identity, _)| identity)
}

/// What a look at the manifests has found.
#[derive(Default)]
struct Found {
    good: Vec<(usize, Record)>,
    absent: Vec<String>,
    wrong: Vec<String>,
    failed: usize,
    /// Records that are older than what their buckets once confirmed, or were read before that.
    old: usize,
}

impl Found {
    fn drop_old(&mut self) {
        let Some(identity) = most_frequent(self.good.iter().map(|(_, record)| record.body.identity)) else {
            return;
        };
        let before = self.good.len();
        self.good.retain(|(_, record)| record.body.identity == identity);
        let newest = self.good.iter().map(|(_, record)| record).max_by_key(|record| record.turn());
        let members = newest.map(|newest| newest.members.clone()).unwrap_or_default();
        self.good.retain(|(_, record)| {
            let member = members.iter().find(|member| member.id == record.own);
            let keeps = member.is_some_and(|member| member.confirmed <= record.turn());
            keeps || planted::is(Bug::OldBucketCounted)
        });
        self.old += before - self.good.len();
    }

    /// Returns the newest body, as a manifest with the last claim that any bucket has promised.
    fn shown(&self, replies: &Replies, range: Option<Range<u64>>) -> Reply {
        let newest = self.good.iter().max_by_key(|(_, record)| record.turn());
        let promised = self.good.iter().map(|(_, record)| record.promised).max_by_key(|ballot| ballot.epoch);
        let (Some((target, newest)), Some(promised)) = (newest, promised) else { return Reply::default() };
        let age = replies.iter().find(|(replied, _)| replied == target);
        let age = age.and_then(|(_, outcome)| outcome.as_ref().ok()).and_then(|reply| reply.age);
        let (epoch, generation) = newest.turn();
        let version = Some(Version(format!("{}-{generation}-{}", epoch.0, promised.epoch.0)));
        let body = Body { epoch: promised.epoch, nonce: promised.nonce, ..newest.body.clone() }.encode();
        let len = body.len() as u64;
        let range = range.map_or(0..len, |range| range.start.min(len)..range.end.min(len));
        let body = body.slice(range.start as usize..range.end as usize);
        Reply { version, len, body, listed: Vec::new(), age }
    }

    /// Returns whether no writer has claimed what was found.
    fn is_unclaimed(&self) -> bool {
        self.good.iter().all(|(_, record)| record.promised.epoch.0 == 0)
    }

    fn why_not(&self, all: usize, quorum: usize, replies: &Replies) -> Failure {
        if self.failed == 0
            && self.wrong.is_empty()
            && self.old == 0
            && self.is_unclaimed()
            && !self.absent.is_empty()
        {
            return Failure { kind: FailureKind::Absent, what: "no bucket has a manifest".into() };
        }
        if let Some(wrong) = self.wrong.first() {
            return Failure { kind: FailureKind::Denied, what: wrong.clone() };
        }
        if self.failed > 0 {
            let what = format!("{} of {all} buckets can be read, and {quorum} are needed", self.good.len());
            let mut failure = failure_of(replies, &what);
            if failure.kind == FailureKind::Absent {
                failure.kind = FailureKind::Unknown;
            }
            return failure;
        }
        if self.old > 0 && self.absent.is_empty() {
            // Perhaps they were read at different moments.
            let what = "buckets hold manifests of different moments: some may have been restored";
            return Failure { kind: FailureKind::Again, what: what.into() };
        }
        let what = format!(
            "{} of {all} buckets hold the database, and {quorum} are needed; without a manifest: {}",
            self.good.len(),
            self.absent.join(", ")
        );
        Failure { kind: FailureKind::Denied, what }
    }
}

impl ObjectStore for Buckets {
    fn start(&self, request: Request, done: Done) {
        match &request {
            Request::Get { name, range } if name == MANIFEST_NAME => self.look(range.clone(), done),
            Request::Get { .. } | Request::Head { .. } => {
                self.clone().read(self.order(), request, Vec::new(), done);
            }
            Request::Put { name, body, condition: Condition::Always } if name != MANIFEST_NAME => {
                let bytes = body.len() as u64;
                self.put(&request, bytes, done);
            }
            Request::List { .. } => self.list(&request, done),
            Request::Delete { .. } => self.delete(&request, done),
            Request::Put { .. } | Request::Create { .. } | Request::Append { .. } => {
                let what = "several buckets take no conditional puts together".into();
                done(Err(Failure { kind: FailureKind::Denied, what }));
            }
        }
    }

    /// A block is an object of its own.
    fn facts(&self) -> StoreFacts {
        let names: Vec<&str> = self.all.iter().map(|bucket| &bucket.name[..]).collect();
        StoreFacts {
            name: names.join(","),
            endpoint: String::new(),
            appends: false,
            parts_max: 0,
            appends_check_version: false,
        }
    }
}
