//! What `flush`, `checkpoint` and `close` promise: whatever had committed when the call began is
//! durable when it returns `Ok`, at whatever level, by whichever thread, and whether or not
//! somebody still waits for it.

use super::bank::Id;
use super::past::{Owner, Past};
use quenchdb::Result;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// Of a transaction with a row in the journal.
    Journal(Id),
    /// Of rows of a thread's own: whose, and which of their commits.
    Own(Owner, usize),
}

/// The commits of a life whose calls have returned. Not with the simulation's mutexes: nothing is
/// waited for under it.
#[derive(Debug, Default)]
pub struct SoFar(Mutex<Commits>);

#[derive(Debug, Default)]
struct Commits {
    returned: Vec<Commit>,
    /// So many, the first, are known to be durable.
    durable: usize,
}

impl SoFar {
    fn commits(&self) -> MutexGuard<'_, Commits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The call of a commit has returned.
    pub fn returned(&self, commit: Commit) {
        self.commits().returned.push(commit);
    }

    /// What has committed.
    pub fn returned_so_far(&self) -> Vec<Commit> {
        self.commits().returned.clone()
    }

    /// Does `call`, which makes everything so far durable. Returns what is durable by it, and was
    /// not known to be.
    pub fn make_durable<T>(&self, call: impl FnOnce() -> Result<T>) -> Result<Vec<Commit>> {
        let so_far = self.commits().returned.len();
        call()?;
        let mut commits = self.commits();
        let known = commits.durable;
        commits.durable = known.max(so_far);
        Ok(commits.returned.get(known..so_far).unwrap_or_default().to_vec())
    }
}

/// Tells of commits that must be there, each from so many disk operations on: those of the journal
/// to `journal`, others to whose they are.
pub fn tell(durable: &[(usize, Commit)], journal: &mut Vec<(usize, Id)>, pasts: &mut [Past]) {
    for (operations, commit) in durable {
        match commit {
            Commit::Journal(id) => journal.push((*operations, *id)),
            Commit::Own(owner, commit) => {
                let own = pasts.iter_mut().filter(|past| past.owner == *owner);
                own.for_each(|past| past.tell(*operations, *commit));
            }
        }
    }
}
