//! What is known of a database from the lives before a crash, and what is found after it.

use crate::isolation::Past as Seen;
use crate::life::Lived;
use crate::support::Content;
use crate::support::bank::{Id, judge_both, judge_content};
use crate::support::shadow::{Owner, Past, judge_shadows};
use quenchdb::Database;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is known.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// They must be there.
    must: BTreeSet<Id>,
    /// They were aborted, and must never be there.
    never: BTreeSet<Id>,
    /// The rows of each of these threads are as one of its commits left them: this one, or a later one.
    shadows: Vec<(Arc<Past>, usize)>,
    /// What transactions saw of each other.
    pub seen: Arc<Seen>,
}

/// What is found.
#[derive(Debug, PartialEq)]
pub struct Found {
    content: Content,
    /// Which of its commits the rows of each thread are as.
    commits: BTreeMap<Owner, usize>,
}

impl Known {
    /// Judges a database.
    ///
    /// # Panics
    /// With what is lost or broken.
    pub fn judge(&self, db: &Database, context: &str) -> Found {
        let content = judge_both(db, &self.must, &self.never, context);
        let pasts: Vec<&Past> = self.shadows.iter().map(|(past, _)| &**past).collect();
        let least: BTreeMap<Owner, usize> =
            self.shadows.iter().map(|(past, commit)| (past.owner, *commit)).collect();
        let commits = judge_shadows(&content, &pasts, |past| least[&past.owner], context);
        Found { content, commits }
    }

    /// Judges what is there after the device has broken a promise, where that is known to nobody: see `weak`.
    ///
    /// # Panics
    /// With what makes no sense.
    pub fn judge_weakly(&self, content: &Content, context: &str) {
        judge_content(content, &BTreeSet::new(), &self.never, context);
        let pasts: Vec<&Past> = self.shadows.iter().map(|(past, _)| &**past).collect();
        judge_shadows(content, &pasts, |_| 0, context);
        self.seen.judge_weakly(content, context);
    }

    /// What is known if `lived`, which began with this, ends after so many operations of its disk.
    #[must_use]
    pub fn after(&self, lived: &Lived, operations: usize) -> Known {
        let mut known = self.clone();
        known.must.extend(lived.acknowledged.iter().filter(|(at, _)| *at <= operations).map(|(_, id)| *id));
        // Before the call that aborted them returned nothing of them was there either.
        known.never.extend(&lived.aborted);
        // Whatever was served must stay.
        let opened = lived.opened_at.is_some_and(|opened| opened <= operations);
        if let Some(found) = lived.found.as_ref().filter(|_| opened) {
            let journal = found.content.keys().filter(|(table, _)| table == "journal");
            known.must.extend(journal.map(|(_, id)| <Id>::try_from(&id[..]).expect("an id")));
            for (past, commit) in &mut known.shadows {
                *commit = found.commits[&past.owner];
            }
        }
        if let Some(isolation) = &lived.isolation {
            known.seen = isolation.after(operations);
        }
        known.shadows.extend(lived.shadows.iter().map(|past| (past.clone(), past.told_by(operations))));
        known
    }
}
