//! A third model: may transactions be serializable and their locks be released before the log is
//! durable?
//!
//! Two to four transactions of one to four operations run over two logs and three keys, some of
//! which are absent at first. Optimistic transactions remember their reads and validate them at
//! commit. Pessimistic transactions lock what they read. Read-only transactions read at a CSN. All
//! modes share one run.
//!
//! The logs need no crash action. The durable part of a log is a prefix that a flush extends by one
//! record, so every state is judged as if the crash came in this state: see [`judge`].
//!
//! Read in this order:
//!
//! | file | question |
//! |---|---|
//! | [`scenario`] | which transactions run, and by which rules? |
//! | [`state`] | what is shared, and what does each transaction know? |
//! | [`visibility`] | which version does a read return, and what does the reader depend on? |
//! | [`names`] | which names do shared locks have, and which transaction waits? |
//! | [`durability`] | what is committed, and what does recovery take? |
//! | [`execute`] | what does one operation do? |
//! | [`commit`] | how does a transaction get from its last operation to its end? |
//! | [`judge`] | what must never happen? |
//! | [`machine`] | which steps are possible? |
//! | [`right`] | which programs do the right rules survive? |
//! | [`wrong`] | which rules look right, and which program breaks each? |
//! | [`explore`] | runs the checker and returns what it found |
//!
//! Left out on purpose: memory order of the lock table, liveness and fairness, table locks and
//! escalation, several leaves, pruned versions, chunks and fragments, weak isolation levels, and
//! what runs after the crash (the [first model](crate::machine) has a second run). A blocked
//! transaction may be aborted at any time, in place of deadlock detection.

pub mod scenario;
pub mod state;
pub mod visibility;
pub mod names;
pub mod durability;
pub mod execute;
pub mod commit;
pub mod judge;
pub mod machine;
pub mod right;
pub mod wrong;
pub mod explore;
