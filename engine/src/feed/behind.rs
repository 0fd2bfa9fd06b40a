//! The error of a feed that fell behind.

use crate::base::{Csn, Error, ErrorKind};

/// What the reader of a feed that fell behind does.
pub(super) const ADVICE: &str = "read the tables from a snapshot, and begin the feed at the CSN of the snapshot; a \
                                 larger `change_history_bytes` retains more";

/// The error of a feed that has read up to `position`, when history begins later.
pub(super) fn fell_behind(position: Csn, begins: Csn) -> Error {
    let what =
        format!("the log no longer has all transactions above CSN {position}, only those above CSN {begins}");
    Error::new(ErrorKind::FellBehind, what).with_advice(ADVICE)
}
