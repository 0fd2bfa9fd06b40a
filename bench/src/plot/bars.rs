//! Draws a comparison: throughput above, with its smallest and largest; median, 99th and 99.9th
//! percentile below, on a logarithmic axis. Engines whose durability tier is not the first one's
//! are grey, with their name in brackets, because their numbers are not comparable.

use super::axes::{FONT, SIZE, short};
use crate::comparison::{Comparison, Line};
use anyhow::{Result, anyhow, bail};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;
use std::ops::Range;
use std::path::Path;

const OWN: RGBColor = RGBColor(31, 90, 166);
const OTHER_TIER: RGBColor = RGBColor(200, 200, 200);
const PERCENTILES: [(&str, RGBColor); 3] =
    [("p50", RGBColor(120, 170, 220)), ("p99", RGBColor(190, 40, 50)), ("p99.9", RGBColor(150, 150, 150))];
/// Of the width of an engine's place.
const BARS_WIDTH: f64 = 0.8;
const LEAST_US: f64 = 1.0;

/// A bar: from, to, height, color.
type Bar = (f64, f64, f64, RGBColor);

fn label(lines: &[Line], place: f64) -> String {
    // A mark between two engines has no label.
    let Some(line) = lines.get(place.round().max(0.0) as usize).filter(|_| place.fract() == 0.0) else {
        return String::new();
    };
    if line.tier_differs { format!("[{}: survives {}]", line.engine, line.tier) } else { line.engine.clone() }
}

fn chart<Y>(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    (name, lines): (&str, &[Line]),
    (y, floor): (Y, f64),
    bars: &[Bar],
    whiskers: &[(f64, f64, f64)],
) -> Result<()>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let x: Range<f64> = -0.5..lines.len() as f64 - 0.5;
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(80)
        .build_cartesian_2d(x, y)
        .map_err(|e| anyhow!("{e}"))?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE.mix(0.0))
        .x_labels(2 * lines.len() + 1)
        .x_label_formatter(&|place| label(lines, *place))
        .y_desc(name)
        .y_label_formatter(&|y| short(*y))
        .label_style((FONT, 16))
        .draw()
        .map_err(|e| anyhow!("{e}"))?;
    let rectangle =
        |(from, to, height, color): &Bar| Rectangle::new([(*from, floor), (*to, *height)], color.filled());
    chart.draw_series(bars.iter().map(rectangle)).map_err(|e| anyhow!("{e}"))?;
    let whisker = |(x, low, high): &(f64, f64, f64)| PathElement::new([(*x, *low), (*x, *high)], BLACK);
    chart.draw_series(whiskers.iter().map(whisker)).map_err(|e| anyhow!("{e}"))?;
    Ok(())
}

/// Draws `comparison` into the file `path`, as SVG.
///
/// # Errors
/// It has no engines; the file cannot be written.
pub fn draw_comparison(comparison: &Comparison, path: &Path) -> Result<()> {
    let lines = &comparison.engines;
    if lines.is_empty() {
        bail!("there is nothing to draw: no engine was measured");
    }
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE).map_err(|e| anyhow!("cannot write {}: {e}", path.display()))?;
    let title = format!(
        "{}: {} threads, level {}, median of {} rounds of {:.1} s",
        comparison.workload, comparison.threads, comparison.level, comparison.rounds, comparison.seconds
    );
    let root = root.titled(&title, (FONT, 17).into_text_style(&root.clone())).map_err(|e| anyhow!("{e}"))?;
    let (upper, lower) = root.split_vertically((SIZE.1 - 24) / 2);
    let half = BARS_WIDTH / 2.0;
    let color = |line: &Line| if line.tier_differs { OTHER_TIER } else { OWN };
    let places = || (0..lines.len()).map(|place| place as f64);
    let throughput = |(x, line): (f64, &Line)| (x - half, x + half, line.throughput_tps.median, color(line));
    let bars: Vec<Bar> = places().zip(lines).map(throughput).collect();
    let range = |(x, line): (f64, &Line)| (x, line.throughput_tps.min, line.throughput_tps.max);
    let whiskers: Vec<_> = places().zip(lines).map(range).collect();
    let most = whiskers.iter().fold(1.0f64, |most, (_, _, high)| most.max(*high)) * 1.08;
    chart(&upper, ("transactions/s", lines), (0.0..most, 0.0), &bars, &whiskers)?;
    let width = BARS_WIDTH / PERCENTILES.len() as f64;
    let latencies = |(x, line): (f64, &Line)| {
        let heights = [line.p50_us, line.p99_us, line.p999_us];
        let mut from = x - half;
        heights.into_iter().zip(PERCENTILES).map(move |(height, (_, color))| {
            from += width;
            (from - width, from, height.median.max(LEAST_US), color)
        })
    };
    let bars: Vec<Bar> = places().zip(lines).flat_map(latencies).collect();
    let most = bars.iter().fold(10.0f64, |most, bar| most.max(bar.2)) * 2.0;
    let names = PERCENTILES.map(|(name, _)| name).join(", ");
    let name = format!("latency, us: {names}");
    chart(&lower, (&name, lines), ((LEAST_US..most).log_scale(), LEAST_US), &bars, &[])?;
    root.present().map_err(|e| anyhow!("cannot write {}: {e}", path.display()))
}

#[cfg(test)]
mod tests;
