//! Models of databases in a store of objects: may a writer be replaced at any moment, may objects
//! be deleted, and may a bucket be missing?
//!
//! A request takes effect as a whole, at any later time, or never. A machine is never known to be
//! dead: a crash is a writer that takes no further step. So no state needs a crash action.
//!
//! | module | question |
//! |---|---|
//! | [`takeover`] | which blocks of the log count when another writer claims the database? |
//! | [`streams`] | the same, where a lane is a stream of its author (zonal buckets) |
//! | [`collect`] | which objects with pages may be deleted, and when? |
//! | [`majority`] | what counts in several buckets, of which a minority is missing? |
//! | [`explore`] | runs the checker and returns what it found |
//!
//! The rules O1 to O36 are in `docs/internals/objects.md`. Left out on purpose: the sizes of
//! blocks, checksums, several logs of a writer (the [first model](crate::machine) has them),
//! liveness, and times: no rule uses a clock.

pub mod collect;
pub mod explore;
pub mod majority;
pub mod streams;
pub mod takeover;
