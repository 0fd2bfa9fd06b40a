//! Frees pages that cannot be read for a while, or that find no memory.

use super::{Horizon, push_out, put};
use crate::base::{Error, ErrorKind, PageId, Result};
use crate::buffer::{PageSource, Pool};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::tree::{
    LargeReader, LargeReference, LargeWriter, LeafHint, REFERENCE_BYTES, Subtree, Tree, overflow,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

const PAGE_BYTES: usize = 1024;
/// Lengths of large values: of one page, of an index page and three others, of one page.
const LENGTHS: [usize; 3] = [500, 2000, 500];
/// Pages of values of these lengths, together.
const VALUE_PAGES: usize = 6;

/// Images of pages, one of which cannot be read once.
#[derive(Default)]
struct Images {
    images: Mutex<HashMap<PageId, Vec<u8>>>,
    failing: AtomicU64,
}

impl PageSource for Images {
    fn read_page(&self, page: PageId, _: bool, into: &mut [u8]) -> Result<()> {
        if self.failing.load(Ordering::Relaxed) == page.0 {
            self.failing.store(0, Ordering::Relaxed);
            return Err(Error::io("cannot read a page", std::io::Error::from_raw_os_error(5)));
        }
        into.copy_from_slice(&self.images.lock().expect("no panic")[&page]);
        Ok(())
    }
}

fn pool(pages: u64) -> (Arc<Pool>, Arc<Images>) {
    let images = Arc::new(Images::default());
    (Pool::new(PAGE_BYTES, pages * PAGE_BYTES as u64, images.clone()).expect("small"), images)
}

fn write_value(pool: &Arc<Pool>, len: usize) -> LargeReference {
    let mut writer = LargeWriter::new(pool.clone(), 0);
    writer.write(&vec![7; len]).expect("room");
    writer.finish().expect("room")
}

/// Makes a tree whose first leaf has values of all lengths.
fn tree_with_values(pool: &Arc<Pool>) -> Tree {
    let tree = Tree::create(pool.clone(), Arc::new(Horizon::default())).expect("room");
    for n in 0..20u8 {
        put(&tree, &[b'z', n], 0, false, &[n; 100]);
    }
    for (n, len) in LENGTHS.into_iter().enumerate() {
        let reference = write_value(pool, len);
        let key = [b'a', n as u8];
        let mut leaf = tree.write(&key, REFERENCE_BYTES, &mut LeafHint::default()).expect("room");
        leaf.put_reference(0, &reference);
    }
    tree
}

fn allocated(pool: &Pool) -> Vec<PageId> {
    (1..pool.page_count()).map(PageId).filter(|page| pool.frames().is_allocated(*page)).collect()
}

/// Regression: a leaf of a dropped table was freed after the values of its entries. A checkpoint
/// could not read one of them, and the next checkpoint freed the earlier ones again. Their pages
/// were part of another table by then, and committed data was lost.
#[test]
fn freed_pages_are_not_freed_again_after_a_failed_read() {
    let mut used_again = 0;
    for n in 0.. {
        let (pool, images) = pool(200);
        let tree = tree_with_values(&pool);
        let pages = allocated(&pool);
        let Some(failing) = pages.get(n) else { break };
        push_out(&pool, &images.images);
        images.failing.store(failing.0, Ordering::Relaxed);
        let mut rest = vec![Subtree::Node(tree.root())];
        let failure = tree.free_pages(&mut rest).expect_err("a page cannot be read");
        assert_eq!(failure.kind(), ErrorKind::Io);
        let others = LENGTHS.map(|len| write_value(&pool, len));
        used_again += others.iter().filter(|other| pages.contains(&other.root)).count();
        let again = tree.free_pages(&mut rest);
        for other in others {
            let read = LargeReader::new(pool.clone(), other).read_all(&mut Vec::new());
            read.unwrap_or_else(|error| panic!("{failing} could not be read: {error}"));
        }
        again.expect("readable");
        assert_eq!(
            allocated(&pool).len(),
            VALUE_PAGES,
            "{failing} could not be read: nothing is left of the tree"
        );
    }
    assert!(used_again > 0, "what was freed was not used again");
}

/// Frees the evicted pages of a value or tree made by `make`, when no memory is left for pages.
fn free_without_memory<T>(make: impl FnOnce(&Arc<Pool>) -> T, free: impl FnOnce(&Pool, T)) {
    let (pool, images) = pool(50);
    let made = make(&pool);
    let pages = allocated(&pool);
    assert!(pages.len() >= 5);
    push_out(&pool, &images.images);
    let held: Vec<_> = std::iter::from_fn(|| pool.allocate().ok()).collect();
    assert!(held.len() >= 12);
    free(&pool, made);
    assert!(
        pages.iter().all(|page| !pool.frames().is_allocated(*page)),
        "{pages:?} of which are left {:?}",
        allocated(&pool)
    );
}

/// Regression: a writer that had found no memory for its next page found none for bringing in its
/// abandoned pages either. They stayed allocated.
#[test]
fn abandoned_value_is_freed_without_memory() {
    let make = |pool: &Arc<Pool>| {
        let mut writer = LargeWriter::new(pool.clone(), 0);
        writer.write(&[7; 5 * PAGE_BYTES]).expect("room");
        writer
    };
    free_without_memory(make, |_, writer| drop(writer));
}

#[test]
fn value_without_reference_is_freed_without_memory() {
    let make = |pool: &Arc<Pool>| write_value(pool, 5 * PAGE_BYTES);
    free_without_memory(make, |pool, value| overflow::free(pool, &value).expect("one page at a time"));
}

#[test]
fn tree_is_freed_without_memory() {
    free_without_memory(tree_with_values, |_, tree| tree.destroy().expect("one page at a time"));
}
