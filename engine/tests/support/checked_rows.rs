//! Rows that one thread owns, with a model of them: each read is compared with the model. After a
//! crash `row_history` checks the recovered rows.

use super::bank::{LOOSE_KINDS, is_certain};
use super::reads::Reader;
use super::returned_commits::{Commit, ReturnedCommits};
use super::row_history::{Keys, Owner, Reached, RowHistory, SHARED, State, count_key, own_table};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::sync::thread;
use quenchdb::{
    CommitHandle, Database, Durability, Isolation, Result, Snapshot, Table, Transaction, TransactionOptions,
};
use std::ops::{Bound, RangeBounds};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// What a thread works with.
pub struct Environment<'a> {
    pub db: &'a Database,
    pub returned_commits: &'a ReturnedCommits,
    /// Returns the number of disk operations so far.
    pub operations: &'a dyn Fn() -> usize,
    /// Transactions commit in one of the first `kinds` ways, see `bank`.
    pub kinds: u64,
}

/// The rows of one thread while it runs.
pub struct CheckedRows {
    table: Table,
    /// The thread's own table, while it exists.
    own: Option<Table>,
    history: RowHistory,
    /// An older snapshot and the number of the commit that it shows.
    older: Option<(Snapshot, usize)>,
    handles: Vec<(usize, CommitHandle)>,
    /// The outcome of the last commit is unknown, so the model cannot continue.
    outcome_unknown: bool,
}

impl CheckedRows {
    /// Returns the rows of a thread that owns nothing yet.
    pub fn of(db: &Database, owner: Owner, keys: Keys) -> Result<CheckedRows> {
        CheckedRows::with(db, RowHistory::of(owner, keys))
    }

    /// Returns the rows of a thread that continues with what was found after a crash.
    pub fn continue_from(db: &Database, history: &Arc<RowHistory>, found: Reached) -> Result<CheckedRows> {
        CheckedRows::with(db, history.continue_from(found))
    }

    fn with(db: &Database, history: RowHistory) -> Result<CheckedRows> {
        let own = history.newest().has_table().then(|| db.table(&own_table(history.owner))).transpose()?;
        let table = db.table_or_create(SHARED)?;
        Ok(CheckedRows { table, own, history, older: None, handles: Vec::new(), outcome_unknown: false })
    }

    /// Returns the history, to check after a crash, and stops.
    pub fn end(&mut self) -> RowHistory {
        self.outcome_unknown = true;
        let nothing = RowHistory::of(self.history.owner, self.history.keys);
        std::mem::replace(&mut self.history, nothing)
    }

    /// Runs a transaction, reads an older snapshot, or creates or drops the thread's table.
    ///
    /// # Panics
    /// If a read differs from the model.
    pub fn step(&mut self, env: &Environment<'_>, random: &mut Random) -> Result<()> {
        if self.outcome_unknown {
            return Ok(());
        }
        match random.below(16) {
            0 | 1 => self.older = Some((env.db.begin_read()?, self.history.newest().commit)),
            2 | 3 => self.older = None,
            4 => self.change_table(env)?,
            _ => {}
        }
        if let Some(commit) = self.read_older(random)? {
            self.history.acknowledge((env.operations)(), commit);
        }
        if let Some(commit) = self.transaction(env, random)? {
            self.history.acknowledge((env.operations)(), commit);
        }
        self.poll_handles(env, random)
    }

    /// Reads the older snapshot. Returns its commit's number if the counting row was read: what a
    /// snapshot returned survives a crash, acknowledged or not.
    fn read_older(&self, random: &mut Random) -> Result<Option<usize>> {
        let Some((snapshot, commit)) = &self.older else { return Ok(None) };
        let (reader, state) = (Reader::Snapshot(snapshot), self.history.state(*commit));
        for _ in 0..2 {
            self.look(reader, state, random)?;
        }
        if random.chance(3, 4) {
            return Ok(None);
        }
        let key = count_key(self.history.owner);
        let count = reader.row(&self.table, &key, random)?;
        assert!(count.as_ref() == state.shared.get(&key), "{count:?} commits, not {commit}");
        Ok(Some(*commit))
    }

    /// Creates or drops the thread's table, which is durable when the call returns.
    fn change_table(&mut self, env: &Environment<'_>) -> Result<()> {
        // The snapshot may have used the table.
        self.older = None;
        let (name, before) = (own_table(self.history.owner), self.own.take());
        let table_change = self.history.add_table_change();
        let done = match &before {
            None => env.db.create_table(&name).map(Some),
            Some(_) => env.db.drop_table(&name).map(|()| None),
        };
        match done {
            Ok(own) => {
                self.own = own;
                self.history.acknowledge_table_change((env.operations)(), table_change);
                Ok(())
            }
            Err(error) => {
                if is_certain(&error) {
                    self.history.remove_table_change();
                    self.own = before;
                } else {
                    self.outcome_unknown = true;
                }
                Err(error)
            }
        }
    }

    /// Polls the commit handles, and sometimes waits for one.
    fn poll_handles(&mut self, env: &Environment<'_>, random: &mut Random) -> Result<()> {
        let way = random.below(16);
        if way < 2
            && let Some((commit, handle)) = self.handles.pop()
        {
            let is_durable = match way {
                0 => handle.wait_timeout(Duration::from_micros(random.below(3_000)))?,
                _ => await_it(handle).map(|()| true)?,
            };
            if is_durable {
                self.history.acknowledge((env.operations)(), commit);
            }
        }
        for (commit, _) in self.handles.extract_if(.., |(_, handle)| handle.is_committed()) {
            self.history.acknowledge((env.operations)(), commit);
        }
        Ok(())
    }

    /// Returns the current rows.
    fn now(&self) -> State {
        let Reached { commit, table_change } = self.history.newest();
        let state = self.history.state(commit);
        State { shared: state.shared.clone(), own: state.own_after(table_change), table_change }
    }

    /// Runs a transaction. Returns the commit's number if it was acknowledged.
    fn transaction(&mut self, env: &Environment<'_>, random: &mut Random) -> Result<Option<usize>> {
        let before = self.history.newest().commit;
        let ended = if env.kinds > LOOSE_KINDS && random.chance(1, 12) {
            self.transact(env, random)
        } else {
            self.begin_and_end(env, random)
        };
        match &ended {
            Ok(_) if self.history.newest().commit == before => {}
            Ok(_) => env.returned_commits.returned(Commit::Own(self.history.owner, before + 1)),
            Err(error) if is_certain(error) => self.history.truncate_to(before),
            Err(_) => self.outcome_unknown = true,
        }
        ended
    }

    fn begin_and_end(&mut self, env: &Environment<'_>, random: &mut Random) -> Result<Option<usize>> {
        let kind = random.below(env.kinds);
        let durability = match kind {
            0 => Durability::BoundedLoss,
            1 if env.kinds > LOOSE_KINDS && self.history.newest().commit.is_multiple_of(2) => {
                Durability::Written
            }
            1 => Durability::Lazy,
            _ => Durability::Durable,
        };
        // No other thread changes these rows, so all statements see the same state.
        let isolation = if random.chance(1, 4) { Isolation::ReadCommitted } else { Isolation::Snapshot };
        let mut tx =
            env.db.begin_with(TransactionOptions::new().isolation(isolation).durability(durability))?;
        let state = self.work(&mut tx, random)?;
        if random.chance(1, 10) {
            tx.abort();
            return Ok(None);
        }
        let commit = self.write_count(&mut tx, state)?;
        match kind {
            0 | 1 => tx.commit().map(|_| None),
            2 | 3 => tx.commit_async().map(|handle| {
                self.handles.push((commit, handle));
                None
            }),
            _ => tx.commit().map(|_| Some(commit)),
        }
    }

    /// The same in a closure, which the engine calls again after a conflict.
    fn transact(&mut self, env: &Environment<'_>, random: &mut Random) -> Result<Option<usize>> {
        let before = self.history.newest().commit;
        env.db.transact(|tx| {
            self.history.truncate_to(before);
            let state = self.work(tx, random)?;
            self.write_count(tx, state).map(Some)
        })
    }

    /// Changes and reads rows. Returns their state afterwards.
    fn work(&self, tx: &mut Transaction, random: &mut Random) -> Result<State> {
        let mut state = self.now();
        for _ in 0..1 + random.below(5) {
            let savepoint = tx.savepoint();
            let before = random.chance(1, 6).then(|| state.clone());
            for _ in 0..1 + random.below(2) {
                self.change(tx, &mut state, random)?;
            }
            if let Some(before) = before {
                tx.rollback_to(savepoint)?;
                state = before;
            }
            self.look(Reader::Transaction(tx), &state, random)?;
        }
        Ok(state)
    }

    /// Writes the commit's number into the counting row. The commit may be durable from now on,
    /// whatever the call returns. Returns the number.
    fn write_count(&mut self, tx: &mut Transaction, mut state: State) -> Result<usize> {
        let commit = self.history.newest().commit + 1;
        let count = count_key(self.history.owner);
        tx.insert(&self.table, &count, [commit as u8])?;
        state.shared.insert(count, vec![commit as u8]);
        Ok(self.history.add_commit(state))
    }

    fn key(&self, random: &mut Random) -> Vec<u8> {
        self.history.keys.key(self.history.owner, random.below(self.history.keys.count()))
    }

    fn change(&self, tx: &mut Transaction, state: &mut State, random: &mut Random) -> Result<()> {
        let (table, rows) = match &self.own {
            Some(own) if random.chance(1, 3) => (own, &mut state.own),
            _ => (&self.table, &mut state.shared),
        };
        let (first, removes) = (random.below(self.history.keys.count()), random.chance(1, 3));
        let end = self.history.keys.count().min(first + self.history.keys.at_once(random));
        for key in (first..end).map(|n| self.history.keys.key(self.history.owner, n)) {
            if removes {
                let was_there = rows.remove(&key).is_some();
                assert_eq!(tx.remove(table, &key)?, was_there, "a removal of {key:?}");
                continue;
            }
            let long = if random.chance(1, 24) { 4000 } else { 60 };
            let value = vec![random.below(256) as u8; random.below(long) as usize];
            if random.chance(1, 8) {
                assert_eq!(tx.insert_from(table, &key, &value[..])?, value.len() as u64);
            } else {
                tx.insert(table, &key, &value)?;
            }
            rows.insert(key, value);
        }
        Ok(())
    }

    /// Reads a row, the first or last row, or a range, and compares it with the model.
    fn look(&self, reader: Reader<'_>, state: &State, random: &mut Random) -> Result<()> {
        let (table, rows) = match &self.own {
            Some(own) if random.chance(1, 3) => (own, &state.own_after(self.history.newest().table_change)),
            _ => (&self.table, &state.shared),
        };
        let key = self.key(random);
        let owner = self.history.owner;
        match random.below(8) {
            0..4 => {
                let found = reader.row(table, &key, random)?;
                assert!(found.as_ref() == rows.get(&key), "{key:?} is {found:?}, not {:?}", rows.get(&key));
            }
            4 => {
                let last = random.chance(1, 2);
                let found = reader.end_of(table, last)?;
                let own = if last { rows.last_key_value() } else { rows.first_key_value() };
                // Other owners' rows may lie before or after these rows.
                let fits = match (&found, own) {
                    (Some((key, value)), own) if key[..2] == owner => own == Some((key, value)),
                    (Some((key, _)), Some((own, _))) => (key > own) == last,
                    (found, own) => own.is_none() || found.is_some(),
                };
                assert!(fits, "the row at an end ({last}) is {found:?}, own {own:?}");
            }
            _ => {
                let bounds = self.bounds(key, random);
                let (first, end) =
                    (bounds.0.as_ref().map(Vec::as_slice), bounds.1.as_ref().map(Vec::as_slice));
                let mut found = reader.rows(table, (first, end), random)?;
                assert!(found.is_sorted_by(|(a, _), (b, _)| a < b), "{bounds:?}: {found:?} is not in order");
                found.retain(|(key, _)| key[..2] == owner);
                let is_in = |key: &&Vec<u8>| RangeBounds::<[u8]>::contains(&(first, end), key.as_slice());
                let expected = rows.iter().filter(|(key, _)| is_in(key));
                let expected: Vec<_> = expected.map(|(key, value)| (key.clone(), value.clone())).collect();
                assert!(found == expected, "{bounds:?}: {found:?}, not {expected:?}");
            }
        }
        Ok(())
    }

    /// Returns the bounds of a range that may contain some of the rows.
    fn bounds(&self, key: Vec<u8>, random: &mut Random) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let [run, thread] = self.history.owner;
        let first = match random.below(8) {
            0 => Bound::Unbounded,
            1..4 => Bound::Included(vec![run, thread]),
            4 | 5 => Bound::Excluded(key),
            _ => Bound::Included(key),
        };
        let end = match random.below(8) {
            0 => Bound::Unbounded,
            1..4 => Bound::Excluded(vec![run, thread + 1]),
            4 | 5 => Bound::Included(self.key(random)),
            _ => Bound::Excluded(self.key(random)),
        };
        (first, end)
    }
}

/// Waits for a commit as an async executor does: polls again after each wake-up.
pub fn await_it(handle: CommitHandle) -> Result<()> {
    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    let (mut handle, woken) = (pin!(handle), Arc::new(Woken::default()));
    let waker = Waker::from(woken.clone());
    loop {
        if let Poll::Ready(done) = handle.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        while !woken.0.swap(false, Ordering::SeqCst) {
            thread::sleep(Duration::from_micros(50));
        }
    }
}
