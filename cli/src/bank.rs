//! The bank that `demo` and `torture` run: transfers between accounts, each with a journal row in
//! the same transaction.
//!
//! Invariants that hold after any crash:
//! 1. The balances add up to accounts x [`INITIAL`].
//! 2. Every balance is [`INITIAL`] plus what the journal moved to it minus what it moved away.
//! 3. Every acknowledged transfer has its journal row.

use anyhow::{Context, Result, bail};
use quenchdb::internals::base::random::Random;
use quenchdb::{Database, ErrorKind, Snapshot, Table, Transaction};
use std::collections::HashSet;

/// Accounts of a bank.
pub const ACCOUNTS: u32 = 1000;
/// Balance of each at the start.
pub const INITIAL: i64 = 1000;

/// The two tables.
#[derive(Clone, Debug)]
pub struct Bank {
    /// Account number to balance.
    pub accounts: Table,
    /// (writer, sequence) to (from, to, amount).
    pub journal: Table,
}

/// Identifies a write of a thread of a child, uniquely over all children of a run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Entry {
    /// Child and thread.
    pub writer: u32,
    /// Number of the write in the thread.
    pub sequence: u64,
}

impl Entry {
    /// Returns the key, big-endian, so that keys have the order of entries.
    pub fn key(self) -> [u8; 12] {
        let mut key = [0; 12];
        key[..4].copy_from_slice(&self.writer.to_be_bytes());
        key[4..].copy_from_slice(&self.sequence.to_be_bytes());
        key
    }

    /// Returns the entry of a key.
    pub fn from_key(key: &[u8]) -> Option<Entry> {
        let key: &[u8; 12] = key.try_into().ok()?;
        let (writer, sequence) = key.split_at(4);
        Some(Entry {
            writer: u32::from_be_bytes(writer.try_into().ok()?),
            sequence: u64::from_be_bytes(sequence.try_into().ok()?),
        })
    }
}

fn balance_of(value: &[u8]) -> quenchdb::Result<i64> {
    match value.try_into() {
        Ok(bytes) => Ok(i64::from_le_bytes(bytes)),
        Err(_) => Err(quenchdb::Error::corruption("a balance is not 8 bytes")),
    }
}

impl Bank {
    /// Opens the tables; a new bank gets its accounts in one durable transaction.
    pub fn open(database: &Database) -> Result<Bank> {
        let bank = Bank {
            accounts: database.table_or_create("accounts")?,
            journal: database.table_or_create("journal")?,
        };
        if database.begin_read()?.first(&bank.accounts)?.is_none() {
            let mut transaction = database.begin()?;
            for account in 0..ACCOUNTS {
                transaction.insert(&bank.accounts, account.to_be_bytes(), INITIAL.to_le_bytes())?;
            }
            transaction.commit()?;
        }
        Ok(bank)
    }

    /// Moves a random amount between two random accounts and writes it into the journal.
    pub fn transfer(
        &self,
        transaction: &mut Transaction,
        entry: Entry,
        random: &mut Random,
    ) -> quenchdb::Result<()> {
        let from = random.below(ACCOUNTS.into()) as u32;
        let to = (from + 1 + random.below(u64::from(ACCOUNTS) - 1) as u32) % ACCOUNTS;
        let amount = 1 + random.below(100) as i64;
        self.move_balance(transaction, from, -amount)?;
        self.move_balance(transaction, to, amount)?;
        let mut row = [0; 16];
        row[..4].copy_from_slice(&from.to_le_bytes());
        row[4..8].copy_from_slice(&to.to_le_bytes());
        row[8..].copy_from_slice(&amount.to_le_bytes());
        transaction.insert(&self.journal, entry.key(), row)
    }

    fn move_balance(&self, transaction: &mut Transaction, account: u32, amount: i64) -> quenchdb::Result<()> {
        let value = transaction
            .get(&self.accounts, account.to_be_bytes())?
            .ok_or_else(|| quenchdb::Error::corruption(format!("account {account} is gone")))?;
        let balance = balance_of(&value)? + amount;
        transaction.insert(&self.accounts, account.to_be_bytes(), balance.to_le_bytes())
    }
}

/// The result of a check of the bank.
#[derive(Debug, Default)]
pub struct BankState {
    /// Entries of the journal.
    pub journal: HashSet<Entry>,
    /// Sum of all balances; `None` if the accounts were never made.
    pub sum: Option<i64>,
    /// Broken invariants, in words.
    pub problems: Vec<String>,
}

/// Returns all rows of a table.
pub fn rows(
    snapshot: &Snapshot,
    table: &Table,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<()>,
) -> Result<()> {
    for row in snapshot.range(table, ..) {
        let (key, value) = row?;
        each(&key, &value)?;
    }
    Ok(())
}

/// Returns the table, if it exists.
pub fn existing(database: &Database, name: &str) -> Result<Option<Table>> {
    match database.table(name) {
        Ok(table) => Ok(Some(table)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Reads accounts and journal in one snapshot and checks invariants 1 and 2.
pub fn check(database: &Database) -> Result<BankState> {
    let mut state = BankState::default();
    let mut expected = vec![INITIAL; ACCOUNTS as usize];
    let (accounts, journal) = (existing(database, "accounts")?, existing(database, "journal")?);
    let snapshot = database.begin_read()?;
    if let Some(journal) = journal {
        rows(&snapshot, &journal, |key, value| {
            let entry = Entry::from_key(key).context("a journal key is not 12 bytes")?;
            if value.len() != 16 {
                bail!("journal row {entry:?} has {} bytes", value.len());
            }
            let number =
                |at: usize| u32::from_le_bytes([value[at], value[at + 1], value[at + 2], value[at + 3]]);
            let amount = balance_of(&value[8..])?;
            for (account, change) in [(number(0), -amount), (number(4), amount)] {
                *expected.get_mut(account as usize).context("a journal row names no account")? += change;
            }
            state.journal.insert(entry);
            Ok(())
        })?;
    }
    let Some(accounts) = accounts else { return Ok(state) };
    let (mut sum, mut seen) = (0, 0u32);
    let mut problems = Vec::new();
    rows(&snapshot, &accounts, |key, value| {
        let account = u32::from_be_bytes(key.try_into().context("an account key is not 4 bytes")?);
        let balance = balance_of(value)?;
        sum += balance;
        seen += 1;
        if expected.get(account as usize) != Some(&balance) {
            problems.push(format!("account {account} holds {balance}, the journal says otherwise"));
        }
        Ok(())
    })?;
    if seen > 0 {
        state.sum = Some(sum);
        if seen != ACCOUNTS {
            problems.push(format!("{seen} accounts instead of {ACCOUNTS}"));
        }
        if sum != i64::from(ACCOUNTS) * INITIAL {
            problems.push(format!("balances add up to {sum}"));
        }
    } else if !state.journal.is_empty() {
        problems.push("a journal without accounts".into());
    }
    state.problems = problems;
    Ok(state)
}
