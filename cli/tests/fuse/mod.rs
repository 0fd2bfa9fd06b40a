//! The real program on a FUSE file system that injects faults: requests fail, transfer only a part,
//! or are slow; the disk fills up; or the program is killed at its Nth request, for every N.
//!
//! Needs /dev/fuse and root; without them the tests print so and pass.

mod disk;
mod faults;

use crate::support::{directory, expect_code, quench, run_with_input, text};
use disk::Disk;
use faults::{CarriedOut, Fault, Kind};
use quenchdb::internals::base::depth::{is_deep, some};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Flags for the writing thread and the interface: threads without and with io_uring, and workers.
const WRITE_METHODS: [&[&str]; 3] =
    [&["--preset", "auto", "--no-io-uring"], &["--preset", "auto"], &["--preset", "autonomous"]];
/// Longest time of a child process; one that takes longer hangs.
const CHILD_TIME_MAX: Duration = Duration::from_secs(60);
const SIGKILL: i32 = 9;

/// A database on the disk, with all commits that its child processes acknowledged.
struct TestDatabase<'a> {
    database: PathBuf,
    method: &'a [&'a str],
    round: u32,
    acknowledged: String,
}

impl<'a> TestDatabase<'a> {
    fn new(disk: &Disk, method: &'a [&'a str]) -> TestDatabase<'a> {
        let database = disk.path().join("db");
        if database.exists() {
            std::fs::remove_dir_all(&database).expect("the disk has no fault between databases");
        }
        TestDatabase { database, method, round: 0, acknowledged: String::new() }
    }

    /// Runs a child that opens the database, commits `steps` times, makes a checkpoint, and closes
    /// the database, unless a fault ends the child.
    fn run_child(&mut self, steps: u32) -> Output {
        self.round += 1;
        let mut child = quench(&["torture-child", text(&self.database), "--threads", "2", "--seed", "1"]);
        child.args(self.method).args(["--round", &self.round.to_string(), "--steps", &steps.to_string()]);
        let output = run_to_end(child);
        // A last line without a newline was not acknowledged.
        let said = String::from_utf8_lossy(&output.stdout);
        self.acknowledged.push_str(&said[..said.rfind('\n').map_or(0, |end| end + 1)]);
        output
    }

    /// Runs a child with a fault, which may end the child with one error, and then a child without
    /// faults. Checks the database after both. Returns how often the fault occurred, and whether it
    /// ended the child.
    #[track_caller]
    fn run_with_fault(&mut self, disk: &Disk, fault: Fault, expected_error: &str) -> (u64, bool) {
        disk.inject(fault);
        let output = self.run_child(20);
        let fired = disk.clear_fault();
        let ended = output.status.code() != Some(0);
        if ended {
            expect_error(&output, expected_error, &format!("{fault:?}"));
        }
        self.check(&format!("{fault:?}"));
        expect_code(&self.run_child(5), 0);
        self.check(&format!("{fault:?}, and a child after it"));
        (fired, ended)
    }

    /// Asserts that every acknowledged commit is present and the database is sound, in two opens.
    #[track_caller]
    fn check(&self, after: &str) {
        let check = [&["torture-check", text(&self.database)], self.method].concat();
        let output = run_with_input(&check, self.acknowledged.as_bytes());
        assert_eq!(output.status.code(), Some(0), "{after}, {:?}: {output:?}", self.method);
    }
}

/// Runs a program to its end, or kills it after [`CHILD_TIME_MAX`] and panics.
fn run_to_end(mut program: std::process::Command) -> Output {
    let child = program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let pid = rustix::process::Pid::from_child(&child);
    let (ended, end) = mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        let hangs = end.recv_timeout(CHILD_TIME_MAX) == Err(mpsc::RecvTimeoutError::Timeout);
        if hangs {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        hangs
    });
    let output = child.wait_with_output().expect("the program ends");
    drop(ended);
    assert!(!watch.join().expect("it only waits"), "hangs: {output:?}");
    output
}

/// Asserts that the program failed with one line that contains `about`.
#[track_caller]
fn expect_error(output: &Output, about: &str, after: &str) {
    expect_code(output, 2);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains(about), "{after}: {stderr}");
}

#[test]
fn failed_requests_are_reported_once_and_lose_nothing() {
    let dir = directory();
    let Some(disk) = Disk::mount(dir.path(), true) else { return };
    for (kind, is_reported) in [
        (Kind::Read, true),
        (Kind::Write, true),
        (Kind::Flush, true),
        (Kind::Create, true),
        // Creating a database removes only the file of a probe.
        (Kind::Remove, false),
        (Kind::Length, false),
        (Kind::Reserve, true),
    ] {
        let (mut fired, mut ended_children) = (0, 0);
        for (n, method) in (0..).zip(WRITE_METHODS).step_by(if is_deep() { 1 } else { 2 }) {
            // With an existing database, and while the database is created.
            for (nth, for_ever, is_new) in
                [(2 + 4 * n, n % 2 == 0, false), (1 + n, true, true), (3 + 5 * n, n % 2 == 1, true)]
            {
                let fault = Fault::Fail { kind, nth, for_ever };
                let mut database = TestDatabase::new(&disk, method);
                if !is_new {
                    expect_code(&database.run_child(5), 0);
                }
                let (times, is_ended) = database.run_with_fault(&disk, fault, "Input/output error");
                (fired, ended_children) = (fired + times, ended_children + u64::from(is_ended));
            }
        }
        println!(
            "figures: {{\"failed {kind:?}\": {fired}, \"children ended by failed {kind:?}\": {ended_children}}}"
        );
        assert!(
            fired > 0 && (ended_children > 0 || !is_reported),
            "{kind:?}: {fired} failed, {ended_children} children ended"
        );
    }
}

/// A short transfer and a slow reply keep the promises of a device.
///
/// Short writes through io_uring are tested without `O_DIRECT` only. With it, Linux 6.18 itself
/// writes the rest of a short write over the first part, and reports success.
#[test]
fn short_transfers_and_slow_replies_are_no_errors() {
    let short = |kind, every| Fault::Short { kind, every };
    let slow = Fault::Slow { every: 5, by: Duration::from_millis(20) };
    let without_io_uring = &WRITE_METHODS[..1];
    for (direct, methods, faults) in [
        (true, &WRITE_METHODS[..], [slow, short(Kind::Read, 1)]),
        (true, without_io_uring, [short(Kind::Write, 1), short(Kind::Write, 3)]),
        (false, &WRITE_METHODS[..], [short(Kind::Write, 1), short(Kind::Write, 3)]),
    ] {
        let dir = directory();
        let Some(disk) = Disk::mount(dir.path(), direct) else { return };
        for fault in faults {
            let mut fired = 0;
            for method in some(methods, 2) {
                let mut database = TestDatabase::new(&disk, method);
                expect_code(&database.run_child(10), 0);
                disk.inject(fault);
                let output = database.run_child(20);
                fired += disk.clear_fault();
                expect_code(&output, 0);
                database.check(&format!("{fault:?}"));
            }
            println!("figures: {{\"{fault:?}\": {fired}}}");
            assert!(fired > 0, "{fault:?} never occurred");
        }
    }
}

#[test]
fn a_disk_full_from_any_byte_is_one_error_and_loses_nothing() {
    let dir = directory();
    let Some(disk) = Disk::mount(dir.path(), true) else { return };
    let (mut fired, mut ended_children) = (0, 0);
    for method in some(&WRITE_METHODS, 2) {
        for kilobytes in [0, 300, 2100, 3000, 5000] {
            let fault = Fault::Full { bytes: kilobytes << 10 };
            let mut database = TestDatabase::new(&disk, method);
            let (times, is_ended) = database.run_with_fault(&disk, fault, "free space");
            (fired, ended_children) = (fired + times, ended_children + u64::from(is_ended));
        }
    }
    println!("figures: {{\"no space\": {fired}, \"children ended by no space\": {ended_children}}}");
    assert!(fired > 0 && ended_children > 0, "{fired}, {ended_children}");
}

/// Kills a child at its first request that changes something, the next child at its second such
/// request, and so on, until a child ends first. With `afresh` each child creates its database,
/// otherwise it continues with the database of the previous child. Returns the number of kills.
fn kill_at_every_request(
    disk: &Disk,
    method: &[&str],
    steps: u32,
    carried_out: CarriedOut,
    afresh: bool,
) -> u64 {
    let mut database = TestDatabase::new(disk, method);
    for nth in 1.. {
        if afresh {
            database = TestDatabase::new(disk, method);
        }
        disk.inject(Fault::Kill { nth, carried_out });
        let output = database.run_child(steps);
        let is_killed = disk.clear_fault() > 0;
        let what = format!("killed at request {nth} ({carried_out:?} of it carried out), afresh: {afresh}");
        database.check(&what);
        if !is_killed {
            expect_code(&output, 0);
            return nth - 1;
        }
        assert_eq!(output.status.signal(), Some(SIGKILL), "{what}: {output:?}");
    }
    unreachable!("every child makes finitely many requests")
}

/// Kills children of each write method, with new and with existing databases. `QUENCH_KILLS=N`
/// repeats this with other numbers of steps until there were N kills.
#[test]
fn killed_at_every_nth_request_it_loses_nothing() {
    let dir = directory();
    let Some(disk) = Disk::mount(dir.path(), true) else { return };
    let wanted = std::env::var("QUENCH_KILLS").map_or(1, |text| text.parse().expect("a number of kills"));
    let (mut kills, mut run) = (0, 0);
    while kills < wanted {
        for (n, method) in some(&WRITE_METHODS, 1).into_iter().enumerate() {
            let carried_out = |more: usize| CarriedOut::ALL[(run + n + more) % 3];
            let steps = 8 + 4 * (run % 8) as u32;
            kills += kill_at_every_request(&disk, method, steps, carried_out(0), true);
            kills += kill_at_every_request(&disk, method, steps, carried_out(1), false);
        }
        run += 1;
    }
    println!("figures: {{\"kills\": {kills}}}");
    assert!(kills > if is_deep() { 300 } else { 30 }, "{kills}");
}
