//! Which bytes of a lane count when a lane is a stream of its author?
//!
//! In a zonal bucket a log object takes appends through a stream. An append takes effect as a
//! prefix; an offset below the length is taken for a repetition; the answer is a length of the
//! object and not a receipt. A new stream takes the object over, and a finalized object never
//! changes again. So the rule is: only the writer that created an object sends data to it, and any
//! other writer takes it over to finalize it.
//!
//! Each writer has one lane. A block is two sectors long, so that it can be torn. An answer arrives
//! at once or never: a writer that hears later only knows less. What the first models have is left
//! out: several lanes and segments, conditional puts of the manifest, checkpoints.
//!
//! | file | question |
//! |---|---|
//! | [`scenario`] | how many writers and blocks, what does the service do, and which mistake? |
//! | [`state`] | what is in the store, in flight, and known to each writer? |
//! | [`service`] | what does the service make of a message? |
//! | [`author`] | how does a writer get its blocks into its lane? |
//! | [`recover`] | how does a writer take over, and which blocks does it accept? |
//! | [`machine`] | which steps are possible? |
//! | [`judge`] | what must never happen? |
//! | [`wrong`] | which rules look right, and what breaks? |

pub mod author;
pub mod judge;
pub mod machine;
pub mod recover;
pub mod scenario;
pub mod service;
pub mod state;
pub mod wrong;
