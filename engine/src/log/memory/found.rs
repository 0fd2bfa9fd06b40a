//! What a recovery finds in the memory: blocks, as if they had been written.

use super::layout::LogMemory;
use crate::base::checksum::crc;
use crate::base::planted::{self, Bug};
use crate::base::{Csn, Epoch, ErrorKind, Result, SegmentId};
use crate::device::memory::MemoryStorage;
use crate::device::{AlignedBuffer, Roles};
use crate::log::block::{BLOCK_HEADER_BYTES, BlockHeader, block_bytes};
use crate::log::record::Record;
use crate::log::segment::Segment;

/// Gives what the memory holds as a segment that is only in memory, with the blocks of `epoch` that
/// have a record above `covered`. `None` if there are none. Its number is `id`.
///
/// `epoch` is the one that ran: a recovery has moved the blocks of any earlier one to a segment
/// before it published the next. Entries of earlier epochs are outdated if the memory was divided
/// again since.
///
/// # Errors
/// `Unsupported` for records that this build does not know.
pub fn find(memory: &LogMemory, epoch: Epoch, covered: Csn, id: SegmentId) -> Result<Option<Segment>> {
    let file = MemoryStorage::new().segments().create(id)?;
    let mut len = 0;
    for buffer in 0..memory.layout.buffers {
        if let Some((header, block)) = block_in(memory, buffer, epoch)?
            && header.last_csn > covered
        {
            file.write_at(len, &block[..header.device_bytes()])?;
            len += header.device_bytes() as u64;
        }
    }
    Ok((len > 0).then_some(Segment { id, file, len, uses: 0 }))
}

impl LogMemory {
    /// Makes its content durable. A killed process may have left records, or a header that it
    /// stored and did not fence, in a cache only; they could vanish after they were served, also by
    /// a reader. To be called before the result of [`find`] is served.
    pub fn make_durable(&self) {
        if !planted::is(Bug::MemoryHeaderBelieved) {
            self.memory.flush();
        }
    }

    /// The newest run that has used it since it was divided, as far as it says.
    #[must_use]
    pub fn newest_epoch(&self) -> Option<Epoch> {
        (0..self.layout.buffers).filter_map(|buffer| self.entry(buffer)).map(|entry| entry.epoch).max()
    }
}

/// The block of `epoch` of which `buffer` holds the records, as far as they are whole.
fn block_in(memory: &LogMemory, buffer: u32, epoch: Epoch) -> Result<Option<(BlockHeader, AlignedBuffer)>> {
    let Some(entry) = memory.entry(buffer).filter(|entry| entry.epoch == epoch) else { return Ok(None) };
    let mut bytes = AlignedBuffer::zeroed(memory.buffer_bytes());
    memory.memory.load(memory.layout.buffer_offset(buffer), &mut bytes);
    let mut header = BlockHeader {
        database: memory.database,
        log: entry.log,
        epoch: entry.epoch,
        sequence: entry.sequence,
        previous_csn: entry.previous_csn,
        ..BlockHeader::default()
    };
    let mut end = BLOCK_HEADER_BYTES;
    loop {
        let record = match Record::decode(&bytes[end..]) {
            Ok(record) => record,
            Err(error) if error.kind() == ErrorKind::Unsupported => return Err(error),
            Err(_) => break,
        };
        let csn = record.header.csn;
        let last = if header.record_count == 0 { entry.previous_csn } else { header.last_csn };
        if record.header.epoch != entry.epoch || csn <= last || csn >= Csn::LIMIT {
            // A remnant of an earlier block.
            break;
        }
        if header.record_count == 0 {
            header.first_csn = csn;
        }
        header.last_csn = csn;
        header.record_count += 1;
        end += record.bytes.len();
    }
    if header.record_count == 0 {
        return Ok(None);
    }
    header.payload_len = (end - BLOCK_HEADER_BYTES) as u32;
    header.payload_crc = crc(&bytes[BLOCK_HEADER_BYTES..end]);
    let whole = block_bytes(end - BLOCK_HEADER_BYTES);
    bytes[end..whole].fill(0);
    header.encode(&mut bytes);
    Ok(Some((header, bytes)))
}
