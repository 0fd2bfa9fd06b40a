//! Faults while space is released, or when there is none.

use super::*;

/// Opening a database on a disk without any space is refused; nothing is lost.
pub fn opening_on_a_full_disk_loses_nothing(preset: Preset) {
    let (disk, db) = settings(preset).create(1);
    let table = db.create_table("t").expect("a whole disk");
    let mut outcomes = work(&db, &table, 0, "whole").outcomes;
    db.flush().expect("a whole disk");
    outcomes.values_mut().for_each(|outcome| *outcome = Outcome::Acknowledged);
    disk.stop();
    drop(db);
    let full = disk.duplicate();
    full.set_capacity(Some(0));
    if let Err(error) = settings(preset).try_open(&full) {
        assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{preset:?}: {error}");
    }
    full.stop();
    judge(&full.duplicate(), preset, &outcomes, &format!("{preset:?}, after a full disk"));
}

/// Regression: if an obsolete segment could not be removed, the published checkpoint was reported
/// as failed, and the later segments were never removed.
#[test]
fn a_checkpoint_succeeds_if_old_segments_cannot_be_removed() {
    let (disk, db) = settings(Preset::Group).create(1);
    let table = db.create_table("t").expect("a whole disk");
    let mut outcomes = work(&db, &table, 0, "whole").outcomes;
    db.flush().expect("a whole disk");
    outcomes.values_mut().for_each(|outcome| *outcome = Outcome::Acknowledged);
    disk.stop();
    drop((table, db));
    let disk = disk.crash(CrashKind::Kill, disk.operations(), 1);
    let segments = || disk.files().into_iter().filter(|path| path.starts_with("log/")).collect::<Vec<_>>();
    let before = segments();
    let db = settings(Preset::Group).open(&disk);
    let left = || segments().iter().filter(|path| before.contains(path)).count();
    assert!(left() >= 2, "{:?} of {before:?}", segments());
    let all = left();
    disk.inject(Fault { operation: OperationKind::Remove, after: 0, kind: FaultKind::ForEver, error: EIO });
    db.checkpoint().expect("it is published");
    assert_eq!((left(), db.checkpoints().count), (all, 1));
    disk.heal();
    db.checkpoint().expect("a whole disk");
    assert_eq!(left(), 0, "{:?}", segments());
    disk.stop();
    drop(db);
    let crashed = disk.crash(CrashKind::PowerCut, disk.operations(), 2);
    judge(&crashed, Preset::Group, &outcomes, "removed");
}
