//! A bank: transfers between accounts, refused with an error of the application.

use quenchdb::{Database, TypedTable};
use std::fmt;

#[derive(Debug)]
enum TransferError {
    NoAccount(String),
    TooPoor { balance: i64 },
    Database(quenchdb::Error),
}

impl From<quenchdb::Error> for TransferError {
    fn from(error: quenchdb::Error) -> Self {
        TransferError::Database(error)
    }
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransferError::NoAccount(owner) => write!(f, "{owner} has no account"),
            TransferError::TooPoor { balance } => write!(f, "the balance is only {balance}"),
            TransferError::Database(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TransferError {}

struct Bank {
    db: Database,
    accounts: TypedTable<String, i64>,
}

impl Bank {
    fn transfer(&self, from: &str, to: &str, amount: i64) -> Result<(), TransferError> {
        // Runs again from the beginning if another transfer changed one of both accounts.
        self.db.transact(|tx| {
            let Some(balance) = self.accounts.get(tx, from)? else {
                return Err(TransferError::NoAccount(from.into()));
            };
            if !self.accounts.contains_key(tx, to)? {
                return Err(TransferError::NoAccount(to.into()));
            }
            if balance < amount {
                return Err(TransferError::TooPoor { balance });
            }
            self.accounts.add(tx, from, -amount)?;
            self.accounts.add(tx, to, amount)?;
            Ok(())
        })
    }
}

fn main() -> Result<(), TransferError> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let db = Database::open(directory.path().join("bank"))?;
    let accounts = db.typed_table("accounts")?;
    let bank = Bank { db, accounts };
    bank.db.transact(|tx| {
        bank.accounts.insert(tx, "alice", &100)?;
        bank.accounts.insert(tx, "bob", &100)
    })?;

    // Four threads move money in a circle. The sum stays.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..20).for_each(|n| drop(bank.transfer("alice", "bob", n))));
            scope.spawn(|| (0..20).for_each(|n| drop(bank.transfer("bob", "alice", n))));
        }
    });
    let snapshot = bank.db.begin_read()?;
    let sum: i64 = bank.accounts.iter(&snapshot).map(|row| Ok(row?.1)).sum::<quenchdb::Result<_>>()?;
    assert_eq!(sum, 200);

    let refused = bank.transfer("alice", "bob", 1_000).expect_err("she has at most 200");
    println!("refused: {refused}");
    assert!(matches!(bank.transfer("alice", "carol", 1), Err(TransferError::NoAccount(_))));
    Ok(())
}
