//! A session: an open database and at most one open transaction.

use super::statement::{COMMANDS, Statement, find};
use crate::commands::range::KeyRange;
use crate::commands::stat_text;
use crate::errors::{complain, is_broken_pipe};
use crate::output::{print_json, print_text};
use crate::rows::write::RowWriter;
use crate::rows::{Format, escape, json_bytes};
use crate::signals::Interruptible;
use anyhow::{Context, Result, bail};
use quenchdb::{Database, Isolation, Transaction};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::io::BufWriter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// What follows a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    Continue,
    Quit,
}

/// Rows of a transaction or a snapshot.
type Rows<'a> = Box<dyn DoubleEndedIterator<Item = quenchdb::Result<(Vec<u8>, Vec<u8>)>> + 'a>;

/// A statement that a signal ends.
#[derive(Default)]
pub struct Work {
    is_running: AtomicBool,
    is_interrupted: AtomicBool,
}

impl Interruptible for Work {
    fn interrupt(&self) -> bool {
        self.is_interrupted.store(true, Ordering::SeqCst);
        self.is_running.load(Ordering::SeqCst)
    }
}

/// See the module.
pub struct Session {
    database: Database,
    transaction: Option<Transaction>,
    format: Format,
    has_timer: bool,
    /// A person reads the answers.
    is_interactive: bool,
    work: Arc<Work>,
}

impl Session {
    pub fn new(database: Database, format: Format, is_interactive: bool, work: Arc<Work>) -> Session {
        Session { database, transaction: None, format, has_timer: false, is_interactive, work }
    }

    /// Returns the database.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Returns whether a transaction is open.
    pub fn is_in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// Executes a statement. A failed statement leaves the transaction open, unless the transaction
    /// has to be run again: then it is rolled back.
    ///
    /// # Errors
    /// Of the database and of the output.
    pub fn execute(&mut self, statement: Statement) -> Result<Next> {
        let began = Instant::now();
        self.work.is_interrupted.store(false, Ordering::SeqCst);
        self.work.is_running.store(true, Ordering::SeqCst);
        let done = self.perform(statement);
        self.work.is_running.store(false, Ordering::SeqCst);
        if self.has_timer {
            complain(&format!("{:.3} ms", began.elapsed().as_secs_f64() * 1000.0));
        }
        done.map_err(|error| {
            let is_over = error.downcast_ref().is_some_and(quenchdb::Error::is_retryable);
            if is_over && self.transaction.take().is_some() {
                return error.context("the transaction was rolled back");
            }
            error
        })
    }

    fn perform(&mut self, statement: Statement) -> Result<Next> {
        match statement {
            Statement::Get { table, key } => self.get(&table, &key)?,
            Statement::Put { table, key, value } => {
                self.write(&table, |transaction, table| transaction.insert(table, &key, &value))?
            }
            Statement::Delete { table, key } => {
                if !self.write(&table, |transaction, table| transaction.remove(table, &key))? {
                    no_row(&key);
                }
            }
            Statement::Scan { table, range, limit, reverse } => {
                self.scan(&table, range.bounds(), limit, reverse)?;
            }
            Statement::Count { table, range } => self.count(&table, range.bounds())?,
            Statement::Tables => self.tables()?,
            Statement::Create(name) => {
                self.check_no_transaction("create")?;
                self.database.create_table(&name)?;
            }
            Statement::Drop(name) => {
                self.check_no_transaction("drop")?;
                self.database.drop_table(&name)?;
            }
            Statement::Rename { table, new_name } => {
                self.check_no_transaction("rename")?;
                self.database.rename_table(&table, &new_name)?;
            }
            Statement::Clear(name) => self.clear(&name)?,
            Statement::Begin(isolation) => self.begin(isolation)?,
            Statement::Commit => self.commit()?,
            Statement::Rollback => match self.transaction.take() {
                Some(transaction) => transaction.abort(),
                None => bail!("no transaction is open; `begin` begins one"),
            },
            Statement::Checkpoint => drop(self.database.checkpoint()?),
            Statement::Stat => print_text(&stat_text(&self.database))?,
            Statement::Timer(on) => self.has_timer = on,
            Statement::Mode(format) => self.format = format,
            Statement::Help(command) => print_text(&help(command.as_deref())?)?,
            Statement::Quit => return Ok(Next::Quit),
        }
        Ok(Next::Continue)
    }

    /// A table that is created or dropped does not belong to the transaction.
    fn check_no_transaction(&self, what: &str) -> Result<()> {
        match self.is_in_transaction() {
            true => bail!("`{what}` is not part of a transaction: commit or roll back first"),
            false => Ok(()),
        }
    }

    fn begin(&mut self, isolation: Isolation) -> Result<()> {
        if self.is_in_transaction() {
            bail!("a transaction is open: commit or roll back first");
        }
        self.transaction = Some(self.database.begin_with(isolation)?);
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        let transaction = self.transaction.take().context("no transaction is open; `begin` begins one")?;
        let csn = transaction.commit().context("not committed; the transaction is over")?;
        if self.is_interactive {
            print_text(&format!("committed, CSN {csn}"))?;
        }
        Ok(())
    }

    /// Changes a table, in the transaction or in one of its own.
    fn write<T>(
        &mut self,
        table: &str,
        change: impl FnOnce(&mut Transaction, &quenchdb::Table) -> quenchdb::Result<T>,
    ) -> Result<T> {
        let table = self.database.table(table)?;
        if let Some(transaction) = &mut self.transaction {
            return Ok(change(transaction, &table)?);
        }
        let mut transaction = self.database.begin()?;
        let done = change(&mut transaction, &table)?;
        transaction.commit()?;
        Ok(done)
    }

    /// Deletes all rows, in the transaction, or at once.
    fn clear(&mut self, table: &str) -> Result<()> {
        match &mut self.transaction {
            Some(transaction) => drop(transaction.clear(&self.database.table(table)?)?),
            None => drop(self.database.clear_table(table)?),
        }
        Ok(())
    }

    fn get(&self, table: &str, key: &[u8]) -> Result<()> {
        let table = self.database.table(table)?;
        let value = match &self.transaction {
            Some(transaction) => transaction.get(&table, key)?,
            None => self.database.begin_read()?.get(&table, key)?,
        };
        match (value, self.format) {
            (Some(value), Format::Json) => {
                let mut object = Map::new();
                json_bytes(&mut object, "key", key);
                json_bytes(&mut object, "value", &value);
                print_json(&object)
            }
            (Some(value), _) => print_text(&(escape(&value) + "\n")),
            (None, _) => {
                no_row(key);
                Ok(())
            }
        }
    }

    fn with_range<T>(
        &self,
        table: &str,
        range: KeyRange,
        read: impl FnOnce(Rows<'_>) -> Result<T>,
    ) -> Result<T> {
        let table = self.database.table(table)?;
        let done = match &self.transaction {
            Some(transaction) => read(Box::new(transaction.range(&table, range))),
            None => {
                let snapshot = self.database.begin_read()?;
                read(Box::new(snapshot.range(&table, range)))
            }
        }?;
        match self.work.is_interrupted.load(Ordering::SeqCst) {
            true => bail!("interrupted"),
            false => Ok(done),
        }
    }

    fn scan(&self, table: &str, range: KeyRange, limit: usize, reverse: bool) -> Result<()> {
        let mut out = RowWriter::new(BufWriter::new(std::io::stdout().lock()), self.format, false)?;
        self.with_range(table, range, |range| {
            let rows: Box<dyn Iterator<Item = _>> =
                if reverse { Box::new(range.rev()) } else { Box::new(range) };
            let goes = |_: &_| !self.work.is_interrupted.load(Ordering::SeqCst);
            let written = out.rows(table, rows.take(limit).take_while(goes)).and_then(|_| out.flush());
            match written {
                // The statements that follow may write to the database.
                Err(error) if is_broken_pipe(&error) => Ok(()),
                written => written,
            }
        })
    }

    fn count(&self, table: &str, range: KeyRange) -> Result<()> {
        let rows = self.with_range(table, range, |range| {
            let goes = |_: &_| !self.work.is_interrupted.load(Ordering::SeqCst);
            Ok(range.take_while(goes).try_fold(0u64, |count, row| row.map(|_| count + 1))?)
        })?;
        match self.format {
            Format::Json => print_json(&json!({"name": table, "rows": rows})),
            _ => print_text(&rows.to_string()),
        }
    }

    /// Lists the tables, those with types with their types.
    fn tables(&self) -> Result<()> {
        let names = self.database.tables();
        let types_of = |name: &String| self.database.table(name).ok()?.types().map(|types| types.to_string());
        if let Format::Json = self.format {
            let types: Map<String, Value> =
                names.iter().filter_map(|name| Some((name.clone(), types_of(name)?.into()))).collect();
            let mut object = Map::from_iter([("tables".into(), json!(names))]);
            if !types.is_empty() {
                object.insert("types".into(), types.into());
            }
            return print_json(&object);
        }
        let columns = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let line = |name: &String| match types_of(name) {
            Some(types) => format!("{name:<columns$}  {types}"),
            None => name.clone(),
        };
        match names.iter().map(line).collect::<Vec<_>>() {
            lines if lines.is_empty() => Ok(()),
            lines => print_text(&lines.join("\n")),
        }
    }

    /// Ends the session. Returns whether it rolled a transaction back.
    ///
    /// # Errors
    /// As the close of the database.
    pub fn close(mut self) -> Result<bool> {
        let was_open = self.transaction.take().is_some();
        self.database.close()?;
        Ok(was_open)
    }
}

/// Not on standard output: a value may read the same.
fn no_row(key: &[u8]) {
    complain(&format!("no row has the key `{}`", escape(key)));
}

/// Columns before the description of a command.
const USAGE_COLUMNS: usize = 26;

fn help(command: Option<&str>) -> Result<String> {
    if let Some(name) = command {
        let command = find(name).with_context(|| format!("`{name}` is no command; .help lists them"))?;
        return Ok(format!("{} {}: {}", command.name, command.arguments, command.what).replace(" :", ":"));
    }
    let mut text = String::new();
    for command in COMMANDS.iter().filter(|command| !command.what.is_empty()) {
        let usage = format!("{} {}", command.name, command.arguments);
        // A long usage has a line of its own.
        let end =
            if usage.len() > USAGE_COLUMNS { format!("\n{:USAGE_COLUMNS$}", "") } else { String::new() };
        let _ = writeln!(text, "{usage:<USAGE_COLUMNS$}{end} {}", command.what);
    }
    text.push_str(
        "Words with blanks or `;` are in quotes; \\t \\n \\r \\\\ and \\xNN are escapes. `#` begins a comment.\n",
    );
    text.push_str("Without `begin` each statement is a transaction of its own. A `;` may end a statement.\n");
    text.push_str("Commands may be in upper case. Ctrl-D ends.\n");
    Ok(text)
}
