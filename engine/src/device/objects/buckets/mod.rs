//! A database in several buckets: each object is in a majority of them.
//!
//! ```text
//!   Session ──▶ Buckets (an ObjectStore) ──┬─▶ bucket 1
//!      │          immutable objects, lists ├─▶ bucket 2
//!      │                                   └─▶ bucket 3
//!      ├──▶ Acceptors: the manifest, a register of ballots in each bucket
//!      └──▶ SpreadSegment: one NumberedSegment for each bucket
//! ```
//!
//! With 2f + 1 buckets, everything that was acknowledged survives if f of them are lost, out of
//! reach, or came back old. The rules O30 to O38 that the code cites are in
//! `docs/internals/objects.md`.

mod record;
mod bucket;
mod set;
mod delays;
mod reads;
mod joined;
mod acceptors;

pub(super) use acceptors::{Acceptors, Claimed};
pub(super) use bucket::{Bucket, CountedBucket, Standing};
pub(super) use joined::Buckets;
pub(super) use record::{Ballot, Record};
pub(super) use set::{BucketSet, Known, most_frequent};
