//! Ranges of keys, as the flags and the shell name them.

use std::ops::Bound;

/// The first and the last key of a range.
pub type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A range as it is asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Asked {
    /// The first key.
    pub from: Option<Vec<u8>>,
    /// All keys are below this one.
    pub to: Option<Vec<u8>>,
    /// All keys begin with this.
    pub prefix: Option<Vec<u8>>,
}

impl Asked {
    /// Returns the range. A prefix excludes the other limits.
    pub fn bounds(self) -> KeyRange {
        match self.prefix {
            Some(prefix) => {
                let end = after_prefix(&prefix);
                (if prefix.is_empty() { Bound::Unbounded } else { Bound::Included(prefix) }, end)
            }
            None => (
                self.from.map_or(Bound::Unbounded, Bound::Included),
                self.to.map_or(Bound::Unbounded, Bound::Excluded),
            ),
        }
    }
}

/// Returns the first key above all keys that begin with `prefix`.
fn after_prefix(prefix: &[u8]) -> Bound<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return Bound::Excluded(end);
        }
    }
    Bound::Unbounded
}

#[cfg(test)]
mod tests;
