//! The direct predecessors of a transaction that were not committed when it met them: a short list
//! without an allocation.

use crate::base::Csn;

/// Predecessors that a list distinguishes.
pub const PREDECESSORS: usize = 6;

/// A list of direct predecessors. It remembers up to `PREDECESSORS`; with more it only knows that
/// there were too many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Predecessors {
    csns: [Csn; PREDECESSORS],
    /// Length of the list; one more than `PREDECESSORS` if there were too many.
    count: u8,
}

impl Predecessors {
    /// Adds one.
    #[inline]
    pub fn add(&mut self, csn: Csn) {
        let known = usize::from(self.count);
        if known > PREDECESSORS || self.csns[..known].contains(&csn) {
            return;
        }
        match self.csns.get_mut(known) {
            Some(place) => *place = csn,
            None => self.csns = [Csn::ZERO; PREDECESSORS],
        }
        self.count += 1;
        debug_assert!(usize::from(self.count) <= PREDECESSORS + 1, "too many are as many as one too many");
    }

    /// Removes those for which `keep` returns false. A list that had too many stays so.
    pub fn retain(&mut self, keep: impl Fn(Csn) -> bool) {
        let Some(all) = self.all() else { return };
        let mut kept = Predecessors::default();
        all.iter().filter(|csn| keep(**csn)).for_each(|csn| kept.add(*csn));
        *self = kept;
    }

    /// Says that there were too many.
    pub fn overflow(&mut self) {
        *self = Predecessors { count: PREDECESSORS as u8 + 1, ..Predecessors::default() };
    }

    /// Returns whether one more may be one too many.
    #[must_use]
    pub fn is_full(&self) -> bool {
        usize::from(self.count) == PREDECESSORS
    }

    /// Returns the length of the list; one more than the longest if there were too many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count.into()
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the list; none if there were too many.
    #[must_use]
    pub fn all(&self) -> Option<&[Csn]> {
        self.csns.get(..self.count.into())
    }

    /// Returns the highest CSN of the list; 0 without any.
    pub fn highest(&self) -> Csn {
        self.csns.iter().copied().max().unwrap_or(Csn::ZERO)
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
