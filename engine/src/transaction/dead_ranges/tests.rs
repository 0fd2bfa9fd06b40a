//! Tests of the dead ranges of one table.

use super::*;

fn range(from: &str, to: &str, newest: u64) -> DeadRange {
    let to = (!to.is_empty()).then(|| to.as_bytes().to_vec());
    DeadRange { from: from.as_bytes().to_vec(), to, newest: Csn(newest), owner: None, rows: 20 }
}

fn view(snapshot: u64) -> View {
    View { snapshot: Csn(snapshot), own: Stamp(0) }
}

/// Records a range. Snapshots at `pins` are open.
fn record(ranges: &DeadRanges, new: DeadRange, pins: &[u64]) {
    let claim = ranges.claim(&new.from, new.to.as_deref()).expect("a claim");
    let pins = pins.iter().copied().map(Csn).collect();
    ranges.record(&claim, vec![new], &Mergeable { bound: Csn(1000), pins });
}

fn all(ranges: &DeadRanges) -> Vec<(String, String, u64)> {
    let guard = pin();
    let text = |key: &[u8]| String::from_utf8_lossy(key).replace('\0', "+");
    let lists = ranges.lists.load(&guard).cloned().unwrap_or_default();
    let each = lists.ranges.iter();
    each.map(|range| (text(&range.from), text(range.to.as_deref().unwrap_or_default()), range.newest.0))
        .collect()
}

fn tuples(expected: &[(&str, &str, u64)]) -> Vec<(String, String, u64)> {
    expected.iter().map(|(from, to, newest)| (from.to_string(), to.to_string(), *newest)).collect()
}

#[test]
fn range_is_found_from_both_sides_and_only_by_newer_snapshots() {
    let (ranges, guard) = (DeadRanges::default(), pin());
    record(&ranges, range("b", "d", 50), &[]);
    let lower =
        |bound, snapshot| ranges.find(Some(Place::lower(bound)), false, view(snapshot), &guard).is_some();
    let upper = |bound, snapshot| ranges.find(Place::upper(bound), true, view(snapshot), &guard).is_some();
    assert!(lower(Bound::Included(b"b"), 50) && !lower(Bound::Included(b"b"), 49));
    assert!(lower(Bound::Excluded(b"b"), 50) && lower(Bound::Included(b"czz"), 50));
    assert!(
        !lower(Bound::Included(b"d"), 50)
            && !lower(Bound::Included(b"a"), 50)
            && !lower(Bound::Unbounded, 50)
    );
    assert!(upper(Bound::Excluded(b"d"), 50) && !upper(Bound::Excluded(b"d"), 49));
    assert!(upper(Bound::Included(b"b"), 50) && !upper(Bound::Excluded(b"b"), 50));
    assert!(!upper(Bound::Included(b"d"), 50) && !upper(Bound::Unbounded, 50));
    record(&ranges, range("x", "", 60), &[]);
    assert!(upper(Bound::Unbounded, 60) && lower(Bound::Excluded(b"z"), 60));
}

#[test]
fn key_right_behind_a_bound_is_the_same_place() {
    let (ranges, guard) = (DeadRanges::default(), pin());
    record(&ranges, range("b\0", "d", 50), &[]);
    let lower = |bound| ranges.find(Some(Place::lower(bound)), false, view(50), &guard).is_some();
    assert!(lower(Bound::Excluded(b"b")) && !lower(Bound::Included(b"b")));
    assert_eq!(Place::lower(Bound::Excluded(b"b")).first_key(), b"b\0");
    assert!(ranges.find(Place::upper(Bound::Included(b"b")), true, view(50), &guard).is_none());
}

#[test]
fn key_that_is_taken_out_divides_the_range() {
    let (ranges, guard) = (DeadRanges::default(), pin());
    record(&ranges, range("b", "d", 50), &[]);
    for key in [&b"a"[..], b"d"] {
        ranges.take_out(key, &guard);
    }
    assert_eq!(all(&ranges), tuples(&[("b", "d", 50)]));
    ranges.take_out(b"c", &guard);
    assert_eq!(all(&ranges), tuples(&[("b", "c", 50), ("c+", "d", 50)]));
    ranges.take_out(b"b", &guard);
    assert_eq!(all(&ranges), tuples(&[("b+", "c", 50), ("c+", "d", 50)]));
}

#[test]
fn claim_is_broken_by_a_writer_and_ends_with_its_owner() {
    let (ranges, guard) = (DeadRanges::default(), pin());
    let claim = ranges.claim(b"b", Some(b"d")).expect("a claim");
    ranges.take_out(b"c", &guard);
    ranges.record(&claim, vec![range("b", "d", 50)], &Mergeable { bound: Csn(1000), pins: Vec::new() });
    assert_eq!(all(&ranges), tuples(&[]));
    let claims: Vec<_> = (0..CLAIMS_MAX).map(|_| ranges.claim(b"b", None).expect("a claim")).collect();
    assert!(ranges.claim(b"b", None).is_none(), "too many");
    drop(claims);
    assert!(ranges.lists.load(&pin()).is_none(), "nothing is left");
    assert!(ranges.claim(&[1; BOUNDS_BYTES_MAX + 1], None).is_none(), "too long");
    assert!(ranges.claim(b"d", Some(b"d")).is_none(), "empty");
}

#[test]
fn neighbours_are_merged_unless_a_snapshot_is_between_them() {
    let ranges = DeadRanges::default();
    record(&ranges, range("a", "b", 10), &[]);
    record(&ranges, range("b", "c", 20), &[15]);
    assert_eq!(all(&ranges), tuples(&[("a", "b", 10), ("b", "c", 20)]));
    record(&ranges, range("c", "d", 30), &[15, 30]);
    assert_eq!(all(&ranges), tuples(&[("a", "b", 10), ("b", "d", 30)]));
    record(&ranges, range("d", "e", 1001), &[]);
    assert_eq!(all(&ranges), tuples(&[("a", "d", 30), ("d", "e", 1001)]));
    // The new one counts where it overlaps old ones.
    record(&ranges, range("c", "dd", 40), &[35]);
    assert_eq!(all(&ranges), tuples(&[("a", "c", 30), ("c", "dd", 40), ("dd", "e", 1001)]));
}

#[test]
fn owned_range_serves_its_owner_until_that_commits() {
    let (ranges, guard, owner) = (DeadRanges::default(), pin(), Stamp(1 << 63 | 7));
    let serves = |view| ranges.find(Some(Place::lower(Bound::Unbounded)), false, view, &guard).is_some();
    let own = View { snapshot: Csn(60), own: owner };
    for csn in [Some(Csn(70)), None] {
        record(&ranges, DeadRange { owner: Some(owner), ..range("", "d", 50) }, &[]);
        record(&ranges, range("d", "e", 50), &[]);
        assert!(serves(own) && !serves(view(60)) && !serves(view(1000)));
        ranges.end_owner(owner, csn);
        assert!(!serves(view(60)));
        assert_eq!(serves(view(70)), csn.is_some());
        ranges.end_owner(owner, None);
    }
}

#[test]
fn list_has_a_bound_and_loses_the_smallest_range() {
    let ranges = DeadRanges::default();
    for n in 0..RANGES_MAX + 5 {
        let rows = if n == 7 { 1 } else { 20 + n as u64 };
        record(&ranges, DeadRange { rows, ..range(&format!("{n:05}a"), &format!("{n:05}b"), 50) }, &[]);
    }
    let known = all(&ranges);
    assert_eq!(known.len(), RANGES_MAX);
    assert!(known.iter().all(|(from, ..)| from != "00007a"));
    assert_eq!(ranges.run_min(&pin()), RUN_MIN + RANGES_MAX / RANGES_PER_ROW);
}
