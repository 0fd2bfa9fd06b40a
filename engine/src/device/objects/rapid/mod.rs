//! Zonal buckets of Google (class Rapid), through gRPC: objects that take flushed appends.
//!
//! An object that takes appends has one stream, on which its author sends. Everything else is a
//! request of its own. This client repeats no append: it says what became of the stream, and the
//! segment decides.
//!
//! | request | message |
//! |---|---|
//! | create | `BidiWriteObject`, `WriteObjectSpec` with generation 0; the header is flushed |
//! | open | `BidiWriteObject`, `AppendObjectSpec` with the generation; with a handle, or without |
//! | append | a message on the open stream; confirmed by `persisted_size` |
//! | finalize | `finish_write` on the open stream |
//! | get, head | `BidiReadObject`: its description shows the right length at once |
//! | list, delete | `ListObjects`, `DeleteObject` |
//!
//! Source: Google's reference of `google.storage.v2`.

mod messages;
mod errors;
mod connection;
mod stream;
mod lanes;
mod client;

pub use client::{RapidStore, is_zonal};
#[cfg(feature = "internals")]
pub use messages::*;
