//! Segment files, and the blocks that still have to be written to them.

use crate::base::{Result, SegmentId};
use crate::device::File;
use crate::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

/// A segment file.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The number in its name.
    pub id: SegmentId,
    /// The file.
    pub file: Arc<dyn File>,
    /// Its length.
    pub len: u64,
    /// How often it was taken to be written, so that a reader recognises another content.
    pub uses: u64,
}

/// A segment that a change feed may read.
#[derive(Clone, Debug)]
pub struct Readable {
    /// The segment, or the part of it.
    pub segment: Segment,
    /// The number of the part, of a segment that is in several places while it is written.
    pub part: usize,
    /// Blocks have a place below this offset. Behind it may be old ones.
    pub end: u64,
    /// All its blocks are written, and no block will be added.
    pub is_whole: bool,
}

impl Readable {
    /// Returns the parts of the segment, or the segment itself.
    ///
    /// # Errors
    /// I/O.
    pub fn divide(self) -> Result<Vec<Readable>> {
        let Some(parts) = self.segment.file.written_parts() else { return Ok(vec![self]) };
        let parts = parts.into_iter().enumerate().map(|(part, file)| {
            let len = file.len()?;
            Ok(Readable { segment: Segment { file, len, ..self.segment.clone() }, part, end: len, ..self })
        });
        parts.collect()
    }
}

/// The log has left the segment: no more blocks get a place in it.
const LEFT: u32 = 1 << 31;

/// The blocks that have a place in a segment and are not written yet. Until they are written, the
/// segment is not recycled. When the log has left the segment and the last one is written, no write
/// comes to the file any more.
#[derive(Clone, Debug, Default)]
pub struct OpenBlocks(Arc<Open>);

#[derive(Debug, Default)]
struct Open {
    /// The number of blocks, and [`LEFT`].
    blocks: AtomicU32,
    file: Option<Arc<dyn File>>,
}

/// One such block, until it is dropped.
#[derive(Debug)]
pub struct OpenBlock(OpenBlocks);

impl OpenBlocks {
    /// Returns those of a segment that a log begins to write.
    #[must_use]
    pub fn of(segment: &Segment) -> OpenBlocks {
        OpenBlocks(Arc::new(Open { blocks: AtomicU32::new(0), file: Some(segment.file.clone()) }))
    }

    /// Counts one more block.
    #[must_use]
    pub fn open(&self) -> OpenBlock {
        let before = self.0.blocks.fetch_add(1, Ordering::Relaxed);
        debug_assert!(before & LEFT == 0, "a segment that was left takes no block");
        OpenBlock(self.clone())
    }

    pub(super) fn any(&self) -> bool {
        self.0.blocks.load(Ordering::Acquire) & !LEFT > 0
    }

    /// The log leaves the segment.
    pub(super) fn leave(&self) {
        if self.0.blocks.fetch_or(LEFT, Ordering::AcqRel) == 0 {
            self.0.end();
        }
    }
}

impl Open {
    fn end(&self) {
        self.file.iter().for_each(|file| file.end_writes());
    }
}

impl Drop for OpenBlock {
    fn drop(&mut self) {
        let before = self.0.0.blocks.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before & !LEFT > 0, "each open block is counted");
        if before == LEFT + 1 {
            self.0.0.end();
        }
    }
}
