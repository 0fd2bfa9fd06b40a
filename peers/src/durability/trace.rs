//! `strace`: counts of syncs between two commands, and errors injected into syncs.

use super::child::{Answer, Process};
use super::{Mode, Subject};
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Puts over which syncs are counted, after one that is not.
pub(super) const WRITES: u32 = 20;

const SYNCS: [&str; 4] = ["fsync", "fdatasync", "msync", "sync_file_range"];
const WRITE_CALLS: [&str; 5] = ["write", "writev", "pwrite64", "pwritev", "pwritev2"];

/// The kinds of calls that bring bytes to the device, by name in the table.
pub(super) type Syncs = BTreeMap<String, u32>;

/// # Errors
/// There is no strace.
pub(super) fn check() -> Result<()> {
    let found = Command::new("strace").arg("-V").stdout(Stdio::null()).status();
    match found {
        Ok(status) if status.success() => Ok(()),
        _ => bail!("strace is needed (Debian: apt-get install strace)"),
    }
}

/// Returns the syncs of [`WRITES`] puts of one row each, after a first put.
pub(super) fn count(subject: &Subject, mode: Mode, directory: &Path, trace: &Path) -> Result<Syncs> {
    let calls =
        SYNCS.iter().chain(&WRITE_CALLS).chain(&["openat", "read"]).copied().collect::<Vec<_>>().join(",");
    let file = trace.display().to_string();
    let flags =
        ["strace", "-f", "-qq", "-s", "8", "-e", "signal=none", "-e", &format!("trace={calls}"), "-o", &file]
            .map(String::from);
    let mut process = Process::start(subject, mode, directory, &flags)?;
    process.must("open")?;
    process.must("put first 1")?;
    for number in 0..WRITES {
        process.must(&format!("put row{number} 1"))?;
    }
    let ended = process.ask("close");
    drop(process);
    if ended != Answer::Done {
        eprintln!("  {}: close was answered with {ended:?}", subject.name);
    }
    let text = std::fs::read_to_string(trace).with_context(|| format!("no trace in {}", trace.display()))?;
    Ok(syncs_between(&text, 2, WRITES))
}

/// Counts syncs from command number `skipped` (0 is the first) over `commands` of them. A command
/// begins with a successful read of standard input.
fn syncs_between(text: &str, skipped: u32, commands: u32) -> Syncs {
    let (mut begun, mut syncs) = (0, Syncs::new());
    let mut durable: HashSet<String> = HashSet::new();
    let mut opening: HashMap<&str, bool> = HashMap::new();
    for line in text.lines() {
        let Some((pid, call)) = line.split_once(char::is_whitespace) else { continue };
        let call = call.trim_start();
        let result = call.rsplit_once(" = ").map_or("", |(_, result)| result.split(' ').next().unwrap_or(""));
        if let Some(rest) = call.strip_prefix("<... openat resumed>") {
            let is_durable = opening.remove(pid).unwrap_or(false) || is_sync_open(rest);
            note_descriptor(&mut durable, result, is_durable);
            continue;
        }
        let reads_command = call.strip_prefix("<... read resumed>").is_some() || call.starts_with("read(0,");
        if reads_command && result.parse::<i64>().is_ok_and(|read| read > 0) && is_standard_input(call) {
            begun += 1;
        }
        let Some((name, arguments)) = call.split_once('(') else { continue };
        if name == "openat" {
            match call.contains("<unfinished") {
                true => drop(opening.insert(pid, is_sync_open(arguments))),
                false => note_descriptor(&mut durable, result, is_sync_open(arguments)),
            }
        }
        if begun > skipped && begun <= skipped + commands {
            if let Some(kind) = kind_of(name, arguments, &durable) {
                *syncs.entry(kind.into()).or_default() += 1;
            }
        }
    }
    syncs
}

/// The resumed half of a read does not name its descriptor. Commands are read by the thread that
/// reads nothing else, so a resumed read of few bytes that begins like a command is one.
fn is_standard_input(call: &str) -> bool {
    ["\"open", "\"put", "\"get", "\"close", "\"again"].iter().any(|command| call.contains(command))
}

fn is_sync_open(arguments: &str) -> bool {
    arguments.contains("O_DSYNC") || arguments.contains("O_SYNC")
}

fn note_descriptor(durable: &mut HashSet<String>, descriptor: &str, is_durable: bool) {
    match is_durable {
        true => drop(durable.insert(descriptor.into())),
        false => drop(durable.remove(descriptor)),
    }
}

/// Returns the table's name of a call that reaches the device.
fn kind_of(name: &str, arguments: &str, durable: &HashSet<String>) -> Option<&'static str> {
    let descriptor = arguments.split([',', ')', ' ']).next().unwrap_or("");
    match name {
        "fsync" => Some("fsync"),
        "fdatasync" => Some("fdatasync"),
        "msync" if arguments.contains("MS_SYNC") => Some("msync"),
        "sync_file_range" => Some("sync_file_range"),
        _ if !WRITE_CALLS.contains(&name) => None,
        _ if arguments.contains("RWF_DSYNC") || arguments.contains("RWF_SYNC") => Some("RWF_DSYNC write"),
        _ if durable.contains(descriptor) => Some("O_DSYNC write"),
        _ => None,
    }
}

/// Makes calls of a running process fail until dropped.
pub(super) struct Injection(Child);

impl Injection {
    /// Lets every sync of the process fail with EIO; `syncs` says which kinds [`WRITES`] puts use.
    /// If no put makes a call that only syncs, writes fail, because they are the syncs.
    pub(super) fn start(process: u32, syncs: &Syncs) -> Result<Injection> {
        let has_calls = syncs.iter().any(|(kind, count)| SYNCS.contains(&kind.as_str()) && *count >= WRITES);
        let failing = match has_calls {
            true => SYNCS.join(","),
            false => WRITE_CALLS[2..].join(","),
        };
        let child = Command::new("strace")
            .args(["-f", "-qq", "-p", &process.to_string(), "-e", "signal=none", "-o", "/dev/null"])
            .args(["-e", &format!("trace={failing}"), "-e", &format!("inject={failing}:error=EIO")])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start strace")?;
        let injection = Injection(child);
        for _ in 0..200 {
            if is_traced(process) {
                // Other threads of the process are attached one by one.
                std::thread::sleep(Duration::from_millis(100));
                return Ok(injection);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("strace cannot attach to process {process} (it needs root, or ptrace_scope 0)")
    }
}

impl Drop for Injection {
    /// Detaches.
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-INT", &self.0.id().to_string()]).status();
        let _ = self.0.wait();
    }
}

fn is_traced(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|tracer| tracer.trim() != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
10 openat(AT_FDCWD, \"a\"..., O_RDWR|O_CREAT|O_DSYNC, 0644) = 5
10 openat(AT_FDCWD, \"b\"..., O_RDWR|O_CREAT, 0644) = 6
10 read(0, \"open\\n\", 8192) = 5
10 fdatasync(6) = 0
10 write(1, \"ok\\n\", 3) = 3
10 read(0, \"put fir\"..., 8192) = 12
10 pwrite64(5, \"\\0\"..., 4096, 0) = 4096
10 read(0, <unfinished ...>
11 fsync(6 <unfinished ...>
10 <... read resumed>\"put row\"..., 8192) = 11
11 <... fsync resumed>) = 0
10 pwrite64(5, \"\\0\"..., 4096, 0) = 4096
10 pwrite64(6, \"\\0\"..., 4096, 0) = 4096
10 msync(0x7f, 4096, MS_ASYNC) = 0
10 pwritev2(6, [{iov_base=\"\\0\"..., iov_len=4096}], 1, 0, RWF_DSYNC) = 4096
10 fdatasync(6) = 0
10 read(0, \"close\\n\", 8192) = 6
10 fsync(6) = 0
10 read(0, \"\", 8192) = 0
";

    #[test]
    fn syncs_of_the_chosen_commands_are_counted_by_kind() {
        let counted = syncs_between(TEXT, 2, 1);
        let expected = [("O_DSYNC write", 1), ("RWF_DSYNC write", 1), ("fdatasync", 1)];
        assert_eq!(counted, expected.map(|(kind, count)| (kind.into(), count)).into());
        assert_eq!(syncs_between(TEXT, 1, 1), [("O_DSYNC write".into(), 1), ("fsync".into(), 1)].into());
        assert_eq!(syncs_between(TEXT, 4, 1), Syncs::new());
    }
}
