//! Identifiers, one type each, so that a log number can never be passed where a page number is
//! meant.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// A page of the buffer pool; its address is `base + id * page size`. Page 0 is never used.
    PageId(u64), "page "
);
id!(
    /// Commit sequence number: drawn when a transaction pre-commits; dense; 0 means "before
    /// everything".
    Csn(u64), "csn "
);
id!(
    /// Global sequence number: a Lamport clock kept per page, transaction and log. 0 until a rule
    /// needs it.
    Gsn(u64), "gsn "
);
id!(
    /// One of the database's logs.
    LogId(u32), "log "
);
id!(
    /// A log segment: the number in its file name.
    SegmentId(u64), "segment "
);
id!(
    /// A table, never reused after a drop.
    TableId(u32), "table "
);
id!(
    /// One run of the database between two recoveries; a record is identified by (epoch, csn).
    Epoch(u32), "epoch "
);

impl TableId {
    /// No table reaches this; what a file says beyond it is corruption.
    pub const LIMIT: TableId = TableId(u32::MAX - 1);
}

impl Csn {
    /// Before every transaction.
    pub const ZERO: Csn = Csn(0);
    /// After every transaction that will ever be.
    pub const MAX: Csn = Csn(u64::MAX);
    /// No CSN reaches this; what a file says beyond it is corruption, so that arithmetic on CSNs
    /// cannot overflow.
    pub const LIMIT: Csn = Csn(1 << 62);

    /// The CSN after this one.
    #[must_use]
    pub fn next(self) -> Csn {
        Csn(self.0 + 1)
    }
}

/// Random identity of a database, written into every block so that a file of another database is
/// recognised.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DatabaseId(pub u64);

impl fmt::Debug for DatabaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for DatabaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
