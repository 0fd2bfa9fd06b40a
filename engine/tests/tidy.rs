//! Checks the sources: imports, sizes, headers, words, unfinished work, links.

mod exceptions;
mod figures;
mod functions;
mod imports;
mod instructions;
mod links;
mod numbers;
mod packages;
mod prose;

use quenchdb::internals::base::planted::Bug;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules and their ranks: a module imports only from lower ranks.
const RANKS: [(&str, u32); 15] = [
    ("base", 0),
    ("sync", 1),
    ("device", 2),
    ("log", 3),
    ("store", 3),
    ("commit", 4),
    ("buffer", 4),
    ("tree", 5),
    ("transaction", 6),
    ("checkpoint", 7),
    ("recovery", 8),
    ("feed", 8),
    ("backup", 8),
    ("api", 9),
    ("typed", 10),
];

/// The only modules that may contain unsafe code.
const UNSAFE_ROOMS: [&str; 3] = ["sync", "device", "buffer"];

const LINES_MAX: usize = 700;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the engine is a folder of the workspace")
        .to_path_buf()
}

fn files(under: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(under) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() && name != "target" && name != ".git" {
            files(&path, ending, found);
        } else if name.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
}

fn all(ending: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    files(&root(), ending, &mut found);
    assert!(!found.is_empty());
    found.sort();
    found
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).expect("a source file is UTF-8");
            (path.strip_prefix(root()).expect("under the root").display().to_string(), text)
        })
        .collect()
}

/// A file and its text.
struct Source {
    /// Path below the root of the workspace.
    path: String,
    text: String,
}

fn sources(ending: &str) -> Vec<Source> {
    all(ending).into_iter().map(|(path, text)| Source { path, text }).collect()
}

/// Fails with all problems, one per line.
#[track_caller]
fn report(rule: &str, wrong: impl IntoIterator<Item = impl AsRef<str>>) {
    let wrong: Vec<String> = wrong.into_iter().map(|line| line.as_ref().to_string()).collect();
    assert!(wrong.is_empty(), "{rule}:\n{}", wrong.join("\n"));
}

fn room_of(path: &str) -> Option<(&'static str, u32)> {
    let rest = path.strip_prefix("engine/src/")?;
    let name = rest.split('/').next()?.trim_end_matches(".rs");
    RANKS.iter().copied().find(|(room, _)| *room == name)
}

#[test]
fn rooms_import_only_from_lower_ranks() {
    let mut wrong = Vec::new();
    for (path, text) in all(".rs") {
        let Some((room, rank)) = room_of(&path) else { continue };
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            for (other, other_rank) in RANKS {
                let used =
                    code.contains(&format!("crate::{other}::")) || code.contains(&format!("crate::{other};"));
                if used && other != room && other_rank >= rank {
                    wrong.push(format!(
                        "{path}:{}: {room} (rank {rank}) uses {other} (rank {other_rank})",
                        number + 1
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A reader of the core of commits, or of the log, meets no paper: these stand on it.
#[test]
fn the_core_of_commits_names_no_paper() {
    let below = [
        ("engine/src/commit/core/", &["papers::", "pages::", "protocols::"][..]),
        ("engine/src/commit/pages/", &["papers::"][..]),
        ("engine/src/log/stream.rs", &["memory::", "mapped"][..]),
    ];
    let mut wrong = Vec::new();
    for (path, text) in all(".rs") {
        let Some((_, names)) = below.iter().find(|(folder, _)| path.starts_with(folder)) else { continue };
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            if let Some(name) = names.iter().find(|name| code.contains(**name)) {
                wrong.push(format!("{path}:{}: names `{name}`", number + 1));
            }
        }
    }
    report("the core of commits names no paper", wrong);
}

#[test]
fn unsafe_code_stays_in_its_rooms() {
    let mut wrong = Vec::new();
    for (path, text) in all(".rs") {
        let Some((room, _)) = room_of(&path) else { continue };
        if !UNSAFE_ROOMS.contains(&room)
            && text.lines().any(|line| line.contains("unsafe ") && !line.trim_start().starts_with("//"))
        {
            wrong.push(path);
        }
    }
    assert!(wrong.is_empty(), "unsafe outside its rooms: {wrong:?}");
}

#[test]
fn source_files_state_their_purpose_and_are_short() {
    let mut wrong = Vec::new();
    for (path, text) in all(".rs") {
        if !text.starts_with("//!") {
            wrong.push(format!("{path}: does not start with its purpose (`//!`)"));
        }
        let lines = text.lines().count();
        if lines > LINES_MAX {
            wrong.push(format!("{path}: {lines} lines, more than {LINES_MAX}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_work_is_left_in_the_sources() {
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("dbg", "!("),
    ];
    let mut wrong = Vec::new();
    for (path, text) in all(".rs") {
        for (number, line) in text.lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark)) {
                wrong.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_are_named_after_what_they_hold() {
    let forbidden = ["utils", "util", "common", "helpers", "misc"];
    for (path, _) in all(".rs") {
        let name = path.rsplit('/').next().unwrap_or("").trim_end_matches(".rs");
        assert!(!forbidden.contains(&name), "{path}");
    }
}

/// A command that is run by hand generates the table. It must run again after a bug is added,
/// renamed or removed. The command before the table and the table's head name the same number of
/// seeds, and no row has a larger seed.
#[test]
fn the_table_of_planted_bugs_is_complete() {
    let document = fs::read_to_string(root().join("docs/internals/planted.md")).expect("it is there");
    let (_, generated) =
        document.split_once("-- planted --seeds ").expect("the command that makes the table");
    let (seeds, generated) = generated.split_once(' ').expect("a number of seeds");
    let most: u64 = seeds.parse().expect("a number of seeds");
    let head = format!("| first of {seeds} seeds |");
    assert!(generated.contains(&head), "the head of the table does not say `{head}`: make the table again");
    let rows = generated.lines().filter(|line| line.starts_with("| `"));
    let cells = |line: &str| -> Vec<String> { line.split('|').map(|cell| cell.trim().into()).collect() };
    let table: Vec<Vec<String>> = rows.map(cells).collect();
    let names: Vec<&str> = table.iter().map(|cells| cells[1].trim_matches('`')).collect();
    let bugs: Vec<&str> = Bug::ALL.iter().map(|bug| bug.name()).collect();
    assert_eq!(names, bugs, "make the table again");
    for (cells, bug) in table.iter().zip(Bug::ALL) {
        let [_, _, wrong, breaks, by, runs, seconds, seed, _] = &cells[..] else {
            panic!("{}: {} cells", bug.name(), cells.len());
        };
        assert_eq!([&**wrong, breaks], [bug.wrong(), bug.breaks()], "{}: make the table again", bug.name());
        assert!(!by.is_empty() && by != "nobody", "{} is not caught", bug.name());
        assert!(runs.parse::<u64>().is_ok() && seconds.parse::<f64>().is_ok(), "{}: by hand?", bug.name());
        let is_one = |seed: &str| seed.parse::<u64>().is_ok_and(|seed| (1..=most).contains(&seed));
        assert!(seed == "-" || is_one(seed), "{}: {seed} is none of {seeds} seeds", bug.name());
    }
}
