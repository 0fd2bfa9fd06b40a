//! The smallest store that keeps its promises: a simulated one without a network. Requests take
//! effect at once.

use super::super::simulated::{Delivery, SimulatedClient, SimulatedStore, StoreOptions};
use super::super::{Done, ObjectStore, Request, StoreFacts};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct MemoryStore {
    store: SimulatedStore,
    client: Arc<SimulatedClient>,
}

impl ObjectStore for MemoryStore {
    fn start(&self, request: Request, done: Done) {
        self.client.start(request, done);
    }

    fn facts(&self) -> StoreFacts {
        self.client.facts()
    }
}

impl MemoryStore {
    /// Returns an empty store.
    pub fn new(appends: bool) -> MemoryStore {
        let options = StoreOptions { delivery: Delivery::Immediate, journal_max: 0, ..StoreOptions::new(1) };
        let store = SimulatedStore::with(StoreOptions { appends, appends_apart: false, ..options });
        MemoryStore { client: store.client(), store }
    }

    /// Returns the names of all objects.
    pub fn names(&self) -> Vec<String> {
        self.store.objects().into_keys().collect()
    }

    /// Removes an object.
    pub fn remove(&self, name: &str) {
        self.store.remove_object(name);
    }
}
