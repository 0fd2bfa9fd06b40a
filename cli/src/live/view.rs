//! The frame of `--live`: 80 columns and 24 lines, scaled to the terminal.
//!
//! ```text
//!   title, what is being done
//!   transactions/s from the beginning on
//!   latency, now and on the whole   │  where the time goes
//!   pages        │  log             │  checkpoints
//! ```
//! It depends on its input only, not on a terminal, so that a test gets the same frame.

use crate::units;
use quench_bench::store::Gauges;
use quench_bench::watch::{Between, History};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, LineGauge, Paragraph, Sparkline};
use std::time::Duration;

/// Long work: its name, the amount done, and the total.
#[derive(Clone, Debug)]
pub struct Doing {
    pub what: String,
    pub done: u64,
    pub total: u64,
}

/// The content of a frame.
pub struct Scene<'a> {
    pub title: &'a str,
    pub doing: &'a Doing,
    /// Time since the begin of the work.
    pub elapsed: Duration,
    pub history: &'a History,
    /// True if the run must end.
    pub ends: bool,
}

/// A longer run shows no end.
const ENDLESS: Duration = Duration::from_secs(100_000);

/// Formats a number with a comma after each three digits.
pub fn grouped(number: f64) -> String {
    units::grouped(&format!("{number:.0}"))
}

/// Formats microseconds with three digits and a suitable unit.
pub fn time(us: f64) -> String {
    let (number, unit) = match us {
        _ if us <= 0.0 => return "-".into(),
        _ if us < 1e3 => (us, "us"),
        _ if us < 1e6 => (us / 1e3, "ms"),
        _ => (us / 1e6, "s"),
    };
    let decimals = usize::from(number < 100.0) + usize::from(number < 10.0);
    format!("{number:.decimals$} {unit}")
}

/// Formats bytes with a unit of powers of 1000.
pub fn size(bytes: f64) -> String {
    let (number, unit) = match bytes {
        _ if bytes < 1e3 => return format!("{bytes:.0} B"),
        _ if bytes < 1e6 => (bytes / 1e3, "kB"),
        _ if bytes < 1e9 => (bytes / 1e6, "MB"),
        _ => (bytes / 1e9, "GB"),
    };
    let decimals = usize::from(number < 100.0) + usize::from(number < 10.0);
    format!("{number:.decimals$} {unit}")
}

/// Returns a frame with a title.
pub fn block(title: impl Into<String>) -> Block<'static> {
    Block::bordered().title(format!(" {} ", title.into())).border_style(Style::new().fg(Color::DarkGray))
}

/// Draws the frame.
pub fn draw(frame: &mut Frame<'_>, scene: &Scene<'_>) {
    let [title, doing, throughput, middle, bottom] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(4),
        Constraint::Length(7),
        Constraint::Length(7),
    ])
    .areas(frame.area());
    let keys = if scene.ends { "ending ..." } else { "q ends it" };
    let [left, right] =
        Layout::horizontal([Constraint::Min(10), Constraint::Length(keys.len() as u16)]).areas(title);
    frame.render_widget(Line::from(format!("quench bench {}", scene.title)).bold(), left);
    frame.render_widget(Line::from(keys).bold(), right);
    draw_doing(frame, doing, scene);
    draw_throughput(frame, throughput, scene.history);
    let [latency, stages] =
        Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]).areas(middle);
    let (last, whole) = (scene.history.last_interval(), scene.history.whole());
    draw_latency(frame, latency, last.as_ref(), whole.as_ref());
    draw_stages(frame, stages, last.as_ref());
    let third = Constraint::Ratio(1, 3);
    let [pages, log, checkpoints] = Layout::horizontal([third, third, third]).areas(bottom);
    let gauges = scene.history.newest().map(|sample| sample.gauges).unwrap_or_default();
    let last = last.unwrap_or_default();
    draw_facts(frame, pages, "page cache", &page_facts(&gauges, &last));
    draw_facts(frame, log, "log", &log_facts(&gauges, &last));
    draw_facts(frame, checkpoints, "checkpoints", &checkpoint_facts(&gauges));
}

fn draw_doing(frame: &mut Frame<'_>, area: Rect, scene: &Scene<'_>) {
    let Doing { what, done, total } = scene.doing;
    let elapsed = scene.elapsed.as_secs();
    // The driver counts milliseconds.
    let endless = scene.history.newest().is_some() && u128::from(*total) >= ENDLESS.as_millis();
    if endless || *total == 0 {
        return frame.render_widget(Line::from(format!("{what}, {elapsed} s")), area);
    }
    let ratio = (*done as f64 / *total as f64).clamp(0.0, 1.0);
    let label = format!("{what}, {elapsed} s, {:>3.0} %", ratio * 100.0);
    let filled = Style::new().fg(Color::Cyan);
    frame.render_widget(
        LineGauge::default()
            .filled_symbol("█")
            .unfilled_symbol("░")
            .ratio(ratio)
            .label(label)
            .filled_style(filled),
        area,
    );
}

fn draw_throughput(frame: &mut Frame<'_>, area: Rect, history: &History) {
    let width = usize::from(area.width.saturating_sub(2));
    let (points, each) = history.throughput(width);
    let most = points.iter().copied().fold(0.0, f64::max);
    let title = match (history.last_interval(), history.whole()) {
        (Some(last), Some(whole)) => format!(
            "transactions/s: {} now, {} on the whole, {} at most",
            grouped(last.throughput_tps),
            grouped(whole.throughput_tps),
            grouped(most)
        ),
        _ => "transactions/s".into(),
    };
    let each = format!(" {:.2} s a column ", each.as_secs_f64());
    let frame_of_it = block(title).title_bottom(Line::from(each).right_aligned());
    let data: Vec<u64> = points.iter().map(|point| *point as u64).collect();
    let bars =
        Sparkline::default().data(data).max((most * 1.05) as u64 + 1).style(Style::new().fg(Color::Green));
    frame.render_widget(bars.block(frame_of_it), area);
}

fn draw_latency(frame: &mut Frame<'_>, area: Rect, last: Option<&Between>, whole: Option<&Between>) {
    let seconds = last.map_or(1.0, |last| last.seconds);
    let of = |between: Option<&Between>, figure: fn(&Between) -> f64| {
        between.map_or("-".into(), |b| time(figure(b)))
    };
    let row = |name: &str, figure: fn(&Between) -> f64| {
        Line::from(format!("{name:<9}{:>12}{:>14}", of(last, figure), of(whole, figure)))
    };
    let lines = vec![
        Line::from(format!("{:<9}{:>12}{:>14}", "", format!("last {seconds:.0} s"), "on the whole")).dim(),
        row("p50", |b| b.p50_us),
        row("p99", |b| b.p99_us),
        row("p99.9", |b| b.p999_us),
        row("slowest", |b| b.max_us),
    ];
    frame.render_widget(Paragraph::new(lines).block(block("latency, to the acknowledgment")), area);
}

fn draw_stages(frame: &mut Frame<'_>, area: Rect, last: Option<&Between>) {
    let stages = last.map(|last| last.stages).unwrap_or_default();
    let all = [
        ("execute", stages.execute, Color::Green),
        ("lock wait", stages.lock_wait, Color::Red),
        ("log insert", stages.log_insert, Color::Yellow),
        ("flush wait", stages.flush_wait, Color::Blue),
        ("acknowledge", stages.acknowledge, Color::Magenta),
    ];
    let most = all.iter().map(|stage| stage.1).fold(0.0, f64::max);
    let width = usize::from(area.width).saturating_sub(24);
    let lines: Vec<Line<'_>> = all
        .into_iter()
        .map(|(name, us, color)| {
            let cells = if us > 0.0 { ((us / most * width as f64).round() as usize).max(1) } else { 0 };
            let bar = "█".repeat(cells.min(width));
            Line::from(vec![format!("{name:<12}").into(), bar.fg(color), format!(" {}", time(us)).into()])
        })
        .collect();
    frame.render_widget(Paragraph::new(lines).block(block("where the time goes (mean)")), area);
}

/// Names and values.
pub type Facts = Vec<(&'static str, String)>;

fn page_facts(gauges: &Gauges, last: &Between) -> Facts {
    let memory = gauges.pages * gauges.page_bytes;
    let hits = last.hit_share.map_or("-".into(), |share| format!("{:.2} %", share * 100.0));
    vec![
        ("pages", format!("{} of {}", grouped(gauges.pages as f64), grouped(gauges.pages_max as f64))),
        ("memory", format!("{} of {}", size(memory as f64), size(gauges.memory_bytes as f64))),
        ("hits", hits),
        ("reads", format!("{}/s", grouped(last.reads_per_second))),
        ("evicted", format!("{}/s", grouped(last.evictions_per_second))),
    ]
}

fn log_facts(gauges: &Gauges, last: &Between) -> Facts {
    vec![
        ("writes", format!("{}/s", grouped(last.log_writes_per_second))),
        ("each", size(last.log_write_bytes)),
        ("flushes", format!("{}/s", grouped(last.device_flushes_per_second))),
        ("in use", size(gauges.log_bytes_in_use as f64)),
        ("conflicts", format!("{}/s", grouped(last.conflicts_per_second))),
    ]
}

fn checkpoint_facts(gauges: &Gauges) -> Facts {
    let running = gauges.checkpoint_running.map_or("no".into(), |share| format!("{:.0} %", share * 100.0));
    let newest =
        if gauges.checkpoints == 0 { "-".into() } else { format!("{:.2} s", gauges.checkpoint_seconds) };
    vec![
        ("running", running),
        ("made", grouped(gauges.checkpoints as f64)),
        ("newest took", newest),
        ("recovery now", format!("{:.2} s", gauges.recovery_seconds)),
        ("versions", size(gauges.version_bytes as f64)),
    ]
}

/// Draws names and values in a frame.
pub fn draw_facts(frame: &mut Frame<'_>, area: Rect, title: &'static str, facts: &Facts) {
    let width = usize::from(area.width).saturating_sub(2);
    let line = |(name, value): &(&str, String)| {
        let gap = width.saturating_sub(name.chars().count() + value.chars().count()).max(1);
        Line::from(format!("{name}{}{value}", " ".repeat(gap)))
    };
    let lines: Vec<Line<'_>> = facts.iter().map(line).collect();
    frame.render_widget(Paragraph::new(lines).block(block(title)), area);
}

#[cfg(test)]
pub use tests::sample;

#[cfg(test)]
mod tests;
