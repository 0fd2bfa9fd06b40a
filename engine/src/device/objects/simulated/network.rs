//! The network and the store behind it: requests in flight, their effects and their replies.
//!
//! ```text
//!             start                    step                      step
//!   client ──────────▶ Sent ───────────────────────▶ Answered ───────────▶ done
//!                        │           effect                       reply
//!                        │ the client is answered `Unknown`, or is dead
//!                        └───────▶ Late ── some steps ──▶ effect, or never
//! ```
//!
//! A step takes one of the requests that can proceed, at random.

use super::bucket::{Bucket, Change};
use super::faults::{FaultKind, Faults};
use super::journal::{Event, Journal, Record, changes_objects};
use super::options::StoreOptions;
use super::streams::torn;
use crate::base::clock::{Clock, Nanos};
use crate::base::random::Random;
use crate::device::objects::{Done, Failure, FailureKind, Outcome, Request, RequestKind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One request in this many never takes effect if its client dies before.
const NEVER: u64 = 4;
/// Binary logarithm of the most steps that a late request waits.
const LATE_STEPS_BITS: u64 = 8;
/// One latency in this many is ten times as long.
const SLOW: u64 = 32;

/// The connection of a client.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Link {
    /// The handle is in use, and the machine is not dead.
    pub(super) is_alive: bool,
    /// The machine is dead.
    pub(super) is_killed: bool,
    /// The machine's requests are denied.
    pub(super) is_stopped: bool,
    pub(super) is_partitioned: bool,
    pub(super) holds_requests: bool,
    pub(super) holds_replies: bool,
}

#[derive(Debug)]
enum Stage {
    Sent,
    Answered(Outcome),
    /// No client waits for the request any more; it takes effect at this step or later.
    Late(u64),
}

struct InFlight {
    number: u64,
    client: usize,
    request: Arc<Request>,
    fault: Option<FaultKind>,
    stage: Stage,
    /// None if the request is late.
    done: Option<Done>,
    /// The request does not proceed before this time.
    due: Nanos,
}

impl std::fmt::Debug for InFlight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "request {} of client {}: {:?}, {:?}", self.number, self.client, self.request, self.stage)
    }
}

/// What a step did, or why it did nothing.
pub(super) enum Step {
    /// A request took effect, or was lost.
    Effect,
    /// A client must hear of the end of a request.
    Reply(Done, Outcome),
    /// The next request proceeds at this time.
    Wait(Nanos),
    /// No request can proceed.
    Idle,
}

/// What became of a request that a client started.
pub(super) enum Sent {
    /// The request is in flight.
    Taken,
    /// The client is dead, and its callback must not be called.
    Dead(Done),
    /// The machine has stopped. The caller hears of it at once.
    Stopped(Done),
}

#[derive(Debug)]
pub(super) struct Network {
    pub(super) options: StoreOptions,
    pub(super) bucket: Bucket,
    /// The objects before the last change, if the store shows them.
    stale: Option<Bucket>,
    pub(super) journal: Journal,
    pub(super) faults: Faults,
    random: Random,
    in_flight: Vec<InFlight>,
    pub(super) links: Vec<Link>,
    pub(super) requests: BTreeMap<RequestKind, u64>,
    /// Requests sent so far, those of earlier stores included.
    pub(super) sent: u64,
    steps: u64,
    /// The network's thread runs.
    pub(super) has_thread: bool,
}

fn unknown(what: &str) -> Outcome {
    Err(Failure { kind: FailureKind::Unknown, what: what.into() })
}

impl Network {
    pub(super) fn new(options: StoreOptions, bucket: Bucket) -> Network {
        Network {
            journal: Journal::new(bucket.clone(), options.journal_max),
            random: Random::from_seed(options.seed),
            options,
            bucket,
            stale: None,
            faults: Faults::default(),
            in_flight: Vec::new(),
            links: Vec::new(),
            requests: BTreeMap::new(),
            sent: 0,
            steps: 0,
            has_thread: false,
        }
    }

    /// Returns the network of a store with these objects, in which all clients of this are dead.
    pub(super) fn successor(&self, bucket: Bucket, seed: u64) -> Network {
        let mut network = Network::new(StoreOptions { seed, ..self.options.clone() }, bucket);
        network.links = vec![Link { is_killed: true, ..Link::default() }; self.links.len()];
        network.sent = self.sent;
        network
    }

    /// Sends a request.
    pub(super) fn send(&mut self, client: usize, request: Request, done: Done) -> Sent {
        let link = self.links[client];
        if link.is_killed {
            return Sent::Dead(done);
        }
        if link.is_stopped {
            return Sent::Stopped(done);
        }
        let mut item = InFlight {
            number: self.sent,
            client,
            request: Arc::new(request),
            fault: None,
            stage: Stage::Sent,
            done: Some(done),
            due: self.after_latency(),
        };
        self.sent += 1;
        *self.requests.entry(item.request.kind()).or_default() += 1;
        self.record(&item, Event::Sent);
        if link.is_partitioned {
            item.fault = Some(self.partition_one(&item.request));
        } else {
            item.fault = self.faults.strike(client, &item.request, &mut self.random);
        }
        self.in_flight.push(item);
        Sent::Taken
    }

    /// Performs one step.
    pub(super) fn step(&mut self) -> Step {
        let now = self.now();
        let ready: Vec<usize> = (0..self.in_flight.len()).filter(|i| self.is_ready(*i, now)).collect();
        if ready.is_empty() {
            let next = self.in_flight.iter().filter(|item| !self.is_held(item) && !self.is_behind(item));
            let next = next.map(|item| item.due).min();
            return next.map_or(Step::Idle, Step::Wait);
        }
        self.steps += 1;
        let chosen = ready[self.random.below(ready.len() as u64) as usize];
        let first = ready.iter().map(|i| self.in_flight[*i].number).min();
        let is_first = first == Some(self.in_flight[chosen].number);
        let item = self.in_flight.swap_remove(chosen);
        let name = match item.stage {
            Stage::Answered(_) => "out-of-order reply",
            _ => "out-of-order effect",
        };
        if !is_first {
            self.faults.counts.count(name);
        }
        self.proceed(item)
    }

    fn is_held(&self, item: &InFlight) -> bool {
        let link = &self.links[item.client];
        match item.stage {
            Stage::Sent => link.holds_requests,
            Stage::Answered(_) => link.holds_replies,
            Stage::Late(step) => step > self.steps,
        }
    }

    fn is_ready(&self, i: usize, now: Nanos) -> bool {
        let item = &self.in_flight[i];
        item.due <= now && !self.is_held(item) && !self.is_behind(item)
    }

    /// Returns whether an earlier append of the same stream has not arrived yet.
    fn is_behind(&self, item: &InFlight) -> bool {
        let is_append =
            |item: &InFlight| matches!(item.stage, Stage::Sent) && item.request.kind() == RequestKind::Append;
        let is_earlier = |other: &InFlight| {
            is_append(other)
                && (other.client, other.request.name()) == (item.client, item.request.name())
                && other.number < item.number
        };
        self.options.streams && is_append(item) && self.in_flight.iter().any(is_earlier)
    }

    fn proceed(&mut self, mut item: InFlight) -> Step {
        match item.stage {
            Stage::Sent => {
                let outcome = self.serve(&item);
                item.stage = Stage::Answered(outcome);
                item.due = self.after_latency();
                self.in_flight.push(item);
            }
            Stage::Late(_) => {
                let dead = self.links[item.client].is_killed;
                let name = if dead { "late effect after the client's death" } else { "late effect" };
                self.faults.counts.count(name);
                // Nothing waits for the outcome.
                let _ = self.take_effect(&item);
            }
            Stage::Answered(ref outcome) => {
                self.record(&item, Event::Reply(outcome.as_ref().err().map(|failure| failure.kind)));
                if let (Some(done), Stage::Answered(outcome)) = (item.done, item.stage) {
                    return Step::Reply(done, outcome);
                }
            }
        }
        Step::Effect
    }

    /// Serves a request that has reached the store or its fault. Returns what the client hears.
    fn serve(&mut self, item: &InFlight) -> Outcome {
        let Some(fault) = item.fault else { return self.take_effect(item) };
        let mut effects = 0;
        let answer = fault.meet(|| {
            if effects > 0 {
                self.record(item, Event::Copied);
            }
            effects += 1;
            self.take_effect(item)
        });
        match fault {
            FaultKind::Late => self.send_late(item),
            FaultKind::Torn => self.tear(item),
            FaultKind::Duplicated => {
                self.record(item, Event::Copied);
                self.send_late(item);
            }
            _ if effects == 0 => self.record(item, Event::Lost),
            _ => {}
        }
        let what = || format!("simulated: {}", fault.name());
        answer.unwrap_or_else(|kind| Err(Failure { kind, what: what() }))
    }

    /// Lets the beginning of an append take effect now.
    fn tear(&mut self, item: &InFlight) {
        let part = self.random.below(256);
        if let Some(request) = torn(&item.request, part) {
            let judged = self.bucket.judge_of(&self.options, &request, item.client);
            if let Ok((Some(change), _)) = judged {
                self.change(change);
            }
        }
    }

    /// Lets the request take effect now. Returns the store's answer.
    fn take_effect(&mut self, item: &InFlight) -> Outcome {
        let (broken, kind) = (self.options.broken, item.request.kind());
        let shown = match (kind, &self.stale) {
            (RequestKind::List, Some(stale)) if broken.lists_are_stale => {
                self.faults.counts.count("stale list");
                stale
            }
            (RequestKind::Get | RequestKind::Head, Some(stale)) if broken.reads_are_stale => {
                self.faults.counts.count("stale read");
                stale
            }
            _ => &self.bucket,
        };
        let judged = shown.judge_of(&self.options, &item.request, item.client);
        let outcome = judged.map(|(change, reply)| {
            change.into_iter().for_each(|change| self.change(change));
            reply
        });
        self.record(item, Event::Effect(outcome.as_ref().err().map(|failure| failure.kind)));
        outcome
    }

    /// Changes an object.
    pub(super) fn change(&mut self, change: Change) {
        if self.options.broken.lists_are_stale || self.options.broken.reads_are_stale {
            self.stale = Some(self.bucket.clone());
        }
        self.bucket.apply(&change);
        self.journal.change(change);
    }

    fn record(&mut self, item: &InFlight, event: Event) {
        let (number, client, request) = (item.number, item.client, item.request.clone());
        self.journal.record(Record { number, client, request, event, changes: 0 });
    }

    /// Adds a late copy of a request.
    fn send_late(&mut self, item: &InFlight) {
        self.push_late(item.number, item.client, item.request.clone());
    }

    fn push_late(&mut self, number: u64, client: usize, request: Arc<Request>) {
        // As many short delays as long ones.
        let bits = self.random.below(LATE_STEPS_BITS + 1);
        let stage = Stage::Late(self.steps + 1 + self.random.below(1 << bits));
        let due = Nanos::default();
        self.in_flight.push(InFlight { number, client, request, fault: None, stage, done: None, due });
    }

    /// Adds a request of a dead client: the request takes effect late or never.
    pub(super) fn leave_behind(&mut self, number: u64, client: usize, request: Arc<Request>) {
        if !changes_objects(&request) {
            return;
        }
        if self.random.below(NEVER) > 0 {
            return self.push_late(number, client, request);
        }
        self.faults.counts.count("late effect never");
        self.journal.record(Record { number, client, request, event: Event::Lost, changes: 0 });
    }

    fn partition_one(&mut self, request: &Request) -> FaultKind {
        self.faults.counts.count("partitioned");
        let kinds = [FaultKind::LostRequest, FaultKind::LostReply, FaultKind::Late];
        let kind = kinds[self.random.below(kinds.len() as u64) as usize];
        if kind.fits(request.kind()) { kind } else { FaultKind::LostRequest }
    }

    /// Cuts a client off: what it has in flight ends as `Unknown`.
    pub(super) fn partition(&mut self, client: usize) {
        self.links[client].is_partitioned = true;
        for i in 0..self.in_flight.len() {
            if self.in_flight[i].client != client {
                continue;
            }
            match self.in_flight[i].stage {
                Stage::Sent => {
                    let fault = self.partition_one(&self.in_flight[i].request.clone());
                    self.in_flight[i].fault = Some(fault);
                }
                Stage::Answered(_) => self.in_flight[i].stage = Stage::Answered(unknown("partitioned")),
                Stage::Late(_) => {}
            }
        }
    }

    /// Takes what a client has in flight; its requests take effect late or never. Late requests
    /// stay as they are.
    fn abandon(&mut self, client: usize) -> Vec<InFlight> {
        let is_own = |item: &mut InFlight| item.client == client && !matches!(item.stage, Stage::Late(_));
        let taken: Vec<InFlight> = self.in_flight.extract_if(.., is_own).collect();
        for item in &taken {
            if matches!(item.stage, Stage::Sent) {
                self.leave_behind(item.number, client, item.request.clone());
            }
        }
        taken
    }

    /// Ends a client. Returns its callbacks, which the caller drops without the lock.
    pub(super) fn kill(&mut self, client: usize) -> Vec<Done> {
        self.links[client].is_killed = true;
        self.links[client].is_alive = false;
        self.abandon(client).into_iter().filter_map(|item| item.done).collect()
    }

    /// Notes that a client's handle is gone. Returns the callbacks that will never be called.
    pub(super) fn disconnect(&mut self, client: usize) -> Vec<Done> {
        self.links[client].is_alive = false;
        let link = self.links[client];
        if link.holds_requests || link.holds_replies { self.kill(client) } else { Vec::new() }
    }

    /// Ends a client as [`Network::kill`] does, but its callbacks hear of it.
    pub(super) fn stop(&mut self, client: usize) {
        let link = &mut self.links[client];
        (link.is_stopped, link.holds_requests, link.holds_replies) = (true, false, false);
        link.is_alive = false;
        let mut taken = self.abandon(client);
        for item in &mut taken {
            item.stage = Stage::Answered(unknown("the machine has stopped"));
        }
        self.in_flight.append(&mut taken);
    }

    /// Lets all late requests take effect, in random order.
    pub(super) fn finish_late(&mut self) {
        let is_late = |item: &mut InFlight| matches!(item.stage, Stage::Late(_));
        let mut late: Vec<InFlight> = self.in_flight.extract_if(.., is_late).collect();
        while !late.is_empty() {
            let chosen = self.random.below(late.len() as u64) as usize;
            let item = late.swap_remove(chosen);
            self.proceed(item);
        }
    }

    /// Removes all late requests.
    pub(super) fn lose_late(&mut self) {
        let is_late = |item: &mut InFlight| matches!(item.stage, Stage::Late(_));
        let late: Vec<InFlight> = self.in_flight.extract_if(.., is_late).collect();
        late.iter().for_each(|item| self.record(item, Event::Lost));
    }

    /// Returns the requests in flight that may still change something: number, client, text.
    pub(super) fn unfinished(&self) -> Vec<(u64, usize, Arc<Request>)> {
        let pending = self.in_flight.iter().filter(|item| !matches!(item.stage, Stage::Answered(_)));
        pending.map(|item| (item.number, item.client, item.request.clone())).collect()
    }

    /// Returns whether no client is left that could send or hear anything.
    pub(super) fn is_over(&self) -> bool {
        self.links.iter().all(|link| !link.is_alive) && self.in_flight.iter().all(|item| item.done.is_none())
    }

    fn now(&self) -> Nanos {
        if self.options.latency.is_zero() { Nanos::default() } else { Clock::real().now() }
    }

    /// Draws the time at which a message sent now arrives.
    fn after_latency(&mut self) -> Nanos {
        let mean = self.options.latency.as_nanos() as u64;
        if mean == 0 {
            return Nanos::default();
        }
        let factor = if self.random.below(SLOW) == 0 { 10 } else { 1 };
        Nanos(self.now().0 + factor * self.random.below(mean))
    }
}
