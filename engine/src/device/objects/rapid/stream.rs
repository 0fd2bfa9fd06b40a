//! The stream of one lane: a task that sends what its author appends, and hears what is durable.
//!
//! ```text
//!    appends ──▶ held ──▶ messages ──▶ service
//!                 │          the last one carries `flush` and `state_lookup`,
//!                 │          as long as fewer than two flushes are outstanding
//!    done ◀── pending ◀── persisted_size
//! ```
//!
//! 1. Appends are sent in their order, each at once. The last one at hand is held until it is known
//!    whether it is to be flushed.
//! 2. An append is done when an answer has a `persisted_size` at or above its end. An answer is a
//!    length, and no receipt, so one answer may end many appends.
//! 3. At most two flushes are outstanding. What comes meanwhile is flushed together.
//! 4. When the stream ends, or an answer takes too long, every append that is not done fails. This
//!    task repeats nothing.

use super::super::client::Place;
use super::super::request::{Failure, FailureKind, Reply, RequestKind, Version};
use super::super::store::{Done, Outcome};
use super::errors::failure;
use super::messages::{
    BidiWriteHandle, BidiWriteObjectRequest, BidiWriteObjectResponse, DATA_BYTES_MAX, Object, WriteStatus,
};
use crate::sync::Mutex;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tonic::{Status, Streaming};

/// Flushes that are outstanding together.
const FLUSHES_MAX: usize = 2;

/// Without an answer for so long, the stream counts as lost.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A stream without appends ends after so long; the next append opens it again with its handle.
const IDLE_MAX: Duration = Duration::from_secs(20);

/// What streams of a lane leave to the next one.
#[derive(Default)]
pub(super) struct Lane {
    /// Of the last answer: it names this writer.
    pub handle: Option<BidiWriteHandle>,
    /// Of the last redirect.
    pub token: Option<String>,
    /// The stream that is open.
    pub commands: Option<UnboundedSender<Command>>,
    /// Its number among the streams of this lane.
    pub serial: u64,
}

/// What a lane's stream is to do.
pub(super) enum Command {
    /// Adds bytes at the end of what was sent; elsewhere only if nothing is pending, to see what
    /// the service says.
    Append { offset: u64, body: Bytes, done: Ended },
    /// Ends the object for ever. Nothing may be pending.
    Finalize { len: u64, ended: oneshot::Sender<Outcome> },
}

/// Calls `done` exactly once, also if the client is closed before.
pub(super) struct Ended(Option<Done>);

impl Ended {
    pub fn new(done: Done) -> Ended {
        Ended(Some(done))
    }

    pub fn call(mut self, outcome: Outcome) {
        if let Some(done) = self.0.take() {
            done(outcome);
        }
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            let what = "the client was closed before the answer to an append".into();
            done(Err(Failure { kind: FailureKind::Unknown, what }));
        }
    }
}

/// An append that is not known to be durable.
struct Sent {
    end: u64,
    done: Ended,
}

/// See the module's text.
pub(super) struct Stream {
    pub name: String,
    pub place: Place,
    pub generation: i64,
    /// What the next streams of this lane need.
    pub lane: Arc<Mutex<Lane>>,
    /// Distinguishes the streams of a lane.
    pub serial: u64,
    pub messages: UnboundedSender<BidiWriteObjectRequest>,
    pub answers: Streaming<BidiWriteObjectResponse>,
    pub commands: UnboundedReceiver<Command>,
    pub state: State,
}

/// What was sent, and what of it is durable.
#[derive(Default)]
pub(super) struct State {
    /// The end of what was sent.
    sent: u64,
    pending: VecDeque<Sent>,
    /// The ends of the flushes that are outstanding.
    flushes: VecDeque<u64>,
    held: Option<BidiWriteObjectRequest>,
    /// Bytes were sent behind the last flush.
    is_unflushed: bool,
    finalizing: Option<oneshot::Sender<Outcome>>,
}

/// Why a stream ends.
enum End {
    Lost(Failure),
    Finalized(Object),
    Idle,
}

impl State {
    /// Begins behind the bytes that an object has.
    pub fn at(len: u64) -> State {
        State { sent: len, ..State::default() }
    }

    fn is_waiting(&self) -> bool {
        !self.pending.is_empty() || self.finalizing.is_some()
    }
}

impl Stream {
    /// Runs until the stream ends.
    pub async fn run(mut self) {
        let end = self.serve().await;
        {
            let mut lane = self.lane.lock();
            if lane.serial == self.serial {
                lane.commands = None;
            }
        }
        self.commands.close();
        let failure = match end {
            End::Finalized(object) => {
                if let Some(ended) = self.state.finalizing.take() {
                    // The caller may have given up.
                    let _ = ended.send(Ok(Reply { is_final: true, ..reply_of(&object) }));
                }
                self.say(FailureKind::Refused, "the object is finalized")
            }
            End::Idle => self.say(FailureKind::Again, "the stream was idle and is closed"),
            End::Lost(failure) => failure,
        };
        if let Some(ended) = self.state.finalizing.take() {
            let _ = ended.send(Err(failure.clone()));
        }
        for sent in self.state.pending.drain(..) {
            sent.done.call(Err(failure.clone()));
        }
        // What came too late to be sent.
        let unsent = self.say(FailureKind::Again, "the stream was lost before");
        while let Some(command) = self.commands.recv().await {
            match command {
                Command::Append { done, .. } => done.call(Err(unsent.clone())),
                Command::Finalize { ended, .. } => drop(ended.send(Err(unsent.clone()))),
            }
        }
    }

    async fn serve(&mut self) -> End {
        let mut deadline = Instant::now() + IDLE_MAX;
        loop {
            let was_waiting = self.state.is_waiting();
            tokio::select! {
                biased;
                answer = self.answers.message() => {
                    match answer {
                        Ok(Some(answer)) => match self.hear(answer) {
                            Some(end) => return end,
                            None => deadline = self.deadline(),
                        },
                        Ok(None) => return End::Lost(self.lost("the service has ended the stream")),
                        Err(status) => return End::Lost(self.refused(&status)),
                    }
                }
                command = self.commands.recv() => {
                    let Some(command) = command else { return End::Idle };
                    self.take(command);
                    while let Ok(command) = self.commands.try_recv() {
                        self.take(command);
                    }
                    if !was_waiting {
                        deadline = self.deadline();
                    }
                }
                () = tokio::time::sleep_until(deadline) => {
                    if !self.state.is_waiting() {
                        return End::Idle;
                    }
                    return End::Lost(self.lost("no answer came in time"));
                }
            }
            self.flush();
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + if self.state.is_waiting() { ANSWER_MAX } else { IDLE_MAX }
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Append { offset, done, .. } if offset != self.state.sent && self.state.is_waiting() => {
                let why = format!("the offset is {offset}, and {} bytes were sent", self.state.sent);
                done.call(Err(self.say(FailureKind::Again, &why)));
            }
            // Elsewhere it is a repetition, or behind a gap: the service is to judge it.
            Command::Append { offset, body, done } => {
                for start in (0..body.len()).step_by(DATA_BYTES_MAX) {
                    let piece = body.slice(start..body.len().min(start + DATA_BYTES_MAX));
                    let message = BidiWriteObjectRequest::data(offset + start as u64, piece);
                    if let Some(before) = self.state.held.replace(message) {
                        self.send(before);
                    }
                }
                self.state.sent = self.state.sent.max(offset + body.len() as u64);
                self.state.is_unflushed = true;
                self.state.pending.push_back(Sent { end: self.state.sent, done });
            }
            Command::Finalize { len, ended } if len != self.state.sent || self.state.is_waiting() => {
                let why = "the object is finalized at another length, or before it is durable";
                drop(ended.send(Err(self.say(FailureKind::Again, why))));
            }
            Command::Finalize { len, ended } => {
                let write_offset = len as i64;
                self.send(BidiWriteObjectRequest { write_offset, finish_write: true, ..Default::default() });
                self.state.finalizing = Some(ended);
            }
        }
    }

    /// Sends what is held, with a flush if one may be outstanding.
    fn flush(&mut self) {
        let may_flush = self.state.is_unflushed && self.state.flushes.len() < FLUSHES_MAX;
        let held = self.state.held.take();
        if !may_flush {
            if let Some(held) = held {
                self.send(held);
            }
            return;
        }
        let empty = BidiWriteObjectRequest { write_offset: self.state.sent as i64, ..Default::default() };
        self.send(held.unwrap_or(empty).flushed());
        self.state.is_unflushed = false;
        self.state.flushes.push_back(self.state.sent);
    }

    /// A stream that is lost refuses messages; its answers say why.
    fn send(&self, message: BidiWriteObjectRequest) {
        let _ = self.messages.send(message);
    }

    fn hear(&mut self, answer: BidiWriteObjectResponse) -> Option<End> {
        if answer.write_handle.is_some() {
            self.lane.lock().handle = answer.write_handle;
        }
        let durable = match answer.write_status {
            Some(WriteStatus::Resource(object)) if self.state.finalizing.is_some() => {
                return Some(End::Finalized(object));
            }
            Some(status) => durable(&status),
            None => return None,
        };
        if durable > self.state.sent {
            return Some(End::Lost(self.lost("the object is longer than what was sent")));
        }
        while self.state.flushes.front().is_some_and(|end| *end <= durable) {
            self.state.flushes.pop_front();
        }
        while self.state.pending.front().is_some_and(|sent| sent.end <= durable) {
            if let Some(sent) = self.state.pending.pop_front() {
                sent.done.call(Ok(described(self.generation, durable)));
            }
        }
        None
    }

    fn kind(&self) -> RequestKind {
        if self.state.finalizing.is_some() { RequestKind::Finalize } else { RequestKind::Append }
    }

    fn say(&self, kind: FailureKind, why: &str) -> Failure {
        self.place.say(kind, self.kind(), &self.name, why)
    }

    fn lost(&self, why: &str) -> Failure {
        self.say(FailureKind::Unknown, why)
    }

    fn refused(&self, status: &Status) -> Failure {
        failure(&self.place, self.kind(), &self.name, status)
    }
}

/// Returns a length that a message has as a signed number.
pub(super) fn length(size: i64) -> u64 {
    u64::try_from(size).unwrap_or(0)
}

/// Returns the bytes of an object that are durable by an answer.
pub(super) fn durable(status: &WriteStatus) -> u64 {
    match status {
        WriteStatus::Resource(object) => length(object.size),
        WriteStatus::PersistedSize(size) => length(*size),
    }
}

pub(super) fn described(generation: i64, len: u64) -> Reply {
    Reply { version: Some(Version(generation.to_string())), len, ..Reply::default() }
}

/// Returns what a description says of an object.
pub(super) fn reply_of(object: &Object) -> Reply {
    let is_final = object.finalize_time.is_some();
    Reply { is_final, ..described(object.generation, length(object.size)) }
}
