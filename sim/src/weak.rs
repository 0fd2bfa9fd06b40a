//! What is asked of a database whose device has broken a promise.
//!
//! Something may be missing then, also what was acknowledged: of a flush that lied, of a log's end that was lost, nobody can know. But either
//! somebody is told, by the open, by a read or by `verify`, that there is damage; or what is there makes sense: every row was written by somebody,
//! transactions are whole and with all that they met, nothing that was aborted is there, the rows of each thread are as one of its commits left
//! them, and what transactions saw of each other can be explained.

use crate::config::Trouble;
use crate::known::Known;
use crate::support::Content;
use quenchdb::{Database, Error, ErrorKind, Result};

/// How a database answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It reads and verifies clean, and makes sense.
    Sense,
    /// It says that something is damaged.
    Damaged,
    /// Memory or the device did not allow to look at all of it.
    NotSeen,
}

impl Answer {
    pub fn name(self) -> &'static str {
        match self {
            Answer::Sense => "makes sense after a broken promise",
            Answer::Damaged => "damage is told after a broken promise",
            Answer::NotSeen => "not all is read after a broken promise",
        }
    }
}

/// Whether an error says that something is not as it was written; also that it is not there, or that it is somebody else's.
pub fn is_damage(error: &Error) -> bool {
    let kinds =
        [ErrorKind::Corruption, ErrorKind::NotFound, ErrorKind::Unsupported, ErrorKind::InvalidArgument];
    kinds.contains(&error.kind())
}

/// Judges a database that has been opened, in a life with this trouble.
///
/// # Panics
/// If it has no damage to tell of, and is nonsense.
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

/// Every row of every table, or why there is one that cannot be read.
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
