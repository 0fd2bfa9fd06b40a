//! `shell`: statements typed by a person, or of a script.

mod words;
mod statement;
mod session;
mod complete;

use crate::commands::{SourceArgs, Writable, open_checkpoint, open_to_read};
use crate::errors::{self, complain};
use crate::output::Outcome;
use crate::rows::{BYTE_ORDER_MARK, Format};
use crate::{signals, terminal};
use anyhow::{Context, Result, bail};
use complete::Completion;
use quenchdb::Database;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};
use session::{Next, Session, Work};
use std::fs::DirBuilder;
use std::io::{BufRead, IsTerminal, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Lines of the history that are kept.
const HISTORY_MAX: usize = 10_000;

/// `quench shell`
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  quench shell mydb\n  quench shell mydb < script\n  \
                        quench shell mydb -c 'scan users from a limit 10'\n\n\
    In the shell, .help lists the commands. A `;` between statements of one line is allowed.\n\
    A script ends at the first error, which names its line.\n\
    The history is in $XDG_STATE_HOME/quench/history or ~/.local/state/quench/history, or in the\n\
    file that QUENCH_HISTORY names; if that is empty, there is none.")]
pub struct ShellArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Create the database if it is missing
    #[arg(long, conflicts_with_all = ["read_only", "checkpoint"])]
    create: bool,
    /// Change nothing; others may read at the same time
    #[arg(long, conflicts_with = "checkpoint")]
    read_only: bool,
    /// Execute this statement and end; may be repeated
    #[arg(short = 'c', value_name = "STATEMENT")]
    statements: Vec<String>,
}

/// Where the statements of a session come from.
enum From {
    Terminal,
    Script,
    Arguments,
}

/// Opens the database. Returns what undoes its creation, too, unless it is open to be read.
fn open(args: &ShellArgs) -> Result<(Database, Option<Writable>)> {
    let directory = &args.source.directory;
    if args.source.checkpoint {
        return Ok((open_checkpoint(directory)?, None));
    }
    if args.read_only {
        return Ok((open_to_read(directory)?, None));
    }
    let writable =
        if args.create { Writable::open_or_create(directory)? } else { Writable::open(directory)? };
    Ok((writable.database()?.clone(), Some(writable)))
}

/// Runs `shell`.
pub fn run(args: &ShellArgs, as_json: bool) -> Result<Outcome> {
    let from = match (args.statements.is_empty(), std::io::stdin().is_terminal()) {
        (false, _) => From::Arguments,
        (true, true) => From::Terminal,
        (true, false) => From::Script,
    };
    let work = Arc::new(Work::default());
    let format = if as_json { Format::Json } else { Format::Tsv };
    let (database, mut writable) = open(args)?;
    let mut session = Session::new(database, format, matches!(from, From::Terminal), work.clone());
    let executed = execute_all(args, &from, &mut session, &work);
    // What a script has written before its error stays.
    let stays = executed.is_ok() || !session.database().tables().is_empty();
    if let Some(writable) = writable.as_mut().filter(|_| stays) {
        writable.keep();
    }
    if let Err(error) = executed {
        // Before its creation is undone, nothing may use the database.
        drop(session);
        return Err(error);
    }
    match (session.close()?, from) {
        (true, From::Terminal) => complain("the open transaction was rolled back"),
        (true, _) => {
            bail!("the script ended inside a transaction, which was rolled back: `commit` is missing")
        }
        (false, _) => {}
    }
    Ok(Outcome::Done)
}

/// Executes the statements of all lines.
fn execute_all(args: &ShellArgs, from: &From, session: &mut Session, work: &Arc<Work>) -> Result<()> {
    match from {
        From::Arguments => script(session, args.statements.iter().map(|line| Ok(line.clone().into()))),
        From::Script => script(session, std::io::stdin().lock().split(b'\n')),
        From::Terminal => {
            terminal::remember();
            signals::handle();
            signals::interrupt_first(work);
            let name =
                args.source.directory.file_name().map_or("quench".into(), |name| name.to_string_lossy());
            interactive(session, &name)
        }
    }
}

/// Executes lines up to the first error.
fn script(session: &mut Session, lines: impl Iterator<Item = std::io::Result<Vec<u8>>>) -> Result<()> {
    for (number, line) in (1..).zip(lines) {
        let mut line = line.context("cannot read the script")?;
        if number == 1 && line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        let line = String::from_utf8(line).ok().context("not UTF-8: write \\xNN for other bytes");
        let executed = line.and_then(|line| execute(session, &line));
        if executed.with_context(|| format!("line {number}"))? == Next::Quit {
            break;
        }
    }
    Ok(())
}

fn execute(session: &mut Session, line: &str) -> Result<Next> {
    for statement in statement::parse(line).map_err(anyhow::Error::msg)? {
        if session.execute(statement)? == Next::Quit {
            return Ok(Next::Quit);
        }
    }
    Ok(Next::Continue)
}

/// Reads lines from the terminal until the end.
fn interactive(session: &mut Session, name: &str) -> Result<()> {
    let config = Config::builder()
        .max_history_size(HISTORY_MAX)?
        .history_ignore_space(true)
        .completion_type(CompletionType::List)
        .build();
    let mut editor = Editor::<Completion, FileHistory>::with_config(config)?;
    editor.set_helper(Some(Completion { database: session.database().clone() }));
    let history = history_file();
    if let Some(file) = history.as_ref().filter(|file| file.exists())
        && let Err(error) = editor.load_history(file)
    {
        complain(&format!("cannot read the history {}: {error}", file.display()));
    }
    // Ignores a closed standard error.
    let _ = writeln!(
        std::io::stderr(),
        "QuenchDB {}. .help lists the commands, Ctrl-D ends.",
        env!("CARGO_PKG_VERSION")
    );
    loop {
        let mark = if session.is_in_transaction() { "*>" } else { ">" };
        let typed = match editor.readline(&format!("{name}{mark} ")) {
            Ok(typed) => typed,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(error).context("cannot read from the terminal"),
        };
        let _ = editor.add_history_entry(&typed);
        if lines(session, &typed)? == Next::Quit {
            break;
        }
    }
    if let Some(file) = history {
        save_history(&mut editor, &file);
    }
    Ok(())
}

/// Executes what was typed or pasted. Reports an error, and continues after it.
fn lines(session: &mut Session, typed: &str) -> Result<Next> {
    for line in typed.lines() {
        match execute(session, line) {
            Ok(Next::Continue) => {}
            Ok(Next::Quit) => return Ok(Next::Quit),
            Err(error) => drop(errors::report(&error)),
        }
    }
    Ok(Next::Continue)
}

fn history_file() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    if let Some(file) = variable("QUENCH_HISTORY") {
        return (!file.as_os_str().is_empty()).then_some(file);
    }
    let state = variable("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let state = state.or_else(|| Some(variable("HOME")?.join(".local/state")))?;
    Some(state.join("quench/history"))
}

/// A session without a history is no failure.
fn save_history(editor: &mut Editor<Completion, FileHistory>, file: &std::path::Path) {
    if let Some(parent) = file.parent() {
        let _ = DirBuilder::new().recursive(true).mode(0o700).create(parent);
    }
    if let Err(error) = editor.append_history(file) {
        complain(&format!("cannot write the history {}: {error}", file.display()));
    }
}

#[cfg(test)]
mod tests;
