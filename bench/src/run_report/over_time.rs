//! Drawings over the time of a run: lines with checkpoints behind them, and a map of latencies.

use crate::html::{FONT, GRID, INK, color};
use crate::plot::short;
use crate::report::Report;
use crate::series::{Interval, OCTAVES};
use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

const SIZE: (u32, u32) = (560, 260);
/// Color of checkpoints, behind everything.
const BAND: RGBColor = RGBColor(255, 190, 90);
const LEGEND_HEIGHT: u32 = 22;
/// Color of the map.
const HEAT: RGBColor = RGBColor(200, 50, 60);

/// A line over time: one height for each interval.
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) heights: Vec<f64>,
}

/// Returns the end of the measured time in seconds.
fn end(report: &Report) -> f64 {
    report.series.last().map_or(1.0, |last| last.second + last.seconds)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Returns the corners of a line in steps.
fn steps<'a>(series: &'a [Interval], heights: &'a [f64]) -> impl Iterator<Item = (f64, f64)> + 'a {
    let corners = |(interval, height): (&Interval, &f64)| {
        [(interval.second, *height), (interval.second + interval.seconds, *height)]
    };
    series.iter().zip(heights).flat_map(corners)
}

fn legend(area: &Area<'_>, lines: &[Line]) -> Result<()> {
    for (index, line) in lines.iter().enumerate() {
        let x = 10 + index as i32 * 180;
        let square = Rectangle::new([(x, 6), (x + 12, 16)], color(index).filled());
        area.draw(&square).map_err(|e| anyhow!("{e}"))?;
        let name = Text::new(line.name, (x + 18, 4), FONT.into_font().color(&INK));
        area.draw(&name).map_err(|e| anyhow!("{e}"))?;
    }
    Ok(())
}

/// Draws the grid and the names of the axes of a drawing.
macro_rules! mesh {
    ($chart:expr, $y_name:expr, $y_label:expr) => {
        $chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(GRID)
            .light_line_style(GRID.mix(0.0))
            .axis_style(INK)
            .x_desc("seconds")
            .y_desc($y_name)
            .y_labels(6)
            .y_label_formatter($y_label)
            .label_style(FONT.into_font().color(&INK))
            .axis_desc_style(FONT.into_font().color(&INK))
            .draw()
            .map_err(|e| anyhow!("{e}"))?
    };
}

/// Returns lines over the time of a run, with its checkpoints as bands.
pub(super) fn lines(report: &Report, y_name: &str, lines: &[Line]) -> Result<String> {
    let most = lines.iter().flat_map(|line| &line.heights).fold(1e-9_f64, |most, height| most.max(*height));
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        let (upper, lower) = root.split_vertically(if lines.len() > 1 { LEGEND_HEIGHT } else { 0 });
        if lines.len() > 1 {
            legend(&upper, lines)?;
        }
        let mut chart = ChartBuilder::on(&lower)
            .margin(6)
            .margin_right(14)
            .x_label_area_size(44)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..end(report), 0.0..most * 1.08)
            .map_err(|e| anyhow!("{e}"))?;
        let bands = report.checkpoint_marks.iter().map(|mark| {
            let corners = [(mark.from.max(0.0), 0.0), (mark.to.min(end(report)), most * 1.08)];
            Rectangle::new(corners, BAND.mix(0.35).filled())
        });
        chart.draw_series(bands).map_err(|e| anyhow!("{e}"))?;
        mesh!(chart, y_name, &|y| short((*y * 100.0).round() / 100.0));
        for (index, line) in lines.iter().enumerate() {
            let points = steps(&report.series, &line.heights);
            let drawn = LineSeries::new(points, color(index).stroke_width(2));
            chart.draw_series(drawn).map_err(|e| anyhow!("{e}"))?;
        }
        root.present().map_err(|e| anyhow!("{e}"))?;
    }
    Ok(text)
}

/// Returns the octaves in which any transaction of the run lies.
fn octaves(report: &Report) -> Option<(usize, usize)> {
    let used = |octave: &usize| report.series.iter().any(|interval| interval.counts[*octave] > 0);
    Some(((0..OCTAVES).find(used)?, (0..OCTAVES).rfind(used)?))
}

/// Returns a time in microseconds with the unit that fits.
fn time(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{:.0} s", us / 1e6),
        us if us >= 1e3 => format!("{:.0} ms", us / 1e3),
        us => format!("{us:.0} us"),
    }
}

/// Returns a map of the latencies over time: the darker, the more transactions of the interval,
/// on a logarithmic scale, so that a single slow transaction is seen. Nothing if the report has no
/// counts.
pub(super) fn heat_map(report: &Report) -> Result<Option<String>> {
    let Some((lowest, highest)) = octaves(report) else { return Ok(None) };
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        let y = lowest as f64 - 1.0..highest as f64;
        let mut chart = ChartBuilder::on(&root)
            .margin(6)
            .margin_right(14)
            .x_label_area_size(44)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..end(report), y)
            .map_err(|e| anyhow!("{e}"))?;
        let label = |octave: &f64| time(octave.round().exp2());
        mesh!(chart, "latency", &label);
        let cells = report.series.iter().flat_map(|interval| {
            let all = interval.counts.iter().sum::<u64>().max(2) as f64;
            let counted = interval.counts.iter().enumerate().filter(|(_, count)| **count > 0);
            counted.map(move |(octave, count)| {
                // From 0.15 for one transaction to 1 for all.
                let share = 0.15 + 0.85 * (*count as f64).ln() / all.ln();
                let (left, right) = (interval.second, interval.second + interval.seconds);
                let corners = [(left, octave as f64 - 1.0), (right, octave as f64)];
                Rectangle::new(corners, HEAT.mix(share).filled())
            })
        });
        chart.draw_series(cells).map_err(|e| anyhow!("{e}"))?;
        root.present().map_err(|e| anyhow!("{e}"))?;
    }
    Ok(Some(text))
}
