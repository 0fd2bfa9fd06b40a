//! Two logs in memory for tests, whose blocks the test writes itself.

use super::*;
use crate::base::{Csn, DatabaseId, Epoch, Gsn, LogId, SegmentId, TableId};
use crate::device::memory::MemoryStorage;
use crate::device::{OpenMode, SECTOR_BYTES, Storage};
use std::sync::Arc;

pub const DATABASE: DatabaseId = DatabaseId(7);
pub const SEGMENT_BYTES: u64 = 64 << 10;

pub struct World {
    pub storage: Arc<dyn Storage>,
    pub segments: Arc<SegmentPool>,
    pub logs: Vec<Log>,
    pub next: u64,
}

/// A block that was sealed, without its buffer.
pub struct Sealed {
    pub segment: SegmentId,
    pub offset: u64,
    pub len: usize,
    pub log: LogId,
    pub sequence: u64,
}

impl World {
    pub fn new() -> World {
        World::with_buffers(64 << 10)
    }

    pub fn with_buffers(buffer_bytes: usize) -> World {
        World::with_segments(buffer_bytes, SEGMENT_BYTES)
    }

    pub fn with_segments(buffer_bytes: usize, segment_bytes: u64) -> World {
        World::in_storage(Arc::new(MemoryStorage::new()), buffer_bytes, segment_bytes)
    }

    pub fn in_storage(storage: Arc<dyn Storage>, buffer_bytes: usize, segment_bytes: u64) -> World {
        let segments = SegmentPool::new(storage.clone(), segment_bytes, 1 << 30, 3).expect("memory");
        segments.start().expect("a thread");
        segments.await_ready(3).expect("memory");
        let size = BufferSize::fixed(buffer_bytes);
        let log = |id| Log::new(LogId(id), DATABASE, Epoch(1), size, segments.clone(), Arc::default());
        World { logs: vec![log(0), log(1)], storage, segments, next: 1 }
    }

    /// Appends a record of one row with a value of `bytes`.
    pub fn append(&mut self, log: usize, bytes: usize) -> Csn {
        let csn = Csn(self.next);
        self.next += 1;
        let mut redo = RedoBuffer::default();
        redo.put(TableId(1), b"key", &vec![log as u8; bytes]);
        let body = redo.body();
        let header = RecordHeader {
            epoch: Epoch(1),
            csn,
            gsn: Gsn(0),
            dsn: Csn::ZERO,
            watermark: Csn(1),
            body_crc: redo.crc(),
            op_count: redo.op_count(),
            rule: DependencyRule::Dsn,
            kind: RecordKind::Whole,
        };
        let mut latch = self.logs[log].lock();
        loop {
            let prepared = self.segments.prepared().ticket();
            match latch.reserve(record_bytes(body.len()), &mut None) {
                Reserve::Ready => break,
                Reserve::NoSegment => self.segments.prepared().wait(prepared, None),
                Reserve::BuffersFull => {
                    drop(latch);
                    self.seal(log);
                    latch = self.logs[log].lock();
                }
                refused => panic!("{refused:?}"),
            }
        }
        latch.append(&header, body);
        csn
    }

    /// Log 0 writes, and carries what log 1 has.
    pub fn piggyback(&mut self) -> (Sealed, Option<Sealed>) {
        let mut helper = self.logs[0].lock();
        let own = helper.seal().expect("has something");
        let piggybacked = helper.carry(&own, &mut self.logs[1].lock(), own.buffer.len() - own.len);
        drop(helper);
        (self.write(own), piggybacked.map(|piggybacked| self.write(piggybacked)))
    }

    pub fn write(&self, block: SealedBlock) -> Sealed {
        let block = block.finish();
        block.file.write_at(block.offset, &block.buffer[..block.len]).expect("memory");
        let sealed = Sealed {
            segment: block.segment,
            offset: block.offset,
            len: block.len,
            log: block.log(),
            sequence: block.sequence,
        };
        let mut latch = self.logs[sealed.log.0 as usize].lock();
        latch.give_back(block.buffer);
        latch.complete(sealed.sequence);
        drop(latch);
        sealed
    }

    pub fn seal(&self, log: usize) -> Sealed {
        let block = self.logs[log].lock().seal().expect("has something");
        self.write(block)
    }

    pub fn damage(&self, block: &Sealed, at: u64) {
        let mode = OpenMode { create: false, read_only: false, direct: true };
        let file = self.storage.segments().open(block.segment, mode).expect("there");
        let offset = block.offset + at / SECTOR_BYTES as u64 * SECTOR_BYTES as u64;
        let mut sector = crate::device::AlignedBuffer::zeroed(SECTOR_BYTES);
        file.read_at(offset, &mut sector).expect("memory");
        sector[at as usize % SECTOR_BYTES] ^= 1;
        file.write_at(offset, &sector).expect("memory");
    }

    pub fn scan(&self) -> Scan {
        self.scan_keeping(0)
    }

    /// Keeps so many bytes of segments in memory.
    pub fn scan_keeping(&self, keep_bytes: u64) -> Scan {
        let options = ScanOptions {
            database: DATABASE,
            covered: Csn::ZERO,
            threads: 1,
            read_only: true,
            piece_bytes: 4096,
            keep_bytes,
        };
        scan(&self.storage, options, None, &|_, _| ()).expect("readable")
    }

    /// CSNs of the accepted blocks of a log, and how many blocks are beyond a hole.
    pub fn found(&self, log: u32) -> (Vec<u64>, usize) {
        let scan = self.scan();
        let Some(chain) = scan.chains.iter().find(|chain| chain.log == LogId(log)) else {
            return Default::default();
        };
        let csns = load_all(chain.accepted()).flat_map(|block| {
            let block = block.expect("readable");
            block.records().map(|record| record.expect("whole").1.header.csn.0).collect::<Vec<_>>()
        });
        (csns.collect(), chain.beyond().len())
    }
}
