//! The judge of a database whose device has broken a promise.
//!
//! Acknowledged data may be missing then: a lying flush or a lost end of the log leaves no sign.
//! But either the open, a read or `verify` reports damage, or the content makes sense: some
//! transaction wrote every row, transactions are whole and present with everything that they
//! observed, nothing aborted is present, the rows of each thread show one of its commits, and the
//! observations of transactions are consistent.

use crate::config::Trouble;
use crate::known::Known;
use crate::support::Content;
use quenchdb::{Database, Error, ErrorKind, Result};

/// The answer of such a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The database reads and verifies clean, and makes sense.
    Sense,
    /// The database reports damage.
    Damaged,
    /// Memory or the device prevented a complete check.
    NotSeen,
}

impl Answer {
    pub fn name(self) -> &'static str {
        match self {
            Answer::Sense => "makes sense after a broken promise",
            Answer::Damaged => "damage is reported after a broken promise",
            Answer::NotSeen => "not all is read after a broken promise",
        }
    }
}

/// Returns true if the error reports changed, missing or foreign data.
pub fn is_damage(error: &Error) -> bool {
    let kinds =
        [ErrorKind::Corruption, ErrorKind::NotFound, ErrorKind::Unsupported, ErrorKind::InvalidArgument];
    kinds.contains(&error.kind())
}

/// Judges an open database, in a run with this trouble.
///
/// # Panics
/// If the database reports no damage and its content makes no sense.
pub fn judge(db: &Database, known: &Known, trouble: Trouble, context: &str) -> Answer {
    let works = trouble.lets_work();
    let read = content(db);
    let verified = db.verify(None);
    let damage = |error: &Error| {
        assert!(!works || is_damage(error) || error.kind() == ErrorKind::OutOfMemory, "{context}: {error}");
        if is_damage(error) { Answer::Damaged } else { Answer::NotSeen }
    };
    match (read, verified) {
        (Err(error), Ok(report)) => {
            let found = !report.problems.is_empty();
            let answer = damage(&error);
            assert!(
                found || !works || answer == Answer::NotSeen,
                "{context}: {error}, and verify is content"
            );
            answer
        }
        (_, Err(error)) => damage(&error),
        (Ok(_), Ok(report)) if !report.problems.is_empty() => Answer::Damaged,
        (Ok(content), Ok(_)) => {
            known.judge_weakly(&content, &db.tables(), context);
            Answer::Sense
        }
    }
}

/// Returns every row of every table, or the first read error.
fn content(db: &Database) -> Result<Content> {
    let snapshot = db.begin_read()?;
    let mut content = Content::new();
    for name in db.tables() {
        let table = db.table(&name)?;
        for row in snapshot.range::<&[u8]>(&table, ..) {
            let (key, value) = row?;
            content.insert((name.clone(), key), value);
        }
    }
    Ok(content)
}
