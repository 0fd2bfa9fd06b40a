//! What all pages share: the frame, the style sheet, and how numbers are written.
//!
//! The style sheet recolors the text, the grid and the axes of drawings for dark screens; a drawing
//! uses [`INK`] and [`GRID`] for these and nothing else, and has no background.

use crate::sizes::grouped;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use plotters::style::RGBColor;

const STYLE: &str = include_str!("page.css");

/// Color of text and axes.
pub(crate) const INK: RGBColor = RGBColor(1, 1, 1);
/// Color of the grid.
pub(crate) const GRID: RGBColor = RGBColor(221, 221, 221);
/// Font of drawings.
pub(crate) const FONT: (&str, i32) = ("sans-serif", 15);

/// Colors of series, readable on light and dark: blue, orange, green, red, purple, brown, cyan,
/// grey.
const COLORS: [RGBColor; 8] = [
    RGBColor(46, 125, 209),
    RGBColor(224, 122, 32),
    RGBColor(44, 150, 80),
    RGBColor(208, 56, 70),
    RGBColor(140, 90, 200),
    RGBColor(150, 105, 75),
    RGBColor(20, 155, 165),
    RGBColor(130, 130, 130),
];

/// Returns the color of a series.
pub(crate) fn color(index: usize) -> RGBColor {
    COLORS[index % COLORS.len()]
}

/// Returns a self-contained page without scripts.
#[must_use]
pub(crate) fn document(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                // Without one a browser asks the server for it.
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    };
    page.into_string()
}

/// Returns a number with three significant digits, and separated thousands.
#[must_use]
pub(crate) fn number(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 1000.0 {
        let text = grouped(&format!("{magnitude:.0}"));
        return if value < 0.0 { format!("-{text}") } else { text };
    }
    match magnitude {
        m if m >= 100.0 || m == 0.0 => format!("{value:.0}"),
        m if m >= 10.0 => format!("{value:.1}"),
        m if m >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_separators() {
        let texts = [0.0, 0.1234, 1.234, 12.34, 123.4, 1234.6, 1_234_567.0, -2500.0].map(number);
        assert_eq!(texts, ["0", "0.123", "1.23", "12.3", "123", "1,235", "1,234,567", "-2,500"]);
    }

    #[test]
    fn a_document_loads_and_runs_nothing() {
        let page = document("a <b>", &html! { p { "text" } });
        assert!(page.contains("<title>a &lt;b&gt;</title>") && page.contains("<p>text</p>"), "{page}");
        for foreign in ["<script", "src=", "@import", "url("] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        // The style sheet recolors what the drawings use.
        let hex =
            |RGBColor(red, green, blue): RGBColor| format!("[stroke=\"#{red:02X}{green:02X}{blue:02X}\"]");
        assert!(page.contains(&hex(INK)) && page.contains(&hex(GRID)), "{page}");
    }
}
