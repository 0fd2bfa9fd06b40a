//! What a thread did with rows and a table of its own, and the judge of what is left of them: they
//! are as one of its commits left them, and the table is there or not as after one of its creations
//! and drops; not earlier ones than the last of which it was told.

use super::Content;
use quenchdb::internals::base::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Who owns rows: run and thread. Keys begin with it.
pub type Owner = [u8; 2];
pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// The table that owners share. The row that says how many commits there were is in it.
pub const SHARED: &str = "shadow";
const COUNT: u8 = u8::MAX;

/// The table that is one owner's.
pub fn own_table([run, thread]: Owner) -> String {
    format!("{OWN_TABLE}{run} {thread}")
}

const OWN_TABLE: &str = "own ";

/// The key of the row that says how many commits there were.
pub fn count_key(owner: Owner) -> Vec<u8> {
    [&owner[..], &[COUNT]].concat()
}

/// What the keys of an owner are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// A few short ones.
    Short,
    /// So many and so long ones that a tree has three levels. Two keys side by side differ in the
    /// last byte, mostly, so that separators are long, too.
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

    /// How many rows side by side a change is about.
    pub fn at_once(self, random: &mut Random) -> u64 {
        match self {
            Keys::Short => 1,
            Keys::Long => 1 + random.below(8),
        }
    }
}

/// How far the rows of an owner have come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    pub commit: usize,
    /// Creations and drops of its own table: after an odd number it is there.
    pub turn: usize,
}

impl Reached {
    pub fn has_table(self) -> bool {
        self.turn % 2 == 1
    }
}

/// Rows after a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub shared: Rows,
    /// In its own table, as of `turn`.
    pub own: Rows,
    pub turn: usize,
}

impl State {
    /// What the own table has after so many turns if nothing else was committed.
    pub fn own_after(&self, turn: usize) -> Rows {
        if turn == self.turn { self.own.clone() } else { Rows::new() }
    }
}

/// What a thread did.
pub struct Past {
    pub owner: Owner,
    pub keys: Keys,
    /// Where it began: at nothing, or with what a life before had left.
    first: Reached,
    before: Option<Arc<Past>>,
    /// As it began, and after each commit, one whose outcome is unknown included, the last.
    states: Vec<State>,
    /// The last creation or drop that was tried and may have happened.
    turn: usize,
    /// Commits that were acknowledged, and turns, with the number of disk operations at that time.
    told: Vec<(usize, usize)>,
    told_turns: Vec<(usize, usize)>,
}

impl std::fmt::Debug for Past {
    /// Without the rows, which are many.
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

    /// What goes on where this one was found.
    pub fn gone_on_with(self: &Arc<Past>, found: Reached) -> Past {
        let state = self.state(found.commit);
        let state =
            State { shared: state.shared.clone(), own: state.own_after(found.turn), turn: found.turn };
        Past::from(self.owner, self.keys, found, state, Some(self.clone()))
    }

    /// How many there were, one whose outcome is unknown included.
    pub fn commits(&self) -> usize {
        self.states.len() - 1
    }

    /// Where it began, if that is where another ended.
    pub fn is_adopted(&self) -> bool {
        self.first != Reached::default()
    }

    /// Creations and drops of its table.
    pub fn turns(&self) -> usize {
        self.turn - self.first.turn
    }

    /// The newest commit and turn.
    pub fn newest(&self) -> Reached {
        Reached { commit: self.first.commit + self.commits(), turn: self.turn }
    }

    /// After commit number `commit`.
    pub fn state(&self, commit: usize) -> &State {
        &self.states[commit - self.first.commit]
    }

    /// The same of any life, if there was such a commit.
    fn state_of_any_life(&self, commit: usize) -> Option<&State> {
        match commit.checked_sub(self.first.commit) {
            Some(own) => self.states.get(own),
            None => self.before.as_ref()?.state_of_any_life(commit),
        }
    }

    /// One more commit, which may be there from now on. Returns its number.
    pub fn commit(&mut self, state: State) -> usize {
        self.states.push(state);
        self.newest().commit
    }

    /// The commits after number `commit` did not happen.
    pub fn take_back_to(&mut self, commit: usize) {
        self.states.truncate(commit - self.first.commit + 1);
    }

    /// The table is created, or dropped, from now on perhaps. Returns the number of this.
    pub fn turn(&mut self) -> usize {
        self.turn += 1;
        self.turn
    }

    /// That did not happen.
    pub fn take_back_turn(&mut self) {
        self.turn -= 1;
    }

    /// This commit must be there from so many disk operations on.
    pub fn tell(&mut self, operations: usize, commit: usize) {
        self.told.push((operations, commit));
    }

    /// As [`Past::tell`], of a creation or a drop.
    pub fn tell_turn(&mut self, operations: usize, turn: usize) {
        self.told_turns.push((operations, turn));
    }

    /// What was acknowledged by then.
    pub fn told_by(&self, operations: usize) -> Reached {
        let last = |told: &[(usize, usize)], first: usize| {
            let told = told.iter().filter(|(at, _)| *at <= operations);
            told.map(|(_, number)| *number).max().unwrap_or(first)
        };
        Reached { commit: last(&self.told, self.first.commit), turn: last(&self.told_turns, self.first.turn) }
    }
}

/// Judges what is there of the rows of some threads: a state of each, no earlier one than `least`
/// says. Returns how far each has come.
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
        // A creation or a drop is durable when it returns, so whatever was committed then is not
        // there without it.
        let turn = turn.max(past.state_of_any_life(commit).map_or(0, |state| state.turn));
        judge(past, shared, own, turn, context)
    })
}

/// The same where anything may be missing: a state of each, of any life.
pub fn judge_shadows_weakly(content: &Content, tables: &[String], pasts: &[&Past], context: &str) {
    judge_each(content, tables, pasts, context, |past, shared, own| judge(past, shared, own, 0, context));
}

fn judge_each(
    content: &Content,
    tables: &[String],
    pasts: &[&Past],
    context: &str,
    judge: impl Fn(&Past, &Rows, Option<&Rows>) -> Reached,
) -> BTreeMap<Owner, Reached> {
    let mut shared: BTreeMap<Owner, Rows> = BTreeMap::new();
    let mut own: BTreeMap<&str, Rows> = BTreeMap::new();
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

/// How many commits the rows of an owner say that there were.
fn commit_of(past: &Past, shared: &Rows) -> usize {
    shared.get(&count_key(past.owner)).map_or(0, |count| usize::from(count[0]))
}

/// Which of its states the rows of an owner are in, and its table if that is there, after no fewer
/// turns than `turn`.
fn judge(past: &Past, shared: &Rows, own: Option<&Rows>, turn: usize, context: &str) -> Reached {
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
