//! A set of CSNs as ranges: aborted CSNs come in runs.
//!
//! # Invariants
//! - Ranges are inclusive, ascending, and neither overlap nor touch; equal sets are therefore equal
//!   values.

use crate::base::Csn;

/// A set of CSNs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CsnSet {
    ranges: Vec<(Csn, Csn)>,
}

impl CsnSet {
    /// The set of the inclusive ranges in `ranges`, in any order, overlapping or not; empty ones
    /// are ignored.
    #[must_use]
    pub fn from_ranges(ranges: impl IntoIterator<Item = (Csn, Csn)>) -> CsnSet {
        let mut sorted: Vec<_> = ranges.into_iter().filter(|(first, last)| first <= last).collect();
        sorted.sort_unstable();
        let mut set = CsnSet::default();
        for (first, last) in sorted {
            match set.ranges.last_mut() {
                Some((_, end)) if first.0 <= end.0.saturating_add(1) => *end = (*end).max(last),
                _ => set.ranges.push((first, last)),
            }
        }
        set
    }

    /// The ranges, ascending.
    #[must_use]
    pub fn ranges(&self) -> &[(Csn, Csn)] {
        &self.ranges
    }

    /// Returns whether the set is empty.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The highest CSN of the set.
    #[must_use]
    pub fn last(&self) -> Option<Csn> {
        self.ranges.last().map(|(_, last)| *last)
    }

    /// Returns whether `csn` is in the set.
    #[must_use]
    pub fn contains(&self, csn: Csn) -> bool {
        self.range_at(csn).is_some()
    }

    /// Returns the first CSN at or after `from` that is not in the set.
    #[must_use]
    pub fn first_absent(&self, from: Csn) -> Csn {
        self.range_at(from).map_or(from, |(_, last)| last.next())
    }

    /// Returns the members of both sets.
    #[must_use]
    pub fn union(&self, other: &CsnSet) -> CsnSet {
        CsnSet::from_ranges(self.ranges.iter().chain(&other.ranges).copied())
    }

    /// Returns the members above `csn`.
    #[must_use]
    pub fn above(&self, csn: Csn) -> CsnSet {
        let Some(low) = csn.0.checked_add(1).map(Csn) else { return CsnSet::default() };
        CsnSet::from_ranges(self.ranges.iter().map(|(first, last)| ((*first).max(low), *last)))
    }

    /// Returns the members up to `csn`.
    #[must_use]
    pub fn up_to(&self, csn: Csn) -> CsnSet {
        CsnSet::from_ranges(self.ranges.iter().map(|(first, last)| (*first, (*last).min(csn))))
    }

    fn range_at(&self, csn: Csn) -> Option<(Csn, Csn)> {
        let behind = self.ranges.partition_point(|(first, _)| *first <= csn);
        let range = *self.ranges.get(behind.checked_sub(1)?)?;
        (csn <= range.1).then_some(range)
    }
}

impl FromIterator<Csn> for CsnSet {
    fn from_iter<I: IntoIterator<Item = Csn>>(csns: I) -> CsnSet {
        CsnSet::from_ranges(csns.into_iter().map(|csn| (csn, csn)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_ranges_become_one_and_membership_follows() {
        let set: CsnSet = [5, 1, 2, 3, 9].map(Csn).into_iter().collect();
        assert_eq!(set.ranges(), [(Csn(1), Csn(3)), (Csn(5), Csn(5)), (Csn(9), Csn(9))]);
        assert!(set.contains(Csn(2)) && !set.contains(Csn(4)) && !set.contains(Csn(0)));
        assert_eq!(set.first_absent(Csn(1)), Csn(4));
        assert_eq!(set.first_absent(Csn(4)), Csn(4));
        assert_eq!(set.above(Csn(2)).ranges(), [(Csn(3), Csn(3)), (Csn(5), Csn(5)), (Csn(9), Csn(9))]);
        assert_eq!(set.union(&CsnSet::from_ranges([(Csn(4), Csn(8))])).ranges(), [(Csn(1), Csn(9))]);
        assert!(set.above(Csn::MAX).is_empty());
    }
}
