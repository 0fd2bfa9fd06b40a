//! Tests the API against a map. The input is a script of calls, of faults and crashes of the
//! simulated disk, and of opens.
//!
//! Every transaction that writes also writes one shared row. So each commit depends on the previous
//! one, and a crash leaves the state after one of them:
//!
//! ```text
//!   states    0 ─ 1 ─ 2 ─ 3 ─ 4 ─ 5          after each commit, newest last
//!                         ▲       ▲
//!                     durable   acknowledged     a crash leaves one from `durable` on
//! ```
//!
//! A commit with an unknown outcome is a state, too. The script only reopens after it.

use quenchdb::internals::device::simulated::{CrashKind, Fault, FaultKind, OperationKind, SimulatedStorage};
use quenchdb::{
    Csn, Database, Durability, ErrorKind, Preset, Savepoint, Settings, Snapshot, Table, Transaction,
};
use std::collections::BTreeMap;
use std::sync::Arc;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// The script, byte by byte; zeros after its end.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn key(&mut self) -> Vec<u8> {
        match self.next() {
            long @ 250.. => vec![long; 200],
            short => vec![b'k', short % 24],
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let (fill, length) = (self.next(), self.next());
        vec![
            fill;
            match length {
                0..200 => usize::from(length % 40),
                200..250 => usize::from(length) * 4,
                _ => usize::from(length) * 60,
            }
        ]
    }
}

/// The row that every transaction that writes writes.
const SHARED: &[u8] = b"shared";

struct Open {
    tx: Transaction,
    rows: Rows,
    /// Savepoints, with the rows at each.
    points: Vec<(Savepoint, Rows)>,
    wrote: bool,
    durability: Durability,
}

struct World {
    disk: SimulatedStorage,
    settings: Settings,
    /// `None` only during a reopen.
    db: Option<Database>,
    table: Table,
    states: Vec<Rows>,
    /// A crash leaves this state or a later one.
    durable: usize,
    /// True after a fault: calls may fail.
    faulty: bool,
    open: Option<Open>,
    snapshots: Vec<(Snapshot, Rows)>,
}

fn settings(script: &mut Script<'_>) -> Settings {
    let byte = script.next();
    let preset = Preset::ALL[usize::from(byte) % Preset::ALL.len()];
    let mut settings = Settings::default().with(|s| {
        s.preset = preset;
        s.logs = 1 + usize::from(byte >> 6 & 1);
        s.memory_bytes = if byte & 128 == 0 { 4 << 20 } else { 1 << 20 };
        s.segment_bytes = 64 << 10;
        s.lab.log_buffer_bytes = 64 << 10;
        s.log_bytes_max = 8 << 20;
        s.lab.checkpoint_log_bytes = 1 << 20;
        s.lab.flush_unit_bytes = 4096;
        s.lab.chunk_bytes = if byte & 32 == 0 { 0 } else { 512 };
    });
    if quenchdb::Axes::of(&settings).writer.kind() == quenchdb::Writer::Memory {
        settings.log_memory = Some("mapped-memory".into());
    }
    settings
}

fn open(disk: &SimulatedStorage, settings: &Settings) -> quenchdb::Result<Database> {
    Database::builder().settings(settings.clone()).storage(Arc::new(disk.clone())).open("simulated")
}

/// Runs the script.
pub(crate) fn api(data: &[u8]) {
    let mut script = Script(&data[..data.len().min(2000)]);
    let settings = settings(&mut script);
    let disk = SimulatedStorage::new(u64::from(script.next()));
    let db = open(&disk, &settings).expect("a whole disk");
    let table = db.create_table("t").expect("a whole disk");
    db.flush().expect("a whole disk");
    let (states, snapshots) = (vec![Rows::new()], Vec::new());
    let db = Some(db);
    let mut world =
        World { disk, settings, db, table, states, durable: 0, faulty: false, open: None, snapshots };
    while !script.0.is_empty() {
        world.step(&mut script);
    }
    world.reopen(None);
    let report = world.db().verify(None).expect("a whole disk");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

impl World {
    fn db(&self) -> &Database {
        self.db.as_ref().expect("it is reopened in one call")
    }

    fn newest(&self) -> &Rows {
        self.states.last().expect("never empty")
    }

    /// Returns the result of a call. `None`: the call failed after a fault, and the database must
    /// be reopened.
    fn given<T>(&mut self, result: quenchdb::Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                assert!(self.faulty, "nothing was wrong with the disk: {error}");
                assert_ne!(error.kind(), ErrorKind::Corruption, "{error}");
                self.reopen(Some(CrashKind::Kill));
                None
            }
        }
    }

    fn step(&mut self, script: &mut Script<'_>) {
        match script.next() % 24 {
            0 | 1 => self.begin(script.next()),
            2..=6 => self.write(script),
            7 | 8 => self.remove(script),
            9 | 10 => self.read(script),
            11 => self.savepoint(script),
            12..=15 => self.commit(script.next()),
            16 => self.open = None,
            17 => self.snapshot(script.next()),
            18 => self.scan(script),
            19 => {
                let done = self.db().checkpoint();
                if self.given(done).is_some() {
                    self.durable = self.states.len() - 1;
                }
            }
            20 => {
                let done = self.db().flush();
                if self.given(done).is_some() {
                    self.durable = self.states.len() - 1;
                }
            }
            21 => self.fault(script),
            22 => self.reopen(Some(CrashKind::Kill)),
            _ => match script.next() % 3 {
                0 => self.reopen(None),
                _ => self.reopen(Some(CrashKind::PowerCut)),
            },
        }
    }

    fn begin(&mut self, how: u8) {
        if self.open.is_some() {
            return;
        }
        let durability =
            [Durability::Durable, Durability::BoundedLoss, Durability::Lazy][usize::from(how % 3)];
        let begun = self.db().begin_with(durability);
        if let Some(tx) = self.given(begun) {
            let rows = self.newest().clone();
            self.open = Some(Open { tx, rows, points: Vec::new(), wrote: false, durability });
        }
    }

    fn write(&mut self, script: &mut Script<'_>) {
        let (key, value) = (script.key(), script.value());
        let Some(open) = &mut self.open else { return };
        let mut done = open.tx.insert(&self.table, &key, &value);
        if done.is_ok() && !open.wrote {
            let number = open.tx.get(&self.table, SHARED).expect("in memory").map_or(0, |bytes| bytes[0]);
            let next = [number.wrapping_add(1)];
            done = open.tx.insert(&self.table, SHARED, next);
            open.rows.insert(SHARED.to_vec(), next.to_vec());
            open.wrote = true;
        }
        open.rows.insert(key, value);
        self.given(done);
    }

    fn remove(&mut self, script: &mut Script<'_>) {
        let key = script.key();
        let Some(open) = &mut self.open else { return };
        if !open.wrote {
            return;
        }
        let removed = open.tx.remove(&self.table, &key);
        let was_there = open.rows.remove(&key).is_some();
        if let Some(removed) = self.given(removed) {
            assert_eq!(removed, was_there, "{key:?}");
        }
    }

    fn read(&mut self, script: &mut Script<'_>) {
        let key = script.key();
        if let Some(open) = &self.open {
            let (read, expected) = (open.tx.get(&self.table, &key), open.rows.get(&key).cloned());
            if let Some(read) = self.given(read) {
                assert!(read == expected, "{key:?}");
            }
        }
        let mut failed = None;
        for (snapshot, rows) in &self.snapshots {
            match snapshot.get(&self.table, &key) {
                Ok(read) => assert!(read.as_ref() == rows.get(&key), "{key:?}, snapshot {}", snapshot.csn()),
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed {
            self.given::<()>(Err(error));
        }
    }

    fn savepoint(&mut self, script: &mut Script<'_>) {
        let how = script.next();
        let Some(open) = &mut self.open else { return };
        if how.is_multiple_of(2) || open.points.is_empty() || !open.wrote {
            if open.wrote {
                open.points.push((open.tx.savepoint(), open.rows.clone()));
            }
            return;
        }
        let index = usize::from(how / 2) % open.points.len();
        open.points.truncate(index + 1);
        let (point, rows) = &open.points[index];
        let done = open.tx.rollback_to(*point);
        open.rows.clone_from(rows);
        self.given(done);
    }

    fn commit(&mut self, how: u8) {
        let Some(Open { tx, rows, wrote, durability, .. }) = self.open.take() else { return };
        let asynchronous = how.is_multiple_of(4);
        let done = if asynchronous {
            tx.commit_async().and_then(|handle| match how & 4 {
                0 => Ok((handle.csn(), false)),
                _ => handle.wait().map(|()| (handle.csn(), true)),
            })
        } else {
            tx.commit().map(|csn| (csn, durability == Durability::Durable))
        };
        if wrote {
            // The table exists from now on; after a failed call it may exist.
            self.states.push(rows);
        }
        if let Some((csn, durable)) = self.given(done) {
            assert_eq!(csn > Csn::ZERO, wrote);
            if durable && wrote {
                self.durable = self.states.len() - 1;
            }
        }
    }

    fn snapshot(&mut self, how: u8) {
        if how % 2 == 1 || self.snapshots.len() == 3 {
            if !self.snapshots.is_empty() {
                drop(self.snapshots.remove(usize::from(how / 2) % self.snapshots.len()));
            }
            return;
        }
        let begun = self.db().begin_read();
        // A thread sees its own commits.
        if let Some(snapshot) = self.given(begun) {
            let rows = self.newest().clone();
            self.snapshots.push((snapshot, rows));
        }
    }

    fn scan(&mut self, script: &mut Script<'_>) {
        let (from, to, backwards) = (script.key(), script.key(), script.next() % 2 == 1);
        if from > to {
            return;
        }
        let expected = |rows: &Rows| -> Vec<_> {
            let inside =
                rows.range(from.clone()..to.clone()).map(|(key, value)| (key.clone(), value.clone()));
            if backwards { inside.rev().collect() } else { inside.collect() }
        };
        let (read, rows) = match (&self.open, self.snapshots.last()) {
            (Some(open), _) => (
                collect(open.tx.range(&self.table, from.clone()..to.clone()), backwards),
                expected(&open.rows),
            ),
            (None, Some((snapshot, rows))) => {
                (collect(snapshot.range(&self.table, from.clone()..to.clone()), backwards), expected(rows))
            }
            _ => return,
        };
        if let Some(read) = self.given(read) {
            assert!(read == rows, "{from:?}..{to:?}");
        }
    }

    fn fault(&mut self, script: &mut Script<'_>) {
        use OperationKind::{DurableWrite, Flush, Open, Read, Write, ZeroExtend};
        let operation = [Open, Read, Write, DurableWrite, Flush, ZeroExtend][usize::from(script.next() % 6)];
        let after = u64::from(script.next() % 16);
        let kind = if script.next().is_multiple_of(2) { FaultKind::Once } else { FaultKind::ForEver };
        let error = if script.next().is_multiple_of(2) { 5 } else { 28 };
        self.disk.inject(Fault { operation, after, kind, error });
        self.faulty = true;
    }

    /// Closes the database, kills its process or cuts its power; then opens it again on a disk
    /// without faults.
    fn reopen(&mut self, crash: Option<CrashKind>) {
        self.open = None;
        self.snapshots.clear();
        let crash = crash.or(self.faulty.then_some(CrashKind::Kill));
        let seed = self.disk.operations() as u64;
        let next = match crash {
            Some(kind) => {
                let next = self.disk.crash(kind, usize::MAX, seed);
                self.disk.stop();
                next
            }
            None => self.disk.clone(),
        };
        let gone = std::mem::replace(&mut self.disk, next);
        // The old database ends before the new one opens.
        let old = self.db.take().expect("it was open");
        if crash.is_none() {
            old.close().expect("a whole disk");
            self.durable = self.states.len() - 1;
        } else {
            drop(old);
        }
        drop(gone);
        self.faulty = false;
        let db = open(&self.disk, &self.settings).expect("what a crash left is whole");
        self.table = db.table("t").expect("it was durable");
        let snapshot = db.begin_read().expect("free");
        self.db = Some(db);
        let rows: Rows = snapshot.range(&self.table, ..).map(|row| row.expect("whole")).collect();
        let found = self.states.iter().rposition(|state| *state == rows);
        let found = found.filter(|found| *found >= self.durable);
        assert!(
            found.is_some(),
            "the database has no state from {} to {}",
            self.durable,
            self.states.len() - 1
        );
        // What was served stays.
        self.states = vec![rows];
        self.durable = 0;
    }
}

fn collect<S: quenchdb::Reads>(
    range: quenchdb::Range<'_, S>,
    backwards: bool,
) -> quenchdb::Result<Vec<quenchdb::Row>> {
    if backwards { range.rev().collect() } else { range.collect() }
}
