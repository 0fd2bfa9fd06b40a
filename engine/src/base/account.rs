//! The account of a database's memory: what everything but pages takes of `memory_bytes`.
//!
//! Whoever keeps something that grows with use, or that is large, holds a [`Charge`] for it. Pages get what is left.
//!
//! Most of it is allocated, and an allocator seldom gives memory back to the system. So what comes and goes in small pieces
//! is charged with the most that there ever was; what is large is mapped instead, and charged while it is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
        self.replace(self.bytes.swap(bytes, Ordering::Relaxed), bytes);
    }

    /// Charges at least `bytes` from now on.
    pub fn raise(&self, bytes: u64) {
        let before = self.bytes.fetch_max(bytes, Ordering::Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_the_sum_of_its_charges() {
        let account = Arc::new(Account::default());
        let (one, other) = (account.charge(100), account.charge(10));
        assert_eq!(account.bytes(), 110);
        one.set(30);
        other.raise(50);
        other.raise(20);
        assert_eq!((account.bytes(), one.bytes(), other.bytes()), (80, 30, 50));
        drop(one);
        assert_eq!(account.bytes(), 50);
        drop(other);
        assert_eq!(account.bytes(), 0);
    }
}
