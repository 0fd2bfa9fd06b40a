//! The tree against a model, under concurrency, and against corrupt pages.

use super::image::{Resolved, image_page, validate_image};
use super::*;
use crate::base::ErrorKind;
use crate::base::random::Random;
use crate::buffer::PageSource;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};

struct NoSource;
impl PageSource for NoSource {
    fn read_page(&self, _page: PageId, _into: &mut [u8]) -> Result<()> {
        Err(Error::corruption("nothing is stored"))
    }
}

/// Stamps below 1000 are settled once `settled` is set; 0 always.
#[derive(Default)]
struct Settling(AtomicBool);
impl TreeObserver for Settling {
    fn is_settled(&self, stamp: u64) -> bool {
        stamp == 0 || self.0.load(Ordering::SeqCst)
    }
    fn before_structure_change(&self, _participants: &[&ExclusiveGuard<'_>]) {}
}

fn tree(page_bytes: usize) -> (Tree, Arc<Settling>) {
    let pool = Pool::new(page_bytes, 256 << 20, Arc::new(NoSource)).expect("address space");
    let observer = Arc::new(Settling::default());
    (Tree::create(pool, observer.clone()).expect("a page"), observer)
}

fn put(tree: &Tree, key: &[u8], value: &[u8]) {
    tree.write(key, value.len(), &mut LeafHint::default()).expect("room").put(0, false, value);
}

fn get(tree: &Tree, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    tree.lookup(key, &mut value).expect("no I/O").map(|_| value)
}

fn forward(tree: &Tree, from: Bound<&[u8]>, limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut out, mut batch) = (Vec::new(), LeafBatch::default());
    let mut next = tree.scan_forward(from, limit, &mut batch).expect("no I/O");
    loop {
        out.extend(batch.iter().map(|e| (e.key.to_vec(), e.value.to_vec())));
        batch.clear();
        let Some(key) = next else { return out };
        next = tree.scan_forward(Bound::Included(&key), limit, &mut batch).expect("no I/O");
    }
}

fn backward(tree: &Tree, from: Bound<&[u8]>, limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut out, mut batch) = (Vec::new(), LeafBatch::default());
    let mut next = tree.scan_backward(from, limit, &mut batch).expect("no I/O");
    loop {
        out.extend(batch.iter().map(|e| (e.key.to_vec(), e.value.to_vec())));
        batch.clear();
        let Some(key) = next else { return out };
        next = tree.scan_backward(Bound::Excluded(&key), limit, &mut batch).expect("no I/O");
    }
}

fn random_key(random: &mut Random, max: usize) -> Vec<u8> {
    // Shared prefixes, short and long keys, and bytes at both ends of the range.
    let mut key =
        [&b"user/account/"[..], &b"u"[..], &[0, 0][..], &[255][..]][random.below(4) as usize].to_vec();
    for _ in 0..random.below(4) {
        key.push([0, 1, b'a', b'b', 254, 255][random.below(6) as usize]);
    }
    if random.chance(1, 30) {
        key.resize(random.below(max as u64 - 20) as usize + 20, b'x');
    }
    key.extend(random.below(300).to_be_bytes().iter().skip(6));
    key.truncate(max);
    key
}

fn model_run(page_bytes: usize, seed: u64, steps: usize) {
    let (tree, _) = tree(page_bytes);
    let mut random = Random::from_seed(seed);
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let (max_key, max_entry) = (max_key_bytes(page_bytes), max_entry_bytes(page_bytes));
    let mut hint = LeafHint::default();
    for step in 0..steps {
        let key = random_key(&mut random, max_key);
        match random.below(10) {
            0..=5 => {
                let len =
                    if random.chance(1, 20) { max_entry - key.len() } else { random.below(60) as usize };
                let value = vec![random.next_u64() as u8; len];
                tree.write(&key, len, &mut hint).expect("room").put(0, false, &value);
                model.insert(key, value);
            }
            6..=7 => {
                tree.write(&key, 0, &mut hint).expect("room").remove();
                model.remove(&key);
            }
            8 => {
                let mut leaf = tree.write(&key, 0, &mut hint).expect("room");
                leaf.put(0, true, &[]);
                drop(leaf);
                tree.purge(&key).expect("no I/O");
                model.remove(&key);
            }
            _ => assert_eq!(get(&tree, &key), model.get(&key).cloned()),
        }
        if step % 997 == 0 {
            let limit = random.below(50) as usize + 1;
            let bounds = [
                Bound::Included(key_of(&mut random)),
                Bound::Excluded(key_of(&mut random)),
                Bound::Unbounded,
            ];
            for bound in &bounds {
                let bound = bound.as_ref().map(Vec::as_slice);
                let above: Vec<_> = model
                    .range::<[u8], _>((bound, Bound::Unbounded))
                    .map(|(k, v)| (k.clone(), v.clone()))
                    .collect();
                assert_eq!(forward(&tree, bound, limit), above);
                let mut below: Vec<_> = model
                    .range::<[u8], _>((Bound::Unbounded, bound))
                    .map(|(k, v)| (k.clone(), v.clone()))
                    .collect();
                below.reverse();
                assert_eq!(backward(&tree, bound, limit), below);
            }
            tree.check_invariants().expect("sound");
        }
    }
    let summary = tree.check_invariants().expect("sound");
    assert_eq!(summary.entries as usize, model.len());
    tree.destroy().expect("no I/O");
}

fn key_of(random: &mut Random) -> Vec<u8> {
    random_key(random, 512)
}

#[test]
fn a_tree_is_a_sorted_map_with_small_pages() {
    for seed in 0..4 {
        model_run(4096, seed, 12_000);
    }
}

#[test]
fn a_tree_is_a_sorted_map_with_large_pages() {
    model_run(32768, 9, 12_000);
}

#[test]
fn sequential_inserts_fill_leaves() {
    let (tree, _) = tree(4096);
    let mut hint = LeafHint::default();
    for i in 0..20_000u64 {
        tree.write(&i.to_be_bytes(), 100, &mut hint).expect("room").put(0, false, &[7; 100]);
    }
    let summary = tree.check_invariants().expect("sound");
    assert_eq!(summary.entries, 20_000);
    assert!(summary.leaf_fill > 0.9, "{summary:?}");
}

#[test]
fn deleting_everything_gives_the_pages_back() {
    let (tree, _) = tree(4096);
    for i in 0..5_000u64 {
        put(&tree, &i.to_be_bytes(), &[1; 50]);
    }
    for i in 0..5_000u64 {
        tree.write(&i.to_be_bytes(), 0, &mut LeafHint::default()).expect("room").put(0, true, &[]);
        tree.purge(&i.to_be_bytes()).expect("no I/O");
    }
    let summary = tree.check_invariants().expect("sound");
    // Inner nodes are not merged: each keeps one empty leaf.
    assert!(summary.entries == 0 && summary.pages < 10, "{summary:?}");
}

#[test]
fn taking_a_change_back_never_needs_room() {
    let (tree, observer) = tree(4096);
    for i in 0..30u64 {
        put(&tree, &i.to_be_bytes(), &[1; 90]);
    }
    // All rows shrink in a transaction that is not settled, then others fill every free byte.
    for i in 0..30u64 {
        tree.write(&i.to_be_bytes(), 1, &mut LeafHint::default()).expect("room").put(77, false, &[2]);
    }
    for i in 1000..1400u64 {
        put(&tree, &i.to_be_bytes(), &[3; 20]);
        let between = [&(i % 30).to_be_bytes()[..], &i.to_be_bytes()[..]].concat();
        put(&tree, &between, &[4; 11]);
    }
    for i in 0..30u64 {
        tree.write(&i.to_be_bytes(), 0, &mut LeafHint::default()).expect("room").put(0, false, &[1; 90]);
        assert_eq!(get(&tree, &i.to_be_bytes()), Some(vec![1; 90]));
    }
    tree.check_invariants().expect("sound");
    observer.0.store(true, Ordering::SeqCst);
}

#[test]
fn an_image_of_older_longer_values_always_fits() {
    let (tree, _) = tree(4096);
    for i in 0..33u64 {
        put(&tree, &i.to_be_bytes(), &[1; 80]);
    }
    for i in 0..33u64 {
        tree.write(&i.to_be_bytes(), 0, &mut LeafHint::default()).expect("room").put(77, i % 2 == 0, &[]);
    }
    for i in 0..33u64 {
        put(&tree, &[&i.to_be_bytes()[..], b"new"].concat(), &[5; 30]);
    }
    let pool = tree.pool.clone();
    let mut rows = 0;
    for id in 1..pool.page_count() {
        let guard = pool.shared(PageId(id)).expect("resident");
        let mut out = vec![0; 4096];
        let clean = image_page(guard.bytes(), &mut out, &mut |meta, _, older| {
            if meta.stamp == 0 {
                return Resolved::Absent;
            }
            rows += 1;
            older.clear();
            older.resize(80, 1);
            Resolved::Older
        });
        validate_image(&out).expect("a valid node");
        assert!(!clean || !Node::new(guard.bytes()).is_leaf() || Node::new(guard.bytes()).count() == 0);
    }
    assert_eq!(rows, 33);
}

#[test]
fn a_full_pool_leaves_the_tree_as_it_was() {
    let pool = Pool::new(4096, 1 << 20, Arc::new(NoSource)).expect("address space");
    let tree = Tree::create(pool, Arc::new(Settling::default())).expect("a page");
    let mut stored = 0u64;
    let error = loop {
        match tree.write(&stored.to_be_bytes(), 100, &mut LeafHint::default()) {
            Ok(mut leaf) => leaf.put(0, false, &[1; 100]),
            Err(error) => break error,
        }
        stored += 1;
    };
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(stored > 3000);
    assert_eq!(tree.check_invariants().expect("sound").entries, stored);
}

#[test]
fn threads_insert_and_remove_while_others_scan() {
    let (tree, _) = tree(4096);
    // Keys that are never touched again: every scan must return all of them, once, in order.
    let stable: Vec<[u8; 8]> = (0..2_000u64).map(|i| (i * 1000).to_be_bytes()).collect();
    for key in &stable {
        put(&tree, key, b"stable");
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (tree, stop, stable) = (&tree, &stop, &stable);
        let writers: Vec<_> = (0..3u64)
            .map(|t| {
                scope.spawn(move || {
                    let mut random = Random::from_seed(t);
                    let mut hint = LeafHint::default();
                    for _ in 0..25_000 {
                        let key = (random.below(2_000_000) / 1000 * 1000 + 1 + t).to_be_bytes();
                        let len = random.below(120) as usize;
                        if random.chance(1, 2) {
                            tree.write(&key, len, &mut hint).expect("room").put(
                                0,
                                false,
                                &vec![t as u8; len],
                            );
                        } else {
                            tree.write(&key, 0, &mut hint).expect("room").put(0, true, &[]);
                            tree.purge(&key).expect("no I/O");
                        }
                    }
                })
            })
            .collect();
        for backwards in [false, true] {
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let mut rows = if backwards {
                        backward(tree, Bound::Unbounded, 64)
                    } else {
                        forward(tree, Bound::Unbounded, 64)
                    };
                    if backwards {
                        rows.reverse();
                    }
                    assert!(rows.windows(2).all(|w| w[0].0 < w[1].0), "in order, each once");
                    let seen: Vec<_> = rows.iter().filter(|r| r.1 == b"stable").map(|r| &r.0[..]).collect();
                    assert_eq!(seen, stable.iter().map(|k| &k[..]).collect::<Vec<_>>());
                }
            });
        }
        for writer in writers {
            writer.join().expect("no panic");
        }
        stop.store(true, Ordering::Relaxed);
    });
    tree.check_invariants().expect("sound");
}

#[test]
fn a_flipped_bit_in_an_image_is_noticed_or_harmless() {
    let (tree, _) = tree(4096);
    for i in 0..400u64 {
        put(&tree, &(i * 7919).to_be_bytes(), &i.to_le_bytes());
    }
    let pool = tree.pool.clone();
    for id in [tree.root(), PageId(2)] {
        let mut image = vec![0; 4096];
        image_page(pool.shared(id).expect("resident").bytes(), &mut image, &mut |_, _, _| Resolved::Keep);
        validate_image(&image).expect("valid");
        for bit in (32 * 8..4096 * 8).step_by(3) {
            let mut flipped = image.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // Checksums catch flips; this is the second line: whatever passes must be a well-formed node.
            let _ = validate_image(&flipped);
        }
    }
}
