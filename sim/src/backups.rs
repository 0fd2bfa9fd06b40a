//! Backups made beside other work, and the judge of the databases restored from them.

use crate::config::PlannedFault;
use crate::figures::Figures;
use crate::known::{Found, Known};
use crate::read_only::EarlierContent;
use crate::run::{RunRecord, Script};
use crate::support::returned_commits::Commit;
use crate::work::Shared;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::SimulatedStorage;
use quenchdb::{BackupOptions, Database, ErrorKind, Place, RestoreOptions, Result};
use std::sync::Arc;

/// A complete backup.
#[derive(Clone, Debug)]
pub struct Backup {
    /// A full backup and the increments that follow it.
    disks: Vec<SimulatedStorage>,
    /// The commits before its begin, and the number of disk operations at its begin.
    commits: Vec<Commit>,
    begun: usize,
    /// The number of disk operations at its end.
    pub ended: usize,
}

fn place(disk: &SimulatedStorage) -> Place {
    Place::storage(Arc::new(disk.clone()))
}

impl Backup {
    /// Makes a backup, perhaps an increment to the previous one.
    pub fn make(shared: &Shared, random: &mut Random) -> Result<Backup> {
        let base = shared.notes.lock().backups.last().filter(|_| random.chance(3, 4)).cloned();
        let mut disks = base.map(|base| base.disks).unwrap_or_default();
        let target = SimulatedStorage::new(random.next_u64());
        let options = BackupOptions::default().with(|s| s.base = disks.last().map(place));
        let (commits, begun) = (shared.tables.returned_commits.all(), shared.medium.changes());
        // A backup makes a checkpoint.
        shared.make_durable(|| shared.db.backup(place(&target), options))?;
        disks.push(target);
        Ok(Backup { disks, commits, begun, ended: shared.medium.changes() })
    }

    /// Restores the backup and judges the restored database.
    fn judge(&self, known: &Known, log: Option<Place>, script: &Script, what: &str) -> Result<Found> {
        let context = format!("{}; {what}", script.context);
        let disk = SimulatedStorage::new(script.seed);
        let options = RestoreOptions::default().with(|s| {
            s.log = log;
            s.settings = script.settings.clone();
        });
        Database::restore(self.disks.iter().map(place), place(&disk), options)?;
        let builder = Database::builder().settings(script.settings.clone()).storage(Arc::new(disk.clone()));
        let db = builder.open("restored").unwrap_or_else(|error| panic!("{context}: {error}"));
        let found = known.judge(&db, &context);
        disk.stop();
        Ok(found)
    }
}

/// Judges the backups of a run by the knowledge at their begin.
pub fn judge_backups(backups: &[Backup], script: &Script, record: &RunRecord, figures: &mut Figures) {
    // Planned faults inside the process would strike here, too.
    let inside = matches!(
        script.fault,
        PlannedFault::Panic(..) | PlannedFault::Memory(..) | PlannedFault::Threads(..)
    );
    for backup in backups.iter().filter(|_| script.judged && !inside) {
        let mut known = script.known.after(record, backup.begun);
        known.must_have(&backup.commits);
        let found = backup.judge(&known, None, script, "restored");
        found.unwrap_or_else(|error| panic!("{}; restored: {error}", script.context));
        figures.passed("backups restored", 1);
    }
}

/// Restores the last backup with the crashed disk's log, before the crashed database is opened.
/// Returns None without a backup, or if the log does not continue it.
pub fn restore_with_log(
    disk: &SimulatedStorage,
    script: &Script,
    figures: &mut Figures,
) -> Option<EarlierContent> {
    let backup = script.known.backups().last().filter(|_| script.judged && script.seed.is_multiple_of(4))?;
    let restore = || backup.judge(&script.known, Some(place(disk)), script, "restored with its log");
    match EarlierContent::by(disk, restore) {
        Ok(earlier) => {
            figures.passed("backups restored with the log of a crashed disk", 1);
            Some(earlier)
        }
        // Checkpoints have recycled a part of the log since.
        Err(error) if error.kind() == ErrorKind::Corruption && error.to_string().contains("log") => {
            figures.passed("backups older than the log of a crashed disk", 1);
            None
        }
        Err(error) => panic!("{}; restored with its log: {error}", script.context),
    }
}
