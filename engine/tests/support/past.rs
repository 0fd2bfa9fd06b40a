//! The history of rows and a table that one thread owns, and the check of what a crash left of
//! them.
//!
//! The rows must be as after one of the thread's commits. The table must be there or not as after
//! one of its creations and drops. Neither may be older than the last acknowledged one.

use super::{Content, Model};
use quenchdb::internals::base::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The owner of rows: run and thread. Keys begin with it.
pub type Owner = [u8; 2];

/// The table that owners share. One row per owner counts the owner's commits.
pub const SHARED: &str = "shadow";
const COUNT: u8 = u8::MAX;

/// Returns the name of the table that belongs to one owner.
pub fn own_table([run, thread]: Owner) -> String {
    format!("{OWN_TABLE}{run} {thread}")
}

const OWN_TABLE: &str = "own ";

/// Returns the key of the row that counts the owner's commits.
pub fn count_key(owner: Owner) -> Vec<u8> {
    [&owner[..], &[COUNT]].concat()
}

/// The shape of an owner's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// A few short keys.
    Short,
    /// Keys so many and so long that a tree has three levels. Adjacent keys mostly differ in the
    /// last byte, so that separators are long, too.
    Long,
}

impl Keys {
    pub fn count(self) -> u64 {
        match self {
            Keys::Short => 12,
            Keys::Long => 80,
        }
    }

    pub fn key(self, [run, thread]: Owner, n: u64) -> Vec<u8> {
        match self {
            Keys::Short => vec![run, thread, n as u8],
            Keys::Long => [&[run, thread, (n / 4) as u8][..], &[0; 390], &[(n % 4) as u8]].concat(),
        }
    }

    /// Returns how many adjacent rows one change covers.
    pub fn at_once(self, random: &mut Random) -> u64 {
        match self {
            Keys::Short => 1,
            Keys::Long => 1 + random.below(8),
        }
    }
}

/// How far an owner's rows and table have come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    pub commit: usize,
    /// Number of creations and drops of the owner's table: the table exists after an odd number.
    pub turn: usize,
}

impl Reached {
    pub fn has_table(self) -> bool {
        self.turn % 2 == 1
    }
}

/// The rows after a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub shared: Model,
    /// Rows of the owner's table, as of `turn`.
    pub own: Model,
    pub turn: usize,
}

impl State {
    /// Returns the rows of the owner's table after table change `turn` and no further commit.
    pub fn own_after(&self, turn: usize) -> Model {
        if turn == self.turn { self.own.clone() } else { Model::new() }
    }
}

/// What one thread committed.
pub struct Past {
    pub owner: Owner,
    pub keys: Keys,
    /// Where this history starts: at nothing, or at what an earlier run left.
    first: Reached,
    before: Option<Arc<Past>>,
    /// The state at the start and after each commit. The last commit's outcome may be unknown.
    states: Vec<State>,
    /// The last creation or drop that may have happened.
    turn: usize,
    /// Acknowledged commits, and table changes, each with the number of disk operations at that
    /// time.
    told: Vec<(usize, usize)>,
    told_turns: Vec<(usize, usize)>,
}

impl std::fmt::Debug for Past {
    /// Leaves out the rows, because they are many.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Past { owner, first, told, told_turns, .. } = self;
        write!(f, "{owner:?} from {first:?}, {} commits, told of {told:?}", self.commits())?;
        write!(f, ", turns of its table {}, told of {told_turns:?}", self.turn)
    }
}

impl Past {
    pub fn of(owner: Owner, keys: Keys) -> Past {
        Past::from(owner, keys, Reached::default(), State::default(), None)
    }

    fn from(owner: Owner, keys: Keys, first: Reached, state: State, before: Option<Arc<Past>>) -> Past {
        let (turn, states) = (first.turn, vec![state]);
        Past { owner, keys, first, before, states, turn, told: Vec::new(), told_turns: Vec::new() }
    }

    /// Returns a history that continues where this one was found after a crash.
    pub fn gone_on_with(self: &Arc<Past>, found: Reached) -> Past {
        let state = self.state(found.commit);
        let state =
            State { shared: state.shared.clone(), own: state.own_after(found.turn), turn: found.turn };
        Past::from(self.owner, self.keys, found, state, Some(self.clone()))
    }

    /// Returns the number of commits, including one whose outcome is unknown.
    pub fn commits(&self) -> usize {
        self.states.len() - 1
    }

    /// Returns whether this history continues an earlier one.
    pub fn is_adopted(&self) -> bool {
        self.first != Reached::default()
    }

    /// Returns the number of creations and drops of the owner's table.
    pub fn turns(&self) -> usize {
        self.turn - self.first.turn
    }

    /// Returns the newest commit and table change.
    pub fn newest(&self) -> Reached {
        Reached { commit: self.first.commit + self.commits(), turn: self.turn }
    }

    /// Returns the state after commit number `commit`.
    pub fn state(&self, commit: usize) -> &State {
        &self.states[commit - self.first.commit]
    }

    /// Returns the state after commit number `commit` of this run or an earlier one.
    fn state_of_any_life(&self, commit: usize) -> Option<&State> {
        match commit.checked_sub(self.first.commit) {
            Some(own) => self.states.get(own),
            None => self.before.as_ref()?.state_of_any_life(commit),
        }
    }

    /// Adds a commit, which may be durable from now on. Returns its number.
    pub fn commit(&mut self, state: State) -> usize {
        self.states.push(state);
        self.newest().commit
    }

    /// Removes the commits after number `commit`, which did not happen.
    pub fn take_back_to(&mut self, commit: usize) {
        self.states.truncate(commit - self.first.commit + 1);
    }

    /// Adds a creation or drop, which may be durable from now on. Returns its number.
    pub fn turn(&mut self) -> usize {
        self.turn += 1;
        self.turn
    }

    /// Removes the newest creation or drop, which did not happen.
    pub fn take_back_turn(&mut self) {
        self.turn -= 1;
    }

    /// Records that `commit` was acknowledged: crashes after `operations` disk operations must keep
    /// it.
    pub fn tell(&mut self, operations: usize, commit: usize) {
        self.told.push((operations, commit));
    }

    /// Records that a creation or a drop was acknowledged after `operations` disk operations.
    pub fn tell_turn(&mut self, operations: usize, turn: usize) {
        self.told_turns.push((operations, turn));
    }

    /// Returns what was acknowledged after `operations` disk operations.
    pub fn told_by(&self, operations: usize) -> Reached {
        let last = |told: &[(usize, usize)], first: usize| {
            let told = told.iter().filter(|(at, _)| *at <= operations);
            told.map(|(_, number)| *number).max().unwrap_or(first)
        };
        Reached { commit: last(&self.told, self.first.commit), turn: last(&self.told_turns, self.first.turn) }
    }
}

/// Checks that each owner's rows are in one of its states, not older than `least`. Returns how far
/// each owner has come.
pub fn judge_shadows(
    content: &Content,
    tables: &[String],
    pasts: &[&Past],
    least: impl Fn(&Past) -> Reached,
    context: &str,
) -> BTreeMap<Owner, Reached> {
    judge_each(content, tables, pasts, context, |past, shared, own| {
        let Reached { commit: told, turn } = least(past);
        let commit = commit_of(past, shared);
        assert!(
            commit >= told.max(past.first.commit),
            "{context}: rows of {:?} are as after {commit} commits, and {told} were acknowledged, from {:?}",
            past.owner,
            past.first
        );
        // A creation or drop is durable when its call returns. So no later commit survives without
        // it.
        let turn = turn.max(past.state_of_any_life(commit).map_or(0, |state| state.turn));
        judge(past, shared, own, turn, context)
    })
}

/// Checks only that each owner's rows are in one of its states, because anything may be missing.
pub fn judge_shadows_weakly(content: &Content, tables: &[String], pasts: &[&Past], context: &str) {
    judge_each(content, tables, pasts, context, |past, shared, own| judge(past, shared, own, 0, context));
}

fn judge_each(
    content: &Content,
    tables: &[String],
    pasts: &[&Past],
    context: &str,
    judge: impl Fn(&Past, &Model, Option<&Model>) -> Reached,
) -> BTreeMap<Owner, Reached> {
    let mut shared: BTreeMap<Owner, Model> = BTreeMap::new();
    let mut own: BTreeMap<&str, Model> = BTreeMap::new();
    for ((table, key), value) in content {
        if table == SHARED {
            shared.entry([key[0], key[1]]).or_default().insert(key.clone(), value.clone());
        } else if table.starts_with(OWN_TABLE) {
            own.entry(table).or_default().insert(key.clone(), value.clone());
        }
    }
    let mut tables: BTreeSet<&str> =
        tables.iter().map(String::as_str).filter(|name| name.starts_with(OWN_TABLE)).collect();
    let mut all_reached = BTreeMap::new();
    for past in pasts {
        let name = own_table(past.owner);
        let there = tables.remove(&name[..]).then(|| own.remove(&name[..]).unwrap_or_default());
        let shared = shared.remove(&past.owner).unwrap_or_default();
        all_reached.insert(past.owner, judge(past, &shared, there.as_ref()));
    }
    assert!(shared.is_empty(), "{context}: rows that nobody wrote: {shared:?}");
    assert!(tables.is_empty(), "{context}: tables that nobody created: {tables:?}");
    all_reached
}

/// Returns the number of commits that the owner's rows state.
fn commit_of(past: &Past, shared: &Model) -> usize {
    shared.get(&count_key(past.owner)).map_or(0, |count| usize::from(count[0]))
}

/// Returns the state that an owner's rows and table are in, after at least `turn` table changes.
fn judge(past: &Past, shared: &Model, own: Option<&Model>, turn: usize, context: &str) -> Reached {
    let (owner, commit) = (past.owner, commit_of(past, shared));
    let state = past.state_of_any_life(commit);
    let state = state.filter(|state| state.shared == *shared).unwrap_or_else(|| {
        panic!("{context}: rows of {owner:?} after {commit} commits are {shared:?}, not {state:?}")
    });
    let mut turns = turn..=past.turn;
    let fits = |turn: &usize| match own {
        Some(rows) => turn % 2 == 1 && *rows == state.own_after(*turn),
        None => turn.is_multiple_of(2),
    };
    let turn = turns.clone().rev().find(fits).unwrap_or_else(|| {
        let (own_then, turn_then) = (&state.own, state.turn);
        panic!(
            "{context}: the table of {owner:?} has {own:?}: not so after any of the turns {:?} of {past:?}; at commit \
             {commit} it had {own_then:?} after turn {turn_then}",
            turns.by_ref().collect::<Vec<_>>()
        )
    });
    Reached { commit, turn }
}
