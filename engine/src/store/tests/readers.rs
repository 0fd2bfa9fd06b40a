//! Slots of readers: which blocks they hold, whatever their content.

use super::*;
use crate::base::TableId;
use crate::device::{DeviceFacts, Directory, DurabilityMethod, EntryKind, File, WriteQueue};
use crate::store::manifest::open_newest_checkpoint;
use crate::store::manifest::reader_slots::{READERS_MAX, READERS_PATH};
use crate::store::{Manifest, ManifestFile, Readers};
use crate::sync::atomic::{AtomicUsize, Ordering};

fn database() -> (SimulatedStorage, ManifestFile, Manifest) {
    let disk = new_disk();
    PageStore::create(&disk, DATABASE, PAGE).expect("created");
    let manifest = Manifest::new(DATABASE, PAGE as u32);
    let file = ManifestFile::create(&disk, &manifest).expect("created");
    (disk, file, manifest)
}

fn readers(disk: &SimulatedStorage) -> Readers {
    Readers::new(Arc::new(disk.clone()), DATABASE)
}

fn slot(disk: &SimulatedStorage, number: usize) -> Arc<dyn File> {
    let mode = OpenMode { create: true, read_only: false, direct: false };
    disk.open(&format!("{READERS_PATH}/{number:02}"), mode).expect("opens")
}

#[test]
fn readers_are_listed_with_their_generation_until_dropped() {
    let (disk, file, mut manifest) = database();
    assert_eq!(readers(&disk).generations(), [0; 0]);
    let (first, first_slot) = open_newest_checkpoint(&disk).expect("free");
    (manifest.checkpoint, manifest.next_csn) = (Csn(7), Csn(8));
    let generation = file.publish(&manifest).expect("publishes");
    let (second, second_slot) = open_newest_checkpoint(&disk).expect("free");
    assert_eq!((first.generation, second.generation), (1, generation));
    let listed = readers(&disk).list().expect("listed");
    let expected = [(1, Csn::ZERO), (generation, Csn(7))];
    assert_eq!(listed.iter().map(|reader| (reader.generation, reader.csn)).collect::<Vec<_>>(), expected);
    assert!(listed.iter().all(|reader| reader.process == std::process::id()));
    drop(first_slot);
    assert_eq!(readers(&disk).generations(), [generation]);
    drop(second_slot);
    assert_eq!(readers(&disk).generations(), [0; 0], "what dead readers leave is ignored");
}

#[test]
fn too_many_readers_are_told_so() {
    let (disk, ..) = database();
    let mut open: Vec<_> =
        (0..READERS_MAX).map(|_| open_newest_checkpoint(&disk).expect("a free slot").1).collect();
    let error = open_newest_checkpoint(&disk).expect_err("one too many");
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.to_string().contains("64 readers"), "{error}");
    open.swap_remove(20);
    open_newest_checkpoint(&disk).expect("a slot is free again");
}

#[test]
fn a_locked_slot_that_says_nothing_holds_everything() {
    let (disk, ..) = database();
    let (_, reader) = open_newest_checkpoint(&disk).expect("free");
    let whole = disk.read_file("readers/00").expect("made");
    drop(reader);
    let slot = slot(&disk, 0);
    assert!(slot.try_lock().expect("works"));
    assert_eq!(readers(&disk).generations(), [1]);
    for at in 0..whole.len() {
        // The version is not covered by the checksum, so that any newer one is known to be that.
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        disk.write_file("readers/00", &damaged);
        assert_eq!(readers(&disk).generations(), [0], "byte {at}");
        disk.write_file("readers/00", &whole[..at]);
        assert_eq!(readers(&disk).generations(), [0], "cut at {at}");
    }
    disk.write_file("readers/00", &whole);
    let other = Readers::new(Arc::new(disk.clone()), DatabaseId(77));
    assert_eq!(other.generations(), [0; 0], "a reader of what was here before");
    drop(slot);
    disk.write_file("readers/00", b"nonsense");
    assert_eq!(readers(&disk).generations(), [0; 0], "nobody has it locked");
}

/// A page in a checkpoint of its own, published.
fn make_checkpoint(
    store: &Arc<PageStore>,
    file: &ManifestFile,
    manifest: &mut Manifest,
    page: u64,
    version: u64,
) {
    let checkpoint = store.begin_checkpoint(version as u32, Csn(version)).expect("no other");
    write(store, &checkpoint, page, version).expect("the disk works");
    let finished = checkpoint.finish().expect("the disk works");
    manifest.store = finished.root().clone();
    (manifest.checkpoint, manifest.next_csn) = (Csn(version), Csn(version + 1));
    let generation = file.publish(manifest).expect("the disk works");
    store.commit_checkpoint(finished.published_as(generation));
}

#[test]
fn blocks_of_a_reader_are_not_used_before_it_has_gone() {
    let (disk, file, mut manifest) = database();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let mut store = PageStore::claim(&*storage)
        .and_then(|file| PageStore::open(&storage, &manifest, file))
        .expect("opens");
    make_checkpoint(&store, &file, &mut manifest, 1, 1);
    let (_, reader) = PageStore::open_newest_checkpoint(&storage).expect("free");
    for version in 2..60 {
        if version % 20 == 0 {
            // Another writer, which knows nothing of the earlier one.
            let (_, newest) = ManifestFile::open(&disk, true).expect("published");
            drop(store);
            store = PageStore::claim(&*storage)
                .and_then(|file| PageStore::open(&storage, &newest, file))
                .expect("opens");
        }
        make_checkpoint(&store, &file, &mut manifest, 1, version);
        assert_eq!(version_of(&reader, 1).unwrap_or_else(|error| panic!("version {version}: {error}")), 1);
    }
    let held = store.usage().held_blocks;
    assert!(held > 0, "{:?}", store.usage());
    (60..100).for_each(|version| make_checkpoint(&store, &file, &mut manifest, 1, version));
    assert!(store.usage().held_blocks <= held + 4, "no more than its checkpoint, however long it stays");
    drop(reader);
    make_checkpoint(&store, &file, &mut manifest, 1, 100);
    assert_eq!(store.usage().held_blocks, 0);
}

/// A process was killed between the two slots of a publication, a reader opened its checkpoint, and
/// then the slot was lost: the next process found the manifest before it, and used the blocks that
/// only the lost one named.
#[test]
fn a_reader_of_a_manifest_that_was_lost_keeps_its_blocks() {
    let (disk, file, mut manifest) = database();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let open = |manifest: &Manifest| {
        PageStore::claim(&*storage).and_then(|file| PageStore::open(&storage, manifest, file)).expect("opens")
    };
    let store = open(&manifest);
    make_checkpoint(&store, &file, &mut manifest, 1, 1);
    let checkpoint = store.begin_checkpoint(2, Csn(2)).expect("no other");
    write(&store, &checkpoint, 2, 2).expect("the disk works");
    let finished = checkpoint.finish().expect("the disk works");
    manifest.store = finished.root().clone();
    fail_once(&disk, OperationKind::Write, 1);
    finished.undecided(&file.publish(&manifest).expect_err("killed"));
    drop(store);
    let (newest, reader) = PageStore::open_newest_checkpoint(&storage).expect("free");
    assert_eq!(newest.generation, 3);
    fail_once(&disk, OperationKind::Read, 1);
    let (file, mut manifest) = ManifestFile::open(&disk, false).expect("the other slot");
    assert_eq!(manifest.generation, 2);
    let store = open(&manifest);
    for version in 3..60 {
        make_checkpoint(&store, &file, &mut manifest, version % 3 + 1, version);
        for page in 1..3 {
            let read = version_of(&reader, page);
            assert_eq!(read.unwrap_or_else(|error| panic!("version {version}: {error}")), page);
        }
    }
    drop(reader);
    make_checkpoint(&store, &file, &mut manifest, 1, 60);
    assert_eq!(store.usage().held_blocks, 0);
}

/// The manifest that was lost was known to be lost only to the first process that opened the
/// database then: that made both slots alike. The next one gave its generation to another, and what
/// the reader needed counted as no part of that.
#[test]
fn generation_of_a_reader_is_never_reused_by_later_opens() {
    let (disk, file, mut manifest) = database();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let open = |manifest: &Manifest| {
        PageStore::claim(&*storage).and_then(|file| PageStore::open(&storage, manifest, file)).expect("opens")
    };
    let store = open(&manifest);
    make_checkpoint(&store, &file, &mut manifest, 1, 1);
    let checkpoint = store.begin_checkpoint(2, Csn(2)).expect("no other");
    write(&store, &checkpoint, 2, 2).expect("the disk works");
    let finished = checkpoint.finish().expect("the disk works");
    manifest.store = finished.root().clone();
    fail_once(&disk, OperationKind::Write, 1);
    finished.undecided(&file.publish(&manifest).expect_err("killed"));
    drop(store);
    let (newest, reader) = PageStore::open_newest_checkpoint(&storage).expect("free");
    fail_once(&disk, OperationKind::Read, 1);
    drop(ManifestFile::open(&disk, false).expect("the other slot"));
    let (file, mut manifest) = ManifestFile::open(&disk, false).expect("both slots");
    assert_eq!((manifest.generation, newest.generation), (2, 3));
    let store = open(&manifest);
    for version in 3..60 {
        make_checkpoint(&store, &file, &mut manifest, version % 3 + 1, version);
        for page in 1..3 {
            let read = version_of(&reader, page);
            assert_eq!(read.unwrap_or_else(|error| panic!("version {version}: {error}")), page);
        }
    }
    drop(reader);
    make_checkpoint(&store, &file, &mut manifest, 1, 60);
    assert_eq!(store.usage().held_blocks, 0);
}

#[test]
fn slot_of_an_impossible_generation_holds_every_block() {
    let (disk, _, manifest) = database();
    let slot = slot(&disk, 0);
    assert!(slot.try_lock().expect("works"));
    let mut bytes = [0; 44];
    bytes[..8].copy_from_slice(b"QUENCHRD");
    bytes[8] = 1;
    bytes[16..24].copy_from_slice(&DATABASE.0.to_le_bytes());
    bytes[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
    let check = crate::base::checksum::crc(&bytes[16..]);
    bytes[12..16].copy_from_slice(&check.to_le_bytes());
    disk.write_file("readers/00", &bytes);
    assert_eq!(readers(&disk).generations(), [0]);
    let (file, _) = ManifestFile::open(&disk, false).expect("both slots");
    assert_eq!(file.publish(&manifest).expect("the disk works"), 3, "one may have been lost");
}

/// A disk on which another manifest stands in the place of the first when that has been read.
#[derive(Debug)]
struct Replacing {
    disk: SimulatedStorage,
    bytes: Vec<u8>,
    opened: AtomicUsize,
}

impl Directory for Replacing {
    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        if path == MANIFEST_PATH && self.opened.fetch_add(1, Ordering::Relaxed) > 0 {
            self.disk.write_file(path, &self.bytes);
        }
        self.disk.open(path, mode)
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.disk.remove(path)
    }

    fn entries(&self, directory: &str) -> Result<Vec<(String, EntryKind)>> {
        self.disk.entries(directory)
    }

    fn create_directory(&self, path: &str) -> Result<()> {
        self.disk.create_directory(path)
    }

    fn flush_directory(&self, directory: &str) -> Result<()> {
        self.disk.flush_directory(directory)
    }
}

impl Storage for Replacing {
    fn lock(&self, exclusive: bool) -> Result<Box<dyn Send + Sync>> {
        self.disk.lock(exclusive)
    }

    fn facts(&self) -> DeviceFacts {
        self.disk.facts()
    }

    fn durability(&self) -> DurabilityMethod {
        self.disk.durability()
    }

    fn write_queue(&self, depth: usize) -> Result<Box<dyn WriteQueue>> {
        self.disk.write_queue(depth)
    }
}

/// What was read first was lost, and another manifest got its generation before the reader looked
/// again: it would have read pages of neither.
#[test]
fn a_reader_compares_the_whole_manifest() {
    let (disk, ..) = database();
    let other = SimulatedStorage::new(8);
    let manifest = Manifest { next_table: TableId(9), ..Manifest::new(DATABASE, PAGE as u32) };
    ManifestFile::create(&other, &manifest).expect("created");
    let bytes = other.read_file(MANIFEST_PATH).expect("there");
    let replacing = Replacing { disk, bytes, opened: AtomicUsize::new(0) };
    let (found, _slot) = open_newest_checkpoint(&replacing).expect("free");
    assert_eq!((found.generation, found.next_table), (1, TableId(9)));
}

#[test]
fn full_disk_gets_the_space_of_ended_readers() {
    let (disk, file, mut manifest) = database();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let store = PageStore::claim(&*storage)
        .and_then(|file| PageStore::open(&storage, &manifest, file))
        .expect("opens");
    make_checkpoint(&store, &file, &mut manifest, 1, 1);
    let (_, reader) = PageStore::open_newest_checkpoint(&storage).expect("free");
    (2..10).for_each(|version| make_checkpoint(&store, &file, &mut manifest, 1, version));
    let (held, blocks) = (store.usage().held_blocks, store.usage().blocks);
    assert!(held > 2);
    let checkpoint = store.begin_checkpoint(10, Csn(10)).expect("no other");
    (0..store.usage().free_blocks).for_each(|page| write(&store, &checkpoint, page + 2, 10).expect("free"));
    disk.set_capacity(Some(0));
    let error = write(&store, &checkpoint, 1, 10).expect_err("the disk is full");
    assert_eq!(error.kind(), ErrorKind::OutOfSpace);
    drop(reader);
    write(&store, &checkpoint, 1, 10).expect("there is space");
    assert_eq!((store.usage().blocks, store.usage().held_blocks), (blocks, 0));
}
