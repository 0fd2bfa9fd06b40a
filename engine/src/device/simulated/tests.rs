//! What the simulated disk keeps and loses.

use super::*;
use crate::base::settings::MemoryCache;
use crate::device::SECTOR_BYTES;
use std::time::Duration;

const MODE: OpenMode = OpenMode { create: true, read_only: false, direct: true };

fn with_file() -> (SimulatedStorage, Arc<dyn File>) {
    let storage = SimulatedStorage::new(1);
    let file = storage.open("a", MODE).expect("created");
    file.zero_extend(4 * SECTOR_BYTES as u64, &mut |_| ()).expect("extended");
    storage.flush_directory("").expect("flushed");
    (storage, file)
}

#[test]
fn flushed_writes_survive_every_power_cut_and_others_may_not() {
    let (storage, file) = with_file();
    file.write_at(0, &[1; SECTOR_BYTES]).expect("written");
    file.flush().expect("flushed");
    file.write_durable_at(SECTOR_BYTES as u64, &[2; SECTOR_BYTES]).expect("written");
    file.write_at(2 * SECTOR_BYTES as u64, &[3; SECTOR_BYTES]).expect("written");
    let (mut lost, mut kept, mut torn) = (0, 0, 0);
    for seed in 0..200 {
        let after =
            storage.crash(CrashKind::PowerCut, usize::MAX, seed).read_file("a").expect("durable name");
        assert!(after[..SECTOR_BYTES].iter().all(|b| *b == 1));
        assert!(after[SECTOR_BYTES..2 * SECTOR_BYTES].iter().all(|b| *b == 2));
        match after[2 * SECTOR_BYTES..3 * SECTOR_BYTES].iter().filter(|b| **b == 3).count() {
            0 => lost += 1,
            SECTOR_BYTES => kept += 1,
            part => {
                assert_eq!(part % 512, 0);
                torn += 1;
            }
        }
    }
    assert!(lost > 0 && kept > 0 && torn > 0, "lost {lost}, kept {kept}, torn {torn}");
}

#[test]
fn a_kill_keeps_completed_writes_visible_but_not_durable() {
    let (storage, file) = with_file();
    file.write_at(0, &[7; SECTOR_BYTES]).expect("written");
    let killed = storage.crash(CrashKind::Kill, usize::MAX, 3);
    assert!(killed.read_file("a").expect("there")[..SECTOR_BYTES].iter().all(|b| *b == 7));
    let lost = (0..100).any(|seed| {
        let after = killed.crash(CrashKind::PowerCut, usize::MAX, seed).read_file("a").expect("there");
        after[..SECTOR_BYTES].iter().all(|b| *b == 0)
    });
    assert!(lost, "a power cut after the kill may lose them");
}

#[test]
fn crash_at_an_earlier_operation_sees_nothing_later() {
    let (storage, file) = with_file();
    let before = storage.operations();
    file.flush().expect("flushes");
    file.write_durable_at(0, &[9; SECTOR_BYTES]).expect("written");
    for kind in [CrashKind::PowerCut, CrashKind::Kill] {
        let past = storage.crash(kind, before, 1).read_file("a").expect("there");
        assert!(past.iter().all(|b| *b == 0));
    }
}

#[test]
fn durable_write_in_flight_at_a_power_cut_can_be_torn() {
    let (storage, file) = with_file();
    let before = storage.operations();
    file.write_durable_at(0, &[9; SECTOR_BYTES]).expect("written");
    let there = |seed| {
        let after = storage.crash(CrashKind::PowerCut, before, seed).read_file("a").expect("there");
        after[..SECTOR_BYTES].iter().filter(|b| **b == 9).count()
    };
    assert!((0..100).any(|seed| there(seed) == 0) && (0..100).any(|seed| there(seed) == SECTOR_BYTES));
    assert!((0..100).any(|seed| (1..SECTOR_BYTES).contains(&there(seed))));
}

#[test]
fn the_same_seed_gives_the_same_disk() {
    let (storage, file) = with_file();
    for i in 0..4 {
        file.write_at(i * SECTOR_BYTES as u64, &[i as u8 + 1; SECTOR_BYTES]).expect("written");
    }
    let once = storage.crash(CrashKind::PowerCut, usize::MAX, 42).read_file("a");
    let again = storage.crash(CrashKind::PowerCut, usize::MAX, 42).read_file("a");
    assert_eq!(once, again);
}

#[test]
fn a_failed_flush_dooms_what_was_pending() {
    let (storage, file) = with_file();
    file.write_at(0, &[5; SECTOR_BYTES]).expect("written");
    storage.inject(Fault { operation: OperationKind::Flush, after: 0, kind: FaultKind::Once, error: 5 });
    assert!(file.flush().is_err());
    file.flush().expect("the second flush succeeds and means nothing");
    assert_eq!(storage.faults_struck(), 1);
    let lost = (0..100).any(|seed| {
        let after = storage.crash(CrashKind::PowerCut, usize::MAX, seed).read_file("a").expect("there");
        after[..SECTOR_BYTES].iter().all(|b| *b == 0)
    });
    assert!(lost);
}

#[test]
fn an_unflushed_name_may_vanish() {
    let storage = SimulatedStorage::new(1);
    storage.open("a", MODE).expect("created");
    assert!((0..50).any(|seed| storage.crash(CrashKind::PowerCut, usize::MAX, seed).files().is_empty()));
    storage.flush_directory("").expect("flushed");
    assert!((0..50).all(|seed| storage.crash(CrashKind::PowerCut, usize::MAX, seed).files().len() == 1));
}

#[test]
fn a_full_disk_says_so() {
    let (storage, file) = with_file();
    storage.set_capacity(Some(5 * SECTOR_BYTES as u64));
    file.write_at(4 * SECTOR_BYTES as u64, &[1; SECTOR_BYTES]).expect("fits");
    let error = file.write_at(5 * SECTOR_BYTES as u64, &[1; SECTOR_BYTES]).expect_err("full");
    assert_eq!(error.kind(), crate::base::ErrorKind::OutOfSpace);
}

#[test]
fn writes_in_flight_at_a_kill_complete_late_partly_or_never() {
    let (storage, file) = with_file();
    let mut queue = storage.write_queue(4).expect("queue");
    let mut buffer = crate::device::AlignedBuffer::zeroed(SECTOR_BYTES);
    buffer.fill(6);
    queue
        .submit(crate::device::WriteRequest {
            file: file.clone(),
            offset: 0,
            buffer,
            len: SECTOR_BYTES,
            durable: true,
            token: 1,
        })
        .expect("submitted");
    let count = |storage: &SimulatedStorage| {
        storage.read_file("a").expect("there")[..SECTOR_BYTES].iter().filter(|b| **b == 6).count()
    };
    let (mut none, mut part, mut whole, mut late) = (0, 0, 0, 0);
    for seed in 0..100 {
        let killed = storage.crash(CrashKind::Kill, usize::MAX, seed);
        match count(&killed) {
            0 => {
                let file = killed.open("a", MODE).expect("there");
                for _ in 0..100 {
                    file.flush().expect("flushed");
                }
                if count(&killed) == SECTOR_BYTES { late += 1 } else { none += 1 }
            }
            SECTOR_BYTES => whole += 1,
            _ => part += 1,
        }
    }
    assert!(none > 0 && part > 0 && whole > 0 && late > 0, "{none} {part} {whole} {late}");
}

/// One page written by one operation that `kind` befalls, and what the file then is: old (1), new
/// (2), or anything else (3), for each sector.
fn befallen(kind: MishapKind, durable: bool) -> (SimulatedStorage, Vec<u8>) {
    let (storage, file) = with_file();
    file.write_durable_at(0, &[1; 4 * SECTOR_BYTES]).expect("written");
    storage.inject_mishap(Mishap { operation: OperationKind::Any, after: 0, kind });
    let bytes = [2; SECTOR_BYTES];
    let done = if durable { file.write_durable_at(0, &bytes) } else { file.write_at(0, &bytes) };
    done.expect("it is reported as done");
    assert_eq!((storage.faults_struck(), storage.fault_counts().of(kind.name())), (1, 1), "{kind:?}");
    let found = storage.read_file("a").expect("there");
    (storage, found)
}

fn twos(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == 2).count()
}

#[test]
fn mishap_within_the_contract_still_writes() {
    let slow = MishapKind::Slow(Duration::from_millis(1));
    for kind in [MishapKind::Short, MishapKind::Interrupted, MishapKind::TryAgain, slow] {
        let (storage, found) = befallen(kind, true);
        assert_eq!((twos(&found), twos(&found[..SECTOR_BYTES])), (SECTOR_BYTES, SECTOR_BYTES), "{kind:?}");
        for seed in 0..20 {
            let after = storage.crash(CrashKind::PowerCut, usize::MAX, seed).read_file("a").expect("there");
            assert_eq!(twos(&after), SECTOR_BYTES, "{kind:?}: it was durable");
        }
    }
}

#[test]
fn a_short_write_can_be_cut_short_by_a_crash() {
    let (storage, _) = befallen(MishapKind::Short, true);
    let between = storage.crash(CrashKind::Kill, storage.operations() - 1, 1);
    let part = twos(&between.read_file("a").expect("there"));
    assert!(part > 0 && part < SECTOR_BYTES && part.is_multiple_of(512), "{part}");
}

/// EINTR may come when a part is done, EAGAIN comes before anything is.
#[test]
fn interrupted_write_may_be_partial_retried_write_is_not() {
    let parts = |kind| {
        let (storage, _) = befallen(kind, true);
        let writes = storage.describe(0).iter().filter(|line| line.contains("write")).count();
        (writes, storage.fault_counts().iter().collect::<Vec<_>>())
    };
    assert_eq!(parts(MishapKind::Interrupted), (3, vec![("interrupted", 1)]));
    assert_eq!(parts(MishapKind::TryAgain), (2, vec![("try again", 1)]));
    let (storage, file) = with_file();
    storage.inject_mishap(Mishap { operation: OperationKind::Any, after: 0, kind: MishapKind::TryAgain });
    file.flush().expect("no flush is told so");
    assert_eq!(storage.faults_struck(), 0);
    file.read_at(0, &mut [0; 10]).expect("tried again");
    assert_eq!(storage.faults_struck(), 1);
}

#[test]
fn lost_torn_or_misdirected_write_reports_success() {
    let (_, found) = befallen(MishapKind::Lost, true);
    assert_eq!(twos(&found), 0);
    let (_, found) = befallen(MishapKind::Torn, true);
    let torn = twos(&found);
    assert!(torn > 0 && torn < SECTOR_BYTES && twos(&found[..torn]) == torn, "{torn}");
    let (_, found) = befallen(MishapKind::Misdirected, true);
    assert_eq!((twos(&found), twos(&found[..SECTOR_BYTES])), (SECTOR_BYTES, 0));
}

#[test]
fn duplicated_write_overwrites_later_data() {
    let (storage, found) = befallen(MishapKind::Duplicated, true);
    assert_eq!((twos(&found), storage.late_writes()), (SECTOR_BYTES, 1));
    let file = storage.open("a", MODE).expect("there");
    storage.hold_late_writes(true);
    file.write_durable_at(0, &[5; SECTOR_BYTES]).expect("written");
    assert_eq!(twos(&storage.read_file("a").expect("there")), 0);
    storage.hold_late_writes(false);
    assert_eq!(twos(&storage.read_file("a").expect("there")), SECTOR_BYTES);
}

#[test]
fn a_flush_lies_until_the_next() {
    let (storage, file) = with_file();
    storage.inject_mishap(Mishap { operation: OperationKind::Any, after: 0, kind: MishapKind::LyingFlush });
    file.write_durable_at(0, &[2; SECTOR_BYTES]).expect("it says");
    let lost = |storage: &SimulatedStorage| {
        let lost =
            |seed| twos(&storage.crash(CrashKind::PowerCut, usize::MAX, seed).read_file("a").expect("there"));
        (0..100).filter(|seed| lost(*seed) < SECTOR_BYTES).count()
    };
    assert!(lost(&storage) > 10);
    file.flush().expect("honest");
    assert_eq!(lost(&storage), 0);
    assert_eq!(storage.fault_counts().of("lying flush"), 1);
}

/// Four words of memory, all stored by one thread and fenced, after the mishap with number `after`:
/// which of them a power cut leaves.
fn left_of_memory(kind: MishapKind, after: u64) -> Vec<bool> {
    let storage = SimulatedStorage::new(1);
    let options = MapOptions {
        create: true,
        read_only: false,
        bytes: 4096,
        new_bytes: 0,
        cache: MemoryCache::Volatile,
        store: None,
        latency: Duration::ZERO,
    };
    let memory = storage.map_memory(Path::new(OWN_MEMORY), options).expect("its own");
    storage.inject_mishap(Mishap { operation: OperationKind::Memory, after, kind });
    for at in [0, 16] {
        memory.store(at, &[2; 16]);
        memory.fence();
    }
    assert_eq!((storage.faults_struck(), storage.fault_counts().of(kind.name())), (1, 1), "{kind:?}");
    // Of what is not durable some seed keeps nothing.
    let left = |seed| storage.crash(CrashKind::PowerCut, usize::MAX, seed).read_memory();
    let words = |seed| left(seed)[..32].chunks(8).map(|word| *word == [2; 8]).collect::<Vec<_>>();
    (0..50).map(words).min().expect("some")
}

#[test]
fn stores_lose_words_and_fences_lie_until_the_next() {
    assert_eq!(left_of_memory(MishapKind::Lost, 1), [true, true, false, false]);
    let torn = left_of_memory(MishapKind::Torn, 0);
    assert_eq!(torn.iter().filter(|there| **there).count(), 3, "{torn:?}");
    assert!(torn[2] && torn[3]);
    assert_eq!(left_of_memory(MishapKind::LyingFlush, 0), [true; 4], "the second fence did it");
    assert_eq!(left_of_memory(MishapKind::LyingFlush, 1), [true, true, false, false]);
}

#[test]
fn bit_rot_persists_at_the_read_position() {
    let (storage, file) = with_file();
    file.write_durable_at(0, &[1; 4 * SECTOR_BYTES]).expect("written");
    storage.inject_mishap(Mishap { operation: OperationKind::Read, after: 1, kind: MishapKind::Rot });
    let mut bytes = [0; SECTOR_BYTES];
    let mut wrong = || {
        file.read_at(SECTOR_BYTES as u64, &mut bytes).expect("read");
        bytes.iter().map(|byte| (byte ^ 1).count_ones()).sum::<u32>()
    };
    assert_eq!([wrong(), wrong(), wrong()], [0, 1, 1]);
    let after = storage.crash(CrashKind::PowerCut, usize::MAX, 1).read_file("a").expect("there");
    assert_eq!(after.iter().filter(|byte| **byte != 1).count(), 1);
}

#[test]
fn stuck_operation_resumes_on_release_and_fails_on_stop() {
    for stops in [false, true] {
        let (storage, file) = with_file();
        storage.inject_mishap(Mishap { operation: OperationKind::Any, after: 0, kind: MishapKind::Stuck });
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| file.write_durable_at(0, &[2; SECTOR_BYTES]));
            while storage.faults_struck() == 0 {
                std::thread::yield_now();
            }
            assert_eq!(twos(&storage.read_file("a").expect("others go on")), 0);
            if stops {
                storage.stop()
            } else {
                storage.release_stuck()
            }
            assert_eq!(writer.join().expect("no panic").is_err(), stops);
        });
    }
}

#[test]
fn errors_are_counted_by_kind() {
    let (storage, file) = with_file();
    let fault = |kind, error| Fault { operation: OperationKind::Any, after: 0, kind, error };
    storage.inject(fault(FaultKind::Once, 5));
    file.read_at(0, &mut [0; 10]).expect_err("struck");
    storage.inject(fault(FaultKind::Once, 28));
    file.write_at(0, &[0; SECTOR_BYTES]).expect_err("struck");
    storage.inject(fault(FaultKind::ForEver, 5));
    file.flush().expect_err("struck");
    file.flush().expect_err("struck");
    storage.heal();
    file.flush().expect("well again");
    let counts: Vec<_> = storage.fault_counts().iter().collect();
    assert_eq!(counts, [("flush error for ever", 2), ("full disk", 1), ("read error", 1)]);
    assert!(counts.iter().all(|(name, _)| EVENT_NAMES.contains(name)));
    assert!(MishapKind::ALL.iter().all(|kind| EVENT_NAMES.contains(&kind.name())));
}

/// What a block of a log begins with, as far as the disk looks at it.
fn block_of(log: u64) -> [u8; SECTOR_BYTES] {
    let mut block = [7; SECTOR_BYTES];
    block[4..8].copy_from_slice(b"QLOG");
    block[12..16].copy_from_slice(&(log as u32).to_le_bytes());
    block
}

#[test]
fn logs_reordered_by_a_power_cut_are_counted() {
    for logs in [[1, 2], [1, 1]] {
        let storage = SimulatedStorage::new(1);
        for (path, log) in ["a", "b"].into_iter().zip(logs) {
            storage.open(path, MODE).expect("created").write_at(0, &block_of(log)).expect("written");
        }
        storage.flush_directory("").expect("flushed");
        let mut reordered = 0;
        for seed in 0..200 {
            let crashed = storage.crash(CrashKind::PowerCut, usize::MAX, seed);
            let sevens = |path| crashed.read_file(path).expect("there").iter().filter(|b| **b == 7).count();
            let all = block_of(0).iter().filter(|b| **b == 7).count();
            let expected = logs[0] != logs[1] && sevens("a") < all && sevens("b") == all;
            let counted = crashed.fault_counts().of("writes reordered across logs by a power cut");
            assert_eq!(counted, u64::from(expected), "seed {seed}");
            assert_eq!(
                crashed.fault_counts().of("writes reordered by a power cut"),
                0,
                "one write in each file"
            );
            reordered += counted;
        }
        assert_eq!(reordered > 0, logs[0] != logs[1], "{logs:?}");
    }
}

#[test]
fn crash_points_with_volatile_blocks_of_two_logs_are_found() {
    let storage = SimulatedStorage::new(1);
    let [a, b] = ["a", "b"].map(|path| storage.open(path, MODE).expect("created"));
    a.write_at(0, &block_of(1)).expect("written");
    b.write_at(0, &[7; SECTOR_BYTES]).expect("written, and no block");
    assert!(storage.crash_points_between_logs().is_empty());
    let mut queue = storage.write_queue(4).expect("there is one");
    let mut buffer = crate::device::AlignedBuffer::zeroed(SECTOR_BYTES);
    buffer.copy_from_slice(&block_of(2));
    let (file, len) = (b.clone(), SECTOR_BYTES);
    let request = crate::device::WriteRequest { file, offset: 0, buffer, len, durable: true, token: 1 };
    queue.submit(request).expect("submitted");
    assert_eq!(storage.crash_points_between_logs(), [5]);
    queue.reap(true, &mut Vec::new()).expect("durable");
    assert_eq!(storage.crash_points_between_logs(), [5]);
    b.write_at(0, &block_of(2)).expect("written");
    assert_eq!(storage.crash_points_between_logs(), [5, 7]);
    a.flush().expect("flushed");
    assert_eq!(storage.crash_points_between_logs(), [5, 7]);
}

#[test]
fn crashes_count_what_they_did() {
    let (storage, file) = with_file();
    let mut counts = FaultCounts::default();
    let mut queue = storage.write_queue(4).expect("there is one");
    for (token, byte) in [(1, 6), (2, 7)] {
        let mut buffer = crate::device::AlignedBuffer::zeroed(SECTOR_BYTES);
        buffer.copy_from_slice(&block_of(byte));
        let (offset, len) = (byte % 2 * SECTOR_BYTES as u64, SECTOR_BYTES);
        let request =
            crate::device::WriteRequest { file: file.clone(), offset, buffer, len, durable: false, token };
        queue.submit(request).expect("submitted");
    }
    storage.open("b", MODE).expect("created");
    for seed in 0..100 {
        for kind in [CrashKind::PowerCut, CrashKind::Kill] {
            let crashed = storage.crash(kind, usize::MAX, seed);
            if kind == CrashKind::Kill {
                (0..20).for_each(|_| crashed.open("a", MODE).expect("there").flush().expect("flushed"));
            }
            counts.merge(&crashed.fault_counts());
        }
    }
    for name in EVENT_NAMES
        .iter()
        .filter(|name| name.contains("power cut") || name.contains("kill") || **name == "late write")
    {
        assert!(counts.of(name) > 0 || name.contains("memory"), "{name}: {counts:?}");
    }
}

fn on(cache: Cache, direct_io: bool) -> (SimulatedStorage, Arc<dyn File>) {
    on_device(Device { cache, direct_io, ..Device::default() })
}

fn on_device(device: Device) -> (SimulatedStorage, Arc<dyn File>) {
    let storage = SimulatedStorage::on_device(device, 1);
    let file = storage.open("a", MODE).expect("created");
    file.zero_extend(4 * SECTOR_BYTES as u64, &mut |_| ()).expect("extended");
    storage.flush_directory("").expect("flushed");
    (storage, file)
}

/// What power cuts leave of a sector: every amount of bytes that are `byte`.
fn left_of(storage: &SimulatedStorage, sector: usize, byte: u8) -> std::collections::BTreeSet<usize> {
    let left = |seed| {
        let cut = storage.crash(CrashKind::PowerCut, usize::MAX, seed);
        // What a power cut left no other takes away.
        let cut = cut.crash(CrashKind::PowerCut, usize::MAX, seed);
        let bytes = cut.read_file("a").expect("a durable name");
        let bytes = bytes.get(sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES).unwrap_or_default();
        bytes.iter().filter(|b| **b == byte).count()
    };
    (0..60).map(left).collect()
}

const WHOLE: [usize; 1] = [SECTOR_BYTES];

fn is_sometimes_lost(left: &std::collections::BTreeSet<usize>) -> bool {
    left.first() == Some(&0) && left.len() > 1
}

#[test]
fn fua_write_hardens_itself_and_flush_hardens_all() {
    for (cache, flushes) in [(Cache::Volatile, 1), (Cache::VolatileWithFua, 0)] {
        let (storage, file) = on(cache, true);
        assert_eq!((storage.facts().volatile_cache, storage.durability()), (true, DurabilityMethod::Dsync));
        let before = storage.flushes();
        file.write_at(0, &[1; SECTOR_BYTES]).expect("written");
        file.write_durable_at(SECTOR_BYTES as u64, &[2; SECTOR_BYTES]).expect("written");
        assert_eq!(storage.flushes() - before, flushes, "{cache:?}");
        assert!(left_of(&storage, 1, 2).into_iter().eq(WHOLE));
        assert_eq!(is_sometimes_lost(&left_of(&storage, 0, 1)), cache == Cache::VolatileWithFua);
        // Nothing older comes back from the cache over it.
        file.write_durable_at(0, &[3; SECTOR_BYTES]).expect("written");
        assert!(left_of(&storage, 0, 3).into_iter().eq(WHOLE), "{cache:?}");
        // With a new length it is more than one write.
        file.write_at(2 * SECTOR_BYTES as u64, &[4; SECTOR_BYTES]).expect("written");
        file.write_durable_at(8 * SECTOR_BYTES as u64, &[5; SECTOR_BYTES]).expect("written");
        assert!(
            left_of(&storage, 8, 5).into_iter().eq(WHOLE) && left_of(&storage, 2, 4).into_iter().eq(WHOLE)
        );
    }
}

#[test]
fn durable_cache_loses_only_writes_in_flight_and_lengths() {
    let (storage, file) = on(Cache::Durable, true);
    assert_eq!((storage.facts().volatile_cache, storage.durability()), (false, DurabilityMethod::Plain));
    assert!(!storage.shares_flush(), "there is nothing to flush");
    let before = storage.flushes();
    file.write_at(0, &[1; SECTOR_BYTES]).expect("written");
    file.write_durable_at(SECTOR_BYTES as u64, &[2; SECTOR_BYTES]).expect("written");
    assert_eq!(storage.flushes(), before);
    let mut queue = storage.write_queue(4).expect("there is one");
    let mut buffer = crate::device::AlignedBuffer::zeroed(SECTOR_BYTES);
    buffer.fill(3);
    let (offset, len) = (2 * SECTOR_BYTES as u64, SECTOR_BYTES);
    let request =
        crate::device::WriteRequest { file: file.clone(), offset, buffer, len, durable: true, token: 1 };
    queue.submit(request).expect("submitted");
    let all = |sector, byte| left_of(&storage, sector, byte).into_iter().eq(WHOLE);
    assert!(all(0, 1) && all(1, 2) && is_sometimes_lost(&left_of(&storage, 2, 3)));
    queue.reap(true, &mut Vec::new()).expect("done");
    assert!(all(2, 3));
    file.write_durable_at(8 * SECTOR_BYTES as u64, &[4; SECTOR_BYTES]).expect("written");
    assert!(is_sometimes_lost(&left_of(&storage, 8, 4)), "the length is no part of the write");
    file.flush().expect("flushed");
    assert!(all(8, 4));
    // Of a killed process.
    file.write_at(0, &[5; SECTOR_BYTES]).expect("written");
    let killed = storage.crash(CrashKind::Kill, usize::MAX, 1);
    assert!(left_of(&killed, 0, 5).into_iter().eq(WHOLE));
}

#[test]
fn buffered_file_uses_the_page_cache_on_any_device() {
    let storage = SimulatedStorage::on_device(Device { cache: Cache::Durable, ..Device::default() }, 1);
    let file = storage.open("a", OpenMode { direct: false, ..MODE }).expect("created");
    file.zero_extend(SECTOR_BYTES as u64, &mut |_| ()).expect("extended");
    storage.flush_directory("").expect("flushed");
    file.write_at(0, &[1; SECTOR_BYTES]).expect("written");
    assert!(!file.is_direct() && is_sometimes_lost(&left_of(&storage, 0, 1)));
}

#[test]
fn buffered_durable_writes_flush_and_fail_permanently() {
    for cache in [Cache::Volatile, Cache::VolatileWithFua, Cache::Durable] {
        let (storage, file) = on(cache, false);
        assert!(storage.facts().direct_io.is_err() && !file.is_direct() && !storage.shares_flush());
        let before = (storage.flushes(), storage.operations());
        file.write_at(0, &[1; SECTOR_BYTES]).expect("written");
        assert!(is_sometimes_lost(&left_of(&storage, 0, 1)), "{cache:?}: of the page cache");
        file.write_durable_at(SECTOR_BYTES as u64, &[2; SECTOR_BYTES]).expect("written");
        assert_eq!((storage.flushes(), storage.operations()), (before.0 + 1, before.1 + 3), "{cache:?}");
        assert!(
            [(0, 1), (1, 2)].iter().all(|(at, byte)| left_of(&storage, *at, *byte).into_iter().eq(WHOLE))
        );
        let other = storage.open("b", MODE).expect("created");
        let before = storage.flushes();
        storage.flush_together(&[file.clone(), other]).expect("flushed");
        assert_eq!(storage.flushes(), before + 2, "no flush is for another file");
        let (operation, kind) = (OperationKind::Flush, FaultKind::Once);
        storage.inject(Fault { operation, after: 0, kind, error: 5 });
        file.write_durable_at(0, &[3; SECTOR_BYTES]).expect_err("the flush fails");
        let error = file.write_durable_at(0, &[4; SECTOR_BYTES]).expect_err("nobody knows what is lost");
        assert!(error.to_string().contains("an earlier durable write"), "{error}");
    }
}

#[test]
fn a_write_with_a_flush_behind_it_can_be_cut_between_the_two() {
    let device = Device { cache: Cache::VolatileWithFua, flushes_each_write: true, ..Device::default() };
    let (storage, file) = on_device(device);
    let (before, flushes) = (storage.operations(), storage.flushes());
    file.write_durable_at(0, &[1; SECTOR_BYTES]).expect("written");
    assert_eq!((storage.operations() - before, storage.flushes() - flushes), (2, 1));
    assert!(left_of(&storage, 0, 1).into_iter().eq(WHOLE));
    let between = storage.crash(CrashKind::Kill, before + 1, 1);
    assert!(is_sometimes_lost(&left_of(&between, 0, 1)));
}
