//! Unit tests of `page_space`.

use super::*;
use crate::sync::atomic::Ordering;

const PAGE_BYTES: usize = 4096;

/// A space whose ids all have their own number in their entry and in the first and the last word of
/// their memory.
fn numbered(memory_bytes: u64, ids: u64) -> PageSpace<AtomicU64> {
    let space = PageSpace::<AtomicU64>::reserve(PAGE_BYTES, memory_bytes).expect("address space");
    assert!(space.end() < ids, "the test wants other extents");
    space.grow_to(PageId(ids - 1)).expect("address space");
    for id in 0..ids {
        space.entry(PageId(id)).store(id, Ordering::Relaxed);
        let words = space.find(PageId(id)).expect("it has one").1;
        words[0].store(id, Ordering::Relaxed);
        words[words.len() - 1].store(id, Ordering::Relaxed);
    }
    space
}

#[test]
fn every_id_has_memory_of_its_own_in_every_extent() {
    const IDS: u64 = 5000;
    let space = numbered(16 * PAGE_BYTES as u64, IDS);
    assert!(space.end() >= IDS && space.end() < 4 * IDS);
    for id in 0..IDS {
        let words = space.find(PageId(id)).expect("it has one").1;
        assert_eq!(words.len(), PAGE_BYTES / 8);
        let seen = [space.entry(PageId(id)), &words[0], &words[words.len() - 1]];
        assert!(seen.iter().all(|word| word.load(Ordering::Relaxed) == id), "{id}");
    }
    assert!(space.entry_of(PageId(space.end() - 1)).is_some());
    for beyond in [space.end(), space.end() + 1, 1 << 40, u64::MAX] {
        assert!(space.entry_of(PageId(beyond)).is_none(), "{beyond}");
    }
}

#[test]
fn discarded_pages_are_zero_and_others_stay_in_every_extent() {
    const IDS: u64 = 3000;
    let space = numbered(16 * PAGE_BYTES as u64, IDS);
    space.discard((0..IDS).filter(|id| id % 3 == 0).map(PageId));
    for id in 1..IDS {
        let expected = if id % 3 == 0 { 0 } else { id };
        assert_eq!(
            space.find(PageId(id)).expect("it has one").1[0].load(Ordering::Relaxed),
            expected,
            "{id}"
        );
        assert_eq!(space.entry(PageId(id)).load(Ordering::Relaxed), id, "{id}");
    }
}
