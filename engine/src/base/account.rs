//! The account of a database's memory: what everything but pages takes of `memory_bytes`.
//!
//! Whoever keeps something that grows with use, or that is large, holds a [`Charge`] for it. Pages get what is left.
//!
//! Most of it is allocated, and an allocator seldom gives memory back to the system by itself. So what comes and goes in small pieces
//! is charged with the most that there was since the allocator was last made to give back what is free ([`Pieces`]); what is large is
//! mapped instead, and charged while it is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Small pieces are charged in these steps.
const STEP: u64 = 64 << 10;

/// Bytes charged, by whomever.
#[derive(Debug, Default)]
pub struct Account {
    bytes: AtomicU64,
}

impl Account {
    /// Bytes that all charges come to.
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
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Charges `bytes` from now on.
    pub fn set(&self, bytes: u64) {
        self.replace(self.bytes.swap(bytes, Ordering::SeqCst), bytes);
    }

    /// Charges `more` bytes besides.
    pub fn add(&self, more: u64) {
        self.bytes.fetch_add(more, Ordering::SeqCst);
        self.account.bytes.fetch_add(more, Ordering::Relaxed);
    }

    /// Charges at least `bytes` from now on.
    fn raise(&self, bytes: u64) {
        let before = self.bytes.fetch_max(bytes, Ordering::SeqCst);
        self.replace(before, bytes.max(before));
    }

    fn replace(&self, before: u64, now: u64) {
        // Two's complement: what is less is subtracted.
        self.account.bytes.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The charge for what comes and goes in small pieces. It falls in three steps: [`Pieces::begin_anew`], the allocator gives back what is
/// free, [`Pieces::settle`]. What is charged is at no time less than what is there.
#[derive(Debug)]
pub struct Pieces {
    charge: Charge,
    /// The most that there was since the last step one.
    most: AtomicU64,
}

impl Pieces {
    /// No pieces yet.
    #[must_use]
    pub fn new(account: &Arc<Account>) -> Pieces {
        Pieces { charge: account.charge(0), most: AtomicU64::new(0) }
    }

    /// There are `now` bytes. The caller has added to their number sequentially consistently: see [`Pieces::begin_anew`].
    #[inline]
    pub fn are(&self, now: u64) {
        if now > self.most.load(Ordering::SeqCst) {
            self.raise(now.next_multiple_of(STEP));
        }
    }

    #[cold]
    fn raise(&self, most: u64) {
        self.most.fetch_max(most, Ordering::SeqCst);
        self.charge.raise(most);
    }

    /// Bytes charged.
    #[must_use]
    pub fn charged(&self) -> u64 {
        self.charge.bytes()
    }

    /// Begins to look for the most anew. Then the caller says how many there [are](Pieces::are), counted after this: who
    /// adds to them meanwhile is in that count, or finds the new most.
    pub fn begin_anew(&self) {
        self.most.store(0, Ordering::SeqCst);
    }

    /// The allocator has given back what was free when [`Pieces::begin_anew`] was called, or later.
    pub fn settle(&self) {
        self.charge.set(self.most.load(Ordering::SeqCst));
        // Who raised the most before that set the charge too early.
        self.charge.raise(self.most.load(Ordering::SeqCst));
    }
}

#[cfg(test)]
mod tests;
