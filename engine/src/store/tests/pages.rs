//! Writing, reading, releasing and doubting pages.

use super::*;
use crate::base::depth::is_deep;

#[test]
fn committed_pages_are_read_back_after_reopening() {
    let disk = new_disk();
    let store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
    commit(&store, 1..=1200, 1);
    let root = commit(&store, (1..=1200).step_by(7), 2);
    let reopened = reopen(&disk, &root).expect("opens");
    for page in 1..=1200 {
        let expected = if page % 7 == 1 { 2 } else { 1 };
        assert_eq!(version_of(&reopened, page).expect("reads"), expected);
    }
    assert_eq!(reopened.page_ids().collect::<Vec<_>>(), (1..=1200).map(PageId).collect::<Vec<_>>());
    assert_eq!(reopened.usage(), store.usage());
    assert!(!reopened.contains(PageId(0)) && !reopened.contains(PageId(1201)));
}

#[test]
fn a_checkpoint_of_one_page_writes_one_part_of_the_mapping() {
    let disk = new_disk();
    let store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
    commit(&store, 1..=5000, 1);
    let checkpoint = begin(&store).expect("idle");
    let free = store.usage().free_blocks;
    write(&store, &checkpoint, 700, 2).expect("writes");
    let finished = checkpoint.finish().expect("finishes");
    assert_eq!(free - store.usage().free_blocks, 3, "the page, a mapping block, the directory block");
    store.commit_checkpoint(finished);
    assert_eq!(store.usage().free_blocks, free, "and the blocks they replaced are free again");
}

#[test]
fn reads_see_the_open_checkpoint_also_after_it_is_abandoned() {
    let disk = new_disk();
    let store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
    commit(&store, [1, 2], 1);
    let before = store.usage();
    let checkpoint = begin(&store).expect("idle");
    write(&store, &checkpoint, 1, 2).expect("writes");
    write(&store, &checkpoint, 1, 3).expect("writes");
    checkpoint.record(PageId(2), BlockRef::ABSENT);
    write(&store, &checkpoint, 9, 3).expect("writes");
    assert_eq!(version_of(&store, 1).expect("reads"), 3);
    assert!(!store.contains(PageId(2)) && store.contains(PageId(9)));
    let durable = store.root();
    drop(checkpoint);
    let still = reopen(&disk, &durable).expect("opens");
    assert_eq!((version_of(&still, 1).expect("reads"), still.contains(PageId(2))), (1, true), "R1");
    assert_eq!(version_of(&store, 1).expect("reads"), 3);
    assert!(!store.contains(PageId(2)) && store.contains(PageId(9)), "S5");
    let root = commit(&store, [9], 4);
    let reopened = reopen(&disk, &root).expect("opens");
    assert_eq!((version_of(&reopened, 1).expect("reads"), version_of(&reopened, 9).expect("reads")), (3, 4));
    assert_eq!(reopened.usage(), store.usage());
    assert_eq!((store.usage().pages, before.pages), (2, 2));
}

#[test]
fn image_for_the_next_checkpoint_is_read_but_not_committed() {
    let disk = new_disk();
    let store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
    commit(&store, [1, 2, 3], 1);
    let next = |page: u64, version: u64, in_round: bool| {
        let mut image = image(page, version);
        let reference = store.write_block(BlockKind::Page, page, &mut image, Csn(9)).expect("writes");
        store.record(PageId(page), reference, in_round);
    };
    next(1, 2, false);
    let checkpoint = begin(&store).expect("idle");
    next(2, 3, true);
    next(1, 4, false);
    store.freed(PageId(3), 2);
    checkpoint.close();
    next(2, 5, true);
    let finished = checkpoint.finish().expect("finishes");
    let root = finished.root().clone();
    store.commit_checkpoint(finished);
    let checkpoint = reopen(&disk, &root).expect("opens");
    let versions = |store: &PageStore| [1, 2].map(|page| version_of(store, page).expect("reads"));
    assert_eq!((versions(&checkpoint), checkpoint.contains(PageId(3))), ([2, 3], true));
    assert_eq!((versions(&store), store.contains(PageId(3))), ([4, 5], false));
    let root = commit(&store, [], 0);
    let checkpoint = reopen(&disk, &root).expect("opens");
    assert_eq!((versions(&checkpoint), checkpoint.contains(PageId(3))), ([4, 5], false));
    assert_eq!(checkpoint.usage(), store.usage(), "no block is lost");
}

/// A page got its first image in a checkpoint, and was freed while that was being written. The
/// removal was forgotten, since there was no image to remove yet; then the image arrived, and
/// stayed in all later checkpoints, in no table.
#[test]
fn page_freed_during_its_first_write_is_not_in_the_checkpoint() {
    let disk = new_disk();
    let store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
    commit(&store, [1], 1);
    let checkpoint = begin(&store).expect("idle");
    let number = store.state.lock().checkpoint.epoch;
    store.freed(PageId(2), number);
    write(&store, &checkpoint, 2, 1).expect("writes");
    let finished = checkpoint.finish().expect("finishes");
    let root = finished.root().clone();
    store.commit_checkpoint(finished);
    assert!(reopen(&disk, &root).expect("opens").contains(PageId(2)), "as of the checkpoint it was there");
    assert!(!store.contains(PageId(2)));
    let next = reopen(&disk, &commit(&store, [1], 2)).expect("opens");
    assert!(!next.contains(PageId(2)));
    assert_eq!(next.usage(), store.usage(), "no block is lost");
}

#[test]
fn images_are_written_adjacently_and_reported_when_complete() {
    let disk = new_disk();
    let store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
    let mut writer = store.writer(&disk, 1 << 20).expect("a queue");
    let checkpoint = begin(&store).expect("idle");
    let mut written = Vec::new();
    for page in 1..=500 {
        let wanted = page % 10 != 0;
        let pushed = writer.push(PageId(page), Csn(1), Heat::Hot, |out| {
            out.copy_from_slice(&image(page, 6));
            wanted.then_some((ImageKind::Stamped, page + 7))
        });
        assert_eq!(pushed.expect("writes"), wanted);
        writer.reap(false, &mut written).expect("writes");
    }
    writer.reap(true, &mut written).expect("writes");
    assert_eq!(written.len(), 450);
    for image in written {
        assert_eq!((image.token, image.kind), (image.page.0 + 7, ImageKind::Stamped));
        checkpoint.record(image.page, image.reference);
    }
    assert!(store.traffic().writes.get() < 100, "{} writes", store.traffic().writes.get());
    drop(writer);
    let finished = checkpoint.finish().expect("finishes");
    let root = finished.root().clone();
    store.commit_checkpoint(finished);
    let reopened = reopen(&disk, &root).expect("opens");
    assert!(
        (1..=500).filter(|page| page % 10 != 0).all(|page| version_of(&reopened, page).expect("reads") == 6)
    );
    assert_eq!(reopened.usage(), store.usage(), "no block is lost");
}

/// A writer that is given up after a failed write stopped waiting for the others at the next one
/// that failed. Their blocks, neither returned nor recorded, counted as available for ever: on a
/// full disk space was promised that did not exist.
#[test]
fn dropped_writer_with_failed_writes_keeps_no_block() {
    let give_up = |seed: u64, fault: Fault| {
        let disk = SimulatedStorage::new(seed);
        let store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
        // One page to a write.
        let mut writer = store.writer(&disk, 17 * PAGE as u64).expect("a queue");
        writer.push(PageId(1), Csn(1), Heat::Hot, |_| Some((ImageKind::Settled, 0))).expect("the disk works");
        disk.inject(fault);
        let pushed = (2..=12).try_for_each(|page| {
            writer.push(PageId(page), Csn(1), Heat::Hot, |_| Some((ImageKind::Settled, 0))).map(drop)
        });
        drop(writer);
        assert!(disk.faults_struck() > 0);
        assert_eq!(store.state.lock().blocks.in_flight.returning(), 0, "seed {seed}, {fault:?}");
        pushed
    };
    for seed in 0..8 {
        let fails =
            Fault { operation: OperationKind::Write, after: seed, kind: FaultKind::ForEver, error: 5 };
        give_up(seed, fails).expect("no write has been looked at");
        let fails = Fault { operation: OperationKind::Open, after: seed, kind: FaultKind::Once, error: 5 };
        give_up(seed, fails).expect_err("a write could not be begun");
    }
}

#[test]
fn removed_pages_give_back_their_blocks_and_the_mapping_shrinks() {
    let disk = new_disk();
    let store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
    commit(&store, 1..=2000, 1);
    let checkpoint = begin(&store).expect("idle");
    (1..=2000).for_each(|page| checkpoint.record(PageId(page), BlockRef::ABSENT));
    checkpoint.record(PageId(77_777), BlockRef::ABSENT);
    let finished = checkpoint.finish().expect("finishes");
    let root = finished.root().clone();
    store.commit_checkpoint(finished);
    assert_eq!(root, StoreRoot::default());
    assert_eq!(store.usage().free_blocks, store.usage().blocks - 1, "all but the header");
    assert_eq!(reopen(&disk, &root).expect("opens").page_ids().count(), 0);
}

#[test]
fn blocks_of_the_last_checkpoint_are_not_reused_before_commit() {
    let disk = new_disk();
    let store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
    let old = commit(&store, 1..=50, 1);
    let checkpoint = begin(&store).expect("idle");
    for version in 2..6 {
        (1..=50).for_each(|page| write(&store, &checkpoint, page, version).expect("writes"));
    }
    let finished = checkpoint.finish().expect("finishes");
    let previous = reopen(&disk, &old).expect("I8: the old root is whole");
    assert!((1..=50).all(|page| version_of(&previous, page).expect("reads") == 1));
    store.commit_checkpoint(finished);
    assert!((1..=50).all(|page| version_of(&store, page).expect("reads") == 5));
}

#[test]
fn one_round_at_a_time_and_none_after_an_undecided_one() {
    let disk = new_disk();
    let store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
    let checkpoint = begin(&store).expect("idle");
    assert_eq!(begin(&store).expect_err("open").kind(), ErrorKind::Busy);
    let finished = checkpoint.finish().expect("finishes");
    assert_eq!(begin(&store).expect_err("finished").kind(), ErrorKind::Busy);
    store.abandon_checkpoint(finished);
    let finished = begin(&store).expect("idle again").finish().expect("finishes");
    drop(finished);
    assert_eq!(begin(&store).expect_err("undecided").kind(), ErrorKind::Poisoned);
}

#[test]
fn full_disk_error_is_sticky_and_keeps_the_old_checkpoint() {
    let disk = new_disk();
    let store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
    let root = commit(&store, 1..=100, 1);
    // What the file has already can be written.
    disk.set_capacity(Some(150 * PAGE as u64));
    let checkpoint = begin(&store).expect("idle");
    let failed = (1000..2000).find_map(|page| write(&store, &checkpoint, page, 2).err()).expect("it is full");
    assert_eq!(failed.kind(), ErrorKind::OutOfSpace);
    assert_eq!(checkpoint.write_blob(b"catalog").expect_err("R2").kind(), ErrorKind::OutOfSpace);
    assert_eq!(checkpoint.finish().expect_err("R2").kind(), ErrorKind::OutOfSpace);
    assert!((1..=100).all(|page| version_of(&store, page).expect("reads") == 1));
    assert_eq!(reopen(&disk, &root).expect("opens").usage().pages, 100);
    disk.set_capacity(None);
    commit(&store, 1..=100, 3);
    assert_eq!(version_of(&store, 100).expect("reads"), 3);
}

#[test]
fn a_failed_write_sticks_and_a_failed_flush_ends_checkpoints() {
    let disk = new_disk();
    let store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
    let checkpoint = begin(&store).expect("idle");
    fail_once(&disk, OperationKind::Write, 0);
    assert_eq!(checkpoint.write_blob(b"catalog").expect_err("fails").kind(), ErrorKind::Io);
    assert_eq!(checkpoint.write_blob(b"catalog").expect_err("R2").kind(), ErrorKind::Io);
    assert_eq!(checkpoint.finish().expect_err("R2").kind(), ErrorKind::Io);
    let checkpoint = begin(&store).expect("a failed write is not a failed flush");
    write(&store, &checkpoint, 1, 1).expect("writes");
    fail_once(&disk, OperationKind::Flush, 0);
    assert_eq!(checkpoint.finish().expect_err("the flush fails").kind(), ErrorKind::Io);
    assert_eq!(begin(&store).expect_err("S4").kind(), ErrorKind::Poisoned);
}

#[test]
fn damaged_page_is_corruption_that_names_page_and_offset() {
    let disk = new_disk();
    let store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
    commit(&store, [1, 2, 3], 1);
    let at = |block: usize| block * PAGE..(block + 1) * PAGE;
    let corrupt = |page: u64, offset: u64, says: &str| {
        let error = version_of(&store, page).expect_err("damaged");
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert_eq!(error.location(), Some(&Location::Page { page: PageId(page), offset }));
        assert!(error.to_string().contains(says), "{error}");
    };
    edit(&disk, PAGES_PATH, |bytes| bytes.copy_within(at(2), PAGE));
    corrupt(1, 4096, "number 2, expected Page number 1");
    edit(&disk, PAGES_PATH, |bytes| bytes[2 * PAGE + 100] ^= 1);
    corrupt(2, 8192, "checksum");
    edit(&disk, PAGES_PATH, |bytes| bytes[at(3)].fill(0));
    corrupt(3, 12288, "never written");
    let missing = store.read_page(PageId(4), &mut image(4, 0)).expect_err("no image");
    assert_eq!(missing.kind(), ErrorKind::Corruption);
}

#[test]
fn damage_of_mapping_catalog_or_header_is_found_at_open() {
    let disk = new_disk();
    let store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
    let checkpoint = begin(&store).expect("idle");
    (1..=600).for_each(|page| write(&store, &checkpoint, page, 1).expect("writes"));
    checkpoint.write_blob(&[7; 9000]).expect("writes");
    let finished = checkpoint.finish().expect("finishes");
    let root = finished.root().clone();
    store.commit_checkpoint(finished);
    // Blocks: header, 600 pages, 3 of the catalog, 2 of the mapping, 1 of the directory.
    for block in [0, 601, 602, 603, 604, 605, 606] {
        for at in (0..PAGE).step_by(if is_deep() { 41 } else { 409 }) {
            edit(&disk, PAGES_PATH, |bytes| bytes[block * PAGE + at] ^= 0x41);
            let error = reopen(&disk, &root).expect_err("damaged");
            assert_eq!(error.kind(), ErrorKind::Corruption, "block {block} byte {at}: {error}");
            assert!(error.location().is_some());
            edit(&disk, PAGES_PATH, |bytes| bytes[block * PAGE + at] ^= 0x41);
        }
    }
    reopen(&disk, &root).expect("undamaged again");
}

#[test]
fn references_outside_the_file_or_used_twice_are_corruption() {
    let disk = new_disk();
    let store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
    let root = commit(&store, 1..=600, 1);
    let with = |directory: Vec<BlockRef>| StoreRoot { directory, ..root.clone() };
    let good = root.directory[0];
    for directory in [
        vec![BlockRef(u64::MAX)],
        vec![BlockRef(1)],
        vec![good, good],
        vec![BlockRef((5 << 24) | 77)],
        Vec::new(),
    ] {
        let error = reopen(&disk, &with(directory)).expect_err("wrong");
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    }
    edit(&disk, PAGES_PATH, |bytes| bytes.truncate(300 * PAGE));
    assert_eq!(reopen(&disk, &root).expect_err("cut").kind(), ErrorKind::Corruption);
}

#[test]
fn the_store_of_another_database_or_page_size_is_refused() {
    let disk = new_disk();
    PageStore::create(&disk, DATABASE, PAGE).expect("created");
    let root = StoreRoot::default();
    let other = open_as(&disk, DatabaseId(1), PAGE, &root).expect_err("other database");
    assert!(other.to_string().contains("belongs to database"), "{other}");
    let size = open_as(&disk, DATABASE, 8192, &root).expect_err("other size");
    assert_eq!(size.kind(), ErrorKind::Corruption);
}

#[test]
fn catalog_survives_checkpoints_that_do_not_write_it() {
    let disk = new_disk();
    let store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
    for (round_number, len) in [0usize, 1, 4056, 4057, 100_000].into_iter().enumerate() {
        let bytes: Vec<u8> = (0..len).map(|at| (at * 31 + round_number) as u8).collect();
        let checkpoint = begin(&store).expect("idle");
        checkpoint.write_blob(b"replaced in the same checkpoint").expect("writes");
        checkpoint.write_blob(&bytes).expect("writes");
        store.commit_checkpoint(checkpoint.finish().expect("finishes"));
        let root = commit(&store, [1], 1);
        let reopened = reopen(&disk, &root).expect("opens");
        assert_eq!(reopened.usage(), store.usage(), "no block is lost");
        let catalog = root.catalog.expect("a catalog");
        assert_eq!(reopened.read_blob(&catalog).expect("reads"), bytes);
    }
}

#[test]
fn many_threads_write_a_round_while_others_read() {
    let disk = new_disk();
    let store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
    commit(&store, 1..=200, 1);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for offset in 0..2 {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || {
                let mut newest = [0; 201];
                for page in (1..=200u64).cycle().skip(offset * 100) {
                    let version = version_of(store, page).expect("a page is always there");
                    assert!(version >= newest[page as usize], "no checkpoint was abandoned");
                    newest[page as usize] = version;
                    if stop.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        for version in 2..12 {
            let checkpoint = begin(&store).expect("idle");
            std::thread::scope(|writers| {
                for writer in 0..2 {
                    let (store, checkpoint) = (&store, &checkpoint);
                    writers.spawn(move || {
                        (1..=200).filter(|page| page % 2 == writer).for_each(|page| {
                            write(store, checkpoint, page, version).expect("writes");
                        });
                    });
                }
            });
            store.commit_checkpoint(checkpoint.finish().expect("finishes"));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!((1..=200).all(|page| version_of(&store, page).expect("reads") == 11));
}

#[test]
fn a_large_mapping_is_loaded_by_several_threads() {
    let disk = new_disk();
    let store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
    // One page in each part: 600 mapping blocks under two directory blocks.
    let root = commit(&store, (0..600).map(|part| part * 508 + 3), 1);
    assert_eq!(root.directory.len(), 2);
    let reopened = reopen(&disk, &root).expect("opens");
    assert_eq!(reopened.page_ids().count(), 600);
    assert_eq!(version_of(&reopened, 599 * 508 + 3).expect("reads"), 1);
}

#[test]
fn a_sample_of_pages_is_from_all_over_the_store_and_bounded() {
    let store = PageStore::create(&new_disk(), DATABASE, PAGE).expect("created");
    assert_eq!(store.sample_pages(64), []);
    commit(&store, [7], 1);
    assert_eq!(store.sample_pages(64), [PageId(7)]);
    commit(&store, 1..=5000, 2);
    let sample = store.sample_pages(64);
    assert!((32..=64).contains(&sample.len()), "{sample:?}");
    assert!(sample.is_sorted() && sample.iter().all(|page| store.contains(*page)));
    assert!(sample[0].0 < 200 && sample[sample.len() - 1].0 > 4000, "{sample:?}");
    assert_eq!(store.sample_pages(3).len(), 3);
}
