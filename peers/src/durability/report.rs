//! The table and its JSON.

use super::child::Answer;
use super::measure::{FailedSync, Row};
use super::trace::{Syncs, WRITES};
use anyhow::Result;
use serde_json::{Value, json};

/// Prints one row an engine.
pub(super) fn print(rows: &[Row], as_json: bool) -> Result<()> {
    if as_json {
        println!("{}", serde_json::to_string(&rows.iter().map(object).collect::<Vec<_>>())?);
        return Ok(());
    }
    println!(
        "| engine | syncs a write: default | durable option | survives a kill | a failed sync: said / later write / row now, closed, killed | second open: same / other process | bytes |"
    );
    println!("|---|---|---|---|---|---|---|");
    for row in rows {
        println!(
            "| {} | {} | {} | {} | {} | {} / {} | {} |",
            row.engine,
            a_write(&row.by_default),
            a_write(&row.durable),
            if row.survives_kill { "yes" } else { "**no**" },
            row.failed_sync.as_ref().map_or("nothing to fail".into(), failed),
            accepted(&row.second_open_same_process),
            accepted(&row.second_open_other_process),
            row.bytes,
        );
    }
    Ok(())
}

/// `1 fdatasync`, `0.05 fsync`, `1 fdatasync + 1 O_DSYNC write`.
fn a_write(syncs: &Syncs) -> String {
    let each = |(kind, count): (&String, &u32)| {
        let number = (f64::from(*count) * 100.0 / f64::from(WRITES)).round() / 100.0;
        format!("{number} {kind}")
    };
    if syncs.is_empty() { "0".into() } else { syncs.iter().map(each).collect::<Vec<_>>().join(" + ") }
}

fn failed(seen: &FailedSync) -> String {
    let said = if seen.said == Answer::Done { "**success**" } else { accepted(&seen.said) };
    let rows = [&seen.row_in_the_process, &seen.row_after_close, &seen.row_after_kill].map(there);
    format!("{said} / {} / {}", accepted(&seen.later_write), rows.join(", "))
}

fn accepted(answer: &Answer) -> &'static str {
    match answer {
        Answer::Done | Answer::Value(_) | Answer::Absent => "accepted",
        Answer::Refused(_) => "error",
        Answer::Waits => "waits",
        Answer::Gone => "the process ends",
    }
}

fn there(answer: &Answer) -> &'static str {
    match answer {
        Answer::Value(_) => "yes",
        Answer::Absent => "no",
        other => accepted(other),
    }
}

fn text(answer: &Answer) -> Value {
    match answer {
        Answer::Done => json!("ok"),
        Answer::Value(value) => json!({ "value": value }),
        Answer::Absent => json!("absent"),
        Answer::Refused(text) => json!({ "error": text }),
        Answer::Waits => json!("waits"),
        Answer::Gone => json!("gone"),
    }
}

fn object(row: &Row) -> Value {
    json!({
        "engine": row.engine,
        "writes": WRITES,
        "syncs_default": row.by_default,
        "syncs_durable": row.durable,
        "survives_kill": row.survives_kill,
        "failed_sync": row.failed_sync.as_ref().map(|seen| json!({
            "said": text(&seen.said),
            "later_write": text(&seen.later_write),
            "row_in_the_process": text(&seen.row_in_the_process),
            "row_after_close": text(&seen.row_after_close),
            "row_after_kill": text(&seen.row_after_kill),
        })),
        "second_open_same_process": text(&row.second_open_same_process),
        "second_open_other_process": text(&row.second_open_other_process),
        "bytes": row.bytes,
    })
}
