//! Tests of intervals, against membership of all keys of one byte.

use super::*;

fn bounds() -> Vec<Bound<Vec<u8>>> {
    let keys = (1u8..5).map(|key| vec![key]);
    keys.flat_map(|key| [Bound::Included(key.clone()), Bound::Excluded(key)])
        .chain([Bound::Unbounded])
        .collect()
}

fn intervals() -> Vec<Interval> {
    let all = bounds();
    all.iter().flat_map(|from| all.iter().map(|to| Interval { from: from.clone(), to: to.clone() })).collect()
}

#[test]
fn membership_is_that_of_the_standard_library() {
    for interval in intervals() {
        let range = (interval.from.clone(), interval.to.clone());
        for key in (0u8..7).map(|key| vec![key]) {
            assert_eq!(interval.contains(&key), std::ops::RangeBounds::contains(&range, &key));
        }
    }
}

#[test]
fn a_hull_covers_both_intervals() {
    for a in intervals() {
        for b in intervals() {
            let mut hull = a.clone();
            hull.extend_over(&b);
            assert!(hull.covers(&a) && hull.covers(&b), "{hull:?} of {a:?} and {b:?}");
            let covers = (0u8..7).all(|key| !b.contains(&[key]) || a.contains(&[key]));
            assert!(covers || !a.covers(&b), "{a:?} does not cover {b:?}");
        }
    }
}
