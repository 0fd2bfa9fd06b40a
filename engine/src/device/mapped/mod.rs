//! Memory that keeps what was stored: byte-addressable, non-volatile, or an ordinary file that
//! stands for it.
//!
//! ```text
//!   store ──▶ cache ──write-back──▶ on its way ──fence──▶ durable
//!                └── a power cut keeps any 8-byte words of what is not durable, in any mixture, or none
//! ```
//!
//! # What an implementation promises
//! 1. [`MappedMemory::store`] copies the bytes and sends their cache lines on their way. They are
//!    visible to `load`, not durable.
//! 2. After [`MappedMemory::fence`] everything that the calling thread stored before is durable, as
//!    [`MemoryFacts`] say.
//! 3. After [`MappedMemory::barrier`] everything that *any* thread of this process had stored
//!    before the call is durable.
//! 4. After [`MappedMemory::flush`] everything that is visible is durable, whichever process
//!    stored it, a killed one included.
//! 5. What is not durable may survive all the same, word by word: a word of 8 bytes is whole,
//!    nothing longer is.
//!
//! How cache lines are written back is found out from the processor (`primitive`); whether a power
//! cut spares what was written back, from the file system (`file`).

mod primitive;
mod memory;
mod file;

pub use file::map_file;
#[cfg(feature = "internals")]
pub use memory::WORD_BYTES;
pub use memory::{MapOptions, MappedMemory, MemoryFacts, Survives, absolute};
pub use primitive::Primitive;
