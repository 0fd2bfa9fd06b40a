//! Mistakes of servers that pass for S3, so that clients can be seen to refuse them.

use quenchdb::internals::device::objects::simulated::BrokenPromises;
use std::str::FromStr;

/// A promise of S3 that some server breaks without an error.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mistake {
    /// An append replaces the object, because the offset is ignored.
    IgnoresOffset,
    /// `If-None-Match: *` is ignored.
    IgnoresIfNoneMatch,
    /// `If-Match` is ignored.
    IgnoresIfMatch,
    /// A read returns the whole object, because the range is ignored.
    IgnoresRange,
    /// A list lacks what was written in the last second.
    ListsLate,
    /// `If-None-Match: *` is checked some time before the object is written, so that creations that
    /// overlap succeed.
    RacesIfNoneMatch,
    /// The same for `If-Match` of a write.
    RacesIfMatch,
    /// The same for the offset of an append.
    RacesOffset,
    /// While an object is replaced, a read returns a part of the new bytes and a part of the old.
    TearsReads,
}

impl Mistake {
    /// Those that show only when requests overlap.
    pub(crate) const OF_OVERLAP: [Mistake; 4] =
        [Mistake::RacesIfNoneMatch, Mistake::RacesIfMatch, Mistake::RacesOffset, Mistake::TearsReads];

    /// All of them, with their names on the command line.
    pub const ALL: [(&'static str, Mistake); 9] = [
        ("ignores-offset", Mistake::IgnoresOffset),
        ("ignores-if-none-match", Mistake::IgnoresIfNoneMatch),
        ("ignores-if-match", Mistake::IgnoresIfMatch),
        ("ignores-range", Mistake::IgnoresRange),
        ("lists-late", Mistake::ListsLate),
        ("races-if-none-match", Mistake::RacesIfNoneMatch),
        ("races-if-match", Mistake::RacesIfMatch),
        ("races-offset", Mistake::RacesOffset),
        ("tears-reads", Mistake::TearsReads),
    ];
}

impl FromStr for Mistake {
    type Err = String;

    fn from_str(text: &str) -> Result<Mistake, String> {
        let found = Mistake::ALL.iter().find(|(name, _)| *name == text);
        found.map(|(_, mistake)| *mistake).ok_or_else(|| {
            let names: Vec<&str> = Mistake::ALL.iter().map(|(name, _)| *name).collect();
            format!("there is no mistake `{text}`: use {}", names.join(", "))
        })
    }
}

/// Returns what these mistakes mean to a bucket. It knows nothing of the others.
pub(crate) fn broken(mistakes: &[Mistake]) -> BrokenPromises {
    BrokenPromises {
        appends_overwrite: mistakes.contains(&Mistake::IgnoresOffset),
        creations_overwrite: mistakes.contains(&Mistake::IgnoresIfNoneMatch),
        versions_ignored: mistakes.contains(&Mistake::IgnoresIfMatch),
        ..BrokenPromises::default()
    }
}

/// Parses names that commas separate; an empty text has none.
///
/// # Errors
/// A text that names the unknown mistake.
pub(crate) fn parse_all(text: &str) -> Result<Vec<Mistake>, String> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::parse).collect()
}
