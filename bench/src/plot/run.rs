//! Draws a run: throughput above, 99th percentile and slowest transaction below, checkpoints as
//! bands behind both.

use super::axes::{FONT, SIZE, short};
use crate::report::Report;
use anyhow::{Result, anyhow, bail};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;
use std::ops::Range;
use std::path::Path;

const BAND: RGBColor = RGBColor(255, 214, 153);
const THROUGHPUT: RGBColor = RGBColor(31, 90, 166);
const P99: RGBColor = RGBColor(190, 40, 50);
const SLOWEST: RGBColor = RGBColor(150, 150, 150);
/// A line over time, in steps: each interval is as high as its figure.
fn steps(report: &Report, figure: impl Fn(&crate::series::Interval) -> f64) -> Vec<(f64, f64)> {
    let points = |i: &crate::series::Interval| {
        let height = figure(i);
        [(i.second, height), (i.second + i.seconds, height)]
    };
    report.series.iter().flat_map(points).collect()
}

struct Line {
    name: &'static str,
    color: RGBColor,
    points: Vec<(f64, f64)>,
}

/// One of the two charts.
struct Chart<'a> {
    name: &'a str,
    seconds: f64,
    lines: Vec<Line>,
}

impl Chart<'_> {
    fn draw<Y>(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        y: Y,
        range: Range<f64>,
        report: &Report,
    ) -> Result<()>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .margin_right(24)
            .x_label_area_size(40)
            .y_label_area_size(84)
            .build_cartesian_2d(0.0..self.seconds, y)
            .map_err(|e| anyhow!("{e}"))?;
        let bands = report.checkpoint_marks.iter().map(|mark| {
            let corners = [(mark.from.max(0.0), range.start), (mark.to.min(self.seconds), range.end)];
            Rectangle::new(corners, BAND.mix(0.5).filled())
        });
        chart.draw_series(bands).map_err(|e| anyhow!("{e}"))?;
        chart
            .configure_mesh()
            .light_line_style(WHITE.mix(0.0))
            .x_desc("seconds")
            .y_desc(self.name)
            .y_label_formatter(&|y| short(*y))
            .label_style((FONT, 16))
            .draw()
            .map_err(|e| anyhow!("{e}"))?;
        for line in &self.lines {
            let color = line.color;
            chart
                .draw_series(LineSeries::new(line.points.iter().copied(), color.stroke_width(2)))
                .map_err(|e| anyhow!("{e}"))?
                .label(line.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
        }
        if self.lines.len() > 1 {
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperRight)
                .background_style(WHITE.mix(0.8))
                .label_font((FONT, 16))
                .draw()
                .map_err(|e| anyhow!("{e}"))?;
        }
        Ok(())
    }
}

fn title(report: &Report) -> String {
    let skew = if report.zipf == 0.0 { "uniform".into() } else { format!("zipf {}", report.zipf) };
    format!(
        "{}: {} threads, {} rows, {} % reads, {skew}, {}, {}, {:.0} MB for pages: {:.0} transactions/s, longest stall {:.1} ms",
        report.workload,
        report.threads,
        report.rows,
        report.read_percent,
        report.commit,
        report.level,
        report.memory_bytes as f64 / 1e6,
        report.throughput_tps,
        report.stall_us_max / 1e3
    )
}

/// Draws `report` into the file `path`, as SVG.
///
/// # Errors
/// The report has no series; the file cannot be written.
pub fn draw(report: &Report, path: &Path) -> Result<()> {
    let Some(last) = report.series.last() else { bail!("there is nothing to draw: the run has no series") };
    let seconds = last.second + last.seconds;
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE).map_err(|e| anyhow!("cannot write {}: {e}", path.display()))?;
    let style = (FONT, 17).into_text_style(&root);
    let root = root.titled(&title(report), style).map_err(|e| anyhow!("{e}"))?;
    let (upper, lower) = root.split_vertically((SIZE.1 - 24) / 2);
    let throughput = steps(report, |i| i.committed as f64 / i.seconds.max(1e-9));
    let most = throughput.iter().fold(1.0f64, |most, (_, y)| most.max(*y)) * 1.08;
    let chart = Chart {
        name: "transactions/s (bands: checkpoints)",
        seconds,
        lines: vec![Line { name: "transactions/s", color: THROUGHPUT, points: throughput }],
    };
    chart.draw(&upper, 0.0..most, 0.0..most, report)?;
    // A logarithmic axis has no zero; a second without a finish is drawn at its bottom.
    const LEAST_US: f64 = 1.0;
    let slowest = steps(report, |i| i.max_us.max(LEAST_US));
    // Leaves space for the legend above the lines.
    let most = slowest.iter().fold(10.0f64, |most, (_, y)| most.max(*y)) * 20.0;
    let p99 = steps(report, |i| i.p99_us.max(LEAST_US));
    let lines = vec![
        Line { name: "slowest", color: SLOWEST, points: slowest },
        Line { name: "p99", color: P99, points: p99 },
    ];
    let chart = Chart { name: "latency, us", seconds, lines };
    chart.draw(&lower, (LEAST_US..most).log_scale(), LEAST_US..most, report)?;
    root.present().map_err(|e| anyhow!("cannot write {}: {e}", path.display()))
}

#[cfg(test)]
mod tests;
