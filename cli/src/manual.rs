//! `completions` and `man`: files for shells and for `man`, made of the commands themselves.

use crate::output::Outcome;
use anyhow::{Context, Result};
use clap::Command;
use clap_mangen::Man;
use std::io::Write;
use std::path::PathBuf;

/// `quench completions`
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quench completions bash > /usr/share/bash-completion/completions/quench\n  \
                        quench completions zsh > \"${fpath[1]}/_quench\"\n  \
                        quench completions fish > ~/.config/fish/completions/quench.fish"
)]
pub struct CompletionsArgs {
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

/// `quench man`
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quench man load | man -l -\n  quench man --to /usr/local/share/man/man1"
)]
pub struct ManArgs {
    /// Command [default: the page of the program]
    command: Option<String>,
    /// Write the pages of the program and of all commands into this directory, created if missing
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "command")]
    to: Option<PathBuf>,
}

/// Prints text that was made in memory, so that a closed pipe is an error of this program, which it
/// ignores.
fn print(text: &[u8]) -> Result<Outcome> {
    let mut out = std::io::stdout().lock();
    out.write_all(text)?;
    out.flush()?;
    Ok(Outcome::Done)
}

/// Runs `completions`.
pub fn completions(args: &CompletionsArgs, program: Command) -> Result<Outcome> {
    let commands = program.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let mut program = Command::new("quench").args(program.get_arguments().cloned()).subcommands(commands);
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut program, "quench", &mut text);
    print(&text)
}

/// Runs `man`.
pub fn man(args: &ManArgs, program: Command) -> Result<Outcome> {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    if let Some(directory) = &args.to {
        let failed = || format!("cannot write to {}", directory.display());
        std::fs::create_dir_all(directory).with_context(failed)?;
        clap_mangen::generate_to(program, directory).with_context(failed)?;
        return Ok(Outcome::Done);
    }
    let page = match &args.command {
        None => program,
        Some(name) => {
            let found = program.get_subcommands().find(|command| command.get_name() == name.as_str());
            found.with_context(|| format!("no command is called `{name}`"))?.clone()
        }
    };
    let mut text = Vec::new();
    Man::new(page).render(&mut text)?;
    print(&text)
}
