//! Counts of what went wrong in a simulated disk or store.

use std::collections::BTreeMap;

/// How often each event occurred, by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts(BTreeMap<&'static str, u64>);

impl FaultCounts {
    /// Returns how often the event `name` occurred.
    #[must_use]
    pub fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Returns the events that occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(name, count)| (*name, *count))
    }

    /// Adds the counts of another disk or store.
    pub fn merge(&mut self, other: &FaultCounts) {
        other.iter().for_each(|(name, count)| *self.0.entry(name).or_default() += count);
    }

    pub(super) fn count(&mut self, name: &'static str) {
        *self.0.entry(name).or_default() += 1;
    }
}
