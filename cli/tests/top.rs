//! `quench top` beside a process that has the database open: this test.

use crate::support::terminal::OnTerminal;
use crate::support::*;
use quenchdb::Database;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Calls `look` while a thread commits rows to a table called `orders`.
fn beside_commits(path: &Path, look: impl FnOnce(Database)) {
    let db = Database::open(path).expect("a new directory");
    let orders = db.create_table("orders").expect("new");
    let ends = AtomicBool::new(false);
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    std::thread::scope(|scope| {
        let _end = End(&ends);
        let theirs = db.clone();
        let ends = &ends;
        scope.spawn(move || {
            for n in 0_u64.. {
                if ends.load(Ordering::SeqCst) {
                    break;
                }
                if theirs.transact(|tx| tx.insert(&orders, n.to_be_bytes(), "row")).is_err() {
                    break;
                }
            }
        });
        look(db);
    });
}

#[test]
fn top_prints_lines_or_objects_beside_a_writer() {
    let dir = directory();
    let path = dir.path().join("db");
    beside_commits(&path, |_db| {
        let db = text(&path);
        let output = run(&["top", db, "--interval", "0.2", "--count", "2"]);
        expect_code(&output, 0);
        let said = String::from_utf8(output.stdout).expect("text");
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines.len() == 3 && lines[0].contains("tx/s") && lines[0].contains("recovery"), "{said}");
        let output = run(&["top", db, "--interval", "0.2", "--count", "2", "--json"]);
        expect_code(&output, 0);
        let said = String::from_utf8(output.stdout).expect("text");
        for line in said.lines() {
            let object: serde_json::Value = serde_json::from_str(line).expect("JSON");
            assert!(number(&object, "transactions_per_second") > 0.0, "{line}");
            assert!(number(&object, "commit_p99_us") >= number(&object, "commit_p50_us"), "{line}");
            let table = &object["tables"][0];
            assert_eq!(table["name"], "orders");
            assert!(number(table, "rows_changed_per_second") > 0.0, "{line}");
        }
        assert_eq!(said.lines().count(), 2);
    });
}

#[test]
fn top_draws_until_a_key_and_waits_for_a_closed_database() {
    let dir = directory();
    let path = dir.path().join("db");
    let mut top = None;
    beside_commits(&path, |db| {
        let mut run = OnTerminal::with(quench(&["top", text(&path), "--interval", "0.2"]));
        run.wait_for("orders");
        run.wait_for(" now, ");
        assert!(run.is_raw());
        db.close().expect("a healthy disk");
        run.wait_for("closed; waiting");
        top = Some(run);
    });
    let mut run = top.expect("it runs");
    let again = Database::open(&path).expect("closed");
    run.wait_for("preset auto");
    drop(again);
    run.write("q");
    let (status, after) = run.end();
    assert_eq!(status.code(), Some(0), "{after}");
}

#[test]
fn top_says_that_no_process_answers() {
    let dir = directory();
    let path = dir.path().join("db");
    let none = |path: &str| {
        let output = run(&["top", path]);
        expect_code(&output, 2);
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(
            said.lines().count() == 1 && said.contains("no process answers") && said.contains(path),
            "{said}"
        );
    };
    none(text(&path));
    assert!(!path.exists(), "it creates nothing");
    let db = Database::builder().monitor(false).open(&path).expect("a new directory");
    none(text(&path));
    drop(db);
    drop(Database::open(&path).expect("closed"));
    none(text(&path));
    // A reader listens on nothing.
    let _reader = Database::builder().read_only(true).open(&path).expect("closed");
    none(text(&path));
    let output = run(&["top", "s3://bucket/db"]);
    expect_code(&output, 2);
}
