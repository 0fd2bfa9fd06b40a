//! Tests of the log room: blocks that a peer carries.
#![cfg(not(any(loom, feature = "shuttle")))]

use super::*;
use crate::base::checksum::crc;
use crate::base::{Csn, DatabaseId, Epoch, Gsn, LogId};
use crate::device::memory::MemoryStorage;
use crate::device::{OpenMode, SECTOR_BYTES, Storage};
use std::sync::Arc;

const DATABASE: DatabaseId = DatabaseId(7);
const SEGMENT_BYTES: u64 = 64 << 10;

struct World {
    storage: Arc<dyn Storage>,
    segments: Arc<SegmentPool>,
    logs: Vec<Log>,
    next: u64,
}

/// A block that was sealed, without its buffer.
struct Sealed {
    path: String,
    offset: u64,
    len: usize,
    log: LogId,
    sequence: u64,
}

impl World {
    fn new() -> World {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let segments = SegmentPool::new(storage.clone(), SEGMENT_BYTES, 1 << 30, 3).expect("memory");
        segments.start().expect("a thread");
        segments.await_ready(3).expect("memory");
        let log = |id| {
            Log::new(
                LogId(id),
                DATABASE,
                Epoch(1),
                BufferSize::fixed(64 << 10),
                segments.clone(),
                Arc::default(),
            )
        };
        World { logs: vec![log(0), log(1)], storage, segments, next: 1 }
    }

    fn append(&mut self, log: usize, bytes: usize) -> Csn {
        let csn = Csn(self.next);
        self.next += 1;
        let body = vec![log as u8; bytes];
        let header = RecordHeader {
            epoch: Epoch(1),
            csn,
            gsn: Gsn(0),
            dsn: Csn::ZERO,
            watermark: Csn(1),
            body_crc: crc(&body),
            op_count: 1,
            rule: DependencyRule::Dsn,
            kind: RecordKind::Whole,
        };
        let mut latch = self.logs[log].lock();
        loop {
            let prepared = self.segments.prepared().ticket();
            match latch.reserve(record_bytes(bytes), &mut None) {
                Reserve::Ready => break,
                Reserve::NoSegment => self.segments.prepared().wait(prepared, None),
                refused => panic!("{refused:?}"),
            }
        }
        latch.append(&header, &body);
        csn
    }

    /// Log 0 writes, and carries what log 1 has.
    fn steal(&mut self) -> (Sealed, Option<Sealed>) {
        let mut thief = self.logs[0].lock();
        let own = thief.seal().expect("has something");
        let stolen = thief.carry(&mut self.logs[1].lock(), own.buffer.len() - own.len);
        drop(thief);
        (self.write(own), stolen.map(|stolen| self.write(stolen)))
    }

    fn write(&self, block: SealedBlock) -> Sealed {
        let block = block.finish();
        block.file.write_at(block.offset, &block.buffer[..block.len]).expect("memory");
        let sealed = Sealed {
            path: names::path_of(block.segment),
            offset: block.offset,
            len: block.len,
            log: block.log(),
            sequence: block.sequence,
        };
        self.logs[sealed.log.0 as usize].lock().give_back(block.buffer);
        sealed
    }

    fn seal(&self, log: usize) -> Sealed {
        let block = self.logs[log].lock().seal().expect("has something");
        self.write(block)
    }

    fn damage(&self, block: &Sealed, at: u64) {
        let mode = OpenMode { create: false, read_only: false, direct: true };
        let file = self.storage.open(&block.path, mode).expect("there");
        let offset = block.offset + at / SECTOR_BYTES as u64 * SECTOR_BYTES as u64;
        let mut sector = crate::device::AlignedBuffer::zeroed(SECTOR_BYTES);
        file.read_at(offset, &mut sector).expect("memory");
        sector[at as usize % SECTOR_BYTES] ^= 1;
        file.write_at(offset, &sector).expect("memory");
    }

    fn scan(&self) -> Scan {
        let options = ScanOptions {
            database: DATABASE,
            covered: Csn::ZERO,
            threads: 1,
            read_only: true,
            piece_bytes: 4096,
            keep_bytes: 0,
        };
        scan(&self.storage, options, None, &|_, _| ()).expect("readable")
    }

    /// CSNs of the accepted blocks of a log, and how many blocks are beyond a hole.
    fn found(&self, log: u32) -> (Vec<u64>, usize) {
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

#[test]
fn a_stolen_block_is_its_owners_wherever_it_lies() {
    let mut world = World::new();
    let mine = world.append(1, 100);
    let first = world.seal(1);
    let (own, stolen) = (world.append(0, 100), world.append(1, 200));
    let (thief, carried) = world.steal();
    let carried = carried.expect("there is room");
    assert_eq!(
        (carried.path.as_str(), carried.offset),
        (thief.path.as_str(), thief.offset + thief.len as u64)
    );
    assert_ne!(carried.path, first.path);
    assert_eq!((carried.log, carried.sequence), (LogId(1), 2));
    let later = world.append(1, 100);
    assert_eq!(world.seal(1).path, first.path, "the owner goes on in its own segment");
    assert_eq!(world.found(1), (vec![mine.0, stolen.0, later.0], 0));
    assert_eq!(world.found(0), (vec![own.0], 0));
    let scanned = world.scan();
    let chain = scanned.chains.iter().find(|chain| chain.log == LogId(1)).expect("has blocks");
    let carriers: Vec<_> = chain.blocks.iter().map(ScannedBlock::carrier).collect();
    assert_eq!(carriers, [None, Some(LogId(0)), None]);
}

#[test]
fn what_is_torn_in_a_write_is_lost_alone() {
    for lose_own in [false, true] {
        let mut world = World::new();
        let (own, stolen) = (world.append(0, 5000), world.append(1, 5000));
        let (thief, carried) = world.steal();
        let (own_later, later) = (world.append(0, 10), world.append(1, 10));
        world.seal(0);
        world.seal(1);
        // The second sector of one of them did not arrive.
        world.damage(if lose_own { &thief } else { carried.as_ref().expect("there is room") }, 4100);
        let (whole, torn) = if lose_own { (1, 0) } else { (0, 1) };
        let expected = [[own, own_later], [stolen, later]].map(|csns| csns.map(|csn| csn.0).to_vec());
        assert_eq!(
            world.found(whole),
            (expected[whole as usize].clone(), 0),
            "a hole of the other hides nothing"
        );
        // Nothing says that the chain begins with the lost block: the later one follows one that is not covered.
        assert_eq!(world.found(torn), (vec![], 1));
    }
}

#[test]
fn a_segment_stays_for_the_records_it_carries() {
    let mut world = World::new();
    world.append(0, 10);
    // The victim's CSN is the highest in the thief's segment.
    let stolen = world.append(1, 10);
    let (thief, carried) = world.steal();
    assert!(carried.is_some());
    // The thief fills its segment with nothing above.
    while {
        world.append(0, 20_000);
        world.seal(0).path == thief.path
    } {}
    let last_own = Csn(world.next - 2);
    let in_use = world.segments.bytes_in_use();
    world.segments.recycle(Csn(stolen.0 - 1), Csn(stolen.0 - 1)).expect("memory");
    assert_eq!(world.segments.bytes_in_use(), in_use, "nothing is covered");
    world.segments.recycle(last_own, last_own).expect("memory");
    assert!(world.segments.bytes_in_use() < in_use);
}

#[test]
fn the_highest_csn_of_a_segment_may_be_a_carried_one() {
    let mut world = World::new();
    world.append(0, 40_000);
    let highest = (0..5).map(|_| world.append(1, 10)).last().expect("five");
    let (thief, carried) = world.steal();
    assert!(carried.is_some());
    world.append(0, 40_000);
    assert_ne!(world.seal(0).path, thief.path, "the next segment");
    let in_use = world.segments.bytes_in_use();
    world.segments.recycle(Csn(highest.0 - 1), Csn(highest.0 - 1)).expect("memory");
    assert_eq!(world.segments.bytes_in_use(), in_use, "the stolen record is not covered");
    world.segments.recycle(highest, highest).expect("memory");
    assert!(world.segments.bytes_in_use() < in_use);
}

#[test]
fn nothing_is_stolen_where_a_place_is_promised_or_there_is_no_room() {
    let mut world = World::new();
    world.append(0, 10);
    let own = world.logs[0].lock().seal().expect("has something");
    world.append(1, 10);
    // Somebody appended to the thief's log: the place behind the block may be promised to that record.
    world.append(0, 10);
    assert!(world.logs[0].lock().carry(&mut world.logs[1].lock(), 1 << 16).is_none());
    world.logs[0].lock().seal().expect("has something");
    assert!(world.logs[0].lock().carry(&mut world.logs[1].lock(), 4095).is_none(), "the buffer has no room");
    let stolen = world.logs[0].lock().carry(&mut world.logs[1].lock(), 4096).expect("now");
    assert_eq!(stolen.offset, own.offset + 2 * 4096);
    assert!(world.logs[0].lock().carry(&mut world.logs[1].lock(), 4096).is_none(), "nothing is left");
    assert_eq!(world.logs[1].lock().first_volatile_csn(), Some(Csn(2)), "it is not idle while they fly");
}

/// Once only the length of a segment counted: nobody made a checkpoint, and commits failed after seconds.
#[test]
fn whoever_waits_for_a_long_block_has_a_checkpoint_made_before_the_log_is_at_its_bound() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let segments = SegmentPool::new(storage, SEGMENT_BYTES, 8 * SEGMENT_BYTES, 1).expect("memory");
    segments.start().expect("a thread");
    let take = |len| loop {
        segments.await_ready(1).expect("memory");
        if let Some(segment) = segments.take(len) {
            return segment;
        }
    };
    (1..=5).for_each(|csn| segments.retire(take(SEGMENT_BYTES), Csn(csn)));
    segments.press();
    assert!(!segments.is_pressed(), "there is room for three");
    assert!(segments.take(4 * SEGMENT_BYTES).is_none());
    segments.press();
    assert!(segments.is_pressed(), "but not for a block of four");
    segments.recycle(Csn(5), Csn(5)).expect("memory");
    assert!(!segments.is_pressed());
    assert_eq!(take(4 * SEGMENT_BYTES).len, 4 * SEGMENT_BYTES);
}
