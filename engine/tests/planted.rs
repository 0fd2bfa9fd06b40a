//! The suite against planted bugs: each is planted in turn, and some test has to notice.
//!
//! ```sh
//! cargo test -p quenchdb --features planted --test planted                     # all, a table; exit 1 if one is missed
//! cargo test -p quenchdb --features planted --test planted -- fence-skipped    # one or several
//! cargo test -p quenchdb --features planted --test planted -- --json           # for programs; --write FILE for the document
//! ```
//!
//! Who is to notice a bug is said in [`detectors`]: tests of the ordinary suite, built with the feature. Each runs in a process of its own with
//! a bound of time. One that hangs has noticed nothing: a test with a deadline of its own has to say so. Before a test counts it has to
//! pass without a bug.

#[path = "planted/detectors.rs"]
mod detectors;
#[path = "planted/runner.rs"]
mod runner;
#[path = "planted/table.rs"]
mod table;

use quenchdb::base::planted::Bug;
use std::process::ExitCode;

fn main() -> ExitCode {
    let (mut bugs, mut json, mut file, mut arguments) = (Vec::new(), false, None, std::env::args().skip(1));
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => json = true,
            "--write" => file = arguments.next(),
            // What `cargo test` hands on to every test.
            option if option.starts_with('-') => {}
            name => match Bug::named(name) {
                Some(bug) => bugs.push(bug),
                None => {
                    eprintln!("{name}: there is no such planted bug; these are:");
                    Bug::ALL.iter().for_each(|bug| eprintln!("  {:28} {}", bug.name(), bug.wrong()));
                    return ExitCode::FAILURE;
                }
            },
        }
    }
    if bugs.is_empty() {
        bugs.extend_from_slice(Bug::ALL);
    }
    let rows = match runner::run(&bugs, &mut |row| {
        if !json {
            println!("{}", table::line(row))
        }
    }) {
        Ok(rows) => rows,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    if json {
        println!("{}", table::json(&rows));
    }
    if let Some(file) = file {
        let document = std::fs::read_to_string(&file).unwrap_or_default();
        if let Err(error) = std::fs::write(&file, table::written(&document, &rows)) {
            eprintln!("{file}: {error}");
            return ExitCode::FAILURE;
        }
    }
    let missed = rows.iter().filter(|row| row.caught.is_none()).count();
    eprintln!("{} planted bugs, {} caught, {missed} missed", rows.len(), rows.len() - missed);
    if missed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
