//! Reading ahead of a long scan.

use crate::base::Result;
use crate::buffer::ScanBuffer;
use crate::tree::Tree;
use std::ops::Bound;

/// After this many leaves a scan is expected to continue: pages are read ahead, at first
/// `FIRST_WINDOW`, doubled up to the maximum.
const LEAVES_BEFORE_READING_AHEAD: usize = 2;
const FIRST_WINDOW: usize = 8;
const LARGEST_WINDOW: usize = 512;

/// The bounds of a run of leaves, in the order of a scan.
#[derive(Debug)]
struct LeafRun {
    begin: Bound<Vec<u8>>,
    /// [`Bound::Unbounded`] at the end of the tree.
    end: Bound<Vec<u8>>,
}

/// The pages that one end of a cursor has requested ahead.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    /// Batches so far.
    batches: usize,
    /// Requested leaves that the scan has not reached.
    left: usize,
    window: usize,
    /// Leaves requested so far.
    requested: u64,
    /// Once the scan is long, its leaves are copied and not kept in the buffer pool.
    pub(super) copies: ScanBuffer,
    /// The leaves whose copies were requested last.
    copied: Option<LeafRun>,
}

impl ReadAhead {
    /// Requests pages before another batch is read from `from`. A batch is at most a leaf, so the
    /// requested leaves may be used up more slowly than is counted, never faster.
    pub(super) fn advance(&mut self, tree: &Tree, from: Bound<&[u8]>, back: bool) -> Result<()> {
        if let Some(LeafRun { begin, end }) = &self.copied {
            if *end != Bound::Unbounded && has_reached(from, begin, back) {
                let next = tree.copy_ahead(end.as_ref().map(Vec::as_slice), back, &mut self.copies)?;
                self.copied = next.map(|next| LeafRun { begin: end.clone(), end: next });
            }
            return Ok(());
        }
        self.batches += 1;
        self.left = self.left.saturating_sub(1);
        if self.batches <= LEAVES_BEFORE_READING_AHEAD || self.left > self.window / 2 {
            return Ok(());
        }
        if tree.pool().needs_scan_buffer(self.requested) {
            let end = tree.copy_ahead(from, back, &mut self.copies)?;
            self.copied = end.map(|end| LeafRun { begin: from.map(<[u8]>::to_vec), end });
            if self.copied.is_some() {
                return Ok(());
            }
        }
        self.window = (self.window * 2).clamp(FIRST_WINDOW, LARGEST_WINDOW);
        self.left = tree.read_ahead(from, back, self.window)?;
        self.requested += self.left as u64;
        Ok(())
    }
}

/// Returns whether a scan that continues at `from`, forward or `back`, has reached `begin`.
fn has_reached(from: Bound<&[u8]>, begin: &Bound<Vec<u8>>, back: bool) -> bool {
    let (Bound::Included(at) | Bound::Excluded(at)) = from else { return true };
    match begin {
        Bound::Included(begin) | Bound::Excluded(begin) if back => at <= begin.as_slice(),
        Bound::Included(begin) | Bound::Excluded(begin) => at >= begin.as_slice(),
        Bound::Unbounded => true,
    }
}
