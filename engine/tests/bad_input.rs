//! Wrong use on real directories: paths without a database, two users of one directory, limits, odd
//! orders of dropping.
//!
//! Tests that need another process run this binary again with `QUENCH_CHILD` set: see [`child`].

use crate::support::processes::one_test;
use crate::support::rows;
use quenchdb::{Database, ErrorKind, Result, Table, VALUE_BYTES_MAX};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

fn builder() -> quenchdb::Builder {
    Database::builder()
        .memory_bytes(16 << 20)
        .segment_bytes(1 << 20)
        .log_bytes_max(64 << 20)
        .lab(|lab| lab.checkpoint_log_bytes = 0)
}

/// Returns every file below `directory` with its bytes, without the socket of a killed process.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            all.insert(path.clone(), Vec::new());
            all.append(&mut files(&path));
        } else if path.is_file() {
            all.insert(path.clone(), std::fs::read(&path).expect("readable"));
        }
    }
    all
}

fn put(db: &Database, table: &Table, key: &str, value: &str) {
    db.transact(|tx| tx.insert(table, key, value)).expect("commits");
}

/// Runs `role` of [`child`] in another process.
fn in_another_process(role: &str, path: &Path) -> Output {
    let mut command = one_test(module_path!(), "child");
    command.env("QUENCH_CHILD", role).env("QUENCH_PATH", path);
    command.output().expect("starts")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Not a test: the code that other tests run in another process.
#[test]
fn child() {
    let Ok(role) = std::env::var("QUENCH_CHILD") else { return };
    let path = PathBuf::from(std::env::var_os("QUENCH_PATH").expect("set with the role"));
    match role.as_str() {
        "open" => match builder().open(&path) {
            Ok(_) => println!("ANSWER opened"),
            Err(error) => println!("ANSWER {:?} {error}", error.kind()),
        },
        "open-read-only" => match builder().read_only(true).open(&path) {
            Ok(db) => println!("ANSWER opened with {} rows", rows(&db, "t").len()),
            Err(error) => println!("ANSWER {:?} {error}", error.kind()),
        },
        "crash" => {
            let db = builder().open(&path).expect("opens");
            let table = db.table_or_create("t").expect("new");
            for i in 0..100 {
                put(&db, &table, &format!("key {i}"), &format!("value {i}"));
                if i == 50 {
                    db.checkpoint().expect("works");
                }
            }
            let mut open = db.begin().expect("free");
            open.insert(&table, "open", "never committed").expect("free row");
            std::process::abort();
        }
        "few-descriptors" => few_descriptors(&path),
        "cut-write" => cut_write(&path),
        other => panic!("no such role: {other}"),
    }
}

fn few_descriptors(path: &Path) {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let in_use = std::fs::read_dir("/proc/self/fd").expect("linux").count() as u64;
    let mut failed = 0;
    for more in 0..24 {
        let limit = in_use + more;
        setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum: Some(4096) }).expect("allowed");
        match builder().open(path) {
            Ok(db) => {
                let table = db.table_or_create("t").expect("works once it is open");
                put(&db, &table, "a", "b");
                drop((db, table));
                println!("ANSWER opened with {more} after {failed} failures");
                return;
            }
            Err(error) => {
                failed += 1;
                println!("{more}: {:?} {error}", error.kind());
                let clear = error.to_string().contains("file descriptors")
                    || error.to_string().contains("Too many open files");
                assert!(clear && error.kind() == ErrorKind::Io, "limit {more}: {error}");
            }
        }
    }
    panic!("24 descriptors are not enough");
}

/// Maximum file length in the role `cut-write`.
const FILE_LIMIT: usize = 64 << 10;

/// Writes across the limit on file length: the system writes the bytes below the limit, reports
/// that number, and refuses the rest.
fn cut_write(path: &Path) {
    use quenchdb::internals::device::file::FileStorage;
    use quenchdb::internals::device::{AlignedBuffer, Directory, OpenMode};
    for direct in [false, true] {
        let storage = FileStorage::open(path, quenchdb::DeviceTrust::Auto, true, true).expect("a directory");
        let mode = OpenMode { create: true, read_only: false, direct };
        let file = storage.open(&format!("cut-{direct}"), mode).expect("space");
        let bytes = AlignedBuffer::zeroed(2 * FILE_LIMIT);
        for write in
            [quenchdb::internals::device::File::write_at, quenchdb::internals::device::File::write_durable_at]
        {
            let error = write(&*file, 0, &bytes).expect_err("half of it is there");
            println!("ANSWER {:?} {error}", error.kind());
            write(&*file, 0, &bytes[..FILE_LIMIT]).expect("below the limit");
        }
    }
}

/// A partial write by the system is continued, or becomes an error that says where it ended.
#[test]
fn a_write_that_is_cut_short_is_an_error() {
    let directory = tempfile::tempdir().expect("space");
    let child = one_test(module_path!(), "child");
    // Only a shell can make a child ignore the signal that comes with the error.
    let script = format!("trap '' XFSZ; ulimit -f {} && exec \"$0\" \"$@\"", FILE_LIMIT / 512);
    let output = Command::new("/bin/sh")
        .args(["-c", &script])
        .arg(child.get_program())
        .args(child.get_args())
        .env("QUENCH_CHILD", "cut-write")
        .env("QUENCH_PATH", directory.path())
        .output()
        .expect("there is a shell");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    let place = format!("byte {FILE_LIMIT}");
    let clear = text.lines().filter(|line| line.contains("ANSWER") && line.contains(&place)).count();
    assert_eq!(clear, 4, "{text}");
}

#[test]
fn too_few_file_descriptors_are_named() {
    for existing in [false, true] {
        let directory = tempfile::tempdir().expect("space");
        let path = directory.path().join("db");
        if existing {
            assert!(!in_another_process("crash", &path).status.success(), "it aborts");
        }
        let output = in_another_process("few-descriptors", &path);
        let text = text(&output);
        assert!(output.status.success() && text.contains("ANSWER opened"), "{text}");
        assert!(!text.contains("after 0 failures"), "{text}");
        let db = builder().open(&path).expect("opens");
        assert_eq!(rows(&db, "t").len(), if existing { 101 } else { 1 });
    }
}

/// Regression: the lock file was created before the refusal, so a mistyped path got a `LOCK`.
#[test]
fn a_directory_of_something_else_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().expect("space");
    std::fs::write(directory.path().join("thesis.txt"), "important").expect("space");
    std::fs::create_dir(directory.path().join("figures")).expect("space");
    let before = files(directory.path());
    for create in [true, false] {
        for read_only in [true, false] {
            let error = builder()
                .create(create)
                .read_only(read_only)
                .open(directory.path())
                .expect_err("no database");
            let expected =
                if create && !read_only { ErrorKind::InvalidArgument } else { ErrorKind::NotFound };
            assert_eq!(error.kind(), expected, "{error}");
            assert_eq!(
                files(directory.path()),
                before,
                "create {create}, read-only {read_only}: something was changed"
            );
        }
    }
    std::fs::remove_dir(directory.path().join("figures")).expect("mine");
    assert!(builder().open(directory.path()).expect_err("no database").to_string().contains("thesis.txt"));
}

#[test]
fn a_directory_with_foreign_directories_is_refused() {
    let directory = tempfile::tempdir().expect("space");
    std::fs::create_dir(directory.path().join("figures")).expect("space");
    let error = builder().open(directory.path()).expect_err("not empty");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("figures"), "{error}");
}

/// Regression: the probe for direct I/O created its file before the directory was checked. A
/// process killed in the probe left the file. The next open then refused the directory as one of
/// other files. This happens on file systems without unnamed files.
#[test]
fn what_a_killed_probe_leaves_is_not_foreign_and_goes() {
    let directory = tempfile::tempdir().expect("space");
    let probe = directory.path().join(".quench-direct-probe");
    std::fs::write(&probe, [0; 512]).expect("space");
    drop(builder().open(directory.path()).expect("a directory like an empty one"));
    assert!(!probe.exists());
}

#[test]
fn nothing_is_put_into_a_directory_that_is_refused_or_only_read() {
    let changed = |path: &Path| std::fs::metadata(path).expect("there").modified().expect("known");
    let directory = tempfile::tempdir().expect("space");
    std::fs::create_dir(directory.path().join("figures")).expect("space");
    let before = changed(directory.path());
    for builder in [builder(), builder().create(false), builder().read_only(true)] {
        builder.open(directory.path()).expect_err("not ours");
        assert_eq!(changed(directory.path()), before, "a name came or went");
    }
    let database = tempfile::tempdir().expect("space");
    builder().open(database.path()).expect("opens").close().expect("closes");
    let before = changed(database.path());
    // Without the monitor, whose socket comes and goes.
    for builder in [builder().create(false).monitor(false), builder().read_only(true)] {
        let db = builder.open(database.path()).expect("opens");
        drop(db);
        assert_eq!(changed(database.path()), before, "a name came or went");
    }
}

#[test]
fn a_foreign_file_with_our_name_is_no_manifest() {
    let directory = tempfile::tempdir().expect("space");
    std::fs::write(directory.path().join("MANIFEST"), "Manifest-Version: 1.0\n".repeat(500)).expect("space");
    let before = std::fs::read(directory.path().join("MANIFEST")).expect("there");
    let error = builder().open(directory.path()).expect_err("no database");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.location().is_some(), "{error}");
    assert_eq!(std::fs::read(directory.path().join("MANIFEST")).expect("there"), before);
}

/// Regression: computing the number after the one in such a name overflowed.
#[test]
fn a_log_file_with_an_impossible_number_is_named() {
    let directory = tempfile::tempdir().expect("space");
    let path = directory.path().join("database");
    let refuses = |context: &str| {
        let name = format!("{}.seg", u64::MAX);
        std::fs::write(path.join("log").join(&name), [0; 4096]).expect("space");
        let error = builder().open(&path).expect_err("no number is left for the next segment");
        assert_eq!(error.kind(), ErrorKind::Corruption, "{context}: {error}");
        assert!(error.to_string().contains(&name), "{context}: {error}");
        std::fs::remove_file(path.join("log").join(&name)).expect("there");
    };
    builder().open(&path).expect("opens").close().expect("closes");
    refuses("closed");
    assert!(!in_another_process("crash", &path).status.success(), "it aborts");
    refuses("killed");
    let db = builder().open(&path).expect("opens");
    assert_eq!(rows(&db, "t").len(), 100);
}

#[test]
fn a_path_that_is_a_file_is_refused() {
    let directory = tempfile::tempdir().expect("space");
    let path = directory.path().join("file");
    std::fs::write(&path, "x").expect("space");
    for path in [path.clone(), path.join("below")] {
        let error = builder().open(&path).expect_err("not a directory");
        assert!(matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::Io), "{error}");
        assert!(error.to_string().contains("file"), "it names the path: {error}");
    }
    assert_eq!(std::fs::read(&path).expect("there"), b"x");
}

/// Regression: a read-only open of a mistyped path created the directory, because `create` is on by
/// default.
#[test]
fn a_missing_directory_is_created_only_on_demand() {
    let directory = tempfile::tempdir().expect("space");
    let path = directory.path().join("deep/below");
    for builder in
        [builder().create(false), builder().read_only(true), builder().read_only(true).create(false)]
    {
        let error = builder.open(&path).expect_err("missing");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(!directory.path().join("deep").exists(), "it was created");
    }
    let empty = tempfile::tempdir().expect("space");
    for builder in [builder().create(false), builder().read_only(true)] {
        assert_eq!(builder.open(empty.path()).expect_err("empty").kind(), ErrorKind::NotFound);
        assert!(files(empty.path()).is_empty(), "{:?}", files(empty.path()).keys());
    }
    let db = builder().open(&path).expect("creates it and its parents");
    db.create_table("t").expect("new");
    db.close().expect("closes");
    assert!(builder().create(false).open(&path).expect("it is there").recovery().clean);
}

#[test]
fn a_second_user_is_told_who_is_the_first() {
    let directory = tempfile::tempdir().expect("space");
    let db = builder().open(directory.path()).expect("opens");
    let table = db.create_table("t").expect("new");
    put(&db, &table, "a", "1");
    for read_only in [false, true] {
        let error = builder().read_only(read_only).open(directory.path()).expect_err("in use");
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        assert!(error.to_string().contains("this process"), "{error}");
    }
    // Another name of the same directory.
    let link = directory.path().parent().expect("has one").join(format!("link-{}", std::process::id()));
    std::os::unix::fs::symlink(directory.path(), &link).expect("space");
    let error = builder().open(&link).expect_err("in use");
    std::fs::remove_file(&link).expect("mine");
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    for role in ["open", "open-read-only"] {
        let text = text(&in_another_process(role, directory.path()));
        assert!(text.contains("ANSWER Busy"), "{text}");
        assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
    }
    put(&db, &table, "b", "2");
    assert_eq!(rows(&db, "t").len(), 2, "the first user continues undisturbed");
    drop((db, table));
    assert_eq!(rows(&builder().open(directory.path()).expect("free again"), "t").len(), 2);
}

/// Regression: the lock file names the last writer. A writer refused because of readers got an
/// error that named this process, although it had ended long ago.
#[test]
fn readers_exclude_a_writer_and_are_not_named_as_one() {
    let directory = tempfile::tempdir().expect("space");
    assert!(!in_another_process("crash", directory.path()).status.success());
    let one = builder().read_only(true).open(directory.path()).expect("free");
    let two = builder().read_only(true).open(directory.path()).expect("readers share it");
    assert_eq!(rows(&one, "t"), rows(&two, "t"));
    let shared = text(&in_another_process("open-read-only", directory.path()));
    assert!(shared.contains("ANSWER opened with 100 rows"), "{shared}");
    let error = builder().open(directory.path()).expect_err("read by others");
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert!(error.to_string().contains("read"), "{error}");
    drop((one, two));
    builder().open(directory.path()).expect("free again");
}

#[test]
fn a_crashed_database_can_be_read_without_writing_a_byte() {
    let directory = tempfile::tempdir().expect("space");
    assert!(!in_another_process("crash", directory.path()).status.success());
    let before = files(directory.path());
    for _ in 0..2 {
        let db = builder().read_only(true).open(directory.path()).expect("readable");
        let found = rows(&db, "t");
        assert_eq!(found.len(), 100);
        for i in 0..100 {
            assert_eq!(found[format!("key {i}").as_bytes()], format!("value {i}").into_bytes());
        }
        assert!(!db.recovery().clean && db.recovery().replayed > 0);
        assert!(db.verify(None).expect("runs").problems.is_empty());
        let refused = |result: Result<()>| {
            let error = result.expect_err("read-only");
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        };
        refused(db.begin().map(drop));
        refused(db.create_table("x").map(drop));
        refused(db.drop_table("t"));
        refused(db.checkpoint().map(drop));
        refused(db.transact(|_| Ok(())));
        db.close().expect("nothing to do");
        assert!(files(directory.path()) == before, "reading changed a file");
    }
    let db = builder().open(directory.path()).expect("recovers");
    assert_eq!(rows(&db, "t").len(), 100);
}

#[test]
fn keys_and_values_are_held_to_their_limits() {
    for page_bytes in [4096, 32768] {
        let db = builder().page_bytes(page_bytes).open_in_memory().expect("opens");
        let table = db.create_table("t").expect("new");
        let (key_max, entry_max) = (db.max_key_bytes(), db.max_entry_bytes());
        let mut tx = db.begin().expect("free");
        let invalid = |result: Result<()>| {
            let error = result.expect_err("outside the limits");
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        };
        invalid(tx.insert(&table, "", "x"));
        invalid(tx.insert(&table, vec![1; key_max + 1], ""));
        invalid(tx.insert(&table, "k", vec![0; VALUE_BYTES_MAX as usize + 1]));
        invalid(tx.insert(&table, vec![1; key_max + 1], vec![1; 10 << 20]));
        invalid(tx.get(&table, "").map(drop));
        invalid(tx.get(&table, vec![1; key_max + 1]).map(drop));
        invalid(tx.remove(&table, vec![1; 1 << 20]).map(drop));
        invalid(tx.get_for_update(&table, "").map(drop));
        let mut expected = BTreeMap::new();
        for i in 0..60u8 {
            for key_len in [1, key_max / 2, key_max] {
                let mut key = vec![i; key_len];
                key[0] = i;
                // Only a few are one byte too long for an entry, because each takes pages of its
                // own.
                let longest = entry_max - key_len + usize::from(i % 8 == 0);
                for value_len in [0, 1, longest] {
                    tx.insert(&table, &key, vec![i; value_len]).expect("within the limits");
                    expected.insert(key.clone(), vec![i; value_len]);
                }
            }
        }
        tx.commit().expect("commits");
        assert_eq!(rows(&db, "t"), expected);
        // Limits of ranges are not keys, so any bytes are allowed.
        let snapshot = db.begin_read().expect("free");
        let long = vec![0xff; key_max * 3];
        assert_eq!(snapshot.range(&table, &[][..]..&long[..]).count(), expected.len());
        assert!(db.verify(None).expect("runs").problems.is_empty());
    }
}

#[test]
fn table_names_are_held_to_their_limits() {
    let db = builder().open_in_memory().expect("opens");
    assert_eq!(db.create_table("").expect_err("empty").kind(), ErrorKind::InvalidArgument);
    assert_eq!(db.create_table(&"x".repeat(1 << 20)).expect_err("long").kind(), ErrorKind::InvalidArgument);
    db.create_table("ünïcode / with spaces\0")
        .map(drop)
        .or_else(|error| if error.kind() == ErrorKind::InvalidArgument { Ok(()) } else { Err(error) })
        .expect("either");
    db.create_table("t").expect("new");
    assert_eq!(db.create_table("t").expect_err("there").kind(), ErrorKind::AlreadyExists);
    assert_eq!(db.drop_table("u").expect_err("not there").kind(), ErrorKind::NotFound);
}

/// Regression: a handle of another database, or of this one before it was reopened, was accepted.
/// Then the other database's tree was changed under CSNs that it had never assigned.
#[test]
fn a_table_of_another_database_is_not_mistaken_for_ones_own() {
    let (one, two) = (builder().open_in_memory().expect("opens"), builder().open_in_memory().expect("opens"));
    let (mine, foreign) = (one.create_table("t").expect("new"), two.create_table("t").expect("new"));
    put(&two, &foreign, "a", "theirs");
    let mut tx = one.begin().expect("free");
    let error = tx.insert(&foreign, "a", "mine").expect_err("not of this database");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(tx.get(&foreign, "a").is_err());
    assert!(one.begin_read().expect("free").range(&foreign, ..).next().is_some_and(|row| row.is_err()));
    tx.insert(&mine, "a", "mine").expect("free row");
    tx.commit().expect("commits");
    let storage = Arc::new(quenchdb::internals::device::memory::MemoryStorage::new());
    let open = || builder().storage(storage.clone()).open("x").expect("free");
    let stale = open().create_table("t").expect("new");
    let again = open();
    assert!(
        again.begin_read().expect("free").get(&stale, "a").is_err(),
        "a handle from before it was reopened"
    );
    assert_eq!(rows(&two, "t")[&b"a"[..]], b"theirs");
}

/// Regression: after the lock of an open database was removed as stale, a second writer changed the
/// manifest before it noticed the first.
#[test]
fn who_opens_a_database_whose_lock_was_removed_writes_nothing() {
    let directory = tempfile::tempdir().expect("space");
    let path = directory.path();
    let db = builder().open(path).expect("opens");
    let table = db.create_table("t").expect("new");
    put(&db, &table, "a", "1");
    db.checkpoint().expect("a whole disk");
    std::fs::remove_file(path.join("LOCK")).expect("there");
    let written =
        |name: &str| std::fs::metadata(path.join(name)).and_then(|file| file.modified()).expect("there");
    let before = [written("MANIFEST"), written("pages/data")];
    let answer = text(&in_another_process("open", path));
    assert!(answer.contains("ANSWER Busy") && answer.contains("pages/data"), "{answer}");
    assert_eq!(before, [written("MANIFEST"), written("pages/data")]);
    put(&db, &table, "b", "2");
    db.close().expect("closes");
    assert_eq!(rows(&builder().open(path).expect("opens"), "t").len(), 2);
}

/// Regression: a segment of another database, which a user had moved into the log directory, was
/// removed.
#[test]
fn a_log_segment_of_another_database_is_refused_and_left_alone() {
    for killed in [false, true] {
        let [ours, theirs] = [(), ()].map(|()| tempfile::tempdir().expect("space"));
        for directory in [&ours, &theirs] {
            if killed {
                assert!(!in_another_process("crash", directory.path()).status.success(), "it aborts");
            } else {
                let db = builder().open(directory.path()).expect("opens");
                let table = db.create_table("t").expect("new");
                put(&db, &table, "a", "1");
                drop(table);
                db.close().expect("closes");
            }
        }
        let log = files(&theirs.path().join("log"));
        let begun =
            |(path, bytes): &(&PathBuf, &Vec<u8>)| path.extension().is_some() && bytes[4..8] == *b"QLOG";
        let (path, bytes) = log.iter().find(begun).expect("one with a block");
        let foreign = ours.path().join("log/00000900.seg");
        std::fs::copy(path, &foreign).expect("copied");
        let error = builder().open(ours.path()).expect_err("not ours");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let text = error.to_string();
        assert!(text.contains("log/00000900.seg") && text.contains("another database"), "{text}");
        assert!(&std::fs::read(&foreign).expect("still there") == bytes);
        std::fs::remove_file(foreign).expect("there");
        assert!(!rows(&builder().open(ours.path()).expect("opens"), "t").is_empty());
    }
}
