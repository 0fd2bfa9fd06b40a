//! Cargo, in the sources that this program was built from.

use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::{Child, Command};

/// Variables that cargo sets for a program that it runs. They change the fingerprints of some build
/// scripts, so that cargo inside of that program would build again what it has built.
const OF_A_RUN: [&str; 4] = ["CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_BIN_", "CARGO_CRATE_"];

/// A command of cargo, without input.
///
/// # Errors
/// The sources are gone.
pub fn command(subcommand: &str) -> Result<Command> {
    let workspace = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    ensure!(
        workspace.join("engine/tests").exists(),
        "the sources that this program was built from are not at {} any more: run it in a clone, \
         `cargo run --release -p quench-sim -- ...`",
        workspace.display()
    );
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.arg(subcommand).current_dir(workspace).stdin(std::process::Stdio::null());
    for (name, _) in std::env::vars_os() {
        if OF_A_RUN.iter().any(|of_a_run| name.to_string_lossy().starts_with(of_a_run)) {
            command.env_remove(name);
        }
    }
    Ok(command)
}

/// Returns the commit of the sources, with `-dirty` if they differ from it; `unknown` without git.
pub fn commit() -> String {
    let git = |arguments: &[&str]| {
        Command::new("git").args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()
    };
    let Some(head) = git(&["rev-parse", "--short", "HEAD"]).filter(|head| head.status.success()) else {
        return "unknown".into();
    };
    let same = git(&["diff", "--quiet", "HEAD", "--", ":/*.rs", ":/*.toml", ":/*.lock"]);
    let dirty = if same.is_some_and(|same| same.status.success()) { "" } else { "-dirty" };
    format!("{}{dirty}", String::from_utf8_lossy(&head.stdout).trim())
}

/// Starts it.
///
/// # Errors
/// There is no cargo.
pub fn spawn(command: &mut Command) -> Result<Child> {
    command.spawn().with_context(|| {
        format!(
            "cannot start {}: install Rust (https://rustup.rs), or say in CARGO where cargo is",
            command.get_program().display()
        )
    })
}
