//! Fragments: a transaction that changed pages of several logs has a record in each of them.
//!
//! ```text
//!   CSN     70        71        72       one transaction, CSN 72: the last of its fragments
//!   log 0   [0 of 3]
//!   log 1             [1 of 3]
//!   log 2                       [2 of 3]
//! ```
//!
//! 1. The CSNs of the fragments of a transaction follow one another without a gap: they are drawn
//!    at once. The last one is the transaction's. So no checkpoint, snapshot or watermark chosen by
//!    the newest CSN drawn lies between them, and a transaction that depends on it depends on a CSN
//!    above all of them.
//! 2. Each fragment says which it is and how many there are. The transaction is there only if all
//!    are.
//! 3. All fragments have the transaction's DSN. The first one lists its predecessors, if the rule
//!    does.
//! 4. All operations on a row are in one fragment, in their order. So fragments can be redone in
//!    the order of CSNs, each alone.
//!
//! The body of a fragment begins with:
//!
//! | offset | bytes | content (little-endian) |
//! |---|---|---|
//! | 0 | 4 | number of the fragment, from 0 |
//! | 4 | 4 | how many there are, 2 to [`FRAGMENTS_MAX`] |
//! | 8 | | operations; in the first one the predecessors |

use crate::base::Csn;
use crate::base::encoding::Reader;

/// Bytes in front of the operations of a fragment.
pub const FRAGMENT_BYTES: usize = 8;
/// Fragments of a transaction: as many as there can be logs.
pub const FRAGMENTS_MAX: u32 = 256;

/// Which fragment of its transaction a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// From 0.
    pub number: u32,
    /// The number of fragments.
    pub count: u32,
}

impl Fragment {
    /// The stored form.
    #[must_use]
    pub fn encode(self) -> [u8; FRAGMENT_BYTES] {
        let mut out = [0; FRAGMENT_BYTES];
        out[..4].copy_from_slice(&self.number.to_le_bytes());
        out[4..].copy_from_slice(&self.count.to_le_bytes());
        out
    }

    /// The fragment at the start of the body of a record with `csn`, if it can be one.
    pub(super) fn decode(body: &[u8], csn: Csn) -> Option<Fragment> {
        let mut reader = Reader::new(body.get(..FRAGMENT_BYTES)?);
        let fragment = Fragment { number: reader.u32()?, count: reader.u32()? };
        let possible = (2..=FRAGMENTS_MAX).contains(&fragment.count)
            && fragment.number < fragment.count
            && u64::from(fragment.number) < csn.0;
        possible.then_some(fragment)
    }

    /// The CSN of the transaction's first fragment, if this one has `csn`.
    #[must_use]
    pub fn first_of(self, csn: Csn) -> Csn {
        debug_assert!(csn.0 > u64::from(self.number), "the CSNs of fragments follow one another");
        Csn(csn.0 - u64::from(self.number))
    }

    /// The CSN of its last one, which is the transaction's.
    #[must_use]
    pub fn last_of(self, csn: Csn) -> Csn {
        Csn(csn.0 + u64::from(self.count - 1 - self.number))
    }
}
