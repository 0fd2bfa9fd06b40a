//! What the memory gives after crashes, word by word.

use super::super::medium::{Fenced, Medium, Place};
use super::layout::Entry;
use super::*;
use crate::base::DatabaseId;
use crate::base::checksum::crc;
use crate::base::random::Random;
use crate::base::settings::MemoryCache;
use crate::base::{Csn, Epoch, ErrorKind, Gsn, Location, LogId, SegmentId};
use crate::device::mapped::MapOptions;
use crate::device::mapped::MappedMemory;
use crate::device::simulated::{CrashKind, SimulatedStorage};
use crate::device::{AlignedBuffer, Storage};
use crate::log::block::{BLOCK_HEADER_BYTES, BlockHeader};
use crate::log::record::{DependencyRule, RecordHeader, record_bytes};
use crate::log::{RecordKind, ScanOptions, Segment, scan};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const DATABASE: DatabaseId = DatabaseId(77);
const BUFFER: u64 = 64 << 10;

fn map(disk: &SimulatedStorage) -> Arc<dyn MappedMemory> {
    let options = MapOptions {
        create: true,
        read_only: false,
        bytes: 0,
        new_bytes: 1 << 20,
        cache: MemoryCache::Volatile,
        store: None,
        latency: Duration::ZERO,
    };
    disk.map_memory(Path::new("mapped-memory"), options).expect("simulated")
}

fn prepare(disk: &SimulatedStorage, logs: usize) -> Arc<LogMemory> {
    let made = LogMemory::prepare(map(disk), DATABASE, MemoryId(5), logs, BUFFER, 1 << 20);
    Arc::new(made.expect("large enough"))
}

fn look(disk: &SimulatedStorage) -> LogMemory {
    match LogMemory::look(map(disk)).expect("ours") {
        MemoryState::Formatted(DATABASE, memory) => memory,
        other => panic!("{other:?}"),
    }
}

fn record(csn: u64, epoch: u32, body: &[u8]) -> Vec<u8> {
    let header = RecordHeader {
        epoch: Epoch(epoch),
        csn: Csn(csn),
        gsn: Gsn(0),
        dsn: Csn(0),
        watermark: Csn(0),
        body_crc: crc(body),
        op_count: 0,
        rule: DependencyRule::Dsn,
        kind: RecordKind::Whole,
    };
    let mut bytes = header.encode(body.len()).to_vec();
    bytes.extend_from_slice(body);
    bytes.resize(record_bytes(body.len()), 0);
    bytes
}

fn found(memory: &LogMemory, covered: u64) -> Option<Segment> {
    memory.make_durable();
    find(memory, Epoch(3), Csn(covered), SegmentId(9)).expect("readable")
}

fn headers(segment: Option<&Segment>) -> Vec<BlockHeader> {
    let Some(segment) = segment else { return Vec::new() };
    let mut bytes = vec![0; segment.len as usize];
    segment.file.read_at(0, &mut bytes).expect("in memory");
    let (mut all, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let header = BlockHeader::decode(&bytes[at..], DATABASE).expect("a whole block");
        at += header.device_bytes();
        all.push(header);
    }
    all
}

/// Records 1 to `count` in block 1 of log 0, of which the first `fenced` were fenced.
fn fill(disk: &SimulatedStorage, count: u64, fenced: u64) -> MemoryBuffers {
    let memory = prepare(disk, 1);
    let mut buffers = memory.buffers_of(LogId(0), 1, Epoch(3));
    let buffer = buffers.take(1, Csn(0)).and_then(Place::buffer).expect("all are free");
    let mut at = BLOCK_HEADER_BYTES;
    for csn in 1..=count {
        let bytes = record(csn, 3, &vec![csn as u8; 40 + csn as usize * 7]);
        buffers.insert(buffer, at, &bytes, Csn(csn));
        at += bytes.len();
        if csn <= fenced {
            assert_eq!(buffers.fence(), Fenced::ByFence);
        }
    }
    buffers
}

#[test]
fn records_of_two_threads_are_fenced_apart() {
    let disk = SimulatedStorage::new(1);
    let memory = prepare(&disk, 1);
    let mut buffers = memory.buffers_of(LogId(0), 1, Epoch(3));
    let buffer = buffers.take(1, Csn(0)).and_then(Place::buffer).expect("all are free");
    let bytes = record(1, 3, b"a record");
    let at = |csn: u64| BLOCK_HEADER_BYTES + (csn as usize - 1) * bytes.len();
    buffers.insert(buffer, at(1), &bytes, Csn(1));
    let in_thread = |buffers: &mut MemoryBuffers, csns: std::ops::Range<u64>, fences: bool| {
        let work = || {
            csns.for_each(|csn| buffers.insert(buffer, at(csn), &bytes, Csn(csn)));
            fences.then(|| buffers.fenced_own())
        };
        std::thread::scope(|scope| scope.spawn(work).join().expect("no panic"))
    };
    assert_eq!(in_thread(&mut buffers, 2..4, true), Some(Fenced::ByFence));
    assert_eq!((buffers.first_unfenced(), buffers.last_unfenced()), (Some(Csn(1)), Some(Csn(1))));
    in_thread(&mut buffers, 4..6, false);
    assert_eq!(buffers.fenced_own(), Fenced::ByFence);
    assert_eq!((buffers.first_unfenced(), buffers.last_unfenced()), (Some(Csn(4)), Some(Csn(5))));
    assert_eq!(buffers.fenced_own(), Fenced::Nothing);
    assert_eq!(buffers.fence(), Fenced::ByBarrier);
    // So many threads that the last ones are not kept apart: a fence of one is not enough.
    for csn in 6..40 {
        in_thread(&mut buffers, csn..csn + 1, false);
    }
    assert_eq!(in_thread(&mut buffers, 40..41, true), Some(Fenced::ByBarrier));
    assert_eq!(buffers.first_unfenced(), None);
}

/// The crash test found a database whose memory was gone after a power cut: it had found it
/// prepared by a process that was killed before its fence.
#[test]
fn memory_of_a_killed_process_survives_a_power_cut_once_read() {
    for seed in 0..20 {
        let disk = SimulatedStorage::new(seed);
        disk.ignore_fences();
        prepare(&disk, 1);
        let killed = disk.crash(CrashKind::Kill, disk.operations(), seed);
        let seen = look(&killed);
        assert_eq!(seen.id(), MemoryId(5), "what was stored can be seen");
        assert!(found(&seen, 0).is_none());
        prepare(&killed, 1);
        let cut = killed.crash(CrashKind::PowerCut, killed.operations(), seed);
        assert_eq!(look(&cut).id(), MemoryId(5));
    }
}

#[test]
fn what_was_fenced_is_found_and_a_lost_word_of_the_rest_ends_it() {
    let (count, fenced) = (12, 7);
    let mut seen = [false; 13];
    for seed in 0..300 {
        let disk = SimulatedStorage::new(seed);
        fill(&disk, count, fenced);
        let after = disk.crash(CrashKind::PowerCut, disk.operations(), seed);
        let all = headers(found(&look(&after), 0).as_ref());
        assert_eq!(all.len(), 1, "seed {seed}");
        let last = all[0].last_csn.0;
        assert!((fenced..=count).contains(&last), "seed {seed}: {last}");
        assert_eq!((all[0].sequence, all[0].first_csn, all[0].record_count), (1, Csn(1), last as u32));
        seen[last as usize] = true;
        // What was found is durable.
        let again = after.crash(CrashKind::PowerCut, after.operations(), seed + 1);
        assert_eq!(headers(found(&look(&again), 0).as_ref()), all, "seed {seed}: found once, found again");
    }
    assert!(seen[7] && seen[12] && seen.iter().filter(|seen| **seen).count() > 3, "{seen:?}");
}

/// The new records may be there and the words that say whose they are not: then the buffer would be
/// the old block with other records.
#[test]
fn a_reused_buffer_is_never_taken_for_its_earlier_block() {
    let mut new_ones = 0;
    for seed in 0..200 {
        let disk = SimulatedStorage::new(seed);
        let mut buffers = fill(&disk, 3, 3);
        // The block is in a segment now.
        buffers.give_back(0);
        assert_eq!(buffers.take(2, Csn(3)), Some(Place::Buffer(0)), "the one that was free last");
        buffers.insert(0, BLOCK_HEADER_BYTES, &record(4, 3, &[4; 40]), Csn(4));
        let after = disk.crash(CrashKind::PowerCut, disk.operations(), seed);
        for header in headers(found(&look(&after), 0).as_ref()) {
            assert_eq!((header.sequence, header.first_csn), (2, Csn(4)), "seed {seed}");
            new_ones += 1;
        }
    }
    assert!(new_ones > 0, "the record was never there whole");
}

#[test]
fn any_single_lost_word_or_line_shortens_what_is_found() {
    let disk = SimulatedStorage::new(1);
    fill(&disk, 6, 6);
    let memory = look(&disk);
    let start = memory.layout.buffer_offset(0) + BLOCK_HEADER_BYTES as u64;
    let used = (1..=6).map(|csn| record_bytes(40 + csn * 7)).sum::<usize>();
    let whole = disk.read_memory();
    let mut shorter = 0;
    for (unit, step) in [(8, 8), (64, 64)] {
        for at in (0..used).step_by(step) {
            let copy = disk.duplicate();
            let memory = look(&copy);
            let len = unit.min(used - at);
            let before = &whole[start as usize + at..][..len];
            // As if the store had never arrived: what was there before was zero.
            memory.memory.store(start + at as u64, &vec![0; len]);
            let all = headers(found(&memory, 0).as_ref());
            let last = all.first().map_or(0, |header| header.last_csn.0);
            let mut end = 0;
            let hit = (1..=6).find(|csn| {
                end += record_bytes(40 + csn * 7);
                at < end
            });
            let untouched = before.iter().all(|byte| *byte == 0);
            assert!(untouched || last < hit.expect("inside") as u64, "{unit} bytes lost at {at}: {last}");
            shorter += u64::from(!untouched);
        }
    }
    assert!(shorter > 80, "{shorter}");
}

#[test]
fn without_fences_fenced_records_are_lost() {
    let lost = (0..100).filter(|seed| {
        let disk = SimulatedStorage::new(*seed);
        prepare(&disk, 1);
        disk.ignore_fences();
        fill(&disk, 5, 5);
        let after = disk.crash(CrashKind::PowerCut, disk.operations(), *seed);
        headers(found(&look(&after), 0).as_ref()).first().is_none_or(|header| header.last_csn < Csn(5))
    });
    assert!(lost.count() > 50, "the tests above would find out");
}

#[test]
fn a_buffer_that_is_used_again_never_shows_what_it_held_before() {
    for seed in 0..400 {
        let disk = SimulatedStorage::new(seed);
        let mut buffers = fill(&disk, 10, 10);
        buffers.give_back(0);
        let begun = disk.operations();
        let mut random = Random::from_seed(seed);
        let buffer = buffers.take(4, Csn(30)).and_then(Place::buffer).expect("it was given back");
        let bytes = record(31, 3, &[31; 47]);
        buffers.insert(buffer, BLOCK_HEADER_BYTES, &bytes, Csn(31));
        let at = begun + random.below((disk.operations() - begun) as u64 + 1) as usize;
        let kind = if random.chance(1, 2) { CrashKind::PowerCut } else { CrashKind::Kill };
        let after = disk.crash(kind, at, seed);
        for header in headers(found(&look(&after), 0).as_ref()) {
            match header.sequence {
                1 => assert_eq!(header.last_csn, Csn(10), "seed {seed}: the old block is whole"),
                4 => assert_eq!((header.first_csn, header.last_csn), (Csn(31), Csn(31)), "seed {seed}"),
                other => panic!("seed {seed}: block {other}"),
            }
        }
    }
}

#[test]
fn records_of_other_epochs_or_below_the_last_block_are_ignored() {
    let disk = SimulatedStorage::new(1);
    let memory = prepare(&disk, 1);
    let mut buffers = memory.buffers_of(LogId(0), 1, Epoch(3));
    for (epoch, csn) in [(2, 50), (3, 40), (3, 39)] {
        let buffer = buffers.take(2, Csn(40)).and_then(Place::buffer).expect("one is free");
        buffers.insert(buffer, BLOCK_HEADER_BYTES, &record(csn, epoch, b"stale"), Csn(csn));
        assert!(found(&memory, 0).is_none(), "epoch {epoch}, csn {csn}");
        buffers.give_back(buffer);
    }
    let buffer = buffers.take(2, Csn(40)).and_then(Place::buffer).expect("one is free");
    buffers.insert(buffer, BLOCK_HEADER_BYTES, &record(41, 3, b"next"), Csn(41));
    assert_eq!(headers(found(&memory, 0).as_ref())[0].previous_csn, Csn(40));
    assert!(found(&memory, 41).is_none(), "the checkpoint has it");
    let later = find(&memory, Epoch(4), Csn(0), SegmentId(9)).expect("readable");
    assert!(later.is_none(), "a recovery has moved the blocks of epoch 3");
}

#[test]
fn a_fence_of_another_thread_is_no_fence_but_a_barrier_is() {
    let disk = SimulatedStorage::new(1);
    let memory = prepare(&disk, 1);
    let mut buffers = memory.buffers_of(LogId(0), 1, Epoch(3));
    let buffer = buffers.take(1, Csn(0)).and_then(Place::buffer).expect("all are free");
    let other = |buffers: &mut MemoryBuffers, at, csn| {
        std::thread::scope(|scope| {
            scope.spawn(|| buffers.insert(buffer, at, &record(csn, 3, b"left dirty"), Csn(csn)));
        });
    };
    other(&mut buffers, BLOCK_HEADER_BYTES, 1);
    // Of this thread alone: what the other one stored is not covered.
    memory.memory.fence();
    let lost = |seed| {
        let after = disk.crash(CrashKind::PowerCut, disk.operations(), seed);
        found(&look(&after), 0).is_none()
    };
    assert!((0..20).any(lost));
    assert_eq!((buffers.first_unfenced(), buffers.last_unfenced()), (Some(Csn(1)), Some(Csn(1))));
    assert_eq!(buffers.fence(), Fenced::ByBarrier);
    assert!(!(0..20).any(lost));
    assert_eq!((buffers.fence(), buffers.first_unfenced()), (Fenced::Nothing, None));
    // A barrier covers what was there when it began.
    let at = BLOCK_HEADER_BYTES + record(1, 3, b"left dirty").len();
    let bytes = record(2, 3, b"left dirty");
    buffers.insert(buffer, at, &bytes, Csn(2));
    buffers.insert(buffer, at + bytes.len(), &bytes, Csn(5));
    buffers.fenced_up_to(Csn(2));
    assert_eq!(buffers.first_unfenced(), Some(Csn(3)), "not above the record of the same thread");
    assert!(!buffers.knows_first_unfenced());
    buffers.fenced_up_to(Csn(5));
    assert_eq!(buffers.first_unfenced(), None);
}

#[test]
fn a_new_division_keeps_the_id_and_survives_any_interruption() {
    for seed in 0..200 {
        let disk = SimulatedStorage::new(seed);
        let first = prepare(&disk, 1);
        let begun = disk.operations();
        let second = prepare(&disk, 2);
        assert_eq!((second.id(), second.layout == first.layout), (first.id(), false));
        let at = begun + seed as usize % (disk.operations() - begun + 1);
        let after = look(&disk.crash(CrashKind::PowerCut, at, seed));
        assert!(
            after.id() == first.id() && [first.layout, second.layout].contains(&after.layout),
            "seed {seed}"
        );
    }
}

#[test]
fn foreign_small_or_newer_memory_is_refused_with_the_reason() {
    let disk = SimulatedStorage::new(1);
    let memory = map(&disk);
    assert!(matches!(LogMemory::look(memory.clone()).expect("new"), MemoryState::Blank));
    let error =
        LogMemory::prepare(memory.clone(), DATABASE, MemoryId(1), 9, BUFFER, 0).expect_err("too small");
    assert!(error.to_string().contains("too little for 9 logs"), "{error}");
    memory.store(0, b"SOMEFILE");
    let error = LogMemory::look(memory.clone()).expect_err("foreign");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    memory.store(0, &[0; 8]);
    memory.store(20_480, b"SOMEFILE");
    let error = LogMemory::look(memory.clone()).expect_err("it only begins with zeros");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    memory.store(20_480, &[0; 8]);
    for copy in [0, 4096] {
        prepare(&disk, 1);
        let mut header = [0; 16];
        memory.load(copy, &mut header);
        let ours = header;
        header[8..12].copy_from_slice(&2u32.to_le_bytes());
        let check = crc(&header[..12]);
        header[12..].copy_from_slice(&check.to_le_bytes());
        memory.store(copy, &header);
        let error = LogMemory::look(memory.clone()).expect_err("newer");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("version 2, this build reads version 1"), "{error}");
        assert_eq!(
            error.location(),
            Some(&Location::File { path: memory.facts().path.display().to_string(), offset: copy })
        );
        memory.store(copy, &ours);
    }
}

#[test]
fn an_entry_that_lost_a_word_is_none() {
    let disk = SimulatedStorage::new(1);
    let memory = prepare(&disk, 1);
    let entry = Entry { log: LogId(0), epoch: Epoch(3), sequence: 8, previous_csn: Csn(70) };
    let bytes = memory.encode_entry(&entry);
    let offset = memory.layout.entry_offset(0);
    memory.memory.store(offset, &bytes);
    assert_eq!(memory.entry(0), Some(entry));
    for word in 0..6 {
        memory.memory.store(offset, &bytes);
        memory.memory.store(offset + word * 8, &[0; 8]);
        assert_eq!(memory.entry(0), None, "word {word}");
    }
}

#[test]
fn buffers_are_as_long_as_fits_and_never_shorter_than_the_least() {
    for bytes in [1 << 20, 2 << 20, 16 << 20, 1 << 30] {
        for logs in 1..20 {
            if let Some(fits) = buffer_bytes_that_fit(bytes, logs, 1 << 20) {
                assert!(
                    needed_bytes(logs, fits) <= bytes && (64 << 10..=1 << 20).contains(&fits),
                    "{bytes} {logs}"
                );
            } else {
                assert!(needed_bytes(logs, 64 << 10) > bytes - (1 << 17), "{bytes} {logs}");
            }
        }
    }
    assert_eq!(buffer_bytes_that_fit(16 << 20, 2, 1 << 20), Some(1 << 20));
}

/// The page cache writes the pages of a mapped file back when it likes: after a crash of the
/// machine it held the first records of a block that a segment held whole, and the database was
/// refused for two different blocks with one number.
#[test]
fn an_earlier_state_in_memory_of_a_whole_block_does_not_count() {
    let written = {
        let disk = SimulatedStorage::new(1);
        let _buffers = fill(&disk, 9, 9);
        found(&look(&disk), 0).expect("nine records")
    };
    let options = ScanOptions {
        database: DATABASE,
        covered: Csn(0),
        threads: 1,
        read_only: true,
        piece_bytes: 64 << 10,
        keep_bytes: 1 << 20,
    };
    for seen in [4, 9] {
        let disk = SimulatedStorage::new(2);
        let _buffers = fill(&disk, seen, seen);
        let memory = found(&look(&disk), 0).expect("some records");
        let storage: Arc<dyn Storage> = Arc::new(disk);
        let file = storage.segments().create(SegmentId(1)).expect("simulated");
        let mut bytes = AlignedBuffer::zeroed(written.len as usize);
        written.file.read_at(0, &mut bytes).expect("in memory");
        file.write_at(0, &bytes).expect("simulated");
        let scan = scan(&storage, options, Some(&memory), &|_, _| ()).expect("one block");
        let blocks: Vec<_> = scan.chains.iter().flat_map(|chain| &chain.blocks).collect();
        assert_eq!(blocks.iter().map(|block| block.record_count()).collect::<Vec<_>>(), [9], "{seen}");
        assert_eq!(blocks[0].segment(), SegmentId(1));
    }
}
