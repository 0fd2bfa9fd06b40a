//! The real program on the real kernel: killed at every Nth system call and at random moments, with
//! failing system calls, and with too few descriptors, too little memory and too little disk space.
//!
//! Tests without the strace, root or cgroup that they need print so on the standard error and pass.
//! With `QUENCH_SKIP=deny` they fail.

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

/// Kills at system calls, for each preset. A deep run has more than 300 kills in all. The few kills
/// of a shallow run miss some kinds of calls.
fn kills_at_calls() -> u64 {
    if is_deep() { 70 } else { 18 }
}
const SIGKILL: i32 = 9;
/// Round, preset, and memory limit in MiB of runs in a cgroup. The limit is below a tenth of the
/// memory budget, and enough to start.
const RUNS_WITHOUT_MEMORY: [(&str, &str, u64); 3] =
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
    // The number of rounds ends the run, not the time.
    let output = run(&[&["torture", text(dir.path()), "--json", "--seconds", "3600"], arguments].concat());
    let report = json(&output);
    println!("{report}");
    expect_code(&output, 0);
    assert_eq!((&report["lost"], &report["violations"]), (&0.into(), &0.into()), "{report}");
    report
}

/// System calls on files of the database that every preset makes.
const FILE_CALLS: [&str; 7] =
    ["pwritev2", "fdatasync", "fsync", "ftruncate", "fallocate", "openat", "pread64"];

/// Asserts that at least `least` rounds reached their planned call, and that each of `calls` was
/// reached.
fn expect_reached(report: &Value, least: u64, calls: &[&str]) {
    let reached = report["at_calls"].as_u64().expect("counted");
    let struck = report["struck"].as_object().expect("counted");
    assert_eq!(reached, struck.values().filter_map(Value::as_u64).sum::<u64>(), "{report}");
    assert!(reached >= least, "{reached} rounds reached their call, not {least}: {report}");
    let missing: Vec<_> = calls.iter().filter(|call| !struck.contains_key(**call)).collect();
    assert!(missing.is_empty(), "no round reached {missing:?}: {report}");
}

/// A kill counts if the child was in a call on a file of the database.
#[test]
fn killed_at_every_nth_system_call_it_loses_nothing() {
    if no_strace() {
        return;
    }
    // `autonomous` workers write through io_uring, waiting committers of `auto` do not.
    let kills = kills_at_calls().to_string();
    for (preset, own) in some(&[("auto", "flock"), ("autonomous", "io_uring_enter")], 1) {
        let way = ["--threads", "2", "--alternate-io", "--at-calls", "kill", "--preset", preset];
        let report = torture(&[&["--rounds", &kills], &way[..]].concat());
        assert_eq!(report["kills"].to_string(), kills, "{report}");
        println!("figures: {{\"kills\": {kills}}}");
        // The other rounds ended with a kill at another moment, mostly because the child made fewer
        // calls of the kind.
        let every = [&FILE_CALLS[..], &[own]].concat();
        let (least, calls) = if is_deep() { (35, &every[..]) } else { (5, &[][..]) };
        expect_reached(&report, least, calls);
    }
}

#[test]
fn killed_at_random_moments_of_a_short_run_it_loses_nothing() {
    let kills = depth(175).to_string();
    let rounds = ["--rounds", &kills, "--threads", "2", "--alternate-io", "--life", "100"];
    let report = torture(&rounds);
    assert_eq!(report["kills"].to_string(), kills, "{report}");
    println!("figures: {{\"kills\": {kills}}}");
}

/// After a failed call the child ends with one error or retries; no acknowledged commit is lost.
#[test]
fn failed_calls_are_reported_or_retried_and_lose_nothing() {
    if no_strace() {
        return;
    }
    let space = ["pwritev2", "fallocate", "ftruncate"];
    // Some writes of workers go through io_uring.
    let again = ["pwritev2", "io_uring_enter"];
    let faults = [
        ("eio", "16", 10, true, &FILE_CALLS[..]),
        ("eio-for-ever", "16", 10, true, &FILE_CALLS[..]),
        ("enospc", "10", 4, false, &space[..]),
        ("enospc-for-ever", "10", 4, false, &space[..]),
        ("eintr", "10", 4, false, &["pwritev2", "io_uring_enter", "fdatasync"][..]),
        ("eagain", "10", 4, false, &again[..]),
    ];
    for (fault, rounds, least, is_reported, calls) in some(&faults, 1) {
        let way = ["--threads", "2", "--alternate-io", "--preset", "autonomous", "--at-calls", fault];
        let report = torture(&[&["--rounds", rounds], &way[..]].concat());
        expect_reached(&report, least, calls);
        let complaints = report["complaints"].as_u64().expect("counted");
        assert!(complaints > 0 || !is_reported, "{fault}: no child reported an error: {report}");
        let repeats = matches!(fault, "eintr" | "eagain");
        assert!(complaints == 0 || !repeats, "{fault} must be retried: {report}");
    }
}

fn rows(count: u32) -> String {
    (0..count).fold(String::new(), |mut text, n| {
        let _ = writeln!(text, "key {n:07}\t{n} {}", "v".repeat(200));
        text
    })
}

/// Runs `quench load` from a shell that first sets a limit.
fn load_under(limit: &str, database: &Path, file: &Path, more: &[&str]) -> Output {
    let script = format!("{limit}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_quench"), "load", text(database), "t", text(file)]);
    command.args(["--batch", "100"]).args(more).stdin(Stdio::null());
    command.output().expect("a shell")
}

/// Resumes the load where it stopped, and asserts that every row is present.
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

/// The system kills a program that writes beyond `ulimit -f`. A program that ignores SIGXFSZ gets
/// an error instead.
#[test]
fn a_file_size_limit_kills_or_fails_and_loses_nothing() {
    const SIGXFSZ: i32 = 25;
    for ignored in [false, true] {
        let dir = directory();
        // First the files of the log grow beyond the limit. If the system only refuses, the log
        // stays short, and the file of pages meets the limit.
        let (file, rows) = rows_file(dir.path(), if ignored { 200_000 } else { 40_000 });
        let database = dir.path().join("db");
        // A block has 512 bytes, in some shells 1024.
        let limit = if ignored { "trap '' XFSZ; ulimit -f 4500" } else { "ulimit -f 6000" };
        let output = load_under(limit, &database, &file, &[]);
        if ignored {
            expect_code(&output, 2);
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(stderr.contains("ulimit -f"), "{stderr}");
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

/// A file system in memory, unmounted by its drop.
struct TemporaryMount(PathBuf);

impl TemporaryMount {
    fn new(at: &Path, options: &str) -> Option<TemporaryMount> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs", text(at)]).output();
        let done = mounted.is_ok_and(|output| output.status.success());
        if !done {
            skip(&"no file system can be mounted here");
        }
        done.then(|| TemporaryMount(at.to_path_buf()))
    }
}

impl Drop for TemporaryMount {
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
    let Some(mounted) = TemporaryMount::new(&at, "size=5m") else { return };
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

/// A cgroup with a memory limit, of version 1 or 2, removed by its drop.
struct MemoryGroup(PathBuf);

/// Directory of the cgroups, the file of the memory limit, and the file of the swap limit. In
/// version 1 the latter limits memory and swap together, in version 2 swap alone.
const GROUPS: [(&str, &str, &str); 2] = [
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    ("/sys/fs/cgroup", "memory.max", "memory.swap.max"),
];

impl MemoryGroup {
    fn new(limit: u64) -> Option<MemoryGroup> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("quench-test-{}-{number}", std::process::id());
        // Must not create the file: the directory may be no cgroup.
        let write = |path: PathBuf, number: u64| {
            let mut file = OpenOptions::new().write(true).open(path)?;
            file.write_all(number.to_string().as_bytes())
        };
        let made = GROUPS.into_iter().find_map(|(root, with_limit, with_swap)| {
            let path = Path::new(root).join(&name);
            std::fs::create_dir(&path).ok()?;
            let group = MemoryGroup(path);
            write(group.0.join(with_limit), limit).ok()?;
            let swap = if with_swap == "memory.swap.max" { 0 } else { limit };
            // Some kernels do not account for swap, and most machines have none.
            let _ = write(group.0.join(with_swap), swap);
            Some(group)
        });
        if made.is_none() {
            skip(&"no cgroup with a memory limit can be made here");
        }
        made
    }

    /// Runs the program in the group.
    fn run(&self, arguments: &[&str]) -> Output {
        let script = format!("echo $$ > {}/cgroup.procs && exec \"$0\" \"$@\"", text(&self.0));
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_quench")]).args(arguments);
        command.stdin(Stdio::null()).output().expect("a shell")
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// With a budget below the limit of its cgroup, the engine survives more data than either.
#[test]
fn a_budget_below_the_limit_of_a_memory_cgroup_is_enough() {
    let Some(group) = MemoryGroup::new(192 << 20) else { return };
    let dir = directory();
    let size = ["--rows", "300000", "--memory-bytes", "32m", "--seconds", "2", "--threads", "2", "--json"];
    let output = group.run(&[&["bench", "ycsb"], &size[..], &["--path", text(dir.path())]].concat());
    expect_code(&output, 0);
    expect_code(&run(&["verify", text(dir.path())]), 0);
}

/// With a budget above the limit of its cgroup, the kernel kills the engine at any moment. Each run
/// continues with the database of the previous run, which exceeds the memory limit.
#[test]
fn killed_out_of_memory_it_loses_nothing() {
    let dir = directory();
    let database = dir.path().join("db");
    // Many threads fill the memory soon. The steps are a bound for machines that do not enforce the
    // limit.
    let way = ["--threads", "16", "--seed", "1", "--steps", "1000000"];
    let (mut acknowledged, mut kills) = (Vec::new(), 0);
    for (round, preset, mebibytes) in some(&RUNS_WITHOUT_MEMORY, 1) {
        let Some(group) = MemoryGroup::new(mebibytes << 20) else { return };
        let which = ["torture-child", text(&database), "--preset", preset, "--round", round];
        let output = group.run(&[&which[..], &way].concat());
        if output.status.success() {
            return skip(&"the limit of a memory cgroup is not enforced here");
        }
        assert_eq!(output.status.signal(), Some(SIGKILL), "{output:?}");
        kills += 1;
        // The kill may have cut the last line.
        let whole = output.stdout.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        acknowledged.extend_from_slice(&output.stdout[..whole]);
        expect_acknowledged(&database, preset, &acknowledged);
    }
    println!("figures: {{\"kills\": {kills}}}");
    expect_code(&run(&["verify", text(&database)]), 0);
    // Without the limit the next run succeeds.
    let which = ["torture-child", text(&database), "--preset", "auto", "--round", "9"];
    let output = run(&[&which[..], &["--threads", "2", "--seed", "1", "--steps", "1000"]].concat());
    expect_code(&output, 0);
    acknowledged.extend_from_slice(&output.stdout);
    expect_acknowledged(&database, "auto", &acknowledged);
}

/// Asserts that every commit that the children printed as acknowledged is present.
fn expect_acknowledged(database: &Path, preset: &str, acknowledged: &[u8]) {
    let output = run_with_input(&["torture-check", text(database), "--preset", preset], acknowledged);
    expect_code(&output, 0);
    let report = json(&output);
    println!("{report}");
    assert_eq!(report["lost"], 0, "{report}");
    assert!(report["acknowledged"].as_u64() > Some(0), "no commit was acknowledged: {report}");
}
