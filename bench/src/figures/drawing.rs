//! Draws a picture as SVG for a page.

use super::entry::{Form, Picture, Series};
use crate::html::{FONT, GRID, INK, color};
use crate::plot::short;
use anyhow::{Result, anyhow, bail};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;
use std::ops::Range;

/// Small enough to be read on a phone, where the page makes it as wide as the screen.
const SIZE: (u32, u32) = (560, 340);
/// Of the width of a place, used by its bars.
const BARS_WIDTH: f64 = 0.8;
/// Height of a line of the legend.
const LEGEND_LINE: u32 = 20;
/// Longest label that is drawn level.
const LABEL_MOST: usize = 12;

/// Returns the heights of a series, one for each label.
fn heights(series: &Series) -> impl Iterator<Item = (f64, Option<f64>)> + '_ {
    series.values.iter().enumerate().map(|(place, value)| (place as f64, value.as_ref().map(|v| v.median)))
}

/// Returns the range of the vertical axis: from 0, or logarithmic from below the smallest.
fn range(picture: &Picture) -> Option<Range<f64>> {
    let highest = |place: usize| -> f64 {
        let values = picture.series.iter().filter_map(|series| series.values.get(place)?.as_ref());
        match picture.form {
            Form::Stacked => values.map(|value| value.median).sum(),
            Form::Lines | Form::Bars => values.map(|value| value.max).fold(0.0, f64::max),
        }
    };
    let most = (0..picture.labels.len()).map(highest).fold(0.0, f64::max);
    let all = picture.series.iter().flat_map(|series| series.values.iter().flatten());
    let least = all.map(|value| value.min).filter(|min| *min > 0.0).fold(f64::INFINITY, f64::min);
    match picture.log {
        _ if most <= 0.0 => None,
        true if least.is_finite() => Some(least / 1.6..most * 1.6),
        _ => Some(0.0..most * 1.06),
    }
}

struct Drawing<'a> {
    picture: &'a Picture,
    range: Range<f64>,
}

impl Drawing<'_> {
    fn label(&self, place: f64) -> String {
        // A mark between two labels has none.
        let label = self.picture.labels.get(place.round().max(0.0) as usize);
        let label = label.filter(|_| place.fract() == 0.0).cloned().unwrap_or_default();
        let short = self.picture.labels.len() <= 4 || label.chars().count() <= LABEL_MOST;
        if short { label } else { label.chars().take(LABEL_MOST - 1).chain(['…']).collect() }
    }

    /// Returns bars: from, to, bottom, top, color.
    fn bars(&self) -> Vec<(f64, f64, f64, f64, RGBColor)> {
        let (picture, count) = (self.picture, self.picture.series.len() as f64);
        let mut bars = Vec::new();
        for place in 0..picture.labels.len() {
            let (left, mut bottom) = (place as f64 - BARS_WIDTH / 2.0, self.range.start);
            for (index, series) in picture.series.iter().enumerate() {
                let value = series.values.get(place).and_then(Option::as_ref);
                let Some(height) = value.map(|value| value.median) else { continue };
                if picture.form == Form::Stacked {
                    bars.push((left, left + BARS_WIDTH, bottom, bottom + height, color(index)));
                    bottom += height;
                } else {
                    let width = BARS_WIDTH / count;
                    let from = left + width * index as f64;
                    bars.push((from, from + width, self.range.start, height, color(index)));
                }
            }
        }
        bars
    }

    fn draw<Y>(&self, area: &DrawingArea<SVGBackend<'_>, Shift>, y: Y) -> Result<()>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let picture = self.picture;
        let text = FONT.into_font().color(&INK);
        let mut chart = ChartBuilder::on(area)
            .margin(6)
            .margin_right(14)
            .x_label_area_size(if picture.x_name.is_empty() { 26 } else { 44 })
            .y_label_area_size(70)
            .build_cartesian_2d(-0.5..picture.labels.len() as f64 - 0.5, y)
            .map_err(|e| anyhow!("{e}"))?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(GRID)
            .light_line_style(GRID.mix(0.0))
            .axis_style(INK)
            .x_labels(2 * picture.labels.len() + 1)
            .x_label_formatter(&|place| self.label(*place))
            .y_labels(6)
            .y_label_formatter(&|y| short(*y))
            .x_desc(&picture.x_name)
            .y_desc(&picture.y_name)
            .label_style(text.clone())
            .axis_desc_style(text)
            .draw()
            .map_err(|e| anyhow!("{e}"))?;
        if picture.form != Form::Lines {
            let bars = self.bars().into_iter().map(|(left, right, bottom, top, color)| {
                Rectangle::new([(left, bottom), (right, top)], color.filled())
            });
            chart.draw_series(bars).map_err(|e| anyhow!("{e}"))?;
            return Ok(());
        }
        for (index, series) in picture.series.iter().enumerate() {
            let color = color(index);
            let points: Vec<(f64, f64)> =
                heights(series).filter_map(|(place, height)| Some((place, height?))).collect();
            let line = LineSeries::new(points.iter().copied(), color.stroke_width(2));
            chart.draw_series(line).map_err(|e| anyhow!("{e}"))?;
            let marks = points.iter().map(|point| Circle::new(*point, 3, color.filled()));
            chart.draw_series(marks).map_err(|e| anyhow!("{e}"))?;
            let spread = series.values.iter().enumerate().filter_map(|(place, value)| {
                let value = value.as_ref().filter(|value| value.min < value.max)?;
                let low = value.min.max(self.range.start);
                Some(PathElement::new([(place as f64, low), (place as f64, value.max)], color))
            });
            chart.draw_series(spread).map_err(|e| anyhow!("{e}"))?;
        }
        Ok(())
    }
}

/// Draws the names of the series with their colors, two in a line.
fn legend(area: &DrawingArea<SVGBackend<'_>, Shift>, picture: &Picture) -> Result<()> {
    let text = FONT.into_font().color(&INK);
    for (index, series) in picture.series.iter().enumerate() {
        let (x, y) = (10 + (index % 2) as i32 * 275, (index / 2) as i32 * LEGEND_LINE as i32);
        let square = Rectangle::new([(x, y + 5), (x + 12, y + 15)], color(index).filled());
        area.draw(&square).map_err(|e| anyhow!("{e}"))?;
        let name = Text::new(series.name.clone(), (x + 18, y + 3), text.clone());
        area.draw(&name).map_err(|e| anyhow!("{e}"))?;
    }
    Ok(())
}

/// Returns the picture as an SVG element.
///
/// # Errors
/// The picture has no value above 0.
pub(crate) fn svg(picture: &Picture) -> Result<String> {
    let Some(range) = range(picture) else { bail!("there is nothing to draw in `{}`", picture.title) };
    let has_legend = picture.series.len() > 1;
    let legend_height =
        if has_legend { picture.series.len().div_ceil(2) as u32 * LEGEND_LINE + 4 } else { 0 };
    let mut text = String::new();
    {
        let size = (SIZE.0, SIZE.1 + legend_height);
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        let (upper, lower) = root.split_vertically(legend_height);
        if has_legend {
            legend(&upper, picture)?;
        }
        let drawing = Drawing { picture, range: range.clone() };
        if picture.log {
            drawing.draw(&lower, range.log_scale())?;
        } else {
            drawing.draw(&lower, range)?;
        }
        root.present().map_err(|e| anyhow!("{e}"))?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
