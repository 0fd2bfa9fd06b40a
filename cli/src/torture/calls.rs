//! Trouble at the Nth system call of a kind, by `strace`: the child is killed there, or the call fails.
//!
//! Rounds go through all kinds of calls for N = 1, then for N = 2, and so on. strace counts the calls of each thread for itself, so N is
//! the Nth of the first thread that gets there. Only calls on files of the database are counted, so that nothing strikes the dynamic linker; of
//! `io_uring_enter`, which has no file, all: only the engine makes them. A kind that no thread calls so often before the round ends begins with 1
//! again: each round begins with a recovery, whose calls are those that matter most.
//!
//! What was really struck is told by strace's record of the calls.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What happens at the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Trouble {
    /// SIGKILL before it is carried out.
    Kill,
    /// It fails with EIO.
    Eio,
    /// It, and all of its kind after it, fail with EIO.
    EioForEver,
    /// It fails with ENOSPC.
    Enospc,
    /// It, and all of its kind after it, fail with ENOSPC.
    EnospcForEver,
    /// It fails with EINTR.
    Eintr,
    /// It fails with EAGAIN.
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

/// Errors that each of them can have. EINTR and EAGAIN are for those that may be interrupted or refused for a moment.
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

/// Whether there is a strace that can do that, and why not.
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
    anyhow::ensure!(done.status.signal() == Some(9), "strace kills nobody here: {}", done.status);
    Ok(())
}

/// A kind of call, as it is made with io_uring or without.
#[derive(Clone, Copy, Debug)]
struct Kind {
    call: &'static str,
    io_uring: bool,
    /// Which one is next.
    nth: u32,
    /// The largest that was met.
    most: u32,
    /// Rounds in which such a call was struck.
    struck: u64,
}

/// Which call comes next.
#[derive(Debug)]
pub struct Calls {
    trouble: Trouble,
    kinds: Vec<Kind>,
    at: usize,
    /// Rounds that met their call.
    pub met: u64,
    /// What is known of kinds that are never called, or were.
    left_out: Vec<Kind>,
}

impl Calls {
    /// With io_uring, and if it alternates without it, too.
    pub fn new(trouble: Trouble, alternates: bool) -> Calls {
        let ways = if alternates { &[true, false][..] } else { &[true] };
        let kinds = |call: &'static str| {
            ways.iter().map(move |io_uring| Kind { call, io_uring: *io_uring, nth: 1, most: 0, struck: 0 })
        };
        let kinds = CALLS.into_iter().filter(|call| fits(trouble, call)).flat_map(kinds).collect();
        Calls { trouble, kinds, at: 0, met: 0, left_out: Vec::new() }
    }

    /// Whether this round's child uses io_uring.
    pub fn io_uring(&self) -> bool {
        self.kinds[self.at].io_uring
    }

    /// Whether nobody is known to make the next call.
    pub fn is_first(&self) -> bool {
        self.kinds[self.at].most == 0
    }

    /// Each kind with the highest N that was met.
    pub fn summary(&self) -> Vec<(String, u32)> {
        let name = |kind: &Kind| {
            let way = if kind.io_uring { "with" } else { "without" };
            (format!("{}, {way} io_uring", kind.call), kind.most)
        };
        self.kinds.iter().chain(&self.left_out).map(name).collect()
    }

    /// In how many rounds each kind of call was struck; kinds that nobody makes are left out.
    pub fn struck(&self) -> BTreeMap<&'static str, u64> {
        let mut struck = BTreeMap::new();
        for kind in self.kinds.iter().chain(&self.left_out).filter(|kind| kind.struck > 0) {
            *struck.entry(kind.call).or_default() += kind.struck;
        }
        struck
    }

    /// A program under strace with the trouble of this round, at calls on files of `database`; its arguments follow.
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
        // Not with `--seccomp-bpf`, which would be faster: then nothing is injected.
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

    /// What the round is about, in words.
    pub fn describe(&self) -> String {
        let Kind { call, nth, .. } = self.kinds[self.at];
        format!("{:?} at {call} number {nth}", self.trouble)
    }

    /// Whether the round's call was struck: `killed` says whether the child was ended by SIGKILL before the parent did it.
    pub fn was_struck(&self, killed: bool, directory: &Path) -> bool {
        match self.trouble {
            Trouble::Kill => killed,
            _ => std::fs::read_to_string(record_of(directory)).is_ok_and(|text| text.contains("(INJECTED)")),
        }
    }

    /// The round is over.
    pub fn advance(&mut self, met: bool) {
        let several = self.kinds.len() > 1;
        let kind = &mut self.kinds[self.at];
        self.met += u64::from(met);
        if met {
            kind.most = kind.most.max(kind.nth);
            kind.struck += 1;
            kind.nth += 1;
            self.at += 1;
        } else if kind.most == 0 && several {
            // Nobody makes this call here.
            self.left_out.push(self.kinds.remove(self.at));
        } else {
            kind.nth = 1;
            self.at += 1;
        }
        self.at %= self.kinds.len();
    }
}

/// Ends what a strace of ours has started: ending strace alone would let it go on.
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

/// Everything that a child opens of its database. strace knows no prefixes.
fn paths_of(database: &Path) -> Vec<PathBuf> {
    const FILES: [&str; 8] = [
        "LOCK",
        "MANIFEST",
        "pages",
        "pages/data",
        "log",
        "readers",
        ".quench-direct-probe",
        "quench-probe.tmp",
    ];
    // A directory is left for a new one long before there are more.
    let segments = (1..=SEGMENTS).map(|n| database.join(format!("log/{n:08}.seg")));
    std::iter::once(database.to_path_buf())
        .chain(FILES.iter().map(|name| database.join(name)))
        .chain(segments)
        .collect()
}

const SEGMENTS: u32 = 48;

/// strace's record of the calls that it looked at.
fn record_of(directory: &Path) -> PathBuf {
    directory.join("torture-calls")
}

/// The child's standard error, for a look at how it ended.
pub fn errors_of(directory: &Path) -> PathBuf {
    directory.join("torture-stderr")
}
