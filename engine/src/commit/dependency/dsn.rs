//! DSN, dependencies at record level (Milliscale, 2026): a transaction is committed when everything
//! up to the newest version that it read or overwrote is durable.
//!
//! Reading or overwriting a version raises the DSN of the transaction to the version's CSN. So an
//! unrelated straggler above the DSN does not hold the transaction up. Everything *below* the DSN
//! still does, related or not.
//!
//! A transaction above W that was found committed is remembered in the ring of the watermark, so
//! that readers of its versions do not wait for the straggler either.

use super::rule::Rule;
use crate::base::Csn;

pub(super) struct Dsn;

impl Rule for Dsn {
    fn required_watermark(&self, _csn: Csn, dsn: Csn) -> Csn {
        dsn
    }
}
