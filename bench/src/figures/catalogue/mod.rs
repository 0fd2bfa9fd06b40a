//! What each paper shows, and how this program measures it: a file for each paper, and one for the
//! tables of our own.
//!
//! A figure is a few rows. A claim is one row, with the words of the paper, their place, the
//! published number, and where our number is found:
//!
//! ```text
//!   { says = "p90 of FlushQueue over Our4KB", place = "figure 9a", published = "12431 x",
//!     measure = "p90", of = "FlushQueue", to = "Our4KB" },
//! ```
//!
//! `published = "more"` is a statement without a number. `without` is the number that there would
//! be without the effect, where this is not 1 x or 0 %: a claim that two things are equal names
//! there what they would be otherwise. [`super::claim`] says when a claim is reproduced.

mod rows;

use super::spec::Figure;
use anyhow::{Context, Result};
use rows::{Common, File};

/// Words and measures of all files.
const COMMON: &str = include_str!("common.toml");

/// The files, in the order of the report.
const FILES: [(&str, &str); 6] = [
    ("autonomous.toml", include_str!("autonomous.toml")),
    ("objects.toml", include_str!("objects.toml")),
    ("early_release.toml", include_str!("early_release.toml")),
    ("group.toml", include_str!("group.toml")),
    ("passive.toml", include_str!("passive.toml")),
    ("presets.toml", include_str!("presets.toml")),
];

fn read(name: &str, text: &str) -> Result<File> {
    toml::from_str(text).with_context(|| format!("bench/src/figures/catalogue/{name}"))
}

/// Returns all figures and tables, paper by paper, and then our own.
///
/// # Errors
/// A file of the catalogue is wrong; the tests of this module read all.
pub fn all() -> Result<Vec<Figure>> {
    let common = read("common.toml", COMMON)?;
    let mut all = Vec::new();
    for (name, text) in FILES {
        let file = read(name, text)?;
        all.extend(Common { common: &common, file: &file }.figures()?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
