//! How much was replaced, and how long the file is kept for what it needed.

use super::*;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::thread;

/// A new image of a page, outside any checkpoint or while one runs.
fn replace(store: &Arc<PageStore>, page: u64, version: u64, in_round: bool) {
    let block = store.write_block(BlockKind::Page, page, &mut image(page, version), Csn(version));
    store.record(PageId(page), block.expect("the disk works"), in_round);
}

fn replaced(store: &PageStore) -> (u64, u64) {
    let space = store.disk_space().measure();
    assert_eq!(store.usage().replaced, space.replaced + space.in_checkpoint);
    (space.replaced, space.in_checkpoint)
}

#[test]
fn what_the_next_checkpoint_gives_back_is_counted() {
    let store = PageStore::create(&new_disk(), DATABASE, PAGE).expect("created");
    commit(&store, 1..=100, 1);
    let live = store.disk_space().measure().live;
    assert_eq!(replaced(&store), (0, 0));
    (1..=10).for_each(|page| replace(&store, page, 2, false));
    replace(&store, 1, 3, false);
    assert_eq!(replaced(&store), (10, 0), "an image that no checkpoint has is given back at once");
    replace(&store, 200, 2, false);
    assert_eq!(replaced(&store), (10, 0), "a new page replaces nothing");
    assert_eq!(store.disk_space().measure().live, live + 1);
    let checkpoint = begin(&store).expect("idle");
    assert_eq!(replaced(&store), (0, 10));
    replace(&store, 20, 4, true);
    replace(&store, 1, 4, false);
    replace(&store, 200, 4, false);
    assert_eq!(replaced(&store), (2, 11), "what the checkpoint has is replaced for the next");
    let free = store.usage().free_blocks;
    let finished = checkpoint.finish().expect("the disk works");
    let taken = free - store.usage().free_blocks;
    store.commit_checkpoint(finished);
    assert_eq!(replaced(&store), (2, 0));
    // The old mapping block and the old directory block besides.
    assert_eq!(store.usage().free_blocks, free - taken + 11 + 2);
    assert_eq!(store.disk_space().measure().live, live + 1);
}

#[test]
fn an_abandoned_round_counts_for_the_next() {
    let store = PageStore::create(&new_disk(), DATABASE, PAGE).expect("created");
    commit(&store, 1..=50, 1);
    let checkpoint = begin(&store).expect("idle");
    (1..=5).for_each(|page| replace(&store, page, 2, true));
    replace(&store, 60, 2, true);
    replace(&store, 5, 3, false);
    replace(&store, 60, 3, false);
    assert_eq!(replaced(&store), (2, 5));
    drop(checkpoint);
    assert_eq!(replaced(&store), (5, 0), "page 60 is in no checkpoint");
    commit(&store, [], 0);
    assert_eq!(replaced(&store), (0, 0));
}

/// The counts, and what they are from the tables.
fn counted_and_there(store: &PageStore) -> [(u64, u64); 2] {
    let state = store.state.lock();
    let count = |overlay: &Overlay, replaced: &dyn Fn(PageId) -> BlockRef| {
        let parts = 0..overlay.part_count();
        let pages = parts
            .flat_map(|part| overlay.part(part).map(move |(slot, _)| (part, slot)))
            .map(|(part, slot)| state.images.mapping.id(part, slot));
        pages.filter(|page| !replaced(*page).is_absent()).count() as u64
    };
    let stored = |page| state.images.mapping.get(page);
    let older = |page| state.images.in_checkpoint.get(page).unwrap_or_else(|| stored(page));
    let there = (count(&state.images.next, &older), count(&state.images.in_checkpoint, &stored));
    [(state.images.replaced.next, state.images.replaced.in_checkpoint), there]
}

fn assert_counts_are_exact(store: &PageStore, context: &str) {
    let [counted, there] = counted_and_there(store);
    assert_eq!(counted, there, "{context}");
}

/// The first image of a page was still on its way into the checkpoint when a second one, for the
/// next, was there: that replaced nothing, then. Given up, the checkpoint took from the count what
/// had never been counted.
#[test]
fn image_recorded_below_a_newer_one_is_counted() {
    let store = PageStore::create(&new_disk(), DATABASE, PAGE).expect("created");
    commit(&store, 1..=50, 1);
    for give_up in [true, false] {
        let checkpoint = begin(&store).expect("idle");
        replace(&store, 7, 2, false);
        replace(&store, 60, 3, false);
        let number = store.state.lock().checkpoint.epoch;
        store.freed(PageId(61), number);
        (60..=61).for_each(|page| write(&store, &checkpoint, page, 2).expect("the disk works"));
        assert_counts_are_exact(&store, "open");
        assert_eq!(replaced(&store).0, 3);
        if give_up {
            drop(checkpoint);
        } else {
            store.commit_checkpoint(checkpoint.finish().expect("the disk works"));
        }
        assert_counts_are_exact(&store, &format!("given up: {give_up}"));
    }
}

/// A checkpoint is abandoned, or becomes the mapping, part by part, and other threads continue
/// between two parts.
#[test]
fn the_counts_are_exact_whatever_happens_while_a_round_ends() {
    let store = PageStore::create(&new_disk(), DATABASE, PAGE).expect("created");
    commit(&store, (1..=6000).step_by(7), 1);
    let mut random = crate::base::random::Random::from_seed(3);
    for n in 0..24 {
        for _ in 0..300 {
            replace(&store, random.below(6000), n, false);
            store.freed(PageId(random.below(6000)), u32::MAX);
        }
        let checkpoint = begin(&store).expect("idle");
        let arriving: Vec<u64> = (0..200).map(|_| random.below(6000)).collect();
        for page in arriving.iter().chain(&(0..200).map(|_| random.below(6000)).collect::<Vec<_>>()) {
            replace(&store, *page, n, false);
        }
        for page in arriving {
            write(&store, &checkpoint, page, n).expect("the disk works");
        }
        for _ in 0..50 {
            checkpoint.record(PageId(random.below(6000)), BlockRef::ABSENT);
        }
        assert_counts_are_exact(&store, &format!("{n}, open"));
        std::thread::scope(|scope| {
            let others = (0..2).map(|other| {
                let store = &store;
                let mut random = crate::base::random::Random::from_seed(n * 2 + other);
                scope.spawn(move || {
                    for turn in 0..300 {
                        replace(store, random.below(6000), n, false);
                        store.freed(PageId(random.below(6000)), u32::MAX);
                        if turn % 16 == 0 {
                            assert_counts_are_exact(store, &format!("{n}, ending"));
                        }
                    }
                })
            });
            let others: Vec<_> = others.collect();
            if n % 3 > 0 {
                drop(checkpoint);
            } else {
                store.commit_checkpoint(checkpoint.finish().expect("the disk works"));
            }
            others.into_iter().for_each(|other| other.join().expect("no panic"));
        });
        assert_counts_are_exact(&store, &format!("{n}"));
    }
    assert_eq!(store.check_space(), Vec::<String>::new());
}

#[test]
fn listener_is_notified_of_replaced_images_now_and_then() {
    let store = PageStore::create(&new_disk(), DATABASE, PAGE).expect("created");
    commit(&store, 1..=1000, 1);
    let told = Arc::new(AtomicUsize::new(0));
    let count = told.clone();
    store.disk_space().on_replaced(Box::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    (1..=640).for_each(|page| replace(&store, page, 2, false));
    assert!((19..=21).contains(&told.load(Ordering::Relaxed)), "{told:?}");
    commit(&store, [], 0);
    let before = told.load(Ordering::Relaxed);
    replace(&store, 1, 3, false);
    assert_eq!(told.load(Ordering::Relaxed), before + 1, "the first after a checkpoint");
}

/// A store of 4000 pages that had to have room for 1500 more.
fn grown() -> (Arc<PageStore>, Clock) {
    let store = PageStore::create(&new_disk(), DATABASE, PAGE).expect("created");
    let (clock, demand) = (Clock::manual(), Arc::new(Demand::default()));
    store.disk_space().keep_reserve(demand.clone(), clock.clone());
    commit(&store, 1..=4000, 1);
    demand.dirty.store(1500, Ordering::Relaxed);
    store.disk_space().reserve(ReservedFor::Change).expect("a large disk");
    demand.dirty.store(0, Ordering::Relaxed);
    (store, clock)
}

#[test]
fn the_file_is_as_long_as_it_had_to_be_lately_and_no_longer() {
    let (store, clock) = grown();
    let length_after = |seconds| {
        clock.advance(std::time::Duration::from_secs(seconds));
        commit(&store, [1], 2);
        store.usage().blocks
    };
    let lengths = [0, 10, 10, 20, 40].map(length_after);
    assert!(lengths[..3].iter().all(|blocks| *blocks > 5500), "{lengths:?}");
    assert!(lengths[4] < 4500, "{lengths:?}");
}

#[test]
fn a_file_of_which_most_is_free_is_cut_at_once() {
    let (store, _clock) = grown();
    let checkpoint = begin(&store).expect("idle");
    (2..=4000).for_each(|page| checkpoint.record(PageId(page), BlockRef::ABSENT));
    let finished = checkpoint.finish().expect("the disk works");
    store.commit_checkpoint(finished);
    commit(&store, [1], 2);
    commit(&store, [1], 3);
    assert!(store.usage().blocks < 500, "{:?}", store.usage());
}

#[test]
fn a_closed_database_is_as_long_as_what_is_in_it() {
    let (store, _clock) = grown();
    store.disk_space().forget_recent_need();
    commit(&store, [1], 2);
    assert!(store.usage().blocks < 4500, "{:?}", store.usage());
}

/// A file cut to a quarter of free blocks and the reserve of so many dirty pages.
fn half_empty(disk: &SimulatedStorage, dirty: u64) -> (Arc<PageStore>, Arc<Demand>) {
    let store = PageStore::create(disk, DATABASE, PAGE).expect("created");
    let demand = Arc::new(Demand::default());
    store.disk_space().keep_reserve(demand.clone(), Clock::manual());
    commit(&store, 1..=1000, 1);
    let checkpoint = begin(&store).expect("idle");
    (2..=500).step_by(2).for_each(|page| checkpoint.record(PageId(page), BlockRef::ABSENT));
    store.commit_checkpoint(checkpoint.finish().expect("the disk works"));
    demand.dirty.store(dirty, Ordering::Relaxed);
    store.disk_space().reserve(ReservedFor::Change).expect("a large disk");
    store.disk_space().cut_free_end().expect("the disk works");
    (store, demand)
}

/// Once the file was cut to what was in use, and images moved into the blocks that were left in it,
/// although a transaction in progress had been promised that what it had made dirty could be
/// written.
#[test]
fn compacting_leaves_the_reserve_to_what_is_dirty() {
    let disk = new_disk();
    let (store, demand) = half_empty(&disk, 300);
    let kept = store.usage().free_blocks;
    assert!((300..400).contains(&kept), "{kept}");
    // The store does not know yet that there is no more.
    disk.set_capacity(Some(0));
    assert!(!store.disk_space().is_disk_full());
    assert_eq!(Relocation::new(&store, &disk, &|| ()).move_tail(700, 1000).expect("the disk works"), 0);
    assert_eq!(store.usage().free_blocks, kept);
    // Written, it is not needed any more.
    demand.dirty.store(0, Ordering::Relaxed);
    assert!(Relocation::new(&store, &disk, &|| ()).move_tail(700, 1000).expect("the disk works") > 100);
    commit(&store, [], 0);
    store.disk_space().cut_free_end().expect("the disk works");
    let end = store.state.lock().blocks.free.bitmap.used_end();
    // A checkpoint writes a catalog.
    assert!(store.usage().blocks <= end + 1 && end < 1100, "{:?}", store.usage());
}

/// Clean pages were written, for their stamps, into blocks that were kept for dirty ones.
#[test]
fn clean_pages_leave_the_reserve_and_request_a_checkpoint() {
    let disk = new_disk();
    let (store, demand) = half_empty(&disk, 300);
    disk.set_capacity(Some(0));
    store.disk_space().check_blocks_for_clean(1).expect_err("all is kept");
    assert!(!store.disk_space().is_checkpoint_wanted(), "a checkpoint would give nothing back");
    // These were dirty, and have left memory.
    (501..551).for_each(|page| replace(&store, page, 2, false));
    demand.dirty.fetch_sub(50, Ordering::Relaxed);
    let told = Arc::new(AtomicUsize::new(0));
    let count = told.clone();
    store.disk_space().on_replaced(Box::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    let refused = store.disk_space().check_blocks_for_clean(1).expect_err("all is kept");
    assert_eq!(refused.kind(), ErrorKind::OutOfSpace);
    assert!(store.disk_space().is_checkpoint_wanted() && told.load(Ordering::Relaxed) == 1);
    let clean = |page| {
        store.write_block(BlockKind::StampedPage, page, &mut image(page, 3), Csn(3)).expect("a free block")
    };
    let late = clean(560);
    assert!(!store.record_clean(PageId(560), late, false), "others were promised its block meanwhile");
    store.discard(late);
    assert_eq!(replaced(&store), (50, 0));
    commit(&store, [], 0);
    assert!(!store.disk_space().is_checkpoint_wanted());
    store.disk_space().check_blocks_for_clean(40).expect("so many have come back");
    let image = clean(560);
    assert!(store.record_clean(PageId(560), image, false));
    assert_eq!((replaced(&store), version_of(&store, 560).expect("reads")), ((1, 0), 3));
}

/// What was being moved counted as blocks that would come back, and batch after batch took from the
/// reserve what was in flight.
#[test]
fn images_that_are_on_the_move_are_not_taken_for_free_blocks() {
    for seed in 0..8 {
        let disk = SimulatedStorage::new(seed);
        let (store, _demand) = half_empty(&disk, 100);
        disk.set_capacity(Some(0));
        assert!(Relocation::new(&store, &disk, &|| ()).move_tail(700, 1000).expect("the disk works") > 0);
        let kept = store.space.kept(&store.state.lock());
        assert!(store.usage().free_blocks >= kept, "seed {seed}: {:?}, {kept} kept", store.usage());
    }
}

/// The disk had not been asked since it was filled, so evicted pages took the blocks that a
/// checkpoint needed.
#[test]
fn checkpoint_keeps_its_blocks_before_a_full_disk_is_noticed() {
    let disk = new_disk();
    let store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
    let demand = Arc::new(Demand::default());
    store.disk_space().keep_reserve(demand.clone(), Clock::manual());
    demand.dirty.store(300, Ordering::Relaxed);
    store.disk_space().reserve(ReservedFor::Change).expect("a large disk");
    let checkpoint = begin(&store).expect("idle");
    assert!(store.disk_space().has_block_for_eviction());
    disk.set_capacity(Some(0));
    let mut pages = 1..;
    while store.usage().free_blocks > 300 {
        write(&store, &checkpoint, pages.next().expect("endless"), 1).expect("a free block");
    }
    assert!(!store.disk_space().is_disk_full(), "nobody has asked");
    assert!(!store.disk_space().has_block_for_eviction());
    assert!(store.disk_space().is_disk_full());
    checkpoint.close();
    assert!(store.disk_space().has_block_for_eviction(), "its images are made");
    // As if each page were in another part of the mapping.
    demand.page_ids.store(1 << 30, Ordering::Relaxed);
    assert!(!store.disk_space().has_block_for_eviction(), "it writes its mapping");
    disk.set_capacity(None);
    assert!(store.disk_space().has_block_for_eviction(), "the file grows");
    demand.page_ids.store(0, Ordering::Relaxed);
    store.commit_checkpoint(checkpoint.finish().expect("the disk works"));
    assert!(store.disk_space().has_block_for_eviction(), "nothing needs them now");
}

/// A store with 300 dirty pages on a checkpoint's way, all but a few of its blocks written, on a
/// disk that has `spare` blocks more.
fn in_a_checkpoint(disk: &SimulatedStorage, spare: u64) -> (Arc<PageStore>, OpenCheckpoint, Clock) {
    let store = PageStore::create(disk, DATABASE, PAGE).expect("created");
    let (clock, demand) = (Clock::manual(), Arc::new(Demand::default()));
    store.disk_space().keep_reserve(demand.clone(), clock.clone());
    demand.dirty.store(300, Ordering::Relaxed);
    store.disk_space().reserve(ReservedFor::Change).expect("a large disk");
    let checkpoint = begin(&store).expect("idle");
    let mut pages = 1..;
    while store.usage().free_blocks > 50 {
        write(&store, &checkpoint, pages.next().expect("endless"), 1).expect("a free block");
    }
    let taken: usize = disk.files().iter().map(|path| disk.read_file(path).expect("there").len()).sum();
    disk.set_capacity(Some(taken as u64 + spare * PAGE as u64));
    (store, checkpoint, clock)
}

/// The disk was asked for all that the checkpoint could need of pages that it had imaged and that
/// stayed dirty. It did not have so much, and no page left memory until the end of the checkpoint.
#[test]
fn pages_leave_beside_a_round_while_the_disk_has_space_for_them() {
    let disk = new_disk();
    let (store, _round, _clock) = in_a_checkpoint(&disk, 10);
    for page in 1000..1010 {
        assert!(store.disk_space().has_block_for_eviction(), "page {page}");
        let free = store.usage().free_blocks;
        replace(&store, page, 1, false);
        store.space.reserve.get().expect("kept").demand.dirty.fetch_sub(1, Ordering::Relaxed);
        assert!((50..=60).contains(&free), "{free}: the checkpoint has what it had");
    }
    assert_eq!(store.usage().free_blocks, 50);
    assert!(!store.disk_space().has_block_for_eviction(), "the disk is full");
}

/// The blocks of a running eviction counted as free, as they soon were. A checkpoint on a full disk
/// that needed them a moment earlier failed.
#[test]
fn a_round_on_a_full_disk_waits_for_blocks_that_are_with_others() {
    let disk = new_disk();
    let (store, checkpoint, _clock) = in_a_checkpoint(&disk, 0);
    let push = |writer: &mut ImageWriter, page| {
        writer.push(PageId(page), Csn(1), Heat::Hot, |out| {
            out.copy_from_slice(&image(page, 1)[..out.len()]);
            Some((ImageKind::Settled, 0))
        })
    };
    let mut evicts = store.writer(&disk, 1 << 30).expect("a queue");
    for page in 1000.. {
        if store.usage().free_blocks == 0 {
            break;
        }
        assert!(push(&mut evicts, page).expect("a free block"));
    }
    let mut writes = checkpoint.writer(&disk, 1 << 20).expect("a queue");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(std::time::Duration::from_millis(50));
            drop(evicts);
        });
        assert!(push(&mut writes, 1).expect("blocks come back"));
    });
    let mut written = Vec::new();
    writes.reap(true, &mut written).expect("the disk works");
    assert_eq!(written.len(), 1);
    // Its own do not.
    let mut more = 2000..;
    let refused = loop {
        if let Err(error) = push(&mut writes, more.next().expect("endless")) {
            break error;
        }
    };
    assert_eq!(refused.kind(), ErrorKind::OutOfSpace);
    drop(writes);
    checkpoint.write_blob(b"a catalog").expect("blocks have come back");
}

/// Pages that were imaged and are dirty again kept all others in memory while the mapping was
/// written and the manifest published.
#[test]
fn a_round_whose_images_are_made_keeps_what_its_mapping_takes() {
    let disk = new_disk();
    let (store, checkpoint, _clock) = in_a_checkpoint(&disk, 0);
    assert!(!store.disk_space().has_block_for_eviction());
    checkpoint.close();
    assert!(store.disk_space().has_block_for_eviction());
    store.commit_checkpoint(checkpoint.finish().expect("blocks are kept"));
}

/// A disk that was found full by a thread that was not refused for it was reported as full for
/// ever.
#[test]
fn a_disk_that_was_full_beside_a_round_is_asked_again() {
    let disk = new_disk();
    let (store, _round, clock) = in_a_checkpoint(&disk, 0);
    let second = std::time::Duration::from_secs(1);
    assert!(!store.disk_space().has_block_for_eviction());
    assert!(store.disk_space().is_disk_full() && store.disk_space().has_refused(second));
    disk.set_capacity(None);
    clock.advance(second);
    store.disk_space().ask_again();
    assert!(!store.disk_space().is_disk_full());
}

/// Whatever the file system said was taken for a full disk.
#[test]
fn an_error_that_is_no_full_disk_keeps_no_page_in_memory() {
    let disk = new_disk();
    let (store, _round, _clock) = in_a_checkpoint(&disk, 0);
    disk.set_capacity(None);
    disk.inject(Fault { operation: OperationKind::Write, after: 0, kind: FaultKind::ForEver, error: 5 });
    assert!(store.disk_space().has_block_for_eviction());
    assert!(!store.disk_space().is_disk_full());
    disk.heal();
}

/// With nothing dirty and no image on the move the file was cut to what was in use, and the catalog
/// of the next checkpoint had no place.
#[test]
fn compacted_file_has_space_for_a_checkpoint_without_a_table() {
    let disk = new_disk();
    let store = PageStore::create(&disk, DATABASE, PAGE).expect("created");
    let demand = Arc::new(Demand::default());
    demand.page_ids.store(1001, Ordering::Relaxed);
    store.disk_space().keep_reserve(demand, Clock::manual());
    commit(&store, 1..=1000, 1);
    let checkpoint = begin(&store).expect("idle");
    checkpoint.write_blob(b"a catalog").expect("the disk is large");
    store.commit_checkpoint(checkpoint.finish().expect("the disk works"));
    store.disk_space().cut_free_end().expect("the disk works");
    disk.set_capacity(Some(0));
    let checkpoint = begin(&store).expect("idle");
    [1, 1000].into_iter().for_each(|page| checkpoint.record(PageId(page), BlockRef::ABSENT));
    checkpoint.write_blob(b"a catalog").expect("a block is kept");
    store.commit_checkpoint(checkpoint.finish().expect("blocks are kept"));
}

/// What was asked for counted when the page had become dirty, which is later: threads that asked at
/// once were all promised the same blocks.
#[test]
fn what_is_promised_to_many_threads_at_once_is_there_for_each() {
    const THREADS: usize = 400;
    let disk = new_disk();
    let (store, demand) = half_empty(&disk, 300);
    demand.dirty.store(100, Ordering::Relaxed);
    disk.set_capacity(Some(0));
    let (asked, promised) = (std::sync::Barrier::new(THREADS), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let granted = store.disk_space().reserve(ReservedFor::Change);
                asked.wait();
                if granted.is_ok() {
                    promised.fetch_add(1, Ordering::Relaxed);
                    demand.dirty.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let checkpoint = begin(&store).expect("idle");
    for page in 501..501 + demand.dirty.load(Ordering::Relaxed) {
        write(&store, &checkpoint, page, 2).expect("a block was promised");
    }
    checkpoint.write_blob(b"a catalog").expect("blocks are kept");
    store.commit_checkpoint(checkpoint.finish().expect("blocks are kept"));
    assert!((1..THREADS).contains(&promised.into_inner()));
}

#[test]
fn nothing_is_left_to_threads_that_have_ended() {
    let (store, _demand) = half_empty(&new_disk(), 100);
    let kept = || store.space.kept(&store.state.lock());
    let before = kept();
    store.disk_space().reserve(ReservedFor::Change).expect("a large disk");
    assert_eq!(kept(), before, "this thread had asked already");
    std::thread::scope(|scope| {
        let ask = || store.disk_space().reserve(ReservedFor::Change).map(|()| kept());
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(ask).join()).collect();
        for kept in threads {
            assert_eq!(kept.expect("no panic").expect("a large disk"), before + 8);
        }
    });
    assert_eq!(kept(), before);
}
