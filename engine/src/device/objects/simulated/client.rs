//! A client of a simulated store: the connection of one machine.

use super::faults::Fault;
use super::network::{Link, Network, Sent, Step};
use super::options::Delivery;
use crate::base::clock::Clock;
use crate::device::objects::{Done, Failure, FailureKind, ObjectStore, Request, StoreFacts};
use crate::sync::{Event, Mutex, thread};
use std::sync::Arc;

/// What the handles of a store share.
pub(super) struct Shared {
    pub(super) network: Mutex<Network>,
    /// A request was sent, or a client changed.
    pub(super) changed: Event,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("simulated store")
    }
}

impl Shared {
    pub(super) fn new(network: Network) -> Arc<Shared> {
        Arc::new(Shared { network: Mutex::new(network), changed: Event::new() })
    }

    /// Performs one step. Returns false if no request can proceed.
    pub(super) fn step(&self) -> bool {
        let step = self.network.lock().step();
        match step {
            Step::Effect => true,
            Step::Reply(done, outcome) => {
                done(outcome);
                true
            }
            Step::Wait(_) | Step::Idle => false,
        }
    }

    /// Lets the requests proceed that can.
    fn proceed(&self, delivery: Delivery) {
        match delivery {
            Delivery::Immediate => while self.step() {},
            Delivery::Stepped => {}
            Delivery::Network => {
                self.changed.notify_all();
            }
        }
    }
}

/// Marks that the network's thread has ended, also by a panic of a callback.
struct Running<'a>(&'a Shared);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.network.lock().has_thread = false;
    }
}

/// The network's thread: delivers requests and replies until no client is left.
fn deliver(shared: &Shared) {
    let running = Running(shared);
    loop {
        let ticket = shared.changed.ticket();
        let mut network = shared.network.lock();
        let step = network.step();
        if matches!(step, Step::Idle | Step::Wait(_)) && network.is_over() {
            // Under the same lock, so that a new client starts another thread.
            network.has_thread = false;
            drop(network);
            std::mem::forget(running);
            return;
        }
        drop(network);
        match step {
            Step::Effect => {}
            Step::Reply(done, outcome) => done(outcome),
            Step::Wait(until) => {
                let time = until.since(Clock::real().now());
                shared.changed.wait(ticket, Some(time));
            }
            Step::Idle => shared.changed.wait(ticket, None),
        }
    }
}

/// One machine's connection to a simulated store.
///
/// When its last handle is dropped, its requests still end, except those that it holds back.
#[derive(Debug)]
pub struct SimulatedClient {
    shared: Arc<Shared>,
    number: usize,
    delivery: Delivery,
    facts: StoreFacts,
}

impl SimulatedClient {
    /// Connects a machine and starts the network's thread if none runs.
    pub(super) fn connect(shared: &Arc<Shared>) -> Arc<SimulatedClient> {
        let (client, starts) = {
            let mut network = shared.network.lock();
            let number = network.links.len();
            network.links.push(Link { is_alive: true, ..Link::default() });
            let options = &network.options;
            let facts = StoreFacts {
                name: "simulated".into(),
                endpoint: String::new(),
                appends: options.appends,
                parts_max: options.parts_max,
                appends_check_version: options.appends_check_version,
                streams: options.streams,
            };
            let delivery = options.delivery;
            let starts = delivery == Delivery::Network && !network.has_thread;
            network.has_thread |= starts;
            (SimulatedClient { shared: shared.clone(), number, delivery, facts }, starts)
        };
        if starts {
            let own = shared.clone();
            let started = thread::spawn("simulated-network", move || deliver(&own));
            started.unwrap_or_else(|error| panic!("no thread for the simulated network: {error}"));
        }
        Arc::new(client)
    }

    /// Returns the number of the client, from 0 in the order of connection.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// The machine dies. Its callbacks are dropped without a call; what it has sent takes effect
    /// late or never.
    pub fn kill(&self) {
        let callbacks = self.shared.network.lock().kill(self.number);
        drop(callbacks);
        self.shared.changed.notify_all();
    }

    /// The machine dies, and its threads find out: requests in flight end as `Unknown` (and take
    /// effect late or never), later ones as `Denied`.
    pub fn stop(&self) {
        self.change(|network, number| network.stop(number));
    }

    /// Holds back all replies, as if the machine stalled after it had sent its requests.
    pub fn hold_replies(&self) {
        self.change(|network, number| network.links[number].holds_replies = true);
    }

    /// Holds back all requests, as if the machine stalled before they left it.
    pub fn hold_requests(&self) {
        self.change(|network, number| network.links[number].holds_requests = true);
    }

    /// Delivers again what was held back.
    pub fn release(&self) {
        self.change(|network, number| {
            let link = &mut network.links[number];
            (link.holds_requests, link.holds_replies) = (false, false);
        });
    }

    /// Cuts the machine off: all requests, also those in flight, end as `Unknown`. Each takes
    /// effect at its turn, late, or never.
    pub fn partition(&self) {
        self.change(Network::partition);
    }

    /// Connects the machine again.
    pub fn reconnect(&self) {
        self.change(|network, number| network.links[number].is_partitioned = false);
    }

    /// Arms a fault of this client's requests.
    pub fn inject(&self, fault: Fault) {
        self.shared.network.lock().faults.arm(Some(self.number), fault);
    }

    fn change(&self, change: impl FnOnce(&mut Network, usize)) {
        change(&mut self.shared.network.lock(), self.number);
        self.shared.proceed(self.delivery);
    }
}

impl ObjectStore for SimulatedClient {
    fn start(&self, request: Request, done: Done) {
        let sent = self.shared.network.lock().send(self.number, request, done);
        match sent {
            Sent::Taken => self.shared.proceed(self.delivery),
            // A callback may own anything, so it is dropped without the lock.
            Sent::Dead(done) => drop(done),
            Sent::Stopped(done) => {
                let what = "the machine has stopped".into();
                done(Err(Failure { kind: FailureKind::Denied, what }));
            }
        }
    }

    fn facts(&self) -> StoreFacts {
        self.facts.clone()
    }
}

impl Drop for SimulatedClient {
    fn drop(&mut self) {
        let callbacks = self.shared.network.lock().disconnect(self.number);
        drop(callbacks);
        self.shared.changed.notify_all();
    }
}
