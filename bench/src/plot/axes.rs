//! The size, font and labels of every picture.

pub(super) const SIZE: (u32, u32) = (1100, 640);
pub(super) const FONT: &str = "sans-serif";

/// As short as a label of an axis has to be.
pub(crate) fn short(number: f64) -> String {
    match number {
        n if n >= 1e6 => format!("{}M", n / 1e6),
        n if n >= 1e3 => format!("{}k", n / 1e3),
        n => n.to_string(),
    }
}
