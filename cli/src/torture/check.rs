//! What must hold after a kill.

use super::child::{self, Way};
use crate::bank::{self, Entry};
use anyhow::{Context, Result};
use quenchdb::Database;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::hash::Hasher;
use std::path::Path;

/// Everything that children of one database reported.
#[derive(Debug, Default)]
pub struct Acknowledged {
    /// The accounts are durable.
    pub setup: bool,
    /// Transfers.
    pub transfers: Vec<Entry>,
    /// Inserted rows.
    pub inserts: Vec<Entry>,
    /// Deleted rows.
    pub deletes: Vec<Entry>,
}

impl Acknowledged {
    /// Records a whole line of a child. Returns false if the line has no known form.
    pub fn line(&mut self, line: &str) -> bool {
        if line == "S" {
            self.setup = true;
            return true;
        }
        let mut words = line.split(' ');
        let (Some(letter), Some(writer), Some(sequence), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return false;
        };
        let (Ok(writer), Ok(sequence)) = (writer.parse(), sequence.parse()) else { return false };
        let entry = Entry { writer, sequence };
        match letter {
            "T" => self.transfers.push(entry),
            "I" => self.inserts.push(entry),
            "D" => self.deletes.push(entry),
            _ => return false,
        }
        true
    }

    /// Returns lines that [`Acknowledged::line`] takes.
    pub fn lines(&self) -> String {
        let mut lines = if self.setup { String::from("S\n") } else { String::new() };
        for (letter, entries) in [('T', &self.transfers), ('I', &self.inserts), ('D', &self.deletes)] {
            for Entry { writer, sequence } in entries {
                let _ = writeln!(lines, "{letter} {writer} {sequence}");
            }
        }
        lines
    }

    /// Number of acknowledged commits.
    pub fn len(&self) -> u64 {
        (self.transfers.len() + self.inserts.len() + self.deletes.len()) as u64
    }
}

/// The result of a check.
#[derive(Debug, Default)]
pub struct Findings {
    /// Acknowledged commits whose effects are missing.
    pub lost: u64,
    /// Every violation, in words; lost commits too.
    pub violations: Vec<String>,
    /// Rows of all tables.
    pub rows: u64,
}

impl Findings {
    fn lost(&mut self, what: &str, entry: Entry) {
        self.lost += 1;
        self.violations
            .push(format!("{what} {}/{} was acknowledged and is lost", entry.writer, entry.sequence));
    }
}

/// Opens the database, checks content and files, and opens it again.
pub fn check_twice(directory: &Path, way: Way<'_>, acknowledged: &Acknowledged) -> Result<Findings> {
    let database = child::open(directory, way).context("the first open after the kill")?;
    let mut findings = check(&database, acknowledged)?;
    let problems = database.verify(None)?.problems;
    findings.violations.extend(problems.into_iter().map(|problem| format!("verify: {problem}")));
    let first = content_hash(&database)?;
    drop(database);
    let database = child::open(directory, way).context("the second open")?;
    if content_hash(&database)? != first {
        findings.violations.push("opening twice gave different contents".into());
    }
    Ok(findings)
}

/// Checks the content of `database` against the acknowledgments.
pub fn check(database: &Database, acknowledged: &Acknowledged) -> Result<Findings> {
    let mut findings = Findings::default();
    let bank = bank::check(database)?;
    if acknowledged.setup && bank.sum.is_none() {
        findings.lost += 1;
        findings.violations.push("the accounts were acknowledged and are lost".into());
    }
    findings.violations.extend(bank.problems);
    for &entry in acknowledged.transfers.iter().filter(|&entry| !bank.journal.contains(entry)) {
        findings.lost("transfer", entry);
    }
    let rows = attributes(database)?;
    let deleted = entries(database, "deleted")?;
    for &entry in &acknowledged.inserts {
        match (rows.contains_key(&entry), deleted.contains(&entry)) {
            (true, false) | (false, true) => {}
            (true, true) => findings.violations.push(format!("{entry:?} exists, although it was deleted")),
            (false, false) => findings.lost("insert", entry),
        }
    }
    for &entry in &acknowledged.deletes {
        if rows.contains_key(&entry) || !deleted.contains(&entry) {
            findings.lost("delete", entry);
        }
    }
    index_agrees(database, &rows, &mut findings)?;
    findings.rows = (bank.journal.len() + rows.len() + deleted.len()) as u64;
    Ok(findings)
}

fn attributes(database: &Database) -> Result<HashMap<Entry, [u8; 8]>> {
    let mut found = HashMap::new();
    let Some(table) = bank::existing(database, "rows")? else { return Ok(found) };
    bank::rows(&database.begin_read()?, &table, |key, value| {
        let entry = Entry::from_key(key).context("a key of rows is not 12 bytes")?;
        let attribute = value.first_chunk::<8>().context("a row is too short")?;
        found.insert(entry, *attribute);
        Ok(())
    })?;
    Ok(found)
}

fn entries(database: &Database, name: &str) -> Result<HashSet<Entry>> {
    let mut found = HashSet::new();
    let Some(table) = bank::existing(database, name)? else { return Ok(found) };
    bank::rows(&database.begin_read()?, &table, |key, _| {
        found.insert(Entry::from_key(key).context("a key is not 12 bytes")?);
        Ok(())
    })?;
    Ok(found)
}

/// Checks that every row has its index entry and every index entry its row.
fn index_agrees(database: &Database, rows: &HashMap<Entry, [u8; 8]>, findings: &mut Findings) -> Result<()> {
    let mut matched = 0;
    if let Some(index) = bank::existing(database, "rows_by_attribute")? {
        bank::rows(&database.begin_read()?, &index, |key, _| {
            let (attribute, entry) = key.split_first_chunk::<8>().context("an index key is too short")?;
            let entry = Entry::from_key(entry).context("an index key is not 20 bytes")?;
            if rows.get(&entry) == Some(attribute) {
                matched += 1;
            } else {
                findings.violations.push(format!("index entry of {entry:?} has no such row"));
            }
            Ok(())
        })?;
    }
    if matched != rows.len() {
        findings.violations.push(format!("{} rows but {matched} index entries for them", rows.len()));
    }
    Ok(())
}

/// Returns a hash of all tables and rows, in order.
pub fn content_hash(database: &Database) -> Result<u64> {
    let mut hasher = std::hash::DefaultHasher::new();
    let mut names = database.tables();
    names.sort();
    let snapshot = database.begin_read()?;
    for name in names {
        hasher.write(name.as_bytes());
        hasher.write_u64(name.len() as u64);
        bank::rows(&snapshot, &database.table(&name)?, |key, value| {
            hasher.write_u64(key.len() as u64);
            hasher.write(key);
            hasher.write_u64(value.len() as u64);
            hasher.write(value);
            Ok(())
        })?;
    }
    Ok(hasher.finish())
}

#[cfg(test)]
mod tests;
