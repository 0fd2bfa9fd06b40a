//! `verify` and `repair` on databases whose files are damaged.

use crate::support::*;
use std::path::{Path, PathBuf};

const SLOT_BYTES: usize = 1 << 20;

fn database() -> (tempfile::TempDir, PathBuf) {
    let dir = directory();
    let path = dir.path().join("db");
    expect_code(&run(&["create", text(&path), "t"]), 0);
    expect_code(&run(&["put", text(&path), "t", "key", "value"]), 0);
    (dir, path)
}

/// Damages the copies of the manifest in these slots.
fn damage(path: &Path, slots: &[usize]) {
    let file = path.join("MANIFEST");
    let mut bytes = std::fs::read(&file).expect("readable");
    slots.iter().for_each(|slot| bytes[slot * SLOT_BYTES + 40] ^= 0xff);
    std::fs::write(&file, bytes).expect("writable");
}

#[test]
fn sound_database_says_what_its_files_are() {
    let (_dir, path) = database();
    let verified = run(&["verify", text(&path)]);
    expect_code(&verified, 0);
    let printed = String::from_utf8(verified.stdout).expect("text");
    assert!(printed.contains("manifest: 2 of 2 copies intact, generation"), "{printed}");
    assert!(printed.contains("not needed, the database was closed"), "{printed}");
    assert!(printed.contains("sound: 1 tables"), "{printed}");
    let repaired = run(&["repair", text(&path)]);
    expect_code(&repaired, 0);
    assert_eq!(String::from_utf8_lossy(&repaired.stdout), "sound: nothing to repair\n");
}

#[test]
fn either_copy_of_the_manifest_is_missed_and_repaired() {
    for slot in [0, 1] {
        let (_dir, path) = database();
        damage(&path, &[slot]);
        let verified = run(&["verify", text(&path)]);
        expect_code(&verified, 1);
        let printed = String::from_utf8(verified.stdout).expect("text");
        let weak = format!("degraded: the copy of MANIFEST at byte {} does not count", slot * SLOT_BYTES);
        assert!(printed.contains(&weak) && printed.contains("DEGRADED: 1 tables"), "{printed}");
        let value = json(&run(&["--json", "verify", text(&path)]));
        assert_eq!((&value["class"], &value["sound"]), (&"degraded".into(), &false.into()));
        assert!(value["files"]["manifest"][slot]["problem"].is_string(), "{value}");
        assert!(value["files"]["manifest"][1 - slot]["problem"].is_null(), "{value}");

        let planned = run(&["repair", "--dry-run", text(&path)]);
        expect_code(&planned, 0);
        assert!(String::from_utf8_lossy(&planned.stdout).contains("would be repaired: the copy of MANIFEST"));
        expect_code(&run(&["verify", text(&path)]), 1);
        let repaired = json(&run(&["--json", "repair", text(&path)]));
        assert_eq!(repaired["after"]["class"], "sound", "{repaired}");
        expect_code(&run(&["verify", text(&path)]), 0);
        assert_eq!(run(&["get", text(&path), "t", "key"]).stdout, b"value\n");
    }
}

#[test]
fn damage_is_not_repaired_and_nothing_is_changed() {
    let (_dir, path) = database();
    damage(&path, &[0]);
    let pages = path.join("pages/data");
    let mut bytes = std::fs::read(&pages).expect("readable");
    let len = bytes.len();
    bytes[len / 8..].fill(0x5a);
    std::fs::write(&pages, &bytes).expect("writable");
    let manifest = std::fs::read(path.join("MANIFEST")).expect("readable");
    let repaired = run(&["repair", text(&path)]);
    expect_code(&repaired, 2);
    let printed = String::from_utf8_lossy(&repaired.stderr).into_owned();
    assert!(
        printed.contains("is damaged, and nothing was changed") && printed.contains("salvage"),
        "{printed}"
    );
    assert!(std::fs::read(path.join("MANIFEST")).expect("readable") == manifest);
    assert!(std::fs::read(&pages).expect("readable") == bytes);
}

#[test]
fn older_copy_of_the_manifest_is_named() {
    let (_dir, path) = database();
    let old = std::fs::read(path.join("MANIFEST")).expect("readable");
    expect_code(&run(&["put", text(&path), "t", "other", "value"]), 0);
    let mut bytes = std::fs::read(path.join("MANIFEST")).expect("readable");
    bytes[SLOT_BYTES..].copy_from_slice(&old[SLOT_BYTES..]);
    std::fs::write(path.join("MANIFEST"), bytes).expect("writable");
    let verified = run(&["verify", text(&path)]);
    expect_code(&verified, 1);
    let printed = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(printed.contains("it is older: generation"), "{printed}");
}

#[test]
fn extra_files_are_notes_and_missing_files_are_named() {
    let (_dir, path) = database();
    std::fs::write(path.join("notes.txt"), "1234567").expect("writable");
    std::fs::write(path.join("log/old.seg"), "12345").expect("writable");
    let verified = run(&["verify", text(&path)]);
    expect_code(&verified, 0);
    let printed = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(printed.contains("note: files that the database does not need: 2, 12 bytes\n"), "{printed}");
    assert!(printed.contains("note: log/old.seg, 5 bytes: no log segment"), "{printed}");
    let value = json(&run(&["--json", "verify", text(&path)]));
    let extra_files = value["files"]["extra_files"].as_array().expect("a list");
    assert_eq!((extra_files.len(), &extra_files[1]["path"]), (2, &"notes.txt".into()), "{value}");
    assert_eq!((&value["class"], &value["advice"]), (&"sound".into(), &serde_json::Value::Null));

    std::fs::remove_file(path.join("pages/data")).expect("it was there");
    let verified = run(&["verify", text(&path)]);
    expect_code(&verified, 1);
    let printed = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(printed.starts_with("damaged: the file of pages is missing"), "{printed}");
    assert_eq!(printed.matches("damaged:").count(), 1, "{printed}");
    assert_eq!(printed.matches("stop writing and copy the files").count(), 1, "{printed}");

    std::fs::remove_file(path.join("MANIFEST")).expect("it was there");
    std::fs::write(path.join("pages/data"), vec![1; 1 << 20]).expect("writable");
    let verified = run(&["verify", text(&path)]);
    expect_code(&verified, 1);
    let printed = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(printed.starts_with("damaged: the manifest is missing, but log/"), "{printed}");
}
