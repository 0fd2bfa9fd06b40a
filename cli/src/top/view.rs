//! The screen of `top`, and its lines. Both depend on their input only, so that a test gets the
//! same.
//!
//! ```text
//!   directory, preset                                          q ends it
//!   transactions/s, from the first look on
//!   latency       │  page cache    │  log            │  space
//!   tables, those with the most rows per second first
//! ```

use super::figures::{Figures, TableRates};
use crate::live::view::{Facts, block, draw_facts, grouped, size, time};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, Sparkline, Table};
use std::collections::VecDeque;
use std::path::Path;

/// What the screen shows.
pub struct Scene<'a> {
    pub directory: &'a Path,
    /// Oldest first.
    pub history: &'a VecDeque<Figures>,
    /// Why there is nothing newer.
    pub notice: Option<&'a str>,
}

const KEYS: &str = "q ends it";

/// Columns of the lines: a title, its width, the text.
type Column = (&'static str, usize, fn(&Figures) -> String);

const COLUMNS: [Column; 11] = [
    ("tx/s", 10, |f| grouped(f.transactions_per_second)),
    ("aborts/s", 9, |f| grouped(f.aborts_per_second)),
    ("p50", 8, |f| optional_time(f.commit_p50_us)),
    ("p99", 8, |f| optional_time(f.commit_p99_us)),
    ("log/s", 8, |f| size(f.log_bytes_per_second)),
    ("flushes/s", 10, |f| grouped(f.device_flushes_per_second)),
    ("hits", 8, |f| hits(f)),
    ("faults/s", 9, |f| grouped(f.page_faults_per_second)),
    ("log", 8, |f| size(f.log_bytes_in_use)),
    ("versions", 9, |f| size(f.version_bytes)),
    ("recovery", 9, |f| format!("{:.2} s", f.recovery_seconds_estimate)),
];

/// Returns the titles of the columns.
pub fn heading() -> String {
    COLUMNS.map(|(title, width, _)| format!("{title:>width$}")).join(" ")
}

/// Returns one interval as a line.
pub fn line(figures: &Figures) -> String {
    COLUMNS.map(|(_, width, text)| format!("{:>width$}", text(figures))).join(" ")
}

fn optional_time(us: Option<f64>) -> String {
    us.map_or("-".into(), time)
}

fn hits(figures: &Figures) -> String {
    figures.cache_hit_ratio.map_or("-".into(), |ratio| format!("{:.2} %", ratio * 100.0))
}

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, scene: &Scene<'_>) {
    let [title, throughput, facts, tables] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(4),
        Constraint::Length(8),
        Constraint::Percentage(40),
    ])
    .areas(frame.area());
    let newest = scene.history.back();
    let [left, right] =
        Layout::horizontal([Constraint::Min(10), Constraint::Length(KEYS.len() as u16)]).areas(title);
    let state = match (scene.notice, newest) {
        (Some(notice), _) => notice.to_string(),
        (None, Some(newest)) if !newest.health_reasons.is_empty() => {
            format!("{}: {}", newest.health, newest.health_reasons.join("; "))
        }
        (None, Some(newest)) if newest.disk_full => format!("preset {}, the disk is full", newest.preset),
        (None, Some(newest)) => format!("preset {}", newest.preset),
        (None, None) => "the first interval".into(),
    };
    frame.render_widget(
        Line::from(format!("quench top {}   {state}", scene.directory.display())).bold(),
        left,
    );
    frame.render_widget(Line::from(KEYS).bold(), right);
    draw_throughput(frame, throughput, scene.history);
    let quarter = Constraint::Ratio(1, 4);
    let areas: [Rect; 4] = Layout::horizontal([quarter; 4]).areas(facts);
    let all = [
        ("commits", commit_facts as fn(&Figures) -> Facts),
        ("page cache", page_facts),
        ("log", log_facts),
        ("space", space_facts),
    ];
    for (area, (title, of)) in areas.into_iter().zip(all) {
        draw_facts(frame, area, title, &newest.map(of).unwrap_or_default());
    }
    draw_tables(frame, tables, newest.map_or(&[], |newest| &newest.tables));
}

fn draw_throughput(frame: &mut Frame<'_>, area: Rect, history: &VecDeque<Figures>) {
    let width = usize::from(area.width.saturating_sub(2));
    let rates = history.iter().skip(history.len().saturating_sub(width));
    let data: Vec<u64> = rates.map(|figures| figures.transactions_per_second as u64).collect();
    let most = data.iter().copied().max().unwrap_or(0);
    let title = match history.back() {
        Some(newest) => {
            let now = grouped(newest.transactions_per_second);
            format!("transactions/s: {now} now, {} at most", grouped(most as f64))
        }
        None => "transactions/s".into(),
    };
    let bars = Sparkline::default().data(data).max(most + most / 20 + 1).style(Style::new().fg(Color::Green));
    frame.render_widget(bars.block(block(title)), area);
}

fn commit_facts(f: &Figures) -> Facts {
    vec![
        ("p50", optional_time(f.commit_p50_us)),
        ("p99", optional_time(f.commit_p99_us)),
        ("flush p50", optional_time(f.flush_p50_us)),
        ("flush p99", optional_time(f.flush_p99_us)),
        ("aborts", format!("{}/s", grouped(f.aborts_per_second))),
        ("row waits", format!("{}/s", grouped(f.row_waits_per_second))),
    ]
}

fn page_facts(f: &Figures) -> Facts {
    vec![
        ("hits", hits(f)),
        ("faults", format!("{}/s", grouped(f.page_faults_per_second))),
        ("evicted", format!("{}/s", grouped(f.pages_evicted_per_second))),
        ("in memory", size(f.pages * f.page_bytes)),
        ("may take", size(f.pages_max * f.page_bytes)),
        ("budget", size(f.memory_bytes)),
    ]
}

fn log_facts(f: &Figures) -> Facts {
    vec![
        ("written", format!("{}/s", size(f.log_bytes_per_second))),
        ("writes", format!("{}/s", grouped(f.device_writes_per_second))),
        ("flushes", format!("{}/s", grouped(f.device_flushes_per_second))),
        ("in use", size(f.log_bytes_in_use)),
        ("history", size(f.log_history_bytes)),
        ("recovery", format!("{:.2} s", f.recovery_seconds_estimate)),
    ]
}

fn space_facts(f: &Figures) -> Facts {
    vec![
        ("pages file", size(f.store_bytes)),
        ("versions", size(f.version_bytes)),
        ("snapshots", grouped(f.open_snapshots)),
        ("checkpoints", grouped(f.checkpoints)),
    ]
}

fn draw_tables(frame: &mut Frame<'_>, area: Rect, tables: &[TableRates]) {
    let row = |table: &TableRates| {
        let rate = |rate: f64| Cell::from(Line::from(grouped(rate)).right_aligned());
        let (read, changed) = (rate(table.rows_read_per_second), rate(table.rows_changed_per_second));
        Row::new([Cell::from(table.name.clone()), read, changed])
    };
    let title = |text: &'static str| Cell::from(Line::from(text).right_aligned());
    let heading = Row::new([Cell::from("table"), title("rows read/s"), title("rows changed/s")]).dim();
    let widths = [Constraint::Min(16), Constraint::Length(16), Constraint::Length(16)];
    let shown = tables.iter().take(usize::from(area.height)).map(row);
    frame.render_widget(Table::new(shown, widths).header(heading).block(block("tables")), area);
}

#[cfg(test)]
mod tests;
