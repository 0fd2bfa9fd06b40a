//! Intervals of keys.

use std::ops::Bound;

/// The keys between two bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// The lower bound.
    pub from: Bound<Vec<u8>>,
    /// The upper bound.
    pub to: Bound<Vec<u8>>,
}

impl Interval {
    /// All keys.
    pub const ALL: Interval = Interval { from: Bound::Unbounded, to: Bound::Unbounded };

    /// Returns whether the interval contains `key`.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        let after_from = match &self.from {
            Bound::Included(from) => key >= from.as_slice(),
            Bound::Excluded(from) => key > from.as_slice(),
            Bound::Unbounded => true,
        };
        after_from
            && match &self.to {
                Bound::Included(to) => key <= to.as_slice(),
                Bound::Excluded(to) => key < to.as_slice(),
                Bound::Unbounded => true,
            }
    }

    /// Returns whether every key of `other` is in this interval.
    #[cfg(test)]
    fn covers(&self, other: &Interval) -> bool {
        is_at_or_before(&self.from, &other.from) && is_at_or_after(&self.to, &other.to)
    }

    /// Extends the interval to the smallest one that contains `other`, too.
    pub fn extend_over(&mut self, other: &Interval) {
        if !is_at_or_before(&self.from, &other.from) {
            self.from = other.from.clone();
        }
        if !is_at_or_after(&self.to, &other.to) {
            self.to = other.to.clone();
        }
    }

    /// Returns the bytes of both bounds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        [&self.from, &self.to].into_iter().map(|bound| bound_bytes(bound).map_or(0, <[u8]>::len)).sum()
    }
}

fn bound_bytes(bound: &Bound<Vec<u8>>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

/// Returns whether a lower bound lets in every key that the lower bound `other` lets in.
fn is_at_or_before(bound: &Bound<Vec<u8>>, other: &Bound<Vec<u8>>) -> bool {
    match (bound_bytes(bound), bound_bytes(other)) {
        (None, _) => true,
        (_, None) => false,
        (Some(a), Some(b)) => {
            a < b || a == b && (matches!(bound, Bound::Included(_)) || matches!(other, Bound::Excluded(_)))
        }
    }
}

/// Returns whether an upper bound lets in every key that the upper bound `other` lets in.
fn is_at_or_after(bound: &Bound<Vec<u8>>, other: &Bound<Vec<u8>>) -> bool {
    match (bound_bytes(bound), bound_bytes(other)) {
        (None, _) => true,
        (_, None) => false,
        (Some(a), Some(b)) => {
            a > b || a == b && (matches!(bound, Bound::Included(_)) || matches!(other, Bound::Excluded(_)))
        }
    }
}

#[cfg(test)]
mod tests;
