//! Each promise and each fault of the simulated store.

use super::*;
use crate::device::objects::{
    Condition, FailureKind, ObjectStore, Outcome, Reply, Request, RequestKind, Version, perform,
};
use crate::sync::{Mutex, thread};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

fn put_if(name: &str, body: &'static str, condition: Condition) -> Request {
    Request::Put { name: name.into(), body: Bytes::from_static(body.as_bytes()), condition }
}

fn put(name: &str, body: &'static str) -> Request {
    put_if(name, body, Condition::Always)
}

fn create(name: &str, body: &'static str) -> Request {
    Request::Create { name: name.into(), body: Bytes::from_static(body.as_bytes()) }
}

fn append(name: &str, offset: u64, body: &'static str) -> Request {
    Request::Append { name: name.into(), offset, body: Bytes::from_static(body.as_bytes()), version: None }
}

fn get(name: &str) -> Request {
    Request::Get { name: name.into(), range: None }
}

fn list(prefix: &str) -> Request {
    Request::List { prefix: prefix.into() }
}

fn delete(name: &str) -> Request {
    Request::Delete { name: name.into() }
}

fn done(client: &SimulatedClient, request: Request) -> Reply {
    perform(client, request).expect("the store takes the request")
}

fn refused(client: &SimulatedClient, request: Request) -> FailureKind {
    perform(client, request).expect_err("the store refuses the request").kind
}

fn text(store: &SimulatedStore, name: &str) -> Option<String> {
    store.objects().get(name).map(|body| String::from_utf8_lossy(body).into_owned())
}

fn stepped(seed: u64) -> SimulatedStore {
    SimulatedStore::with(StoreOptions { delivery: Delivery::Stepped, ..StoreOptions::new(seed) })
}

/// The outcomes of requests, in the order of their ends, each with its number here.
type Outcomes = Arc<Mutex<Vec<(usize, Outcome)>>>;

fn start(client: &SimulatedClient, request: Request, number: usize, outcomes: &Outcomes) {
    let outcomes = outcomes.clone();
    client.start(request, Box::new(move |outcome| outcomes.lock().push((number, outcome))));
}

fn kinds(outcomes: &Outcomes) -> Vec<Option<FailureKind>> {
    outcomes.lock().iter().map(|(_, outcome)| outcome.as_ref().err().map(|failure| failure.kind)).collect()
}

mod semantics;
mod machines;
mod broken;
