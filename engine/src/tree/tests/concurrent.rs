//! Threads that write, purge and scan the same tree.

use super::{get, put, tree};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::tree::{LeafBatch, LeafHint, Tree};
use std::ops::Bound;

const STEPS: u64 = if cfg!(miri) { 60 } else { 40_000 };
/// Keys that are multiples of this are never touched while the threads run.
const STABLE: u64 = 64;
const KEYS: u64 = 16_384;

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

fn number(key: &[u8]) -> u64 {
    u64::from_be_bytes(key.try_into().expect("keys have 8 bytes"))
}

/// Returns the next number of a cheap random sequence.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Writes to the keys that are `writer` modulo 3. Each keeps the value put last.
/// Alternates between phases that insert and phases that delete, so that leaves split and merge all
/// the time.
fn write(tree: &Tree, writer: u64) {
    let (mut state, mut hint) = (writer, LeafHint::default());
    for step in 0..STEPS {
        let n = next(&mut state) % KEYS / 3 * 3 + writer;
        if n.is_multiple_of(STABLE) {
            continue;
        }
        let key = key(n);
        if (step / (STEPS / 8)).is_multiple_of(2) {
            let value = vec![n as u8; 20 + (next(&mut state) % 150) as usize];
            tree.write(&key, value.len(), &mut hint).expect("room").put(0, false, &value);
            assert_eq!(get(tree, &key).expect("just put").1, value);
        } else {
            for n in (n..n + 90).step_by(3).filter(|n| !n.is_multiple_of(STABLE)) {
                put_tombstone(tree, n, &mut hint);
            }
        }
    }
}

fn put_tombstone(tree: &Tree, n: u64, hint: &mut LeafHint) {
    let key = key(n);
    tree.write(&key, 0, hint).expect("room").put(0, true, &[]);
    tree.purge(&key).expect("readable");
    assert!(get(tree, &key).is_none());
}

fn scan(tree: &Tree, forward: bool) {
    let (mut batch, mut seen, mut previous) = (LeafBatch::default(), 0, None::<u64>);
    let mut from = Bound::Unbounded;
    loop {
        batch.clear();
        let bound = from.as_ref().map(|key: &Vec<u8>| &key[..]);
        let more = if forward {
            tree.scan_forward(bound, 100, &mut batch, &mut crate::buffer::ScanBuffer::default())
        } else {
            tree.scan_backward(bound, 100, &mut batch, &mut crate::buffer::ScanBuffer::default())
        };
        for entry in batch.iter() {
            let n = number(entry.key);
            assert!(previous.is_none_or(|previous| if forward { previous < n } else { previous > n }));
            assert!(entry.value.iter().all(|byte| *byte == n as u8), "a torn value");
            seen += u64::from(n.is_multiple_of(STABLE));
            previous = Some(n);
        }
        match more.expect("readable") {
            Some(key) if forward => from = Bound::Included(key),
            Some(key) => from = Bound::Excluded(key),
            None => break,
        }
    }
    assert_eq!(seen, KEYS / STABLE);
}

#[test]
fn scans_and_lookups_are_right_during_splits_and_merges() {
    let (tree, observer) = tree(4096);
    for n in (0..KEYS).step_by(STABLE as usize) {
        put(&tree, &key(n), 0, false, &[n as u8; 100]);
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers = [0, 1, 2].map(|writer| {
            scope.spawn({
                let tree = &tree;
                move || write(tree, writer)
            })
        });
        for forward in [true, false] {
            let (tree, stop) = (&tree, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    scan(tree, forward);
                }
            });
        }
        let outcomes = writers.map(|writer| writer.join());
        stop.store(true, Ordering::Relaxed);
        outcomes.into_iter().for_each(|outcome| outcome.expect("no writer fails"));
    });
    scan(&tree, true);
    scan(&tree, false);
    tree.check_invariants().expect("sound");
    assert!(observer.changes.load(Ordering::Relaxed) > 0);
}

#[test]
fn threads_that_append_side_by_side_keep_every_row() {
    let rows = STEPS / 8;
    for _ in 0..4 {
        let (tree, _) = tree(1024);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let tree = &tree;
                scope.spawn(move || {
                    let mut hint = LeafHint::default();
                    for n in 0..rows {
                        let key = key(n * 4 + thread);
                        tree.write(&key, 100, &mut hint).expect("room").put(0, false, &[1; 100]);
                    }
                });
            }
        });
        assert_eq!(tree.check_invariants().expect("sound").entries, rows * 4);
    }
}

#[test]
fn scan_of_a_leaf_that_always_changes_ends() {
    let (tree, _) = tree(32_768);
    for n in 0..100 {
        put(&tree, &key(n), 0, false, &[n as u8; 250]);
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (tree, stop) = (&tree, &stop);
        scope.spawn(move || {
            let mut hint = LeafHint::default();
            while !stop.load(Ordering::Relaxed) {
                tree.write(&key(50), 250, &mut hint).expect("room").put(0, false, &[50; 250]);
            }
        });
        let mut batch = LeafBatch::default();
        for _ in 0..STEPS / 40 {
            for from in [Bound::Included(&key(0)[..]), Bound::Unbounded] {
                batch.clear();
                tree.scan_forward(from, 1000, &mut batch, &mut crate::buffer::ScanBuffer::default())
                    .expect("readable");
                tree.scan_backward(
                    Bound::Unbounded,
                    1000,
                    &mut batch,
                    &mut crate::buffer::ScanBuffer::default(),
                )
                .expect("readable");
                assert_eq!(batch.iter().count(), 200);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}
