//! How flags are read from their text.

use clap::builder::{PossibleValue, TypedValueParser};
use quench_bench::modelled::{FIGURES, Figures};
use quench_bench::requests::Prices;
pub use quench_bench::sizes::bytes;
use quenchdb::{Compression, Error, Preset};
use std::path::Path;

/// Parses the name of a modelled device, with other figures or without. Help and completions list
/// the models.
#[derive(Clone)]
pub struct DeviceParser;

impl TypedValueParser for DeviceParser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        let name = |text: &str| -> Result<String, String> {
            Figures::parse(text).map(|figures| figures.name.to_string())
        };
        name.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(FIGURES.iter().map(|f| PossibleValue::new(f.name).help(f.summary))))
    }
}

pub fn parse_compression(name: &str) -> Result<Compression, String> {
    Compression::from_name(name).map_err(|error| error.to_string())
}

/// Reads the prices of a store of objects from the file at a path.
pub fn prices(path: &str) -> Result<Prices, String> {
    Prices::read(Path::new(path)).map_err(|error| format!("{error:#}"))
}

pub fn percent(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(percent) if percent <= 100 => Ok(percent),
        _ => Err("a number from 0 to 100".into()),
    }
}

pub fn theta(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(theta) if (0.0..10.0).contains(&theta) && (theta - 1.0).abs() > 1e-6 => Ok(theta),
        _ => Err("a number from 0 (uniform) to below 10, other than 1 (try 0.99)".into()),
    }
}

pub fn positive_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 1e6 => Ok(seconds),
        _ => Err("a number of seconds above 0".into()),
    }
}

pub fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate <= 1e9 => Ok(rate),
        _ => Err("a number of transactions per second above 0".into()),
    }
}

pub fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=1e6).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds".into()),
    }
}

/// Parses an interval; `continuous` is 0.
pub fn every(text: &str) -> Result<f64, String> {
    if text == "continuous" {
        return Ok(0.0);
    }
    positive_seconds(text).map_err(|_| "a number of seconds above 0, or `continuous`".into())
}

pub fn value_bytes(text: &str) -> Result<usize, String> {
    let value = bytes(text)?;
    usize::try_from(value).ok().filter(|value| *value <= 1 << 30).ok_or_else(|| "at most 1g".into())
}

/// Parses the name of a preset.
pub fn parse_preset(name: &str) -> Result<Preset, String> {
    Preset::from_name(name).map_err(said)
}

/// Returns the error as clap wants it.
pub fn said(error: Error) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests;
