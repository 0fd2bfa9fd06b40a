//! Mistakes of servers that pass for S3, so that clients can be seen to refuse them.

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
}

impl Mistake {
    /// All of them, with their names on the command line.
    pub const ALL: [(&'static str, Mistake); 5] = [
        ("ignores-offset", Mistake::IgnoresOffset),
        ("ignores-if-none-match", Mistake::IgnoresIfNoneMatch),
        ("ignores-if-match", Mistake::IgnoresIfMatch),
        ("ignores-range", Mistake::IgnoresRange),
        ("lists-late", Mistake::ListsLate),
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
