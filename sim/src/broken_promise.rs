//! The judge of a database whose device has broken a promise.
//!
//! Acknowledged data may be missing then: a lying flush or a lost end of the log leaves no trace.
//! But either the open, a read or `verify` reports damage, or the content is consistent:
//! - some transaction wrote every row;
//! - transactions are whole, and present with everything that they observed;
//! - nothing aborted is present;
//! - the rows of each thread show one of its commits;
//! - the observations of transactions agree.

use crate::config::PlannedFault;
use crate::known::Known;
use crate::support::Content;
use quenchdb::{Database, Error, ErrorKind, Result};

/// The answer of such a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Every read succeeds, `verify` finds nothing, and the content is consistent.
    Consistent,
    /// The database reports damage.
    Damaged,
    /// Memory or the device prevented a complete check.
    Unknown,
}

impl Answer {
    pub fn name(self) -> &'static str {
        match self {
            Answer::Consistent => "consistent after a broken promise",
            Answer::Damaged => "damage reported after a broken promise",
            Answer::Unknown => "not all read after a broken promise",
        }
    }
}

/// Returns true if the error reports changed, missing or foreign data.
pub fn is_damage(error: &Error) -> bool {
    let kinds =
        [ErrorKind::Corruption, ErrorKind::NotFound, ErrorKind::Unsupported, ErrorKind::InvalidArgument];
    kinds.contains(&error.kind())
}

/// Checks an open database in a run with `fault`.
///
/// # Panics
/// If the database reports no damage and its content is inconsistent.
pub fn judge(db: &Database, known: &Known, fault: PlannedFault, context: &str) -> Answer {
    let works = fault.allows_work();
    let read = content(db);
    let verified = db.verify(None);
    let damage = |error: &Error| {
        assert!(!works || is_damage(error) || error.kind() == ErrorKind::OutOfMemory, "{context}: {error}");
        if is_damage(error) { Answer::Damaged } else { Answer::Unknown }
    };
    match (read, verified) {
        (Err(error), Ok(report)) => {
            let found = !report.problems.is_empty();
            let answer = damage(&error);
            assert!(
                found || !works || answer == Answer::Unknown,
                "{context}: {error}, and verify finds nothing"
            );
            answer
        }
        (_, Err(error)) => damage(&error),
        (Ok(_), Ok(report)) if !report.problems.is_empty() => Answer::Damaged,
        (Ok(content), Ok(_)) => {
            known.judge_weakly(&content, &db.tables(), context);
            Answer::Consistent
        }
    }
}

/// Returns every row of every table, or the first read error.
fn content(db: &Database) -> Result<Content> {
    let snapshot = db.begin_read()?;
    let mut content = Content::new();
    for name in db.tables() {
        let table = db.table(&name)?;
        for row in snapshot.range(&table, ..) {
            let (key, value) = row?;
            content.insert((name.clone(), key), value);
        }
    }
    Ok(content)
}
