//! Moving blocks that only mapped memory holds to a segment.
//!
//! A recovery may do this several times before one of them publishes its decision: the same blocks are then found in a segment, whole, and
//! not moved again, or not whole, and moved to another segment. What is moved is the same each time, because the memory was made
//! durable before it was looked at.

use super::Recovery;
use crate::base::{Csn, Result};
use crate::device::{OpenMode, SECTOR_BYTES};
use crate::log::{DIRECTORY, Scan, ScannedBlock, Segment};

impl Recovery<'_> {
    /// Writes them, durably; the segment and the highest CSN in it.
    pub(super) fn move_to_segment(&self, scan: &Scan) -> Result<Option<(Segment, Csn)>> {
        let Some(memory) = self.memory else { return Ok(None) };
        let all = scan.chains.iter().flat_map(|chain| &chain.blocks);
        let only_there: Vec<&ScannedBlock> = all.filter(|block| block.segment() == memory.id).collect();
        let Some(max_csn) = only_there.iter().map(|block| block.last_csn()).max() else { return Ok(None) };
        let len = only_there.iter().map(|block| block.device_bytes() as u64).sum::<u64>();
        let mode = OpenMode { create: true, read_only: false, direct: true };
        let path = format!("{DIRECTORY}/{:08}.seg", memory.id.0);
        let file = self.storage.open(&path, mode)?;
        let moved = (|| {
            file.zero_extend(len.next_multiple_of(SECTOR_BYTES as u64))?;
            let mut at = 0;
            for block in &only_there {
                let bytes = block.read()?;
                file.write_durable_at(at, &bytes)?;
                at += bytes.len() as u64;
            }
            self.storage.flush_directory(DIRECTORY)
        })();
        if let Err(error) = moved {
            // Half a segment must not keep the space that is missing.
            let _ = self.storage.remove(&path);
            return Err(error);
        }
        tracing::info!(blocks = only_there.len(), bytes = len, "moved from mapped memory to a log segment");
        Ok(Some((Segment { id: memory.id, file, len }, max_csn)))
    }
}
