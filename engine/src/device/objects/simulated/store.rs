//! The handle of a simulated store: everything that tests and the simulation do with it.

use super::bucket::{Bucket, Change, SimulatedObject};
use super::client::{Shared, SimulatedClient};
use super::faults::{Fault, FaultKind};
use super::journal::Record;
use super::network::Network;
use super::options::{Delivery, StoreOptions};
use crate::device::fault_counts::FaultCounts;
use crate::device::objects::{Request, RequestKind};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A simulated store: see the text of `device::objects::simulated`. Cloning shares the store.
#[derive(Clone, Debug)]
pub struct SimulatedStore {
    shared: Arc<Shared>,
}

impl SimulatedStore {
    /// Returns an empty store with a network.
    #[must_use]
    pub fn new(seed: u64) -> SimulatedStore {
        SimulatedStore::with(StoreOptions::new(seed))
    }

    /// Returns an empty store without a network: requests end inside `start`.
    #[must_use]
    pub fn immediate(seed: u64) -> SimulatedStore {
        SimulatedStore::with(StoreOptions { delivery: Delivery::Immediate, ..StoreOptions::new(seed) })
    }

    /// Returns an empty store.
    #[must_use]
    pub fn with(options: StoreOptions) -> SimulatedStore {
        SimulatedStore { shared: Shared::new(Network::new(options, Bucket::default())) }
    }

    /// Connects a machine. With [`Delivery::Network`], a thread delivers its requests until all
    /// clients are dropped or killed; so a simulation must drop or kill the clients it made.
    ///
    /// # Panics
    /// If the system has no thread left.
    #[must_use]
    pub fn client(&self) -> Arc<SimulatedClient> {
        SimulatedClient::connect(&self.shared)
    }

    /// Returns whether the network has a thread.
    #[cfg(test)]
    pub(super) fn has_thread(&self) -> bool {
        self.shared.network.lock().has_thread
    }

    /// Performs one step: a request takes effect, or a reply arrives. Returns false if no request
    /// can proceed.
    pub fn step(&self) -> bool {
        self.shared.step()
    }

    /// Returns the names and bytes of all objects.
    #[must_use]
    pub fn objects(&self) -> BTreeMap<String, Bytes> {
        let network = self.shared.network.lock();
        network.bucket.objects().iter().map(|(name, object)| (name.clone(), object.body())).collect()
    }

    /// Returns an object.
    #[must_use]
    pub fn object(&self, name: &str) -> Option<Arc<SimulatedObject>> {
        self.shared.network.lock().bucket.objects().get(name).cloned()
    }

    /// Creates or replaces an object, for tests of corruption. The change is in the journal.
    pub fn set_object(&self, name: &str, body: impl Into<Bytes>) {
        let mut network = self.shared.network.lock();
        let (change, _) = network.bucket.put(&network.options, name, &body.into(), false);
        change.into_iter().for_each(|change| network.change(change));
    }

    /// Removes an object, for tests of corruption. The change is in the journal.
    pub fn remove_object(&self, name: &str) {
        self.shared.network.lock().change(Change::Remove { name: name.into() });
    }

    /// Arms a fault of the requests of all clients.
    pub fn inject(&self, fault: Fault) {
        self.shared.network.lock().faults.arm(None, fault);
    }

    /// Sets the odds of a fault, out of 1000 requests that it fits.
    pub fn set_odds(&self, kind: FaultKind, odds: u64) {
        self.shared.network.lock().faults.set_odds(kind, odds);
    }

    /// Disarms all faults and sets all odds to zero. Late requests stay in flight.
    pub fn heal(&self) {
        self.shared.network.lock().faults.disarm();
    }

    /// Returns how many requests had a fault.
    #[must_use]
    pub fn faults_struck(&self) -> u64 {
        self.shared.network.lock().faults.struck()
    }

    /// Returns how often each event occurred in this store.
    #[must_use]
    pub fn fault_counts(&self) -> FaultCounts {
        self.shared.network.lock().faults.counts.clone()
    }

    /// Returns the number of requests that clients of this store have sent.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.shared.network.lock().requests.values().sum()
    }

    /// Returns the number of requests of a kind that clients of this store have sent.
    #[must_use]
    pub fn requests_of(&self, kind: RequestKind) -> u64 {
        self.shared.network.lock().requests.get(&kind).copied().unwrap_or(0)
    }

    /// Returns the requests that may still take effect, late ones included, in the order in which
    /// they were sent.
    #[must_use]
    pub fn requests_in_flight(&self) -> Vec<Arc<Request>> {
        let mut unfinished = self.shared.network.lock().unfinished();
        unfinished.sort_by_key(|(number, ..)| *number);
        unfinished.into_iter().map(|(.., request)| request).collect()
    }

    /// Lets all late requests take effect now, in random order.
    pub fn finish_late(&self) {
        self.shared.network.lock().finish_late();
    }

    /// Decides that no late request ever takes effect.
    pub fn lose_late(&self) {
        self.shared.network.lock().lose_late();
    }

    /// Returns the journal: everything that happened to requests.
    #[must_use]
    pub fn journal(&self) -> Vec<Record> {
        self.shared.network.lock().journal.records().to_vec()
    }

    /// Returns the number of changes so far: puts, appends and deletes that took effect.
    #[must_use]
    pub fn changes(&self) -> usize {
        self.shared.network.lock().journal.changes()
    }

    /// Returns a hash of the journal.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let network = self.shared.network.lock();
        let records = network.journal.records();
        let mix = |mixed: u32, record: &Record| {
            crate::base::checksum::crc_append(mixed, format!("{record:?}").as_bytes())
        };
        u64::from(records.iter().fold(0, mix)) << 32 | records.len() as u64
    }

    /// Returns the store as other machines find it after the first `changes` changes if all clients
    /// die at that moment. What was in flight takes effect there late or never, by `seed`.
    ///
    /// # Panics
    /// If the journal was full before.
    #[must_use]
    pub fn crash(&self, changes: usize, seed: u64) -> SimulatedStore {
        let (mut network, in_flight) = {
            let mut network = self.shared.network.lock();
            let recorded = network.journal.recorded();
            assert!(changes <= recorded, "change {changes} of {recorded} recorded ones");
            let bucket = network.journal.after(changes);
            let in_flight = network.journal.in_flight(changes);
            (network.successor(bucket, seed), in_flight)
        };
        in_flight
            .into_iter()
            .for_each(|(number, client, request)| network.leave_behind(number, client, request));
        SimulatedStore { shared: Shared::new(network) }
    }

    /// Returns the store as other machines find it if all clients die now. As
    /// [`SimulatedStore::crash`], but needs no journal.
    #[must_use]
    pub fn fork(&self, seed: u64) -> SimulatedStore {
        let network = self.shared.network.lock();
        let mut fork = network.successor(network.bucket.clone(), seed);
        let in_flight = network.unfinished();
        drop(network);
        in_flight
            .into_iter()
            .for_each(|(number, client, request)| fork.leave_behind(number, client, request));
        SimulatedStore { shared: Shared::new(fork) }
    }
}
