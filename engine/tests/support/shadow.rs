//! Rows that one thread owns, beside a model of them: it knows what each of its reads must give, and after a crash its rows are as one of
//! its commits left them, not an earlier one than the last of which it was told.

use super::Content;
use super::bank::is_certain;
use quenchdb::base::random::Random;
use quenchdb::{CommitHandle, Database, Durability, Isolation, Result, Snapshot, Table, Transaction};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Who owns rows: run and thread. Keys begin with it.
pub type Owner = [u8; 2];
pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keys of an owner besides the one that says how many commits there were.
const KEYS: u64 = 12;
const COUNT: u8 = u8::MAX;
const NAME: &str = "shadow";

/// The rows of one thread, while it lives.
pub struct Shadow {
    table: Table,
    past: Past,
    /// With the number of the commit that it shows.
    held: Option<(Snapshot, usize)>,
    handles: Vec<(usize, CommitHandle)>,
    /// The outcome of its last commit is unknown: it can say nothing of what comes after it.
    lost_track: bool,
}

/// What a thread did.
pub struct Past {
    pub owner: Owner,
    /// After each commit, one whose outcome is unknown included, the last.
    states: Vec<Rows>,
    /// Commits that were acknowledged, with the number of disk operations at that time.
    told: Vec<(usize, usize)>,
}

impl std::fmt::Debug for Past {
    /// Without the rows, which are many.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}, {} commits, told of {:?}", self.owner, self.commits(), self.told)
    }
}

impl Past {
    fn of(owner: Owner) -> Past {
        Past { owner, states: vec![Rows::new()], told: Vec::new() }
    }

    /// How many there were, one whose outcome is unknown included.
    pub fn commits(&self) -> usize {
        self.states.len() - 1
    }

    /// The last commit that was acknowledged by then.
    pub fn told_by(&self, operations: usize) -> usize {
        let told = self.told.iter().filter(|(at, _)| *at <= operations);
        told.map(|(_, commit)| *commit).max().unwrap_or(0)
    }
}

impl Shadow {
    /// Of a thread that owns nothing yet.
    pub fn of(db: &Database, owner: Owner) -> Result<Shadow> {
        Ok(Shadow {
            table: db.table_or_create(NAME)?,
            past: Past::of(owner),
            held: None,
            handles: Vec::new(),
            lost_track: false,
        })
    }

    /// What is to be judged after a crash. Nothing comes after it.
    pub fn end(&mut self) -> Past {
        self.lost_track = true;
        let owner = self.past.owner;
        std::mem::replace(&mut self.past, Past::of(owner))
    }

    /// A transaction of one of the first `kinds` (see `bank`), or a look at an older state. `operations` counts those of the disk.
    ///
    /// # Panics
    /// If a read gives something else than the model.
    pub fn step(
        &mut self,
        db: &Database,
        operations: &dyn Fn() -> usize,
        kinds: u64,
        random: &mut Random,
    ) -> Result<()> {
        if self.lost_track {
            return Ok(());
        }
        let newest = self.past.states.len() - 1;
        match random.below(8) {
            0 => self.held = Some((db.begin_read()?, newest)),
            1 => self.held = None,
            _ => {}
        }
        if let Some((snapshot, commit)) = &self.held {
            let rows = &self.past.states[*commit];
            for _ in 0..2 {
                self.look(Reader::Snapshot(snapshot), rows, random)?;
            }
        }
        if let Some(commit) = self.transaction(db, kinds, random)? {
            self.past.told.push((operations(), commit));
        }
        for (commit, _) in self.handles.extract_if(.., |(_, handle)| handle.is_committed()) {
            self.past.told.push((operations(), commit));
        }
        Ok(())
    }

    fn key(&self, random: &mut Random) -> Vec<u8> {
        let [run, thread] = self.past.owner;
        vec![run, thread, random.below(KEYS) as u8]
    }

    /// Returns the number of its commit if it was acknowledged.
    fn transaction(&mut self, db: &Database, kinds: u64, random: &mut Random) -> Result<Option<usize>> {
        let kind = random.below(kinds);
        let durability = match kind {
            0 => Durability::BoundedLoss,
            1 => Durability::Lazy,
            _ => Durability::Durable,
        };
        let mut rows = self.past.states.last().expect("never empty").clone();
        let mut tx = db.begin_with(Isolation::Snapshot, durability)?;
        for _ in 0..1 + random.below(5) {
            let savepoint = tx.savepoint();
            let before = random.chance(1, 6).then(|| rows.clone());
            for _ in 0..1 + random.below(2) {
                self.change(&mut tx, &mut rows, random)?;
            }
            if let Some(before) = before {
                tx.rollback_to(savepoint)?;
                rows = before;
            }
            self.look(Reader::Transaction(&tx), &rows, random)?;
        }
        if random.chance(1, 10) {
            tx.abort();
            return Ok(None);
        }
        let commit = self.past.states.len();
        let count = [&self.past.owner[..], &[COUNT]].concat();
        tx.insert(&self.table, &count, [commit as u8])?;
        rows.insert(count, vec![commit as u8]);
        // It may be there from now on, whatever the call says.
        self.past.states.push(rows);
        let ended = match kind {
            0 | 1 => tx.commit().map(|_| None),
            2 | 3 => tx.commit_async().map(|handle| {
                self.handles.push((commit, handle));
                None
            }),
            _ => tx.commit().map(|_| Some(commit)),
        };
        if let Err(error) = &ended {
            if is_certain(error) {
                self.past.states.pop();
            } else {
                self.lost_track = true;
            }
        }
        ended
    }

    fn change(&self, tx: &mut Transaction, rows: &mut Rows, random: &mut Random) -> Result<()> {
        let key = self.key(random);
        if random.chance(1, 3) {
            let was_there = rows.remove(&key).is_some();
            assert_eq!(tx.remove(&self.table, &key)?, was_there, "a removal of {key:?}");
            return Ok(());
        }
        let long = if random.chance(1, 24) { 4000 } else { 60 };
        let value = vec![random.below(256) as u8; random.below(long) as usize];
        tx.insert(&self.table, &key, &value)?;
        rows.insert(key, value);
        Ok(())
    }

    /// One read: of a row, or of a range from either end, or from both until they meet.
    fn look(&self, reader: Reader<'_>, rows: &Rows, random: &mut Random) -> Result<()> {
        let key = self.key(random);
        if random.chance(1, 2) {
            let found = reader.get(&self.table, &key)?;
            assert!(found.as_ref() == rows.get(&key), "{key:?} is {found:?}, not {:?}", rows.get(&key));
            return Ok(());
        }
        let [run, thread] = self.past.owner;
        let first = if random.chance(1, 2) { key } else { vec![run, thread] };
        let end = if random.chance(1, 2) { self.key(random) } else { vec![run, thread + 1] };
        let expected: Vec<(Vec<u8>, Vec<u8>)> = rows
            .iter()
            .filter(|(key, _)| **key >= first && **key < end)
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let back = random.below(3);
        let found = reader.range(&self.table, &first, &end, |n| match back {
            0 => false,
            1 => true,
            _ => n % 2 == 1,
        })?;
        assert!(found == expected, "{first:?} to {end:?}, {back}: {found:?}, not {expected:?}");
        Ok(())
    }
}

/// What one reads with.
#[derive(Clone, Copy)]
enum Reader<'a> {
    Transaction(&'a Transaction),
    Snapshot(&'a Snapshot),
}

impl Reader<'_> {
    fn get(self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match self {
            Reader::Transaction(tx) => tx.get(table, key),
            Reader::Snapshot(snapshot) => snapshot.get(table, key),
        }
    }

    /// Rows in order; the one with number `n` is taken from the upper end if `back` says so.
    fn range(
        self,
        table: &Table,
        first: &[u8],
        end: &[u8],
        back: impl Fn(usize) -> bool,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let bounds = (Bound::Included(first), Bound::Excluded(end));
        let mut rows = match self {
            Reader::Transaction(tx) => tx.range::<&[u8]>(table, bounds),
            Reader::Snapshot(snapshot) => snapshot.range::<&[u8]>(table, bounds),
        };
        let (mut lower, mut upper) = (Vec::new(), Vec::new());
        loop {
            let back = back(lower.len() + upper.len());
            let Some(row) = (if back { rows.next_back() } else { rows.next() }) else { break };
            if back { upper.push(row?) } else { lower.push(row?) }
        }
        lower.extend(upper.into_iter().rev());
        Ok(lower)
    }
}

/// Judges what is there of the rows of some threads: a state of each, no earlier one than `least` says. Returns the number of each state.
pub fn judge_shadows(
    content: &Content,
    pasts: &[&Past],
    least: impl Fn(&Past) -> usize,
    context: &str,
) -> BTreeMap<Owner, usize> {
    let mut found: BTreeMap<Owner, Rows> = BTreeMap::new();
    for ((_, key), value) in content.iter().filter(|((table, _), _)| table == NAME) {
        let owner = [key[0], key[1]];
        found.entry(owner).or_default().insert(key.clone(), value.clone());
    }
    let mut states = BTreeMap::new();
    for past in pasts {
        let owner = past.owner;
        let rows = found.remove(&owner).unwrap_or_default();
        let count = rows.get(&[&owner[..], &[COUNT]].concat()).map_or(0, |count| usize::from(count[0]));
        let state = past.states.get(count);
        assert!(
            state == Some(&rows),
            "{context}: rows of {owner:?} after {count} commits are {rows:?}, not {state:?}"
        );
        let least = least(past);
        assert!(
            count >= least,
            "{context}: rows of {owner:?} are as after {count} commits, and {least} were acknowledged"
        );
        states.insert(owner, count);
    }
    assert!(found.is_empty(), "{context}: rows that nobody wrote: {found:?}");
    states
}
