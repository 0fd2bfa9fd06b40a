//! The part of every commit: append a record, write the log, find out what is durable, acknowledge.
//!
//! Nothing here names a protocol (`pages`) or a mechanism of one paper (`papers`). These stand on
//! it, by way of a few traits:
//!
//! | trait | says | by default |
//! |---|---|---|
//! | [`protocol::Protocol`] | which thread writes a log, how a committer waits | one of `pages` |
//! | [`rule::Rule`] | what a transaction waits for whose record is durable | log order, DSN |
//! | [`rule::Above`] | what the transactions above W depend on | that is not kept |
//! | [`medium::Medium`] | when an appended record is durable | with its block in a file |
//! | [`writes::QueuedWrites`] | which thread completes writes left in flight | there are none |
//! | [`append::AppendPath`] | what a committer does that finds the latch taken | it waits |
//!
//! Items are `pub` for the rest of the commit layer; the module is private to it.

pub mod dice;
pub mod poison;
pub mod metrics;
pub mod levels;
pub mod watermark;
pub mod predecessors;
pub mod pending;
pub mod environment;
pub mod rule;
pub mod by_watermark;
pub mod cohort;
pub mod unflushed;
pub mod log_writer;
pub mod durability;
pub mod flushers;
pub mod waiters;
pub mod failure;
pub mod acknowledge;
pub mod processor_load;
pub mod schedule;
pub mod sharing;
pub mod deadline;
pub mod medium;
pub mod writes;
pub mod written;
pub mod side_by_side;
pub mod protocol;
pub mod workers;
pub mod waiting;
pub mod feed_source;
pub mod append;
pub mod chunks;
pub mod flusher;
pub mod threads;
