//! Rank 5: where is this key?
//!
//! A [`Tree`] is a B+-tree of pages in a [`Pool`](crate::buffer::Pool). The meaning of its entries
//! (which transaction wrote them, which may see them) is known to the transaction layer, which the
//! tree asks through a [`TreeObserver`].
//!
//! ```text
//!                 root (its page id never changes)   level 2
//!                /            |           \
//!            inner          inner        inner       level 1: truncated separators
//!           /  |  \          ...          ...
//!       leaf leaf leaf                               level 0: entries with stamps
//! ```
//!
//! Invariants:
//! 1. A node covers the keys from its lower fence (inclusive) to its upper (exclusive); its
//!    children's ranges lie side by side and fill it. A scan that continues after a leaf descends
//!    again with the leaf's upper fence.
//! 2. *Optimistic latch coupling* (Leis et al., "The ART of Practical Synchronization", DaMoN
//!    2016): a descent holds nothing. It reads the child's version before it validates the parent
//!    ([`Pool::child`](crate::buffer::Pool::child)). So the child covered the key at the moment
//!    from which its guard counts, and a page that was freed and used again is never mistaken for
//!    the old one. What was read counts only after validation.
//! 3. A thread takes latches only by turning an optimistic guard into an exclusive one, which does
//!    not wait. So there are no deadlocks; a thread that does not get a latch drops what it has and
//!    starts over.
//! 4. A structure change (split, merge, root grows or shrinks) holds all pages concerned
//!    exclusively, has allocated what it needs, notifies the observer once, and only then changes a
//!    page.
//! 5. A value that is too long for an entry lies in overflow pages ([`overflow`]); the entry holds
//!    a reference. The tree never frees them by itself, except in [`Tree::destroy`]: only the
//!    transaction layer knows which transactions see the value.
//! 6. Room rule: the capacity of an entry that is not settled never shrinks (see
//!    [`TreeObserver::is_settled`]).

mod node;

mod edit;
mod retry;

pub mod overflow;

mod check;
mod handle;

mod batch;
pub mod content;
mod descent;
pub mod image;

mod leaves_ahead;
mod lookup;
mod scan;
mod split;
mod survey;

mod write;

mod free;
mod merge;

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;

pub use batch::{BatchEntry, LeafBatch};
pub use free::Subtree;
pub use handle::{Tree, TreeObserver};
pub use lookup::ReadLeaf;
pub use node::{EntryMeta, Held, max_entry_bytes, max_key_bytes};
pub use overflow::{LargeReader, LargeReference, LargeWriter, REFERENCE_BYTES, VALUE_BYTES_MAX};
pub use survey::Survey;
pub use write::{LeafHint, LeafWrite};
