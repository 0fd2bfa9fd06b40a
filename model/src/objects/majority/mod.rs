//! What counts of a database in several buckets, of which any minority may be missing?
//!
//! The first writer runs. Each later one claims the database at any moment, while all earlier ones
//! continue. A bucket has a register (the manifest) and objects of the log and of extents. A
//! conditional put that was derived from an older read fails and changes nothing, so a step on a
//! register is atomic. Replies come at once: the strongest case for acknowledgments. A crash
//! is a writer that takes no more steps, and a bucket out of reach one that no step chooses.
//!
//! | file | question |
//! |---|---|
//! | [`scenario`] | how many writers and blocks, and which mistake? |
//! | [`state`] | what is in each bucket, and known to each writer? |
//! | [`machine`] | which steps are possible? |
//! | [`steps`] | what does a step change, and what must never happen? |
//! | [`wrong`] | which rules look right, and what breaks? |

pub mod machine;
pub mod scenario;
pub mod state;
pub mod steps;
pub mod wrong;
