//! Copies of databases through the program: backup, restore, compact, salvage.

use crate::support::*;
use serde_json::Value;
use std::path::Path;

#[test]
fn backups_are_made_inspected_and_restored() {
    let root = directory();
    let path = |name: &str| root.path().join(name);
    let (db, full, increment, restored) = (path("db"), path("full"), path("increment"), path("restored"));
    let (db, full, increment, restored) = (text(&db), text(&full), text(&increment), text(&restored));
    expect_code(&run_with_input(&["load", db, "t", "-"], b"a\t1\nb\t2\n"), 0);
    expect_code(&run_with_input(&["load", db, "u", "-"], b"a\t1\n"), 0);
    let made = run(&["backup", db, full, "--json"]);
    expect_code(&made, 0);
    assert_eq!(json(&made)["base_csn"], Value::Null);
    expect_code(&run(&["backup", db, full]), 2);
    expect_code(&run(&["put", db, "t", "b", "3"]), 0);
    let made = run(&["backup", db, increment, "--base", full, "--json"]);
    expect_code(&made, 0);
    assert!(json(&made)["pages_copied"].as_u64() < json(&made)["pages"].as_u64(), "{:?}", json(&made));
    assert_eq!(run(&["get", full, "t", "b"]).stdout, b"2\n");
    expect_code(&run(&["put", full, "t", "b", "4"]), 2);
    expect_code(&run(&["verify", full]), 0);
    expect_code(&run(&["restore", increment, full, restored]), 2);
    let back = run(&["restore", full, increment, restored, "--json"]);
    expect_code(&back, 0);
    assert_eq!(json(&back)["csn"], json(&made)["csn"]);
    assert_eq!(run(&["dump", restored, "t"]).stdout, b"a\t1\nb\t3\n");
    expect_code(&run(&["put", restored, "t", "c", "5"]), 0);
    expect_code(&run(&["verify", restored]), 0);
    expect_code(&run(&["restore", full, restored]), 2);
}

#[test]
fn compact_shortens_the_page_file() {
    let root = directory();
    let path = root.path().join("db");
    let db = text(&path);
    let rows: String = (0..3000).map(|n| format!("{n:05}\t{}\n", "v".repeat(1000))).collect();
    expect_code(&run_with_input(&["load", db, "t", "-"], rows.as_bytes()), 0);
    expect_code(&run_with_input(&["load", db, "u", "-"], b"a\t1\n"), 0);
    expect_code(&run(&["checkpoint", db]), 0);
    let report = run(&["compact", db, "--json"]);
    expect_code(&report, 0);
    let report = json(&report);
    let number = |name: &str| report[name].as_u64().expect("a number");
    // The next checkpoint also needs space for a mapping and a catalog.
    let room = (number("bytes_used") / 20).max(16 * 4096);
    assert!(number("bytes_after") <= number("bytes_used") + room, "{report}");
    // A checkpoint may have shortened the file before.
    assert!(number("bytes_after") < number("bytes_before"), "{report}");
    assert_eq!(
        std::fs::metadata(path.join("pages/data")).expect("there").len() / 4096,
        number("bytes_after") / 4096
    );
    expect_code(&run(&["verify", db]), 0);
}

#[test]
fn salvage_copies_readable_rows_and_reports_the_rest() {
    let root = directory();
    let path = |name: &str| root.path().join(name);
    let (db, whole, part) = (path("db"), path("whole"), path("part"));
    let rows: String = (0..500).map(|n| format!("{n:05}\t{}\n", "v".repeat(100))).collect();
    expect_code(&run_with_input(&["load", text(&db), "t", "-"], rows.as_bytes()), 0);
    expect_code(&run(&["salvage", text(&db), text(&whole)]), 0);
    assert_eq!(run(&["dump", text(&whole), "t"]).stdout, rows.as_bytes());
    expect_code(&run(&["salvage", text(&db), text(&whole)]), 2);
    std::fs::write(db.join("MANIFEST"), b"nothing").expect("ours");
    expect_code(&run(&["get", text(&db), "t", "00001"]), 2);
    let report = run(&["salvage", text(&db), text(&part), "--json"]);
    expect_code(&report, 1);
    assert_eq!(json(&report)["whole"], Value::Bool(false));
    assert_eq!(run(&["dump", text(&part), "t"]).stdout, rows.as_bytes());
}

#[test]
fn a_database_open_elsewhere_is_read_and_backed_up() {
    let directory = directory();
    let path = directory.path().join("db");
    let db = quenchdb::Database::builder().memory_bytes(16 << 20).open(&path).expect("opens");
    let table = db.create_table("t").expect("new");
    db.transact(|tx| tx.insert(&table, "a", "1")).expect("commits");
    let csn = db.checkpoint().expect("works").csn;
    db.transact(|tx| tx.insert(&table, "b", "2")).expect("commits");
    let path = text(&path);
    for command in [vec!["get", path, "t", "a"], vec!["verify", path]] {
        let refused = run(&command);
        expect_code(&refused, 3);
        assert!(String::from_utf8_lossy(&refused.stderr).contains("--checkpoint"));
    }
    let found = run(&["get", path, "t", "a", "--checkpoint"]);
    expect_code(&found, 0);
    assert_eq!(found.stdout, b"1\n");
    expect_code(&run(&["get", path, "t", "b", "--checkpoint"]), 1);
    for command in [vec!["scan", path, "t"], vec!["dump", path, "t"]] {
        let rows = run(&[&command[..], &["--checkpoint"]].concat());
        expect_code(&rows, 0);
        assert_eq!(rows.stdout, b"a\t1\n");
    }
    expect_code(&run(&["tables", path, "--checkpoint"]), 0);
    expect_code(&run(&["verify", path, "--checkpoint"]), 0);
    let stat = json(&run(&["stat", path, "--checkpoint", "--json"]));
    assert_eq!((&stat["checkpoint_csn"], &stat["checkpoint_readers"]), (&csn.0.into(), &1.into()));
    let (backup, restored) = (directory.path().join("backup"), directory.path().join("restored"));
    // A failed backup must not print that it copied the newest checkpoint.
    let (full, none) = (directory.path().join("full"), directory.path().join("none"));
    std::fs::create_dir(&full).expect("ours");
    std::fs::write(full.join("letter"), b"dear").expect("ours");
    for arguments in
        [vec!["backup", path, text(&full)], vec!["backup", path, text(&backup), "--base", text(&none)]]
    {
        let refused = run(&arguments);
        expect_code(&refused, 2);
        assert!(
            !String::from_utf8_lossy(&refused.stderr).contains("newest checkpoint"),
            "nothing was copied"
        );
    }
    let made = run(&["backup", path, text(&backup)]);
    expect_code(&made, 0);
    assert!(
        String::from_utf8_lossy(&made.stderr).contains("newest checkpoint was copied"),
        "the note is missing"
    );
    expect_code(&run(&["restore", text(&backup), text(&restored)]), 0);
    assert_eq!(run(&["dump", text(&restored), "t"]).stdout, b"a\t1\n");
    assert_eq!(db.checkpoint_readers().len(), 0);
}

/// Copies the files of an open database, as a crash at this moment would leave them.
fn copy_as_crashed(from: &Path, to: &Path) {
    for part in ["", "log", "pages"] {
        std::fs::create_dir(to.join(part)).expect("ours");
        for entry in std::fs::read_dir(from.join(part)).expect("there").map(|entry| entry.expect("readable"))
        {
            let is_file = entry.file_type().expect("known").is_file();
            if is_file && entry.file_name() != "LOCK" {
                std::fs::copy(entry.path(), to.join(part).join(entry.file_name())).expect("room");
            }
        }
    }
}

/// Regression: a reader prevented the open for writing, and the backup silently omitted the log.
#[test]
fn a_backup_beside_readers_is_complete_or_refused() {
    let root = directory();
    let path = |name: &str| root.path().join(name);
    let (closed, crashed) = (path("closed"), path("crashed"));
    let builder = || quenchdb::Database::builder().memory_bytes(16 << 20).segment_bytes(1 << 20);
    let db = builder().open(&closed).expect("opens");
    let table = db.create_table("t").expect("new");
    db.transact(|tx| tx.insert(&table, "a", "1")).expect("commits");
    copy_as_crashed(&closed, &crashed);
    drop(table);
    db.close().expect("closes");
    let (one, two) = (path("one"), path("two"));
    let reader = builder().read_only(true).open(&crashed).expect("opens");
    let refused = run(&["backup", text(&crashed), text(&one)]);
    expect_code(&refused, 3);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("was not closed") && said.contains("open for reading by others"), "{said}");
    assert!(!one.exists());
    drop(reader);
    expect_code(&run(&["backup", text(&crashed), text(&one)]), 0);
    let reader = builder().read_only(true).open(&closed).expect("opens");
    let made = run(&["backup", text(&closed), text(&two)]);
    expect_code(&made, 0);
    assert_eq!(String::from_utf8_lossy(&made.stderr), "", "nothing is missing");
    drop(reader);
    for backup in [&one, &two] {
        assert_eq!(run(&["dump", text(backup), "t"]).stdout, b"a\t1\n");
    }
}

#[test]
fn a_refused_restore_creates_no_target() {
    let root = directory();
    let path = |name: &str| root.path().join(name);
    let (db, full, target, none) = (path("db"), path("full"), path("target"), path("none"));
    expect_code(&run_with_input(&["load", text(&db), "t", "-"], b"a\t1\n"), 0);
    expect_code(&run(&["backup", text(&db), text(&full)]), 0);
    let restore = |more: &[&str]| run(&[&["restore", text(&full), text(&target)], more].concat());
    for wrong in [&["--log", text(&none)][..], &["--log", text(root.path())], &["--to", "1000000"]] {
        expect_code(&restore(wrong), 2);
        assert!(!target.exists(), "{wrong:?}");
    }
    expect_code(&restore(&[]), 0);
    assert_eq!(run(&["dump", text(&target), "t"]).stdout, b"a\t1\n");
}

#[test]
fn a_checkpoint_without_its_page_file_names_the_file() {
    let root = directory();
    let db = root.path().join("db");
    expect_code(&run(&["put", text(&db), "t", "a", "1"]), 0);
    std::fs::remove_file(db.join("pages/data")).expect("it was there");
    let refused = run(&["get", text(&db), "t", "a", "--checkpoint"]);
    expect_code(&refused, 2);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("pages/data") && !said.contains("no database"), "{said}");
}

/// The program takes a damaged database for no new one, which a failed command would remove.
#[test]
fn a_failed_write_to_a_damaged_database_removes_nothing() {
    for gone in ["pages/data", "MANIFEST", "log", "LOCK"] {
        let root = directory();
        let db = root.path().join("db");
        expect_code(&run(&["put", text(&db), "t", "a", "1"]), 0);
        let gone = db.join(gone);
        let removed =
            if gone.is_dir() { std::fs::remove_dir_all(&gone) } else { std::fs::remove_file(&gone) };
        removed.expect("it was there");
        let names = |folder: &std::path::Path| -> Vec<_> {
            let mut names: Vec<_> =
                std::fs::read_dir(folder).expect("there").flatten().map(|e| e.path()).collect();
            names.sort();
            names
        };
        let before = names(&db);
        let refused = run(&["put", text(&db), "t", "", "empty key"]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let after = names(&db);
        assert!(before.iter().all(|name| after.contains(name)), "{before:?} {after:?}");
    }
}
