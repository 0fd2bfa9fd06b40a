//! Several writers that take over from each other, in processes of their own.
//!
//! ```text
//!   rival 1   open, check, work ... fenced      open, check, work ... killed
//!   rival 2           open, check, work ... fenced            open, check, work ...
//! ```
//!
//! Each rival gets everything that was acknowledged before it started, and checks it as soon as it
//! has taken the database over. Whatever it misses then is lost for good: it was acknowledged by a
//! writer before it. A rival does not learn what is acknowledged later.

use super::UNTIL_SHOWN;
use super::check::{self, Acknowledged};
use super::child::{self, ChildArgs};
use crate::output::Outcome;
use anyhow::{Context, Result, anyhow};
use quenchdb::internals::base::random::Random;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time between two looks at a child.
const TICK: Duration = Duration::from_millis(5);
/// A rival that takes longer to open and check is killed.
const UNTIL_WORK: Duration = Duration::from_secs(120);

/// How the engine says that another writer has taken the database over.
const TAKEN: &str = "another process has opened the database for writing";

/// What rivals do.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// The database.
    pub database: &'a Path,
    /// Arguments of a child about its work.
    pub work: &'a [String],
    /// Number of writers.
    pub rivals: u32,
    /// How long they take over from each other. Until one has taken over from another and something
    /// was acknowledged, they continue for at most [`UNTIL_SHOWN`] more.
    pub lasts: Duration,
    /// The longest time in milliseconds that a rival works, or pauses.
    pub life: u64,
    /// Seed of the times.
    pub seed: u64,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Report {
    /// Everything that was acknowledged, that of earlier rounds included.
    pub acknowledged: Acknowledged,
    /// Rivals that took the database over and checked it.
    pub takeovers: u64,
    /// Rivals that were killed.
    pub kills: u64,
    /// Acknowledged commits that a rival missed.
    pub lost: u64,
    /// Everything that is wrong, in words.
    pub violations: Vec<String>,
    /// The number of the next child.
    pub next: u32,
}

/// What all rivals share.
struct Arena<'a> {
    plan: Plan<'a>,
    /// When the first rival worked.
    began: OnceLock<Instant>,
    started: Instant,
    report: Mutex<Report>,
    seeds: AtomicU64,
}

/// Lets rivals take over from each other until the time is over or something is wrong. Then none
/// of them runs.
///
/// # Errors
/// A child cannot be started.
pub fn run(plan: Plan<'_>, acknowledged: Acknowledged, next: u32) -> Result<Report> {
    let report = Mutex::new(Report { acknowledged, next, ..Report::default() });
    let arena = Arena {
        plan,
        began: OnceLock::new(),
        started: Instant::now(),
        report,
        seeds: AtomicU64::new(plan.seed),
    };
    std::thread::scope(|scope| {
        let rivals: Vec<_> = (0..plan.rivals).map(|_| scope.spawn(|| arena.fight())).collect();
        rivals.into_iter().try_for_each(|rival| rival.join().map_err(|_| anyhow!("a thread panicked"))?)
    })?;
    Ok(arena.report.into_inner().unwrap_or_else(PoisonError::into_inner))
}

impl Arena<'_> {
    fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        let report = self.report();
        let has_shown = report.takeovers > 1 && report.acknowledged.len() > 0;
        let more = if has_shown { Duration::ZERO } else { UNTIL_SHOWN };
        // The creation of the database takes its time.
        let is_late = match self.began.get() {
            Some(began) => began.elapsed() >= self.plan.lasts + more,
            None => self.started.elapsed() >= UNTIL_WORK,
        };
        is_late || !report.violations.is_empty()
    }

    /// Runs one rival after the other, with pauses in between.
    fn fight(&self) -> Result<()> {
        let mut random = Random::from_seed(self.seeds.fetch_add(1, Ordering::Relaxed));
        while !self.is_over() {
            let works = Duration::from_millis(20 + random.below(self.plan.life));
            let started = Instant::now();
            let has_worked = self.one(works)?;
            // On a slow store a rival may lose the database before its open ends. The pause gives
            // another one the time of an open.
            let longest = if has_worked { 0 } else { 2 * started.elapsed().as_millis() as u64 };
            let pause = random.below(longest.max(self.plan.life / 2) + 1);
            let pause = Instant::now() + Duration::from_millis(pause);
            while Instant::now() < pause && !self.is_over() {
                sleep(TICK);
            }
        }
        Ok(())
    }

    /// Runs one rival until another one has ended it, or until it has worked for so long. Returns
    /// whether it has worked.
    fn one(&self, works: Duration) -> Result<bool> {
        let (number, known) = {
            let mut report = self.report();
            report.next += 1;
            (report.next, report.acknowledged.lines())
        };
        let mut child = Command::new(std::env::current_exe()?)
            .args(["torture-child", "--json", "--check"])
            .arg(self.plan.database)
            .args(self.plan.work)
            .args(["--round", &number.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start a rival")?;
        let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let began = Mutex::new(None);
        let (status, said) = std::thread::scope(|scope| {
            // A rival that is killed reads no more.
            scope.spawn(|| input.map(|mut input| input.write_all(known.as_bytes())));
            let output = scope.spawn(|| output.map(|output| self.listen(output, &began)));
            let errors = scope.spawn(|| {
                let mut text = String::new();
                // A text that is cut short is enough.
                let _ = errors.map(|mut errors| errors.read_to_string(&mut text));
                text
            });
            let status = self.wait(&mut child, works, &began);
            let _ = output.join();
            (status, errors.join().unwrap_or_default())
        });
        self.judge(number, status?, &said);
        Ok(began.into_inner().unwrap_or_else(PoisonError::into_inner).is_some())
    }

    /// Records what a rival says.
    fn listen(&self, output: impl Read, began: &Mutex<Option<Instant>>) {
        let mut lines = BufReader::with_capacity(1 << 16, output);
        let mut line = String::new();
        while lines.read_line(&mut line).is_ok_and(|read| read > 0) {
            // The kill cut a last line without newline: it is no acknowledgment.
            if let Some(whole) = line.strip_suffix('\n') {
                let mut report = self.report();
                if let Some(lost) = whole.strip_prefix("C ") {
                    report.takeovers += 1;
                    report.lost += lost.parse().unwrap_or(0);
                } else if let Some(violation) = whole.strip_prefix("V ") {
                    report.violations.push(violation.into());
                } else if report.acknowledged.line(whole) {
                    // Its first line says that the accounts are durable.
                    began.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Instant::now);
                    self.began.get_or_init(Instant::now);
                } else {
                    report.violations.push(format!("a rival wrote `{whole}`"));
                }
            }
            line.clear();
        }
    }

    /// Waits for the end of a rival, and kills it when it has worked for `works`.
    fn wait(
        &self,
        child: &mut Child,
        works: Duration,
        began: &Mutex<Option<Instant>>,
    ) -> Result<Option<ExitStatus>> {
        let started = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            // Not locked beside the report.
            let worked = *began.lock().unwrap_or_else(PoisonError::into_inner);
            let is_done = match worked {
                Some(began) => began.elapsed() >= works || self.is_over(),
                None => started.elapsed() >= UNTIL_WORK || self.is_over(),
            };
            if is_done {
                child.kill()?;
                child.wait()?;
                return Ok(None);
            }
            sleep(TICK);
        }
    }

    /// Judges how a rival ended: killed by this program, or by a takeover.
    fn judge(&self, number: u32, status: Option<ExitStatus>, said: &str) {
        let mut report = self.report();
        let Some(status) = status else {
            report.kills += 1;
            return;
        };
        let error: serde_json::Value = serde_json::from_str(said.trim()).unwrap_or_default();
        let message = error["error"]["message"].as_str().unwrap_or_default();
        match error["error"]["code"].as_str() {
            Some("fenced" | "busy") => {}
            // A commit or a manifest was in flight when the other rival came.
            Some("outcome-unknown" | "poisoned") if message.contains(TAKEN) => {}
            _ => report.violations.push(format!("rival {number} ended with {status}: {}", said.trim())),
        }
    }
}

/// Runs a rival, in a process of its own: takes the database over, checks that everything on
/// standard input is there, and works until another rival or the parent ends it.
pub fn run_rival(args: &ChildArgs) -> Result<Outcome> {
    // All of it before the database is taken over: only this must be there.
    let mut known = Acknowledged::default();
    for line in std::io::stdin().lines() {
        let line = line.context("cannot read the acknowledgments on standard input")?;
        anyhow::ensure!(known.line(&line), "`{line}` is no line of a torture-child");
    }
    let database = child::open_as(args)?;
    let findings = check::check(&database, &known)?;
    let violations = findings.violations.iter().map(|line| format!("V {}\n", line.replace('\n', " ")));
    child::say(&violations.chain([format!("C {}\n", findings.lost)]).collect::<String>())?;
    child::work(args, database)
}
