//! What was found, for people, programs and the documentation.

use super::runner::Row;
use std::fmt::Write;

fn by(row: &Row) -> String {
    row.caught.as_ref().map_or_else(|| format!("MISSED by {}", row.missed_by.join(", ")), |c| c.by.clone())
}

fn seed(row: &Row) -> Option<u64> {
    row.caught.as_ref()?.seed
}

/// One line of the running output.
pub fn line(row: &Row) -> String {
    let seed = seed(row).map_or(String::new(), |seed| format!(" seed {seed}"));
    format!("{:28} {:6.1} s  {}{seed}", row.bug.name(), row.seconds, by(row))
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out + "\""
}

/// An array with an object for each bug.
pub fn json(rows: &[Row]) -> String {
    let objects: Vec<String> = rows
        .iter()
        .map(|row| {
            let said = row.caught.as_ref().map_or("null".into(), |caught| quoted(&caught.said));
            let by = row.caught.as_ref().map_or("null".into(), |caught| quoted(&caught.by));
            let seed = seed(row).map_or("null".into(), |seed| seed.to_string());
            format!(
                "{{\"bug\":{},\"room\":{},\"wrong\":{},\"breaks\":{},\"caught_by\":{by},\"seed\":{seed},\"said\":{said},\"seconds\":{:.2}}}",
                quoted(row.bug.name()),
                quoted(row.bug.room()),
                quoted(row.bug.wrong()),
                quoted(row.bug.breaks()),
                row.seconds
            )
        })
        .collect();
    format!("[{}]", objects.join(",\n"))
}

/// The table of `docs/planted.md`.
pub fn markdown(rows: &[Row]) -> String {
    let mut out =
        String::from("| bug | what is wrong | breaks | caught by | seed | s |\n|---|---|---|---|---|---|\n");
    for row in rows {
        let seed = seed(row).map_or(String::new(), |seed| seed.to_string());
        let (bug, by) = (row.bug, by(row).replace("::", ":: "));
        let cells = [bug.name(), bug.wrong(), bug.breaks(), by.trim_end(), &seed];
        for cell in cells {
            let _ = write!(out, "| {} ", cell.replace('|', "\\|"));
        }
        let _ = writeln!(out, "| {:.1} |", row.seconds);
    }
    out
}
