//! Isolation anomalies as scripts: which schedule is possible at which isolation level.
//!
//! A script in `anomalies/` runs once for each level. Its first lines are:
//!
//! ```text
//!   # A comment.
//!   levels   read-committed | snapshot
//!   verdict  anomaly        | serializable
//!   rows     x=1 y=1
//! ```
//!
//! Each further line is a step of one transaction, and its expected result at each level. One
//! result stands for all levels. The steps of a transaction are `begin`, `get KEY`, `lock KEY` (a
//! get for update), `put KEY VALUE`, `scan FROM..TO`, `commit` and `abort`. `begin LEVEL` begins at
//! another level than that of the column. The last line, `end`, has the rows that are left.
//!
//! ```text
//!   T1 put x 2     -> ok
//!   T2 put x 3     -> waits
//!   T1 commit      -> ok, T2 ok | ok, T2 conflict
//!   T2 commit      -> ok | -
//!   end            -> x=3 y=1 | x=2 y=1
//! ```
//!
//! - `waits`: the step blocks. A later step that unblocks it has the result behind its own.
//! - `queued`: the transaction still waits; the step runs after the wait, with its result behind
//!   that of the wait.
//! - `conflict`: the step failed, and the script aborts the transaction, as a user would.
//! - `-`: the transaction has ended before.
//!
//! The verdict follows from the results: a schedule is serializable if some serial order of the
//! committed transactions gives all of their results and the rows that are left.
//!
//! To add a level, add it to `levels`, its name to `levels`, and its word to `verdict`. Then
//! `QUENCH_BLESS=1 cargo test -p quenchdb --test engine anomalies::` writes the results that the
//! engine gives. Verdicts are never written, so that an unexpected anomaly still fails.

use quenchdb::{
    Database, ErrorKind, Isolation, Locking, Result as DbResult, Table, Transaction, TransactionOptions,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Options of a transaction that a column of a script stands for.
type Level = TransactionOptions;

/// Levels by their names in scripts, in the order of the columns.
fn levels() -> [(&'static str, Level); 5] {
    let at = |isolation| TransactionOptions::new().isolation(isolation);
    [
        ("read-committed", at(Isolation::ReadCommitted)),
        ("snapshot", at(Isolation::Snapshot)),
        ("snapshot-locking", at(Isolation::Snapshot).locking(Locking::Pessimistic)),
        ("serializable", at(Isolation::Serializable)),
        ("serializable-locking", at(Isolation::Serializable).locking(Locking::Pessimistic)),
    ]
}

fn begin_at(db: &Database, level: Level) -> DbResult<Transaction> {
    db.begin_with(level)
}

/// Time without a result after which an expected `waits` is believed.
const BLOCKED: Duration = Duration::from_millis(100);
/// Time until an expected result must be there. Only failing scripts take so long.
const DEADLINE: Duration = Duration::from_secs(10);
/// Longest wait of the engine for a row: longer than a script takes.
const LOCK_WAIT: Duration = Duration::from_secs(60);
/// Time for all results of a step while results are written instead of compared.
const BLESSING: Duration = Duration::from_millis(500);

type Rows = BTreeMap<String, String>;
/// The steps of each transaction with their results.
type Schedule = BTreeMap<u32, Vec<(Action, String)>>;

#[derive(Clone, Debug)]
enum Action {
    Begin(Level),
    Get(String),
    Lock(String),
    Put(String, String),
    Scan(String, String),
    Commit,
    Abort,
}

#[derive(Debug)]
struct Step {
    /// Index of the line in the script.
    line: usize,
    text: String,
    /// Transaction and words of the action; None for `end`.
    action: Option<(u32, Vec<String>)>,
    /// Results, one for each level or one for all.
    expected: Vec<String>,
}

#[derive(Debug)]
struct Script {
    levels: Vec<String>,
    verdicts: Vec<String>,
    rows: Rows,
    steps: Vec<Step>,
}

fn cells(text: &str) -> Vec<String> {
    text.split('|').map(|cell| cell.trim().to_string()).collect()
}

/// Returns the cell of a level; a single cell is that of all levels.
fn cell(cells: &[String], column: usize) -> &str {
    if cells.len() == 1 { &cells[0] } else { cells.get(column).map_or("", String::as_str) }
}

fn level(name: &str) -> Result<Level, String> {
    let known = levels().into_iter().find(|(known, _)| *known == name);
    known.map(|(_, level)| level).ok_or(format!("there is no level {name}"))
}

fn rows_in_words(rows: &Rows) -> String {
    let words: Vec<String> = rows.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if words.is_empty() { "none".into() } else { words.join(" ") }
}

impl Script {
    fn parse(text: &str) -> Result<Script, String> {
        let mut script =
            Script { levels: Vec::new(), verdicts: Vec::new(), rows: Rows::new(), steps: Vec::new() };
        for (line, content) in text.lines().enumerate() {
            let content = content.trim();
            let (word, rest) = content.split_once(' ').unwrap_or((content, ""));
            match word {
                "" | "#" => {}
                "levels" => script.levels = cells(rest),
                "verdict" => script.verdicts = cells(rest),
                "rows" => {
                    let rows = rest.split_whitespace().map(|row| row.split_once('='));
                    let rows: Option<Vec<_>> = rows.collect();
                    let rows = rows.ok_or(format!("line {}: not KEY=VALUE", line + 1))?;
                    script.rows = rows.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
                }
                _ => script.steps.push(Step::parse(line, content)?),
            }
        }
        if script.levels != levels().map(|(name, _)| name) {
            return Err(format!("the levels are {:?}", script.levels));
        }
        match script.steps.last() {
            Some(Step { action: None, .. }) => Ok(script),
            _ => Err("the last step is not `end`".into()),
        }
    }
}

impl Step {
    fn parse(line: usize, content: &str) -> Result<Step, String> {
        let wrong = || format!("line {}: no step: {content}", line + 1);
        let (text, expected) = content.split_once("->").unwrap_or((content, ""));
        let text = text.trim().to_string();
        let words: Vec<String> = text.split_whitespace().map(Into::into).collect();
        let action = match words[0].strip_prefix('T') {
            None if text == "end" => None,
            number => {
                let number = number.and_then(|number| number.parse().ok()).ok_or_else(wrong)?;
                action_of(&words[1..], levels()[0].1).map_err(|why| format!("{}: {why}", wrong()))?;
                Some((number, words[1..].to_vec()))
            }
        };
        let expected = if expected.trim().is_empty() { vec!["ok".into()] } else { cells(expected) };
        Ok(Step { line, text, action, expected })
    }
}

/// Returns the action of a step in a run at level `own`.
fn action_of(words: &[String], own: Level) -> Result<Action, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Ok(match words[..] {
        ["begin"] => Action::Begin(own),
        ["begin", name] => Action::Begin(level(name)?),
        ["get", key] => Action::Get(key.into()),
        ["lock", key] => Action::Lock(key.into()),
        ["put", key, value] => Action::Put(key.into(), value.into()),
        ["scan", range] => {
            let (from, to) = range.split_once("..").ok_or("not FROM..TO")?;
            Action::Scan(from.into(), to.into())
        }
        ["commit"] => Action::Commit,
        ["abort"] => Action::Abort,
        _ => return Err("there is no such action".into()),
    })
}

/// Carries out actions of one transaction, in a thread of its own, until the sender is dropped.
fn run_transaction(
    (db, table): (&Database, &Table),
    number: u32,
    actions: &Receiver<Action>,
    results: &Sender<(u32, String)>,
) {
    let mut open = None;
    for action in actions {
        let result = carry_out(db, table, &mut open, action).unwrap_or_else(|error| {
            open = None;
            match error.kind() {
                ErrorKind::Conflict => "conflict".into(),
                ErrorKind::Deadlock => "deadlock".into(),
                _ => error.to_string(),
            }
        });
        if results.send((number, result)).is_err() {
            return;
        }
    }
}

fn carry_out(
    db: &Database,
    table: &Table,
    open: &mut Option<Transaction>,
    action: Action,
) -> DbResult<String> {
    let text = |value: Option<Vec<u8>>| {
        value.map_or("none".into(), |value| String::from_utf8_lossy(&value).into_owned())
    };
    let ok = |()| "ok".to_string();
    if let Action::Begin(level) = action {
        *open = Some(begin_at(db, level)?);
        return Ok("ok".into());
    }
    let Some(mut tx) = open.take() else { return Ok("-".into()) };
    let result = match action {
        Action::Begin(_) => unreachable!("handled above"),
        Action::Commit => return tx.commit().map(|_| "ok".into()),
        Action::Abort => {
            tx.abort();
            return Ok("ok".into());
        }
        Action::Get(key) => tx.get(table, key).map(text),
        Action::Lock(key) => tx.get_for_update(table, key).map(text),
        Action::Put(key, value) => tx.insert(table, key, value).map(ok),
        Action::Scan(from, to) => {
            let rows = tx.range(table, from..to);
            let rows = rows.map(|row| row.map(|(key, value)| (text(Some(key)), text(Some(value)))));
            rows.collect::<DbResult<Rows>>().map(|rows| rows_in_words(&rows))
        }
    };
    *open = Some(tx);
    result
}

/// A run of a script at one level.
struct Run {
    actions: BTreeMap<u32, Sender<Action>>,
    results: Receiver<(u32, String)>,
    /// Actions without a result yet, by transaction.
    pending: BTreeMap<u32, VecDeque<Action>>,
    schedule: Schedule,
}

impl Run {
    /// Carries out a step. Returns its result, and the results of steps that it unblocked. Without
    /// an expected result waits as long as something may happen.
    fn step(&mut self, number: u32, action: Action, expected: Option<&str>) -> String {
        let queue = self.pending.entry(number).or_default();
        let is_queued = !queue.is_empty();
        queue.push_back(action.clone());
        self.actions[&number].send(action).expect("the thread runs until the end of the script");
        let mut own = is_queued.then(|| "queued".to_string());
        let mut unblocked: Vec<(u32, String)> = Vec::new();
        let parts: Option<Vec<&str>> = expected.map(|expected| expected.split(", ").collect());
        let may_wait = parts.as_ref().is_some_and(|parts| parts[0] == "waits");
        let (start, limit) = (Instant::now(), expected.map_or(BLESSING, |_| DEADLINE));
        while start.elapsed() < limit {
            let is_done = own.is_some() || may_wait && start.elapsed() > BLOCKED;
            let has_all = match &parts {
                Some(parts) => unblocked.len() + 1 >= parts.len(),
                None => self.pending.values().all(VecDeque::is_empty),
            };
            if is_done && has_all {
                break;
            }
            let Ok((from, result)) = self.results.recv_timeout(Duration::from_millis(5)) else { continue };
            self.note(from, &result);
            if from == number && own.is_none() {
                own = Some(result);
            } else {
                unblocked.push((from, result));
            }
        }
        // Two transactions that one step unblocks may be faster in either order.
        unblocked.sort_by_key(|(number, _)| *number);
        let unblocked = unblocked.into_iter().map(|(number, result)| format!(", T{number} {result}"));
        own.unwrap_or("waits".into()) + &unblocked.collect::<String>()
    }

    fn note(&mut self, number: u32, result: &str) {
        let action = self.pending.get_mut(&number).and_then(VecDeque::pop_front).expect("sent before");
        self.schedule.entry(number).or_default().push((action, result.into()));
    }
}

/// Results of the steps of a script, and its verdict.
type Outcome = (Vec<String>, &'static str);

impl Script {
    /// Runs the script at one level. Compares results if `is_strict`.
    fn run(&self, column: usize, is_strict: bool) -> Result<Outcome, String> {
        let db = Database::builder().lock_wait(LOCK_WAIT).open_in_memory().expect("opens");
        let table = db.create_table("t").expect("new");
        let put = |tx: &mut Transaction| self.rows.iter().try_for_each(|(k, v)| tx.insert(&table, k, v));
        db.transact(put).expect("commits");
        let numbers = self.steps.iter().filter_map(|step| step.action.as_ref()).map(|(number, _)| *number);
        std::thread::scope(|scope| {
            let (send_result, results) = channel();
            let mut actions = BTreeMap::new();
            for number in numbers.collect::<BTreeSet<u32>>() {
                let (send, receive) = channel();
                let (send_result, of) = (send_result.clone(), (&db, &table));
                scope.spawn(move || run_transaction(of, number, &receive, &send_result));
                actions.insert(number, send);
            }
            let run = Run { actions, results, pending: BTreeMap::new(), schedule: Schedule::new() };
            self.run_steps(run, (&db, &table), column, is_strict)
        })
    }

    fn run_steps(
        &self,
        mut run: Run,
        (db, table): (&Database, &Table),
        column: usize,
        is_strict: bool,
    ) -> Result<Outcome, String> {
        let (mut found, mut left) = (Vec::new(), Rows::new());
        for step in &self.steps {
            let expected = is_strict.then(|| cell(&step.expected, column));
            let result = match &step.action {
                Some((number, words)) => run.step(*number, action_of(words, levels()[column].1)?, expected),
                None => {
                    if let Some((number, _)) = run.pending.iter().find(|(_, queue)| !queue.is_empty()) {
                        return Err(format!("T{number} still waits at the end"));
                    }
                    left = rows_of(db, table);
                    rows_in_words(&left)
                }
            };
            if expected.is_some_and(|expected| expected != result) {
                let (line, text, expected) = (step.line + 1, &step.text, expected.unwrap_or_default());
                return Err(format!("line {line}: {text} -> {result}, expected {expected}"));
            }
            found.push(result);
        }
        let is_serializable = is_serializable(&self.rows, &run.schedule, &left);
        Ok((found, if is_serializable { "serializable" } else { "anomaly" }))
    }

    /// Runs the script at every level. Returns an error for the first difference.
    fn check(&self) -> Result<(), String> {
        for (column, name) in self.levels.iter().enumerate() {
            let (_, verdict) = self.run(column, true).map_err(|why| format!("{name}: {why}"))?;
            let expected = cell(&self.verdicts, column);
            if verdict != expected {
                return Err(format!("{name}: the verdict is {verdict}, expected {expected:?}"));
            }
        }
        Ok(())
    }

    /// Returns the text of the script with the results that the engine gives.
    fn with_results(&self, text: &str) -> Result<String, String> {
        let runs: Result<Vec<Outcome>, String> =
            (0..self.levels.len()).map(|column| self.run(column, false)).collect();
        let runs = runs?;
        let mut lines: Vec<String> = text.lines().map(Into::into).collect();
        for (n, step) in self.steps.iter().enumerate() {
            let mut results: Vec<&str> = runs.iter().map(|(results, _)| &results[n][..]).collect();
            if results.iter().all(|result| *result == results[0]) {
                results.truncate(1);
            }
            lines[step.line] = match &results[..] {
                ["ok"] if step.text.contains("begin") => step.text.clone(),
                results => format!("{:<14} -> {}", step.text, results.join(" | ")),
            };
        }
        Ok(lines.join("\n") + "\n")
    }
}

fn rows_of(db: &Database, table: &Table) -> Rows {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("written as text");
    let snapshot = db.begin_read().expect("free");
    let rows = snapshot.range(table, ..).map(|row| row.expect("readable"));
    rows.map(|(key, value)| (text(key), text(value))).collect()
}

/// Returns true if some serial order of the committed transactions gives their results and `end`.
fn is_serializable(rows: &Rows, schedule: &Schedule, end: &Rows) -> bool {
    fn continues(rows: &Rows, rest: &[&[(Action, String)]], end: &Rows) -> bool {
        let without = |n: usize| [&rest[..n], &rest[n + 1..]].concat();
        let mut next = (0..rest.len()).filter_map(|n| Some((replay(rows, rest[n])?, without(n))));
        if rest.is_empty() { rows == end } else { next.any(|(rows, rest)| continues(&rows, &rest, end)) }
    }
    let is_committed = |steps: &&[(Action, String)]| {
        steps.iter().any(|(action, result)| matches!(action, Action::Commit) && result == "ok")
    };
    let committed: Vec<_> = schedule.values().map(Vec::as_slice).filter(is_committed).collect();
    continues(rows, &committed, end)
}

/// Returns the rows after a transaction that runs alone, or None if its results would differ.
fn replay(rows: &Rows, steps: &[(Action, String)]) -> Option<Rows> {
    let mut rows = rows.clone();
    for (action, result) in steps {
        let alone = match action {
            Action::Get(key) | Action::Lock(key) => rows.get(key).cloned().unwrap_or("none".into()),
            Action::Scan(from, to) => {
                let inside = rows.range(from.clone()..to.clone());
                rows_in_words(&inside.map(|(key, value)| (key.clone(), value.clone())).collect())
            }
            Action::Put(key, value) => {
                rows.insert(key.clone(), value.clone());
                continue;
            }
            Action::Begin(_) | Action::Commit | Action::Abort => continue,
        };
        if alone != *result {
            return None;
        }
    }
    Some(rows)
}

fn check_file(name: &str) {
    let path = format!("{}/tests/anomalies/{name}.script", env!("CARGO_MANIFEST_DIR"));
    let mut text = std::fs::read_to_string(&path).expect("a script");
    let mut check = || {
        if std::env::var("QUENCH_BLESS").is_ok() {
            text = Script::parse(&text)?.with_results(&text)?;
            std::fs::write(&path, &text).expect("the sources are writable");
        }
        Script::parse(&text)?.check()
    };
    check().unwrap_or_else(|why: String| panic!("{path}: {why}"));
}

macro_rules! scripts {
    ($($name:ident)*) => {
        const SCRIPTS: &[&str] = &[$(stringify!($name)),*];

        $(#[test]
        fn $name() {
            check_file(stringify!($name));
        })*
    };
}

scripts! {
    dirty_write
    dirty_write_of_aborted
    dirty_read
    intermediate_read
    lost_update
    lost_update_at_mixed_levels
    fuzzy_read
    phantom
    write_skew
    write_skew_by_phantoms
    write_skew_with_locks
    read_only_anomaly
    long_fork
}

#[test]
fn every_script_is_a_test() {
    let folder = format!("{}/tests/anomalies", env!("CARGO_MANIFEST_DIR"));
    let entries =
        std::fs::read_dir(folder).expect("the scripts").map(|entry| entry.expect("readable").path());
    let mut names: Vec<String> =
        entries.filter_map(|path| Some(path.file_stem()?.to_str()?.to_string())).collect();
    names.sort();
    let mut tests = SCRIPTS.to_vec();
    tests.sort_unstable();
    assert_eq!(names, tests);
}

const LOST_UPDATE: &str = include_str!("anomalies/lost_update.script");

#[test]
fn a_wrong_result_fails_with_its_line_and_level() {
    let wrong = LOST_UPDATE.replace("T2 conflict", "T2 ok");
    let error = Script::parse(&wrong).expect("a script").check().expect_err("a wrong result");
    let expected = "snapshot: line 14: T1 commit -> ok, T2 conflict, expected ok, T2 ok";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn a_wrong_verdict_fails_at_its_level() {
    let wrong = LOST_UPDATE.replace("anomaly ", "serializable ");
    let error = Script::parse(&wrong).expect("a script").check().expect_err("a wrong verdict");
    assert_eq!(error, "read-committed: the verdict is anomaly, expected \"serializable\"");
}

#[test]
fn results_are_written_into_the_script() {
    let without = LOST_UPDATE.replace("ok, T2 ok | ok, T2 conflict", "ok");
    assert_ne!(without, LOST_UPDATE);
    let script = Script::parse(&without).expect("a script");
    assert_eq!(script.with_results(&without).as_deref(), Ok(LOST_UPDATE));
}

#[test]
fn a_script_with_an_unknown_word_is_refused_with_its_line() {
    for (wrong, why) in [
        (LOST_UPDATE.replace("T1 get x", "T1 fetch x"), "line 10: no step: T1 fetch x"),
        (LOST_UPDATE.replace("read-committed |", "read-uncommitted |"), "the levels are"),
        (LOST_UPDATE.replace("x=1", "x"), "line 6: not KEY=VALUE"),
        (LOST_UPDATE.replace("end ", "T3 begin "), "the last step is not `end`"),
    ] {
        let error = Script::parse(&wrong).expect_err(why);
        assert!(error.starts_with(why), "{error}");
    }
}
