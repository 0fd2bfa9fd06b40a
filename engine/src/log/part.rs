//! Parts: a transaction whose redo outgrows a part of the log buffer writes it in several records.
//!
//! ```text
//!   redo of the transaction   0 ─────────── 900 ─────────── 1700 ──── 2100
//!   written while it runs       chunk 0        chunk 1
//!   rolled back to 1500                                │
//!   written at its commit                              └ last: start 1500, number 2
//!                              (cancels what chunk 1 has from 1500 on)
//! ```
//!
//! 1. Each **chunk** is a record with a CSN of its own, so it is durable, missing, discarded,
//!    appended again and covered by checkpoints by the same rules as any record. Alone it changes
//!    nothing. The DSN of a chunk is the CSN of the one before it.
//! 2. The **last** part is the transaction's commit record, and has the transaction's CSN. Its DSN
//!    is at or above the CSN of the last chunk, so wherever it counts all chunks are there.
//! 3. All parts are in one log. The number of a part is how many chunks come before it.
//! 4. A part begins at an offset of the transaction's redo that is at or below the end of the part
//!    before it. What earlier parts have from there on was taken back before it was written.
//! 5. A part holds whole operations. A large value that continues in the next part is a
//!    [`super::Operation::LargePart`] in this one.
//!
//! The body of a chunk or last part begins with:
//!
//! | offset | bytes | content (little-endian) |
//! |---|---|---|
//! | 0 | 8 | CSN of the transaction's first chunk; 0 in that one itself |
//! | 8 | 8 | offset of this part in the transaction's redo |
//! | 16 | 4 | number of the part, from 0 |
//! | 20 | 4 | 0 |
//! | 24 | | operations |

use super::fragment::FRAGMENT_BYTES;
use crate::base::Csn;
use crate::base::encoding::Reader;
use crate::base::planted::{self, Bug};

/// Bytes in front of the operations of a part.
pub const PART_BYTES: usize = 24;

/// The role of a record in its transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[repr(u8)]
pub enum RecordKind {
    /// All of it.
    #[default]
    Whole = 0,
    /// A part, written before the transaction asked to commit.
    Chunk = 1,
    /// The part that commits it.
    Last = 2,
    /// A fragment in one of several logs; see `fragment`.
    Fragment = 3,
}

impl RecordKind {
    pub(super) fn from_byte(byte: u8) -> Option<RecordKind> {
        let all = [RecordKind::Whole, RecordKind::Chunk, RecordKind::Last, RecordKind::Fragment];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// True for what a long transaction is written in.
    #[must_use]
    pub fn is_part(self) -> bool {
        matches!(self, RecordKind::Chunk | RecordKind::Last)
    }

    /// Bytes of the body before the operations.
    #[must_use]
    pub fn prefix_bytes(self) -> usize {
        match self {
            RecordKind::Whole => 0,
            RecordKind::Chunk | RecordKind::Last => PART_BYTES,
            RecordKind::Fragment => FRAGMENT_BYTES,
        }
    }
}

/// Which part of a transaction a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Part {
    /// CSN of the transaction's first chunk; 0 in that one itself.
    pub first: Csn,
    /// Its offset in the transaction's redo.
    pub start: u64,
    /// Number of chunks before it.
    pub number: u32,
}

impl Part {
    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> [u8; PART_BYTES] {
        debug_assert_eq!(self.number == 0, self.first == Csn::ZERO, "only the first part names no other");
        let mut out = [0; PART_BYTES];
        out[..8].copy_from_slice(&self.first.0.to_le_bytes());
        out[8..16].copy_from_slice(&self.start.to_le_bytes());
        out[16..20].copy_from_slice(&self.number.to_le_bytes());
        out
    }

    /// The part at the start of the body of a record with `csn`, if it can be one.
    pub(super) fn decode(body: &[u8], kind: RecordKind, csn: Csn) -> Option<Part> {
        let mut reader = Reader::new(body.get(..PART_BYTES)?);
        let part = Part { first: Csn(reader.u64()?), start: reader.u64()?, number: reader.u32()? };
        let zero = reader.u32()? == 0;
        let possible = match part.number {
            0 => kind == RecordKind::Chunk && part.first == Csn::ZERO && part.start == 0,
            _ => part.first > Csn::ZERO && part.first < csn,
        };
        (zero && possible).then_some(part)
    }

    /// The CSN of the transaction's first chunk, which is `csn` if this is it.
    #[must_use]
    pub fn first_of(&self, csn: Csn) -> Csn {
        if self.number == 0 { csn } else { self.first }
    }
}

/// Returns how many bytes of operations count of each part of a transaction, the last one included:
/// `parts` are all of them, each with the bytes that it has. `None` if one is missing or they do
/// not fit together.
#[must_use]
pub fn counting_bytes(parts: &[(Part, usize)]) -> Option<Vec<usize>> {
    let mut end = 0;
    for (number, (part, bytes)) in (0u32..).zip(parts) {
        if part.number != number || part.start > end {
            return None;
        }
        end = part.start.checked_add(*bytes as u64)?;
    }
    let mut taken_back = u64::MAX;
    let mut counting: Vec<usize> = parts
        .iter()
        .rev()
        .map(|(part, bytes)| {
            let counts = taken_back.saturating_sub(part.start).min(*bytes as u64);
            if !planted::is(Bug::RolledBackChunkCounts) {
                taken_back = taken_back.min(part.start);
            }
            counts as usize
        })
        .collect();
    counting.reverse();
    Some(counting)
}

#[cfg(test)]
mod tests;
