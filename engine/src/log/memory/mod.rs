//! Log buffers in memory that keeps what is in it: a record is durable when it is fenced, long
//! before its block is written.
//!
//! ```text
//!   append ──▶ buffer in DRAM ── full: seal, one large write ──▶ segment
//!      └─────▶ the same bytes, at the same place, in a mapped buffer ── fence ──▶ durable
//! ```
//!
//! A record is copied twice: to the log's ordinary buffer, from which the block is written later,
//! and to a mapped buffer. So the device never reads from the mapped memory, which may be slow to
//! read and cannot always be the source of direct I/O, and the life of a block is that of any
//! other.
//!
//! 1. A mapped buffer is used again only when the block that it held is durable in a segment,
//!    whole.
//! 2. It says whose records it holds before the first of them is stored: log, epoch, sequence, and
//!    the last CSN before it. That is one cache line of a table, fenced by itself, so records of
//!    one block are never taken for those of another.
//! 3. All records of a block are fenced before it is sealed. So a block that is whole in a segment
//!    is the same, to the bit, as what its mapped buffer gives, and recovery may find it in both
//!    places.
//! 4. What counts after a crash is the longest run of records from the buffer's beginning that are
//!    whole by their checksums, of its epoch, with CSNs that rise. A word that was lost ends it,
//!    and so does what an earlier block left there.
//!
//! How the memory is divided is in `layout`; how it is filled in `buffers`; what recovery makes of
//! it in `found`.

mod layout;
mod buffers;
mod found;
#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
use buffers::MemoryBuffers;
pub use found::find;
pub use layout::{
    BUFFERS_EACH, LogMemory, MemoryId, MemoryState, buffer_bytes_that_fit, is_memory_file, needed_bytes,
};
