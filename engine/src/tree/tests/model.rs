//! Random operations, compared with a `BTreeMap`.

use super::{get, tree};
use crate::tree::{LeafBatch, LeafHint, Tree, max_entry_bytes, max_key_bytes};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;

type Onwards = fn(Vec<u8>) -> Bound<Vec<u8>>;
type Entry = (u64, bool, Vec<u8>);
type Model = BTreeMap<Vec<u8>, Entry>;

#[derive(Clone, Debug)]
enum Operation {
    Put { key: Vec<u8>, stamp: u64, value_len: usize },
    Bury { key: Vec<u8>, stamp: u64 },
    Remove { key: Vec<u8> },
    Purge { key: Vec<u8> },
    PurgeAll,
    Forward { from: Bound<Vec<u8>>, limit: usize },
    Backward { from: Bound<Vec<u8>>, limit: usize },
}

/// Generates keys that share prefixes, of many lengths, including the empty key.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (0u32..400).prop_map(|n| n.to_be_bytes().to_vec()),
        3 => (0u8..4, 0usize..200, 0u8..3).prop_map(|(a, n, b)| {
            let mut key = vec![a; n];
            key.push(b);
            key
        }),
        2 => proptest::collection::vec(0u8..3, 0..7),
        1 => proptest::collection::vec(any::<u8>(), 0..512),
    ]
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![key().prop_map(Bound::Included), key().prop_map(Bound::Excluded), Just(Bound::Unbounded)]
}

fn operation() -> impl Strategy<Value = Operation> {
    let stamp = || prop_oneof![Just(0u64), Just(5), Just(50)];
    let value_len = prop_oneof![4 => 0usize..120, 1 => 0usize..10_000];
    prop_oneof![
        30 => (key(), stamp(), value_len)
            .prop_map(|(key, stamp, value_len)| Operation::Put { key, stamp, value_len }),
        6 => (key(), stamp()).prop_map(|(key, stamp)| Operation::Bury { key, stamp }),
        4 => key().prop_map(|key| Operation::Remove { key }),
        4 => key().prop_map(|key| Operation::Purge { key }),
        1 => Just(Operation::PurgeAll),
        4 => (bound(), 1usize..40).prop_map(|(from, limit)| Operation::Forward { from, limit }),
        4 => (bound(), 1usize..40).prop_map(|(from, limit)| Operation::Backward { from, limit }),
    ]
}

/// To the observer of the test stamps below 10 are settled.
const HORIZON: u64 = 10;

fn apply(tree: &Tree, model: &mut Model, page_bytes: usize, hint: &mut LeafHint, operation: Operation) {
    match operation {
        Operation::Put { key, stamp, value_len } => {
            let key = key[..key.len().min(max_key_bytes(page_bytes))].to_vec();
            let value = vec![key.len() as u8; value_len.min(max_entry_bytes(page_bytes) - key.len())];
            tree.write(&key, value.len(), hint).expect("room").put(stamp, false, &value);
            model.insert(key, (stamp, false, value));
        }
        Operation::Bury { key, stamp } => {
            tree.write(&key, 0, hint).expect("room").put(stamp, true, &[]);
            model.insert(key, (stamp, true, Vec::new()));
        }
        Operation::Remove { key } => {
            tree.write(&key, 0, hint).expect("room").remove();
            model.remove(&key);
        }
        Operation::Purge { key } => purge(tree, model, &key),
        Operation::PurgeAll => {
            for key in model.keys().cloned().collect::<Vec<_>>() {
                tree.write(&key, 0, hint).expect("room").put(0, true, &[]);
                model.insert(key.clone(), (0, true, Vec::new()));
                purge(tree, model, &key);
            }
        }
        Operation::Forward { from, limit } => compare_scan(tree, model, from, limit, true),
        Operation::Backward { from, limit } => compare_scan(tree, model, from, limit, false),
    }
}

fn purge(tree: &Tree, model: &mut Model, key: &[u8]) {
    tree.purge(key).expect("readable");
    if model.get(key).is_some_and(|(stamp, tombstone, _)| *tombstone && *stamp < HORIZON) {
        model.remove(key);
    }
}

fn as_slices(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

/// Returns entries without settled tombstones, which the tree may drop at any time.
type Rows = Vec<(Vec<u8>, bool, Vec<u8>)>;

fn compare_scan(tree: &Tree, model: &Model, from: Bound<Vec<u8>>, limit: usize, forward: bool) {
    let rows = |key: &Vec<u8>, (stamp, tombstone, value): &Entry| {
        (!*tombstone || *stamp >= HORIZON).then(|| (key.clone(), *tombstone, value.clone()))
    };
    let expected: Rows = if forward {
        model.range((from.clone(), Bound::Unbounded)).filter_map(|(k, v)| rows(k, v)).collect()
    } else {
        model.range((Bound::Unbounded, from.clone())).rev().filter_map(|(k, v)| rows(k, v)).collect()
    };
    let mut found = Rows::new();
    let (mut batch, mut next) = (LeafBatch::default(), from);
    loop {
        batch.clear();
        let (bound, go_on): (_, Onwards) = (
            as_slices(&next),
            match forward {
                true => Bound::Included,
                false => Bound::Excluded,
            },
        );
        let more = if forward {
            tree.scan_forward(bound, limit, &mut batch, &mut crate::buffer::ScanBuffer::default())
        } else {
            tree.scan_backward(bound, limit, &mut batch, &mut crate::buffer::ScanBuffer::default())
        };
        assert!(batch.iter().count() <= limit);
        found.extend(
            batch
                .iter()
                .filter(|e| !e.meta.tombstone || e.meta.stamp >= HORIZON)
                .map(|entry| (entry.key.to_vec(), entry.meta.tombstone, entry.value.to_vec())),
        );
        match more.expect("readable") {
            Some(key) => next = go_on(key),
            None => break,
        }
    }
    assert_eq!(found, expected);
}

fn run(page_bytes: usize, operations: Vec<Operation>) {
    let (tree, observer) = tree(page_bytes);
    observer.horizon.store(HORIZON, crate::sync::atomic::Ordering::Relaxed);
    let (mut model, mut hint) = (Model::new(), LeafHint::default());
    for operation in operations {
        apply(&tree, &mut model, page_bytes, &mut hint, operation);
    }
    tree.check_invariants().expect("sound");
    for limit in [1, 7, 1000] {
        compare_scan(&tree, &model, Bound::Unbounded, limit, true);
        compare_scan(&tree, &model, Bound::Unbounded, limit, false);
    }
    for (key, (stamp, tombstone, value)) in &model {
        match get(&tree, key) {
            Some((meta, found)) => {
                assert_eq!((meta.tombstone, &found), (*tombstone, value));
                assert!(meta.stamp == *stamp || meta.stamp == 0 && *stamp < HORIZON);
            }
            None => assert!(*tombstone && *stamp < HORIZON),
        }
    }
    let pool = tree.pool.clone();
    tree.destroy().expect("readable");
    assert!((1..pool.page_count()).all(|page| !pool.frames().is_allocated(crate::base::PageId(page))));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 60 }, ..ProptestConfig::default() })]

    #[test]
    fn tree_of_small_pages_behaves_like_a_map(operations in proptest::collection::vec(operation(), 1..600)) {
        run(4096, operations);
    }

    #[test]
    fn tree_of_tiny_pages_behaves_like_a_map(operations in proptest::collection::vec(operation(), 1..600)) {
        // Few entries per page: deep trees. Keys of `operation` that are too long are cut or
        // skipped.
        let longest = max_key_bytes(1024);
        let short = |key: &Vec<u8>| key.len() <= longest;
        let operations = operations.into_iter().filter(|operation| match operation {
            Operation::Bury { key, .. } | Operation::Remove { key } => short(key),
            _ => true,
        });
        run(1024, operations.collect());
    }

    #[test]
    fn tree_of_large_pages_behaves_like_a_map(operations in proptest::collection::vec(operation(), 1..600)) {
        run(32_768, operations);
    }
}
