//! Packs: written, read, given back, damaged, copied, repacked.

use super::*;
use crate::base::random::Random;
use crate::base::settings::Compression;
use crate::device::Storage;
use std::collections::BTreeMap;

fn created(disk: &SimulatedStorage) -> Arc<PageStore> {
    let store = PageStore::create(disk, DATABASE, PAGE).expect("created");
    store.compress(Compression::Lz4);
    store
}

/// Has images written through a writer, those of `noise` incompressible; what became of them.
fn push(
    store: &Arc<PageStore>,
    disk: &SimulatedStorage,
    pages: &[(u64, u64)],
    heat: Heat,
    noise: Option<&mut Random>,
) -> Vec<Written> {
    let mut writer = store.writer(disk, 1 << 20).expect("a queue");
    let mut written = Vec::new();
    let mut noise = noise;
    for (page, version) in pages {
        let pushed = writer.push(PageId(*page), Csn(*version), heat, |out| {
            out.copy_from_slice(&image(*page, *version));
            if let Some(random) = &mut noise {
                out[BLOCK_HEADER_BYTES..].fill_with(|| random.below(256) as u8);
            }
            Some((ImageKind::Settled, *version))
        });
        assert!(pushed.expect("writes"));
    }
    writer.reap(true, &mut written).expect("writes");
    assert_eq!(written.len(), pages.len());
    written
}

/// As [`commit`], packed.
fn commit_packed(store: &Arc<PageStore>, disk: &SimulatedStorage, pages: &[(u64, u64)]) -> StoreRoot {
    let checkpoint = begin(store).expect("no other checkpoint");
    push(store, disk, pages, Heat::Cold, None).iter().for_each(|w| checkpoint.record(w.page, w.reference));
    let finished = checkpoint.finish().expect("the disk works");
    let root = finished.root().clone();
    store.commit_checkpoint(finished);
    root
}

fn pages(pages: std::ops::RangeInclusive<u64>, version: u64) -> Vec<(u64, u64)> {
    pages.map(|page| (page, version)).collect()
}

fn used(store: &PageStore) -> u64 {
    let usage = store.usage();
    usage.blocks - usage.free_blocks
}

#[test]
fn cold_images_share_blocks_and_are_read_with_any_setting() {
    let disk = new_disk();
    let store = created(&disk);
    let root = commit_packed(&store, &disk, &pages(1..=1000, 5));
    let packs = store.packs();
    assert_eq!((packs.images_packed, packs.live_images, packs.dead_images), (1000, 1000, 0));
    assert!(packs.packs < 100 && used(&store) < 110, "{packs:?}");
    assert_eq!((packs.bytes_before, packs.bytes_after), (1000 * 4096, packs.packs * 4096));
    for setting in Compression::ALL.into_iter().filter(|c| c.is_built_in()) {
        let store = reopen(&disk, &root).expect("opens");
        store.compress(setting);
        assert!((1..=1000).all(|page| version_of(&store, page).expect("reads") == 5));
        assert_eq!((store.packs().packs, store.usage()), (packs.packs, store.usage()));
        assert_eq!(store.check_space(), [""; 0]);
        let before = store.traffic().reads.get();
        let wanted: Vec<PageId> = (1..=1000).map(PageId).collect();
        let mut seen = vec![false; 1000];
        store.read_pages(&wanted, &mut |index, read| {
            let (kind, bytes) = read.expect("reads");
            let expected = image(index as u64 + 1, 5);
            assert_eq!((kind, &bytes[32..]), (ImageKind::Settled, &expected[32..]));
            seen[index] = true;
        });
        assert!(seen.iter().all(|seen| *seen));
        assert!(store.traffic().reads.get() - before < 100, "one read for what shares a block");
    }
}

#[test]
fn incompressible_or_single_images_get_their_own_blocks() {
    let disk = new_disk();
    let store = created(&disk);
    let mut random = Random::from_seed(3);
    let noisy = push(&store, &disk, &pages(1..=300, 1), Heat::Cold, Some(&mut random));
    let alone = push(&store, &disk, &[(301, 1)], Heat::Cold, None);
    let hot = push(&store, &disk, &pages(302..=310, 1), Heat::Hot, None);
    let written = [noisy, alone, hot].concat();
    written.iter().for_each(|w| store.record(w.page, w.reference, false));
    let blocks: std::collections::BTreeSet<_> = written.iter().map(|w| w.reference.block()).collect();
    assert_eq!((blocks.len(), store.packs().images_packed), (310, 0));
    assert_eq!(version_of(&store, 301).expect("reads"), 1);
    assert_eq!(store.check_space(), [""; 0]);
}

#[test]
fn pack_is_freed_with_its_last_image() {
    let disk = new_disk();
    let store = created(&disk);
    commit_packed(&store, &disk, &pages(1..=4, 1));
    let before = used(&store);
    let held = store.hold();
    for page in 1..=4 {
        commit(&store, [page], 2);
        assert!((page + 1..=4).all(|page| version_of(&store, page).expect("reads") == 1));
    }
    // Kept for the hold: the pack, a mapping and a directory block.
    assert_eq!((used(&store), store.usage().held_blocks), (before + 4 + 2, 3));
    drop(held);
    assert_eq!(used(&store), before - 1 + 4, "the pack is free, and each page has a block");
    let written = push(&store, &disk, &pages(1..=4, 3), Heat::Cold, None);
    store.record(PageId(2), written[1].reference, false);
    written.iter().filter(|w| w.page != PageId(2)).for_each(|w| store.discard(w.reference));
    assert_eq!((used(&store), version_of(&store, 2).expect("reads")), (before - 1 + 5, 3));
    store.freed(PageId(2), 0);
    assert_eq!(used(&store), before - 1 + 4);
    let written = push(&store, &disk, &pages(1..=4, 3), Heat::Cold, None);
    written.iter().for_each(|w| store.discard(w.reference));
    assert_eq!((used(&store), store.check_space()), (before - 1 + 4, vec![]));
}

/// Blocks that something in the tables refers to, and the file's header.
pub(super) fn referred_to(store: &PageStore) -> u64 {
    let state = store.state.lock();
    let images = [&state.images.in_checkpoint, &state.images.next].into_iter().flat_map(|overlay| {
        (0..overlay.part_count())
            .flat_map(|part| overlay.part(part).map(|(_, reference)| reference))
            .collect::<Vec<_>>()
    });
    let parts = 0..state.images.mapping.part_count();
    let mapped = parts.flat_map(|part| {
        state.images.mapping.copy_part(part).into_iter().chain([state.images.mapping.stored(part)])
    });
    let all = images.chain(mapped).chain(state.images.mapping.directory().iter().copied());
    let blocks: std::collections::BTreeSet<_> = all.map(BlockRef::block).collect();
    // 0 stands for the header and for what is absent.
    blocks.union(&[BlockNumber(0)].into()).count() as u64
}

#[test]
fn no_block_is_lost_or_shared_wrongly_in_a_long_random_life() {
    for seed in 0..6 {
        let disk = SimulatedStorage::new(seed);
        let mut random = Random::from_seed(seed);
        let mut store = created(&disk);
        let mut model = BTreeMap::new();
        let (mut root, mut at_root) = (store.root(), model.clone());
        for version in 1..400 {
            let some: Vec<(u64, u64)> =
                (0..1 + random.below(9)).map(|_| (1 + random.below(600), version)).collect();
            let heat = if random.chance(2, 3) { Heat::Cold } else { Heat::Hot };
            match random.below(12) {
                0 if version > 20 => {
                    // A crash: what is not in the checkpoint is gone.
                    store = reopen(&disk, &root).expect("opens");
                    store.compress(Compression::Lz4);
                    model = at_root.clone();
                }
                1..=2 => {
                    Relocation::new(&store, &disk, &|| ()).repack(40).expect("repacks");
                }
                3 => {
                    let bound = store.disk_space().compact_blocks();
                    Relocation::new(&store, &disk, &|| ()).move_tail(bound, 40).expect("moves");
                }
                4..=6 => {
                    let checkpoint = begin(&store).expect("idle");
                    for w in push(&store, &disk, &some, heat, None) {
                        checkpoint.record(w.page, w.reference);
                        model.insert(w.page.0, version);
                    }
                    if random.chance(1, 3) {
                        drop(checkpoint);
                    } else {
                        let finished = checkpoint.finish().expect("finishes");
                        (root, at_root) = (finished.root().clone(), model.clone());
                        store.commit_checkpoint(finished);
                    }
                }
                7 => {
                    for (page, _) in some {
                        store.freed(PageId(page), 0);
                        model.remove(&page);
                    }
                }
                _ => {
                    for w in push(&store, &disk, &some, heat, None) {
                        if random.chance(1, 4) {
                            store.discard(w.reference);
                        } else {
                            store.record(w.page, w.reference, false);
                            model.insert(w.page.0, version);
                        }
                    }
                }
            }
            assert_eq!(store.check_space(), [""; 0], "seed {seed}, version {version}");
            assert_eq!(used(&store), referred_to(&store), "seed {seed}, version {version}");
        }
        for page in 1..=600 {
            let found = store.contains(PageId(page)).then(|| version_of(&store, page).expect("reads"));
            assert_eq!(found, model.get(&page).copied(), "seed {seed}, page {page}");
        }
    }
}

#[test]
fn repacking_bounds_what_replaced_images_keep() {
    let disk = new_disk();
    let store = created(&disk);
    let mut random = Random::from_seed(9);
    let mut versions: BTreeMap<u64, u64> = (1..=2000).map(|page| (page, 1)).collect();
    commit_packed(&store, &disk, &pages(1..=2000, 1));
    let full = used(&store);
    // Most pages of each pack change, and one or two stay.
    for version in 2..30 {
        let some: Vec<u64> = (0..80).map(|_| 1 + random.below(1900)).collect();
        commit(&store, some.iter().copied(), version);
        versions.extend(some.into_iter().map(|page| (page, version)));
    }
    let hot = versions.values().filter(|version| **version > 1).count() as u64;
    let before = used(&store);
    assert!(store.packs().sparse_packs > 10, "{:?}", store.packs());
    while Relocation::new(&store, &disk, &|| ()).repack(64).expect("repacks") > 0 {}
    commit(&store, [], 0);
    assert_eq!(store.packs().sparse_packs, 0);
    let packs = store.packs();
    assert!(
        used(&store) < before && used(&store) < full / 2 + hot + 60,
        "{before}, {full}, {hot}: {packs:?}"
    );
    assert!(packs.dead_images <= packs.live_images, "{packs:?}");
    assert!(versions.iter().all(|(page, version)| version_of(&store, *page).expect("reads") == *version));
    assert_eq!(store.check_space(), [""; 0]);
}

#[test]
fn compaction_packs_images_and_keeps_their_checksums() {
    let disk = new_disk();
    let store = created(&disk);
    commit(&store, 1..=900, 1);
    let before = store.references();
    let bound = 40;
    while Relocation::new(&store, &disk, &|| ()).move_tail(bound, 512).expect("moves") > 0 {}
    commit(&store, 1..=30, 2);
    while Relocation::new(&store, &disk, &|| ()).move_tail(bound, 512).expect("moves") > 0 {}
    commit(&store, [], 3);
    let moved = store.references();
    let same = before.iter().zip(&moved).filter(|(a, b)| a.1.means_same_as(b.1)).count();
    assert!((870..900).contains(&same), "{same}");
    assert!((31..=900).all(|page| version_of(&store, page).expect("reads") == 1));
    assert!(store.packs().images_packed > 100, "{:?}", store.packs());
    assert!(used(&store) < 900, "{} blocks", used(&store));
}

#[test]
fn flipped_byte_of_a_pack_is_an_error_that_names_the_page() {
    let disk = new_disk();
    let store = created(&disk);
    let root = commit_packed(&store, &disk, &pages(1..=200, 1));
    let reference = store.state.lock().images.look_up(PageId(1));
    let of_pack =
        |reference: BlockRef| store.state.lock().images.look_up(PageId(1)).block() == reference.block();
    let start = reference.block().0 as usize * PAGE;
    for at in (0..PAGE).step_by(7) {
        edit(&disk, PAGES_PATH, |bytes| bytes[start + at] ^= 0x20);
        let damaged = reopen(&disk, &root).expect("opens");
        for page in [1, 200] {
            let in_pack = of_pack(damaged.state.lock().images.look_up(PageId(page)));
            match version_of(&damaged, page) {
                Ok(version) => assert!(!in_pack && version == 1, "byte {at}"),
                Err(error) => {
                    assert_eq!((error.kind(), in_pack), (ErrorKind::Corruption, true), "byte {at}: {error}");
                    assert!(error.to_string().contains(&format!("page {page}")), "{error}");
                }
            }
        }
        edit(&disk, PAGES_PATH, |bytes| bytes[start + at] ^= 0x20);
    }
    assert_eq!(version_of(&store, 1).expect("whole again"), 1);
}

#[test]
fn packs_with_wrong_directories_and_right_checksums_are_errors() {
    let disk = new_disk();
    let store = created(&disk);
    let root = commit_packed(&store, &disk, &pages(1..=40, 1));
    let block = store.state.lock().images.look_up(PageId(1)).block();
    let start = block.0 as usize * PAGE;
    let whole = disk.read_file(PAGES_PATH).expect("there")[start..start + PAGE].to_vec();
    let mut random = Random::from_seed(4);
    let (mut refused, mut found) = (0, 0);
    for _ in 0..3000 {
        let mut pack = whole.clone();
        for _ in 0..=random.below(3) {
            let at = [8, 32 + random.below(300), random.below(4096)][random.below(3) as usize] as usize;
            pack[at] = random.below(256) as u8;
        }
        let crc = crate::base::checksum::crc(&pack[4..]);
        pack[..4].copy_from_slice(&crc.to_le_bytes());
        let mut out = vec![0; PAGE];
        match pack::unpack(&pack, DATABASE, PageId(1), store.state.lock().images.look_up(PageId(1)), &mut out)
        {
            // What was changed is not of this page.
            Ok(_) => {
                assert_eq!(out[32..], image(1, 1)[32..]);
                found += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 100 && found > 100, "{refused} {found}");
    drop(reopen(&disk, &root).expect("opens"));
}

#[test]
fn an_older_pack_in_the_place_of_a_newer_one_is_a_lost_write() {
    let disk = new_disk();
    let store = created(&disk);
    commit_packed(&store, &disk, &pages(1..=3, 1));
    let block = store.state.lock().images.look_up(PageId(1)).block();
    let start = block.0 as usize * PAGE;
    let old = disk.read_file(PAGES_PATH).expect("there")[start..start + PAGE].to_vec();
    commit_packed(&store, &disk, &pages(1..=3, 2));
    let root = commit_packed(&store, &disk, &pages(1..=3, 3));
    assert_eq!(store.state.lock().images.look_up(PageId(1)).block(), block, "used again");
    edit(&disk, PAGES_PATH, |bytes| bytes[start..start + PAGE].copy_from_slice(&old));
    let error = version_of(&reopen(&disk, &root).expect("opens"), 2).expect_err("old");
    assert!(
        error.to_string().contains("a write was lost") && error.to_string().contains("page 2"),
        "{error}"
    );
}

#[test]
fn missing_codec_is_refused_at_open_with_the_place() {
    let disk = new_disk();
    let store = created(&disk);
    let root = commit_packed(&store, &disk, &pages(1..=9, 1));
    assert_eq!(root.codecs, Codecs(1));
    let error = reopen(&disk, &StoreRoot { codecs: Codecs(5), ..root.clone() }).expect_err("bit 2");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains(PAGES_PATH), "{error}");
    let zstd = reopen(&disk, &StoreRoot { codecs: Codecs(3), ..root });
    assert_eq!(zstd.is_ok(), Compression::Zstd.is_built_in());
    if let Err(error) = zstd {
        assert!(error.to_string().contains("feature `zstd`"), "{error}");
    }
}

#[test]
fn reserve_suffices_to_write_packed_images_alone() {
    let disk = new_disk();
    let store = created(&disk);
    let all = pages(1..=600, 1);
    commit_packed(&store, &disk, &all);
    let demand = Arc::new(Demand::default());
    demand.page_ids.store(700, std::sync::atomic::Ordering::Relaxed);
    store.disk_space().keep_reserve(demand.clone(), crate::base::clock::Clock::real());
    for _ in &all {
        store.disk_space().reserve(ReservedFor::Change).expect("room");
        demand.dirty.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    // From now on nothing more: all pages stay dirty, and are written packed or alone by one
    // checkpoint after the other.
    let len = disk.read_file(PAGES_PATH).expect("there").len() as u64;
    let others: u64 = disk
        .files()
        .iter()
        .filter(|f| *f != PAGES_PATH)
        .map(|f| disk.read_file(f).map_or(0, |b| b.len() as u64))
        .sum();
    disk.set_capacity(Some(len + others));
    for version in 2..14 {
        let checkpoint = begin(&store).expect("idle");
        let heat = if version % 3 == 0 { Heat::Cold } else { Heat::Hot };
        let some: Vec<(u64, u64)> = all.iter().map(|(page, _)| (*page, version)).collect();
        push(&store, &disk, &some, heat, None).iter().for_each(|w| checkpoint.record(w.page, w.reference));
        let finished = checkpoint.finish().expect("there is room for it");
        store.commit_checkpoint(finished);
    }
    assert!(all.iter().all(|(page, _)| version_of(&store, *page).expect("reads") == 13));
}

#[test]
fn salvage_finds_images_in_packs_without_a_mapping() {
    let disk = new_disk();
    let manifest = Manifest::new(DATABASE, PAGE as u32);
    let file = ManifestFile::create(&disk, &manifest).expect("created");
    let store = created(&disk);
    commit_packed(&store, &disk, &pages(1..=50, 1));
    let root = commit_packed(&store, &disk, &pages(1..=20, 2));
    file.publish(&Manifest { store: root, ..manifest }).expect("publishes");
    let version = |image: &AlignedBuffer| u64::from(image[32]);
    let look =
        |disk: &SimulatedStorage| SalvageScan::look(disk as &dyn Storage, &mut |_, _, _| ()).expect("looks");
    let remains = look(&disk);
    for page in 1..=50 {
        let images = remains.images(PageId(page));
        let versions: Vec<u64> = images.iter().map(|(_, image)| version(image)).collect();
        assert_eq!(versions, [if page <= 20 { 2 } else { 1 }], "page {page}: what the mapping says");
    }
    disk.remove_file(MANIFEST_PATH);
    let remains = look(&disk);
    for page in 1..=20 {
        let found: Vec<(Csn, u64)> =
            remains.images(PageId(page)).iter().map(|(csn, image)| (*csn, version(image))).collect();
        assert_eq!(found, [(Csn(2), 2), (Csn(1), 1)], "page {page}: newest first");
    }
}
