//! Sends conditional requests at the same time: one of them may succeed, and its bytes must be
//! there.
//!
//! A server that looks whether the condition holds and then writes, in two steps, lets two requests
//! that overlap succeed. Both senders report commits, and one of them loses them. So a race sends
//! [`RIVALS`] requests with the same condition and different bytes, from as many connections.
//!
//! A server that writes an object in place shows parts of the old and of the new bytes to a reader.
//! So an object is read while it is replaced, and each answer must be one of the bodies.
//!
//! An answer that proves nothing (a timeout, a throttled request) only takes its request out of the
//! race. So many requests to one object at a time may make a right server throttle some.

use super::super::request::{Condition, Failure, FailureKind, Reply, Request, Version};
use super::super::store::Outcome;
use super::super::waiting::wait_for_all;
use super::trial::{Answer, IS_STALE, Stop, Trial};
use crate::base::random::Random;
use crate::sync::{Event, Mutex};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;

/// Requests of one race.
const RIVALS: usize = 16;

/// Objects that are raced for at the same time, so that all rounds take little time.
const OBJECTS: usize = 4;

/// Length of a body that is raced.
const RACED_BYTES: usize = 4 << 10;

/// Reads that are in flight while an object is replaced.
const READERS: usize = 8;

/// Most reads beside one replacement.
const READS_MAX: usize = 32;

/// One of so many reads asks for the whole object. The others ask for its beginning, which shows
/// the version, and costs little.
const WHOLE_EVERY: usize = 2;

/// Length of the beginning.
const BEGINNING_BYTES: usize = 4 << 10;

/// Length of a body that is read while it is replaced.
const READ_BYTES: usize = 128 << 10;

/// How often a probe races.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rounds {
    /// Races of each kind of request.
    pub races: u32,
    /// Replacements of an object that is read.
    pub reads: u32,
}

/// The races of one trial.
pub(super) struct Race<'a> {
    trial: &'a Trial<'a>,
    appends: bool,
    rounds: Rounds,
}

/// An object as the last winner left it.
struct Stored {
    body: Bytes,
    version: Version,
}

/// A read of the first `len` bytes of an object that is replaced.
struct Read {
    len: usize,
    outcome: Outcome,
}

/// What the requests of a race ask for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Put,
    Replace,
    Create,
    Append,
}

/// What the races have shown so far.
#[derive(Default)]
struct Decided {
    /// Kinds of requests that had a winner.
    kinds: Vec<Kind>,
    /// Why a race had none.
    failure: Option<Failure>,
}

/// Returns objects that are to be created.
fn absent(names: Vec<String>) -> Vec<(String, Option<Stored>)> {
    names.into_iter().map(|name| (name, None)).collect()
}

impl Kind {
    /// Returns the promise that a second success breaks, and the request in words.
    fn fault(self) -> (&'static str, &'static str) {
        match self {
            Kind::Put | Kind::Create => {
                ("does not keep `create if absent` (If-None-Match: *) when requests race", "creations")
            }
            Kind::Replace => {
                ("does not keep `replace if unchanged` (If-Match) when requests race", "replacements")
            }
            Kind::Append => ("does not keep the offset of an append when requests race", "appends"),
        }
    }

    fn request(self, name: &str, body: Bytes, before: Option<&Stored>) -> Request {
        let name = name.to_string();
        match (self, before) {
            (Kind::Create, _) => Request::Create { name, body },
            (Kind::Append, Some(before)) => {
                Request::Append { name, offset: before.body.len() as u64, body, version: None }
            }
            (Kind::Replace, Some(before)) => {
                Request::Put { name, body, condition: Condition::Unchanged(before.version.clone()) }
            }
            (_, _) => Request::Put { name, body, condition: Condition::Absent },
        }
    }
}

fn is_denied(failure: &Failure) -> bool {
    matches!(failure.kind, FailureKind::Denied | FailureKind::Forbidden)
}

/// Returns a body that no other call returns.
fn new_body(len: usize) -> Bytes {
    let mut random = Random::from_entropy();
    let (number, fill) = (random.next_u64(), random.next_u64() as u8);
    let mut body = format!("raced by the probe of QuenchDB: {number:016x}\n").into_bytes();
    body.resize(len.max(body.len()), fill);
    body.into()
}

impl<'a> Race<'a> {
    /// Creates races for a store that takes appends or not. Sends nothing.
    pub(super) fn new(trial: &'a Trial<'a>, appends: bool, rounds: Rounds) -> Race<'a> {
        Race { trial, appends, rounds }
    }

    /// Runs all rounds, and removes the objects.
    pub(super) fn run(&self) -> Result<(), Stop> {
        let mut decided = Decided::default();
        for first in (0..self.rounds.races).step_by(OBJECTS) {
            let numbers = first..self.rounds.races.min(first + OBJECTS as u32);
            let names =
                |kind: &str| numbers.clone().map(|n| self.trial.name(&format!("{kind}-{n}"))).collect();
            let created = self.race(Kind::Put, absent(names("replaced")), &mut decided)?;
            self.race(Kind::Replace, created, &mut decided)?;
            if self.appends {
                let created = self.race(Kind::Create, absent(names("appended")), &mut decided)?;
                self.race(Kind::Append, created, &mut decided)?;
            }
            self.trial.remove_all();
        }
        let kinds = if self.appends { &[Kind::Replace, Kind::Append][..] } else { &[Kind::Replace] };
        if let Some(failure) =
            decided.failure.filter(|_| kinds.iter().any(|kind| !decided.kinds.contains(kind)))
        {
            return Err(Stop::Unclear(failure));
        }
        if self.rounds.reads > 0 {
            self.read_while_replaced()?;
        }
        self.trial.remove_all();
        Ok(())
    }

    /// Races requests of one kind on each of these objects. Returns the objects whose race had a
    /// winner, as the winner left them.
    fn race(
        &self,
        kind: Kind,
        objects: Vec<(String, Option<Stored>)>,
        decided: &mut Decided,
    ) -> Result<Vec<(String, Option<Stored>)>, Stop> {
        let bodies: Vec<Bytes> = (0..objects.len() * RIVALS).map(|_| new_body(RACED_BYTES)).collect();
        let mut outcomes = wait_for_all(bodies.len(), |at, done| {
            let (name, before) = &objects[at / RIVALS];
            self.trial.store.start(kind.request(name, bodies[at].clone(), before.as_ref()), done);
        })
        .into_iter();
        let mut won = Vec::new();
        for ((name, before), bodies) in objects.into_iter().zip(bodies.chunks(RIVALS)) {
            let outcomes = outcomes.by_ref().take(RIVALS).zip(bodies.iter().cloned()).collect();
            match self.judge(kind, before.as_ref(), outcomes)? {
                Ok(winner) => {
                    self.check_winner(kind, &name, &winner)?;
                    won.push((name, Some(winner)));
                }
                Err(failure) => decided.failure = Some(failure),
            }
        }
        if !won.is_empty() {
            decided.kinds.push(kind);
        }
        Ok(won)
    }

    /// Returns what the winner of a race has stored, or why there is none.
    fn judge(
        &self,
        kind: Kind,
        before: Option<&Stored>,
        outcomes: Vec<(Outcome, Bytes)>,
    ) -> Result<Result<Stored, Failure>, Stop> {
        let (mut winners, mut last) = (Vec::new(), None);
        for (outcome, body) in outcomes {
            match outcome {
                Ok(reply) => winners.push((reply, body)),
                Err(failure) if is_denied(&failure) => {
                    return Err(self.trial.denied(&failure));
                }
                Err(failure) => last = Some(failure),
            }
        }
        if winners.len() > 1 {
            let (fault, requests) = kind.fault();
            let shown =
                format!("{} of {RIVALS} {requests} of one object at the same time succeeded", winners.len());
            return Err(self.trial.breaks(fault, &shown));
        }
        let Some((reply, body)) = winners.pop() else {
            let what = "none of the requests that race succeeded".into();
            return Ok(Err(last.unwrap_or(Failure { kind: FailureKind::Again, what })));
        };
        let body = match (kind, before) {
            (Kind::Append, Some(before)) => [&before.body[..], &body].concat().into(),
            _ => body,
        };
        Ok(Ok(Stored { body, version: self.trial.version_of(reply, "a request that races others")? }))
    }

    /// Checks that the winner's bytes are there.
    fn check_winner(&self, kind: Kind, name: &str, winner: &Stored) -> Result<(), Stop> {
        match self.trial.ask(Request::Get { name: name.into(), range: None })? {
            Answer::Done(reply) if reply.body == winner.body => {
                self.trial.same_version(reply.version.as_ref(), &winner.version)
            }
            Answer::Done(_) => {
                let (fault, requests) = kind.fault();
                let shown = format!(
                    "one of {RIVALS} {requests} of one object at the same time succeeded, and yet the \
                     object holds other bytes"
                );
                Err(self.trial.breaks(fault, &shown))
            }
            Answer::Absent => Err(self.trial.breaks(IS_STALE, "an object just written is absent")),
            Answer::Refused => Err(self.trial.fails("a read", "it is refused")),
            Answer::Denied(failure) => Err(self.trial.denied(&failure)),
        }
    }

    /// Replaces some objects again and again, and reads them at the same time. A write of unknown
    /// outcome ends its object.
    fn read_while_replaced(&self) -> Result<(), Stop> {
        let (mut last, mut decided) = (None, 0);
        let mut objects: Vec<(String, Stored)> = Vec::new();
        for first in (0..self.rounds.reads).step_by(OBJECTS) {
            for number in objects.len()..OBJECTS {
                let (name, body) = (self.trial.name(&format!("read-{first}-{number}")), new_body(READ_BYTES));
                let outcome = self.trial.send(Kind::Put.request(&name, body.clone(), None));
                match self.written(body, outcome)? {
                    Ok(created) => objects.push((name, created)),
                    Err(failure) => last = Some(failure),
                }
            }
            let next: Vec<Bytes> = objects.iter().map(|_| new_body(READ_BYTES)).collect();
            let ended = self.replace_and_read(&objects, &next);
            for ((name, before), (next, (replaced, reads))) in
                std::mem::take(&mut objects).into_iter().zip(next.into_iter().zip(ended))
            {
                let version = replaced.as_ref().ok().and_then(|reply| reply.version.clone());
                for read in reads {
                    self.check_read(read, &before, &next, version.as_ref())?;
                }
                match self.written(next, replaced)? {
                    Ok(after) => {
                        objects.push((name, after));
                        decided += 1;
                    }
                    Err(failure) => last = Some(failure),
                }
            }
        }
        match last {
            Some(failure) if decided == 0 => Err(Stop::Unclear(failure)),
            _ => Ok(()),
        }
    }

    /// Replaces each object, and reads it again and again until it is replaced. Returns the
    /// outcomes of the replacement and of the reads, for each object.
    fn replace_and_read(&self, objects: &[(String, Stored)], next: &[Bytes]) -> Vec<(Outcome, Vec<Read>)> {
        let ended = Arc::new((Mutex::new(VecDeque::new()), Event::new()));
        // Bytes to read; none for the replacement.
        let start = |at: usize, len: Option<usize>| {
            let (name, before) = &objects[at];
            let request = match len {
                Some(len) => {
                    let range = (len < READ_BYTES).then_some(0..len as u64);
                    Request::Get { name: name.clone(), range }
                }
                None => Kind::Replace.request(name, next[at].clone(), Some(before)),
            };
            let ended = ended.clone();
            let done = move |outcome| {
                ended.0.lock().push_back((at, len, outcome));
                ended.1.notify_all();
            };
            self.trial.store.start(request, Box::new(done));
        };
        let len_of =
            |read: usize| Some(if read.is_multiple_of(WHOLE_EVERY) { READ_BYTES } else { BEGINNING_BYTES });
        let mut replaced: Vec<Option<Outcome>> = objects.iter().map(|_| None).collect();
        let mut reads: Vec<Vec<Read>> = objects.iter().map(|_| Vec::new()).collect();
        for at in 0..objects.len() {
            start(at, None);
            (0..READERS).for_each(|read| start(at, len_of(read)));
        }
        let mut in_flight = objects.len() * (1 + READERS);
        while in_flight > 0 {
            let ticket = ended.1.ticket();
            let next = ended.0.lock().pop_front();
            match next {
                None => ended.1.wait(ticket, None),
                Some((at, Some(len), outcome)) => {
                    reads[at].push(Read { len, outcome });
                    let started = reads[at].len() + READERS - 1;
                    if replaced[at].is_none() && started < READS_MAX {
                        start(at, len_of(started));
                    } else {
                        in_flight -= 1;
                    }
                }
                Some((at, None, outcome)) => {
                    replaced[at] = Some(outcome);
                    in_flight -= 1;
                }
            }
        }
        replaced.into_iter().flatten().zip(reads).collect()
    }

    /// Returns what a write without a rival has stored, or why that is unclear.
    fn written(&self, body: Bytes, outcome: Outcome) -> Result<Result<Stored, Failure>, Stop> {
        match outcome {
            Ok(reply) => Ok(Ok(Stored { body, version: self.trial.version_of(reply, "a write")? })),
            Err(failure) if is_denied(&failure) => Err(self.trial.denied(&failure)),
            // If it is refused, an earlier copy of it may be the reason.
            Err(failure) => Ok(Err(failure)),
        }
    }

    /// Checks the answer of a read beside a replacement: the bytes and the version before, or those
    /// after.
    fn check_read(
        &self,
        Read { len, outcome }: Read,
        before: &Stored,
        after: &Bytes,
        version: Option<&Version>,
    ) -> Result<(), Stop> {
        let Reply { body, version: read, .. } = match outcome {
            Ok(reply) => reply,
            Err(failure) if failure.kind == FailureKind::Absent => {
                return Err(self.torn("a read found no object"));
            }
            // The client gave up a read that was cut short, or the server was busy.
            Err(_) => return Ok(()),
        };
        let is_old = body == before.body[..len];
        if !is_old && body != after[..len] {
            return Err(self.torn(&format!(
                "a read returned {} bytes that are neither those before nor those after",
                body.len()
            )));
        }
        let wrong = match (is_old, version) {
            (true, _) => read.as_ref() != Some(&before.version),
            (false, Some(version)) => read.as_ref() != Some(version),
            (false, None) => read.as_ref() == Some(&before.version),
        };
        if wrong {
            return Err(self.torn("a read returned the bytes of one version and the ETag of another"));
        }
        Ok(())
    }

    fn torn(&self, shown: &str) -> Stop {
        self.trial.breaks("shows an object half replaced", shown)
    }
}
