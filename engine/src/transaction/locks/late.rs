//! Rows that stay locked until their transaction is durable (`LockRelease::Commit`).
//!
//! The stamp of such a row already holds the CSN. A pessimistic transaction that finds a CSN that
//! is not committed looks here, and waits for the commit if the CSN may be one of a late release.
//! It takes the row as free as soon as the CSN is committed, so an acknowledger releases nothing.

use crate::base::Csn;
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Places. CSNs that share a place wait a little for one another, which does no harm.
const PLACES: usize = 1024;

/// The CSNs whose rows are held until they are durable.
#[derive(Debug)]
pub struct LateReleases {
    /// Late transactions that are not durable yet.
    count: AtomicUsize,
    /// How many of them have a CSN that belongs to the place.
    places: Box<[AtomicU32]>,
}

impl Default for LateReleases {
    fn default() -> LateReleases {
        LateReleases { count: AtomicUsize::new(0), places: (0..PLACES).map(|_| AtomicU32::new(0)).collect() }
    }
}

impl LateReleases {
    fn place(&self, csn: Csn) -> &AtomicU32 {
        &self.places[csn.0 as usize % PLACES]
    }

    /// Holds the rows of `csn`, before they are visible.
    pub fn hold(&self, csn: Csn) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.place(csn).fetch_add(1, Ordering::SeqCst);
    }

    /// Ends [`LateReleases::hold`].
    pub fn release(&self, csn: Csn) {
        let here = self.place(csn).fetch_sub(1, Ordering::SeqCst);
        let all = self.count.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(here > 0 && all > 0, "each late release was announced");
    }

    /// Returns whether any rows are held.
    #[must_use]
    pub fn holds_any(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// Returns whether the rows of `csn`, which the caller saw, may be held.
    #[inline]
    #[must_use]
    pub fn may_hold(&self, csn: Csn) -> bool {
        self.count.load(Ordering::SeqCst) > 0 && self.place(csn).load(Ordering::SeqCst) > 0
    }
}
