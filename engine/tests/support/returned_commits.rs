//! Checks the promise of `flush`, `checkpoint` and `close`: when the call returns `Ok`, every
//! commit that returned before the call is durable. This holds at any durability level, for commits
//! of any thread, and whether or not a thread still waits for the commit.

use super::bank::Id;
use super::row_history::{Owner, RowHistory};
use quenchdb::Result;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// A transaction with a row in the journal.
    Journal(Id),
    /// A commit of a thread's own rows: the owner and the commit's number.
    Own(Owner, usize),
}

/// The commits of a run whose calls have returned. Uses a plain mutex, not the simulation's,
/// because no thread blocks while it holds the lock.
#[derive(Debug, Default)]
pub struct ReturnedCommits(Mutex<Commits>);

#[derive(Debug, Default)]
struct Commits {
    returned: Vec<Commit>,
    /// The first `durable` commits are known to be durable.
    durable: usize,
}

impl ReturnedCommits {
    fn commits(&self) -> MutexGuard<'_, Commits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the call of a commit has returned.
    pub fn returned(&self, commit: Commit) {
        self.commits().returned.push(commit);
    }

    /// Returns the commits whose calls have returned.
    pub fn all(&self) -> Vec<Commit> {
        self.commits().returned.clone()
    }

    /// Runs `call`, which makes all earlier commits durable. Returns the commits that were not
    /// known to be durable before.
    pub fn make_durable<T>(&self, call: impl FnOnce() -> Result<T>) -> Result<Vec<Commit>> {
        let returned = self.commits().returned.len();
        call()?;
        let mut commits = self.commits();
        let known = commits.durable;
        commits.durable = known.max(returned);
        Ok(commits.returned.get(known..returned).unwrap_or_default().to_vec())
    }
}

/// Records durable commits, each with a number of disk operations: those of the journal in
/// `journal`, others in their owner's history.
pub fn acknowledge(
    durable: &[(usize, Commit)],
    journal: &mut Vec<(usize, Id)>,
    histories: &mut [RowHistory],
) {
    for (operations, commit) in durable {
        match commit {
            Commit::Journal(id) => journal.push((*operations, *id)),
            Commit::Own(owner, commit) => {
                let own = histories.iter_mut().filter(|history| history.owner == *owner);
                own.for_each(|history| history.acknowledge(*operations, *commit));
            }
        }
    }
}
