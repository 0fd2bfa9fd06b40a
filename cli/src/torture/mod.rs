//! `torture`: the parent kills a working child at a random moment and checks every acknowledgment;
//! again and again.

mod calls;
pub mod child;
pub mod check;
mod rivals;

use crate::commands::{inside, is_url, refuse_database};
use crate::errors::one_line;
use crate::output::{Outcome, Progress, print_json, print_text};
use crate::parse::{parse_preset, positive_seconds};
use anyhow::{Context, Result, bail};
use calls::{Calls, Trouble};
use check::{Acknowledged, Findings};
use child::{ChildArgs, Way};
use quenchdb::Preset;
use quenchdb::internals::base::random::Random;
use serde_json::json;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// `quench torture`
#[derive(clap::Args)]
#[command(after_help = "Example:\n  quench torture /tmp/t --seconds 60 --preset autonomous --seed 7\n\n\
                        Works in DIR/torture-db, which it removes at the start and keeps at the end. DIR may be the URL\n\
                        of a store of objects; then each new database gets a prefix of its own, and nothing is removed.")]
pub struct TortureArgs {
    /// Directory to work in; created if it is missing. Or a URL such as s3://bucket/prefix
    directory: PathBuf,
    /// Duration from the first acknowledgment on. A slow store gets two minutes more until there is
    /// one, and with --rivals, until one has taken over from another
    #[arg(long, default_value_t = 10.0, value_parser = positive_seconds)]
    seconds: f64,
    /// Threads of the child
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Commit protocol: per-transaction, group, queued, pipelined, autonomous, restricted, passive,
    /// auto
    #[arg(long, default_value = "auto", value_parser = parse_preset)]
    preset: Preset,
    /// With --preset passive: the file of the memory-mapped log, removed at the start; default:
    /// DIR/torture-log-memory
    #[arg(long, value_name = "FILE")]
    log_memory: Option<PathBuf>,
    /// Seed of the random choices (the moments of the kills still depend on the machine)
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Inject a fault at the Nth system call of each kind that changes files, for N = 1, 2, ...,
    /// instead of random kills; needs strace
    #[arg(long, value_name = "TROUBLE")]
    at_calls: Option<Trouble>,
    /// Longest time in milliseconds that a child works
    #[arg(long, value_name = "MS", default_value_t = 1500, value_parser = clap::value_parser!(u64).range(50..=600_000))]
    life: u64,
    /// Number of rounds; default: until the time is over
    #[arg(long)]
    rounds: Option<u64>,
    /// Write without io_uring in every second round
    #[arg(long)]
    alternate_io: bool,
    /// With a URL: so many writers take over from each other, and each checks all that was
    /// acknowledged before it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=64))]
    rivals: Option<u32>,
}

/// Longest round of rivals. After it the database is checked by itself, and may be replaced.
const RIVALS_ROUND: Duration = Duration::from_secs(10);

/// A new database replaces one with more rows than this, so that checks stay short.
const ROWS_MAX: u64 = 200_000;
/// The same with --at-calls, whose rounds are short.
const ROWS_MAX_AT_CALLS: u64 = 3_000;
/// Time until a child has to work. Long, because strace, a busy machine and the races of a first
/// open in a store of objects slow it down.
const UNTIL_WORK: Duration = Duration::from_secs(120);
/// The time that a run may add while it has shown nothing.
const UNTIL_SHOWN: Duration = Duration::from_secs(120);
/// Time until a child has to reach its call. If it does not reach the first call of a kind, the
/// kind is left out.
const UNTIL_CALL: Duration = Duration::from_millis(400);
const UNTIL_FIRST_CALL: Duration = Duration::from_millis(1500);
const SIGKILL: i32 = 9;
/// Most problems that are printed.
const SHOWN_MAX: usize = 20;

struct Torture<'a> {
    args: &'a TortureArgs,
    database: PathBuf,
    memory: Option<PathBuf>,
    random: Random,
    acknowledged: Acknowledged,
    round: u32,
    rounds: u64,
    kills: u64,
    /// When the first child worked.
    works_since: Option<Instant>,
    /// Set with --at-calls.
    calls: Option<Calls>,
    /// Number of children that reported the injected error.
    complaints: u64,
    acknowledged_before: u64,
    /// Takeovers of rivals.
    takeovers: u64,
    lost: u64,
    violations: Vec<String>,
}

fn remove(directory: &Path) -> Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", directory.display()))
        }
        _ => Ok(()),
    }
}

/// Names in the directory of a database.
const OWN_NAMES: [&str; 7] =
    ["LOCK", "MANIFEST", "monitor.sock", "log", "pages", "readers", ".quench-direct-probe"];

/// Returns whether a directory holds nothing but a database, or what an interrupted creation left.
fn is_database(directory: &Path) -> bool {
    let manifest = directory.join("MANIFEST");
    let is_own = |entry: std::fs::DirEntry| OWN_NAMES.iter().any(|name| entry.file_name() == *name);
    std::fs::read_dir(directory).is_ok_and(|entries| entries.flatten().all(is_own))
        && (!manifest.exists() || begins_with(&manifest, b"QUENCHDB"))
}

/// Returns whether a file begins with `magic`, or with zeros, or is empty.
fn begins_with(path: &Path, magic: &[u8; 8]) -> bool {
    let mut start = [0; 8];
    let read = std::fs::File::open(path).and_then(|mut file| file.read(&mut start));
    read.is_ok_and(|_| start == *magic || start == [0; 8])
}

/// Waits until `delay` after the start of a child, or, if it is `killed_at_work`, after its first
/// acknowledgment. Returns earlier if the child ends by itself. Returns that end, and whether the
/// acknowledgment is still missing.
fn wait_for_the_moment(
    child: &mut Child,
    works: &OnceLock<Instant>,
    killed_at_work: bool,
    delay: Duration,
) -> Result<(Option<ExitStatus>, bool)> {
    let began = Instant::now();
    let (mut since, mut begins, mut stopped) = (began, killed_at_work, None);
    while since.elapsed() < delay && stopped.is_none() {
        std::thread::sleep((delay - since.elapsed().min(delay)).min(Duration::from_millis(20)));
        stopped = child.try_wait()?;
        if begins {
            begins = works.get().is_none();
            since = if began.elapsed() < UNTIL_WORK { Instant::now() } else { began };
        }
    }
    Ok((stopped, begins))
}

impl Torture<'_> {
    fn io_uring(&self) -> bool {
        match &self.calls {
            Some(calls) => calls.io_uring(),
            None => !self.args.alternate_io || self.rounds.is_multiple_of(2),
        }
    }

    fn kill(&self, child: &mut Child, ended: bool) -> Result<()> {
        if self.calls.is_none() || ended {
            return Ok(child.kill()?);
        }
        // strace ends after the process it traces, which on a busy machine may not have started
        // yet.
        while child.try_wait()?.is_none() {
            calls::kill_traced(child.id());
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Starts a child, records its acknowledgments, and kills it `delay` after its start, or, if it
    /// is `killed_at_work`, after its first acknowledgment.
    fn work_and_kill(&mut self, killed_at_work: bool, delay: Duration) -> Result<()> {
        let program = std::env::current_exe()?;
        let mut command = match &self.calls {
            Some(calls) => calls.command(program.as_os_str(), &self.args.directory, &self.database),
            None => Command::new(program),
        };
        let stderr = calls::errors_of(&self.args.directory);
        if self.calls.is_some() {
            command.stderr(std::fs::File::create(&stderr)?);
        }
        let mut child = command
            .arg("torture-child")
            .arg(&self.database)
            .args(["--threads", &self.args.threads.to_string(), "--preset", self.args.preset.name()])
            .args(self.memory.iter().flat_map(|path| [OsStr::new("--log-memory"), path.as_os_str()]))
            .args(["--seed", &self.args.seed.to_string(), "--round", &self.round.to_string()])
            .args((!self.io_uring()).then_some("--no-io-uring"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the child")?;
        let pipe = child.stdout.take().context("the child has no standard output")?;
        // The reader reads the pipe to its end, which follows the kill: it misses no
        // acknowledgment.
        let mut acknowledged = std::mem::take(&mut self.acknowledged);
        let works = Arc::new(OnceLock::new());
        let started = Arc::clone(&works);
        let reader = std::thread::spawn(move || {
            let mut unknown = Vec::new();
            let mut lines = BufReader::with_capacity(1 << 16, pipe);
            let mut line = String::new();
            while lines.read_line(&mut line).is_ok_and(|read| read > 0) {
                // The kill cut a last line without newline: it is no acknowledgment.
                if let Some(whole) = line.strip_suffix('\n') {
                    started.get_or_init(Instant::now);
                    if !acknowledged.line(whole) {
                        unknown.push(whole.to_string());
                    }
                }
                line.clear();
            }
            (acknowledged, unknown)
        });
        let (stopped, begins) = wait_for_the_moment(&mut child, &works, killed_at_work, delay)?;
        self.kill(&mut child, stopped.is_some())?;
        child.wait()?;
        let (acknowledged, unknown) = reader.join().unwrap_or_default();
        self.acknowledged = acknowledged;
        self.works_since = self.works_since.or(works.get().copied());
        if self.calls.is_some() {
            self.judge_end(stopped, &std::fs::read_to_string(&stderr).unwrap_or_default());
        } else if let Some(status) = stopped {
            self.violations.push(format!("the child stopped by itself: {status}"));
        } else {
            self.kills += 1;
        }
        if begins && stopped.is_none() {
            self.violations.push(format!("the child did nothing in {UNTIL_WORK:?}"));
        }
        self.violations.extend(unknown.into_iter().map(|line| format!("the child wrote `{line}`")));
        Ok(())
    }

    /// Checks how a child with a fault ended: by the signal, with an error that it reported, or by
    /// the kill of the parent.
    fn judge_end(&mut self, stopped: Option<ExitStatus>, stderr: &str) {
        let Some(calls) = &mut self.calls else { return };
        let what = calls.describe();
        let killed = stopped.is_some_and(|status| status.signal() == Some(SIGKILL));
        let hit = calls.was_hit(killed, &self.args.directory);
        calls.advance(hit);
        if stopped.is_some() && !hit {
            self.violations.push(format!("{what}: the child ended, but no fault had hit it: {stderr}"));
        }
        match stopped.map(|status| (status.code(), status.signal())) {
            None | Some((_, Some(SIGKILL))) => self.kills += 1,
            Some((Some(2), None)) => self.complaints += 1,
            Some(end) => self.violations.push(format!("{what}: the child ended with {end:?}: {stderr}")),
        }
        if stderr.contains("internal error") {
            self.violations.push(format!("{what}: {stderr}"));
        }
    }

    /// Recovers, checks, and recovers again.
    fn check(&self) -> Result<Findings> {
        let io_uring = self.io_uring();
        let way = Way { preset: self.args.preset, log_memory: self.memory.as_deref(), io_uring };
        check::check_twice(&self.database, way, &self.acknowledged)
    }

    /// Begins with an empty database.
    fn reset(&mut self) -> Result<()> {
        if is_url(&self.args.directory) {
            let number = Random::from_entropy().next_u64();
            self.database = inside(&self.args.directory, &format!("torture-{number:016x}"));
            return Ok(());
        }
        remove(&self.database)?;
        match self.memory.as_ref().map(std::fs::remove_file) {
            Some(Err(error)) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).context("cannot remove the memory-mapped log")
            }
            _ => Ok(()),
        }
    }

    /// Refuses to replace what is not of an earlier run.
    fn refuse_others(&self) -> Result<()> {
        if is_url(&self.args.directory) {
            return Ok(());
        }
        let database = Some(&self.database).filter(|path| path.exists() && !is_database(path));
        let memory = self.memory.as_ref().filter(|path| path.exists() && !begins_with(path, b"QUENCHLM"));
        match database.or(memory) {
            None => Ok(()),
            Some(path) => bail!("{} is not of an earlier run: move it away, or name another", path.display()),
        }
    }

    /// Lets rivals take over from each other, for at most `lasts`.
    fn let_rivals(&mut self, rivals: u32, lasts: Duration) -> Result<()> {
        let Torture { args, database, random, .. } = self;
        let work = ["--threads", &args.threads.to_string(), "--preset", args.preset.name()]
            .into_iter()
            .chain(["--seed", &args.seed.to_string()])
            .map(String::from)
            .collect::<Vec<_>>();
        let seed = random.next_u64();
        let plan = rivals::Plan { database, work: &work, rivals, lasts, life: args.life, seed };
        let report = rivals::run(plan, std::mem::take(&mut self.acknowledged), self.round)?;
        self.acknowledged = report.acknowledged;
        self.round = report.next % (u32::MAX / child::WRITERS_A_ROUND);
        self.takeovers += report.takeovers;
        self.kills += report.kills;
        self.lost += report.lost;
        self.violations.extend(report.violations);
        Ok(())
    }

    /// Runs a child, or rivals, and checks the database by itself.
    fn round(&mut self) -> Result<()> {
        match self.args.rivals {
            Some(rivals) => {
                let since = *self.works_since.get_or_insert_with(Instant::now);
                let left = self.duration().saturating_sub(since.elapsed());
                self.let_rivals(rivals, left.min(RIVALS_ROUND))?;
            }
            None => self.run_child()?,
        }
        match self.check() {
            Ok(findings) => {
                self.lost += findings.lost;
                self.violations.extend(findings.violations);
                let rows_max = if self.calls.is_some() { ROWS_MAX_AT_CALLS } else { ROWS_MAX };
                if findings.rows > rows_max && self.violations.is_empty() {
                    self.acknowledged_before += std::mem::take(&mut self.acknowledged).len();
                    self.reset()?;
                }
            }
            Err(error) => self.violations.push(one_line(&error)),
        }
        self.rounds += 1;
        self.round = (self.round + 1) % (u32::MAX / child::WRITERS_A_ROUND);
        Ok(())
    }

    /// Returns whether something was acknowledged, and with rivals, taken over: a run without has
    /// checked nothing.
    fn has_shown(&self) -> bool {
        let acknowledged = self.acknowledged_before + self.acknowledged.len();
        acknowledged > 0 && (self.args.rivals.is_none() || self.takeovers > 1)
    }

    fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.args.seconds)
    }

    /// Returns whether another round follows.
    fn continues(&self, began: Instant) -> bool {
        let time = self.duration();
        let is_time = self.works_since.is_some_and(|since| since.elapsed() < time);
        let has_more = !self.has_shown() && began.elapsed() < time + UNTIL_SHOWN;
        (is_time || has_more)
            && self.args.rounds.is_none_or(|rounds| self.rounds < rounds)
            && self.violations.is_empty()
    }

    /// Runs a child until a random moment.
    fn run_child(&mut self) -> Result<()> {
        let life = self.args.life;
        // Of eight kills two hit the start, and one any moment of the open and the recovery.
        let (killed_at_work, millis) = match self.random.below(8) {
            0 | 1 => (false, self.random.below(50)),
            2 => (false, self.random.below(life)),
            _ => (true, self.random.below(life)),
        };
        let (killed_at_work, delay) = match &self.calls {
            Some(calls) if calls.is_first() => (true, UNTIL_FIRST_CALL),
            Some(_) => (true, UNTIL_CALL),
            None => (killed_at_work, Duration::from_millis(millis)),
        };
        self.work_and_kill(killed_at_work, delay)
    }
}

/// Runs a child of `torture`.
pub fn run_child(args: &ChildArgs) -> Result<Outcome> {
    if args.check { rivals::run_rival(args) } else { child::run(args) }
}

/// Runs `torture`. Stops at the first round with a violation and keeps the database.
pub fn run(args: &TortureArgs, as_json: bool) -> Result<Outcome> {
    if args.log_memory.is_some() && args.preset != Preset::Passive {
        bail!("--log-memory goes with --preset passive, not with {}", args.preset.name());
    }
    if args.rivals.is_some() && !is_url(&args.directory) {
        bail!("--rivals goes with the URL of a store of objects: a directory is locked by its one writer");
    }
    refuse_database(&args.directory, "torture")?;
    if is_url(&args.directory) {
        if args.preset == Preset::Passive || args.at_calls.is_some() {
            bail!(
                "a store of objects has no mapped memory and no system calls to hit: choose another preset, without --at-calls"
            );
        }
    } else {
        std::fs::create_dir_all(&args.directory)
            .with_context(|| format!("cannot create {}", args.directory.display()))?;
    }
    let database = inside(&args.directory, "torture-db");
    let memory = || args.log_memory.clone().unwrap_or(args.directory.join("torture-log-memory"));
    let memory = (args.preset == Preset::Passive).then(memory);
    if args.at_calls.is_some() {
        calls::available()?;
    }
    let mut torture = Torture {
        args,
        database,
        memory,
        random: Random::from_seed(args.seed),
        acknowledged: Acknowledged::default(),
        round: 0,
        rounds: 0,
        kills: 0,
        works_since: None,
        calls: args.at_calls.map(|trouble| Calls::new(trouble, args.alternate_io)),
        complaints: 0,
        acknowledged_before: 0,
        takeovers: 0,
        lost: 0,
        violations: Vec::new(),
    };
    torture.refuse_others()?;
    torture.reset()?;
    let progress = Progress::new();
    let began = Instant::now();
    while torture.continues(began) {
        torture.round()?;
        progress.counting(
            format!("{} kills", torture.kills),
            began.elapsed().as_secs().min(args.seconds as u64),
            args.seconds as u64,
        );
    }
    progress.finish();
    if args.rounds.is_none() && torture.violations.is_empty() && !torture.has_shown() {
        bail!(
            "{} kills in {:.0} seconds, and too little was acknowledged to check anything: see whether the place is slow, or raise --seconds",
            torture.kills,
            began.elapsed().as_secs_f64()
        );
    }
    print_result(&torture, began.elapsed(), as_json)
}

/// Prints the result of all rounds.
fn print_result(torture: &Torture<'_>, elapsed: Duration, as_json: bool) -> Result<Outcome> {
    let args = torture.args;
    let acknowledged = torture.acknowledged_before + torture.acknowledged.len();
    let violations = torture.violations.len();
    let shown = &torture.violations[..violations.min(SHOWN_MAX)];
    if as_json {
        print_json(&json!({
            "preset": args.preset.name(),
            "threads": args.threads,
            "seed": args.seed,
            "seconds": elapsed.as_secs_f64(),
            "rounds": torture.rounds,
            "kills": torture.kills,
            "at_calls": torture.calls.as_ref().map(|calls| calls.hits),
            "complaints": torture.complaints,
            "takeovers": args.rivals.map(|_| torture.takeovers),
            "calls": torture.calls.as_ref().map(Calls::summary),
            "struck": torture.calls.as_ref().map(Calls::struck),
            "acknowledged": acknowledged,
            "lost": torture.lost,
            "violations": violations,
            "problems": shown,
        }))?;
    } else {
        let mut text: String = shown.iter().map(|problem| format!("VIOLATION: {problem}\n")).collect();
        if args.rivals.is_some() {
            text += &format!("{} takeovers, ", torture.takeovers);
        }
        text += &format!(
            "{} kills, {acknowledged} acknowledged commits, {} lost, {violations} violations\n",
            torture.kills, torture.lost
        );
        print_text(&text)?;
    }
    Ok(if violations == 0 { Outcome::Done } else { Outcome::Wrong })
}

/// `quench torture-check`: checks the database of a `torture-child` that was killed or has ended.
#[derive(clap::Args)]
pub struct CheckArgs {
    directory: PathBuf,
    #[arg(long, value_parser = parse_preset)]
    preset: Preset,
    #[arg(long)]
    no_io_uring: bool,
}

/// Checks the database against the acknowledgments on standard input.
pub fn run_check(args: &CheckArgs) -> Result<Outcome> {
    let mut acknowledged = Acknowledged::default();
    for line in std::io::stdin().lines() {
        let line = line.context("cannot read the acknowledgments on standard input")?;
        anyhow::ensure!(acknowledged.line(&line), "`{line}` is no line of a torture-child");
    }
    let way = Way { preset: args.preset, log_memory: None, io_uring: !args.no_io_uring };
    let findings = check::check_twice(&args.directory, way, &acknowledged)?;
    print_json(&json!({
        "acknowledged": acknowledged.len(),
        "rows": findings.rows,
        "lost": findings.lost,
        "violations": findings.violations,
    }))?;
    Ok(if findings.violations.is_empty() { Outcome::Done } else { Outcome::Wrong })
}
