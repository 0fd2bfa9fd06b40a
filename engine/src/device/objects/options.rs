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
    /// For so long the manifest of a writer that has not ended must be unchanged before another
    /// writer claims the database.
    pub claim_rest: Duration,
    /// Fences that stay in a store without appends, below which a writer reports a block without a
    /// look at the manifest, and so leaves another one if it never ends.
    pub fences_max: usize,
    /// Length of an object with pages.
    pub extent_bytes: u64,
    /// In several buckets, what is acknowledged is in all of them; otherwise in a majority.
    pub all_buckets: bool,
    /// In several buckets, how long the writer waits before it looks what a bucket lacks.
    pub repair_pause: Duration,
    /// How long the pin of a reader keeps a checkpoint.
    pub pin_lifetime: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            patience: Duration::from_secs(300),
            lanes: 4,
            watch: Duration::from_secs(1),
            claim_rest: Duration::from_secs(1),
            fences_max: 16,
            extent_bytes: 4 << 20,
            all_buckets: false,
            repair_pause: Duration::from_secs(1),
            pin_lifetime: Duration::from_secs(7 * 24 * 3600),
        }
    }
}
