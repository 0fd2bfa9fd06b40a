//! Three buckets on one simulated store: each has the objects behind a prefix of its own. So one
//! journal has the changes of all buckets in order, and a crash between two of them is one of all.

use quenchdb::internals::device::objects::simulated::SimulatedClient;
use quenchdb::internals::device::objects::{
    Done, Listed, ObjectStorage, ObjectStore, Options, Request, StoreFacts,
};
use std::sync::Arc;

/// The buckets of a database in several.
pub const ZONES: usize = 3;

/// A bucket: the objects of a store behind a prefix.
#[derive(Debug)]
struct Bucket {
    client: Arc<SimulatedClient>,
    prefix: String,
}

impl Bucket {
    fn inner(&self, request: Request) -> Request {
        let inner = |name: String| format!("{}{name}", self.prefix);
        match request {
            Request::Put { name, body, condition } => Request::Put { name: inner(name), body, condition },
            Request::Create { name, body } => Request::Create { name: inner(name), body },
            Request::Append { name, offset, body, version } => {
                Request::Append { name: inner(name), offset, body, version }
            }
            Request::Open { name, version, takes_over } => {
                Request::Open { name: inner(name), version, takes_over }
            }
            Request::Finalize { name, version, len } => Request::Finalize { name: inner(name), version, len },
            Request::Get { name, range } => Request::Get { name: inner(name), range },
            Request::Head { name } => Request::Head { name: inner(name) },
            Request::List { prefix } => Request::List { prefix: inner(prefix) },
            Request::Delete { name } => Request::Delete { name: inner(name) },
        }
    }
}

impl ObjectStore for Bucket {
    fn start(&self, request: Request, done: Done) {
        let len = self.prefix.len();
        let outer = move |listed: Listed| Listed { name: listed.name[len..].into(), ..listed };
        let renamed: Done = Box::new(move |outcome| {
            done(outcome.map(|mut reply| {
                reply.listed = reply.listed.into_iter().map(outer).collect();
                reply
            }));
        });
        self.client.start(self.inner(request), renamed);
    }

    fn facts(&self) -> StoreFacts {
        self.client.facts()
    }
}

/// Joins a bucket for each client.
pub fn join(clients: &[Arc<SimulatedClient>], options: Options) -> ObjectStorage {
    let bucket = |(zone, client): (usize, &Arc<SimulatedClient>)| {
        let bucket = Bucket { client: client.clone(), prefix: format!("zone{zone}/") };
        (format!("sim://zone{zone}"), Arc::new(bucket) as Arc<dyn ObjectStore>)
    };
    ObjectStorage::several(clients.iter().enumerate().map(bucket).collect(), None, options, true)
}
