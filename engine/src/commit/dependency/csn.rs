//! CSN, dependencies at transaction level: a transaction is committed when everything before it is
//! durable.
//!
//! The simplest rule for several logs. It waits for stragglers that the transaction has nothing to
//! do with. The Milliscale paper (2026) starts from it; it stays here to be compared with.

use super::rule::Rule;
use crate::base::Csn;

pub(super) struct OwnCsn;

impl Rule for OwnCsn {
    fn required_watermark(&self, csn: Csn, _dsn: Csn) -> Csn {
        csn
    }
}
