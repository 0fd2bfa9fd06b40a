//! What engines do for the durability of one row, measured from outside with `strace`.
//!
//! Each engine runs in a process of its own that takes one command a line (see [`child`]). The
//! measurement needs nothing of the engine but this: it counts system calls between two commands,
//! kills the process, and injects errors into calls.
//!
//! | question | how it is answered |
//! |---|---|
//! | syncs a write | calls of `fsync`, `fdatasync`, `msync` and `sync_file_range`, writes with `RWF_DSYNC` and writes to descriptors opened with `O_DSYNC`, over [`trace::WRITES`] puts of one row |
//! | survives a kill | SIGKILL right after the first put; a new process reads the row |
//! | a failed sync | each of these calls fails with EIO during one put, then none: what the put said, whether the next put is accepted, and where the row is |
//! | a second open | in the same process and from another, while the first has the database open |
//! | bytes | the apparent length of all files after one row and a close |
//!
//! What that cannot show: the machine is not cut off, so data of a failed sync is still in the page
//! cache, and "there after reopening" says what the engine makes of its files. Requests of io_uring
//! are no system calls of their own and are not counted.

mod child;
mod engines;
mod measure;
mod report;
mod trace;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `quench-peers durability`.
#[derive(Subcommand)]
pub enum Durability {
    /// Measure what engines do by default and with their durable option, with strace
    Durability(Arguments),
    /// Serve one engine on standard input and output
    #[command(hide = true)]
    DurabilityChild {
        /// Name of the engine
        engine: String,
        /// `default` or `durable`
        mode: Mode,
        /// Directory of the database
        directory: PathBuf,
    },
}

/// The flags of `quench-peers durability`.
#[derive(Args)]
pub struct Arguments {
    /// Measure only these engines
    #[arg(long, value_name = "NAME")]
    engine: Vec<String>,
    /// Measure another program, too, called as `COMMAND default|durable DIRECTORY`, which takes
    /// the commands `open`, `put KEY VALUE`, `get KEY`, `close`, one a line
    #[arg(long, value_name = "NAME=COMMAND")]
    child: Vec<String>,
    /// Keep the databases below this directory; it decides the file system
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

/// Whether the engine is used as its first example shows, or with its durable option.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Mode {
    /// As the engine's first example shows.
    Default,
    /// With the option that makes each write durable.
    Durable,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Default => "default",
            Mode::Durable => "durable",
        }
    }
}

/// Runs the command; prints a table, or JSON.
///
/// # Errors
/// No strace, no such engine, a child that ends.
pub fn run(command: Durability, json: bool) -> Result<()> {
    match command {
        Durability::DurabilityChild { engine, mode, directory } => child::serve(&engine, mode, &directory),
        Durability::Durability(arguments) => {
            let subjects = subjects(&arguments)?;
            trace::check()?;
            let mut rows = Vec::new();
            for (number, subject) in subjects.iter().enumerate() {
                eprintln!("{} of {}: {}", number + 1, subjects.len(), subject.name);
                rows.push(measure::measure(subject, &arguments.dir)?);
            }
            report::print(&rows, json)
        }
    }
}

/// An engine to measure: a name and the program that serves it.
struct Subject {
    name: String,
    /// Mode and directory are appended.
    command: Vec<String>,
}

fn subjects(arguments: &Arguments) -> Result<Vec<Subject>> {
    let program = std::env::current_exe()?.display().to_string();
    let own = |name: &str| Subject {
        name: name.into(),
        command: vec![program.clone(), "durability-child".into(), name.into()],
    };
    let mut subjects = Vec::new();
    for name in &arguments.engine {
        if !engines::NAMES.contains(&name.as_str()) {
            bail!("there is no engine {name} in this build; there are: {}", engines::NAMES.join(", "));
        }
        subjects.push(own(name));
    }
    for child in &arguments.child {
        let Some((name, command)) = child.split_once('=') else {
            bail!("--child {child}: write NAME=COMMAND");
        };
        let command: Vec<_> = command.split_whitespace().map(String::from).collect();
        if command.is_empty() {
            bail!("--child {child}: the command is empty");
        }
        subjects.push(Subject { name: name.into(), command });
    }
    if subjects.is_empty() {
        subjects.extend(engines::NAMES.iter().map(|name| own(name)));
    }
    Ok(subjects)
}
