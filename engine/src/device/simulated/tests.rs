//! What the simulated disk keeps and loses.

use super::*;
use crate::device::SECTOR_BYTES;

const MODE: OpenMode = OpenMode { create: true, read_only: false, direct: true };

fn with_file() -> (SimulatedStorage, Arc<dyn File>) {
    let storage = SimulatedStorage::new(1);
    let file = storage.open("a", MODE).expect("created");
    file.zero_extend(4 * SECTOR_BYTES as u64).expect("extended");
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
fn a_crash_in_the_past_knows_nothing_of_what_came_later() {
    let (storage, file) = with_file();
    let before = storage.operations();
    file.write_durable_at(0, &[9; SECTOR_BYTES]).expect("written");
    let past = storage.crash(CrashKind::PowerCut, before, 1).read_file("a").expect("there");
    assert!(past.iter().all(|b| *b == 0));
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
fn writes_in_flight_at_a_kill_land_late_partly_or_never() {
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
