//! What is known of a database from the lives before a crash, and what is found after it.

use crate::copies::Backup;
use crate::isolation::Past as Seen;
use crate::life::Lived;
use crate::support::Content;
use crate::support::bank::{Id, judge_both, judge_content};
use crate::support::past::{Owner, Past, Reached, judge_shadows, judge_shadows_weakly};
use crate::support::so_far::Commit;
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
    /// The rows of each owner are as one of its commits left them: this one, or a later one.
    shadows: BTreeMap<Owner, (Arc<Past>, Reached)>,
    /// Of the life before.
    backups: Vec<Backup>,
    /// What transactions saw of each other.
    pub seen: Arc<Seen>,
}

/// What is found.
#[derive(Debug, PartialEq)]
pub struct Found {
    content: Content,
    /// How far the rows of each owner have come.
    reached: BTreeMap<Owner, Reached>,
}

impl Found {
    /// Every row of every table.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// These rows, of nobody.
    #[cfg(test)]
    pub fn of(content: Content) -> Found {
        Found { content, reached: BTreeMap::new() }
    }

    /// Rows of trees that have three levels if there are enough of them.
    pub fn long_keys(&self) -> usize {
        self.content.keys().filter(|(_, key)| key.len() > 300).count()
    }
}

impl Known {
    /// Judges a database.
    ///
    /// # Panics
    /// With what is lost or broken.
    pub fn judge(&self, db: &Database, context: &str) -> Found {
        let content = judge_both(db, &self.must, &self.never, context);
        let pasts: Vec<&Past> = self.shadows.values().map(|(past, _)| &**past).collect();
        let least = |past: &Past| self.shadows[&past.owner].1;
        let reached = judge_shadows(&content, &db.tables(), &pasts, least, context);
        Found { content, reached }
    }

    /// The rows that were found of each owner, for somebody to go on with.
    pub fn to_adopt(&self, found: &Found) -> Vec<(Arc<Past>, Reached)> {
        let reached = |past: &Past| found.reached[&past.owner];
        self.shadows.values().map(|(past, _)| (past.clone(), reached(past))).collect()
    }

    /// These commits must be there, too.
    pub fn must_have(&mut self, commits: &[Commit]) {
        for commit in commits {
            match commit {
                Commit::Journal(id) => drop(self.must.insert(*id)),
                Commit::Own(owner, commit) => {
                    let (_, reached) = self.shadows.get_mut(owner).expect("of this life");
                    reached.commit = reached.commit.max(*commit);
                }
            }
        }
    }

    /// Those of the life before, in their order.
    pub fn backups(&self) -> &[Backup] {
        &self.backups
    }

    /// Judges what is there after the device has broken a promise, where that is known to nobody: see `weak`.
    ///
    /// # Panics
    /// With what makes no sense.
    pub fn judge_weakly(&self, content: &Content, tables: &[String], context: &str) {
        judge_content(content, &BTreeSet::new(), &self.never, context);
        let pasts: Vec<&Past> = self.shadows.values().map(|(past, _)| &**past).collect();
        judge_shadows_weakly(content, tables, &pasts, context);
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
            for (owner, (_, reached)) in &mut known.shadows {
                *reached = found.reached[owner];
            }
        }
        // Whoever went on with another's rows has done nothing yet while the database is being opened.
        for past in lived.shadows.iter().filter(|past| opened || !self.shadows.contains_key(&past.owner)) {
            known.shadows.insert(past.owner, (past.clone(), past.told_by(operations)));
        }
        if let Some(isolation) = &lived.isolation {
            known.seen = isolation.after(operations);
        }
        known.backups = lived.backups.iter().filter(|backup| backup.ended <= operations).cloned().collect();
        known
    }
}
