//! Which objects with pages may be deleted, and when?
//!
//! A writer uploads an extent, puts a manifest that names it and drops the oldest one, and deletes
//! what was dropped. A second writer claims the database at any moment and collects orphans. A
//! reader on another machine pins a manifest. All of them continue whatever the others do.
//!
//! | file | question |
//! |---|---|
//! | [`scenario`] | how many rounds, and which mistake? |
//! | [`state`] | what is in the store, in flight, and known to each machine? |
//! | [`write`](mod@write) | how does a writer put manifests, and what does it delete? |
//! | [`read`] | how does a reader pin a manifest? |
//! | [`machine`] | which steps are possible, and what must never happen? |
//! | [`wrong`] | which rules look right, and what breaks? |

pub mod machine;
pub mod read;
pub mod scenario;
pub mod state;
pub mod write;
pub mod wrong;
