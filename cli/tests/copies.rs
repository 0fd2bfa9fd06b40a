//! Copies of databases: backup, restore, compact, salvage, as people and scripts call them.

mod support;

use serde_json::Value;
use support::*;

#[test]
fn backups_are_made_looked_at_and_restored() {
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
fn compact_makes_the_file_of_pages_short() {
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
    assert!(number("bytes_after") <= number("bytes_used") + number("bytes_used") / 20, "{report}");
    assert_eq!(
        std::fs::metadata(path.join("pages/data")).expect("there").len() / 4096,
        number("bytes_after") / 4096
    );
    expect_code(&run(&["verify", db]), 0);
}

#[test]
fn salvage_copies_what_is_readable_and_says_what_is_not() {
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
fn what_another_process_has_open_can_be_read_and_backed_up_as_of_its_newest_checkpoint() {
    let directory = directory();
    let path = directory.path().join("db");
    let db = quenchdb::Database::builder().memory_bytes(16 << 20).open(&path).expect("opens");
    let table = db.create_table("t").expect("new");
    db.transact(|tx| tx.insert(&table, "a", "1")).expect("commits");
    let csn = db.checkpoint().expect("works").csn;
    db.transact(|tx| tx.insert(&table, "b", "2")).expect("commits");
    let path = text(&path);
    let refused = run(&["get", path, "t", "a"]);
    expect_code(&refused, 2);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--checkpoint"));
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
    let made = run(&["backup", path, text(&backup)]);
    expect_code(&made, 0);
    assert!(String::from_utf8_lossy(&made.stderr).contains("newest checkpoint"), "it is said");
    expect_code(&run(&["restore", text(&backup), text(&restored)]), 0);
    assert_eq!(run(&["dump", text(&restored), "t"]).stdout, b"a\t1\n");
    assert_eq!(db.checkpoint_readers().len(), 0);
}
