//! Backups that are made while others work, and what is in the databases that are made of them.

use crate::config::Trouble;
use crate::figures::Figures;
use crate::known::{Found, Known};
use crate::life::{Lived, Script};
use crate::look::Seen;
use crate::support::so_far::Commit;
use crate::work::Shared;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::SimulatedStorage;
use quenchdb::{BackupOptions, Database, ErrorKind, Place, RestoreOptions, Result};
use std::sync::Arc;

/// A backup, complete.
#[derive(Clone, Debug)]
pub struct Backup {
    /// A full one, and the increments that follow it.
    disks: Vec<SimulatedStorage>,
    /// What had committed when it began, and how many operations the disk of the database had done.
    commits: Vec<Commit>,
    begun: usize,
    /// How many when it was complete.
    pub ended: usize,
}

fn place(disk: &SimulatedStorage) -> Place {
    Place::Storage(Arc::new(disk.clone()))
}

impl Backup {
    /// Makes one, perhaps an increment to the last.
    pub fn make(shared: &Shared, random: &mut Random) -> Result<Backup> {
        let base = shared.notes.lock().backups.last().filter(|_| random.chance(3, 4)).cloned();
        let mut disks = base.map(|base| base.disks).unwrap_or_default();
        let target = SimulatedStorage::new(random.next_u64());
        let options = BackupOptions { base: disks.last().map(place), ..BackupOptions::default() };
        let (commits, begun) = (shared.tables.so_far.returned_so_far(), shared.disk.operations());
        // It makes a checkpoint.
        shared.make_durable(|| shared.db.backup(place(&target), options))?;
        disks.push(target);
        Ok(Backup { disks, commits, begun, ended: shared.disk.operations() })
    }

    /// A database of it, judged.
    fn judge(&self, known: &Known, log: Option<Place>, script: &Script, what: &str) -> Result<Found> {
        let context = format!("{}; {what}", script.context);
        let disk = SimulatedStorage::new(script.seed);
        let options = RestoreOptions { log, settings: script.settings.clone(), ..RestoreOptions::default() };
        Database::restore(self.disks.iter().map(place), place(&disk), options)?;
        let builder = Database::builder().settings(script.settings.clone()).storage(Arc::new(disk.clone()));
        let db = builder.open("restored").unwrap_or_else(|error| panic!("{context}: {error}"));
        let found = known.judge(&db, &context);
        disk.stop();
        Ok(found)
    }
}

/// Judges the backups of a life by what was known when they were begun.
pub fn judge_backups(backups: &[Backup], script: &Script, lived: &Lived, figures: &mut Figures) {
    // What goes wrong inside the process would strike here, too.
    let inside = matches!(script.trouble, Trouble::Panic(..) | Trouble::Memory(..) | Trouble::Threads(..));
    for backup in backups.iter().filter(|_| script.judged && !inside) {
        let mut known = script.known.after(lived, backup.begun);
        known.must_have(&backup.commits);
        let found = backup.judge(&known, None, script, "restored");
        found.unwrap_or_else(|error| panic!("{}; restored: {error}", script.context));
        figures.passed("backups restored", 1);
    }
}

/// The database that the last backup and the log on a crashed disk make, before the one on that disk is opened. None if there is no backup,
/// or the log does not begin where it ends.
pub fn restore_with_log(disk: &SimulatedStorage, script: &Script, figures: &mut Figures) -> Option<Seen> {
    let backup = script.known.backups().last().filter(|_| script.judged && script.seed.is_multiple_of(4))?;
    let restore = || backup.judge(&script.known, Some(place(disk)), script, "restored with its log");
    match Seen::by(disk, restore) {
        Ok(seen) => {
            figures.passed("backups restored with the log of a crashed disk", 1);
            Some(seen)
        }
        // Checkpoints have recycled some of it since.
        Err(error) if error.kind() == ErrorKind::Corruption && error.to_string().contains("log") => {
            figures.passed("backups older than the log of a crashed disk", 1);
            None
        }
        Err(error) => panic!("{}; restored with its log: {error}", script.context),
    }
}
