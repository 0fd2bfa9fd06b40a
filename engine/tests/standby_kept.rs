//! A copy in a directory that is kept up to date: killed at any moment, it opens as a database with
//! exactly what its notes say, and continues from there.
//!
//! The copies are kept by processes that run this binary again with `QUENCH_CHILD` set: see
//! [`child`].

use crate::standby::{PATIENCE, Primary, without_marks};
use crate::support::processes::one_test;
use crate::support::{Content, content, in_time};
use quenchdb::internals::base::depth::is_deep;
use quenchdb::internals::base::random::Random;
use quenchdb::{Csn, Database, ErrorKind};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

const NOTES: &str = "quench: followed";

fn builder() -> quenchdb::Builder {
    Database::builder().memory_bytes(4 << 20).segment_bytes(256 << 10).log_bytes_max(4 << 20)
}

/// A process that keeps a copy, killed when it is dropped.
struct Keeper(Child);

impl Keeper {
    fn start(source: &str, copy: &Path) -> Keeper {
        let mut command = one_test(module_path!(), "child");
        command
            .env("QUENCH_CHILD", "keeper")
            .env("QUENCH_PATH", source)
            .env("QUENCH_COPY", copy)
            .stdout(Stdio::null())
            .stdin(Stdio::null());
        Keeper(command.spawn().expect("starts"))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test: the code that tests run in another process until it is killed.
#[test]
fn child() {
    if std::env::var("QUENCH_CHILD").as_deref() != Ok("keeper") {
        return;
    }
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).expect("linux");
    let source = std::env::var("QUENCH_PATH").expect("set with the role");
    let copy = std::env::var_os("QUENCH_COPY").expect("set with the role");
    let standby = builder().copy_directory(copy).open_standby(source).expect("follows");
    loop {
        std::thread::sleep(Duration::from_secs(1));
        drop(standby.statistics());
    }
}

/// Opens a copy, and returns how far it is, and its content without the notes.
fn open_copy(path: &Path) -> Option<(Csn, Content)> {
    if !path.join("MANIFEST").exists() {
        return None;
    }
    let db = builder().create(false).open(path).expect("a database at each moment");
    let notes = db.table(NOTES).expect("has notes");
    let position = db.begin_read().expect("free").get(&notes, b"position").expect("readable").expect("noted");
    let csn = Csn(u64::from_le_bytes(position[..8].try_into().expect("eight bytes")));
    let mut content = content(&db);
    // The second name is that of a table whose drop was interrupted.
    content.retain(|(table, _), _| table != NOTES && !table.starts_with("dropped "));
    assert!(db.verify(None).expect("runs").problems.is_empty());
    db.close().expect("no fault");
    Some((csn, content))
}

#[test]
fn a_copy_in_a_directory_is_exact_whenever_it_is_killed() {
    in_time("killed copies", 600, || {
        for (seed, url) in [(1, false), (2, true)] {
            kill_copies(seed, url, if is_deep() { 80 } else { 8 });
        }
    });
}

/// Checks that a copy is as the database was at `csn`. If a change of tables comes next, that may
/// have been made: then the other tables are as they were.
fn check_copy(primary: &Primary, csn: Csn, mut content: Content, context: &str) {
    let (_, expected) = primary.history.range(..=csn).next_back().expect("begins at the creation");
    let mut rows = without_marks(expected);
    if content == rows {
        return;
    }
    let next =
        primary.history.range(csn.next()..).next().map(|(_, next)| next).expect("something comes next");
    let names = |content: &Content| -> BTreeSet<String> {
        let marks = content.keys().filter(|(_, key)| key == b"\0table");
        marks.map(|(table, _)| table.clone()).collect()
    };
    let of = |content: &Content, name: &str| -> Content {
        content
            .iter()
            .filter(|((table, _), _)| table == name)
            .map(|(key, row)| (key.clone(), row.clone()))
            .collect()
    };
    let (before, after) = (names(expected), names(next));
    let is_changed = |name: &String| of(expected, name) != of(next, name);
    let changed: BTreeSet<&String> = before.union(&after).filter(|name| is_changed(name)).collect();
    let is_cleared = |name: &&&String| after.contains(**name) && of(next, name).len() == 1;
    let changes_tables = before != after || changed.iter().any(|name| is_cleared(&name));
    assert!(changes_tables, "{context}: the copy at CSN {csn} is another one");
    let is_kept = |(table, _): &(String, Vec<u8>)| !changed.contains(table);
    content.retain(|key, _| is_kept(key));
    rows.retain(|key, _| is_kept(key));
    assert!(content == rows, "{context}: the copy at CSN {csn}, before a change of {changed:?}");
}

fn kill_copies(seed: u64, url: bool, rounds: u32) {
    let directory = tempfile::tempdir().expect("space");
    let (path, copy) = (directory.path().join("db"), directory.path().join("copy"));
    let source = if url { format!("file://{}", path.display()) } else { path.display().to_string() };
    let mut primary = Primary::new(builder().open(&source).expect("new"), seed);
    (0..40).for_each(|_| primary.step());
    let (mut random, mut last) = (Random::from_seed(seed), Csn::ZERO);
    for round in 0..rounds {
        let context = format!("seed {seed}, round {round}");
        let keeper = Keeper::start(&source, &copy);
        for _ in 0..random.below(60) {
            primary.step();
            std::thread::sleep(Duration::from_millis(random.below(12)));
        }
        drop(keeper);
        let Some((csn, content)) = open_copy(&copy) else { continue };
        assert!(csn >= last, "{context}: {csn} after {last}");
        last = csn;
        check_copy(&primary, csn, content, &context);
        if round % 4 == 2 {
            // The log that the copy lacks goes.
            for _ in 0..3 {
                (0..40).for_each(|_| primary.step());
                primary.db.checkpoint().expect("no fault");
            }
        }
        if round % 4 == 1 {
            primary.db.clone().close().expect("no fault");
            primary.db = builder().open(&source).expect("is there");
            primary.note();
        }
    }
    let standby = builder().copy_directory(&copy).open_standby(&source).expect("follows");
    assert!(standby.wait_for(primary.newest(), PATIENCE).expect("follows"), "{:?}", standby.statistics());
    primary.check(&standby.snapshot().expect("free"), "at the end");
    standby.close();
    let (csn, content) = open_copy(&copy).expect("is there");
    assert!(csn >= primary.newest() && content == without_marks(&primary.model), "at the end");
    assert!(!PathBuf::from(format!("{}.quench-new", copy.display())).exists(), "nothing is left beside it");
}

#[test]
fn a_directory_with_something_else_takes_no_copy() {
    let directory = tempfile::tempdir().expect("space");
    let path = |name: &str| directory.path().join(name);
    for name in ["db", "other"] {
        builder().open(path(name)).expect("new").close().expect("no fault");
    }
    let into = |from: &str, to: &str| builder().copy_directory(path(to)).open_standby(path(from));
    let refused = |from, to| into(from, to).map(drop).expect_err("is refused").kind();
    assert_eq!(refused("db", "other"), ErrorKind::InvalidArgument, "a database that follows none");
    into("db", "copy").expect("follows").close();
    assert_eq!(refused("other", "copy"), ErrorKind::InvalidArgument, "a copy of another database");
    into("db", "copy").expect("goes on").close();
    std::fs::create_dir(path("full")).expect("space");
    std::fs::write(path("full").join("letter"), "text").expect("space");
    assert!(into("db", "full").is_err(), "a file of others");
    assert!(path("full").join("letter").exists());
}
