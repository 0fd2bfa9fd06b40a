//! The end of a clean close: removes segments, because the checkpoint contains every record.
//!
//! Two short segments stay, so that the next open needs no space: a log fills one and takes the
//! other before it gives back the first. If history is retained, RETAINED and ACTIVE segments stay,
//! too.

use super::file::Segment;
use super::pool::{FIRST_BYTES, SegmentPool};
use super::state::State;
use crate::base::{Result, SegmentId};
use crate::device::{AlignedBuffer, OpenMode, SECTOR_BYTES};

/// Segments that stay.
const KEPT: usize = 2;

impl SegmentPool {
    /// Removes the READY and ACTIVE segments of a closed database, except two, which are cut to the
    /// length of the first segments. The manifest says durably that the database was closed, and no
    /// log is written any more. Does nothing where segments are not written again.
    ///
    /// # Errors
    /// I/O: the first error. All else is done; the next open can use what stays.
    pub fn trim(&self) -> Result<()> {
        if !self.recycles {
            return Ok(());
        }
        self.close(true);
        let mut stays = Ok(());
        for (id, len) in self.choose_kept() {
            match self.cut(id, len) {
                Ok(segment) => self.state.lock().ready.push(segment),
                Err(error) => {
                    self.state.lock().excess.push(id);
                    stays = stays.and(Err(error));
                }
            }
        }
        stays.and(self.remove_excess())
    }

    /// Returns the shortest segments and their lengths; all others become excess.
    fn choose_kept(&self) -> Vec<(SegmentId, u64)> {
        let mut state = self.state.lock();
        let State { ready, active, excess, history, .. } = &mut *state;
        let ready = std::mem::take(ready).into_iter().map(|segment| (segment.id, segment.len));
        let active = std::mem::take(active).into_iter().filter(|_| !history.is_kept());
        let mut kept: Vec<_> = ready.chain(active).collect();
        kept.sort_unstable_by_key(|(id, len)| (*len, *id));
        let others = kept.split_off(kept.len().min(KEPT));
        excess.extend(others.into_iter().map(|(id, _)| id));
        kept
    }

    /// Cuts a file to the length of the first segments, durably, so that a later overwrite changes
    /// no metadata.
    fn cut(&self, id: SegmentId, len: u64) -> Result<Segment> {
        let mode = OpenMode { create: false, read_only: false, direct: true };
        let file = self.storage.segments().open(id, mode)?;
        let short = FIRST_BYTES.min(self.segment_bytes).next_multiple_of(SECTOR_BYTES as u64);
        if self.state.lock().history.is_kept() {
            // Old blocks in it would look like history.
            file.write_at(0, &AlignedBuffer::zeroed(len.min(short) as usize))?;
            file.flush()?;
        }
        if len <= short {
            return Ok(Segment { id, file, len, uses: 0 });
        }
        file.set_len(short)?;
        file.flush()?;
        Ok(Segment { id, file, len: short, uses: 0 })
    }
}
