//! What the pool asks of the system.

use crate::buffer::Pool;
use crate::buffer::frames::HUGE_PAGES_FROM_BYTES;
use crate::buffer::test_sources::{Images, PAGE_BYTES};
use std::sync::Arc;

/// Returns the system's flags of the memory at `address`, in two-letter words.
fn advice_at(address: usize) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
    let mut inside = false;
    for line in maps.lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let bound = |hex| usize::from_str_radix(hex, 16).ok();
        if let Some((Some(start), Some(end))) = range.map(|(start, end)| (bound(start), bound(end))) {
            inside = (start..end).contains(&address);
        } else if inside && let Some(flags) = line.strip_prefix("VmFlags: ") {
            return Some(format!(" {flags} "));
        }
    }
    None
}

/// Regression: all page ids fitted in memory, so huge pages stayed advised although pages had left.
/// The system put the memory that had been given back into huge pages again, a fifth more than the
/// budget.
#[test]
fn huge_pages_are_not_wanted_after_a_page_has_left() {
    let pool =
        Pool::new(PAGE_BYTES, HUGE_PAGES_FROM_BYTES, Arc::new(Images::default())).expect("address space");
    let page = pool.allocate().expect("room");
    let address = pool.frames().address();
    match advice_at(address) {
        Some(advice) if advice.contains(" hg ") => {}
        advice => {
            println!("not tested: the system has no huge pages, or does not report them ({advice:?})");
            return;
        }
    }
    pool.free(page);
    assert_eq!(pool.memory().discard_free_pages(1), 1);
    let advice = advice_at(address).expect("it was reported before");
    assert!(!advice.contains(" hg "), "{advice}");
}
