//! What was done with each table.

use super::engine::Engine;
use super::sample::{Change, Figure, Sample, Value};
use std::borrow::Cow;
use std::collections::HashMap;

/// Rows of a table that were read and changed since open.
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TableCounts {
    /// The name of the table.
    pub name: String,
    /// Rows that were read by their keys, whether they existed or not, and rows that ranges
    /// returned. Those of a transaction or snapshot count when it ends, those of a range when it is
    /// dropped.
    pub rows_read: u64,
    /// Rows that committed transactions inserted, changed or deleted.
    pub rows_changed: u64,
    /// The number of the table, so that a new table of the same name is not taken for it.
    #[cfg_attr(feature = "serde", serde(skip))]
    id: u32,
}

impl TableCounts {
    /// Returns the counts of all tables, in the order of their names.
    pub(super) fn of(engine: &Engine) -> Vec<TableCounts> {
        let tables = engine.system.catalog.tables();
        let counts = tables.into_iter().map(|table| {
            let (rows_read, rows_changed) = table.rows_read_and_changed();
            TableCounts { name: table.name.get().to_string(), rows_read, rows_changed, id: table.id.0 }
        });
        counts.collect()
    }
}

impl Change for Vec<TableCounts> {
    fn since(&self, earlier: &Vec<TableCounts>) -> Vec<TableCounts> {
        let earlier: HashMap<u32, &TableCounts> = earlier.iter().map(|then| (then.id, then)).collect();
        let since = |now: &TableCounts| {
            let then = earlier.get(&now.id);
            TableCounts {
                rows_read: now.rows_read.saturating_sub(then.map_or(0, |then| then.rows_read)),
                rows_changed: now.rows_changed.saturating_sub(then.map_or(0, |then| then.rows_changed)),
                ..now.clone()
            }
        };
        self.iter().map(since).collect()
    }
}

impl Figure for Vec<TableCounts> {
    fn count<'a>(&'a self, _name: &str, _help: &'static str, samples: &mut Vec<Sample<'a>>) {
        let mut add = |name: &str, help, number: fn(&TableCounts) -> u64| {
            samples.extend(self.iter().map(|table| Sample {
                name: name.to_string(),
                help,
                label: Some(("table", Cow::Borrowed(&*table.name))),
                value: Value::Count(number(table) as f64),
            }));
        };
        add("table_rows_read", "Rows of the table that were read.", |table| table.rows_read);
        add("table_rows_changed", "Rows of the table that were changed.", |table| table.rows_changed);
    }

    fn level<'a>(&'a self, name: &str, help: &'static str, samples: &mut Vec<Sample<'a>>) {
        self.count(name, help, samples);
    }
}
