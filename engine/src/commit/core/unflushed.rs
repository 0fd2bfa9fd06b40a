//! Blocks of a log that are written and not durable: those that were written without a flush, for
//! commits of level written. See `written`.

use crate::base::scale::SCALE;
use crate::base::{Csn, Result};
use crate::device::File;
use crate::log::LogGuard;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Event, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// Blocks of a log that may be written and not durable. A write at this bound flushes first.
pub const UNFLUSHED_MAX: u32 = SCALE.unflushed_blocks_max;

/// Time between two looks of a thread that waits for a flush, in case that commits have stopped.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A block whose write without a flush has completed.
#[derive(Debug)]
pub struct WrittenBlock {
    pub sequence: u64,
    pub first_csn: Csn,
    pub last_csn: Csn,
    pub file: Arc<dyn File>,
}

/// See the module's text.
#[derive(Debug)]
pub struct Unflushed {
    /// Blocks that no flush covers yet, by sequence.
    blocks: Mutex<Vec<WrittenBlock>>,
    /// These, and those in a flush. Written under the log's latch.
    count: AtomicU32,
    /// Every record of the log up to this CSN is written. Written under the log's latch.
    written: AtomicU64,
    /// The sequence of the block that ends with `written`.
    sequence: AtomicU64,
    flushing: AtomicBool,
    /// Notified when a flush has ended.
    flushed: Event,
}

/// The right to flush, with the blocks that the flush makes durable.
pub struct Flush<'a> {
    of: &'a Unflushed,
    pub blocks: Vec<WrittenBlock>,
}

impl Drop for Flush<'_> {
    fn drop(&mut self) {
        self.of.flushing.store(false, Ordering::SeqCst);
        self.of.flushed.notify_all();
    }
}

impl Unflushed {
    pub fn new() -> Unflushed {
        Unflushed {
            blocks: Mutex::new(Vec::new()),
            count: AtomicU32::new(0),
            written: AtomicU64::new(0),
            sequence: AtomicU64::new(0),
            flushing: AtomicBool::new(false),
            flushed: Event::new(),
        }
    }

    /// Returns how many blocks are written and not durable.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }

    /// Returns the CSN up to which a prefix of the log was written without a flush.
    pub fn written(&self) -> Csn {
        Csn(self.written.load(Ordering::SeqCst))
    }

    /// The write of `block` has completed. All blocks up to sequence `durable` are durable.
    pub fn add(&self, block: WrittenBlock, durable: u64, _latch: &LogGuard<'_>) {
        let mut blocks = self.blocks.lock();
        let at = blocks.partition_point(|other| other.sequence < block.sequence);
        debug_assert!(
            blocks.get(at).is_none_or(|other| other.sequence > block.sequence),
            "a block is written once"
        );
        debug_assert!(block.sequence > durable, "a block that was written without a flush is not durable");
        blocks.insert(at, block);
        self.count.fetch_add(1, Ordering::SeqCst);
        let mut last = self.sequence.load(Ordering::Relaxed).max(durable);
        let first = blocks.partition_point(|block| block.sequence <= last);
        for block in blocks.iter().skip(first) {
            if block.sequence != last + 1 {
                break;
            }
            last = block.sequence;
            self.written.fetch_max(block.last_csn.0, Ordering::SeqCst);
        }
        debug_assert!(last >= self.sequence.load(Ordering::Relaxed), "the written prefix only grows");
        self.sequence.store(last, Ordering::Relaxed);
    }

    /// Begins a flush of every block that is written now. `None`: another thread flushes.
    pub fn begin_flush(&self) -> Option<Flush<'_>> {
        if self.flushing.swap(true, Ordering::SeqCst) {
            return None;
        }
        Some(Flush { of: self, blocks: std::mem::take(&mut *self.blocks.lock()) })
    }

    /// Waits until the flush under way has ended, or until `gives_up`.
    pub fn await_flush(&self, gives_up: impl Fn() -> bool) {
        loop {
            let woken = self.flushed.ticket();
            if !self.flushing.load(Ordering::SeqCst) || gives_up() {
                return;
            }
            self.flushed.wait(woken, Some(LOOK_EVERY));
        }
    }

    /// `blocks` blocks have become durable.
    pub fn became_durable(&self, blocks: usize, _latch: &LogGuard<'_>) {
        let before = self.count.fetch_sub(blocks as u32, Ordering::SeqCst);
        debug_assert!(before as usize >= blocks, "each written block is counted");
    }
}

impl Flush<'_> {
    /// Flushes the file of each block, once. On an error, returns the block whose file failed.
    ///
    /// # Errors
    /// The device's errors.
    pub fn run(&self) -> std::result::Result<(), (&WrittenBlock, crate::base::Error)> {
        let mut last: Option<&Arc<dyn File>> = None;
        for block in &self.blocks {
            // A log fills one segment after the other.
            if last.is_some_and(|last| Arc::ptr_eq(last, &block.file)) {
                continue;
            }
            let flushed: Result<()> = block.file.flush();
            flushed.map_err(|error| (block, error))?;
            last = Some(&block.file);
        }
        Ok(())
    }
}
