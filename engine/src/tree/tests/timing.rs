//! Measures the cost of operations: `cargo test --release -p quenchdb --lib tree::tests::timing --
//! --ignored --nocapture`.

use crate::base::random::Random;
use crate::base::{Error, PageId, Result};
use crate::buffer::{ExclusiveGuard, PageSource, Pool};
use crate::tree::{LeafBatch, LeafHint, Tree, TreeObserver};
use std::ops::Bound;
use std::sync::Arc;

struct Nothing;

impl PageSource for Nothing {
    fn read_page(&self, _: PageId, _: bool, _: &mut [u8]) -> Result<()> {
        Err(Error::corruption("nothing is stored"))
    }
}

impl TreeObserver for Nothing {
    fn is_settled(&self, _stamp: u64) -> bool {
        true
    }
    fn before_structure_change(&self, _participants: &[&ExclusiveGuard<'_>]) {}
}

/// A tree that fits in the processor's cache shows the instructions, a larger one the misses.
const SIZES: [u64; 2] = [10_000, 5_000_000];
const READS: u64 = 2_000_000;

/// Returns the processor time of this thread in nanoseconds, so that other work does not count.
fn processor_time() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

fn timed(what: &str, operations: u64, mut work: impl FnMut()) {
    let start = processor_time();
    work();
    println!("{what:<36} {:>7.0} ns", (processor_time() - start) as f64 / operations as f64);
}

fn load(tree: &Tree, rows: u64, what: &str, key_of: impl Fn(u64) -> u64) {
    let mut hint = LeafHint::default();
    timed(what, rows, || {
        for i in 0..rows {
            tree.write(&key_of(i).to_be_bytes(), 100, &mut hint).expect("room").put(0, false, &[7; 100]);
        }
    });
    let summary = tree.check_invariants().expect("sound");
    println!("{:<36} {:>7.1} % of {} pages", "  leaf fill", summary.leaf_fill * 100.0, summary.pages);
}

fn read(tree: &Tree, rows: u64, key_of: impl Fn(u64) -> u64) {
    let (mut random, mut value) = (Random::from_seed(3), Vec::new());
    timed("  random lookup", READS, || {
        for _ in 0..READS {
            let key = key_of(random.below(rows)).to_be_bytes();
            assert!(tree.lookup(&key, &mut value).expect("readable").is_some());
        }
    });
    let mut hint = LeafHint::default();
    timed("  random overwrite", READS, || {
        for _ in 0..READS {
            let key = key_of(random.below(rows)).to_be_bytes();
            tree.write(&key, 100, &mut hint).expect("room").put(0, false, &[8; 100]);
        }
    });
    let mut batch = LeafBatch::default();
    timed("  forward scan, per row", rows, || {
        let mut next = tree
            .scan_forward(Bound::Unbounded, 1000, &mut batch, &mut crate::buffer::ScanBuffer::default())
            .expect("readable");
        while let Some(key) = next {
            batch.clear();
            next = tree
                .scan_forward(
                    Bound::Included(&key),
                    1000,
                    &mut batch,
                    &mut crate::buffer::ScanBuffer::default(),
                )
                .expect("readable");
        }
    });
}

#[test]
#[ignore = "a measurement"]
fn costs_of_operations() {
    let scrambled = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for (rows, sequential) in SIZES.iter().flat_map(|rows| [(*rows, true), (*rows, false)]) {
        println!("{rows} rows");
        let pool = Pool::new(4096, 4 << 30, Arc::new(Nothing)).expect("address space");
        let tree = Tree::create(pool, Arc::new(Nothing)).expect("a page");
        if sequential {
            load(&tree, rows, "sequential insert with hint", |i| i);
            read(&tree, rows, |i| i);
        } else {
            load(&tree, rows, "random insert", scrambled);
            read(&tree, rows, scrambled);
        }
    }
}
