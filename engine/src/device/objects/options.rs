//! Options of the device.

use std::time::Duration;

/// Options of the device.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long a request whose outcome is unknown is sent again. Then the outcome stays unknown,
    /// and the database must be reopened.
    pub patience: Duration,
    /// Objects of a log segment, and so appends of a segment that are in flight together.
    pub lanes: usize,
    /// How often a busy writer looks whether another one has claimed the database.
    pub watch: Duration,
    /// Length of an object with pages.
    pub extent_bytes: u64,
    /// How long the pin of a reader keeps a checkpoint.
    pub pin_lifetime: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            patience: Duration::from_secs(300),
            lanes: 4,
            watch: Duration::from_secs(1),
            extent_bytes: 4 << 20,
            pin_lifetime: Duration::from_secs(7 * 24 * 3600),
        }
    }
}
