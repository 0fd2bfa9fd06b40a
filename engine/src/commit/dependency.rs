//! What does a transaction whose record is durable still wait for?
//!
//! Each rule says how far W must have come. Stricter rules wait for transactions that have nothing to do with the one that waits.
//!
//! ```text
//!   CSN          41      42      43      44           44 read what 41 wrote: its DSN is 41
//!   durable      yes     yes     no      yes          W = 43
//!   dsn:         44 is committed: 41 < W              csn: 44 waits for 43, which it has nothing to do with
//! ```
//!
//! | rule | the transaction is committed when its record is durable and |
//! |---|---|
//! | log order | nothing else: in one log what it depends on lies before it, and durable is the gap-free prefix |
//! | CSN | its own CSN is below W |
//! | DSN | its DSN is below W |
//!
//! **Recovery replays whatever any of them acknowledged** (rule 13): it replays a record iff its DSN is below F, and W never passes F.
//! A DSN is below the transaction's own CSN, so below W under the CSN rule, and below the end of the durable prefix under log order. So the
//! records of all three name the same rule for recovery to judge by, and a database may change between them at any open.
//!
//! A transaction without a record has no CSN: it waits for its DSN under every rule.

use super::queue::Entry;
use super::{Core, Ticket};
use crate::base::Csn;
use crate::base::settings::Dependency;

/// W must be above this CSN before the transaction may be told, besides its record being durable; nothing is below zero.
pub(super) fn needed(rule: Dependency, csn: Csn, dsn: Csn) -> Csn {
    match rule {
        _ if csn == Csn::ZERO => dsn,
        Dependency::LogOrder => Csn::ZERO,
        Dependency::Csn => csn,
        Dependency::Dsn => dsn,
    }
}

impl Core {
    pub(super) fn needed_by_ticket(&self, ticket: Ticket) -> Csn {
        needed(self.axes.dependency, ticket.csn, ticket.dsn)
    }

    pub(super) fn needed_by_entry(&self, entry: Entry) -> Csn {
        needed(self.axes.dependency, entry.csn, entry.dsn)
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;

    #[test]
    fn each_rule_waits_for_what_it_says() {
        let needed = |rule, csn, dsn| needed(rule, Csn(csn), Csn(dsn)).0;
        assert_eq!(needed(Dependency::LogOrder, 44, 41), 0);
        assert_eq!(needed(Dependency::Csn, 44, 41), 44);
        assert_eq!(needed(Dependency::Dsn, 44, 41), 41);
        for rule in Dependency::ALL {
            assert_eq!(needed(rule, 0, 41), 41, "a transaction without a record");
        }
    }
}
