//! Faults at the Nth system call of a kind, by `strace`: strace kills the child there, or makes the
//! call fail.
//!
//! Rounds use all kinds of calls with N = 1, then with N = 2, and so on. strace counts the calls of
//! each thread separately, so the first thread with N calls is hit. Only calls on files of the
//! database count, so that the dynamic linker is not hit; of `io_uring_enter`, which has no file,
//! all count: only the engine makes them. If no thread reaches N calls in a round, N starts at 1
//! again: each round begins with a recovery, whose calls matter most.
//!
//! The record of strace shows which call was hit.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The fault at the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Trouble {
    /// SIGKILL before the call.
    Kill,
    /// The call fails with EIO.
    Eio,
    /// The call and all later calls of its kind fail with EIO.
    EioForEver,
    /// The call fails with ENOSPC.
    Enospc,
    /// The call and all later calls of its kind fail with ENOSPC.
    EnospcForEver,
    /// The call fails with EINTR.
    Eintr,
    /// The call fails with EAGAIN.
    Eagain,
}

/// Calls that change files or make them durable. `rename` is not among them: nothing is renamed.
const CALLS: [&str; 9] = [
    "io_uring_enter",
    "pwritev2",
    "fdatasync",
    "fsync",
    "ftruncate",
    "fallocate",
    "openat",
    "flock",
    "pread64",
];

/// Returns whether `call` can fail like this. EINTR and EAGAIN fit calls that may be interrupted or
/// refused temporarily.
fn fits(trouble: Trouble, call: &str) -> bool {
    match trouble {
        Trouble::Kill => true,
        Trouble::Eio | Trouble::EioForEver => !matches!(call, "flock" | "io_uring_enter"),
        Trouble::Enospc | Trouble::EnospcForEver => matches!(call, "pwritev2" | "fallocate" | "ftruncate"),
        Trouble::Eintr => {
            matches!(call, "io_uring_enter" | "pwritev2" | "fdatasync")
        }
        Trouble::Eagain => matches!(call, "io_uring_enter" | "pwritev2"),
    }
}

/// Returns an error if no strace on this machine can inject faults.
pub fn available() -> Result<()> {
    let mut tried = Command::new("strace");
    tried.args([
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=openat",
        "-e",
        "inject=openat:signal=SIGKILL:when=1",
    ]);
    let done = tried.arg("true").stdin(Stdio::null()).output().context("cannot start strace")?;
    anyhow::ensure!(
        done.status.signal() == Some(9),
        "this strace cannot inject a kill (ended with {}); install strace 5 or newer",
        done.status
    );
    Ok(())
}

/// A kind of call, with or without io_uring.
#[derive(Clone, Copy, Debug)]
struct Kind {
    call: &'static str,
    io_uring: bool,
    /// The next N.
    nth: u32,
    /// The largest N that was hit.
    most: u32,
    /// Number of rounds in which such a call was hit.
    struck: u64,
}

/// The kinds of calls, and the next one.
#[derive(Debug)]
pub struct Calls {
    trouble: Trouble,
    kinds: Vec<Kind>,
    at: usize,
    /// Number of rounds whose call was hit.
    pub hits: u64,
    /// Kinds that no thread calls on this machine.
    left_out: Vec<Kind>,
}

impl Calls {
    /// Creates the list with io_uring; with `alternates` also without.
    pub fn new(trouble: Trouble, alternates: bool) -> Calls {
        let ways = if alternates { &[true, false][..] } else { &[true] };
        let kinds = |call: &'static str| {
            ways.iter().map(move |io_uring| Kind { call, io_uring: *io_uring, nth: 1, most: 0, struck: 0 })
        };
        let kinds = CALLS.into_iter().filter(|call| fits(trouble, call)).flat_map(kinds).collect();
        Calls { trouble, kinds, at: 0, hits: 0, left_out: Vec::new() }
    }

    /// Returns whether the child of this round uses io_uring.
    pub fn io_uring(&self) -> bool {
        self.kinds[self.at].io_uring
    }

    /// Returns true if no call of the next kind was hit so far.
    pub fn is_first(&self) -> bool {
        self.kinds[self.at].most == 0
    }

    /// Returns each kind with the highest N that was hit.
    pub fn summary(&self) -> Vec<(String, u32)> {
        let name = |kind: &Kind| {
            let way = if kind.io_uring { "with" } else { "without" };
            (format!("{}, {way} io_uring", kind.call), kind.most)
        };
        self.kinds.iter().chain(&self.left_out).map(name).collect()
    }

    /// Returns the number of rounds in which each kind of call was hit. Omits kinds that no thread
    /// calls.
    pub fn struck(&self) -> BTreeMap<&'static str, u64> {
        let mut struck = BTreeMap::new();
        for kind in self.kinds.iter().chain(&self.left_out).filter(|kind| kind.struck > 0) {
            *struck.entry(kind.call).or_default() += kind.struck;
        }
        struck
    }

    /// Returns the command that runs `program` under strace with the fault of this round, at calls
    /// on files of `database`. The caller adds arguments.
    pub fn command(&self, program: &OsStr, directory: &Path, database: &Path) -> Command {
        let Kind { call, nth, .. } = self.kinds[self.at];
        let what = match self.trouble {
            Trouble::Kill => format!("signal=SIGKILL:when={nth}"),
            Trouble::Eio => format!("error=EIO:when={nth}"),
            Trouble::EioForEver => format!("error=EIO:when={nth}+"),
            Trouble::Enospc => format!("error=ENOSPC:when={nth}"),
            Trouble::EnospcForEver => format!("error=ENOSPC:when={nth}+"),
            Trouble::Eintr => format!("error=EINTR:when={nth}"),
            Trouble::Eagain => format!("error=EAGAIN:when={nth}"),
        };
        let mut command = Command::new("strace");
        // Without `--seccomp-bpf`, which is faster, but injects nothing.
        command.args(["-f", "-qq", "-s", "0", "-o"]).arg(record_of(directory));
        if call != "io_uring_enter" {
            for path in paths_of(database) {
                command.arg("-P").arg(path);
            }
        }
        command.args(["-e", &format!("trace={call}"), "-e", &format!("inject={call}:{what}")]);
        command.arg(program);
        command
    }

    /// Returns the fault and the call of this round, in words.
    pub fn describe(&self) -> String {
        let Kind { call, nth, .. } = self.kinds[self.at];
        format!("{:?} at {call} number {nth}", self.trouble)
    }

    /// Returns whether the call of this round was hit. `killed`: SIGKILL ended the child before the
    /// parent sent it.
    pub fn was_hit(&self, killed: bool, directory: &Path) -> bool {
        match self.trouble {
            Trouble::Kill => killed,
            _ => std::fs::read_to_string(record_of(directory)).is_ok_and(|text| text.contains("(INJECTED)")),
        }
    }

    /// Ends the round and chooses the next call.
    pub fn advance(&mut self, hit: bool) {
        let several = self.kinds.len() > 1;
        let kind = &mut self.kinds[self.at];
        self.hits += u64::from(hit);
        if hit {
            kind.most = kind.most.max(kind.nth);
            kind.struck += 1;
            kind.nth += 1;
            self.at += 1;
        } else if kind.most == 0 && several {
            // No thread makes this call on this machine.
            self.left_out.push(self.kinds.remove(self.at));
        } else {
            kind.nth = 1;
            self.at += 1;
        }
        self.at %= self.kinds.len();
    }
}

/// Kills the process that `strace` traces. A kill of strace alone would leave it running.
pub fn kill_traced(strace: u32) {
    let children =
        std::fs::read_to_string(format!("/proc/{strace}/task/{strace}/children")).unwrap_or_default();
    let pids = children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .filter_map(rustix::process::Pid::from_raw);
    for pid in pids {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// Returns all paths of the database that a child may open. strace knows no prefixes.
fn paths_of(database: &Path) -> Vec<PathBuf> {
    const FILES: [&str; 7] =
        ["LOCK", "MANIFEST", "pages", "pages/data", "log", "readers", ".quench-direct-probe"];
    // A new database replaces the old one long before it has more segments.
    let segments = (1..=SEGMENTS).map(|n| database.join(format!("log/{n:08}.seg")));
    std::iter::once(database.to_path_buf())
        .chain(FILES.iter().map(|name| database.join(name)))
        .chain(segments)
        .collect()
}

const SEGMENTS: u32 = 48;

/// Returns the path of the record of strace.
fn record_of(directory: &Path) -> PathBuf {
    directory.join("torture-calls")
}

/// Returns the path of the standard error of the child.
pub fn errors_of(directory: &Path) -> PathBuf {
    directory.join("torture-stderr")
}
