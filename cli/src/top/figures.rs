//! The counters of a process that has a database open, and what happened between two looks at them.

use anyhow::{Context, Result};
use quenchdb::Database;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Every name begins with this.
const PREFIX: &str = "quenchdb_";

/// The samples that a process has answered with.
#[derive(Clone, Debug)]
pub struct Answer {
    /// By name and labels, in the text's form.
    samples: BTreeMap<String, f64>,
    at: Instant,
}

impl Answer {
    /// Asks the process that has the database open.
    pub fn ask(path: &Path) -> Result<Answer> {
        Answer::parse(&Database::ask_statistics(path)?, Instant::now())
    }

    pub fn parse(text: &str, at: Instant) -> Result<Answer> {
        let sample = |line: &str| -> Option<(String, f64)> {
            let (name, value) = line.strip_prefix(PREFIX)?.rsplit_once(' ')?;
            Some((name.to_string(), value.parse().ok()?))
        };
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let samples =
            lines.map(|line| sample(line).with_context(|| format!("the answer has a strange line: {line}")));
        Ok(Answer { samples: samples.collect::<Result<_>>()?, at })
    }

    /// Returns a level; 0 if the process is of a version without it.
    fn level(&self, name: &str) -> f64 {
        self.samples.get(name).copied().unwrap_or_default()
    }

    /// Returns the health of the database in a word.
    pub fn health(&self) -> &'static str {
        match self.level("health") {
            0.0 => "healthy",
            1.0 => "degraded",
            _ => "failed",
        }
    }

    /// Returns why the database is not healthy.
    pub fn health_reasons(&self) -> Vec<String> {
        let reason = |name: &String| {
            Some(unescaped(name.strip_prefix("health_reason{reason=\"")?.strip_suffix("\"}")?))
        };
        self.samples.keys().filter_map(reason).collect()
    }

    fn preset(&self) -> &str {
        let info = self.samples.keys().find(|name| name.starts_with("info{"));
        info.and_then(|info| info.split("preset=\"").nth(1)?.split('"').next()).unwrap_or("-")
    }
}

/// Rows of a table that were read and changed.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TableRates {
    pub name: String,
    pub rows_read_per_second: f64,
    pub rows_changed_per_second: f64,
}

/// What happened between two answers, and what is so at the second one.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Figures {
    pub preset: String,
    pub interval_seconds: f64,
    pub transactions_per_second: f64,
    pub aborts_per_second: f64,
    pub conflicts_per_second: f64,
    pub row_waits_per_second: f64,
    /// From ready to committed; none without a commit.
    pub commit_p50_us: Option<f64>,
    pub commit_p99_us: Option<f64>,
    pub flush_p50_us: Option<f64>,
    pub flush_p99_us: Option<f64>,
    pub log_bytes_per_second: f64,
    pub device_writes_per_second: f64,
    pub device_flushes_per_second: f64,
    pub log_bytes_in_use: f64,
    pub log_history_bytes: f64,
    pub recovery_seconds_estimate: f64,
    /// Of the pages that were visited, those that were in memory; none without a visit.
    pub cache_hit_ratio: Option<f64>,
    pub page_faults_per_second: f64,
    pub pages_evicted_per_second: f64,
    pub pages: f64,
    pub pages_max: f64,
    pub page_bytes: f64,
    pub memory_bytes: f64,
    pub store_bytes: f64,
    pub checkpoints: f64,
    pub version_bytes: f64,
    pub open_snapshots: f64,
    /// `healthy`, `degraded` or `failed`, and why.
    pub health: String,
    pub health_reasons: Vec<String>,
    pub disk_full: bool,
    /// Those with the most rows per second first.
    pub tables: Vec<TableRates>,
}

/// Two answers.
struct Between<'a> {
    before: &'a Answer,
    now: &'a Answer,
    seconds: f64,
}

impl Between<'_> {
    /// Returns how much a counter grew; 0 if another process has begun to count.
    fn growth(&self, name: &str) -> f64 {
        (self.now.level(name) - self.before.level(name)).max(0.0)
    }

    fn rate(&self, name: &str) -> f64 {
        self.growth(&format!("{name}_total")) / self.seconds
    }

    /// Returns the value at or below which `part` of the values lie, as far as the buckets show it.
    /// Inside a bucket the values count as evenly spread.
    fn quantile_us(&self, name: &str, part: f64) -> Option<f64> {
        let prefix = format!("{name}_seconds_bucket{{le=\"");
        let bounds = self.now.samples.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
        let mut buckets: Vec<(f64, f64)> = bounds
            .filter_map(|(key, _)| {
                let bound = key.strip_prefix(&prefix)?.strip_suffix("\"}")?;
                let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
                Some((bound, self.growth(key)))
            })
            .collect();
        buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        let all = buckets.last().map_or(0.0, |(_, count)| *count);
        let (last, _) = *buckets.iter().rev().find(|(bound, _)| bound.is_finite())?;
        let wanted = part * all;
        let at = buckets.iter().position(|(_, count)| *count >= wanted && *count > 0.0)?;
        let (low, before) = if at == 0 { (0.0, 0.0) } else { buckets[at - 1] };
        let (high, count) = buckets[at];
        let inside = (wanted - before) / (count - before);
        Some((low + (high.min(last) - low) * inside) * 1e6)
    }

    fn tables(&self) -> Vec<TableRates> {
        let label = |key: &str| Some(key.split_once("{table=\"")?.1.strip_suffix("\"}")?.to_string());
        let rows = |kind: &str, name: &str| {
            self.growth(&format!("table_rows_{kind}_total{{table=\"{name}\"}}")) / self.seconds
        };
        let names = self.now.samples.keys().filter(|key| key.starts_with("table_rows_read_total{"));
        let tables = names.filter_map(|key| label(key)).map(|name| TableRates {
            rows_read_per_second: rows("read", &name),
            rows_changed_per_second: rows("changed", &name),
            name: unescaped(&name),
        });
        let mut tables: Vec<TableRates> = tables.collect();
        let rows = |table: &TableRates| table.rows_read_per_second + table.rows_changed_per_second;
        tables.sort_by(|one, other| rows(other).total_cmp(&rows(one)));
        tables
    }
}

/// Returns the value of a label as it was before it was escaped.
fn unescaped(label: &str) -> String {
    let (mut text, mut rest) = (String::new(), label.chars());
    while let Some(char) = rest.next() {
        text.push(match char {
            '\\' => match rest.next() {
                Some('n') => '\n',
                Some(other) => other,
                None => '\\',
            },
            other => other,
        });
    }
    text
}

impl Figures {
    pub fn between(before: &Answer, now: &Answer) -> Figures {
        let passed = now.at.saturating_duration_since(before.at).max(Duration::from_millis(1));
        let between = Between { before, now, seconds: passed.as_secs_f64() };
        let (rate, level) = (|name: &str| between.rate(name), |name: &str| now.level(name));
        let visits = between.growth("page_visits_total");
        let hits = 1.0 - between.growth("page_faults_total") / visits;
        Figures {
            preset: now.preset().to_string(),
            interval_seconds: between.seconds,
            transactions_per_second: rate("committed"),
            aborts_per_second: rate("aborted"),
            conflicts_per_second: rate("conflicts"),
            row_waits_per_second: rate("row_waits"),
            commit_p50_us: between.quantile_us("commit", 0.5),
            commit_p99_us: between.quantile_us("commit", 0.99),
            flush_p50_us: between.quantile_us("flush", 0.5),
            flush_p99_us: between.quantile_us("flush", 0.99),
            log_bytes_per_second: rate("log_bytes"),
            device_writes_per_second: rate("device_writes"),
            device_flushes_per_second: rate("device_flushes"),
            log_bytes_in_use: level("log_bytes_in_use"),
            log_history_bytes: level("log_history_bytes"),
            recovery_seconds_estimate: level("replay_seconds_estimate"),
            cache_hit_ratio: (visits > 0.0).then(|| hits.max(0.0)),
            page_faults_per_second: rate("page_faults"),
            pages_evicted_per_second: rate("pages_evicted"),
            pages: level("pages"),
            pages_max: level("pages_max"),
            page_bytes: level("page_bytes"),
            memory_bytes: level("memory_bytes"),
            store_bytes: level("store_bytes"),
            checkpoints: level("checkpoints_total"),
            version_bytes: level("version_bytes"),
            open_snapshots: level("open_snapshots"),
            health: now.health().into(),
            health_reasons: now.health_reasons(),
            disk_full: level("disk_full") > 0.0,
            tables: between.tables(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_is_what_the_engine_says_with_its_reasons() {
        let text =
            "quenchdb_health 1\nquenchdb_health_reason{reason=\"commits wait, for 3 s: \\\"x\\\"\"} 1\n";
        let answer = Answer::parse(text, Instant::now()).expect("samples");
        assert_eq!(answer.health(), "degraded");
        assert_eq!(answer.health_reasons(), ["commits wait, for 3 s: \"x\""]);
        let older = Answer::parse("quenchdb_committed_total 1\n", Instant::now()).expect("samples");
        assert_eq!((older.health(), older.health_reasons().len()), ("healthy", 0));
    }

    #[test]
    fn figures_are_what_the_engine_counted() {
        let db = Database::builder().open_in_memory().expect("memory");
        let table = db.create_table("a \"b\" \\ c").expect("new");
        let idle = db.create_table("idle").expect("new");
        let begun = Instant::now();
        let answer = |seconds| {
            Answer::parse(&db.statistics().prometheus(), begun + Duration::from_secs(seconds))
                .expect("parsed")
        };
        let (before, earlier) = (answer(0), db.statistics());
        for n in 0..40_u32 {
            db.transact(|tx| tx.insert(&table, n.to_be_bytes(), "row")).expect("memory");
        }
        drop(db.begin_read().expect("free").get(&idle, "none").expect("readable"));
        let now = answer(2);
        let figures = Figures::between(&before, &now);
        assert_eq!(figures.preset, "auto");
        assert_eq!((figures.interval_seconds, figures.transactions_per_second), (2.0, 20.0));
        let tables = figures.tables.iter().map(|table| (&*table.name, table.rows_changed_per_second));
        assert_eq!(tables.collect::<Vec<_>>(), [("a \"b\" \\ c", 20.0), ("idle", 0.0)]);
        assert_eq!(figures.tables[1].rows_read_per_second, 0.5);
        // Both come from the same buckets. The creation of the tables is outside of the interval.
        let (p50, p99) =
            (figures.commit_p50_us.expect("40 commits"), figures.commit_p99_us.expect("40 commits"));
        let exact = db.statistics().since(&earlier).commit;
        assert!(
            p50 >= exact.p50_us * 0.99 && p99 >= exact.p99_us * 0.99 && p50 <= p99,
            "{p50} {p99} {exact:?}"
        );
        // Nothing happened.
        let figures = Figures::between(&now, &answer(3));
        assert_eq!((figures.transactions_per_second, figures.commit_p50_us), (0.0, None));
        // Another process counts from 0.
        assert_eq!(Figures::between(&now, &before).transactions_per_second, 0.0);
        assert!(Answer::parse("quenchdb_x y", begun).is_err());
    }
}
