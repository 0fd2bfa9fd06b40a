//! User code that panics while a transaction is open: nothing of the transaction stays, its rows
//! are free at once, and the database continues.

use quenchdb::{Database, Isolation, Table, Transaction};
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// A value that panics when half of it has been read.
struct Half(usize);

impl Read for Half {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.0 = self.0.checked_sub(1).expect("the user's reader panics");
        into.fill(7);
        Ok(into.len())
    }
}

/// A key that panics when it is read.
struct Key;

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        panic!("the user's key panics")
    }
}

struct Guard<'a>(Option<Transaction>, &'a Table);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // Also while the thread unwinds.
        let mut tx = self.0.take().expect("once");
        tx.insert(self.1, "in a destructor", "1").expect("room");
        tx.abort();
    }
}

type Code = fn(&mut Transaction, &Table);

/// Places where user code may panic with a transaction open.
const PLACES: [(&str, Code); 7] = [
    ("between two calls", |_, _| panic!("the user's code panics")),
    ("a reader, at once", |tx, table| drop(tx.insert_from(table, "large", Half(0)))),
    ("a reader, in the middle of a large value", |tx, table| drop(tx.insert_from(table, "large", Half(5)))),
    ("a key to put", |tx, table| drop(tx.insert(table, Key, "value"))),
    ("a value to put", |tx, table| drop(tx.insert(table, "key", Key))),
    ("an iterator of keys", |tx, table| {
        let keys = (0..).map(|n| if n < 3 { [n] } else { panic!("the user's iterator panics") });
        drop(tx.prefetch(table, keys));
    }),
    ("keys that are announced", |tx, table| drop(tx.prefetch(table, [Key]))),
];

fn database() -> (Database, Table) {
    let db = Database::builder().memory_bytes(16 << 20).lock_wait(Duration::from_secs(60)).open_in_memory();
    let db = db.expect("opens");
    let table = db.create_table("t").expect("new");
    for row in ["a", "b", "large"] {
        db.transact(|tx| tx.insert(&table, row, "before")).expect("room");
    }
    (db, table)
}

/// Changes two rows, locks one, and then runs `code`.
fn panics(db: &Database, table: &Table, isolation: Isolation, code: Code) {
    let done = catch_unwind(AssertUnwindSafe(|| {
        let mut tx = db.begin_with(isolation).expect("begins");
        tx.insert(table, "a", "after").expect("room");
        tx.remove(table, "b").expect("room");
        tx.get_for_update(table, "nowhere").expect("room");
        code(&mut tx, table);
    }));
    assert!(done.is_err(), "it panics");
}

#[test]
fn a_user_panic_that_drops_the_transaction_frees_its_rows() {
    let (db, table) = database();
    for (place, code) in PLACES {
        for isolation in [Isolation::Snapshot, Isolation::ReadCommitted] {
            panics(&db, &table, isolation, code);
            let begun = Instant::now();
            // In another thread: in the same thread a held row would be a conflict, not a wait.
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut tx = db.begin().expect("begins");
                    for row in ["a", "b", "large"] {
                        let found = tx.get_for_update(&table, row).expect("free");
                        assert_eq!(found.as_deref(), Some(&b"before"[..]), "{place}: {row}");
                        tx.insert(&table, row, "before").expect("free");
                    }
                    tx.insert(&table, "nowhere", "1").expect("free");
                    tx.remove(&table, "nowhere").expect("own");
                    tx.commit().expect("the database continues");
                });
            });
            assert!(begun.elapsed() < Duration::from_secs(50), "{place}: it waited for the row");
        }
    }
    assert_eq!(db.verify(None).expect("runs").problems, Vec::<String>::new());
}

#[test]
fn a_destructor_may_use_its_transaction_during_unwinding() {
    let (db, table) = database();
    let done = catch_unwind(AssertUnwindSafe(|| {
        let mut tx = db.begin().expect("begins");
        tx.insert(&table, "a", "after").expect("room");
        let _guard = Guard(Some(tx), &table);
        panic!("the user's code panics");
    }));
    assert!(done.is_err());
    db.transact(|tx| tx.insert(&table, "a", "other")).expect("free");
    assert_eq!(db.begin_read().expect("free").get(&table, "in a destructor").expect("readable"), None);
}
