//! Files of other programs that have the names of a database's files: nothing overwrites or removes
//! them.

use crate::support::processes::one_test;
use crate::support::{rows, small};
use quenchdb::{BackupOptions, Database, Error, ErrorKind, Preset, RestoreOptions, Settings, VerifyClass};
use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const IMPORTANT: &[u8] = b"important\n";

fn settings() -> Settings {
    small(Preset::Auto, 1).with(|s| s.segment_bytes = 1 << 20)
}

fn open(directory: &Path) -> quenchdb::Result<Database> {
    Database::builder().settings(settings()).open(directory)
}

fn put(directory: &Path, key: &str) {
    let db = open(directory).expect("opens");
    let table = db.table_or_create("t").expect("free");
    db.transact(|tx| tx.insert(&table, key, "1")).expect("commits");
    db.close().expect("closes");
}

/// Returns the bytes of each file below a directory. Of other entries it describes the type, and
/// the target of a link.
fn tree(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        let (path, kind) = (entry.path(), entry.file_type().expect("known"));
        if kind.is_dir() {
            all.extend(tree(&path));
        }
        let content = match kind {
            kind if kind.is_file() => std::fs::read(&path).expect("readable"),
            kind if kind.is_symlink() => {
                format!("a link to {:?}", std::fs::read_link(&path).expect("a link")).into_bytes()
            }
            kind => format!("{kind:?}").into_bytes(),
        };
        all.insert(path, content);
    }
    all
}

/// Returns a new directory in which `make` has made an entry with the name `path`.
fn with(path: &str, make: impl FnOnce(&Path)) -> TempDir {
    let directory = tempfile::tempdir().expect("space");
    let path = directory.path().join(path);
    std::fs::create_dir_all(path.parent().expect("in the directory")).expect("space");
    make(&path);
    directory
}

fn with_file(path: &str, content: &[u8]) -> TempDir {
    with(path, |path| std::fs::write(path, content).expect("space"))
}

/// Names of a database's files.
const NAMES: [&str; 10] = [
    "MANIFEST",
    "LOCK",
    "monitor.sock",
    "log-memory",
    ".quench-direct-probe",
    "pages/data",
    "log/00000001.seg",
    "log/00000007.seg",
    "readers/00",
    "readers/63",
];

thread_local! {
    /// A closed database and the directory of its backup, made once for a test.
    static ORIGIN: [TempDir; 2] = {
        let [whole, backup] = [(); 2].map(|()| tempfile::tempdir().expect("space"));
        put(whole.path(), "a");
        let source = open(whole.path()).expect("opens");
        source.backup(backup.path().join("full"), BackupOptions::default()).expect("sound");
        source.close().expect("closes");
        [whole, backup]
    };
}

/// The ways to make a database in a directory.
fn creations(directory: &Path) -> Vec<(&'static str, Result<(), Error>)> {
    ORIGIN.with(|[whole, backup]| creations_from(whole.path(), backup.path(), directory))
}

fn creations_from(whole: &Path, backup: &Path, directory: &Path) -> Vec<(&'static str, Result<(), Error>)> {
    let source = open(whole).expect("opens");
    let back_up = source.backup(directory, BackupOptions::default()).map(drop);
    source.close().expect("closes");
    let passive = small(Preset::Passive, 1).with(|s| s.log_memory = Some(directory.join("log-memory")));
    let options = RestoreOptions::default();
    let create = |create| Database::builder().settings(settings()).create(create).open(directory).map(drop);
    vec![
        ("open", create(true)),
        ("open what exists", create(false)),
        ("read", Database::builder().read_only(true).open(directory).map(drop)),
        ("read a checkpoint", Database::builder().open_checkpoint(directory).map(drop)),
        ("autonomous", Database::builder().settings(small(Preset::Autonomous, 1)).open(directory).map(drop)),
        ("passive", Database::builder().settings(passive).open(directory).map(drop)),
        ("back up", back_up),
        ("restore", Database::restore([backup.join("full")], directory, options).map(drop)),
        ("salvage", Database::salvage(whole, directory, settings(), None).map(drop)),
    ]
}

/// Checks that no way to make a database changes anything in a directory.
fn assert_refused(directory: &Path, path: &str, context: &str) {
    let before = tree(directory);
    for (way, result) in creations(directory) {
        let error = result.expect_err(context);
        assert_eq!(tree(directory), before, "{context}, {way}: {error}");
        let name = path.split('/').next().expect("a name");
        let is_named = error.to_string().contains(name);
        assert!(is_named || error.kind() == ErrorKind::NotFound, "{context}, {way}: {error}");
        if way == "open" {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{context}: {error}");
            assert!(error.to_string().contains(path), "{context}: {error}");
        }
    }
}

#[test]
fn foreign_content_under_our_names_is_refused_and_stays() {
    let long = b"0123456789abcde\n".repeat(3000);
    let late = [vec![0; 5000], IMPORTANT.to_vec()].concat();
    let zeros = vec![0; 3 << 20];
    for path in NAMES {
        for content in [IMPORTANT, &long, &late] {
            let directory = with_file(path, content);
            assert_refused(directory.path(), path, &format!("{path} of {} bytes", content.len()));
        }
    }
    for path in ["MANIFEST", "LOCK", "pages/data", "log/00000001.seg"] {
        assert_refused(with_file(path, &zeros).path(), path, "zeros that a creation does not write");
    }
}

/// Returns the first block of a file of pages.
fn header_of_pages(page_bytes: usize) -> Vec<u8> {
    let directory = tempfile::tempdir().expect("space");
    let builder = Database::builder().settings(settings()).page_bytes(page_bytes);
    builder.open(directory.path()).expect("opens").close().expect("closes");
    std::fs::read(directory.path().join("pages/data")).expect("there")[..page_bytes].to_vec()
}

#[test]
fn content_that_only_begins_like_ours_stays() {
    let with_end = |start: Vec<u8>| [start, IMPORTANT.to_vec()].concat();
    for (path, content) in [
        ("LOCK", b"4711\nimportant\n".to_vec()),
        ("LOCK", b"00000000004711\n".to_vec()),
        ("pages/data", with_end(vec![0; 4096])),
        ("log/00000001.seg", with_end(vec![0; 4096])),
        (".quench-direct-probe", with_end(vec![0; 512])),
        ("log-memory", with_end(vec![0; 8])),
    ] {
        assert_refused(with_file(path, &content).path(), path, path);
    }
    for (path, content) in [
        ("MANIFEST", b"QUENCHDB is a database\n".repeat(1000)),
        ("pages/data", with_end(header_of_pages(4096))),
        ("log/00000001.seg", b"\0\0\0\0QLOG is a magic\n".to_vec()),
    ] {
        let directory = with_file(path, &content);
        let error = open(directory.path()).expect_err("no database");
        assert_eq!(error.kind(), ErrorKind::Corruption, "{path}: {error}");
        assert_eq!(std::fs::read(directory.path().join(path)).expect("there"), content, "{path}: {error}");
    }
}

#[test]
fn links_directories_and_sockets_under_our_names_stay() {
    let elsewhere = tempfile::tempdir().expect("space");
    let (file, missing) = (elsewhere.path().join("file"), elsewhere.path().join("missing"));
    for content in [IMPORTANT, b"", &[0; 4096]] {
        std::fs::write(&file, content).expect("space");
        for path in NAMES {
            let directory = with(path, |path| symlink(&file, path).expect("space"));
            assert_refused(directory.path(), path, &format!("a link {path}"));
            assert_eq!(std::fs::read(&file).expect("there"), content, "{path}");
        }
    }
    for path in NAMES {
        let directory = with(path, |path| symlink(&missing, path).expect("space"));
        assert_refused(directory.path(), path, &format!("a link {path} to nothing"));
        assert!(!missing.exists(), "{path}");
        let directory = with(path, |path| std::fs::create_dir(path).expect("space"));
        assert_refused(directory.path(), path, &format!("a directory {path}"));
        let directory = with(path, |path| drop(UnixListener::bind(path).expect("space")));
        assert_refused(directory.path(), path, &format!("a socket {path}"));
    }
    for path in ["log", "pages", "readers"] {
        assert_refused(with_file(path, b"").path(), path, &format!("a file {path}"));
        let notes = format!("{path}/notes.txt");
        assert_refused(with_file(&notes, b"").path(), &notes, &notes);
    }
}

/// Makes what a creation may have left when it was cut short.
fn leave_unfinished(directory: &Path, lock: &[u8], pages: &[u8], manifest: usize, segments: &[usize]) {
    for name in ["log", "pages"] {
        std::fs::create_dir_all(directory.join(name).join("lost+found")).expect("space");
    }
    std::fs::create_dir_all(directory.join("lost+found")).expect("space");
    std::fs::write(directory.join("LOCK"), lock).expect("space");
    std::fs::write(directory.join(".quench-direct-probe"), [0; 4096]).expect("space");
    std::fs::write(directory.join("pages/data"), pages).expect("space");
    std::fs::write(directory.join("MANIFEST"), vec![0; manifest]).expect("space");
    for (number, len) in segments.iter().enumerate() {
        let path = directory.join(format!("log/{:08}.seg", number + 1));
        std::fs::write(path, vec![0; *len]).expect("space");
    }
}

#[test]
fn what_an_interrupted_creation_leaves_is_taken_over() {
    let header = header_of_pages(8192);
    for lock in [&b""[..], b"4711\n", b"4711", &[0; 5]] {
        for pages in [&header[..0], &header[..4096], &header[..], &[0; 8192]] {
            for manifest in [0, 4096, 2 << 20] {
                let directory = tempfile::tempdir().expect("space");
                leave_unfinished(directory.path(), lock, pages, manifest, &[0, 4096, 64 << 10]);
                put(directory.path(), "a");
                let db = open(directory.path()).expect("opens");
                assert_eq!(rows(&db, "t").len(), 1);
            }
        }
    }
}

/// Regression: a power cut left the first 3,584 bytes of a manifest, which counted as a file of
/// another program.
#[test]
fn manifest_cut_off_in_its_first_sector_is_taken_over() {
    let whole = tempfile::tempdir().expect("space");
    open(whole.path()).expect("opens").close().expect("closes");
    let manifest = std::fs::read(whole.path().join("MANIFEST")).expect("there");
    for len in [512, 3584] {
        let directory = with_file("MANIFEST", &manifest[..len]);
        put(directory.path(), "a");
        assert_eq!(rows(&open(directory.path()).expect("opens"), "t").len(), 1);
    }
    assert_refused(with_file("MANIFEST", b"QUENCHDB is a database").path(), "MANIFEST", "short");
}

/// Not a test: creates a database in another process, which strace kills at a system call.
#[test]
fn child() {
    if let Some(path) = std::env::var_os("QUENCH_CREATES") {
        put(Path::new(&path), "a");
    }
}

#[test]
fn creation_killed_at_any_call_is_taken_over() {
    let strace = || std::process::Command::new("strace");
    if strace().arg("-V").output().is_err() {
        crate::support::skipped::skip(&"there is no strace");
        return;
    }
    let mut killed = 0;
    for call in ["openat", "ftruncate", "pwritev2", "fdatasync", "fsync", "mkdir"] {
        for number in 1..5 {
            let directory = tempfile::tempdir().expect("space");
            let path = directory.path().join("db");
            let test = one_test(module_path!(), "child");
            let mut command = strace();
            command.args(["-f", "-o", "/dev/null", "-P"]).arg(&path);
            for name in ["", "/MANIFEST", "/LOCK", "/pages", "/pages/data", "/log"] {
                command.args(["-P", &format!("{}{name}", path.display())]);
            }
            command.arg("-e").arg(format!("inject={call}:signal=KILL:when={number}"));
            command.arg(test.get_program()).args(test.get_args()).env("QUENCH_CREATES", &path);
            let ended = command.output().expect("starts").status;
            killed += u32::from(!ended.success());
            put(&path, "b");
            let db = open(&path).expect("opens");
            assert!(!rows(&db, "t").is_empty(), "{call} {number}");
        }
    }
    assert!(killed > 10, "{killed} kills");
}

#[test]
fn empty_directories_under_our_names_are_used() {
    let directory = tempfile::tempdir().expect("space");
    let elsewhere = tempfile::tempdir().expect("space");
    std::fs::create_dir(elsewhere.path().join("lost+found")).expect("space");
    symlink(elsewhere.path(), directory.path().join("log")).expect("space");
    std::fs::create_dir(directory.path().join("pages")).expect("space");
    std::fs::create_dir(directory.path().join("readers")).expect("space");
    put(directory.path(), "a");
    assert!(std::fs::read_dir(elsewhere.path()).expect("there").count() > 1, "the log is there");
}

#[test]
fn foreign_names_in_a_database_stay_and_it_works() {
    let elsewhere = tempfile::tempdir().expect("space");
    std::fs::write(elsewhere.path().join("file"), IMPORTANT).expect("space");
    for preset in [Preset::Auto, Preset::Autonomous] {
        let directory = tempfile::tempdir().expect("space");
        put(directory.path(), "a");
        let names =
            ["monitor.sock", ".quench-direct-probe", "log/00000003.seg", "log/00000900.seg", "readers/00"];
        std::fs::create_dir_all(directory.path().join("readers")).expect("space");
        names.iter().for_each(|name| std::fs::write(directory.path().join(name), IMPORTANT).expect("free"));
        let link = directory.path().join("log/00000901.seg");
        symlink(elsewhere.path().join("file"), &link).expect("space");
        std::fs::create_dir(directory.path().join("log/00000902.seg")).expect("space");
        for round in 0..3 {
            let settings =
                small(preset, 1).with(|s| (s.segment_bytes, s.log_bytes_max) = (64 << 10, 64 << 20));
            let db = Database::builder().settings(settings).open(directory.path()).expect("opens");
            let table = db.table_or_create("t").expect("free");
            for key in 0..40 {
                db.transact(|tx| tx.insert(&table, format!("{round}-{key}"), vec![0; 10_000]))
                    .expect("commits");
            }
            db.checkpoint().expect("has space");
            let reader = Database::builder().open_checkpoint(directory.path()).expect("readable");
            assert!(rows(&reader, "t").len() > 40);
            let report = db.verify(None).expect("whole");
            assert_eq!(report.class(), VerifyClass::Sound, "{report:#?}");
            db.close().expect("closes");
            for name in names {
                assert_eq!(std::fs::read(directory.path().join(name)).expect("there"), IMPORTANT, "{name}");
            }
            assert_eq!(std::fs::read(&link).expect("there"), IMPORTANT);
        }
    }
}

#[test]
fn foreign_lock_of_a_database_keeps_its_content() {
    let directory = tempfile::tempdir().expect("space");
    put(directory.path(), "a");
    let lock = directory.path().join("LOCK");
    std::fs::write(&lock, IMPORTANT).expect("there");
    let db = open(directory.path()).expect("opens");
    assert_eq!(open(directory.path()).expect_err("in use").kind(), ErrorKind::Busy);
    drop(db);
    assert_eq!(std::fs::read(&lock).expect("there"), IMPORTANT);
}
