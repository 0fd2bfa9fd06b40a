//! The memory of all transactions in progress for one purpose: a bounded part of `memory_bytes`.

use crate::base::{Account, Charge, Error, ErrorKind, Location, Result, allocation_failure};
use crate::buffer::Pool;
use std::sync::Arc;

/// A part of `memory_bytes`.
#[derive(Debug)]
pub(super) struct Share {
    account: Arc<Account>,
    /// The divisor of all memory, and the name of the part in errors.
    part: (u64, &'static str),
    /// What takes the memory, and what to do about it, in errors.
    words: (&'static str, &'static str),
    /// How many times the bytes are charged to `memory_bytes`.
    times: u64,
}

/// What one transaction takes of a share.
#[derive(Debug)]
pub(super) struct ShareCharge {
    share: Charge,
    /// The same bytes, as often as the share says, of `memory_bytes`.
    memory: Charge,
}

impl Share {
    /// Returns the share of the changes of transactions. They count twice, because a buffer that
    /// grows exists twice for a moment, as does a record during a commit.
    pub(super) fn of_changes() -> Share {
        Share {
            account: Arc::default(),
            part: (4, "a quarter"),
            words: ("the changes of transactions in progress", "commit in smaller transactions"),
            times: 2,
        }
    }

    /// Returns the share of locks.
    pub(super) fn of_locks() -> Share {
        Share {
            account: Arc::default(),
            part: (8, "an eighth"),
            words: ("the locks of transactions", "lock the table"),
            times: 1,
        }
    }

    /// Raises a charge to `bytes`.
    ///
    /// # Errors
    /// `OutOfMemory` at the bound of all transactions together. Then the charge stays as it was.
    #[cold]
    pub(super) fn raise(&self, charge: &mut Option<ShareCharge>, pool: &Pool, bytes: u64) -> Result<()> {
        let charge = charge.get_or_insert_with(|| ShareCharge {
            share: self.account.charge(0),
            memory: pool.account().charge(0),
        });
        let (before, all) = (charge.share.bytes(), pool.frames().memory_bytes());
        charge.share.set(bytes);
        if self.account.bytes() > all / self.part.0 || allocation_failure::is_injected() {
            charge.share.set(before);
            let ((_, part), (what, advice)) = (self.part, self.words);
            let what = format!("{what} would fill {part} of memory_bytes = {all}");
            let error = Error::new(ErrorKind::OutOfMemory, what).at(Location::Setting("memory_bytes"));
            return Err(error.with_advice(format!("{advice}, or raise memory_bytes")));
        }
        charge.memory.set(self.times * bytes);
        pool.memory().check_budget();
        Ok(())
    }
}

impl ShareCharge {
    /// Returns the bytes that the transaction takes of the share.
    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        self.share.bytes()
    }
}
