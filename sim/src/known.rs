//! The knowledge about a database from the runs before a crash, and the content found after it.

use crate::backups::Backup;
use crate::isolation::PriorRuns;
use crate::run::RunRecord;
use crate::support::Content;
use crate::support::bank::{Id, judge_both, judge_content};
use crate::support::past::{Owner, Past, Reached, judge_shadows, judge_shadows_weakly};
use crate::support::so_far::Commit;
use quenchdb::Database;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The knowledge about a database.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Transactions that must be present.
    must: BTreeSet<Id>,
    /// Aborted transactions, which must never appear.
    never: BTreeSet<Id>,
    /// For each owner the oldest commit that its rows may show.
    shadows: BTreeMap<Owner, (Arc<Past>, Reached)>,
    /// Backups of the previous run.
    backups: Vec<Backup>,
    /// What transactions observed of each other.
    pub observed: Arc<PriorRuns>,
}

/// The content of a database.
#[derive(Debug, PartialEq)]
pub struct Found {
    content: Content,
    /// The commit that the rows of each owner show.
    reached: BTreeMap<Owner, Reached>,
}

impl Found {
    /// Returns every row of every table.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Returns a content of these rows, which have no owner.
    #[cfg(test)]
    pub fn of(content: Content) -> Found {
        Found { content, reached: BTreeMap::new() }
    }

    /// Returns the number of rows with long keys, which make trees of three levels.
    pub fn long_keys(&self) -> usize {
        self.content.keys().filter(|(_, key)| key.len() > 300).count()
    }
}

impl Known {
    /// Judges a database.
    ///
    /// # Panics
    /// If something is lost or broken; the message says what.
    pub fn judge(&self, db: &Database, context: &str) -> Found {
        let content = judge_both(db, &self.must, &self.never, context);
        let pasts: Vec<&Past> = self.shadows.values().map(|(past, _)| &**past).collect();
        let least = |past: &Past| self.shadows[&past.owner].1;
        let reached = judge_shadows(&content, &db.tables(), &pasts, least, context);
        Found { content, reached }
    }

    /// Returns the rows found of each owner, for a new owner to continue with.
    pub fn to_adopt(&self, found: &Found) -> Vec<(Arc<Past>, Reached)> {
        let reached = |past: &Past| found.reached[&past.owner];
        self.shadows.values().map(|(past, _)| (past.clone(), reached(past))).collect()
    }

    /// Adds commits that must be present.
    pub fn must_have(&mut self, commits: &[Commit]) {
        for commit in commits {
            match commit {
                Commit::Journal(id) => drop(self.must.insert(*id)),
                Commit::Own(owner, commit) => {
                    let (_, reached) = self.shadows.get_mut(owner).expect("of this run");
                    reached.commit = reached.commit.max(*commit);
                }
            }
        }
    }

    /// Returns the backups of the previous run, oldest first.
    pub fn backups(&self) -> &[Backup] {
        &self.backups
    }

    /// Judges a content after the device has broken a promise unnoticed: see `broken_promise`.
    ///
    /// # Panics
    /// If the content is inconsistent; the message says why.
    pub fn judge_weakly(&self, content: &Content, tables: &[String], context: &str) {
        judge_content(content, &BTreeSet::new(), &self.never, context);
        let pasts: Vec<&Past> = self.shadows.values().map(|(past, _)| &**past).collect();
        judge_shadows_weakly(content, tables, &pasts, context);
        self.observed.judge_weakly(content, context);
    }

    /// Returns the knowledge after the run of `record`, which began with `self`, was crashed after
    /// `operations`.
    #[must_use]
    pub fn after(&self, record: &RunRecord, operations: usize) -> Known {
        let mut known = self.clone();
        known.must.extend(record.acknowledged.iter().filter(|(at, _)| *at <= operations).map(|(_, id)| *id));
        // They were not visible before the call that aborted them returned, either.
        known.never.extend(&record.aborted);
        // Content that was served must stay.
        let opened = record.opened_at.is_some_and(|opened| opened <= operations);
        if let Some(found) = record.found.as_ref().filter(|_| opened) {
            let journal = found.content.keys().filter(|(table, _)| table == "journal");
            known.must.extend(journal.map(|(_, id)| <Id>::try_from(&id[..]).expect("an id")));
            for (owner, (_, reached)) in &mut known.shadows {
                *reached = found.reached[owner];
            }
        }
        // A new owner has done nothing yet while the database is being opened.
        for past in record.shadows.iter().filter(|past| opened || !self.shadows.contains_key(&past.owner)) {
            known.shadows.insert(past.owner, (past.clone(), past.told_by(operations)));
        }
        if let Some(isolation) = &record.isolation {
            known.observed = isolation.after(operations);
        }
        known.backups = record.backups.iter().filter(|backup| backup.ended <= operations).cloned().collect();
        known
    }
}
