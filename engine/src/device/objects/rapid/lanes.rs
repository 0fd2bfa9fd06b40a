//! All lanes that this client has opened, and how a stream is opened.

use super::super::client::Place;
use super::super::request::{Failure, FailureKind, RequestKind};
use super::super::store::{Done, Outcome};
use super::connection::Connection;
use super::errors::{failure, redirect};
use super::messages::{
    AppendObjectSpec, BidiWriteObjectRedirectedError, BidiWriteObjectRequest, BidiWriteObjectResponse,
    FirstMessage, Object, WriteObjectSpec, WriteStatus,
};
use super::stream::{Command, Ended, Lane, State, Stream, described, durable};
use crate::sync::Mutex;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tonic::Streaming;

/// Redirects that are followed.
const REDIRECTS_MAX: usize = 5;

/// How a stream begins.
#[derive(Clone)]
pub(super) enum Opening {
    /// Creates the object with these bytes.
    Create(Bytes),
    /// Continues with the last handle.
    Resume(i64),
    /// Becomes the only writer.
    TakeOver(i64),
}

/// A stream that has answered.
struct Begun {
    generation: i64,
    durable: u64,
    messages: UnboundedSender<BidiWriteObjectRequest>,
    answers: Streaming<BidiWriteObjectResponse>,
}

/// Why a stream has not begun.
enum Stop {
    Failed(Failure),
    Redirected(BidiWriteObjectRedirectedError),
}

/// See the module's text.
#[derive(Default)]
pub(super) struct Lanes(Mutex<BTreeMap<String, Arc<Mutex<Lane>>>>);

impl Lanes {
    fn of(&self, name: &str) -> Arc<Mutex<Lane>> {
        self.0.lock().entry(name.to_string()).or_default().clone()
    }

    /// Hands an append to the open stream. Appends of one lane must be handed over in order.
    pub fn append(&self, place: &Place, name: &str, offset: u64, body: Bytes, done: Done) {
        let commands = self.of(name).lock().commands.clone();
        let command = Command::Append { offset, body, done: Ended::new(done) };
        let unsent = match commands {
            Some(commands) => commands.send(command).err().map(|unsent| unsent.0),
            None => Some(command),
        };
        if let Some(Command::Append { done, .. }) = unsent {
            let why = "the object has no stream";
            done.call(Err(place.say(FailureKind::Again, RequestKind::Append, name, why)));
        }
    }

    /// Ends an object on its open stream.
    pub async fn finalize(&self, place: &Place, name: &str, len: u64) -> Outcome {
        let (ended, end) = oneshot::channel();
        let commands = self.of(name).lock().commands.clone();
        let sent = commands.is_some_and(|it| it.send(Command::Finalize { len, ended }).is_ok());
        let say = |kind, why| place.say(kind, RequestKind::Finalize, name, why);
        if !sent {
            return Err(say(FailureKind::Again, "the object has no stream"));
        }
        let outcome = end.await.unwrap_or_else(|_| Err(say(FailureKind::Unknown, "the client was closed")));
        if outcome.is_ok() {
            self.forget(name);
        }
        outcome
    }

    /// Forgets an object that is finalized or gone.
    pub fn forget(&self, name: &str) {
        self.0.lock().remove(name);
    }

    /// Opens the stream of an object. Returns the bytes that are durable.
    pub async fn open(&self, connection: &Connection, name: &str, opening: Opening) -> Outcome {
        let lane = self.of(name);
        let mut opening = opening;
        let header = match &opening {
            Opening::Create(header) => header.clone(),
            _ => Bytes::new(),
        };
        match &opening {
            Opening::TakeOver(_) => lane.lock().handle = None,
            // Without a handle the open would take the object over.
            Opening::Resume(_) if lane.lock().handle.is_none() => {
                let why = "this client has no handle of the object";
                return Err(connection.place.say(FailureKind::Refused, RequestKind::Open, name, why));
            }
            _ => {}
        }
        let mut redirects = 0;
        let mut begun = loop {
            match begin(connection, name, &lane, &opening).await {
                Ok(begun) => break begun,
                Err(Stop::Failed(failure)) => {
                    // The name is given up, unless this client has the object already.
                    if matches!(opening, Opening::Create(_)) && lane.lock().commands.is_none() {
                        self.forget(name);
                    }
                    return Err(failure);
                }
                Err(Stop::Redirected(redirect)) => {
                    redirects += 1;
                    if redirects > REDIRECTS_MAX {
                        let kind = kind_of(&opening);
                        let why = "the service redirects again and again";
                        return Err(connection.place.say(FailureKind::Again, kind, name, why));
                    }
                    lane.lock().token = redirect.routing_token;
                    if let (Some(handle), Some(generation)) = (redirect.write_handle, redirect.generation) {
                        // The object was created, or taken over.
                        lane.lock().handle = Some(handle);
                        opening = Opening::Resume(generation);
                    }
                }
            }
        };
        persist(connection, name, &mut begun, &header).await?;
        let Begun { generation, durable, messages, answers } = begun;
        let (commands, receiver) = unbounded_channel();
        let serial = {
            let mut lane = lane.lock();
            lane.serial += 1;
            lane.commands = Some(commands);
            lane.serial
        };
        let (name, place) = (name.to_string(), connection.place.clone());
        let state = State::at(durable);
        let stream =
            Stream { name, place, generation, lane, serial, messages, answers, commands: receiver, state };
        tokio::spawn(stream.run());
        Ok(described(generation, durable))
    }
}

fn kind_of(opening: &Opening) -> RequestKind {
    match opening {
        Opening::Create(_) => RequestKind::Put,
        Opening::Resume(_) | Opening::TakeOver(_) => RequestKind::Open,
    }
}

/// Sends the first message and takes its answer.
async fn begin(
    connection: &Connection,
    name: &str,
    lane: &Mutex<Lane>,
    opening: &Opening,
) -> Result<Begun, Stop> {
    let about = (kind_of(opening), name);
    let token = lane.lock().token.clone();
    let first = first_message(connection, name, lane, opening, token.clone());
    let (messages, receiver) = unbounded_channel();
    // The receiver is there.
    let _ = messages.send(first);
    let sent = connection.streaming("BidiWriteObject", about, receiver, token.as_deref()).await;
    let answer = match sent.map_err(Stop::Failed)? {
        Err(status) => Err(status),
        Ok(response) => {
            let mut answers: Streaming<BidiWriteObjectResponse> = response.into_inner();
            answers.message().await.map(|answer| (answer, answers))
        }
    };
    let (answer, answers) = match answer {
        Ok(begun) => begun,
        Err(status) => {
            let redirect: Option<BidiWriteObjectRedirectedError> =
                redirect(&status, "BidiWriteObjectRedirectedError");
            let failed = || Stop::Failed(failure(&connection.place, about.0, name, &status));
            return Err(redirect.map_or_else(failed, Stop::Redirected));
        }
    };
    let unknown = |why| Stop::Failed(connection.place.say(FailureKind::Unknown, about.0, name, why));
    let Some(answer) = answer else { return Err(unknown("the service has ended the stream")) };
    if answer.write_handle.is_some() {
        lane.lock().handle = answer.write_handle;
    }
    let generation = match (&answer.write_status, opening) {
        (Some(WriteStatus::Resource(object)), _) => object.generation,
        (_, &(Opening::Resume(generation) | Opening::TakeOver(generation))) => generation,
        _ => return Err(unknown("the answer to the creation names no generation")),
    };
    let durable = answer.write_status.as_ref().map_or(0, durable);
    Ok(Begun { generation, durable, messages, answers })
}

fn first_message(
    connection: &Connection,
    name: &str,
    lane: &Mutex<Lane>,
    opening: &Opening,
    token: Option<String>,
) -> BidiWriteObjectRequest {
    let (bucket, key) = (connection.bucket.clone(), connection.key(name));
    match opening {
        Opening::Create(header) => {
            let resource = Some(Object { name: key, bucket, ..Object::default() });
            let spec = WriteObjectSpec { resource, if_generation_match: Some(0), appendable: Some(true) };
            let first_message = Some(FirstMessage::WriteObjectSpec(spec));
            let header = BidiWriteObjectRequest::data(0, header.clone());
            BidiWriteObjectRequest { first_message, ..header.flushed() }
        }
        Opening::Resume(generation) | Opening::TakeOver(generation) => {
            let handle = lane.lock().handle.clone();
            let write_handle = handle.filter(|_| matches!(opening, Opening::Resume(_)));
            let (object, generation, routing_token) = (key, *generation, token);
            let spec = AppendObjectSpec { bucket, object, generation, routing_token, write_handle };
            let first_message = Some(FirstMessage::AppendObjectSpec(spec));
            BidiWriteObjectRequest { first_message, state_lookup: true, ..Default::default() }
        }
    }
}

/// Makes the header of a new object durable.
async fn persist(
    connection: &Connection,
    name: &str,
    begun: &mut Begun,
    header: &Bytes,
) -> Result<(), Failure> {
    let place = &connection.place;
    while begun.durable < header.len() as u64 {
        let rest = header.slice(begun.durable as usize..);
        // A stream that is lost refuses messages; its answers say why.
        let _ = begun.messages.send(BidiWriteObjectRequest::data(begun.durable, rest).flushed());
        let answer = begun.answers.message().await;
        let answer = answer.map_err(|status| failure(place, RequestKind::Put, name, &status))?;
        let ended = || place.say(FailureKind::Unknown, RequestKind::Put, name, "the stream has ended");
        begun.durable = answer.ok_or_else(ended)?.write_status.as_ref().map_or(0, durable);
    }
    Ok(())
}
