//! Places that a command refuses, and what a failed copy leaves.

use crate::support::*;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns all paths below a directory, without those that readers of a database make.
fn tree(directory: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory).expect("readable") {
        let path = entry.expect("readable").path();
        if path.ends_with("readers") || path.ends_with("pins") {
            continue;
        }
        if path.is_dir() && !path.is_symlink() {
            all.extend(tree(&path));
        }
        all.push(path);
    }
    all.sort();
    all
}

/// Checks that a command is refused with these words, and that nothing changes below `root`.
#[track_caller]
fn expect_refused(root: &Path, arguments: &[&str], wanted: &str) {
    let before = tree(root);
    let output = quench(arguments).current_dir(root).output().expect("it starts");
    expect_code(&output, 2);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(wanted), "{arguments:?}: {said}");
    assert_eq!(tree(root), before, "{arguments:?}");
}

/// Regression: the backup was made inside the database, and `verify` reported foreign files.
#[test]
fn copy_into_its_own_source_is_refused_under_any_path() {
    let dir = directory();
    let root = dir.path();
    let made = |arguments: &[&str]| {
        expect_code(&quench(arguments).current_dir(root).output().expect("it starts"), 0);
    };
    made(&["put", "a/db", "t", "k", "v"]);
    made(&["backup", "a/db", "base"]);
    symlink(root.join("a/db"), root.join("link")).expect("ours");
    symlink(root.join("a/db/log"), root.join("inner")).expect("ours");
    let url = format!("file://{}/a/db/copy", text(root));
    for (target, wanted) in [
        ("a/db", "the target is the directory of the database"),
        ("a/db/copy", "the target lies in the directory of the database"),
        ("a/db/new/deep", "the target lies in the directory of the database"),
        ("a/db/../db/copy", "the target lies in the directory of the database"),
        ("link/copy", "the target lies in the directory of the database"),
        ("inner/copy", "the target lies in the directory of the database"),
        ("./a/./db/pages", "the target lies in the directory of the database"),
        (&url, "the target lies in the directory of the database"),
        ("a", "the directory of the database lies in the target"),
        (".", "the directory of the database lies in the target"),
        ("link/..", "the directory of the database lies in the target"),
    ] {
        expect_refused(root, &["backup", "a/db", target], wanted);
        expect_refused(root, &["backup", "link", target, "--checkpoint"], wanted);
    }
    let store = format!("file://{}/store", text(root));
    made(&["put", &store, "t", "k", "v"]);
    let wanted = "in the directory of the database";
    expect_refused(root, &["backup", &store, &format!("{store}/copy")], wanted);
    expect_refused(root, &["backup", &store, "store/copy"], wanted);
    expect_refused(root, &["backup", "a/db", "base/more", "--base", "base"], "in the directory of the base");
    expect_refused(root, &["restore", "base", "base/new"], "in the directory of a backup");
    expect_refused(root, &["restore", "base", "a/db/new", "--log", "a/db"], "in the directory of the log");
    expect_refused(root, &["salvage", "a/db", "link/new"], "in the directory of the source");
    expect_refused(root, &["dump", "a/db", "t", "link/MANIFEST"], "in the directory of the database");
    expect_refused(root, &["stat", "a/db", "--html", "a/db/pages/data"], "in the directory of the database");
    made(&["verify", "a/db"]);
    made(&["backup", "a/db", "a/copy"]);
}

#[test]
fn failed_copy_leaves_nothing() {
    let dir = directory();
    let path = |name: &str| dir.path().join(name);
    let (db, whole) = (path("db"), path("whole"));
    let rows: String = (0..20_000).map(|n| format!("{n:08}\t{}\n", "v".repeat(100))).collect();
    expect_code(&run_with_input(&["load", text(&db), "t"], rows.as_bytes()), 0);
    expect_code(&run(&["backup", text(&db), text(&whole)]), 0);
    std::fs::create_dir(path("there")).expect("ours");
    for arguments in [
        &["backup", text(&db), text(&path("new/copy"))][..],
        &["backup", text(&db), text(&path("there"))],
        &["backup", text(&db), &format!("file://{}", text(&path("objects")))],
        &["restore", text(&whole), text(&path("new/copy"))],
        &["restore", text(&whole), text(&path("there"))],
    ] {
        // Files above some KiB fail with an error, because the shell ignores SIGXFSZ (25).
        let limited = Command::new("sh")
            .args(["-c", "ulimit -f 512; trap '' 25; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_quench")])
            .args(arguments)
            .output()
            .expect("a shell");
        expect_code(&limited, 2);
        for left in ["new", "objects"] {
            assert!(!path(left).exists(), "{arguments:?} leaves {:?}", tree(&path(left)));
        }
        assert!(tree(&path("there")).is_empty(), "{arguments:?}");
    }
    expect_code(&run(&["backup", text(&db), text(&path("there"))]), 0);
    expect_code(&run(&["verify", text(&path("there"))]), 0);
}

#[test]
fn user_who_may_only_read_backs_up() {
    if !rustix::process::geteuid().is_root() {
        return skip(&"only root can become another user");
    }
    // Other users reach the system's directory of temporary files, not that of the build.
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| dir.path().join(name);
    let (db, out) = (path("db"), path("out"));
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).expect("ours");
    expect_code(&run(&["put", text(&db), "t", "k", "v"]), 0);
    for file in tree(&db).iter().chain([&db]) {
        let mode = if file.is_dir() { 0o755 } else { 0o644 };
        std::fs::set_permissions(file, PermissionsExt::from_mode(mode)).expect("ours");
    }
    std::fs::create_dir(&out).expect("ours");
    std::fs::set_permissions(&out, PermissionsExt::from_mode(0o777)).expect("ours");
    let program = path("quench");
    std::fs::copy(env!("CARGO_BIN_EXE_quench"), &program).expect("ours");
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program).args(arguments);
        command.output()
    };
    let copy = out.join("copy");
    let Ok(made) = as_nobody(&["backup", text(&db), text(&copy)]) else {
        return skip(&"no setpriv");
    };
    expect_code(&made, 0);
    expect_code(&run(&["verify", text(&copy)]), 0);
    assert_eq!(run(&["get", text(&copy), "t", "k"]).stdout, b"v\n");
    // What is only in the log is not in the newest checkpoint.
    expect_code(&run(&["put", text(&db), "t", "k", "w"]), 0);
    let open = quenchdb::Database::open(&db).expect("ours");
    let beside = as_nobody(&["backup", text(&db), text(&out.join("other"))]).expect("as before");
    assert_ne!(beside.status.code(), Some(0), "a reader registers itself beside a writer");
    assert!(!out.join("other").exists());
    drop(open);
}

#[test]
fn torture_refuses_the_place_of_a_database() {
    let dir = directory();
    let root = dir.path();
    let url = format!("file://{}/store", text(root));
    for place in ["db", &url] {
        expect_code(&quench(&["put", place, "t", "k", "v"]).current_dir(root).output().expect("starts"), 0);
        expect_refused(root, &["torture", place, "--seconds", "0.1"], "holds a database");
    }
    expect_code(&quench(&["backup", "db", "copy"]).current_dir(root).output().expect("starts"), 0);
    expect_refused(root, &["torture", "copy", "--seconds", "0.1"], "holds a database");
}

#[test]
fn damaged_database_says_what_is_missing_and_what_to_do() {
    let dir = directory();
    let path = dir.path().join("db");
    let rows: String = (0..20_000).map(|n| format!("{n:08}\t{}\n", "v".repeat(100))).collect();
    expect_code(&run_with_input(&["load", text(&path), "t"], rows.as_bytes()), 0);
    let (manifest, pages) = (path.join("MANIFEST"), path.join("pages/data"));
    let kept = std::fs::read(&manifest).expect("there");
    let failed = |command: &str| {
        let more = if command == "get" { &["t", "00000001"][..] } else { &[] };
        let output = run(&[&[command, text(&path)], more].concat());
        assert_ne!(output.status.code(), Some(0), "{command}");
        let said = [output.stderr, output.stdout].concat();
        String::from_utf8(said).expect("text")
    };
    let write_zeros = || std::fs::write(&manifest, vec![0; kept.len()]).expect("ours");
    let remove = || std::fs::remove_file(&manifest).expect("ours");
    for damage in [&remove as &dyn Fn(), &write_zeros] {
        damage();
        let said = failed("get");
        for wanted in ["manifest is", "`quench verify`", "`quench salvage`"] {
            assert!(said.contains(wanted), "{said}");
        }
        assert!(!said.contains("check the name"), "{said}");
        std::fs::write(&manifest, &kept).expect("ours");
    }
    let whole = std::fs::read(&pages).expect("there");
    for len in [0, 100, 4096, whole.len() / 2] {
        std::fs::write(&pages, &whole[..len]).expect("ours");
        for command in ["get", "verify"] {
            let said = failed(command);
            assert!(said.contains("truncated"), "{len} bytes, {command}: {said}");
        }
    }
}
