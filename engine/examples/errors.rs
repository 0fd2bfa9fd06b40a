//! What an error says, and what a program can do about it.

use quenchdb::{Database, ErrorKind, Result};

fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("used");
    let db = Database::open(&path)?;
    // The text has what happened, where, and what to do; the code is for programs and logs.
    let error = Database::open(&path).expect_err("it is open already");
    println!("[{}] {error}", error.code());
    assert_eq!((error.kind(), error.code()), (ErrorKind::Busy, "busy"));

    let missing = db.table("no such table").expect_err("it was not created");
    let as_io: std::io::Error = missing.into();
    assert_eq!(as_io.kind(), std::io::ErrorKind::NotFound);

    let table = db.create_table("table")?;
    let too_long = vec![0; db.max_key_bytes() + 1];
    let error = db.transact(|tx| tx.insert(&table, &too_long, "")).expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    Ok(())
}
