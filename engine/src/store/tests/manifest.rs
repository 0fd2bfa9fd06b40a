//! The manifest's format, and the switch from one to the next.

use super::*;
use crate::base::random::Random;
use crate::base::{Epoch, LogId, TableId, checksum};
use crate::device::simulated::{Mishap, MishapKind};
use crate::device::{Directory, SECTOR_BYTES};
use crate::store::manifest::MANIFEST_PATH;
use crate::store::manifest::format::{NeededMemory, SLOT_BYTES};

fn full() -> Manifest {
    let entry = |epoch, first, last| EpochEntry {
        epoch: Epoch(epoch),
        first_csn: Csn(first),
        frontier: Csn(first + 3),
        last_csn: Csn(last),
        accepted: vec![
            AcceptedEnd { log: LogId(0), sequence: 17 },
            AcceptedEnd { log: LogId(3), sequence: u64::MAX },
        ],
        voids: CsnSet::from_ranges([(Csn(first + 3), Csn(first + 3)), (Csn(first + 5), Csn(last))]),
    };
    Manifest {
        generation: 9,
        epoch: Epoch(6),
        reserved_epoch: Epoch(7),
        clean: false,
        checkpoint: Csn(100),
        covered: Csn(90),
        first_csn: Csn(300),
        next_csn: Csn(301),
        next_table: TableId(12),
        store: StoreRoot {
            codecs: Codecs(3),
            directory: vec![BlockRef(1 << 30), BlockRef::ABSENT, BlockRef(3 << 30)],
            pages: 44,
            catalog: Some(BlobRef { first: BlockRef(5 << 24), len: 100, crc: 3 }),
        },
        epochs: vec![entry(2, 90, 120), entry(5, 121, 299)],
        history: vec![(Csn(80), Csn(85)), (Csn(90), Csn(100))],
        ..Manifest::new(DATABASE, PAGE as u32)
    }
}

/// Returns `manifest` with mapped memory at a path of so many bytes.
fn with_path_of(bytes: usize, manifest: Manifest) -> Manifest {
    Manifest { log_memory: Some(NeededMemory { id: 1, path: "p".repeat(bytes) }), ..manifest }
}

fn created() -> (SimulatedStorage, ManifestFile) {
    let disk = new_disk();
    let file = ManifestFile::create(&disk, &Manifest::new(DATABASE, PAGE as u32)).expect("created");
    (disk, file)
}

fn damage(disk: &SimulatedStorage, slot: usize) {
    edit(disk, MANIFEST_PATH, |bytes| bytes[slot * SLOT_BYTES + 40] ^= 1);
}

#[test]
fn every_field_survives_encoding() {
    let manifest = full();
    assert_eq!(Manifest::decode(&manifest.encode().expect("fits")).expect("decodes"), manifest);
}

#[test]
fn no_damaged_or_cut_slot_decodes_and_none_panics() {
    let bytes = full().encode().expect("fits");
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x24;
        assert!(Manifest::decode(&damaged).is_err(), "byte {at}");
        assert!(Manifest::decode(&bytes[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn bodies_of_random_bytes_with_right_checksums_do_not_panic() {
    let good = full().encode().expect("fits");
    let mut random = Random::from_seed(4);
    for _ in 0..20_000 {
        let mut bytes = good.clone();
        for _ in 0..=random.below(3) {
            let at = 32 + random.below(bytes.len() as u64 - 32) as usize;
            bytes[at] = random.next_u64() as u8;
        }
        let crc = checksum::crc_append(checksum::crc(&bytes[16..28]), &bytes[32..]);
        bytes[28..32].copy_from_slice(&crc.to_le_bytes());
        if let Ok(manifest) = Manifest::decode(&bytes) {
            assert_eq!(Manifest::decode(&manifest.encode().expect("fits")).expect("decodes"), manifest);
        }
    }
}

#[test]
fn a_manifest_that_contradicts_itself_is_not_written() {
    let wrong = Manifest { next_csn: Csn(100), first_csn: Csn(100), ..full() };
    assert_eq!(wrong.encode().expect_err("in the checkpoint").kind(), ErrorKind::InvalidArgument);
    let wrong = Manifest { epoch: Epoch(5), ..full() };
    assert_eq!(wrong.encode().expect_err("entry of the running epoch").kind(), ErrorKind::InvalidArgument);
    // The next one would be the first again.
    let wrong = Manifest { generation: u64::MAX, ..full() };
    assert_eq!(wrong.encode().expect_err("the last generation").kind(), ErrorKind::InvalidArgument);
}

#[test]
fn manifest_too_long_for_a_slot_is_refused_once() {
    let (_disk, file) = created();
    let mut long = full();
    long.epochs[1].last_csn = Csn(2_000_000);
    long.epochs[1].voids = (122..2_000_000).step_by(2).map(Csn).collect();
    (long.first_csn, long.next_csn) = (Csn(2_000_001), Csn(2_000_001));
    assert_eq!(file.publish(&long).expect_err("too long").kind(), ErrorKind::OutOfSpace);
    file.publish(&full()).expect("publishes");
    assert_eq!(file.read().expect("reads").checkpoint, Csn(100));
}

#[test]
fn the_checkpoint_covers_epochs_and_voids_at_or_below_it() {
    let mut manifest = Manifest { checkpoint: Csn(130), history: Vec::new(), ..full() };
    manifest.forget_covered();
    assert_eq!(manifest.epochs.len(), 1);
    assert_eq!(manifest.epochs[0].voids.ranges(), [(Csn(131), Csn(299))]);
}

#[test]
fn retained_history_keeps_epochs_and_voids_since_its_beginning() {
    let mut manifest = full();
    manifest.checkpoint = Csn(130);
    manifest.history = vec![(Csn(100), Csn(110)), (Csn(130), Csn(130))];
    manifest.forget_covered();
    assert_eq!(Manifest::decode(&manifest.encode().expect("fits")).expect("decodes"), manifest);
    assert_eq!(manifest.epochs.len(), 2);
    assert_eq!(manifest.epochs[0].voids.ranges(), [(Csn(111), Csn(120))]);
    // The next recovery lists all CSNs that it discards above the checkpoint, not those below.
    manifest.add_epoch(EpochEntry { epoch: Epoch(6), last_csn: Csn(300), ..manifest.epochs[1].clone() });
    assert_eq!(manifest.epochs[0].voids.ranges(), [(Csn(111), Csn(120))]);
    assert_eq!(manifest.epochs[1].voids.ranges(), [(Csn(124), Csn(124)), (Csn(126), Csn(130))]);
    let wrong = Manifest { history: vec![(Csn(131), Csn(130))], ..full() };
    assert_eq!(wrong.encode().expect_err("covers too much").kind(), ErrorKind::InvalidArgument);
}

#[test]
fn newer_version_in_either_slot_names_both_versions() {
    for slot in 0..2 {
        let (disk, _file) = created();
        edit(&disk, MANIFEST_PATH, |bytes| {
            let prefix = &mut bytes[slot * SLOT_BYTES..][..16];
            prefix[8] = 2;
            let crc = checksum::crc(&prefix[..12]);
            prefix[12..].copy_from_slice(&crc.to_le_bytes());
        });
        let error = ManifestFile::open(&disk, false).expect_err("newer");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(
            error.to_string().contains("version 2") && error.to_string().contains("version 1"),
            "{error}"
        );
    }
}

#[test]
fn memory_mapped_log_is_stored_and_refused_in_a_closed_database() {
    let memory = Some(NeededMemory { id: 7, path: "/mem/log".into() });
    let with = Manifest { log_memory: memory, ..full() };
    assert_eq!(Manifest::decode(&with.encode().expect("fits")).expect("reads"), with);
    let closed = Manifest { clean: true, ..with };
    assert_eq!(closed.encode().expect_err("needs none").kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_slot_that_cannot_be_read_beside_a_bad_one_may_be_whole() {
    for (slot, after) in [(0, 3), (1, 1)] {
        let (disk, _file) = created();
        damage(&disk, slot);
        fail_once(&disk, OperationKind::Read, after);
        assert_eq!(ManifestFile::open(&disk, false).expect_err("neither").kind(), ErrorKind::Io);
        ManifestFile::open(&disk, false).expect("it can be read now");
    }
    let (disk, _file) = created();
    edit(&disk, MANIFEST_PATH, |bytes| bytes.fill(0));
    fail_once(&disk, OperationKind::Read, 1);
    assert_eq!(manifest_state(&disk).expect("unknown"), ManifestState::Written, "nothing is created there");
}

#[test]
fn both_slots_bad_is_corruption_that_names_file_and_offsets() {
    let (disk, _file) = created();
    damage(&disk, 0);
    damage(&disk, 1);
    let error = ManifestFile::open(&disk, false).expect_err("both");
    assert_eq!(error.kind(), ErrorKind::Corruption);
    let text = error.to_string();
    for part in ["MANIFEST", "byte 0", "byte 1048576", "checksum"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn another_programs_file_is_said_to_be_no_manifest() {
    let disk = new_disk();
    let mode = OpenMode { create: true, read_only: false, direct: false };
    disk.open(MANIFEST_PATH, mode).expect("creates");
    edit(&disk, MANIFEST_PATH, |bytes| *bytes = b"recursive-include src".repeat(500));
    let error = ManifestFile::open(&disk, false).expect_err("not ours");
    assert!(error.to_string().contains("not a QuenchDB manifest"), "{error}");
}

#[test]
fn equal_generations_with_different_content_are_corruption() {
    let (disk, _file) = created();
    let other = Manifest { generation: 1, next_table: TableId(9), ..Manifest::new(DATABASE, PAGE as u32) };
    let bytes = other.encode().expect("fits");
    edit(&disk, MANIFEST_PATH, |file| file[..bytes.len()].copy_from_slice(&bytes));
    assert_eq!(ManifestFile::open(&disk, false).expect_err("differ").kind(), ErrorKind::Corruption);
}

#[test]
fn after_a_failed_publication_nothing_is_published_any_more() {
    let (disk, file) = created();
    fail_once(&disk, OperationKind::Flush, 1);
    file.publish(&full()).expect_err("the second slot fails");
    assert_eq!(file.publish(&full()).expect_err("N4").kind(), ErrorKind::Poisoned);
}

#[test]
fn crash_in_a_publication_leaves_the_old_or_new_manifest() {
    let (disk, file) = created();
    let before = disk.operations();
    file.publish(&full()).expect("publishes");
    let new = Manifest { generation: 2, ..full() };
    for operations in before..=disk.operations() {
        for seed in 0..8 {
            let crashed = disk.crash(CrashKind::PowerCut, operations, seed);
            let (_, manifest) = ManifestFile::open(&crashed, false).expect("opens");
            assert!(manifest == new || manifest.generation == 1 && operations < disk.operations());
        }
    }
}

/// After a power cut between the two steps of a publication the slots differ, and only one holds
/// the newest manifest: neither the open that finds them so nor the next publication, which may be
/// torn, may lose that. The manifest before the newest is not enough, its blocks may have been used
/// since.
#[test]
fn second_interrupted_publication_never_goes_back() {
    // Longer than a sector: others are there whole or not at all.
    let long = with_path_of(2000, full());
    let (disk, file) = created();
    let before = disk.operations();
    file.publish(&long).expect("publishes");
    let mut newest_in_one_slot = 0;
    for (operations, seed) in (before..=disk.operations()).flat_map(|at| (0..8).map(move |seed| (at, seed))) {
        let crashed = disk.crash(CrashKind::PowerCut, operations, seed);
        let before = crashed.operations();
        let (file, found) = ManifestFile::open(&crashed, false).expect("opens");
        newest_in_one_slot += u32::from(found.generation == 2 && operations < disk.operations());
        file.publish(&long).expect("publishes");
        for (at, seed) in (before..=crashed.operations()).flat_map(|at| (0..8).map(move |seed| (at, seed))) {
            let again = crashed.crash(CrashKind::PowerCut, at, seed);
            let (_, manifest) = ManifestFile::open(&again, false).expect("opens");
            assert!(manifest.generation >= found.generation, "{operations} then {at}, seed {seed}");
        }
    }
    assert!(newest_in_one_slot > 0, "no cut was between the steps");
}

/// Longer than what is read at first, so that a write of it can be torn in many places and almost
/// any byte that rots counts.
fn long() -> Manifest {
    let mut long = Manifest { generation: 2, ..full() };
    long.store.directory = (1..2500).map(|block| BlockRef(block << 24)).collect();
    long
}

/// Of a manifest that is longer than what is read at first the last sector was not read, unless it
/// was full: it was taken for a damaged one, in both slots.
#[test]
fn a_long_manifest_is_read_to_its_end() {
    for more in [0, 1, 1000, 3000] {
        let (disk, file) = created();
        let long = with_path_of(more, long());
        file.publish(&long).expect("fits");
        assert_eq!(ManifestFile::open(&disk, false).expect("whole").1, long);
    }
}

/// A disk on which a process that was killed in this step of a publication left [`long`] in slot 1,
/// in a cache only; in the second step it is in slot 0, durably.
fn killed_in_step(step: u32, flush_failed: bool) -> SimulatedStorage {
    let (disk, _file) = created();
    let bytes = long().encode().expect("fits");
    let mut slot = AlignedBuffer::zeroed(bytes.len());
    slot[..bytes.len()].copy_from_slice(&bytes);
    let mode = OpenMode { create: false, read_only: false, direct: true };
    let raw = disk.open(MANIFEST_PATH, mode).expect("there");
    if step == 2 {
        raw.write_durable_at(0, &slot).expect("written");
    }
    raw.write_at(SLOT_BYTES as u64, &slot).expect("written");
    // The last write may be torn by the kill.
    let zeros = AlignedBuffer::zeroed(SECTOR_BYTES);
    raw.write_at((2 * SLOT_BYTES - SECTOR_BYTES) as u64, &zeros).expect("written");
    if flush_failed {
        fail_once(&disk, OperationKind::Flush, 0);
        raw.flush().expect_err("the disk fails");
    }
    disk.crash(CrashKind::Kill, disk.operations(), 1)
}

/// A process was killed between its write of a slot and the flush, or the flush failed: what is
/// read then is not on the disk, and a process that acts on it reuses blocks that only the previous
/// manifest names. And a slot that is left with that one wins should the newest rot.
#[test]
fn cached_manifest_is_made_durable_in_both_slots_at_open() {
    for flush_failed in [false, true] {
        let killed = killed_in_step(1, flush_failed);
        let before = killed.operations();
        let (_file, found) = ManifestFile::open(&killed, false).expect("opens");
        assert_eq!(found.generation, 2);
        for (at, seed) in (before..=killed.operations()).flat_map(|at| (0..20).map(move |seed| (at, seed))) {
            let cut = killed.crash(CrashKind::PowerCut, at, seed);
            let (_, again) = ManifestFile::open(&cut, true).expect("no step leaves none");
            if at == killed.operations() {
                assert_eq!(again, found, "flush failed: {flush_failed}, seed {seed}");
                for slot in 0..2 {
                    let one_rots = cut.duplicate();
                    damage(&one_rots, slot);
                    assert_eq!(ManifestFile::open(&one_rots, true).expect("the other slot").1, found);
                }
            }
        }
    }
}

/// Slots that read equal were taken for two durable ones, and the next publication began with the
/// only one that was durable: a power cut in it left the manifest before, whose blocks had been
/// used again, or none.
#[test]
fn cached_slot_is_made_durable_although_both_read_equal() {
    for flush_failed in [false, true] {
        let killed = killed_in_step(2, flush_failed);
        let before = killed.operations();
        let (file, found) = ManifestFile::open(&killed, false).expect("opens");
        assert_eq!(found.generation, 2);
        let mut next = long();
        // Other bytes in every sector, so that a torn write leaves no manifest.
        next.store.directory.reverse();
        file.publish(&next).expect("publishes");
        for (at, seed) in (before..=killed.operations()).flat_map(|at| (0..20).map(move |seed| (at, seed))) {
            let cut = killed.crash(CrashKind::PowerCut, at, seed);
            let (_, again) = ManifestFile::open(&cut, true).expect("one is whole");
            let what = format!("operation {at}, seed {seed}, flush failed: {flush_failed}");
            assert!(again.generation >= found.generation, "{what}: {}", again.generation);
        }
    }
}

/// Returns the number of operations of an open, as the holder of the lock.
fn operations_of_open(disk: &SimulatedStorage) -> usize {
    let lock = disk.lock(true).expect("free");
    let before = disk.operations();
    ManifestFile::open(disk, false).expect("opens");
    drop(lock);
    disk.operations() - before
}

#[test]
fn manifest_of_a_closed_database_is_not_written_again() {
    let (disk, file) = created();
    assert!(operations_of_open(&disk) > 0, "nobody has closed it");
    let close = |file: &ManifestFile| {
        let lock = disk.lock(true).expect("free");
        file.publish(&long()).expect("fits");
        ManifestFile::note_durable(&disk);
        drop(lock);
    };
    close(&file);
    assert_eq!(operations_of_open(&disk), 0);
    assert!(operations_of_open(&disk) > 0, "the open has not closed it");
    close(&file);
    let killed = disk.crash(CrashKind::Kill, disk.operations(), 1);
    assert_eq!(operations_of_open(&killed), 0, "killed after its close");
    let mut noted = 0;
    for seed in 0..20 {
        let cut = disk.crash(CrashKind::PowerCut, disk.operations(), seed);
        noted += u32::from(operations_of_open(&cut) == 0);
    }
    assert!((1..20).contains(&noted), "{noted}");
    edit(&disk, MANIFEST_PATH, |bytes| bytes[SLOT_BYTES - 1] = 1);
    assert!(operations_of_open(&disk) > 0, "something was written since");
}

/// Both slots are durable when nothing is written again at the open, so that a power cut in the
/// next publication leaves a manifest that is not older.
#[test]
fn publication_after_a_noted_close_never_goes_back() {
    let (disk, file) = created();
    let lock = disk.lock(true).expect("free");
    file.publish(&long()).expect("fits");
    ManifestFile::note_durable(&disk);
    drop(lock);
    let closed = disk.crash(CrashKind::Kill, disk.operations(), 1);
    let _lock = closed.lock(true).expect("free");
    let (file, found) = ManifestFile::open(&closed, false).expect("opens");
    assert_eq!(closed.operations(), 0, "nothing is written again");
    let mut next = long();
    next.store.directory.reverse();
    file.publish(&next).expect("publishes");
    for (at, seed) in (0..=closed.operations()).flat_map(|at| (0..40).map(move |seed| (at, seed))) {
        let cut = closed.crash(CrashKind::PowerCut, at, seed);
        let (_, again) = ManifestFile::open(&cut, true).expect("one is whole");
        assert!(again.generation >= found.generation, "operation {at}, seed {seed}: {}", again.generation);
        assert!(at < closed.operations() || again.generation == found.generation + 1);
    }
}

/// What was written over the newest manifest came from a second, unchecked read
/// of it.
#[test]
fn open_makes_the_decoded_bytes_durable() {
    let mut struck = 0;
    for (after, seed) in (0..8).flat_map(|after| (0..10).map(move |seed| (after, seed))) {
        let left = killed_in_step(1, false);
        let disk = left.crash(CrashKind::Kill, left.operations(), seed);
        disk.inject_mishap(Mishap { operation: OperationKind::Read, after, kind: MishapKind::Rot });
        let (_file, found) = ManifestFile::open(&disk, false).expect("one slot is whole");
        struck += disk.faults_struck();
        disk.heal();
        let killed = disk.crash(CrashKind::Kill, disk.operations(), seed);
        let (_, again) = ManifestFile::open(&killed, true).expect("opens");
        assert_eq!(again, found, "read {after} rots, seed {seed}");
    }
    assert!(struck >= 30, "{struck}");
}

#[test]
fn manifest_state_follows_the_content() {
    let disk = new_disk();
    let state = || manifest_state(&disk).expect("reads");
    assert_eq!(state(), ManifestState::Missing);
    ManifestFile::create(&disk, &Manifest::new(DATABASE, PAGE as u32)).expect("created");
    assert_eq!(state(), ManifestState::Written);
    let whole = disk.read_file(MANIFEST_PATH).expect("there");
    for slot in [0, 1] {
        damage(&disk, slot);
        assert_eq!(state(), ManifestState::Written, "only a checksum is wrong");
        disk.write_file(MANIFEST_PATH, &whole);
    }
    for blank in [0, 10, 4096, 2 * SLOT_BYTES] {
        disk.write_file(MANIFEST_PATH, &vec![0; blank]);
        assert_eq!(state(), ManifestState::Blank, "{blank} zeros");
    }
    let late = [vec![0; 5000], b"x".to_vec()].concat();
    let long = vec![0; 2 * SLOT_BYTES + 1];
    for foreign in [&b"important\n"[..], b"QUENCH", &late, &long, &[1; 10_000]] {
        disk.write_file(MANIFEST_PATH, foreign);
        assert_eq!(state(), ManifestState::Foreign, "{} bytes", foreign.len());
    }
}

/// The first write of a manifest was cut off behind its first sector. The next creation wrote its
/// pages; then a power cut took away that the manifest had been emptied, and not that it had got
/// its length: the manifest of one creation stood beside the pages of another.
#[test]
fn a_manifest_that_was_cut_off_does_not_come_back() {
    let (disk, _) = created();
    let start = disk.read_file(MANIFEST_PATH).expect("there")[..512].to_vec();
    let disk = new_disk();
    disk.write_file(MANIFEST_PATH, &start);
    assert_eq!(manifest_state(&disk).expect("reads"), ManifestState::Blank);
    ManifestFile::prepare(&disk).expect("an interrupted creation is taken over");
    PageStore::create(&disk, DatabaseId(DATABASE.0 + 1), PAGE).expect("created");
    let operations = disk.operations();
    for (at, seed) in (0..=operations).flat_map(|at| (0..64).map(move |seed| (at, seed))) {
        let crashed = disk.crash(CrashKind::PowerCut, at, seed);
        let state = manifest_state(&crashed).expect("reads");
        assert_eq!(state, ManifestState::Blank, "after {at} of {operations}, seed {seed}");
    }
}

#[test]
fn pages_state_follows_the_content() {
    let disk = new_disk();
    let state = || pages_state(&disk).expect("reads");
    assert_eq!(state(), PagesState::Missing);
    let store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
    assert_eq!(state(), PagesState::Blank);
    let header = disk.read_file(PAGES_PATH).expect("there");
    commit(&store, [1], 1);
    assert_eq!(state(), PagesState::Written);
    let mut changed = header.clone();
    changed[20] ^= 1;
    for (content, expected) in [
        (&header[..SECTOR_BYTES.min(PAGE)], PagesState::Blank),
        (&[0; 32_768][..], PagesState::Blank),
        (&[0; 40_000][..], PagesState::Foreign),
        (&changed[..], PagesState::Written),
        (&b"important\n"[..], PagesState::Foreign),
        (&[7; 300_000][..], PagesState::Foreign),
    ] {
        disk.write_file(PAGES_PATH, content);
        assert_eq!(state(), expected, "{} bytes", content.len());
    }
}

/// N5: the simulated disk reserves nothing inside a file, so the look at the file's length stands
/// for the reservation.
#[test]
fn space_of_a_manifest_is_reserved_before_it_is_written() {
    let full_disk = |disk: &SimulatedStorage, kind| {
        disk.inject(Fault { operation: OperationKind::Read, after: 0, kind, error: 28 });
    };
    let (disk, file) = created();
    let before = disk.operations();
    full_disk(&disk, FaultKind::ForEver);
    assert_eq!(file.reserve(&long()).expect_err("it is full").kind(), ErrorKind::OutOfSpace);
    assert_eq!(file.publish(&long()).expect_err("it is full").kind(), ErrorKind::OutOfSpace);
    let short = Manifest::new(DATABASE, PAGE as u32);
    assert_eq!(file.publish(&short).expect("it has its space"), 2);
    disk.heal();
    assert_eq!(file.read().expect("whole").generation, 2);
    // Nothing more than the manifest takes can be had.
    full_disk(&disk, FaultKind::Once);
    file.reserve(&long()).expect("it fits");
    full_disk(&disk, FaultKind::Once);
    assert_eq!(file.publish(&long()).expect("it has its space"), 3);
    disk.heal();
    assert_eq!(file.read().expect("whole").store, long().store);
    assert!(disk.operations() > before);
}
