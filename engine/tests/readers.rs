//! Readers of checkpoints beside a writer: on the simulated disk with interleaved steps, and in
//! separate processes.

use crate::support::interleaved::{Interleaved, set_interrupt};
use crate::support::test_database::tiny;
use crate::support::{Model, rows};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::Storage;
use quenchdb::internals::device::simulated::{Fault, FaultKind, OperationKind, SimulatedStorage};
use quenchdb::{Csn, Database, ErrorKind, Settings};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

fn settings() -> Settings {
    // A pool of a dozen pages, so that reads go to the disk.
    tiny(1 << 20)
}

fn open(storage: Arc<dyn Storage>) -> Database {
    Database::builder().settings(settings()).storage(storage).open("simulated").expect("a whole disk")
}

fn open_checkpoint(storage: Arc<dyn Storage>) -> Database {
    let opened = Database::builder().settings(settings()).storage(storage).open_checkpoint("simulated");
    opened.expect("a whole disk")
}

/// A writer, and the content of each of its checkpoints.
struct Writer {
    storage: Arc<dyn Storage>,
    disk: SimulatedStorage,
    db: Option<Database>,
    model: Model,
    history: BTreeMap<Csn, Model>,
    random: Random,
    held_bytes_max: u64,
}

impl Writer {
    fn new(disk: &SimulatedStorage, storage: Arc<dyn Storage>, seed: u64) -> Writer {
        let db = Some(open(storage.clone()));
        let history = BTreeMap::from([(Csn::ZERO, Model::new())]);
        let (disk, random) = (disk.clone(), Random::from_seed(seed));
        Writer { storage, disk, db, model: Model::new(), history, random, held_bytes_max: 0 }
    }

    fn db(&self) -> &Database {
        self.db.as_ref().expect("open but while it is reopened")
    }

    /// Changes rows and makes a checkpoint. Sometimes compacts, or closes (cleanly or not) and
    /// reopens.
    fn step(&mut self) {
        let table = self.db().table_or_create("rows").expect("works");
        let mut changes = Vec::new();
        for _ in 0..10 + self.random.below(40) {
            let key = vec![self.random.below(80) as u8];
            let large = self.random.chance(1, 20);
            let len = self.random.below(if large { 12_000 } else { 500 }) as usize;
            let value = (!self.random.chance(1, 5)).then(|| vec![self.random.below(256) as u8; len]);
            changes.push((key, value));
        }
        let apply = |tx: &mut quenchdb::Transaction| {
            changes.iter().try_for_each(|(key, value)| match value {
                Some(value) => tx.insert(&table, key, value),
                None => tx.remove(&table, key).map(drop),
            })
        };
        self.db().transact(apply).expect("commits");
        for (key, value) in changes {
            match value {
                Some(value) => drop(self.model.insert(key, value)),
                None => drop(self.model.remove(&key)),
            }
        }
        self.checkpoint();
        match self.random.below(12) {
            0 => drop(self.db().compact(None).expect("a whole disk")),
            1 => self.reopen(),
            _ => {}
        }
    }

    fn checkpoint(&mut self) {
        // There is no other writer, so this is the checkpoint's content even before it is made.
        let newest = self.db().statistics().newest_csn;
        self.history.insert(newest, self.model.clone());
        let report = self.db().checkpoint().expect("a whole disk");
        assert_eq!(report.csn, newest);
        self.held_bytes_max = self.held_bytes_max.max(self.db().statistics().store_held_bytes);
    }

    fn reopen(&mut self) {
        if self.random.chance(1, 2) {
            // The last checkpoint fails, so the log has to be replayed.
            let operation = OperationKind::Flush;
            self.disk.inject(Fault { operation, after: 0, kind: FaultKind::Once, error: 5 });
        }
        self.history.insert(self.db().statistics().newest_csn, self.model.clone());
        self.db = None;
        self.db = Some(open(self.storage.clone()));
        assert_eq!(rows(self.db(), "rows"), self.model);
    }
}

/// Checks all content of a reader against its checkpoint, read from the disk again.
fn expect_as_of_its_checkpoint(reader: &Database, writer: &Writer, context: &str) {
    let csn = reader.checkpoint_csn();
    let expected = writer.history.get(&csn).unwrap_or_else(|| panic!("{context}: no checkpoint at {csn}"));
    assert!(rows(reader, "rows") == *expected, "{context}: not the content as of {csn}");
    let problems = reader.verify(None).expect("runs").problems;
    assert_eq!(problems, Vec::<String>::new(), "{context}, checkpoint at {csn}");
}

#[test]
fn a_reader_stays_at_its_checkpoint_between_any_steps() {
    let mut held = 0;
    for seed in 0..12 {
        let disk = SimulatedStorage::new(seed);
        let plain = Arc::new(disk.clone());
        let writer = Rc::new(RefCell::new(Writer::new(&disk, plain.clone(), seed)));
        (0..3).for_each(|_| writer.borrow_mut().step());
        let mut random = Random::from_seed(seed ^ 77);
        // Not at every operation: then a reader would never find the same manifest twice.
        let often = 5 + random.below(30);
        let turn = writer.clone();
        set_interrupt(Some(Box::new(move |_| {
            if random.chance(1, often) {
                turn.borrow_mut().step();
            }
        })));
        let interleaved: Arc<dyn Storage> = Arc::new(Interleaved(plain.clone()));
        let mut open: Vec<Database> = Vec::new();
        for number in 0..4 {
            let reader = open_checkpoint(interleaved.clone());
            let csn = reader.checkpoint_csn();
            let found = rows(&reader, "rows");
            assert!(found == writer.borrow().history[&csn], "seed {seed}, reader {number}");
            let problems = reader.verify(None).expect("runs").problems;
            assert_eq!(problems, Vec::<String>::new(), "seed {seed}, reader {number}");
            open.push(reader);
            if open.len() > 2 {
                open.remove(0);
            }
        }
        set_interrupt(None);
        for reader in &open {
            expect_as_of_its_checkpoint(reader, &writer.borrow(), &format!("seed {seed}, at the end"));
        }
        assert_eq!(writer.borrow().db().checkpoint_readers().len(), open.len());
        drop(open);
        let mut writer = writer.borrow_mut();
        writer.checkpoint();
        let (reading, bytes) = (writer.db().checkpoint_readers(), writer.db().statistics().store_held_bytes);
        assert_eq!((reading, bytes), (Vec::new(), 0), "seed {seed}");
        assert!(writer.db().verify(None).expect("runs").problems.is_empty());
        held += writer.held_bytes_max;
    }
    assert!(held > 0, "no reader was ever in the way");
}

#[test]
fn passing_readers_stay_at_their_checkpoints_within_steps() {
    for seed in 100..110 {
        let disk = SimulatedStorage::new(seed);
        let plain = Arc::new(disk.clone());
        let mut writer = Writer::new(&disk, Arc::new(Interleaved(plain.clone())), seed);
        writer.step();
        let readers: Rc<RefCell<Vec<Database>>> = Rc::default();
        let (turn, mut random) = (readers.clone(), Random::from_seed(seed ^ 99));
        set_interrupt(Some(Box::new(move |_| {
            if !random.chance(1, 25) {
                return;
            }
            let mut readers = turn.borrow_mut();
            if readers.len() < 4 {
                readers.push(open_checkpoint(plain.clone()));
            } else {
                let chosen = random.below(4) as usize;
                drop(readers.swap_remove(chosen));
            }
        })));
        for step in 0..12 {
            writer.step();
            let readers = readers.borrow();
            for reader in readers.iter() {
                expect_as_of_its_checkpoint(reader, &writer, &format!("seed {seed}, step {step}"));
            }
        }
        set_interrupt(None);
        drop(readers);
    }
}

#[test]
fn a_reader_sees_tables_of_its_checkpoint_and_writes_nothing() {
    let disk = SimulatedStorage::new(1);
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let writer = open(storage.clone());
    let table = writer.create_table("kept").expect("new");
    writer.transact(|tx| tx.insert(&table, "a", "1")).expect("commits");
    let csn = writer.checkpoint().expect("works").csn;
    writer.transact(|tx| tx.insert(&table, "b", "2")).expect("commits");
    writer.create_table("later").expect("new");
    drop(table);
    writer.drop_table("kept").expect("unused");
    // The writer still prepares its log. No process writes to the copy.
    let copy = disk.duplicate();
    let before: BTreeMap<_, _> =
        copy.files().into_iter().map(|path| (path.clone(), copy.read_file(&path))).collect();
    let reader = open_checkpoint(Arc::new(copy.clone()));
    assert_eq!((reader.tables(), reader.checkpoint_csn()), (vec!["kept".to_string()], csn));
    let kept = reader.table("kept").expect("as of the checkpoint");
    let snapshot = reader.begin_read().expect("free");
    assert_eq!(snapshot.get(&kept, "a").expect("readable"), Some(b"1".to_vec()));
    assert_eq!(snapshot.get(&kept, "b").expect("readable"), None, "only in the log");
    let report = reader.verify(None).expect("runs");
    assert_eq!((report.problems.len(), report.log_blocks), (0, 0), "{report:?}");
    assert_eq!(reader.statistics().newest_csn, csn);
    for refused in [reader.begin().map(drop), reader.checkpoint().map(drop), reader.drop_table("kept")] {
        assert_eq!(refused.expect_err("read-only").kind(), ErrorKind::InvalidArgument);
    }
    for (path, bytes) in &before {
        assert!(copy.read_file(path) == *bytes, "{path} has changed");
    }
    let new: Vec<String> = copy.files().into_iter().filter(|path| !before.contains_key(path)).collect();
    assert_eq!(new, ["readers/00"]);
    // Beside the writer. The handle is dropped and a snapshot is not, so its pages stay.
    let reader = open_checkpoint(storage.clone());
    assert_eq!((reader.tables(), reader.checkpoint_csn()), (vec!["kept".to_string()], csn));
    let snapshot = reader.begin_read().expect("free");
    drop(reader);
    writer.checkpoint().expect("works");
    assert_eq!(writer.checkpoint_readers().len(), 1);
    drop(snapshot);
    assert_eq!(writer.checkpoint_readers().len(), 0);
    // A close gives them up, whatever lives on.
    let reader = open_checkpoint(storage.clone());
    let (clone, _snapshot) = (reader.clone(), reader.begin_read().expect("free"));
    reader.close().expect("closes");
    assert_eq!(writer.checkpoint_readers().len(), 0);
    assert!(clone.begin_read().is_err());
}

#[test]
fn there_has_to_be_a_database() {
    let disk = SimulatedStorage::new(1);
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let error = Database::builder().storage(storage).open_checkpoint("simulated").expect_err("nothing there");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(disk.files(), Vec::<String>::new());
}
