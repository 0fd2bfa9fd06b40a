//! Packs and readers of checkpoints: no image is lost under a reader, and no block stays longer
//! than a reader needs it.

use super::*;
use crate::base::depth::is_deep;
use crate::base::random::Random;
use crate::base::settings::Compression;
use std::collections::BTreeMap;

const PAGES: u64 = 400;

/// Versions of pages.
type Versions = BTreeMap<u64, u64>;

/// A database that packs, and what is in it.
struct Life {
    disk: SimulatedStorage,
    storage: Arc<dyn Storage>,
    file: ManifestFile,
    manifest: Manifest,
    store: Arc<PageStore>,
    now: Versions,
    random: Random,
    version: u64,
}

impl Life {
    fn new(seed: u64) -> Life {
        let disk = SimulatedStorage::new(seed);
        PageStore::create(&disk, DATABASE, PAGE).expect("created");
        let manifest = Manifest::new(DATABASE, PAGE as u32);
        let file = ManifestFile::create(&disk, &manifest).expect("created");
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        let store = PageStore::claim(&*storage)
            .and_then(|file| PageStore::open(&storage, &manifest, file))
            .expect("opens");
        store.compress(Compression::Lz4);
        let random = Random::from_seed(seed);
        Life { disk, storage, file, manifest, store, now: Versions::new(), random, version: 0 }
    }

    /// Has images written, in packs or not.
    fn write(&mut self) -> Vec<Written> {
        self.version += 1;
        let (count, cold) = (1 + self.random.below(30), self.random.chance(3, 4));
        let mut writer = self.store.writer(&self.disk, 1 << 20).expect("a queue");
        for _ in 0..count {
            let (page, version) = (1 + self.random.below(PAGES), self.version);
            let heat = if cold { Heat::Cold } else { Heat::Hot };
            let pushed = writer.push(PageId(page), Csn(version), heat, |out| {
                out.copy_from_slice(&image(page, version));
                Some((ImageKind::Settled, version))
            });
            assert!(pushed.expect("writes"));
        }
        let mut written = Vec::new();
        writer.reap(true, &mut written).expect("writes");
        written
    }

    /// Pages that leave memory while a checkpoint is written: some of a pack belong to it, others
    /// to the next.
    fn checkpoint(&mut self) {
        let number = self.store.state.lock().checkpoint.epoch + 1;
        let checkpoint = self.store.begin_checkpoint(number, Csn(self.version)).expect("idle");
        let mut committed = self.now.clone();
        for Written { page, reference, token, .. } in self.write() {
            if self.random.chance(1, 3) {
                self.store.record(page, reference, false);
            } else {
                // The page may have got a newer one for the next checkpoint in between.
                checkpoint.record(page, reference);
                committed.insert(page.0, token);
            }
        }
        self.now.clone_from(&committed);
        let finished = checkpoint.finish().expect("finishes");
        self.manifest.store = finished.root().clone();
        let generation = self.file.publish(&self.manifest).expect("publishes");
        self.store.commit_checkpoint(finished.published_as(generation));
        // What counts now is what is in the tables.
        self.now = self.newest();
    }

    fn newest(&self) -> Versions {
        let versions = (1..=PAGES)
            .filter(|page| self.store.contains(PageId(*page)))
            .map(|page| (page, version_of(&self.store, page)));
        versions.map(|(page, version)| (page, version.expect("reads"))).collect()
    }

    fn evict(&mut self) {
        for Written { page, reference, .. } in self.write() {
            if self.random.chance(1, 5) {
                self.store.discard(reference);
            } else {
                self.store.record(page, reference, false);
            }
        }
    }

    /// Another writer, which knows nothing of the one before.
    fn reopen(&mut self) {
        let (_, newest) = ManifestFile::open(&self.disk, true).expect("published");
        self.store = PageStore::claim(&*self.storage)
            .and_then(|file| PageStore::open(&self.storage, &newest, file))
            .expect("opens");
        self.store.compress(Compression::Lz4);
    }
}

/// What a reader read when it opened its checkpoint.
fn all(store: &PageStore) -> Versions {
    let pages: Vec<PageId> = store.page_ids().collect();
    pages.into_iter().map(|page| (page.0, version_of(store, page.0).expect("reads"))).collect()
}

#[test]
fn readers_and_holds_see_their_checkpoints_beside_repacking() {
    for seed in 0..if is_deep() { 6 } else { 2 } {
        let mut life = Life::new(seed);
        (0..10).for_each(|_| life.checkpoint());
        let mut readers: Vec<(Arc<PageStore>, Versions)> = Vec::new();
        let mut holds: Vec<(HeldBlocks, Arc<PageStore>, Versions)> = Vec::new();
        for step in 0..200 {
            match life.random.below(16) {
                0 if readers.len() < 6 => {
                    let (_, reader) = PageStore::open_newest_checkpoint(&life.storage).expect("free");
                    let seen = all(&reader);
                    readers.push((reader, seen));
                }
                1 if holds.len() < 4 => {
                    // As a backup does: a hold, and the store as of the manifest.
                    let (_, manifest) = ManifestFile::open(&life.disk, true).expect("published");
                    let hold = life.store.hold();
                    let copy = PageStore::open_read_only(&life.disk, DATABASE, PAGE, &manifest.store)
                        .expect("opens");
                    let seen = all(&copy);
                    holds.push((hold, copy, seen));
                }
                2 if !readers.is_empty() => {
                    drop(readers.swap_remove(life.random.below(readers.len() as u64) as usize))
                }
                3 if !holds.is_empty() => {
                    drop(holds.swap_remove(life.random.below(holds.len() as u64) as usize))
                }
                4 => drop(Relocation::new(&life.store, &life.disk, &|| ()).repack(40).expect("repacks")),
                5 => {
                    let bound = life.store.disk_space().compact_blocks();
                    Relocation::new(&life.store, &life.disk, &|| ()).move_tail(bound, 40).expect("moves");
                }
                6 if holds.is_empty() => life.reopen(),
                7..=9 => life.evict(),
                _ => life.checkpoint(),
            }
            let of_holds = holds.iter().map(|(_, store, seen)| (store, seen));
            for (store, seen) in readers.iter().map(|(store, seen)| (store, seen)).chain(of_holds) {
                // Some each time, others the next time.
                for (page, version) in seen.iter().filter(|(page, _)| (*page + step) % 16 == 0) {
                    let found =
                        version_of(store, *page).unwrap_or_else(|e| panic!("seed {seed}, step {step}: {e}"));
                    assert_eq!(found, *version, "seed {seed}, step {step}, page {page}");
                }
            }
        }
        drop((readers, holds));
        life.checkpoint();
        assert_eq!(life.store.usage().held_blocks, 0, "seed {seed}");
        assert_eq!(life.store.check_space(), [""; 0], "seed {seed}");
        let used = life.store.usage().blocks - life.store.usage().free_blocks;
        let free = life.store.state.lock().blocks.free.fills.live(BlockNumber(0));
        assert_eq!((used, free), (super::packs::referred_to(&life.store), 1), "seed {seed}");
    }
}

#[test]
fn long_reader_of_packs_holds_only_its_checkpoint() {
    let mut life = Life::new(5);
    (0..30).for_each(|_| life.checkpoint());
    let (_, reader) = PageStore::open_newest_checkpoint(&life.storage).expect("free");
    let its = reader.usage().blocks - reader.usage().free_blocks;
    for _ in 0..200 {
        life.checkpoint();
        // What was on its way when the reader came may be held beside its checkpoint, until it
        // goes.
        assert!(life.store.usage().held_blocks <= its, "{:?}", life.store.usage());
    }
    drop(reader);
    life.checkpoint();
    assert_eq!(life.store.usage().held_blocks, 0);
}
