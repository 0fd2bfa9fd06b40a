//! Large values: those that do not fit in an entry of a leaf lie in *overflow pages*, a tree of
//! their own.
//!
//! ```text
//!   leaf entry: reference ──▶ root ──▶ index page ──▶ content page   (the root of a value of
//!   (root, length, checksum)      ├──▶ index page     content page    one page is the content)
//!                                 └──▶ ...            ...
//! ```
//!
//! | bytes | what |
//! |---|---|
//! | 0..32 | the store's ([`crate::buffer::PAGE_HEADER_BYTES`]) |
//! | 32 | kind: 3 |
//! | 33 | level: 0 content, otherwise one more than the pages that it refers to |
//! | 34..36 | 0 |
//! | 36..40 | bytes used after the header |
//! | 40..48 | stamp of the value's *owner*, the transaction that wrote it; 0 if settled |
//! | 48.. | content, or page ids of 8 bytes; then zeros |
//!
//! A reference, in place of the value in an entry, has [`REFERENCE_BYTES`]:
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | root page |
//! | 8..16 | length of the value |
//! | 16..20 | CRC-32C of the value |
//! | 20..24 | 0 |
//!
//! Invariants:
//! 1. A page is written once, under the exclusive guard with which it was allocated, before any
//!    entry refers to its value, and never changed: a new value has new pages. So a reader needs
//!    nothing but the certainty that the value is not freed.
//! 2. The shape follows from the length alone: every page but the last of its level is full. So a
//!    reader can check that a page is the one that belongs there, and a damaged page leads nowhere
//!    else.
//! 3. A value's pages belong to one entry or one before-image. The code that removes the last
//!    reference frees them.

mod format;
mod free;
mod reader;
mod writer;

mod check;

pub use check::{check, visit_pages};
pub use format::{LargeReference, REFERENCE_BYTES, VALUE_BYTES_MAX, too_long};
pub(super) use format::{check_page, content_of, is_overflow, settle, stamp_of};
pub use free::{LargeSubtree, free, free_by, free_or_keep};
pub use reader::LargeReader;
pub use writer::LargeWriter;
