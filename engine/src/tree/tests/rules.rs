//! Fill of leaves, the room rule, images, exhausted memory.

use super::{Horizon, LeafBatch, all, get, pool, put, tree};
use crate::base::ErrorKind;
use crate::buffer::ScratchPage;
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
use crate::tree::image::{Resolved, Shown, image_page, validate_image};
use crate::tree::node::Node;
use crate::tree::{EntryMeta, LeafHint, Tree, max_entry_bytes, max_key_bytes};
use std::ops::Bound;

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

#[test]
fn sequential_inserts_leave_leaves_full() {
    let (tree, _) = tree(4096);
    let mut hint = LeafHint::default();
    for n in 0..50_000 {
        tree.write(&key(n), 100, &mut hint).expect("room").put(0, false, &[1; 100]);
    }
    let summary = tree.check_invariants().expect("sound");
    assert_eq!(summary.entries, 50_000);
    assert!(summary.leaf_fill >= 0.9, "{summary:?}");
}

#[test]
fn interleaved_sequences_leave_leaves_full() {
    let (tree, _) = tree(4096);
    let mut hint = LeafHint::default();
    for n in 0..5_000u64 {
        for sequence in 0..8u64 {
            tree.write(&key(sequence << 32 | n), 100, &mut hint).expect("room").put(0, false, &[1; 100]);
        }
    }
    let summary = tree.check_invariants().expect("sound");
    assert!(summary.leaf_fill >= 0.9, "{summary:?}");
}

/// The heads of slots are behind what all keys of a node begin with. One key that begins otherwise
/// changes all heads.
#[test]
fn keys_that_begin_alike_are_found_beside_one_that_does_not() {
    for len in [0, 3, 4, 7, 8, 251, 252, 253, 300] {
        let (tree, _) = tree(4096);
        let common_len = || {
            let root = tree.pool.optimistic(tree.root).expect("there");
            Node::new(root.bytes()).common_len()
        };
        let alike = |n: u8| [&vec![7; len][..], &[n, n]].concat();
        (0..8).for_each(|n| put(&tree, &alike(20 * n), 0, false, &[n]));
        assert_eq!(common_len(), len.min(252) / 4 * 4);
        // Each way to begin otherwise: a lower byte, a higher one, an end.
        let others = (0..len).flat_map(|at| {
            [6, 8].map(|byte| [&vec![7; at][..], &[byte]].concat()).into_iter().chain([vec![7; at]])
        });
        for other in others.filter(|key| !key.is_empty()) {
            assert_eq!(get(&tree, &other), None, "{len}: {other:?}");
        }
        let other = [&vec![7; len / 2][..], &[8]].concat();
        put(&tree, &other, 0, false, &[99]);
        assert!(common_len() <= len / 2);
        tree.check_invariants().expect("sound");
        for n in 0..8 {
            assert_eq!(get(&tree, &alike(20 * n)).map(|(_, value)| value), Some(vec![n]), "{len}");
            assert_eq!(get(&tree, &alike(20 * n + 1)), None, "{len}");
        }
        assert_eq!(get(&tree, &other).map(|(_, value)| value), Some(vec![99]), "{len}");
        assert!(all(&tree, 5).is_sorted());
    }
}

/// The head of a short key is filled with zeros, which may be part of a longer key.
#[test]
fn keys_with_zeros_differ_from_shorter_keys() {
    for prefix in [&b""[..], b"prefix"] {
        let (tree, _) = tree(4096);
        let mut keys = vec![prefix.to_vec()];
        for at in 0..364 {
            keys.extend([0, 1, 255].map(|byte| [&keys[at][..], &[byte]].concat()));
        }
        // In another order than that of the keys.
        let is_there = |n: usize| n > 0 && !(n * 7).is_multiple_of(3);
        (0..keys.len()).filter(|n| is_there(*n)).for_each(|n| put(&tree, &keys[n], 0, false, &[n as u8]));
        for (n, key) in keys.iter().enumerate() {
            let found = get(&tree, key).map(|(_, value)| value);
            assert_eq!(found, is_there(n).then(|| vec![n as u8]), "{key:?}");
        }
        let rows = all(&tree, 50);
        assert_eq!(rows.len(), (0..keys.len()).filter(|n| is_there(*n)).count());
        assert!(rows.is_sorted());
        tree.check_invariants().expect("sound");
    }
}

#[test]
fn too_long_keys_and_values_are_refused() {
    let (tree, _) = tree(4096);
    let (longest_key, most) = (max_key_bytes(4096), max_entry_bytes(4096));
    let mut hint = LeafHint::default();
    let refused = tree.write(&vec![0; longest_key + 1], 0, &mut hint).expect_err("key too long");
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    assert!(tree.write(b"k", most, &mut hint).is_err());
    for n in 0..40u8 {
        let key = vec![n; longest_key];
        put(&tree, &key, 0, false, &vec![n; most - longest_key]);
    }
    assert_eq!(all(&tree, 3).len(), 40);
    tree.check_invariants().expect("sound");
}

#[test]
fn unsettled_entry_keeps_room_in_splits_and_compactions() {
    let (tree, _) = tree(4096);
    for n in 0..200 {
        put(&tree, &key(n * 10), 0, false, &[7; 300]);
    }
    // A running transaction makes every row short; others fill the space that seems free.
    for n in 0..200 {
        put(&tree, &key(n * 10), 99, n % 2 == 0, &[]);
    }
    for n in 0..2_000 {
        if n % 10 != 0 {
            put(&tree, &key(n), 0, false, &[1; 50]);
        }
    }
    let before = tree.check_invariants().expect("sound").pages;
    for n in 0..200 {
        let key = key(n * 10);
        let mut write_hint = LeafHint::default();
        let mut write = tree.write(&key, 0, &mut write_hint).expect("no room is needed");
        assert_eq!(write.entry(), Some(EntryMeta { stamp: 99, tombstone: n % 2 == 0, large: false }));
        write.put(0, false, &[7; 300]);
    }
    let after = tree.check_invariants().expect("sound");
    assert_eq!(after.pages, before);
    assert_eq!(get(&tree, &key(10)).expect("there").1, [7; 300]);
}

#[test]
fn settled_rows_give_back_room_and_tombstones() {
    let (tree, observer) = tree(4096);
    for n in 0..100 {
        put(&tree, &key(n), 99, n % 2 == 0, &[]);
    }
    observer.horizon.store(100, Ordering::Relaxed);
    for n in 0..100 {
        tree.purge(&key(n)).expect("readable");
    }
    assert_eq!(tree.check_invariants().expect("sound").entries, 50);
}

#[test]
fn emptied_tree_shrinks_to_its_root() {
    let (tree, _) = tree(4096);
    for n in 0..20_000 {
        put(&tree, &key(n), 0, false, &[1; 100]);
    }
    assert!(tree.check_invariants().expect("sound").depth >= 3);
    for n in 0..20_000 {
        let key = key(n * 7_919 % 20_000);
        put(&tree, &key, 0, true, &[]);
        tree.purge(&key).expect("readable");
    }
    let summary = tree.check_invariants().expect("sound");
    assert_eq!((summary.entries, summary.depth, summary.pages), (0, 1, 1));
}

/// Only a few rows exist at any time, but inner nodes come and go too.
#[test]
fn queue_leaves_no_pages_behind() {
    let (tree, _) = tree(1024);
    let mut hint = LeafHint::default();
    for n in 0..100_000u64 {
        tree.write(&key(n), 100, &mut hint).expect("room").put(0, false, &[1; 100]);
        if let Some(old) = n.checked_sub(3_000) {
            put(&tree, &key(old), 0, true, &[]);
            tree.purge(&key(old)).expect("readable");
        }
    }
    let summary = tree.check_invariants().expect("sound");
    assert!(summary.entries == 3_000 && summary.pages < 600, "{} pages", summary.pages);
}

#[test]
fn requested_room_lasts_as_long_as_the_write() {
    let (tree, _) = tree(4096);
    let mut hint = LeafHint::default();
    let len = max_entry_bytes(4096) - 8;
    for n in 0..40 {
        let key = key(n * 7 % 40);
        let mut write = tree.write(&key, len, &mut hint).expect("room");
        write.put(99, false, &[]);
        write.put(99, true, &[]);
        write.put(99, false, &vec![n as u8; len]);
        write.remove();
        write.put(99, false, &vec![n as u8; len]);
        drop(write);
        // The write requests no room, but the entry has it; also when it is removed and put back.
        let mut write = tree.write(&key, 0, &mut hint).expect("nothing to do");
        write.remove();
        write.put(99, false, &vec![n as u8; len]);
        drop(write);
        tree.check_invariants().expect("sound");
    }
    assert_eq!(all(&tree, 9).len(), 40);
}

#[test]
fn split_that_comes_too_late_changes_nothing() {
    let (tree, observer) = tree(4096);
    for rows in 0..3 {
        assert!(tree.split(b"x", 0, 200).is_ok());
        put(&tree, &key(rows), 0, false, &[1; 100]);
    }
    assert_eq!(observer.changes.load(Ordering::Relaxed), 0);
}

#[test]
fn without_memory_a_split_changes_nothing() {
    for pages in 1..12 {
        let tree = Tree::create(pool(1024, pages), Arc::new(Horizon::default())).expect("room");
        let mut hint = LeafHint::default();
        let mut count = 0;
        let failure = loop {
            match tree.write(&key(count * 31 % 257), 60, &mut hint) {
                Ok(mut write) => write.put(0, false, &[1; 60]),
                Err(error) => break error,
            }
            count += 1;
            assert!(count < 257, "never full");
        };
        assert_eq!(failure.kind(), ErrorKind::OutOfMemory);
        let summary = tree.check_invariants().expect("sound");
        assert_eq!(summary.entries, count);
        assert_eq!(all(&tree, 5).len() as u64, count);
    }
}

#[test]
fn image_shows_older_values_and_fits() {
    let (tree, _) = tree(4096);
    for n in 0..12u64 {
        put(&tree, &key(n), 0, false, &[n as u8; 290]);
    }
    // 0..4 stay, 4..8 change, 8..10 are deleted, 12 is new; none of it is in the image.
    (4..8).for_each(|n| put(&tree, &key(n), 99, false, b"new"));
    (8..10).for_each(|n| put(&tree, &key(n), 98, true, &[]));
    put(&tree, &key(12), 97, false, b"new");
    let guard = tree.pool.shared(tree.root).expect("readable");
    let mut image = vec![0; 4096];
    let mut older_of = 4u8;
    let kept = image_page(guard.bytes(), &mut image, &mut |meta, _, older| match meta.stamp {
        0 => Resolved::Keep,
        97 => Resolved::Absent,
        _ => {
            older.resize(290, older_of);
            older_of += 1;
            Resolved::Older
        }
    });
    assert_eq!(kept, Shown::Older);
    validate_image(&image).expect("an image");
    let page = ScratchPage::from_image(&image);
    let node = Node::new(page.bytes());
    assert_eq!(node.count(), 12);
    for n in 0..12 {
        let entry = node.entry(n);
        let mut value = Vec::new();
        page.bytes().append_to(entry.value_offset(), entry.value_len, &mut value);
        assert_eq!(entry.meta, EntryMeta { stamp: 0, tombstone: false, large: false });
        assert_eq!((node.key(n), value), (key(n as u64).to_vec(), vec![n as u8; 290]));
    }
}

#[test]
fn image_of_a_settled_page_is_complete() {
    let (tree, _) = tree(4096);
    (0..100).for_each(|n| put(&tree, &key(n), 0, n % 3 == 0, b"value"));
    for page in 1..tree.pool.page_count() {
        let guard = tree.pool.shared(crate::base::PageId(page)).expect("readable");
        let mut image = vec![0; 4096];
        assert_eq!(image_page(guard.bytes(), &mut image, &mut |_, _, _| Resolved::Keep), Shown::Newest);
        validate_image(&image).expect("an image");
    }
}

#[test]
fn leaves_of_ascending_keys_are_requested_once_each() {
    let (tree, _) = tree(512);
    let keys: Vec<Vec<u8>> = (0..3000u32).map(|i| format!("{i:08}").into_bytes()).collect();
    assert_eq!(
        tree.read_ahead_for(keys.iter().map(Vec::as_slice), 4).expect("in memory"),
        keys.len(),
        "one leaf"
    );
    keys.iter().for_each(|key| put(&tree, key, 0, false, &[7; 20]));
    let asked: Vec<&[u8]> = keys.iter().step_by(3).map(Vec::as_slice).collect();
    let (mut done, mut full_windows, mut windows) = (0, 0, 0);
    while done < asked.len() {
        let covered = tree.read_ahead_for(asked[done..].iter().copied(), 4).expect("in memory");
        let (mut leaves, mut at) = (0, done);
        while at < done + covered {
            let mut batch = LeafBatch::default();
            let next = tree
                .scan_forward(
                    Bound::Included(asked[at]),
                    usize::MAX,
                    &mut batch,
                    &mut crate::buffer::ScanBuffer::default(),
                )
                .expect("in memory");
            at += next.map_or(asked.len(), |next| asked[at..].partition_point(|key| **key < *next));
            leaves += 1;
        }
        assert!(leaves <= 4, "{leaves} leaves");
        assert!(
            at == done + covered || at > asked.len() && done + covered == asked.len(),
            "ends with a leaf"
        );
        full_windows += u32::from(leaves == 4);
        (done, windows) = (done + covered, windows + 1);
    }
    assert!(full_windows * 2 > windows, "only a parent's last leaves are fewer: {full_windows} of {windows}");
    assert_eq!(tree.read_ahead_for(std::iter::empty(), 4).expect("in memory"), 0);
}
