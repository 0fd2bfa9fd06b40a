//! Completion of commands, tables, keys and keywords.

use super::statement::COMMANDS;
use super::words::{Word, quoted, split};
use crate::rows::unescape;
use quenchdb::Database;
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

/// Most keys that are offered.
const KEYS_MAX: usize = 50;

/// Completes lines for a database.
pub struct Completion {
    pub database: Database,
}

impl Completion {
    fn tables(&self) -> Vec<Vec<u8>> {
        self.database.tables().into_iter().map(String::into_bytes).collect()
    }

    /// Returns the first keys of a table from `prefix` on. Ignores errors: they belong to the
    /// statement.
    fn keys(&self, table: &Word, prefix: &[u8]) -> Vec<Vec<u8>> {
        let read = || -> quenchdb::Result<Vec<Vec<u8>>> {
            let table = self.database.table(&String::from_utf8_lossy(&table.bytes().unwrap_or_default()))?;
            let snapshot = self.database.begin_read()?;
            let keys = snapshot.range(&table, prefix..).take(KEYS_MAX);
            keys.map(|row| row.map(|(key, _)| key)).collect()
        };
        read().unwrap_or_default()
    }

    /// Returns what may stand at the end of `before`, and begins with `begun`.
    fn candidates(&self, before: &[Word], begun: &[u8]) -> Vec<Vec<u8>> {
        let keywords = |all: &[&str]| {
            let words = all.iter().map(|word| word.as_bytes().to_vec());
            // Keywords may be in upper case.
            words.filter(|word| word.starts_with(&begun.to_ascii_lowercase())).collect()
        };
        let commands = COMMANDS.map(|command| command.name);
        let [command, arguments @ ..] = before else { return keywords(&commands) };
        let named = |mut names: Vec<Vec<u8>>| {
            names.retain(|name| name.starts_with(begun));
            names
        };
        match (&*command.text.to_ascii_lowercase(), arguments) {
            ("get" | "put" | "delete" | "scan" | "count" | "drop" | "rename" | "clear", []) => {
                named(self.tables())
            }
            ("get" | "put" | "delete", [table]) => named(self.keys(table, begun)),
            ("scan" | "count", [table, .., last])
                if !last.is_quoted
                    && ["from", "to", "prefix"].iter().any(|word| last.text.eq_ignore_ascii_case(word)) =>
            {
                named(self.keys(table, begun))
            }
            ("scan", [_, ..]) => keywords(&["from", "to", "prefix", "limit", "reverse"]),
            ("count", [_, ..]) => keywords(&["from", "to", "prefix"]),
            ("begin", []) => keywords(&["snapshot", "serializable", "read-committed"]),
            (".timer", []) => keywords(&["on", "off"]),
            (".mode", []) => keywords(&["tsv", "csv", "json"]),
            (".help" | "help", []) => keywords(&commands),
            _ => Vec::new(),
        }
    }

    /// Returns where the last word of `line` begins, and the words that may replace it.
    pub fn complete_line(&self, line: &str) -> (usize, Vec<String>) {
        let mut words = split(line).pop().unwrap_or_default();
        let ends_word = |c: char| c.is_whitespace() || c == ';';
        let is_begun = words.last().is_some_and(|last| last.is_open || !line.ends_with(ends_word));
        let last = if is_begun { words.pop() } else { None };
        let start = last.as_ref().map_or(line.len(), |word| word.start);
        let begun = last.map_or(Vec::new(), |word| unescape(word.text.as_bytes()).unwrap_or_default());
        let found = self.candidates(&words, &begun);
        (start, found.iter().map(|candidate| quoted(candidate)).collect())
    }
}

impl Completer for Completion {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, found) = self.complete_line(&line[..pos]);
        let only = found.len() == 1;
        let pair = |word: String| {
            let replacement = if only { format!("{word} ") } else { word.clone() };
            Pair { display: word, replacement }
        };
        Ok((start, found.into_iter().map(pair).collect()))
    }
}

impl Hinter for Completion {
    type Hint = String;
}

impl Highlighter for Completion {}

impl Validator for Completion {}

impl Helper for Completion {}
