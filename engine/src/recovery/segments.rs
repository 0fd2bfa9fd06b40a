//! The segment files of a recovery: those it finds, those it writes.

use crate::base::{Csn, DatabaseId, Error, ErrorKind, Result, SegmentId};
use crate::device::{Names, OpenMode, SECTOR_BYTES, Storage};
use crate::log::{
    Log, LogGuard, Reserve, Scan, ScannedBlock, Segment, SegmentContent, content_of, path_of, record_bytes,
};

/// A record to be appended again: its CSN and its bytes.
pub type Copy = (Csn, Vec<u8>);

/// The files with names of segments.
#[derive(Default)]
pub struct SegmentFiles {
    /// The segments.
    pub own: Vec<Segment>,
    /// Files of other programs.
    pub foreign: Vec<SegmentId>,
}

/// Returns all files with names of segments. A writer refuses a segment of another database,
/// because it would remove that segment as obsolete, and leaves alone what is no segment.
pub fn segment_files(storage: &dyn Storage, read_only: bool, database: DatabaseId) -> Result<SegmentFiles> {
    let mut found = SegmentFiles::default();
    let mode = OpenMode { create: false, read_only, direct: true };
    for id in storage.segments().list()? {
        let file = storage.segments().open(id, mode)?;
        let len = file.len()?;
        let of = if read_only { None } else { crate::log::database_of(&*file) };
        if let Some(other) = of.filter(|other| *other != database) {
            let what =
                format!("a log segment of another database ({other}) is in the log of this one ({database})");
            return Err(Error::invalid(what).with_advice("move it away; to replay it on a backup, restore with the directory it came from as the log").at(file.location(0)));
        }
        if of.is_none() && !read_only && is_foreign(storage, id)? {
            tracing::warn!(
                path = path_of(id),
                "a file that is no log segment has the name of one: move it away"
            );
            found.foreign.push(id);
        } else {
            found.own.push(Segment { id, file, len, uses: 0 });
        }
    }
    Ok(found)
}

/// Returns whether a file with the name of a segment is of another program. In a store of objects
/// no other program has such names.
pub fn is_foreign(storage: &dyn Storage, id: SegmentId) -> Result<bool> {
    if storage.directory().is_none() {
        return Ok(false);
    }
    let to_look = OpenMode { create: false, read_only: true, direct: false };
    Ok(content_of(&*storage.segments().open(id, to_look)?)? == SegmentContent::Foreign)
}

/// Writes the blocks that only mapped memory holds to a segment, durably. Returns the segment and
/// its highest CSN.
///
/// A recovery may do this several times before one of them publishes its decision. The next
/// recovery then finds the same blocks in a segment: whole, so that they are not moved again, or
/// not whole, so that they are moved to another segment. The moved blocks are the same each time,
/// because the memory was made durable before it was read.
pub fn move_to_segment(
    storage: &dyn Storage,
    memory: Option<&Segment>,
    scan: &Scan,
) -> Result<Option<(Segment, Csn)>> {
    let Some(memory) = memory else { return Ok(None) };
    let all = scan.chains.iter().flat_map(|chain| &chain.blocks);
    let only_there: Vec<&ScannedBlock> = all.filter(|block| block.segment() == memory.id).collect();
    let Some(max_csn) = only_there.iter().map(|block| block.last_csn()).max() else { return Ok(None) };
    let len = only_there.iter().map(|block| block.device_bytes() as u64).sum::<u64>();
    let file = storage.segments().create(memory.id)?;
    let moved = (|| {
        file.zero_extend(len.next_multiple_of(SECTOR_BYTES as u64), &mut |_| ())?;
        let mut at = 0;
        for block in &only_there {
            let bytes = block.read()?;
            file.write_durable_at(at, &bytes)?;
            at += bytes.len() as u64;
        }
        storage.flush_names(Names::Segments)
    })();
    if let Err(error) = moved {
        // Half a segment must not keep the space that is missing.
        let _ = storage.segments().remove(memory.id);
        return Err(error);
    }
    tracing::info!(blocks = only_there.len(), bytes = len, "moved from mapped memory to a log segment");
    Ok(Some((Segment { id: memory.id, file, len, uses: 0 }, max_csn)))
}

/// Writes copies of records, in CSN order, to the first log of the new epoch, durably.
pub fn append_again(log: &Log, copies: &[Copy]) -> Result<()> {
    let (mut guard, segments) = (log.lock(), log.segments());
    for (csn, bytes) in copies {
        debug_assert_eq!(bytes.len(), record_bytes(bytes.len() - crate::log::RECORD_HEADER_BYTES));
        let mut large = (bytes.len() > log.block_payload_bytes()).then(|| log.large_buffer(bytes.len()));
        let mut since = segments.begin_waiting();
        loop {
            let ticket = segments.prepared().ticket();
            match guard.reserve(bytes.len(), &mut large) {
                Reserve::Ready => break,
                Reserve::BuffersFull | Reserve::NeedsLargeBuffer => write_sealed(&mut guard)?,
                Reserve::NoSegment => {
                    if let Some(failure) = segments.failure_since(since) {
                        // The first segment had space, and may be short.
                        if failure.kind() != ErrorKind::OutOfSpace || !segments.remove_obsolete() {
                            return Err(failure);
                        }
                        since = segments.begin_waiting();
                    }
                    segments.prepared().wait(ticket, Some(std::time::Duration::from_millis(100)));
                }
            }
        }
        guard.append_copy(*csn, bytes);
    }
    write_sealed(&mut guard)
}

fn write_sealed(guard: &mut LogGuard<'_>) -> Result<()> {
    if let Some(block) = guard.seal() {
        let block = block.finish();
        block.file.write_durable_at(block.offset, &block.buffer[..block.len])?;
        guard.complete(block.sequence);
        guard.give_back(block.buffer);
    }
    Ok(())
}
