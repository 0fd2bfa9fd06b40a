//! All numbers of a report as one table of comma-separated values.

use super::entry::Report;
use anyhow::Result;

const HEADER: [&str; 10] =
    ["figure", "part", "x", "variant", "measure", "unit", "median", "min", "max", "runs"];

/// Returns one line for each number, with a header.
///
/// # Errors
/// None that writing to memory has.
pub fn csv(report: &Report) -> Result<String> {
    let mut table = csv::Writer::from_writer(Vec::new());
    table.write_record(HEADER)?;
    for figure in &report.figures {
        for row in &figure.rows {
            let names = [&figure.id, &row.part, &row.x, &row.variant, &row.measure, &row.unit];
            let numbers = [row.value.median, row.value.min, row.value.max].map(|number| number.to_string());
            let runs = row.value.runs.len().to_string();
            table.write_record(names.into_iter().chain(&numbers).chain([&runs]))?;
        }
    }
    Ok(String::from_utf8(table.into_inner()?)?)
}
