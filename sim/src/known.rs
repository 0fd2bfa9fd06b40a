//! The knowledge about a database from the runs before a crash, and the content found after it.

use crate::backups::Backup;
use crate::isolation::PriorRuns;
use crate::run::RunRecord;
use crate::support::Content;
use crate::support::bank::{Id, judge_both, judge_content};
use crate::support::returned_commits::Commit;
use crate::support::row_history::{Owner, Reached, RowHistory, judge_rows, judge_rows_weakly};
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
    histories: BTreeMap<Owner, (Arc<RowHistory>, Reached)>,
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
        self.judge_rows_of_owners(content, &db.tables(), context)
    }

    /// Judges what was read from a database before the knowledge was complete.
    ///
    /// # Panics
    /// If something is lost or broken; the message says what.
    pub fn judge_read(&self, content: Content, tables: &[String], context: &str) -> Found {
        judge_content(&content, &self.must, &self.never, context);
        self.judge_rows_of_owners(content, tables, context)
    }

    fn judge_rows_of_owners(&self, content: Content, tables: &[String], context: &str) -> Found {
        let histories: Vec<&RowHistory> = self.histories.values().map(|(history, _)| &**history).collect();
        let least = |history: &RowHistory| self.histories[&history.owner].1;
        let reached = judge_rows(&content, tables, &histories, least, context);
        Found { content, reached }
    }

    /// Returns the rows found of each owner, for a new owner to continue with.
    pub fn to_adopt(&self, found: &Found) -> Vec<(Arc<RowHistory>, Reached)> {
        let reached = |history: &RowHistory| found.reached[&history.owner];
        self.histories.values().map(|(history, _)| (history.clone(), reached(history))).collect()
    }

    /// Adds commits that must be present.
    pub fn must_have(&mut self, commits: &[Commit]) {
        for commit in commits {
            match commit {
                Commit::Journal(id) => drop(self.must.insert(*id)),
                Commit::Own(owner, commit) => {
                    let (_, reached) = self.histories.get_mut(owner).expect("of this run");
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
        let histories: Vec<&RowHistory> = self.histories.values().map(|(history, _)| &**history).collect();
        judge_rows_weakly(content, tables, &histories, context);
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
            for (owner, (_, reached)) in &mut known.histories {
                *reached = found.reached[owner];
            }
        }
        // A new owner has done nothing yet while the database is being opened.
        for history in
            record.histories.iter().filter(|history| opened || !self.histories.contains_key(&history.owner))
        {
            known.histories.insert(history.owner, (history.clone(), history.acknowledged_by(operations)));
        }
        if let Some(isolation) = &record.isolation {
            known.observed = isolation.after(operations);
        }
        known.backups = record.backups.iter().filter(|backup| backup.ended <= operations).cloned().collect();
        known
    }
}
