//! The buckets of a database: what is asked of all of them, and what a majority answers.
//!
//! 1. A put goes to all buckets that count, and succeeds when enough of them confirmed it (O30).
//!    Names are used once (O1), so each copy of a name has the same bytes, except fences, which are
//!    no copies: see 3.
//! 2. A read asks one bucket after the other: see `reads`.
//! 3. A list is the union of a majority. Where one bucket has a block and another a fence of the
//!    same name, the list has the block.
//! 4. A read of `manifest` reads a majority and returns the newest body, with the last claim that
//!    any of them has promised. A bucket that is older than what it once confirmed is not counted.
//! 5. What waits for a slow bucket is bounded. Beyond that, an object is not sent there.

use super::super::body::{Body, MANIFEST_NAME};
use super::super::frame::is_fence;
use super::super::request::{Failure, FailureKind, Listed, Reply, Request, Version};
use super::super::store::{Done, ObjectStore, Outcome};
use super::bucket::Bucket;
use super::record::{Member, Record};
use crate::base::planted::{self, Bug};
use crate::sync::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

pub(super) type Replies = Vec<(usize, Outcome)>;
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
pub struct BucketSet {
    all: Arc<Vec<Arc<Bucket>>>,
    /// What is acknowledged is in all of them.
    needs_all: bool,
    known: Arc<Mutex<Known>>,
}

/// The database in the buckets, as the newest manifest describes it that was found.
#[derive(Clone, Default, Debug)]
pub struct Known {
    /// Identity of the database; none before a look.
    pub identity: Option<u64>,
    /// Its buckets.
    pub members: Vec<Member>,
}

/// Why a manifest is not that of its bucket in this database.
#[derive(Clone, Debug)]
pub struct Misplaced {
    /// For people.
    pub what: String,
    /// It was a bucket of this database, so the writer may fill it again.
    pub may_join: bool,
}

/// Returns the failure that says most about a request to several buckets, or one with `what`.
pub(super) fn failure_of(replies: &Replies, what: &str) -> Failure {
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

/// Returns how many buckets have confirmed a put. One that was excluded since does not count, so
/// that the repair of that bucket finds everything it is to have in the others.
fn confirmations(all: &[Arc<Bucket>], replies: &Replies) -> usize {
    replies.iter().filter(|(target, outcome)| outcome.is_ok() && all[*target].is_counted()).count()
}

impl BucketSet {
    /// Joins stores, each with its URL. `all` says whether each copy must be confirmed, or a
    /// majority. `replace` names a bucket of the database, and the one of the list that takes its
    /// place.
    #[must_use]
    pub fn new(
        stores: Vec<(String, Arc<dyn ObjectStore>)>,
        all: bool,
        replace: Option<&(String, String)>,
    ) -> BucketSet {
        let replaced = |name: &str| replace.filter(|(_, new)| new == name).map(|(old, _)| old.clone());
        let bucket = |(name, store): (String, _)| {
            let replaces = replaced(&name);
            Bucket::new(name, store, replaces)
        };
        let buckets: Vec<_> = stores.into_iter().map(bucket).collect();
        BucketSet { all: Arc::new(buckets), needs_all: all, known: Arc::default() }
    }

    /// Returns the same buckets, of which nothing is known yet.
    #[must_use]
    pub fn again(&self) -> BucketSet {
        let stores = self.all.iter().map(|bucket| (bucket.name.clone(), bucket.store.clone()));
        BucketSet::new(stores.collect(), self.needs_all, None)
    }

    /// Returns what the last look has found.
    #[must_use]
    pub fn known(&self) -> Known {
        self.known.lock().clone()
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
        if planted::is(Bug::OneBucketAcknowledges) {
            return 1;
        }
        // One that takes the place of another is none of them until it has everything.
        let joining = self.all.iter().filter(|bucket| bucket.replaces.is_some() && !bucket.is_counted());
        if self.needs_all { self.all.len() - joining.count() } else { self.quorum() }
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

    pub(super) fn put(&self, request: &Request, bytes: u64, done: Done) {
        let counted = self.targets(Bucket::is_counted);
        let (needed, mut left) = (self.durable(), counted.len());
        let mut targets = Vec::new();
        for target in counted {
            match self.all[target].admit(bytes, left <= needed) {
                true => targets.push(target),
                false => left -= 1,
            }
        }
        let missed = (0..self.all.len()).filter(|target| !targets.contains(target));
        missed.for_each(|target| self.all[target].miss());
        let (all, mut released) = (self.all.clone(), 0);
        let judge: Judge = Box::new(move |replies, left, is_over| {
            for (target, outcome) in &replies[released..] {
                all[*target].release(bytes);
                if outcome.is_err() {
                    all[*target].miss();
                }
            }
            released = replies.len();
            if is_over {
                return None;
            }
            let confirmed = confirmations(&all, replies);
            if let (true, Some(reply)) = (confirmed >= needed, first_of(replies)) {
                return Some(Ok(reply));
            }
            let is_hopeless = confirmed + left < needed;
            is_hopeless.then(|| Err(failure_of(replies, "too few buckets have taken an object")))
        });
        self.ask(&targets, request, judge, done);
    }

    pub(super) fn list(&self, request: &Request, done: Done) {
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

    pub(super) fn delete(&self, request: &Request, done: Done) {
        let needed = self.quorum();
        let judge: Judge = Box::new(move |replies, left, _| {
            (left == 0).then(|| match successes(replies) >= needed {
                true => Ok(Reply::default()),
                false => Err(failure_of(replies, "too few buckets have removed an object")),
            })
        });
        self.ask(&self.targets(Bucket::is_counted), request, judge, done);
    }

    pub(super) fn look(&self, range: Option<Range<u64>>, done: Done) {
        let this = self.clone();
        let judge: Judge = Box::new(move |replies, left, is_over| {
            let found = this.found(replies);
            // Fewer may be those of another database.
            if found.good.len() >= this.quorum() {
                found.good.iter().for_each(|(target, _)| this.all[*target].count());
                this.learn(&found.known);
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
                    self.all[*target].note(Some("it has no manifest".into()));
                    found.absent.push(self.all[*target].name.clone());
                    if self.all[*target].is_counted() {
                        self.all[*target].exclude("its manifest is gone: it was emptied", true);
                    }
                    continue;
                }
                Err(failure) => {
                    self.all[*target].note(Some(failure.what.clone()));
                    found.failed += 1;
                    continue;
                }
            };
            match Record::decode(&reply.body) {
                Ok(record) => found.good.push((*target, record)),
                Err(error) => found.refuse(&self.all[*target], &error.to_string()),
            }
        }
        self.sift(&mut found);
        found
    }

    /// Leaves the manifests that are those of their buckets in one database of exactly these
    /// buckets, and have kept what they confirmed.
    fn sift(&self, found: &mut Found) {
        let Some(identity) = most_frequent(found.good.iter().map(|(_, record)| record.body.identity)) else {
            return;
        };
        let (ours, others): (Vec<_>, Vec<_>) =
            found.good.drain(..).partition(|(_, record)| record.body.identity == identity);
        for (target, _) in others {
            self.all[target].note(Some("it holds another database".into()));
            found.old += 1;
        }
        let newest = ours.iter().map(|(_, record)| record).max_by_key(|record| record.turn());
        let members = newest.map(|newest| newest.members.clone()).unwrap_or_default();
        found.known = Known { identity: Some(identity), members };
        if let Err(what) = self.are_given(&found.known.members) {
            found.wrong.push(what);
            return;
        }
        for (target, record) in ours {
            match self.check(target, &record, &found.known) {
                Ok(member) if member.confirmed <= record.turn() || planted::is(Bug::OldBucketCounted) => {
                    found.good.push((target, record));
                }
                Ok(_) => {
                    let what = "its manifest is older than one that it has confirmed: it was restored";
                    self.all[target].note(Some(what.into()));
                    found.old += 1;
                }
                Err(Misplaced { what, may_join: true }) => {
                    self.all[target].note(Some(what));
                    found.old += 1;
                }
                Err(Misplaced { what, .. }) => found.refuse(&self.all[target], &what),
            }
        }
    }

    /// Notes what a look has found. A bucket that is to take the place of another waits for that.
    fn learn(&self, known: &Known) {
        *self.known.lock() = known.clone();
        for bucket in self.all.iter() {
            let is_member = known.members.iter().any(|member| member.name == bucket.name);
            if let (Some(old), false) = (&bucket.replaces, is_member) {
                bucket.exclude(&format!("it takes the place of {old} when it has everything"), true);
            }
        }
    }

    /// Checks that a database has exactly the buckets that were given, or the one in the place of
    /// that which is to be replaced. Returns what is wrong.
    pub fn are_given(&self, members: &[Member]) -> Result<(), String> {
        let is_member = |name: &str| members.iter().any(|member| member.name == name);
        let expected = |bucket: &'_ Arc<Bucket>| match &bucket.replaces {
            Some(old) if !is_member(&bucket.name) => old.clone(),
            _ => bucket.name.clone(),
        };
        let mut given: Vec<String> = self.all.iter().map(expected).collect();
        let mut named: Vec<String> = members.iter().map(|member| member.name.clone()).collect();
        given.sort_unstable();
        named.sort_unstable();
        if given == named {
            return Ok(());
        }
        let missing: Vec<String> = named.iter().filter(|name| !given.contains(name)).cloned().collect();
        let foreign: Vec<String> = given.iter().filter(|name| !named.contains(name)).cloned().collect();
        let list = |names: Vec<String>| if names.is_empty() { "none".into() } else { names.join(", ") };
        Err(format!(
            "the database has other buckets than were given: missing {}, not of the database {}",
            list(missing),
            list(foreign)
        ))
    }

    /// Returns the member that a record says its bucket is.
    ///
    /// # Errors
    /// The record is that of another database or bucket.
    pub fn check<'a>(
        &self,
        target: usize,
        record: &Record,
        known: &'a Known,
    ) -> Result<&'a Member, Misplaced> {
        if known.identity.is_some_and(|identity| identity != record.body.identity) {
            return Err(Misplaced { what: "it holds another database".into(), may_join: false });
        }
        match known.members.iter().find(|member| member.id == record.own) {
            Some(member) if member.name == self.all[target].name => Ok(member),
            Some(member) => Err(Misplaced {
                what: format!("it is a copy of the bucket {}", member.name),
                may_join: false,
            }),
            None => {
                let what = "it was a bucket of the database, and was replaced".into();
                Err(Misplaced { what, may_join: true })
            }
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
pub fn most_frequent(identities: impl Iterator<Item = u64>) -> Option<u64> {
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
    /// What the newest record says.
    known: Known,
}

impl Found {
    fn refuse(&mut self, bucket: &Bucket, what: &str) {
        bucket.note(Some(what.into()));
        self.wrong.push(format!("{}: {what}", bucket.name));
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
        Reply { version, len, body, listed: Vec::new(), is_final: false, age }
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
