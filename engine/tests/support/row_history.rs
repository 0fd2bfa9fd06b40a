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
    pub table_change: usize,
}

impl Reached {
    pub fn has_table(self) -> bool {
        self.table_change % 2 == 1
    }
}

/// The rows after a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub shared: Model,
    /// Rows of the owner's table, as of `table_change`.
    pub own: Model,
    pub table_change: usize,
}

impl State {
    /// Returns the rows of the owner's table after change `table_change` and no further commit.
    pub fn own_after(&self, table_change: usize) -> Model {
        if table_change == self.table_change { self.own.clone() } else { Model::new() }
    }
}

/// What one thread committed.
pub struct RowHistory {
    pub owner: Owner,
    pub keys: Keys,
    /// Where this history starts: at nothing, or at what an earlier run left.
    first: Reached,
    before: Option<Arc<RowHistory>>,
    /// The state at the start and after each commit. The last commit's outcome may be unknown.
    states: Vec<State>,
    /// The last creation or drop that may have happened.
    table_change: usize,
    /// Acknowledged commits, and table changes, each with the number of disk operations at that
    /// time.
    acknowledged: Vec<(usize, usize)>,
    acknowledged_changes: Vec<(usize, usize)>,
}

impl std::fmt::Debug for RowHistory {
    /// Leaves out the rows, because they are many.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RowHistory { owner, first, acknowledged, acknowledged_changes, .. } = self;
        write!(f, "{owner:?} from {first:?}, {} commits, acknowledged {acknowledged:?}", self.commits())?;
        write!(f, ", changes of its table {}, acknowledged {acknowledged_changes:?}", self.table_change)
    }
}

impl RowHistory {
    pub fn of(owner: Owner, keys: Keys) -> RowHistory {
        RowHistory::from(owner, keys, Reached::default(), State::default(), None)
    }

    fn from(
        owner: Owner,
        keys: Keys,
        first: Reached,
        state: State,
        before: Option<Arc<RowHistory>>,
    ) -> RowHistory {
        let (table_change, states) = (first.table_change, vec![state]);
        RowHistory {
            owner,
            keys,
            first,
            before,
            states,
            table_change,
            acknowledged: Vec::new(),
            acknowledged_changes: Vec::new(),
        }
    }

    /// Returns a history that continues where this one was found after a crash.
    pub fn continue_from(self: &Arc<RowHistory>, found: Reached) -> RowHistory {
        let state = self.state(found.commit);
        let state = State {
            shared: state.shared.clone(),
            own: state.own_after(found.table_change),
            table_change: found.table_change,
        };
        RowHistory::from(self.owner, self.keys, found, state, Some(self.clone()))
    }

    /// Returns the number of commits, including one whose outcome is unknown.
    pub fn commits(&self) -> usize {
        self.states.len() - 1
    }

    /// Returns whether this history continues an earlier one.
    pub fn continues_another(&self) -> bool {
        self.first != Reached::default()
    }

    /// Returns the number of creations and drops of the owner's table.
    pub fn table_changes(&self) -> usize {
        self.table_change - self.first.table_change
    }

    /// Returns the newest commit and table change.
    pub fn newest(&self) -> Reached {
        Reached { commit: self.first.commit + self.commits(), table_change: self.table_change }
    }

    /// Returns the state after commit number `commit`.
    pub fn state(&self, commit: usize) -> &State {
        &self.states[commit - self.first.commit]
    }

    /// Returns the state after commit number `commit` of this run or an earlier one.
    fn state_of_any_run(&self, commit: usize) -> Option<&State> {
        match commit.checked_sub(self.first.commit) {
            Some(own) => self.states.get(own),
            None => self.before.as_ref()?.state_of_any_run(commit),
        }
    }

    /// Adds a commit, which may be durable from now on. Returns its number.
    pub fn add_commit(&mut self, state: State) -> usize {
        self.states.push(state);
        self.newest().commit
    }

    /// Removes the commits after number `commit`, which did not happen.
    pub fn truncate_to(&mut self, commit: usize) {
        self.states.truncate(commit - self.first.commit + 1);
    }

    /// Adds a creation or drop, which may be durable from now on. Returns its number.
    pub fn add_table_change(&mut self) -> usize {
        self.table_change += 1;
        self.table_change
    }

    /// Removes the newest creation or drop, which did not happen.
    pub fn remove_table_change(&mut self) {
        self.table_change -= 1;
    }

    /// Records that `commit` was acknowledged: crashes after `operations` disk operations must keep
    /// it.
    pub fn acknowledge(&mut self, operations: usize, commit: usize) {
        self.acknowledged.push((operations, commit));
    }

    /// Records that a creation or a drop was acknowledged after `operations` disk operations.
    pub fn acknowledge_table_change(&mut self, operations: usize, table_change: usize) {
        self.acknowledged_changes.push((operations, table_change));
    }

    /// Returns what was acknowledged after `operations` disk operations.
    pub fn acknowledged_by(&self, operations: usize) -> Reached {
        let last = |acknowledged: &[(usize, usize)], first: usize| {
            let until = acknowledged.iter().filter(|(at, _)| *at <= operations);
            until.map(|(_, number)| *number).max().unwrap_or(first)
        };
        Reached {
            commit: last(&self.acknowledged, self.first.commit),
            table_change: last(&self.acknowledged_changes, self.first.table_change),
        }
    }
}

/// Checks that each owner's rows are in one of its states, not older than `least`. Returns how far
/// each owner has come.
pub fn judge_rows(
    content: &Content,
    tables: &[String],
    histories: &[&RowHistory],
    least: impl Fn(&RowHistory) -> Reached,
    context: &str,
) -> BTreeMap<Owner, Reached> {
    judge_each(content, tables, histories, context, |history, shared, own| {
        let Reached { commit: least_commit, table_change } = least(history);
        let commit = commit_of(history, shared);
        assert!(
            commit >= least_commit.max(history.first.commit),
            "{context}: rows of {:?} are as after {commit} commits, and {least_commit} were acknowledged, from {:?}",
            history.owner,
            history.first
        );
        // A creation or drop is durable when its call returns. So no later commit survives without
        // it.
        let table_change =
            table_change.max(history.state_of_any_run(commit).map_or(0, |state| state.table_change));
        judge(history, shared, own, table_change, context)
    })
}

/// Checks only that each owner's rows are in one of its states, because anything may be missing.
pub fn judge_rows_weakly(content: &Content, tables: &[String], histories: &[&RowHistory], context: &str) {
    judge_each(content, tables, histories, context, |history, shared, own| {
        judge(history, shared, own, 0, context)
    });
}

fn judge_each(
    content: &Content,
    tables: &[String],
    histories: &[&RowHistory],
    context: &str,
    judge: impl Fn(&RowHistory, &Model, Option<&Model>) -> Reached,
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
    for history in histories {
        let name = own_table(history.owner);
        let there = tables.remove(&name[..]).then(|| own.remove(&name[..]).unwrap_or_default());
        let shared = shared.remove(&history.owner).unwrap_or_default();
        all_reached.insert(history.owner, judge(history, &shared, there.as_ref()));
    }
    assert!(shared.is_empty(), "{context}: rows without a writer: {shared:?}");
    assert!(tables.is_empty(), "{context}: tables that no thread created: {tables:?}");
    all_reached
}

/// Returns the number of commits that the owner's rows state.
fn commit_of(history: &RowHistory, shared: &Model) -> usize {
    shared.get(&count_key(history.owner)).map_or(0, |count| usize::from(count[0]))
}

/// Returns the state that an owner's rows and table are in, after at least `table_change` changes
/// of the table.
fn judge(
    history: &RowHistory,
    shared: &Model,
    own: Option<&Model>,
    table_change: usize,
    context: &str,
) -> Reached {
    let (owner, commit) = (history.owner, commit_of(history, shared));
    let state = history.state_of_any_run(commit);
    let state = state.filter(|state| state.shared == *shared).unwrap_or_else(|| {
        panic!("{context}: rows of {owner:?} after {commit} commits are {shared:?}, not {state:?}")
    });
    let mut table_changes = table_change..=history.table_change;
    let fits = |table_change: &usize| match own {
        Some(rows) => table_change % 2 == 1 && *rows == state.own_after(*table_change),
        None => table_change.is_multiple_of(2),
    };
    let table_change = table_changes.clone().rev().find(fits).unwrap_or_else(|| {
        let (own_then, changes_then) = (&state.own, state.table_change);
        panic!(
            "{context}: the table of {owner:?} has {own:?}: not so after any of the table changes {:?} of {history:?}; at commit \
             {commit} it had {own_then:?} after table change {changes_then}",
            table_changes.by_ref().collect::<Vec<_>>()
        )
    });
    Reached { commit, table_change }
}
