//! The memory account of a database: what everything except pages takes of `memory_bytes`.
//!
//! The owner of memory that is large, or that grows with use, holds a [`Charge`] for it. Pages get
//! the rest of `memory_bytes`.
//!
//! An allocator seldom returns freed memory to the system by itself. So memory that comes and goes
//! in small allocations is charged with its peak since the allocator last returned what was free
//! ([`PooledCharge`]). Large buffers are mapped instead, and charged while they exist.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes: a [`PooledCharge`] grows in these steps.
const STEP: u64 = 64 << 10;

/// The sum of all charges of a database.
#[derive(Debug, Default)]
pub struct Account {
    bytes: AtomicU64,
}

impl Account {
    /// Returns the sum of all charges, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Charges `bytes` until the result is dropped.
    #[must_use]
    pub fn charge(self: &Arc<Self>, bytes: u64) -> Charge {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Charge { account: self.clone(), bytes: AtomicU64::new(bytes) }
    }
}

/// A part of an [`Account`].
#[derive(Debug)]
pub struct Charge {
    account: Arc<Account>,
    bytes: AtomicU64,
}

impl Charge {
    /// Returns the charged bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Sets the charge to `bytes`.
    pub fn set(&self, bytes: u64) {
        self.replace(self.bytes.swap(bytes, Ordering::SeqCst), bytes);
    }

    /// Adds `more` bytes to the charge.
    pub fn add(&self, more: u64) {
        self.bytes.fetch_add(more, Ordering::SeqCst);
        self.account.bytes.fetch_add(more, Ordering::Relaxed);
    }

    /// Raises the charge to `bytes` if it is lower.
    fn raise(&self, bytes: u64) {
        let before = self.bytes.fetch_max(bytes, Ordering::SeqCst);
        self.replace(before, bytes.max(before));
    }

    fn replace(&self, before: u64, now: u64) {
        // Two's complement: adding a negative difference subtracts.
        self.account.bytes.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The charge for memory that comes and goes in small allocations: their peak.
///
/// The charge falls in three steps: [`PooledCharge::restart_peak`], the allocator returns what is
/// free, [`PooledCharge::lower_to_peak`]. The charge is at no time lower than the bytes in use.
#[derive(Debug)]
pub struct PooledCharge {
    charge: Charge,
    /// The most bytes in use since the last call of `restart_peak`.
    peak: AtomicU64,
}

impl PooledCharge {
    /// Returns a charge of zero bytes.
    #[must_use]
    pub fn new(account: &Arc<Account>) -> PooledCharge {
        PooledCharge { charge: account.charge(0), peak: AtomicU64::new(0) }
    }

    /// Raises the peak and the charge if the `now` bytes in use exceed the peak.
    ///
    /// The caller has counted these bytes with a sequentially consistent addition: see
    /// [`PooledCharge::restart_peak`].
    #[inline]
    pub fn note_use(&self, now: u64) {
        if now > self.peak.load(Ordering::SeqCst) {
            self.raise(now.next_multiple_of(STEP));
        }
    }

    #[cold]
    fn raise(&self, peak: u64) {
        self.peak.fetch_max(peak, Ordering::SeqCst);
        self.charge.raise(peak);
    }

    /// Returns the charged bytes.
    #[must_use]
    pub fn charged(&self) -> u64 {
        self.charge.bytes()
    }

    /// Resets the peak. The caller then reads the bytes in use and [notes](PooledCharge::note_use)
    /// them. A thread that adds bytes meanwhile is included in that number, or sees the new peak.
    pub fn restart_peak(&self) {
        self.peak.store(0, Ordering::SeqCst);
    }

    /// Lowers the charge to the peak, but by no more than the `returned` bytes that the allocator
    /// has returned since the last call of [`PooledCharge::restart_peak`]. Returns by how many
    /// bytes the charge fell.
    pub fn lower_to_peak(&self, returned: u64) -> u64 {
        let before = self.charge.bytes();
        let now = self.peak.load(Ordering::SeqCst).max(before.saturating_sub(returned));
        self.charge.set(now);
        // A thread that raised the peak before `set` has raised the charge too early: repeat it.
        self.charge.raise(self.peak.load(Ordering::SeqCst));
        before.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests;
