//! The table of instructions on the page of performance is that of `docs/instructions.json`.
//!
//! `scripts/instructions` counts again, and writes both.

use super::numbers::{is_blessed, with_commas};
use super::root;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;

const NUMBERS: &str = "docs/instructions.json";
const PAGE: &str = "docs/guide/performance.md";
const BEGIN: &str = "<!-- instructions -->\n";
const END: &str = "<!-- end of instructions -->";

/// The engines in the order of tables, and their names on the page.
const ENGINES: [(&str, &str); 6] = [
    ("quenchdb", "QuenchDB"),
    ("rocksdb", "RocksDB"),
    ("sqlite", "SQLite"),
    ("lmdb", "LMDB"),
    ("redb", "redb"),
    ("fjall", "fjall"),
];

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_else(|| panic!("{field} of {value}"))
}

/// Returns the table of the recorded numbers.
fn table(recorded: &Value) -> String {
    let lines = recorded["operations"].as_array().expect("the operations");
    let counted = |line: &Value, engine: &str| line["engines"][engine].as_u64();
    let engines: Vec<_> = ENGINES
        .into_iter()
        .filter(|(engine, _)| lines.iter().any(|line| counted(line, engine).is_some()))
        .collect();
    let names: String = engines.iter().map(|(_, name)| format!(" {name} |")).collect();
    let mut table = format!("\n| operation | |{names}\n|---|---|{}\n", "---|".repeat(engines.len()));
    for line in lines {
        write!(table, "| `{}` | {} |", text(line, "operation"), text(line, "description")).expect("a string");
        for (engine, _) in &engines {
            let number = counted(line, engine).map_or_else(String::new, |n| with_commas(n as usize));
            write!(table, " {number} |").expect("a string");
        }
        table.push('\n');
    }
    table
}

#[test]
fn page_of_performance_has_the_recorded_instructions() {
    let recorded = fs::read_to_string(root().join(NUMBERS)).expect("the recorded numbers");
    let recorded: Value = serde_json::from_str(&recorded).expect("JSON");
    let page = fs::read_to_string(root().join(PAGE)).expect("the page of performance");
    let (before, rest) = page.split_once(BEGIN).expect("the begin of the table");
    let (stated, after) = rest.split_once(END).expect("the end of the table");
    let table = table(&recorded) + "\n";
    if is_blessed() {
        fs::write(root().join(PAGE), format!("{before}{BEGIN}{table}{END}{after}")).expect("writable");
        return;
    }
    assert_eq!(stated, table, "make the table again with QUENCH_BLESS=1");
}

#[test]
fn table_of_instructions_has_a_column_for_each_engine() {
    let recorded = r#"{"operations": [
        {"operation": "get", "description": "a get", "engines": {"lmdb": 1866, "quenchdb": 950}},
        {"operation": "payment", "description": "a Payment", "engines": {"quenchdb": 12345}}
    ]}"#;
    let table = table(&serde_json::from_str(recorded).expect("JSON"));
    let lines: Vec<&str> = table.lines().filter(|line| !line.is_empty()).collect();
    let [names, _, get, payment] = lines[..] else { panic!("{table}") };
    assert_eq!(names, "| operation | | QuenchDB | LMDB |");
    assert_eq!(get, "| `get` | a get | 950 | 1,866 |");
    assert_eq!(payment, "| `payment` | a Payment | 12,345 |  |");
}
