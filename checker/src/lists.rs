//! Lists that transactions append to and read: the order of versions is in the lists themselves.
//!
//! ```text
//!   T1: append x 1        T2: read x [1], append x 2        T3: read x [1 2]        x is 1 2
//!       └── wrote before ──▶ ┘  └────── read by ───────────────▶ ┘
//! ```
//!
//! Each number is appended to a list at most once. Then
//! 1. all lists that were read from one key are prefixes of the longest, which is the order of
//!    versions;
//! 2. a transaction that read a prefix read from its last appender, and precedes the next appender;
//! 3. a transaction sees one prefix of each list, followed by its own appends;
//! 4. snapshot isolation holds if every cycle has two anti-dependencies in a row ([`Level`]), where
//!    "ended before the other began" counts as a dependency: no transaction may read the past. The
//!    transaction between these two anti-dependencies must not be serializable.
//!
//! A committed append that no read contains is ordered after all that were read. So any later read
//! of the list finds a lost append; read all lists at the end. A transaction of unknown outcome is
//! judged if a judged transaction saw one of its appends.

use crate::graph::{Edge, Graph, Step};
use crate::{Kind, Verdict};
use std::collections::HashMap;

/// The known outcome of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The transaction's appends must be present.
    Committed,
    /// The transaction's appends must be absent.
    Aborted,
    /// The appends may be present: the outcome was not reported, or a crash may have removed them.
    Unknown,
}

/// The promised isolation level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Level {
    /// Strong snapshot isolation: a snapshot has everything that had been acknowledged when its
    /// transaction began.
    #[default]
    Snapshot,
    /// Strict serializability: reads and writes happen at one moment between begin and end. Among
    /// snapshot transactions that moment is the commit.
    Serializable,
}

#[derive(Clone, Copy, Debug)]
enum Access {
    Append { key: u32, value: u32 },
    Read { key: u32, start: usize, len: usize },
}

#[derive(Clone, Copy, Debug)]
struct Header {
    begun: u64,
    ended: u64,
    outcome: Outcome,
    level: Level,
    /// Index behind the transaction's last access; the first follows the previous transaction's
    /// last.
    accesses_end: usize,
}

/// Transactions with their reads and writes.
///
/// Each thread records a history of its own; [`History::absorb`] merges them.
#[derive(Clone, Debug, Default)]
pub struct History {
    headers: Vec<Header>,
    accesses: Vec<Access>,
    elements: Vec<u32>,
}

impl History {
    /// Records that the current transaction appended `value` to the list `key`. Values in a list
    /// are unique.
    pub fn append(&mut self, key: u32, value: u32) {
        self.accesses.push(Access::Append { key, value });
    }

    /// Records that the current transaction read this list.
    pub fn read(&mut self, key: u32, list: impl IntoIterator<Item = u32>) {
        let start = self.elements.len();
        self.elements.extend(list);
        self.accesses.push(Access::Read { key, start, len: self.elements.len() - start });
    }

    /// Ends the current transaction, which is at level snapshot. `begun` was read before it began
    /// and `ended` after it ended, from one clock of all threads that never returns a number twice.
    pub fn end(&mut self, begun: u64, ended: u64, outcome: Outcome) {
        self.end_at(Level::Snapshot, begun, ended, outcome);
    }

    /// Ends the current transaction as [`History::end`], at the level that it was promised.
    pub fn end_at(&mut self, level: Level, begun: u64, ended: u64, outcome: Outcome) {
        self.headers.push(Header { begun, ended, outcome, level, accesses_end: self.accesses.len() });
    }

    /// Drops the accesses of the current transaction.
    pub fn forget(&mut self) {
        self.accesses.truncate(self.headers.last().map_or(0, |last| last.accesses_end));
    }

    /// Adds the transactions of another thread.
    pub fn absorb(&mut self, other: History) {
        let (accesses, elements) = (self.accesses.len(), self.elements.len());
        let moved = |access| match access {
            Access::Read { key, start, len } => Access::Read { key, start: start + elements, len },
            append => append,
        };
        self.accesses.extend(other.accesses.into_iter().map(moved));
        self.elements.extend(other.elements);
        let moved = |header: Header| Header { accesses_end: header.accesses_end + accesses, ..header };
        self.headers.extend(other.headers.into_iter().map(moved));
    }

    /// Returns the number of recorded transactions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.headers.len()
    }

    /// Returns true if the history is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.headers.is_empty()
    }

    /// Replaces outcomes, by the number of the transaction: after a crash, for example.
    pub fn revise(&mut self, outcome: impl Fn(usize, Outcome) -> Outcome) {
        for (index, header) in self.headers.iter_mut().enumerate() {
            header.outcome = outcome(index, header.outcome);
        }
    }

    fn accesses(&self, transaction: usize) -> &[Access] {
        let start = transaction.checked_sub(1).map_or(0, |before| self.headers[before].accesses_end);
        &self.accesses[start..self.headers[transaction].accesses_end]
    }

    /// Judges each transaction at `level`, or at its own level if that is stricter.
    #[must_use]
    pub fn check(&self, level: Level) -> Verdict {
        let counts = self.headers.iter().map(|header| header.outcome == Outcome::Committed).collect();
        let mut judge = Judge { history: self, verdict: Verdict::default(), lists: HashMap::new(), counts };
        judge.find_appends();
        // A transaction that a judged one saw is judged, too.
        while judge.find_orders() {}
        judge.find_writers();
        judge.find_edges(level);
        judge.verdict
    }

    /// Calls `each` with the begin, end, outcome and accesses of each transaction.
    pub fn visit(&self, mut each: impl FnMut(u64, u64, Outcome, &[Accessed<'_>])) {
        for (index, header) in self.headers.iter().enumerate() {
            let accesses: Vec<Accessed<'_>> = self
                .accesses(index)
                .iter()
                .map(|access| match *access {
                    Access::Append { key, value } => Accessed::Append(key, value),
                    Access::Read { key, start, len } => {
                        Accessed::Read(key, &self.elements[start..start + len])
                    }
                })
                .collect();
            each(header.begun, header.ended, header.outcome, &accesses);
        }
    }

    /// Returns the history in Jepsen's format for other judges: a line of JSON for each event.
    ///
    /// Reads of a transaction of unknown outcome are left open, as in Jepsen: other judges treat a
    /// listed read as reported.
    #[must_use]
    pub fn to_json_lines(&self) -> String {
        let mut events: Vec<(u64, String)> = Vec::with_capacity(2 * self.len());
        self.visit(|begun, ended, outcome, accesses| {
            let process = events.len() / 2;
            let words: Vec<String> = accesses
                .iter()
                .map(|accesses| match accesses {
                    Accessed::Append(key, value) => format!("[\"append\",{key},{value}]"),
                    Accessed::Read(key, _) if outcome == Outcome::Unknown => format!("[\"r\",{key},null]"),
                    Accessed::Read(key, list) => format!("[\"r\",{key},{list:?}]"),
                })
                .collect();
            let kind = match outcome {
                Outcome::Committed => "ok",
                Outcome::Aborted => "fail",
                Outcome::Unknown => "info",
            };
            for (time, kind) in [(begun, "invoke"), (ended, kind)] {
                let words = words.join(",");
                let line = format!("{{\"type\":\"{kind}\",\"process\":{process},\"value\":[{words}]}}\n");
                events.push((time, line));
            }
        });
        events.sort_by_key(|(time, _)| *time);
        events.into_iter().map(|(_, line)| line).collect()
    }
}

/// An access of a transaction to a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accessed<'a> {
    /// Key and value.
    Append(u32, u32),
    /// Key and list.
    Read(u32, &'a [u32]),
}

/// The judge's knowledge of a list.
#[derive(Default)]
struct List<'h> {
    /// The longest version that was read.
    longest: &'h [u32],
    /// The appenders in order, each with the length of the list after its append.
    writers: Vec<(usize, usize)>,
    /// Appends by value: the transaction, and whether the longest version contains the value.
    appends: HashMap<u32, (usize, bool)>,
}

struct Judge<'h> {
    history: &'h History,
    verdict: Verdict,
    lists: HashMap<u32, List<'h>>,
    /// For each transaction, whether it is judged.
    counts: Vec<bool>,
}

impl<'h> Judge<'h> {
    fn find_appends(&mut self) {
        for transaction in 0..self.history.headers.len() {
            for access in self.history.accesses(transaction) {
                if let Access::Append { key, value } = *access {
                    let list = self.lists.entry(key).or_default();
                    let before = list.appends.insert(value, (transaction, false));
                    assert!(
                        before.is_none(),
                        "{value} was appended to {key} twice: such a history says nothing"
                    );
                }
            }
        }
    }

    /// Finds the longest list of each key that a judged transaction read; its appenders are judged,
    /// too. Returns true if a transaction became judged.
    fn find_orders(&mut self) -> bool {
        let history = self.history;
        for transaction in (0..history.headers.len()).filter(|transaction| self.counts[*transaction]) {
            for access in history.accesses(transaction) {
                if let Access::Read { key, start, len } = *access {
                    let list = self.lists.entry(key).or_default();
                    if len > list.longest.len() {
                        list.longest = &history.elements[start..start + len];
                    }
                }
            }
        }
        let mut is_new = false;
        for list in self.lists.values() {
            for (writer, _) in list.longest.iter().filter_map(|value| list.appends.get(value)) {
                is_new |= !std::mem::replace(&mut self.counts[*writer], true);
            }
        }
        is_new
    }

    /// Finds the appenders of each list.
    fn find_writers(&mut self) {
        for (key, list) in &mut self.lists {
            for (at, value) in list.longest.iter().enumerate() {
                let Some((writer, in_list)) = list.appends.get_mut(value) else {
                    let what = format!("{value} is in list {key}, but no transaction appended it");
                    self.verdict.add(Kind::Garbage, vec![], what);
                    continue;
                };
                if std::mem::replace(in_list, true) {
                    let what = format!("{value} is in list {key} twice");
                    self.verdict.add(Kind::Garbage, vec![*writer], what);
                }
                if self.history.headers[*writer].outcome == Outcome::Aborted {
                    let what = format!("{value} is in list {key}, and its transaction was aborted");
                    self.verdict.add(Kind::AbortedRead, vec![*writer], what);
                }
                match list.writers.last_mut() {
                    Some((last, end)) if last == writer => *end = at + 1,
                    _ => list.writers.push((*writer, at + 1)),
                }
            }
        }
    }

    fn find_edges(&mut self, level: Level) {
        let headers = &self.history.headers;
        self.verdict.judged = self.counts.iter().filter(|counts| **counts).count();
        let known = |header: &Header| (header.outcome == Outcome::Committed).then_some(header.ended);
        let times = headers.iter().map(|header| (header.begun, known(header))).collect();
        let is_serializable =
            |header: &Header| level == Level::Serializable || header.level == Level::Serializable;
        let mut graph = Graph::new(times, headers.iter().map(is_serializable).collect());
        let mut unseen = HashMap::new();
        for (key, list) in &self.lists {
            let mut before: Option<usize> = None;
            for (writer, _) in &list.writers {
                if let Some(before) = before.replace(*writer) {
                    graph.link(before, *writer, Edge::Write, *key);
                }
            }
            if list.appends.len() == list.longest.len() {
                continue;
            }
            let not_in_it =
                list.appends.values().filter(|(writer, in_list)| self.counts[*writer] && !in_list);
            let unseen_of_key: Vec<usize> = not_in_it.map(|(writer, _)| *writer).collect();
            for writer in &unseen_of_key {
                if let Some(before) = before {
                    graph.link(before, *writer, Edge::Write, *key);
                }
            }
            if !unseen_of_key.is_empty() {
                unseen.insert(*key, unseen_of_key);
            }
        }
        for transaction in 0..headers.len() {
            if self.counts[transaction] {
                self.read_edges(transaction, &mut graph, &unseen);
            }
        }
        if let Some(cycle) = graph.cycle() {
            let transactions = cycle.iter().map(|(transaction, _)| *transaction).collect();
            self.verdict.add(Kind::Cycle, transactions, describe(&cycle));
        }
    }

    /// Links one transaction's reads with the order of versions.
    fn read_edges(&mut self, transaction: usize, graph: &mut Graph, unseen: &HashMap<u32, Vec<usize>>) {
        // For each key: the length of the foreign prefix, if it was read, and the own appends.
        let mut own: Vec<(u32, Option<usize>, Vec<u32>)> = Vec::new();
        for access in self.history.accesses(transaction) {
            let key = match *access {
                Access::Append { key, .. } | Access::Read { key, .. } => key,
            };
            let at = own.iter().position(|(of, ..)| *of == key).unwrap_or_else(|| {
                own.push((key, None, Vec::new()));
                own.len() - 1
            });
            let (_, base, appended) = &mut own[at];
            let (start, len) = match *access {
                Access::Append { value, .. } => {
                    appended.push(value);
                    continue;
                }
                Access::Read { start, len, .. } => (start, len),
            };
            let read = &self.history.elements[start..start + len];
            let list = &self.lists[&key];
            if !read.ends_with(appended) || base.is_some_and(|base| read.len() - appended.len() != base) {
                let what = format!(
                    "it read list {key} as {read:?} after appending {appended:?} itself, and before as {base:?} of others"
                );
                self.verdict.add(Kind::Internal, vec![transaction], what);
                continue;
            }
            let seen = read.len() - appended.len();
            if !list.longest.starts_with(&read[..seen]) || !is_prefix_of_either(read, list.longest) {
                let what = format!("it read list {key} as {read:?}, another as {:?}", list.longest);
                self.verdict.add(Kind::IncompatibleOrder, vec![transaction], what);
                continue;
            }
            if base.replace(seen).is_some() {
                continue;
            }
            let next = list.writers.partition_point(|(_, end)| *end <= seen);
            if seen > 0 {
                // The last append seen, and whether it was the last of its transaction.
                let by = list.writers.partition_point(|(_, end)| *end < seen);
                if let Some((writer, end)) = list.writers.get(by) {
                    if *writer == transaction {
                        let what = format!("it saw its own append to list {key} before it made it");
                        self.verdict.add(Kind::Internal, vec![transaction], what);
                    } else if *end != seen {
                        let what = format!(
                            "it saw {:?} of list {key}, whose transaction appended more",
                            &read[..seen]
                        );
                        self.verdict.add(Kind::IntermediateRead, vec![transaction, *writer], what);
                    }
                    graph.link(*writer, transaction, Edge::Read, key);
                }
            }
            if let Some((writer, _)) = list.writers.get(next) {
                graph.link(transaction, *writer, Edge::Anti, key);
            } else {
                for writer in unseen.get(&key).into_iter().flatten() {
                    graph.link(transaction, *writer, Edge::Anti, key);
                }
            }
        }
    }
}

fn is_prefix_of_either(a: &[u32], b: &[u32]) -> bool {
    let both = a.len().min(b.len());
    a[..both] == b[..both]
}

fn describe(cycle: &[Step]) -> String {
    let mut words = String::new();
    for (transaction, by) in cycle {
        words += &match by {
            Some((Edge::Write, key)) => format!("{transaction} appended to {key} before "),
            Some((Edge::Read, key)) => format!("{transaction} was read, list {key}, by "),
            Some((Edge::Anti, key)) => {
                format!("{transaction} did not see in list {key} what was appended by ")
            }
            None => format!("{transaction} had ended before the begin of "),
        };
    }
    words + &cycle.first().map_or(String::new(), |(first, _)| first.to_string())
}
