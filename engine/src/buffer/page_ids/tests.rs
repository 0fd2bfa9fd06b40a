//! Page ids side by side.

use super::*;

/// Takes an id as the pool does.
fn take(free: &mut FreeIds, page_count: &mut u64, before: Option<u64>) -> u64 {
    let before = before.map(PageId);
    free.take_cold(before).map_or_else(
        || {
            let (first, end) = (*page_count, *page_count + free.wanted(before));
            *page_count = end;
            free.add(before, first, end).0
        },
        |page| page.0,
    )
}

#[test]
fn sequences_lie_side_by_side_and_ids_are_given_out_once() {
    let (mut free, mut page_count) = (FreeIds::default(), 1);
    let mut taken = std::collections::BTreeSet::new();
    let mut lasts: Vec<u64> = (0..4).map(|_| take(&mut free, &mut page_count, None)).collect();
    taken.extend(lasts.iter().copied());
    let (mut side_by_side, steps) = (0, 300);
    for _ in 0..steps {
        for last in &mut lasts {
            let page = take(&mut free, &mut page_count, Some(*last));
            side_by_side += u64::from(page == *last + 1);
            assert!(taken.insert(page));
            *last = page;
        }
    }
    assert!(side_by_side > 4 * steps * 9 / 10, "{side_by_side}");
    // More sequences than are known: ids set aside for the oldest are used for others.
    for stranger in 0..2 * SEQUENCES_MAX as u64 {
        assert!(taken.insert(take(&mut free, &mut page_count, Some(1 << 40 | stranger))));
    }
    let before = page_count;
    while !free.cold.is_empty() {
        assert!(taken.insert(take(&mut free, &mut page_count, None)));
    }
    assert_eq!(page_count, before, "there were free ids");
    let set_aside: u64 = free.sequences.iter().map(|sequence| sequence.end - sequence.last - 1).sum();
    assert_eq!(taken.len() as u64 + set_aside, page_count - 1);
    assert!(set_aside < SEQUENCES_MAX as u64 * SET_ASIDE_MAX);
}

#[test]
fn sequence_uses_free_ids_before_new_ones() {
    let (mut free, mut page_count) = (FreeIds::default(), 1);
    let first = take(&mut free, &mut page_count, None);
    free.cold.push(PageId(99));
    assert_eq!(take(&mut free, &mut page_count, Some(first)), 99);
    assert_eq!(page_count, 2);
}
