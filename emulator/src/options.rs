//! Settings of an emulator.

use crate::faults::Faults;
use crate::latency::Latency;
use crate::mistakes::Mistake;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Where objects are kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Place {
    /// In memory, until the emulator ends.
    #[default]
    Memory,
    /// In memory, and in a directory for the next emulator. What was acknowledged survives a kill
    /// of the process, not a power cut.
    Directory(PathBuf),
}

/// Settings of an [`Emulator`](crate::Emulator).
#[derive(Clone, Debug)]
pub struct Options {
    /// The address; port 0 chooses a free one.
    pub listen: SocketAddr,
    /// Where objects are kept.
    pub place: Place,
    /// How long requests take.
    pub latency: Latency,
    /// What goes wrong.
    pub faults: Faults,
    /// The promises that this server breaks.
    pub mistakes: Vec<Mistake>,
    /// Seed of faults and latencies. Their order follows the order in which requests arrive.
    pub seed: u64,
    /// Buckets that exist from the beginning. A name that ends with `--x-s3` is a directory bucket.
    pub buckets: Vec<String>,
    /// The access key's id.
    pub key_id: String,
    /// The secret key.
    pub secret: String,
    /// How long a session of a directory bucket lasts.
    pub session: Duration,
    /// Most appends that an object takes, its creation included.
    pub parts_max: u64,
}

impl Options {
    /// The directory bucket that exists by default.
    pub const DIRECTORY_BUCKET: &'static str = "quench--local-az1--x-s3";
    /// The general purpose bucket that exists by default.
    pub const BUCKET: &'static str = "quench";
}

impl Default for Options {
    fn default() -> Options {
        Options {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            place: Place::Memory,
            latency: Latency::None,
            faults: Faults::default(),
            mistakes: Vec::new(),
            seed: 1,
            buckets: vec![Options::DIRECTORY_BUCKET.into(), Options::BUCKET.into()],
            key_id: "emulator".into(),
            secret: "emulator-secret".into(),
            session: Duration::from_mins(5),
            parts_max: 10_000,
        }
    }
}
