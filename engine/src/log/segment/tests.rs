//! How much log there may be, what a checkpoint is asked for, and a full disk. The calling thread
//! prepares segments.

use super::file::{OpenBlocks, Segment};
use super::pool::{FIRST_BYTES, RECOVERY_SEGMENTS, SegmentPool};
use super::prepare::Work;
use crate::base::Location;
use crate::base::clock::Clock;
use crate::base::clock::WaitTimer;
use crate::base::{Csn, Error, ErrorKind, Result, SegmentId};
use crate::device::simulated::{Fault, FaultKind, Mishap, MishapKind, OperationKind, SimulatedStorage};
use crate::device::{OpenMode, Roles, SpaceRefusal};
use crate::log::path_of;
use crate::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

const SEGMENT_BYTES: u64 = 64 << 10;

/// With room for so many segments in use, one of which is to be ready.
pub(super) fn pool(segments: u64) -> (Arc<SegmentPool>, SimulatedStorage, Clock) {
    let (disk, clock) = (SimulatedStorage::new(1), Clock::manual());
    let pool = SegmentPool::new(Arc::new(disk.clone()), SEGMENT_BYTES, segments * SEGMENT_BYTES, 1);
    let mut pool = pool.expect("a healthy disk");
    Arc::get_mut(&mut pool).expect("nobody else has it").clock = clock.clone();
    (pool, disk, clock)
}

/// What the preparer does until nothing is left to do.
pub(super) fn prepare(pool: &SegmentPool) {
    while let Work::Prepare(len) = pool.next_work() {
        pool.prepare_or_note(len);
        if pool.failure().is_some() {
            return;
        }
    }
}

pub(super) fn take(pool: &SegmentPool, len: u64) -> Option<Segment> {
    pool.take(len).or_else(|| {
        prepare(pool);
        pool.take(len)
    })
}

/// Takes and fills segments whose newest records have these CSNs.
fn fill(pool: &SegmentPool, csns: &[u64]) {
    for csn in csns {
        pool.retire(take(pool, 1).expect("there is room"), Csn(*csn), OpenBlocks::default());
    }
}

fn found(pool: &SegmentPool, id: u64) -> Segment {
    let id = SegmentId(id);
    let file = pool.storage.segments().create(id).expect("a healthy disk");
    file.zero_extend(SEGMENT_BYTES, &mut |_| ()).expect("a healthy disk");
    Segment { id, file, len: SEGMENT_BYTES, uses: 0 }
}

/// As left by a process that was killed.
fn add_recovered(pool: &SegmentPool, id: u64, csn: u64) {
    pool.add_recovered(found(pool, id), Some(Csn(csn)));
}

/// As `add_recovered`, obsolete.
fn add_obsolete(pool: &SegmentPool, id: u64, csn: u64) {
    pool.add_obsolete(found(pool, id), Csn(csn));
}

/// A pool whose segments grow from [`FIRST_BYTES`] to 16 times that.
pub(super) fn growing_pool() -> (Arc<SegmentPool>, SimulatedStorage) {
    let disk = SimulatedStorage::new(1);
    let most = 16 * FIRST_BYTES;
    let pool = SegmentPool::new(Arc::new(disk.clone()), most, 64 * most, 2).expect("a healthy disk");
    (pool, disk)
}

/// Lengths of segments, in units of the first one's.
pub(super) fn lengths(segments: &[Segment]) -> Vec<u64> {
    segments.iter().map(|segment| segment.len / FIRST_BYTES).collect()
}

/// Numbers of the files.
fn files(disk: &SimulatedStorage) -> Vec<u64> {
    let paths = disk.files();
    let names = paths.iter().filter_map(|path| path.strip_prefix("log/"));
    names.filter_map(|name| crate::log::segment_id(name).expect("no high number")).map(|id| id.0).collect()
}

#[test]
fn segments_in_use_stay_within_the_bound() {
    let (pool, ..) = pool(2);
    fill(&pool, &[5]);
    let active = take(&pool, 1).expect("there is room for two");
    assert!(take(&pool, 1).is_none());
    assert_eq!((pool.bytes_in_use(), pool.file_bytes()), (2 * SEGMENT_BYTES, 3 * SEGMENT_BYTES));
    pool.retire(active, Csn(9), OpenBlocks::default());
    pool.recycle(Csn(4), Csn(4)).expect("no I/O");
    assert!(take(&pool, 1).is_none(), "nothing is covered");
    pool.recycle(Csn(5), Csn(5)).expect("no I/O");
    assert!(take(&pool, 1).is_some());
    assert!(take(&pool, 1).is_none());
}

#[test]
fn after_recovery_a_full_log_may_exceed_its_bound_a_little() {
    let (pool, disk, _) = pool(2);
    (1..=3).for_each(|id| add_recovered(&pool, id, id));
    let taken: Vec<Segment> = std::iter::from_fn(|| take(&pool, 1)).take(9).collect();
    assert_eq!(taken.len() as u64, RECOVERY_SEGMENTS);
    taken
        .into_iter()
        .zip(4..)
        .for_each(|(segment, csn)| pool.retire(segment, Csn(csn), OpenBlocks::default()));
    let names = || disk.files().iter().filter(|name| name.contains("0000000")).count();
    let before = names();
    prepare(&pool);
    pool.await_ready(1).expect("one is ready");
    pool.recycle(Csn(5), Csn(5)).expect("no I/O");
    assert_eq!(before - names(), 3, "what the killed process left is removed, what is ours is kept");
    assert_eq!(pool.bytes_in_use(), 2 * SEGMENT_BYTES);
    assert!(take(&pool, 1).is_none(), "the bound is the bound again");
}

#[test]
fn on_a_full_disk_only_a_useful_checkpoint_is_requested() {
    let (pool, disk, _) = pool(20);
    fill(&pool, &[1, 2, 3]);
    let ticket = pool.begin_waiting();
    disk.set_capacity(Some(0));
    pool.press(false);
    assert!(!pool.is_pressed(), "nobody was told yet that the disk is full");
    while take(&pool, 1).is_some() {}
    assert!(pool.is_disk_full());
    pool.press(false);
    assert!(pool.is_pressed());
    assert!(pool.refusal(ticket, false).is_none(), "the checkpoint may make room");
    // All is kept for a transaction in progress.
    pool.recycle(Csn::ZERO, Csn(3)).expect("no I/O");
    assert_eq!(pool.bytes_to_free(), pool.bytes_in_use() - 3 * SEGMENT_BYTES);
    while take(&pool, 1).is_some() {}
    pool.press(false);
    assert!(!pool.is_pressed());
    let refusal = pool.refusal(ticket, false).expect("no checkpoint can help");
    let kept = format!("{} bytes of it are kept for transactions in progress", 3 * SEGMENT_BYTES);
    assert_eq!(refusal.kind(), ErrorKind::OutOfSpace);
    assert!(refusal.to_string().contains(&kept), "{refusal}");
    assert!(pool.has_refused(Duration::from_secs(1)));
    // It ends.
    pool.let_go();
    assert_eq!(pool.bytes_to_free(), pool.bytes_in_use());
    pool.press(false);
    assert!(pool.is_pressed());
    assert!(pool.refusal(ticket, false).is_none());
}

/// Once the whole list of what was to be removed was lost with the first file that could not be,
/// and a checkpoint that was there was said to have failed.
#[test]
fn an_unremovable_file_keeps_no_other_and_goes_later() {
    let (pool, disk, _) = pool(20);
    (1..=3).for_each(|id| add_recovered(&pool, id, id));
    prepare(&pool);
    pool.await_ready(1).expect("one is ready");
    disk.inject(Fault { operation: OperationKind::Open, after: 1, kind: FaultKind::Once, error: 5 });
    let error = pool.recycle(Csn(5), Csn(5)).expect_err("the second one stays");
    assert_eq!((error.kind(), files(&disk)), (ErrorKind::Io, vec![2, 4]));
    pool.recycle(Csn(5), Csn(5)).expect("a healthy disk");
    assert_eq!(files(&disk), [4]);
}

#[test]
fn on_a_full_disk_obsolete_files_except_the_last_make_room() {
    let (pool, disk, _) = pool(20);
    (1..=2).for_each(|id| add_obsolete(&pool, id, id));
    pool.add_stale(&found(&pool, 3));
    disk.set_capacity(Some(3 * SEGMENT_BYTES));
    prepare(&pool);
    assert_eq!(pool.await_ready(1).expect_err("it is full").kind(), ErrorKind::OutOfSpace);
    assert_eq!(files(&disk), [1, 2, 3]);
    assert!(pool.remove_obsolete());
    assert_eq!(files(&disk).len(), 1, "a crash at this moment leaves a log");
    assert_eq!(pool.bytes_in_use(), 0);
    assert!(!pool.remove_obsolete() && files(&disk).len() == 1);
    prepare(&pool);
    pool.await_ready(1).expect("there is room now");
    assert!(files(&disk).iter().all(|id| *id > 3), "{:?}", files(&disk));
    // What is needed is the log that stays.
    let (pool, disk, _) = self::pool(20);
    add_recovered(&pool, 1, 1);
    add_obsolete(&pool, 2, 9);
    assert!(pool.remove_obsolete());
    assert_eq!((files(&disk), pool.bytes_in_use()), (vec![1], SEGMENT_BYTES));
    assert!(!pool.remove_obsolete());
}

/// What is ready after opening on a disk that is full, of two segments, with so many that are
/// needed and so many that are not.
fn ready_on_full_disk(needed: u64, obsolete: u64) -> Result<Vec<u64>> {
    let disk = SimulatedStorage::new(1);
    let pool = SegmentPool::new(Arc::new(disk.clone()), SEGMENT_BYTES, 20 * SEGMENT_BYTES, 2)?;
    (1..=needed).for_each(|id| add_recovered(&pool, id, id));
    (needed + 1..=needed + obsolete).for_each(|id| add_obsolete(&pool, id, id));
    disk.set_capacity(Some((needed + obsolete) * SEGMENT_BYTES));
    pool.start()?;
    assert_eq!(pool.await_ready(2).expect_err("it is full").kind(), ErrorKind::OutOfSpace);
    let ready = pool.await_ready_on_full_disk(2);
    pool.close(true);
    let there = files(&disk);
    assert!((1..=needed).all(|id| there.contains(&id)), "{there:?}");
    assert!(!there.is_empty());
    ready.map(|()| there)
}

#[test]
fn one_segment_will_do_on_a_full_disk() {
    let count = |needed, obsolete| ready_on_full_disk(needed, obsolete).map(|there| there.len());
    assert_eq!(count(0, 3).expect("two fit"), 2);
    assert_eq!(count(0, 2).expect("the last file goes when there is another"), 2);
    assert_eq!(count(2, 1).expect("one fits"), 3);
    for (needed, obsolete) in [(2, 0), (0, 1)] {
        let refused = count(needed, obsolete).expect_err("no room can be made");
        assert_eq!(refused.kind(), ErrorKind::OutOfSpace, "{needed} {obsolete}");
    }
}

#[test]
fn on_a_full_disk_the_last_segment_requests_a_checkpoint() {
    let (pool, disk, _) = pool(20);
    let segments = [take(&pool, 1), take(&pool, 1)].map(|segment| segment.expect("there is room"));
    let [first, second] = segments;
    pool.retire(first, Csn(1), OpenBlocks::default());
    assert!(!pool.is_pressed(), "the disk is not full");
    disk.set_capacity(Some(0));
    while take(&pool, 1).is_some() {}
    pool.retire(second, Csn(2), OpenBlocks::default());
    assert!(pool.is_pressed(), "whoever is killed now leaves nothing but what is needed");
    pool.recycle(Csn(2), Csn(2)).expect("no I/O");
    assert!(!pool.is_pressed());
}

#[test]
fn what_is_above_the_last_checkpoint_may_be_freed_by_the_next() {
    let (pool, disk, _) = pool(20);
    fill(&pool, &[1, 3, 4]);
    pool.recycle(Csn(1), Csn(3)).expect("no I/O");
    assert_eq!(pool.bytes_between(Csn(1), Csn(3)), SEGMENT_BYTES);
    assert_eq!((pool.bytes_in_use(), pool.bytes_to_free()), (2 * SEGMENT_BYTES, SEGMENT_BYTES));
    disk.set_capacity(Some(0));
    while take(&pool, 1).is_some() {}
    pool.press(false);
    assert!(pool.is_pressed(), "the one with CSN 4");
}

#[test]
fn a_full_disk_is_retried_after_a_while_other_failures_stand() {
    let (pool, disk, clock) = pool(20);
    disk.set_capacity(Some(0));
    let begun = clock.now();
    assert!(take(&pool, 1).is_none());
    assert_eq!(pool.failure().expect("it has none").kind(), ErrorKind::OutOfSpace);
    // As if the answer had taken its time.
    clock.advance(Duration::from_millis(5));
    pool.state.lock().attempts.disk_full = Some(SpaceRefusal::new(begun, clock.now()));
    clock.advance(Duration::from_millis(49));
    pool.ask_again();
    assert!(pool.failure().is_some() && matches!(pool.next_work(), Work::Nothing), "too early");
    clock.advance(Duration::from_millis(1));
    disk.set_capacity(None);
    pool.ask_again();
    assert!(pool.failure().is_none());
    prepare(&pool);
    assert!(!pool.is_disk_full() && pool.take(1).is_some());

    let (pool, disk, _) = self::pool(20);
    disk.inject(Fault { operation: OperationKind::Open, after: 0, kind: FaultKind::Once, error: 5 });
    prepare(&pool);
    pool.ask_again();
    assert_eq!(pool.failure().expect("it stands").kind(), ErrorKind::Io);
    assert!(!pool.is_disk_full());
    assert!(take(&pool, 1).is_some(), "whoever needs one has it tried again");
    assert!(pool.failure().is_none());
}

#[test]
fn who_waits_for_a_checkpoint_is_told_whether_it_made_room() {
    let (pool, _, clock) = pool(1);
    assert!(!pool.await_checkpoint(Duration::ZERO), "nobody makes one");
    let (long, pool) = (Duration::from_secs(60), &pool);
    let told_after = |ends: &(dyn Fn() + Sync)| {
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| pool.await_checkpoint(long));
            while !pool.is_pressed() {
                std::thread::yield_now();
            }
            ends();
            waits.join().expect("no panic")
        })
    };
    pool.state.lock().checkpoints.requested = false;
    assert!(told_after(&|| {
        // A machine that was suspended has lost no time in which a checkpoint could have been made.
        clock.advance(long);
        std::thread::sleep(5 * WaitTimer::POLL_INTERVAL_MAX);
        pool.recycle(Csn(1), Csn(1)).expect("no I/O");
    }));
    // Another thread requests one meanwhile without a reason.
    let stands = AtomicBool::new(false);
    assert!(told_after(&|| {
        pool.press(false);
        stands.store(pool.is_pressed(), Ordering::SeqCst);
        pool.recycle(Csn(1), Csn(1)).expect("no I/O");
    }));
    assert!(stands.into_inner() && !pool.is_pressed(), "what others asked for stands until there is one");
    let error = Error::new(ErrorKind::Io, "the device is gone");
    let ticket = pool.begin_waiting();
    assert!(!told_after(&|| pool.checkpoint_failed(&error)));
    assert!(!pool.is_pressed());
    let refusal = pool.refusal(ticket, false).expect("it failed since");
    assert!(refusal.to_string().contains("the device is gone"), "{refusal}");
    assert!(pool.refusal(pool.begin_waiting(), false).is_none(), "that was before");
    assert!(!told_after(&|| pool.close(false)));
}

/// Once no segment was given although one, or room for one, was there: only the first that was long
/// enough was considered.
#[test]
fn a_long_segment_that_is_beyond_the_bound_hides_no_short_one() {
    let (mut pool, ..) = pool(6);
    assert!(pool.take(4 * SEGMENT_BYTES).is_none());
    prepare(&pool);
    (101..=103).for_each(|id| add_recovered(&pool, id, 9));
    pool.recycle(Csn(1), Csn(1)).expect("no I/O");
    assert_eq!((pool.bytes_in_use(), pool.file_bytes()), (3 * SEGMENT_BYTES, 7 * SEGMENT_BYTES));
    // One that has to be made, and two that are there.
    for _ in 0..3 {
        let segment = take(&pool, 1).expect("there is room for three short ones");
        assert_eq!(segment.len, SEGMENT_BYTES);
        pool.state.lock().requests.wanted.push(1);
        prepare(&pool);
    }
    assert!(pool.take(1).is_none() && matches!(pool.next_work(), Work::Nothing), "it is full");
    pool.press(false);
    assert!(pool.is_pressed());
    // Nor is made what would be beyond it.
    Arc::get_mut(&mut pool).expect("nobody else has it").bytes_max += SEGMENT_BYTES / 2;
    assert!(pool.take(1).is_none() && matches!(pool.next_work(), Work::Nothing), "half a segment is no room");
}

/// Once a thread that waited for a long segment and asked again while it was made caused a second
/// one, which was not needed.
#[test]
fn what_somebody_waits_for_is_made_once() {
    let (pool, ..) = pool(20);
    let long = 4 * SEGMENT_BYTES;
    assert!(pool.take(long).is_none());
    let Work::Prepare(len) = pool.next_work() else { panic!("it is wanted") };
    assert!(pool.take(long).is_none() && pool.take(1).is_none(), "it is not there yet");
    pool.prepare_or_note(len);
    assert_eq!(pool.take(long).expect("it was made").len, long);
    assert!(matches!(pool.next_work(), Work::Prepare(SEGMENT_BYTES)), "the spare one, and no long one");
    pool.prepare_or_note(SEGMENT_BYTES);
    // Others are not forgotten: another has taken the one that was made, or it is too short.
    assert!(pool.take(2 * SEGMENT_BYTES).is_none());
    let Work::Prepare(len) = pool.next_work() else { panic!("it is wanted") };
    assert!(pool.take(long).is_none());
    pool.prepare_or_note(len);
    let Work::Prepare(len) = pool.next_work() else { panic!("a longer one is wanted") };
    assert_eq!(len, long);
    pool.prepare_or_note(len);
    assert!(pool.take(2 * SEGMENT_BYTES).is_some() && pool.take(long).is_some());
    assert!(pool.take(long).is_none() && matches!(pool.next_work(), Work::Prepare(_)), "asked for again");
}

#[test]
fn a_failure_before_the_wait_counts_only_if_it_is_final() {
    let (pool, disk, _) = pool(20);
    let fails = |kind| Fault { operation: OperationKind::Open, after: 0, kind, error: 5 };
    disk.inject(fails(FaultKind::Once));
    prepare(&pool);
    assert_eq!(pool.failure().expect("a spare one was to be made").kind(), ErrorKind::Io);
    let ticket = pool.begin_waiting();
    assert!(pool.failure_since(ticket).is_none(), "nobody has tried for him");
    disk.inject(fails(FaultKind::ForEver));
    assert!(take(&pool, 1).is_none());
    assert_eq!(pool.failure_since(ticket).expect("now it was tried").kind(), ErrorKind::Io);
    disk.heal();
    assert!(take(&pool, 1).is_some() && pool.failure_since(ticket).is_none());
    // The preparer is gone: no checkpoint changes that, nor a disk that has space again.
    pool.state.lock().attempts.failure = Some(Error::new(ErrorKind::Poisoned, "it panicked"));
    pool.recycle(Csn(1), Csn(1)).expect("no I/O");
    let ticket = pool.begin_waiting();
    assert_eq!(pool.failure_since(ticket).expect("it stands").kind(), ErrorKind::Poisoned);
}

#[test]
fn every_file_is_known_in_each_state_and_a_leaked_one_is_found() {
    let (pool, disk, clock) = pool(8);
    let none_leaked = || assert_eq!(pool.leaked().expect("a healthy disk"), []);
    add_recovered(&pool, 1, 5);
    prepare(&pool);
    none_leaked();
    let segment = take(&pool, 1).expect("there is room");
    prepare(&pool);
    none_leaked();
    pool.retire(segment, Csn(9), OpenBlocks::default());
    none_leaked();
    pool.await_ready(1).expect("there is one");
    // A file that cannot be removed now is removed next time.
    let fails = |after| Fault { operation: OperationKind::Open, after, kind: FaultKind::Once, error: 5 };
    disk.inject(fails(0));
    pool.recycle(Csn(5), Csn(5)).expect_err("the file of the killed process stays");
    none_leaked();
    assert!(disk.files().contains(&path_of(SegmentId(1))));
    pool.recycle(Csn(5), Csn(5)).expect("a healthy disk");
    assert!(!disk.files().contains(&path_of(SegmentId(1))));
    none_leaked();
    // Nor does what is left of one that could not be made stay for ever.
    let files = disk.files().len();
    let broken = Fault { operation: OperationKind::Any, after: 1, kind: FaultKind::ForEver, error: 28 };
    disk.inject(broken);
    assert!(pool.take(4 * SEGMENT_BYTES).is_none());
    prepare(&pool);
    disk.heal();
    none_leaked();
    clock.advance(Duration::from_secs(60));
    pool.recycle(Csn(5), Csn(5)).expect("a healthy disk");
    assert!(disk.files().len() <= files);
    let forgotten = found(&pool, 77);
    assert_eq!(pool.leaked().expect("a healthy disk"), [SegmentId(77)]);
    pool.add_recovered(forgotten, Some(Csn(7)));
    none_leaked();
}

/// It was called a full log, however empty that was.
#[test]
fn a_device_that_has_not_made_a_segment_in_time_is_named() {
    let (pool, disk, _) = pool(3);
    let mishap = Mishap { operation: OperationKind::Any, after: 0, kind: MishapKind::Stuck };
    let told = std::thread::scope(|scope| {
        disk.inject_mishap(mishap);
        scope.spawn(|| prepare(&pool));
        let begun = std::time::Instant::now();
        while disk.faults_struck() == 0 && begun.elapsed() < std::time::Duration::from_secs(30) {
            std::thread::yield_now();
        }
        let told = pool.full();
        disk.heal();
        told
    });
    assert_eq!(told.kind(), ErrorKind::OutOfSpace);
    assert!(told.to_string().contains("the device has not finished the next one in time"), "{told}");
    assert!(matches!(told.location(), Some(Location::File { .. })), "{told}");
    fill(&pool, &[1, 2, 3]);
    assert!(pool.full().to_string().contains("the log is full"), "{}", pool.full());
}

#[test]
fn segments_grow_from_short_ones_to_the_longest() {
    let (pool, disk) = growing_pool();
    prepare(&pool);
    assert_eq!(pool.file_bytes(), 2 * FIRST_BYTES, "nothing was taken yet");
    let taken: Vec<Segment> = std::iter::from_fn(|| take(&pool, 1)).take(8).collect();
    assert_eq!(lengths(&taken), [1, 1, 4, 4, 16, 16, 16, 16]);
    prepare(&pool);
    let spare = lengths(&pool.state.lock().ready);
    assert!(spare.len() >= 2 && spare.iter().all(|len| *len == 16), "{spare:?}");
    // The short ones are not used again.
    let ids: Vec<u64> = taken.iter().take(4).map(|segment| segment.id.0).collect();
    taken
        .into_iter()
        .zip(1..)
        .for_each(|(segment, csn)| pool.retire(segment, Csn(csn), OpenBlocks::default()));
    prepare(&pool);
    pool.await_ready(1).expect("one is ready");
    pool.recycle(Csn(8), Csn(8)).expect("a healthy disk");
    let left = files(&disk);
    assert!(ids.iter().all(|id| !left.contains(id)), "{ids:?} {left:?}");
    assert!(lengths(&pool.state.lock().ready).iter().all(|len| *len == 16));
    assert_eq!(pool.leaked().expect("a healthy disk"), []);
}

#[test]
fn a_long_block_makes_the_next_segments_longer() {
    let (pool, _) = growing_pool();
    prepare(&pool);
    assert!(pool.take(3 * FIRST_BYTES).is_none(), "only short ones are ready");
    prepare(&pool);
    assert_eq!(pool.take(3 * FIRST_BYTES).expect("it was made").len, 12 * FIRST_BYTES);
    assert_eq!(pool.take(1).expect("a short one is ready").len, FIRST_BYTES, "the shortest that fits");
}

#[test]
fn short_segments_count_and_stay_on_a_full_disk() {
    let (pool, disk) = growing_pool();
    prepare(&pool);
    disk.set_capacity(Some(2 * FIRST_BYTES));
    let segments = [take(&pool, 1), take(&pool, 1)].map(|segment| segment.expect("it was ready"));
    prepare(&pool);
    assert!(pool.is_disk_full());
    for (segment, csn) in segments.into_iter().zip(1..) {
        pool.retire(segment, Csn(csn), OpenBlocks::default());
    }
    pool.recycle(Csn(2), Csn(2)).expect("nothing is removed");
    assert_eq!(files(&disk), [1, 2], "others could take the space");
    assert!(!pool.is_disk_full() && pool.take(1).is_some() && pool.take(1).is_some());
}

#[test]
fn a_segment_without_a_block_can_be_given_back() {
    let (pool, _) = growing_pool();
    let segment = take(&pool, 1).expect("it is made");
    let before = pool.bytes_in_use();
    pool.put_back(segment);
    assert_eq!(pool.bytes_in_use(), before - FIRST_BYTES);
    assert_eq!(pool.take(1).expect("it is ready").len, FIRST_BYTES);
}

#[test]
fn trimming_leaves_two_short_segments() {
    let (pool, disk) = growing_pool();
    let taken: Vec<Segment> = std::iter::from_fn(|| take(&pool, 1)).take(8).collect();
    let (full, active) = taken.split_at(6);
    let kept_open = OpenBlocks::default();
    let _open = kept_open.open();
    for (segment, csn) in full.iter().zip(1..) {
        let open = if csn == 1 { kept_open.clone() } else { OpenBlocks::default() };
        pool.retire(segment.clone(), Csn(csn), open);
    }
    prepare(&pool);
    pool.await_ready(1).expect("one is ready");
    pool.recycle(Csn::MAX, Csn(6)).expect("a healthy disk");
    pool.trim().expect("a healthy disk");
    let left = files(&disk);
    assert!(left.contains(&full[0].id.0), "a block of it is still to be written");
    let lens = |id: &u64| {
        let mode = OpenMode { create: false, read_only: true, direct: true };
        disk.segments().open(SegmentId(*id), mode).expect("there").len().expect("a healthy disk")
    };
    let short: Vec<u64> = left.iter().filter(|id| **id != full[0].id.0).map(lens).collect();
    assert_eq!(short, [FIRST_BYTES; 2], "{left:?}, in use were {active:?}");
    assert_eq!(pool.leaked().expect("a healthy disk"), []);
}

/// Retains so many segments without feeds, or with them.
fn keep_history(pool: &SegmentPool, kept: u64, with_feeds: u64) {
    pool.keep_history(kept * SEGMENT_BYTES, with_feeds * SEGMENT_BYTES, vec![(Csn(0), Csn(0))]);
}

#[test]
fn history_is_retained_up_to_its_bound_and_oldest_first() {
    let (pool, _, _) = pool(4);
    keep_history(&pool, 2, 0);
    for checkpoint in [10, 20, 30, 40] {
        fill(&pool, &[checkpoint - 5]);
        pool.recycle(Csn(checkpoint), Csn(checkpoint)).expect("a healthy disk");
        assert_eq!(pool.bytes_in_use(), 0, "history does not count as log in use");
    }
    assert_eq!(pool.history_bytes(), 2 * SEGMENT_BYTES);
    // The segments with the records up to 5 and 15 are gone.
    assert_eq!(pool.history_begins(), Csn(20));
    assert_eq!(pool.history_with(Csn(45), Csn(50)).first(), Some(&(Csn(20), Csn(20))));
}

/// Regression: of 32 MiB as little as 16 were retained, because a segment was dropped as soon as
/// all together were longer.
#[test]
fn history_has_at_least_the_bytes_of_its_setting() {
    let (pool, _, _) = pool(8);
    pool.keep_history(2 * SEGMENT_BYTES + 1, 0, vec![(Csn(0), Csn(0))]);
    for checkpoint in [10, 20, 30, 40, 50] {
        fill(&pool, &[checkpoint - 5]);
        pool.recycle(Csn(checkpoint), Csn(checkpoint)).expect("a healthy disk");
    }
    assert_eq!((pool.history_bytes(), pool.history_begins()), (3 * SEGMENT_BYTES, Csn(20)));
}

#[test]
fn segment_of_a_long_transaction_is_needed_until_it_is_covered() {
    let (pool, _, _) = pool(4);
    keep_history(&pool, 0, 8);
    // The transaction in progress has a chunk at 3, so the first checkpoint covers less.
    fill(&pool, &[3]);
    pool.recycle(Csn(2), Csn(10)).expect("a healthy disk");
    let feed = pool.add_feed(Csn(10)).expect("nothing was dropped");
    pool.recycle(Csn(20), Csn(20)).expect("a healthy disk");
    assert_eq!(pool.history_bytes(), SEGMENT_BYTES, "the transaction may have committed at 15");
    pool.advance_feed(feed, Csn(20)).expect("not behind");
    pool.recycle(Csn(21), Csn(21)).expect("a healthy disk");
    assert_eq!((pool.history_bytes(), pool.history_begins()), (0, Csn(20)));
}

#[test]
fn feed_behind_the_bound_learns_where_history_begins() {
    let (pool, _, _) = pool(4);
    keep_history(&pool, 0, 1);
    let feed = pool.add_feed(Csn(0)).expect("nothing was dropped");
    fill(&pool, &[5]);
    pool.recycle(Csn(10), Csn(10)).expect("a healthy disk");
    pool.advance_feed(feed, Csn(0)).expect("one segment is retained");
    fill(&pool, &[15]);
    pool.recycle(Csn(20), Csn(20)).expect("a healthy disk");
    assert_eq!(pool.advance_feed(feed, Csn(7)), Err(Csn(10)));
    assert_eq!(pool.add_feed(Csn(9)).map(drop), Err(Csn(10)));
    pool.advance_feed(feed, Csn(10)).expect("it has read what is gone");
    pool.remove_feed(feed);
    pool.recycle(Csn(21), Csn(21)).expect("a healthy disk");
    assert_eq!(pool.history_bytes(), 0, "no feed needs it");
}

#[test]
fn full_disk_takes_history_first() {
    let (pool, disk, _) = pool(4);
    keep_history(&pool, 8, 0);
    fill(&pool, &[5, 6, 7]);
    pool.recycle(Csn(10), Csn(10)).expect("a healthy disk");
    assert_eq!(pool.history_bytes(), 3 * SEGMENT_BYTES);
    disk.set_capacity(Some(pool.file_bytes()));
    // The spare segment, and those of the history.
    for _ in 0..3 {
        assert!(take(&pool, 1).is_some(), "history makes room for commits");
    }
    assert_eq!((pool.history_bytes(), pool.history_begins()), (0, Csn(10)));
}

#[test]
fn many_checkpoints_are_remembered_coarsely() {
    let (pool, _, _) = pool(4);
    keep_history(&pool, 1000, 0);
    for checkpoint in 1..500 {
        pool.recycle(Csn(checkpoint), Csn(checkpoint)).expect("a healthy disk");
    }
    let all = pool.history_with(Csn(500), Csn(500));
    assert!(all.len() <= 65, "{}", all.len());
    assert_eq!((all[0], all[all.len() - 1]), ((Csn(0), Csn(0)), (Csn(500), Csn(500))));
}

/// It was taken for one before the beginning of history, and a long transaction lost its chunks.
#[test]
fn segment_below_the_beginning_stays_for_transactions_above_it() {
    let (pool, _, _) = pool(4);
    keep_history(&pool, 1, 0);
    fill(&pool, &[4]);
    pool.recycle(Csn(5), Csn(20)).expect("a healthy disk");
    // Its chunk is of a transaction that was in progress at the first checkpoint.
    fill(&pool, &[10]);
    pool.recycle(Csn(30), Csn(40)).expect("a healthy disk");
    assert_eq!((pool.history_bytes(), pool.history_begins()), (SEGMENT_BYTES, Csn(20)));
    assert_eq!(pool.readable(Vec::new(), Csn(20)).len(), 1);
}
