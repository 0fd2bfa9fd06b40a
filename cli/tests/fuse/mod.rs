//! The real program on the real kernel, on a device that does what it is told: it fails, falls
//! short, fills up, dawdles, or the program is killed at its Nth request, for every N.
//!
//! Needs /dev/fuse and root; without them the tests say so and pass.

mod disk;
mod trouble;

use crate::support::{directory, expect_code, quench, run_with_input, text};
use disk::Disk;
use quenchdb::internals::base::depth::{is_deep, some};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use trouble::{CarriedOut, Kind, Trouble};

/// Who writes, and how it becomes durable: threads with DSYNC, io_uring with DSYNC, io_uring with
/// linked flushes.
const WAYS: [&[&str]; 4] = [
    &["--preset", "auto", "--no-io-uring"],
    &["--preset", "auto"],
    &["--preset", "autonomous", "--method", "worker-dsync"],
    &["--preset", "autonomous", "--method", "worker-flush"],
];
/// A life that takes longer hangs.
const LIFE_MAX: Duration = Duration::from_secs(60);
const SIGKILL: i32 = 9;

/// A database on the disk, with all that its children have said to be durable.
struct Patient<'a> {
    database: PathBuf,
    way: &'a [&'a str],
    round: u32,
    acknowledged: String,
}

impl<'a> Patient<'a> {
    fn new(disk: &Disk, way: &'a [&'a str]) -> Patient<'a> {
        let database = disk.path().join("db");
        if database.exists() {
            std::fs::remove_dir_all(&database).expect("the disk is well between patients");
        }
        Patient { database, way, round: 0, acknowledged: String::new() }
    }

    /// A child opens the database, makes some commits and a checkpoint, and closes it, if nothing
    /// is in its way.
    fn live(&mut self, steps: u32) -> Output {
        self.round += 1;
        let mut child = quench(&["torture-child", text(&self.database), "--threads", "2", "--seed", "1"]);
        child.args(self.way).args(["--round", &self.round.to_string(), "--steps", &steps.to_string()]);
        let output = to_its_end(child);
        // A last line without its end was not said to anybody.
        let said = String::from_utf8_lossy(&output.stdout);
        self.acknowledged.push_str(&said[..said.rfind('\n').map_or(0, |end| end + 1)]);
        output
    }

    /// Lives with a trouble, which may end the life with one complaint; what was acknowledged is
    /// there after it, and after a life without. How often the trouble came, and whether it ended
    /// the life.
    #[track_caller]
    fn suffer(&mut self, disk: &Disk, trouble: Trouble, complaint: &str) -> (u64, bool) {
        disk.order(trouble);
        let output = self.live(20);
        let fired = disk.heal();
        let ended = output.status.code() != Some(0);
        if ended {
            expect_complaint(&output, complaint, &format!("{trouble:?}"));
        }
        self.judge(&format!("{trouble:?}"));
        expect_code(&self.live(5), 0);
        self.judge(&format!("{trouble:?}, and a life after it"));
        (fired, ended)
    }

    /// What was acknowledged is there, the database is in order, twice.
    #[track_caller]
    fn judge(&self, after: &str) {
        let check = [&["torture-check", text(&self.database)], self.way].concat();
        let output = run_with_input(&check, self.acknowledged.as_bytes());
        assert_eq!(output.status.code(), Some(0), "{after}, {:?}: {output:?}", self.way);
    }
}

/// Runs a program, but not for ever.
fn to_its_end(mut program: std::process::Command) -> Output {
    let child = program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let pid = rustix::process::Pid::from_child(&child);
    let (ended, end) = mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        let hangs = end.recv_timeout(LIFE_MAX) == Err(mpsc::RecvTimeoutError::Timeout);
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

/// A program that was told of an error says so in one line.
#[track_caller]
fn expect_complaint(output: &Output, about: &str, after: &str) {
    expect_code(output, 2);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains(about), "{after}: {stderr}");
}

#[test]
fn failed_requests_are_reported_once_and_lose_nothing() {
    let dir = directory();
    let Some(disk) = Disk::mount(dir.path(), true) else { return };
    for (kind, is_told) in [
        (Kind::Read, true),
        (Kind::Write, true),
        (Kind::Flush, true),
        (Kind::Create, true),
        // All that is removed while a database is made is the file of a probe.
        (Kind::Remove, false),
        (Kind::Length, false),
        (Kind::Reserve, true),
    ] {
        let (mut fired, mut told) = (0, 0);
        for (n, way) in (0..).zip(WAYS) {
            // On a database that is there, and while one is made.
            for (nth, for_ever, is_new) in
                [(2 + 4 * n, n % 2 == 0, false), (1 + n, true, true), (3 + 5 * n, n % 2 == 1, true)]
            {
                let trouble = Trouble::Fail { kind, nth, for_ever };
                let mut patient = Patient::new(&disk, way);
                if !is_new {
                    expect_code(&patient.live(5), 0);
                }
                let (times, tells) = patient.suffer(&disk, trouble, "Input/output error");
                (fired, told) = (fired + times, told + u64::from(tells));
            }
        }
        println!("figures: {{\"failed {kind:?}\": {fired}, \"lives ended by failed {kind:?}\": {told}}}");
        assert!(fired > 0 && (told > 0 || !is_told), "{kind:?}: {fired} failed, {told} lives ended");
    }
}

/// What keeps the promises of a device is not an error.
///
/// Short writes by io_uring only without `O_DIRECT`: with it Linux 6.18 itself writes what is left
/// of a short write to a FUSE file at the place where the first part is, and says that all is well.
#[test]
fn short_transfers_and_slow_replies_are_no_trouble() {
    let short = |kind, every| Trouble::Short { kind, every };
    let slow = Trouble::Slow { every: 5, by: Duration::from_millis(20) };
    let without_io_uring = &WAYS[..1];
    for (direct, ways, troubles) in [
        (true, &WAYS[..], [slow, short(Kind::Read, 1)]),
        (true, without_io_uring, [short(Kind::Write, 1), short(Kind::Write, 3)]),
        (false, &WAYS[..], [short(Kind::Write, 1), short(Kind::Write, 3)]),
    ] {
        let dir = directory();
        let Some(disk) = Disk::mount(dir.path(), direct) else { return };
        for trouble in troubles {
            let mut fired = 0;
            for way in ways {
                let mut patient = Patient::new(&disk, way);
                expect_code(&patient.live(10), 0);
                disk.order(trouble);
                let output = patient.live(20);
                fired += disk.heal();
                expect_code(&output, 0);
                patient.judge(&format!("{trouble:?}"));
            }
            println!("figures: {{\"{trouble:?}\": {fired}}}");
            assert!(fired > 0, "{trouble:?} never came");
        }
    }
}

#[test]
fn a_disk_full_from_any_byte_is_one_error_and_loses_nothing() {
    let dir = directory();
    let Some(disk) = Disk::mount(dir.path(), true) else { return };
    let (mut fired, mut told) = (0, 0);
    for way in WAYS {
        for kilobytes in [0, 300, 2100, 3000, 5000] {
            let trouble = Trouble::Full { bytes: kilobytes << 10 };
            let mut patient = Patient::new(&disk, way);
            let (times, tells) = patient.suffer(&disk, trouble, "free space");
            (fired, told) = (fired + times, told + u64::from(tells));
        }
    }
    println!("figures: {{\"no space\": {fired}, \"lives ended by no space\": {told}}}");
    assert!(fired > 0 && told > 0, "{fired}, {told}");
}

/// Kills a life at its first request that changes something, the next life at its second, and so
/// on, until one is over before. With `afresh` each of them creates its database, otherwise each
/// goes on with what the one before has left. Returns the number of kills.
fn kill_at_every_request(
    disk: &Disk,
    way: &[&str],
    steps: u32,
    carried_out: CarriedOut,
    afresh: bool,
) -> u64 {
    let mut patient = Patient::new(disk, way);
    for nth in 1.. {
        if afresh {
            patient = Patient::new(disk, way);
        }
        disk.order(Trouble::Kill { nth, carried_out });
        let output = patient.live(steps);
        let is_killed = disk.heal() > 0;
        let what = format!("killed at request {nth} ({carried_out:?} of it carried out), afresh: {afresh}");
        patient.judge(&what);
        if !is_killed {
            expect_code(&output, 0);
            return nth - 1;
        }
        assert_eq!(output.status.signal(), Some(SIGKILL), "{what}: {output:?}");
    }
    unreachable!("a life has an end")
}

/// Every way, afresh and not, and again with other numbers of steps as long as `QUENCH_KILLS` asks
/// for more.
#[test]
fn killed_at_every_nth_request_it_loses_nothing() {
    let dir = directory();
    let Some(disk) = Disk::mount(dir.path(), true) else { return };
    let wanted = std::env::var("QUENCH_KILLS").map_or(1, |text| text.parse().expect("a number of kills"));
    let (mut kills, mut run) = (0, 0);
    while kills < wanted {
        for (n, way) in some(&WAYS, 1).into_iter().enumerate() {
            let carried_out = |more: usize| CarriedOut::ALL[(run + n + more) % 3];
            let steps = 8 + 4 * (run % 8) as u32;
            kills += kill_at_every_request(&disk, way, steps, carried_out(0), true);
            kills += kill_at_every_request(&disk, way, steps, carried_out(1), false);
        }
        run += 1;
    }
    println!("figures: {{\"kills\": {kills}}}");
    assert!(kills > if is_deep() { 300 } else { 30 }, "{kills}");
}
