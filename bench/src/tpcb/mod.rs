//! TPC-B (TPC Benchmark B, standard specification, revision 2.0): deposits and withdrawals at the
//! tellers of a bank, with branches that may be hot (self-similar, as in Johnson et al., "Aether",
//! VLDB 2010).
//!
//! | table | key, big-endian | row |
//! |---|---|---|
//! | `branch` | B, 4 bytes | balance, filler: 100 bytes |
//! | `teller` | B, number of the teller in it, 1 byte | balance, filler: 100 bytes |
//! | `account` | B, number of the account in it, 4 bytes | balance, filler: 100 bytes |
//! | `history` | worker, 2 bytes; count, 8 bytes | the numbers, amount, time, filler: 50 bytes |
//!
//! One transaction adds an amount to an account, a teller and a branch, and notes it. 15 of 100
//! accounts belong to another branch (clause 5.3.5). The history's key only has to be unique: the
//! specification has none.

use crate::checked::Checked;
use crate::distribution::self_similar;
use crate::parallel::in_parallel;
use crate::progress::Progress;
use crate::record;
use crate::store::{Error, Level, Reader, Result, Session, Step, Store, Transaction};
use crate::workload::{Acknowledged, Ending, Intent, Seat, Worker, Workload};
use quenchdb::internals::base::random::Random;
use std::collections::BTreeMap;

record! {
    /// A branch, a teller or an account.
    holder {
        /// In cents.
        BALANCE: i64,
        /// Makes the row as long as specified.
        FILLER: [u8; 92],
    }
}

record! {
    /// A deposit or withdrawal.
    history {
        /// Of the teller.
        BRANCH: u32,
        /// Of the branch.
        TELLER: u8,
        /// Of the account.
        ACCOUNT_BRANCH: u32,
        /// The account.
        ACCOUNT: u32,
        /// In cents.
        DELTA: i64,
        /// Seconds since 1970.
        TIME: u32,
        /// Makes the row as long as specified.
        FILLER: [u8; 25],
    }
}

/// Tellers of a branch.
const TELLERS: u8 = 10;
/// Largest amount.
const DELTA_MAX: u64 = 999_999;
/// Rows of one transaction of the population.
const BATCH: u32 = 500;

fn branch_key(branch: u32) -> [u8; 4] {
    branch.to_be_bytes()
}

fn teller_key(branch: u32, teller: u8) -> [u8; 5] {
    let [a, b, c, d] = branch.to_be_bytes();
    [a, b, c, d, teller]
}

fn account_key(branch: u32, account: u32) -> [u8; 8] {
    (u64::from(branch) << 32 | u64::from(account)).to_be_bytes()
}

fn history_key(worker: u16, count: u64) -> [u8; 10] {
    let mut key = [0; 10];
    key[..2].copy_from_slice(&worker.to_be_bytes());
    key[2..].copy_from_slice(&count.to_be_bytes());
    key
}

/// When a transaction updates its branch, the hot row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BranchUpdate {
    /// Last, as in the transaction profile of clause 1.2: account, history, teller, branch.
    #[default]
    Last,
    /// Before the history, as in the sample program: account, teller, branch, history.
    Early,
    /// Before everything else: branch, account, history, teller.
    First,
}

impl BranchUpdate {
    fn name(self) -> &'static str {
        match self {
            BranchUpdate::Last => "last",
            BranchUpdate::Early => "early",
            BranchUpdate::First => "first",
        }
    }
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Tpcb {
    /// Branches.
    pub branches: u32,
    /// Accounts of a branch; 100,000 as specified.
    pub accounts: u32,
    /// Skew of the choice of branches: [`self_similar`]; 0.5 is uniform.
    pub skew: f64,
    /// Order of the updates.
    pub branch_update: BranchUpdate,
    /// Seed of the run.
    pub seed: u64,
}

#[derive(Clone, Debug)]
struct Tables<T> {
    branch: T,
    teller: T,
    account: T,
    history: T,
}

impl<T> Tables<T> {
    fn open(mut table: impl FnMut(&str) -> anyhow::Result<T>) -> anyhow::Result<Tables<T>> {
        Ok(Tables {
            branch: table("tpcb.branch")?,
            teller: table("tpcb.teller")?,
            account: table("tpcb.account")?,
            history: table("tpcb.history")?,
        })
    }
}

/// What a transaction does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Input {
    branch: u32,
    teller: u8,
    account_branch: u32,
    account: u32,
    delta: i64,
}

impl Tpcb {
    fn input(&self, random: &mut Random) -> Input {
        let branch = self_similar(random, self.branches.into(), self.skew) as u32;
        let elsewhere = self.branches > 1 && random.chance(15, 100);
        let account_branch = if elsewhere {
            let other = random.below(u64::from(self.branches) - 1) as u32;
            if other >= branch { other + 1 } else { other }
        } else {
            branch
        };
        Input {
            branch,
            teller: random.below(TELLERS.into()) as u8,
            account_branch,
            account: random.below(self.accounts.into()) as u32,
            delta: random.below(2 * DELTA_MAX + 1) as i64 - DELTA_MAX as i64,
        }
    }

    fn populate_branch<S: Store>(&self, store: &S, branch: u32) -> anyhow::Result<()> {
        let tables = Tables::open(|name| store.table(name))?;
        let (mut session, row) = (store.session(Level::Lazy)?, [0; holder::BYTES]);
        let mut fill = || -> Result<()> {
            let mut transaction = session.begin()?;
            transaction.insert(&tables.branch, &branch_key(branch), &row)?;
            for teller in 0..TELLERS {
                transaction.insert(&tables.teller, &teller_key(branch, teller), &row)?;
            }
            transaction.commit()?;
            for first in (0..self.accounts).step_by(BATCH as usize) {
                let mut transaction = session.begin()?;
                for account in first..self.accounts.min(first + BATCH) {
                    transaction.insert(&tables.account, &account_key(branch, account), &row)?;
                }
                transaction.commit()?;
            }
            Ok(())
        };
        fill().map_err(Error::into_failure)
    }
}

/// One thread of it.
pub struct TpcbWorker<T> {
    tables: Tables<T>,
    tpcb: Tpcb,
    random: Random,
    input: Input,
    index: u16,
    /// Notes so far, also of earlier runs.
    count: u64,
    row: Vec<u8>,
}

impl<T> TpcbWorker<T> {
    fn add<X: Transaction<Table = T>>(
        transaction: &mut X,
        table: &T,
        key: &[u8],
        delta: i64,
        row: &mut Vec<u8>,
    ) -> Result<i64> {
        if !transaction.get_for_update(table, key, row)? || row.len() != holder::BYTES {
            return Err(Error::wrong(format!("row {key:x?} is not there, or not what was put there")));
        }
        let balance = holder::BALANCE.add(row, delta);
        transaction.insert(table, key, row)?;
        Ok(balance)
    }
}

impl<T: Clone + Send + Sync> Worker<T> for TpcbWorker<T> {
    fn prepare(&mut self) -> Intent {
        self.input = self.tpcb.input(&mut self.random);
        Intent::default()
    }

    fn run<X: Transaction<Table = T>>(&mut self, transaction: &mut X) -> Result<Ending> {
        let Input { branch, teller, account_branch, account, delta } = self.input;
        let (tables, row, order) = (&self.tables, &mut self.row, self.tpcb.branch_update);
        if order == BranchUpdate::First {
            Self::add(transaction, &tables.branch, &branch_key(branch), delta, row)?;
        }
        let key = account_key(account_branch, account);
        std::hint::black_box(Self::add(transaction, &tables.account, &key, delta, row)?);
        if order == BranchUpdate::Early {
            Self::add(transaction, &tables.teller, &teller_key(branch, teller), delta, row)?;
            Self::add(transaction, &tables.branch, &branch_key(branch), delta, row)?;
        }
        let mut note = [0; history::BYTES];
        history::BRANCH.set(&mut note, branch);
        history::TELLER.set(&mut note, teller);
        history::ACCOUNT_BRANCH.set(&mut note, account_branch);
        history::ACCOUNT.set(&mut note, account);
        history::DELTA.set(&mut note, delta);
        history::TIME.set(&mut note, crate::tpcc::random::now());
        transaction.insert(&tables.history, &history_key(self.index, self.count), &note)?;
        if order != BranchUpdate::Early {
            Self::add(transaction, &tables.teller, &teller_key(branch, teller), delta, row)?;
        }
        if order == BranchUpdate::Last {
            // The hottest row last: it is held for the shortest time.
            Self::add(transaction, &tables.branch, &branch_key(branch), delta, row)?;
        }
        let written_bytes = (3 * holder::BYTES + history::BYTES + 4 + 5 + 8 + 10) as u64;
        Ok(Ending::Commit { written_bytes })
    }

    fn read<R: Reader<Table = T>>(&mut self, _: &mut R) -> Result<()> {
        Err(Error::wrong("this workload does not only read"))
    }

    fn committed(&mut self) {
        self.count += 1;
    }
}

/// Sums over balances of a table, by branch.
fn balances<R: Reader>(
    reader: &mut R,
    table: &R::Table,
    checked: &mut Checked,
    mut each: impl FnMut(&[u8], i64),
) -> Result<()> {
    reader.scan(table, &[], &[u8::MAX; 16], |key, row| {
        checked.rows += 1;
        if row.len() == holder::BYTES && key.len() >= 4 {
            each(key, holder::BALANCE.get(row));
        } else {
            checked.problem(|| format!("row {key:x?} has {} bytes", row.len()));
        }
        Step::Continue(())
    })
}

fn branch_of(key: &[u8]) -> u32 {
    key.first_chunk().map_or(u32::MAX, |branch| u32::from_be_bytes(*branch))
}

impl Tpcb {
    fn check_all<R: Reader>(&self, reader: &mut R, tables: &Tables<R::Table>) -> Result<(Checked, u64)> {
        let mut checked = Checked::default();
        let none = || vec![0i64; self.branches as usize];
        let (mut branches, mut tellers, mut noted) = (none(), none(), none());
        let (mut teller_count, mut notes) = (0u64, 0u64);
        let mut accounts = BTreeMap::<Vec<u8>, i64>::new();
        let mut account_count = 0u64;
        let add = |sums: &mut Vec<i64>, branch: u32, amount: i64| {
            if let Some(sum) = sums.get_mut(branch as usize) {
                *sum += amount;
            }
        };
        balances(reader, &tables.branch, &mut checked, |key, sum| add(&mut branches, branch_of(key), sum))?;
        balances(reader, &tables.teller, &mut checked, |key, sum| {
            teller_count += 1;
            add(&mut tellers, branch_of(key), sum);
        })?;
        balances(reader, &tables.account, &mut checked, |key, balance| {
            account_count += 1;
            if balance != 0 {
                accounts.insert(key.to_vec(), balance);
            }
        })?;
        reader.scan(&tables.history, &[], &[u8::MAX; 16], |key, row| {
            checked.rows += 1;
            notes += 1;
            if row.len() != history::BYTES {
                checked.problem(|| format!("note {key:x?} has {} bytes", row.len()));
                return Step::Continue(());
            }
            let delta = history::DELTA.get(row);
            add(&mut noted, history::BRANCH.get(row), delta);
            let account = account_key(history::ACCOUNT_BRANCH.get(row), history::ACCOUNT.get(row));
            *accounts.entry(account.to_vec()).or_default() -= delta;
            Step::Continue(())
        })?;
        let all = u64::from(self.branches);
        checked.same(teller_count, all * u64::from(TELLERS), || "tellers, and to be there".into());
        checked.same(account_count, all * u64::from(self.accounts), || "accounts, and to be there".into());
        for branch in 0..self.branches as usize {
            let sums = (tellers[branch], noted[branch]);
            let what = || format!("branch {branch}: balance, tellers' balances and notes");
            checked.same((branches[branch], branches[branch]), sums, what);
        }
        for (account, rest) in accounts.into_iter().filter(|(_, rest)| *rest != 0) {
            checked.problem(|| format!("account {account:x?} has {rest} more than was noted"));
        }
        Ok((checked, notes))
    }
}

impl Workload for Tpcb {
    type Worker<T: Clone + Send + Sync> = TpcbWorker<T>;

    fn name(&self) -> &'static str {
        "tpcb"
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["transfer"]
    }

    fn population(&self) -> String {
        format!("tpcb, {} branches of {} accounts", self.branches, self.accounts)
    }

    fn parameters(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("branches".into(), self.branches.to_string()),
            ("accounts".into(), self.accounts.to_string()),
            ("skew".into(), self.skew.to_string()),
            ("branch_update".into(), self.branch_update.name().to_string()),
        ])
    }

    fn populate<S: Store>(&self, store: &S, threads: usize, progress: Progress<'_>) -> anyhow::Result<()> {
        let populate = |branch| self.populate_branch(store, branch as u32);
        in_parallel(threads, self.branches.into(), "populating", progress, populate)?;
        store.make_durable()
    }

    fn worker<S: Store>(&self, store: &S, seat: Seat) -> anyhow::Result<TpcbWorker<S::Table>> {
        let tables = Tables::open(|name| store.table(name))?;
        let (index, mut count) = (seat.index as u16, 0);
        let (from, to) = (history_key(index, 0), history_key(index, u64::MAX));
        let mut session = store.session(Level::Durable)?;
        let newest = session.begin_read().and_then(|mut reader| {
            reader.scan_back(&tables.history, &from, &to, |key, _| {
                count = key.last_chunk().map_or(0, |count| u64::from_be_bytes(*count) + 1);
                Step::Break(())
            })
        });
        newest.map_err(Error::into_failure)?;
        let random = Random::from_seed(seat.seed(self.seed));
        Ok(TpcbWorker { tables, tpcb: *self, random, input: Input::default(), index, count, row: Vec::new() })
    }

    fn check<S: Store>(
        &self,
        store: &S,
        _: usize,
        acknowledged: &Acknowledged,
        progress: Progress<'_>,
    ) -> anyhow::Result<Checked> {
        progress("checking balances", 0, 1);
        let tables = Tables::open(|name| store.table(name))?;
        let mut session = store.session(Level::Durable)?;
        let checked = session.begin_read().and_then(|mut reader| self.check_all(&mut reader, &tables));
        let (mut checked, notes) = checked.map_err(Error::into_failure)?;
        let promised = acknowledged.get("transfer").copied().unwrap_or(0);
        if notes < promised {
            checked.problem(|| format!("{promised} transfers were acknowledged, but {notes} are noted"));
        }
        Ok(checked)
    }
}

#[cfg(test)]
mod tests;
