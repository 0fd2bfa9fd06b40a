//! The real program on the real kernel: killed at every Nth system call and at random moments, with
//! calls that fail, and with too little of everything that the system hands out.
//!
//! What needs strace, root, or a cgroup says so on the standard error and passes where that is
//! missing; with `QUENCH_SKIP=deny` it fails.

use crate::support::{directory, expect_code, json, run, run_with_input, skip, text};
use quenchdb::internals::base::depth::{depth, is_deep, some};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// At calls, with each of two presets, and at random: together more than 300 kills in a run of
/// these tests. Kills at calls of each preset. Few of them do not strike each kind of call.
fn kills_at_calls() -> u64 {
    if is_deep() { 70 } else { 18 }
}
const SIGKILL: i32 = 9;
/// Round, preset, and what the group of the child may have: less than a tenth of its budget, and
/// enough to begin.
const LIVES_WITHOUT_MEMORY: [(&str, &str, u64); 3] =
    [("0", "auto", 20), ("1", "autonomous", 20), ("2", "auto", 24)];

fn no_strace() -> bool {
    let tried = Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).output();
    let missing = !tried.is_ok_and(|output| output.status.success());
    if missing {
        skip(&"there is no strace that may trace here");
    }
    missing
}

fn torture(arguments: &[&str]) -> Value {
    let dir = directory();
    // It is the rounds that end it, however long they take.
    let output = run(&[&["torture", text(dir.path()), "--json", "--seconds", "3600"], arguments].concat());
    let report = json(&output);
    println!("{report}");
    expect_code(&output, 0);
    assert_eq!((&report["lost"], &report["violations"]), (&0.into(), &0.into()), "{report}");
    report
}

/// Calls on files of the database, by whatever way they are made.
const FILE_CALLS: [&str; 7] =
    ["pwritev2", "fdatasync", "fsync", "ftruncate", "fallocate", "openat", "pread64"];

/// So many rounds really struck their call, and each of these calls was struck at least once.
fn expect_struck(report: &Value, least: u64, calls: &[&str]) {
    let met = report["at_calls"].as_u64().expect("counted");
    let struck = report["struck"].as_object().expect("counted");
    assert_eq!(met, struck.values().filter_map(Value::as_u64).sum::<u64>(), "{report}");
    assert!(met >= least, "{met} rounds met their call, and not {least}: {report}");
    let missing: Vec<_> = calls.iter().filter(|call| !struck.contains_key(**call)).collect();
    assert!(missing.is_empty(), "nobody was struck at {missing:?}: {report}");
}

/// A kill counts where the child was at a file of the database: after it had begun to open it.
#[test]
fn killed_at_every_nth_system_call_it_loses_nothing() {
    if no_strace() {
        return;
    }
    // A worker that writes for itself does it through io_uring, a waiting committer does not.
    let kills = kills_at_calls().to_string();
    for (preset, own) in some(&[("auto", "flock"), ("autonomous", "io_uring_enter")], 1) {
        let way = ["--threads", "2", "--alternate-io", "--at-calls", "kill", "--preset", preset];
        let report = torture(&[&["--rounds", &kills], &way[..]].concat());
        assert_eq!(report["kills"].to_string(), kills, "{report}");
        println!("figures: {{\"kills\": {kills}}}");
        // The others went on until they were killed without a call: most of them because there is
        // no such call so often.
        let every = [&FILE_CALLS[..], &[own]].concat();
        let (least, calls) = if is_deep() { (35, &every[..]) } else { (5, &[][..]) };
        expect_struck(&report, least, calls);
    }
}

#[test]
fn killed_at_random_moments_of_a_short_life_it_loses_nothing() {
    let kills = depth(175).to_string();
    let rounds = ["--rounds", &kills, "--threads", "2", "--alternate-io", "--life", "100"];
    let report = torture(&rounds);
    assert_eq!(report["kills"].to_string(), kills, "{report}");
    println!("figures: {{\"kills\": {kills}}}");
}

/// A child either says that a call failed, in one error, or goes on; nothing that it had
/// acknowledged is lost.
#[test]
fn calls_that_fail_are_told_or_repeated_and_lose_nothing() {
    if no_strace() {
        return;
    }
    let space = ["pwritev2", "fallocate", "ftruncate"];
    // Of a worker's own writes some go through io_uring.
    let again = ["pwritev2", "io_uring_enter"];
    let troubles = [
        ("eio", "16", 10, true, &FILE_CALLS[..]),
        ("eio-for-ever", "16", 10, true, &FILE_CALLS[..]),
        ("enospc", "10", 4, false, &space[..]),
        ("enospc-for-ever", "10", 4, false, &space[..]),
        ("eintr", "10", 4, false, &["pwritev2", "io_uring_enter", "fdatasync"][..]),
        ("eagain", "10", 4, false, &again[..]),
    ];
    for (trouble, rounds, least, is_told, calls) in some(&troubles, 1) {
        let way = ["--threads", "2", "--alternate-io", "--preset", "autonomous", "--at-calls", trouble];
        let report = torture(&[&["--rounds", rounds], &way[..]].concat());
        expect_struck(&report, least, calls);
        let complaints = report["complaints"].as_u64().expect("counted");
        assert!(complaints > 0 || !is_told, "{trouble}: nobody was told of anything: {report}");
        let repeats = matches!(trouble, "eintr" | "eagain");
        assert!(complaints == 0 || !repeats, "{trouble} is nothing to complain of: {report}");
    }
}

fn rows(count: u32) -> String {
    (0..count).fold(String::new(), |mut text, n| {
        let _ = writeln!(text, "key {n:07}\t{n} {}", "v".repeat(200));
        text
    })
}

/// A shell that limits itself, then becomes `quench load`.
fn load_under(limit: &str, database: &Path, file: &Path, more: &[&str]) -> Output {
    let script = format!("{limit}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_quench"), "load", text(database), "t", text(file)]);
    command.args(["--batch", "100"]).args(more).stdin(Stdio::null());
    command.output().expect("a shell")
}

/// The load goes on where it was stopped, and then everything is there.
fn resume_and_compare(database: &Path, file: &Path, expected: &str) {
    expect_code(&run(&["load", text(database), "t", text(file), "--batch", "100", "--resume"]), 0);
    expect_code(&run(&["verify", text(database)]), 0);
    let dumped = run(&["dump", text(database), "t"]);
    assert!(dumped.stdout == expected.as_bytes(), "something is missing or too much");
}

fn rows_file(directory: &Path, count: u32) -> (PathBuf, String) {
    let (file, rows) = (directory.join("rows.tsv"), rows(count));
    std::fs::write(&file, &rows).expect("there is space");
    (file, rows)
}

/// Where the system kills whoever writes beyond `ulimit -f`, that is a kill like any other; a
/// program that ignores SIGXFSZ gets an error.
#[test]
fn a_file_size_limit_kills_or_fails_and_loses_nothing() {
    const SIGXFSZ: i32 = 25;
    for ignored in [false, true] {
        let dir = directory();
        let (file, rows) = rows_file(dir.path(), 3000);
        let database = dir.path().join("db");
        // The first file of the log has 16 MiB. A block has 512 bytes, in some shells 1024.
        let limit = if ignored { "trap '' XFSZ; ulimit -f 6000" } else { "ulimit -f 6000" };
        let output = load_under(limit, &database, &file, &[]);
        if ignored {
            expect_code(&output, 2);
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(stderr.contains("File too large"), "{stderr}");
        } else {
            assert_eq!(output.status.signal(), Some(SIGXFSZ), "{output:?}");
        }
        resume_and_compare(&database, &file, &rows);
    }
}

#[test]
fn too_few_descriptors_are_an_error_that_says_so() {
    let dir = directory();
    let (file, rows) = rows_file(dir.path(), 300);
    let database = dir.path().join("db");
    let mut refused = 0;
    for descriptors in [5, 7, 9, 12, 16] {
        let output = load_under(&format!("ulimit -n {descriptors}"), &database, &file, &["--resume"]);
        if output.status.code() != Some(0) {
            refused += 1;
            expect_code(&output, 2);
        }
    }
    assert!(refused > 0, "5 descriptors are enough?");
    resume_and_compare(&database, &file, &rows);
}

/// A file system in memory, unmounted when it is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(at: &Path, options: &str) -> Option<Mounted> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs", text(at)]).output();
        let done = mounted.is_ok_and(|output| output.status.success());
        if !done {
            skip(&"no file system can be mounted here");
        }
        done.then(|| Mounted(at.to_path_buf()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_file_system_that_is_too_small_fails_until_it_grows() {
    let dir = directory();
    let (file, rows) = rows_file(dir.path(), 200_000);
    let at = dir.path().join("small");
    std::fs::create_dir(&at).expect("new");
    let Some(mounted) = Mounted::new(&at, "size=56m") else { return };
    let database = at.join("db");
    let output = run(&["load", text(&database), "t", text(&file), "--batch", "100"]);
    expect_code(&output, 2);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("free space"), "{stderr}");
    let larger = Command::new("mount").args(["-o", "remount,size=400m", text(&at)]).status();
    assert!(larger.expect("it was there before").success());
    resume_and_compare(&database, &file, &rows);
    drop(mounted);
}

/// A group with a limit, removed when it is dropped. Version 1 or 2, as the machine has.
struct Group(PathBuf);

/// Where groups are, the limit of one, and the limit with what is swapped out: all of it in version
/// 1, that alone in version 2.
const GROUPS: [(&str, &str, &str); 2] = [
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    ("/sys/fs/cgroup", "memory.max", "memory.swap.max"),
];

impl Group {
    fn new(limit: u64) -> Option<Group> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("quench-test-{}-{number}", std::process::id());
        // A file that is not there is not made: the directory may be no group.
        let write = |path: PathBuf, number: u64| {
            let mut file = OpenOptions::new().write(true).open(path)?;
            file.write_all(number.to_string().as_bytes())
        };
        let made = GROUPS.into_iter().find_map(|(root, with_limit, with_swap)| {
            let path = Path::new(root).join(&name);
            std::fs::create_dir(&path).ok()?;
            let group = Group(path);
            write(group.0.join(with_limit), limit).ok()?;
            let swap = if with_swap == "memory.swap.max" { 0 } else { limit };
            // Not every machine accounts for it, and few have any.
            let _ = write(group.0.join(with_swap), swap);
            Some(group)
        });
        if made.is_none() {
            skip(&"no cgroup with a memory limit can be made here");
        }
        made
    }

    /// The program, in the group before it begins.
    fn run(&self, arguments: &[&str]) -> Output {
        let script = format!("echo $$ > {}/cgroup.procs && exec \"$0\" \"$@\"", text(&self.0));
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_quench")]).args(arguments);
        command.stdin(Stdio::null()).output().expect("a shell")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// An engine whose budget is below the limit of its group lives, with more data than either.
#[test]
fn a_budget_below_the_limit_of_a_memory_cgroup_is_enough() {
    let Some(group) = Group::new(192 << 20) else { return };
    let dir = directory();
    let size = ["--rows", "300000", "--memory-bytes", "32m", "--seconds", "2", "--threads", "2", "--json"];
    let output = group.run(&[&["bench", "ycsb"], &size[..], &["--path", text(dir.path())]].concat());
    expect_code(&output, 0);
    expect_code(&run(&["verify", text(dir.path())]), 0);
}

/// One whose budget is above the limit fills it, and is killed by the system at whatever it does
/// then. Each life goes on with what the one before it left, which is more than it can have in
/// memory.
#[test]
fn killed_for_want_of_memory_it_loses_nothing() {
    let dir = directory();
    let database = dir.path().join("db");
    // Where no limit is kept a life ends by itself.
    let way = ["--threads", "2", "--seed", "1", "--steps", "1000000"];
    let (mut acknowledged, mut kills) = (Vec::new(), 0);
    for (round, preset, mebibytes) in some(&LIVES_WITHOUT_MEMORY, 1) {
        let Some(group) = Group::new(mebibytes << 20) else { return };
        let which = ["torture-child", text(&database), "--preset", preset, "--round", round];
        let output = group.run(&[&which[..], &way].concat());
        if output.status.success() {
            return skip(&"the limit of a memory cgroup is not kept here");
        }
        assert_eq!(output.status.signal(), Some(SIGKILL), "{output:?}");
        kills += 1;
        // What comes after the last newline was cut by the kill.
        let whole = output.stdout.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        acknowledged.extend_from_slice(&output.stdout[..whole]);
        expect_acknowledged(&database, preset, &acknowledged);
    }
    println!("figures: {{\"kills\": {kills}}}");
    expect_code(&run(&["verify", text(&database)]), 0);
    // With memory it goes on.
    let which = ["torture-child", text(&database), "--preset", "auto", "--round", "9"];
    let output = run(&[&which[..], &["--threads", "2", "--seed", "1", "--steps", "1000"]].concat());
    expect_code(&output, 0);
    acknowledged.extend_from_slice(&output.stdout);
    expect_acknowledged(&database, "auto", &acknowledged);
}

/// What children said they were told is there.
fn expect_acknowledged(database: &Path, preset: &str, acknowledged: &[u8]) {
    let output = run_with_input(&["torture-check", text(database), "--preset", preset], acknowledged);
    expect_code(&output, 0);
    let report = json(&output);
    println!("{report}");
    assert_eq!(report["lost"], 0, "{report}");
    assert!(report["acknowledged"].as_u64() > Some(0), "nobody was told of anything: {report}");
}
