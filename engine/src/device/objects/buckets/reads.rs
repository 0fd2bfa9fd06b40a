//! Reads of immutable objects: from the fastest bucket that has the object.
//!
//! 1. A read asks one bucket after the other, the fastest first, until one has the object. It is
//!    absent if so many buckets do not have it that it never was in a majority.
//! 2. A read waits for a bucket that does not answer only for some time. Then it asks the next one,
//!    too, and takes whichever answer is first.
//! 3. Where one bucket has a block of the log and another a fence of that name, the read takes the
//!    block.

use super::super::frame::is_fence;
use super::super::request::{Failure, FailureKind, Request};
use super::super::store::{Done, Outcome};
use super::delays::{Delays, Late};
use super::set::{BucketSet, Replies, failure_of};
use crate::sync::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// A bucket has this time for an answer before the next one is asked, or so many times what its
/// answers usually take, but at most a second.
const DELAYS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];
const USUAL_TIMES: u32 = 8;

#[derive(Default)]
struct State {
    /// The buckets that were not asked yet, the best one last.
    order: Vec<usize>,
    /// BucketSet that owe an answer.
    asked: Vec<usize>,
    replies: Replies,
    done: Option<Done>,
}

/// One read.
struct Read {
    buckets: BucketSet,
    delays: Arc<Delays>,
    request: Request,
    state: Mutex<State>,
}

/// Reads an object, or looks it up.
pub(super) fn read(buckets: &BucketSet, delays: &Arc<Delays>, request: Request, done: Done) {
    let state = State { order: order_of(buckets), done: Some(done), ..State::default() };
    let (buckets, delays, state) = (buckets.clone(), delays.clone(), Mutex::new(state));
    Arc::new(Read { buckets, delays, request, state }).ask_next();
}

/// Returns all buckets, the best one last.
fn order_of(buckets: &BucketSet) -> Vec<usize> {
    let mut order: Vec<usize> = (0..buckets.all().len()).collect();
    let rank = |target: &usize| {
        let bucket = &buckets.all()[*target];
        (bucket.is_counted(), std::cmp::Reverse(bucket.read_time()))
    };
    order.sort_by_key(rank);
    order
}

impl Late for Read {
    fn is_late(self: Arc<Self>) {
        let late = {
            let state = self.state.lock();
            if state.done.is_none() || state.asked.is_empty() {
                return;
            }
            state.asked.clone()
        };
        // Later reads ask it last, until it answers.
        late.into_iter().for_each(|bucket| self.buckets.all()[bucket].is_late());
        self.ask_next();
    }
}

impl Read {
    fn ask_next(self: &Arc<Self>) {
        let bucket = {
            let mut state = self.state.lock();
            let Some(bucket) = state.order.pop() else {
                let done = if state.asked.is_empty() { state.done.take() } else { None };
                let failure = self.why_not(&state.replies);
                drop(state);
                return done.into_iter().for_each(|done| done(Err(failure.clone())));
            };
            state.asked.push(bucket);
            bucket
        };
        let usual = self.buckets.all()[bucket].read_time() * USUAL_TIMES;
        let late: Arc<dyn Late> = self.clone();
        self.delays.add(Arc::downgrade(&late), usual.clamp(DELAYS[0], DELAYS[1]));
        let this = self.clone();
        let replied = move |outcome: Outcome| this.replied(bucket, outcome);
        self.buckets.all()[bucket].send(self.request.clone(), Box::new(replied));
    }

    fn replied(self: &Arc<Self>, bucket: usize, outcome: Outcome) {
        let is_log = self.request.name().starts_with("log/");
        let (done, is_open) = {
            let mut state = self.state.lock();
            state.asked.retain(|asked| *asked != bucket);
            let failed = match outcome {
                Ok(reply) if !(is_log && is_fence(reply.len)) => Ok(reply),
                Ok(_) => {
                    let what = "a fence is in its place".into();
                    Err(Failure { kind: FailureKind::Absent, what })
                }
                Err(failure) => Err(failure),
            };
            let done = match failed {
                Ok(reply) => state.done.take().map(|done| (done, reply)),
                Err(failure) => {
                    state.replies.push((bucket, Err(failure)));
                    None
                }
            };
            (done, state.done.is_some())
        };
        match done {
            Some((done, reply)) => done(Ok(reply)),
            None if is_open => self.ask_next(),
            None => {}
        }
    }

    /// Returns why no bucket has the object.
    fn why_not(&self, replies: &Replies) -> Failure {
        let all = self.buckets.all();
        let is_absent = |(target, outcome): &&(usize, Outcome)| {
            let failure = outcome.as_ref().err();
            failure.is_some_and(|failure| failure.kind == FailureKind::Absent) && !all[*target].is_excluded()
        };
        let absent = replies.iter().filter(is_absent).count();
        let never = all.len() - self.buckets.quorum() + 1;
        let what = format!("`{}` is in none of the buckets that answer", self.request.name());
        if absent >= never {
            return Failure { kind: FailureKind::Absent, what };
        }
        let mut failure = failure_of(replies, &what);
        if failure.kind == FailureKind::Absent {
            failure.kind = FailureKind::Unknown;
        }
        failure
    }
}
