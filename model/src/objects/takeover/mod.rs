//! Which blocks of the log count when another writer claims the database?
//!
//! The first writer runs. Each later one claims the database at any moment, while all earlier ones
//! continue. A writer has one log. On a store that takes appends a segment of it is one or two
//! objects; otherwise each block is an object of its own.
//!
//! | file | question |
//! |---|---|
//! | [`scenario`] | how many writers, blocks and lanes, and which mistake? |
//! | [`state`] | what is in the store, in flight, and known to each writer? |
//! | [`append`] | how does a writer get its blocks into the store? |
//! | [`recover`] | how does a writer take over, and which blocks does it accept? |
//! | [`machine`] | which steps are possible? |
//! | [`judge`] | what must never happen? |
//! | [`wrong`] | which rules look right, and what breaks? |

pub mod append;
pub mod judge;
pub mod machine;
pub mod recover;
pub mod scenario;
pub mod state;
pub mod wrong;
