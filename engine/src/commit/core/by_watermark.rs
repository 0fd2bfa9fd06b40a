//! The rules that go by W: log order, CSN, DSN.
//!
//! **Log order**, with one log: a durable record is a committed transaction. Durable means in the
//! gap-free prefix of the log, and every dependency lies before the record in the same log. So
//! there is nothing to wait for.
//!
//! **CSN**, dependencies at transaction level: a transaction is committed when everything before it
//! is durable. The simplest rule for several logs. It waits for stragglers that the transaction has
//! nothing to do with. The Milliscale paper (2026) starts from it; it stays here to be compared
//! with.
//!
//! **DSN**, dependencies at record level (Milliscale, 2026): a transaction is committed when
//! everything up to the newest version that it read or overwrote is durable. Reading or overwriting
//! a version raises the DSN of the transaction to the version's CSN. So an unrelated straggler
//! above the DSN does not hold the transaction up. Everything *below* the DSN still does, related
//! or not. A transaction above W that was found committed is remembered in the ring of the
//! watermark, so that readers of its versions do not wait for the straggler either.

use super::rule::Rule;
use crate::base::Csn;

/// See the module's text.
pub struct LogOrder;

impl Rule for LogOrder {
    fn required_watermark(&self, _csn: Csn, _dsn: Csn) -> Csn {
        Csn::ZERO
    }
}

/// See the module's text.
pub struct OwnCsn;

impl Rule for OwnCsn {
    fn required_watermark(&self, csn: Csn, _dsn: Csn) -> Csn {
        csn
    }
}

/// See the module's text.
pub struct Dsn;

impl Rule for Dsn {
    fn required_watermark(&self, _csn: Csn, dsn: Csn) -> Csn {
        dsn
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;

    #[test]
    fn each_rule_requires_the_watermark_that_it_says() {
        let required = |rule: &dyn Rule| rule.required_watermark(Csn(44), Csn(41)).0;
        assert_eq!([required(&LogOrder), required(&OwnCsn), required(&Dsn)], [0, 44, 41]);
    }
}
