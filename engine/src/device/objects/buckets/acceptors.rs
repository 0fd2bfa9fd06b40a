//! The manifest of a database in several buckets: in each a register that promises and accepts.
//!
//! ```text
//!   claim(ballot):   promised < ballot  ──▶ promised = ballot          in a majority, then the body
//!                                                                      with the highest turn is taken
//!   accept(body):    promised <= ballot ──▶ promised = ballot, body    in a majority
//! ```
//!
//! 1. Each change of a bucket is a put on condition of the version that was read there, so a bucket
//!    acts as an acceptor of a consensus protocol (O31).
//! 2. A writer epoch has one writer: a bucket promises an epoch to one nonce only. So two claims of
//!    the same epoch are never both confirmed, and names are used once (O1).
//! 3. One thread at a time changes a bucket for this writer. A bucket that is slow or out of reach
//!    holds the newest body only: what it did not take in time is skipped.
//! 4. A body whose put has no reply is sent again after a look at the bucket: the look shows
//!    whether a copy arrived. A body that reached a minority may be adopted by a later claim, so
//!    after a failure this writer puts no other.
//! 5. A bucket whose manifest is gone, or older than what the bucket confirmed, does not count
//!    until it joins under a new identity (O35). The manifest that says so is accepted by a
//!    majority without that bucket, and only then the bucket gets a register. So a claim that reads
//!    this register finds the others agreed.

use super::super::body::{Body, MANIFEST_NAME};
use super::super::patience::{Patience, error_of, may_end, place, read};
use super::super::request::{Condition, Failure, FailureKind, Request, Version};
use super::super::store::perform;
use super::bucket::Standing;
use super::joined::Buckets;
use super::record::{Ballot, Member, Record, Turn};
use super::set::{Known, most_frequent};
use crate::base::planted::{self, Bug};
use crate::base::random::Random;
use crate::base::{Error, ErrorKind, Result};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Event, Mutex, thread};
use std::sync::Arc;
use std::time::Duration;

/// How one bucket answered.
#[derive(Debug)]
enum Vote {
    Yes(Box<Record>),
    /// It has promised a later claim.
    Later(Ballot),
    /// The outcome is known: nothing was put.
    No(Failure),
    /// A copy of the put may have taken effect, or may still.
    Unknown(Failure),
}

/// How a claim ended.
#[derive(Debug)]
pub enum Claimed {
    /// It is confirmed, and this is the body from which the writer continues.
    Confirmed(Box<Body>),
    /// A bucket has promised this epoch or a later one to another writer.
    Later,
}

/// One question to all buckets.
#[derive(Debug)]
struct Round {
    votes: Mutex<Vec<Option<Vote>>>,
    voted: Event,
}

impl Round {
    fn new(buckets: usize) -> Arc<Round> {
        let votes = Mutex::new((0..buckets).map(|_| None).collect());
        Arc::new(Round { votes, voted: Event::new() })
    }

    fn vote(&self, bucket: usize, vote: Vote) {
        self.votes.lock()[bucket] = Some(vote);
        self.voted.notify_all();
    }

    /// Waits until `decide` returns something. It sees the votes so far.
    fn wait<T>(&self, mut decide: impl FnMut(&[Option<Vote>]) -> Option<T>) -> T {
        loop {
            let ticket = self.voted.ticket();
            if let Some(decided) = decide(&self.votes.lock()) {
                return decided;
            }
            self.voted.wait(ticket, None);
        }
    }
}

/// A body that is to be accepted.
#[derive(Clone, Debug)]
struct Proposal {
    ballot: Ballot,
    body: Arc<Body>,
    round: Arc<Round>,
}

/// What this process knows of a bucket's manifest.
#[derive(Debug, Default)]
struct Slot {
    newest: Option<(Record, Version)>,
    /// The newest body that the bucket has confirmed.
    confirmed: Turn,
    wanted: Option<Proposal>,
    is_busy: bool,
}

impl Slot {
    /// Has a proposal wait for the one that is under way. Of two that wait, the one with the newer
    /// body stays: a repair puts a body again while the next one is on its way. Returns the other.
    fn want(&mut self, proposal: Proposal) -> Option<Proposal> {
        match &self.wanted {
            Some(waiting) if waiting.body.generation > proposal.body.generation => Some(proposal),
            _ => self.wanted.replace(proposal),
        }
    }

    /// Returns whether a body waits that is newer than `body`.
    fn wants_newer(&self, body: &Body) -> bool {
        self.wanted.as_ref().is_some_and(|waiting| waiting.body.generation > body.generation)
    }

    /// Notes what a bucket holds, unless another thread has put something newer there.
    fn keep(&mut self, record: Record, version: Option<Version>) {
        if record.turn() >= self.confirmed {
            self.confirmed = record.turn();
            self.newest = version.map(|version| (record, version));
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Acceptors {
    buckets: Buckets,
    slots: Vec<Mutex<Slot>>,
    /// All buckets, as the newest body of a claim named them.
    members: Mutex<Vec<Member>>,
    patience: Duration,
    /// Buckets join one after the other.
    joining: Mutex<()>,
    /// The writer has ended.
    is_over: AtomicBool,
}

/// Returns the record from which a claim continues.
fn newest_of<'a>(promised: &[(usize, &'a Record)]) -> Option<&'a Record> {
    let order = |record: &&Record| match planted::is(Bug::BallotWithoutGeneration) {
        true => (record.turn().0, 0),
        false => record.turn(),
    };
    let mut records = promised.iter().map(|(_, record)| *record);
    if planted::is(Bug::FirstRegisterTaken) { records.next() } else { records.max_by_key(order) }
}

fn lost(what: &str) -> Failure {
    Failure { kind: FailureKind::Denied, what: what.into() }
}

impl Acceptors {
    pub fn new(buckets: Buckets, patience: Duration) -> Arc<Acceptors> {
        let slots = buckets.all().iter().map(|_| Mutex::default()).collect();
        let (members, joining, is_over) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        Arc::new(Acceptors { buckets, slots, members, patience, joining, is_over })
    }

    pub fn buckets(&self) -> &Buckets {
        &self.buckets
    }

    /// Ends the attempts to reach buckets that do not answer.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn read(&self, bucket: usize) -> Result<(Record, Version), Failure> {
        let (record, version) = self.read_any(bucket)?;
        let known = self.buckets.known();
        let members = Some(self.members_now()).filter(|members| !members.is_empty());
        let known = Known { members: members.unwrap_or(known.members), ..known };
        if let Err(misplaced) = self.buckets.check(bucket, &record, &known) {
            if misplaced.may_join {
                self.buckets.all()[bucket].exclude(&misplaced.what, true);
            }
            return Err(lost(&misplaced.what));
        }
        Ok((record, version))
    }

    /// Reads the record in a bucket, whatever database it is of.
    fn read_any(&self, bucket: usize) -> Result<(Record, Version), Failure> {
        let store = &*self.buckets.all()[bucket].store;
        let reply = perform(store, Request::Get { name: MANIFEST_NAME.into(), range: None })?;
        let record = Record::decode(&reply.body).map_err(|error| lost(&error.to_string()))?;
        let version = reply.version.ok_or_else(|| lost("the store names no version of the manifest"))?;
        Ok((record, version))
    }

    /// Changes the manifest of a bucket as `change` says, which returns how the bucket votes if
    /// nothing is to be put. `may_wait` is asked before each pause.
    fn change(
        &self,
        bucket: usize,
        mut may_wait: impl FnMut() -> bool,
        change: impl Fn(&Record) -> Result<Record, Vote>,
    ) -> Vote {
        let (mut patience, mut is_ambiguous) = (Patience::new(self.patience), false);
        let ended =
            |failure, is_ambiguous| if is_ambiguous { Vote::Unknown(failure) } else { Vote::No(failure) };
        loop {
            // What the bucket has confirmed is asked before the bucket is read.
            let members = self.members_now();
            let (found, confirmed) = {
                let mut slot = self.slots[bucket].lock();
                (slot.newest.take(), slot.confirmed)
            };
            let found = match found {
                Some(found) => Ok(found),
                None => self.read(bucket),
            };
            let failure = match found {
                Ok((record, version)) => {
                    let member = members.iter().find(|member| member.id == record.own);
                    let confirmed = member.map_or(confirmed, |member| member.confirmed.max(confirmed));
                    if let Err(vote) = self.keeps_its_word(bucket, &record, confirmed) {
                        return vote;
                    }
                    let record = match change(&record) {
                        Ok(record) => record,
                        Err(vote) => {
                            self.slots[bucket].lock().keep(record, Some(version));
                            return vote;
                        }
                    };
                    let (name, body) = (MANIFEST_NAME.into(), record.encode());
                    let put = Request::Put { name, body, condition: Condition::Unchanged(version) };
                    match perform(&*self.buckets.all()[bucket].store, put) {
                        Ok(reply) => {
                            self.slots[bucket].lock().keep(record.clone(), reply.version);
                            return Vote::Yes(Box::new(record));
                        }
                        // Another writer has put, or an earlier copy arrived: see the next read.
                        Err(failure)
                            if matches!(failure.kind, FailureKind::Refused | FailureKind::Absent) =>
                        {
                            if self.is_over.load(Ordering::Relaxed) || patience.is_over() {
                                return ended(failure, is_ambiguous);
                            }
                            continue;
                        }
                        Err(failure) => failure,
                    }
                }
                Err(failure) if failure.kind == FailureKind::Absent => {
                    let what = "it has no manifest: it is empty, or was emptied";
                    self.buckets.all()[bucket].exclude(what, true);
                    return ended(failure, is_ambiguous);
                }
                Err(failure) => failure,
            };
            is_ambiguous |= failure.kind.is_ambiguous();
            let is_final = !may_end(failure.kind) || self.is_over.load(Ordering::Relaxed) || !may_wait();
            if is_final || !patience.pause() {
                return ended(failure, is_ambiguous);
            }
        }
    }

    /// Excludes a bucket whose body is older than `confirmed`, which it had confirmed before it was
    /// read.
    fn keeps_its_word(&self, bucket: usize, record: &Record, confirmed: Turn) -> Result<(), Vote> {
        if record.turn() >= confirmed || planted::is(Bug::OldBucketCounted) {
            return Ok(());
        }
        let what = "its manifest is older than one that it has confirmed: it was restored";
        self.buckets.all()[bucket].exclude(what, true);
        Err(Vote::No(lost(what)))
    }

    /// Creates the registers of a new database, in all buckets. No writer has claimed them then.
    ///
    /// # Errors
    /// I/O; `Busy` if another process creates another database in some of them.
    pub fn create(&self) -> Result<()> {
        let mut random = Random::from_entropy();
        let all = self.buckets.all();
        let member = |name: &str, random: &mut Random| Member {
            id: random.next_u64(),
            name: name.into(),
            confirmed: Turn::default(),
        };
        let members: Vec<Member> = all.iter().map(|bucket| member(&bucket.name, &mut random)).collect();
        let body = Body { identity: random.next_u64(), generation: 1, closed: true, ..Body::default() };
        let mut record = Record { promised: Ballot::default(), own: 0, members, body };
        // Of several that create, the first one in the same bucket decides.
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.sort_by_key(|bucket| &all[*bucket].name);
        for bucket in order {
            let own = record.members.iter().find(|member| member.name == all[bucket].name);
            record.own = own.map_or(0, |member| member.id);
            let there = self.create_in(bucket, &record)?;
            if there.promised.epoch.0 > 0 {
                // Another process has created it everywhere, and claimed it.
                return Ok(());
            }
            if there.body.identity != record.body.identity {
                let is_first = record.members.iter().all(|member| member.name >= all[bucket].name);
                if !is_first {
                    let what = format!("the bucket {} holds another database", all[bucket].name);
                    return Err(Error::new(ErrorKind::Busy, what).at(place(MANIFEST_NAME, 0)));
                }
                record = there;
            }
        }
        Ok(())
    }

    /// Puts a record where there is none. Returns the one that is there then.
    fn create_in(&self, bucket: usize, record: &Record) -> Result<Record> {
        let store = &*self.buckets.all()[bucket].store;
        let mut patience = Patience::new(self.patience);
        let failed = |failure: &Failure| error_of(failure, "the manifest cannot be created", MANIFEST_NAME);
        loop {
            let (name, body) = (MANIFEST_NAME.into(), record.encode());
            match perform(store, Request::Put { name, body, condition: Condition::Absent }) {
                Ok(_) => return Ok(record.clone()),
                Err(failure) if failure.kind == FailureKind::Refused => {
                    let there = read(store, MANIFEST_NAME, None, self.patience)
                        .map_err(|failure| failed(&failure))?;
                    let there = Record::decode(&there.body)?;
                    self.buckets.are_given(&there.members).map_err(|what| failed(&lost(&what)))?;
                    return Ok(there);
                }
                Err(failure) if may_end(failure.kind) && patience.pause() => {}
                Err(failure) => return Err(failed(&failure)),
            }
        }
    }

    /// Claims the database for the writer of `ballot`.
    ///
    /// # Errors
    /// I/O if too few buckets answer.
    pub fn claim(self: &Arc<Self>, ballot: Ballot) -> Result<Claimed> {
        let count = self.slots.len();
        let round = Round::new(count);
        for bucket in 0..count {
            if let Standing::Excluded { why, .. } = self.buckets.all()[bucket].standing() {
                round.vote(bucket, Vote::No(lost(&why)));
                continue;
            }
            let (this, votes) = (self.clone(), round.clone());
            let promise = move || votes.vote(bucket, this.promise(bucket, ballot));
            if let Err(error) = thread::spawn("quench-claim", promise) {
                round.vote(bucket, Vote::No(lost(&format!("no thread: {error}"))));
            }
        }
        round.wait(|votes| self.count_promises(votes))
    }

    fn promise(&self, bucket: usize, ballot: Ballot) -> Vote {
        let change = |record: &Record| match record.promised {
            promised if promised == ballot => Err(Vote::Yes(Box::new(record.clone()))),
            promised if promised.epoch >= ballot.epoch => Err(Vote::Later(promised)),
            _ => Ok(Record { promised: ballot, ..record.clone() }),
        };
        self.change(bucket, || true, change)
    }

    /// Decides a claim, if the votes so far suffice. Excludes buckets that came back old.
    fn count_promises(&self, votes: &[Option<Vote>]) -> Option<Result<Claimed>> {
        let quorum = self.buckets.quorum();
        let all = votes.iter().enumerate().filter_map(|(bucket, vote)| match vote {
            Some(Vote::Yes(record)) => Some((bucket, &**record)),
            _ => None,
        });
        let all: Vec<(usize, &Record)> = all.collect();
        let identity = most_frequent(all.iter().map(|(_, record)| record.body.identity));
        let is_ours = |record: &Record| Some(record.body.identity) == identity;
        let promised: Vec<_> = all.iter().filter(|(_, record)| is_ours(record)).copied().collect();
        let mut counted = promised.len();
        if counted >= quorum
            && let Some(newest) = newest_of(&promised)
        {
            let keeps = |(_, record): &&(usize, &Record)| {
                let member = newest.members.iter().find(|member| member.id == record.own);
                is_ours(record) && member.is_some_and(|member| member.confirmed <= record.turn())
            };
            let is_kept = |one: &&(usize, &Record)| keeps(one) || planted::is(Bug::OldBucketCounted);
            if let Err(what) = self.buckets.are_given(&newest.members) {
                return Some(Err(error_of(&lost(&what), "it cannot be claimed", MANIFEST_NAME)));
            }
            let (kept, old): (Vec<_>, Vec<_>) = all.iter().partition(is_kept);
            for (bucket, record) in old {
                let what = match is_ours(record) {
                    true => "its manifest is older than one that it has confirmed: it was restored",
                    false => "it holds another database",
                };
                self.buckets.all()[bucket].exclude(what, is_ours(record));
            }
            counted = kept.len();
            if counted >= quorum {
                let mut members = newest.members.clone();
                for (bucket, record) in kept {
                    self.buckets.all()[bucket].count();
                    let own = members.iter_mut().find(|member| member.id == record.own);
                    own.into_iter().for_each(|own| own.confirmed = record.turn());
                }
                *self.members.lock() = members;
                let (promised, body) = (newest.promised, newest.body.clone());
                let body = Body { epoch: promised.epoch, nonce: promised.nonce, ..body };
                return Some(Ok(Claimed::Confirmed(Box::new(body))));
            }
        }
        let missing = votes.iter().filter(|vote| vote.is_none()).count();
        if counted + missing >= quorum && missing > 0 {
            return None;
        }
        if votes.iter().flatten().any(|vote| matches!(vote, Vote::Later(_))) {
            return Some(Ok(Claimed::Later));
        }
        let none = "too many of them were restored from a copy";
        let failure = self.failure_of(votes).unwrap_or_else(|| lost(none));
        let what = format!("fewer than {quorum} of {} buckets can be claimed", votes.len());
        Some(Err(error_of(&failure, &what, MANIFEST_NAME)))
    }

    /// Puts a body into a majority. When it returns `Ok(None)`, the body counts. Returns the later
    /// claim if there is one, and the body does not count, or is not known to.
    ///
    /// # Errors
    /// `Io` if no bucket has taken it, and none will; `OutcomeUnknown`.
    pub fn accept(self: &Arc<Self>, body: &Body) -> Result<Option<Ballot>> {
        let (count, quorum) = (self.slots.len(), self.buckets.quorum());
        let needed = if planted::is(Bug::OneBucketPublishes) { 1 } else { quorum };
        let ballot = Ballot { epoch: body.epoch, nonce: body.nonce };
        let proposal = Proposal { ballot, body: Arc::new(body.clone()), round: Round::new(count) };
        (0..count).for_each(|bucket| self.propose(bucket, proposal.clone()));
        proposal.round.wait(|votes| {
            let yes = votes.iter().flatten().filter(|vote| matches!(vote, Vote::Yes(_))).count();
            if yes >= needed {
                return Some(Ok(None));
            }
            let missing = votes.iter().filter(|vote| vote.is_none()).count();
            if yes + missing >= needed {
                return None;
            }
            let later = votes.iter().flatten().find_map(|vote| match vote {
                Vote::Later(ballot) => Some(*ballot),
                _ => None,
            });
            if let Some(later) = later {
                return Some(Ok(Some(later)));
            }
            let is_unknown =
                yes + missing > 0 || votes.iter().flatten().any(|vote| matches!(vote, Vote::Unknown(_)));
            let failure = self.failure_of(votes).unwrap_or_else(|| lost("no bucket answers"));
            let what = format!("the manifest was not put into {quorum} of {count} buckets");
            let error = error_of(&failure, &what, MANIFEST_NAME);
            Some(Err(if is_unknown {
                error.with_kind(ErrorKind::OutcomeUnknown)
            } else {
                error.with_kind(ErrorKind::Io)
            }))
        })
    }

    /// Returns what the buckets say that have not done what was asked.
    fn failure_of(&self, votes: &[Option<Vote>]) -> Option<Failure> {
        let failed = votes.iter().zip(self.buckets.all()).filter_map(|(vote, bucket)| match vote {
            Some(Vote::No(failure) | Vote::Unknown(failure)) => {
                Some((failure.kind, format!("{}: {}", bucket.name, failure.what)))
            }
            _ => None,
        });
        let (kinds, whats): (Vec<_>, Vec<_>) = failed.unzip();
        kinds.first().map(|kind| Failure { kind: *kind, what: whats.join("; ") })
    }

    /// Has a bucket accept a proposal, after the one that is under way there.
    fn propose(self: &Arc<Self>, bucket: usize, proposal: Proposal) {
        if let Standing::Excluded { why, .. } = self.buckets.all()[bucket].standing() {
            return proposal.round.vote(bucket, Vote::No(lost(&why)));
        }
        let mut slot = self.slots[bucket].lock();
        if let Some(skipped) = slot.want(proposal) {
            skipped.round.vote(bucket, Vote::No(lost("a newer manifest followed")));
        }
        if std::mem::replace(&mut slot.is_busy, true) {
            return;
        }
        drop(slot);
        let this = self.clone();
        let accept = move || {
            loop {
                let mut slot = this.slots[bucket].lock();
                let Some(proposal) = slot.wanted.take() else {
                    slot.is_busy = false;
                    return;
                };
                drop(slot);
                let vote = this.accept_in(bucket, &proposal);
                if !matches!(vote, Vote::Yes(_)) {
                    this.buckets.all()[bucket].miss();
                }
                proposal.round.vote(bucket, vote);
            }
        };
        if let Err(error) = thread::spawn("quench-manifest", accept) {
            let mut slot = self.slots[bucket].lock();
            slot.is_busy = false;
            if let Some(proposal) = slot.wanted.take() {
                proposal.round.vote(bucket, Vote::No(lost(&format!("no thread: {error}"))));
            }
        }
    }

    fn accept_in(&self, bucket: usize, Proposal { ballot, body, .. }: &Proposal) -> Vote {
        let members = self.members_now();
        let change = |record: &Record| {
            let promised = record.promised;
            if record.body.identity != body.identity {
                let what = "it holds another database";
                self.buckets.all()[bucket].exclude(what, false);
                return Err(Vote::No(lost(what)));
            }
            let is_later = promised.epoch > ballot.epoch
                || (promised.epoch == ballot.epoch && promised.nonce != ballot.nonce);
            if is_later && !planted::is(Bug::PromiseNotChecked) {
                return Err(Vote::Later(promised));
            }
            // It has this body, or a later one of the same writer.
            let is_own = record.body.epoch == body.epoch && record.body.nonce == body.nonce;
            if is_own && record.body.generation >= body.generation {
                return Err(Vote::Yes(Box::new(record.clone())));
            }
            let own = record.own;
            Ok(Record { promised: *ballot, own, members: members.clone(), body: (**body).clone() })
        };
        let may_wait = || !self.slots[bucket].lock().wants_newer(body);
        let vote = self.change(bucket, may_wait, change);
        if let Vote::Yes(record) = &vote {
            self.buckets.all()[bucket].count();
            self.confirm(record.own, record.turn());
        }
        vote
    }

    /// Notes the newest body that a member is known to have accepted.
    fn confirm(&self, id: u64, turn: Turn) {
        let mut members = self.members.lock();
        let own = members.iter_mut().find(|member| member.id == id);
        own.into_iter().for_each(|own| own.confirmed = own.confirmed.max(turn));
    }

    /// Has a bucket that counts accept the newest body of this writer, which a majority has
    /// accepted. Returns whether the bucket has it.
    pub fn refresh(self: &Arc<Self>, bucket: usize, body: Body) -> bool {
        let ballot = Ballot { epoch: body.epoch, nonce: body.nonce };
        let proposal = Proposal { ballot, body: Arc::new(body), round: Round::new(self.slots.len()) };
        self.propose(bucket, proposal.clone());
        let is_yes = |vote: &Vote| matches!(vote, Vote::Yes(_));
        proposal.round.wait(|votes| votes[bucket].as_ref().map(is_yes))
    }

    /// Makes a bucket that has everything one of the database, under a new identity (O35).
    /// `publish` puts a manifest, and `newest` returns the newest one.
    ///
    /// # Errors
    /// As `publish`; `Io` if the bucket holds another database, or cannot be reached.
    pub fn join(
        &self,
        bucket: usize,
        publish: impl FnOnce() -> Result<()>,
        newest: impl FnOnce() -> Body,
    ) -> Result<()> {
        let of_bucket = &self.buckets.all()[bucket];
        let id = Random::from_entropy().next_u64();
        {
            let _one = self.joining.lock();
            let Some(before) = self.change_member(bucket, id) else {
                let what = format!("{} is in the place of no bucket of the database", of_bucket.name);
                return Err(Error::new(ErrorKind::Io, what));
            };
            if let Err(error) = publish() {
                if error.kind() == ErrorKind::Io {
                    // Nothing was put.
                    let mut members = self.members.lock();
                    let own = members.iter_mut().find(|member| member.id == id);
                    own.into_iter().for_each(|own| *own = before.clone());
                }
                return Err(error);
            }
        }
        self.create_register(bucket, id, newest())?;
        of_bucket.joined();
        Ok(())
    }

    /// Returns why the writer must not fill a bucket: it holds something else.
    ///
    /// # Errors
    /// The bucket cannot be read.
    pub fn refuses(&self, bucket: usize) -> Result<Option<String>, Failure> {
        let store = &*self.buckets.all()[bucket].store;
        let reply = match perform(store, Request::Get { name: MANIFEST_NAME.into(), range: None }) {
            Ok(reply) => reply,
            Err(failure) if failure.kind == FailureKind::Absent => return Ok(None),
            Err(failure) => return Err(failure),
        };
        Ok(match Record::decode(&reply.body) {
            Ok(record) => self.is_foreign(bucket, &record),
            Err(error) => Some(error.to_string()),
        })
    }

    /// Returns what a register is that a bucket which joins must not replace.
    fn is_foreign(&self, bucket: usize, there: &Record) -> Option<String> {
        if self.buckets.known().identity.is_some_and(|own| own != there.body.identity) {
            return Some("it holds another database".into());
        }
        let (members, of_bucket) = (self.members.lock(), &self.buckets.all()[bucket]);
        let is_own = |name: &String| *name == of_bucket.name || Some(name) == of_bucket.replaces.as_ref();
        let same = members.iter().find(|member| member.id == there.own && !is_own(&member.name))?;
        Some(format!("it is the bucket {}, or a copy of it", same.name))
    }

    /// Gives a bucket a new identity, in the place of a member. Returns that member.
    fn change_member(&self, bucket: usize, id: u64) -> Option<Member> {
        let of_bucket = &self.buckets.all()[bucket];
        let mut members = self.members.lock();
        let at = members.iter().position(|member| member.name == of_bucket.name);
        let replaces = of_bucket.replaces.as_ref();
        let at = at.or_else(|| members.iter().position(|member| Some(&member.name) == replaces))?;
        let new = Member { id, name: of_bucket.name.clone(), confirmed: Turn::default() };
        Some(std::mem::replace(&mut members[at], new))
    }

    /// Puts the register of a bucket that joins. A register of this database that the bucket still
    /// holds is replaced.
    fn create_register(&self, bucket: usize, id: u64, body: Body) -> Result<()> {
        let store = &*self.buckets.all()[bucket].store;
        let promised = Ballot { epoch: body.epoch, nonce: body.nonce };
        let record = Record { promised, own: id, members: self.members_now(), body };
        let mut patience = Patience::new(self.patience);
        loop {
            let put = match self.read_any(bucket) {
                Ok((there, _)) if there.own == id => Ok(None),
                Ok((there, version)) => match self.is_foreign(bucket, &there) {
                    Some(what) => Err(lost(&what)),
                    None => Ok(Some(Condition::Unchanged(version))),
                },
                Err(failure) if failure.kind == FailureKind::Absent => Ok(Some(Condition::Absent)),
                Err(failure) => Err(failure),
            };
            let put = put.and_then(|condition| match condition {
                None => Ok(()),
                Some(condition) => {
                    let (name, body) = (MANIFEST_NAME.into(), record.encode());
                    perform(store, Request::Put { name, body, condition }).map(|_| ())
                }
            });
            let failure = match put {
                Ok(()) => break,
                Err(failure) => failure,
            };
            let may_end = may_end(failure.kind) || failure.kind == FailureKind::Refused;
            if !may_end || self.is_over.load(Ordering::Relaxed) || !patience.pause() {
                return Err(error_of(&failure, "the register of a bucket cannot be put", MANIFEST_NAME));
            }
        }
        self.confirm(id, record.turn());
        let mut slot = self.slots[bucket].lock();
        (slot.newest, slot.confirmed) = (None, record.turn());
        Ok(())
    }

    fn members_now(&self) -> Vec<Member> {
        self.members.lock().clone()
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
