//! What the tests share.

use bytes::Bytes;
use quench_emulator::{Emulator, Options};
use quenchdb::internals::device::objects::{
    Condition, ObjectStore, ObjectUrl, Outcome, Request, S3Credentials, S3Options, S3Store, Version, perform,
};
use std::time::Duration;

/// Starts an emulator.
pub fn start(options: Options) -> Emulator {
    Emulator::start(options).expect("a free port")
}

/// The settings of a client of the emulator. It gives up soon.
pub fn client_options(emulator: &Emulator) -> S3Options {
    let [endpoint, key_id, secret, _] = emulator.environment().map(|(_, value)| value);
    S3Options {
        endpoint: Some(endpoint),
        region: Some("us-east-1".into()),
        credentials: Some(S3Credentials { key_id, secret, token: None }),
        attempt_timeout: Duration::from_secs(2),
        read_deadline: Duration::from_secs(2),
        ..S3Options::default()
    }
}

/// Connects to the prefix `db` of a bucket.
pub fn connect(emulator: &Emulator, bucket: &str) -> S3Store {
    let url = ObjectUrl::parse(&format!("s3://{bucket}/db")).expect("a URL");
    S3Store::connect(&url, &client_options(emulator)).expect("settings are complete")
}

pub fn put(store: &dyn ObjectStore, name: &str, body: &[u8], condition: Condition) -> Outcome {
    perform(store, Request::Put { name: name.into(), body: Bytes::copy_from_slice(body), condition })
}

pub fn append(store: &dyn ObjectStore, name: &str, offset: u64, body: &[u8]) -> Outcome {
    append_to(store, name, offset, body, None)
}

pub fn append_to(
    store: &dyn ObjectStore,
    name: &str,
    offset: u64,
    body: &[u8],
    version: Option<Version>,
) -> Outcome {
    let body = Bytes::copy_from_slice(body);
    perform(store, Request::Append { name: name.into(), offset, body, version })
}

pub fn delete(store: &dyn ObjectStore, name: &str) -> Outcome {
    perform(store, Request::Delete { name: name.into() })
}

pub fn get(store: &dyn ObjectStore, name: &str) -> Outcome {
    perform(store, Request::Get { name: name.into(), range: None })
}
