//! Devices with figures of the user's choice: a model, some of whose figures are replaced.
//!
//! ```text
//!   sim:ebs-gp3                          the model
//!   sim:ebs-gp3:iops=8000,rate=250m      the same with more requests and bytes a second
//!   sim:custom:write=500us,slots=1       nothing but this: one write at a time, 500 us each
//! ```

use super::figures::{FIGURES, Figures, RequestLimit, SILENT};
use crate::sizes::bytes;
use std::sync::{Mutex, PoisonError};

/// The base of a device that has only the chosen figures.
const CUSTOM: &str = "sim:custom";

/// Meaning of the keys, for messages and help.
pub const KEYS: &str = "write, read, access, flush (times: 500us), slots, iops (numbers), rate (bytes a second: 250m), \
                        noise (percent)";

/// Devices that were chosen in this process: figures live as long as the program.
static CHOSEN: Mutex<Vec<&'static Figures>> = Mutex::new(Vec::new());

impl Figures {
    /// Returns the device that a text names: a model, or a model and figures that replace its own.
    ///
    /// # Errors
    /// What is wrong with the text, and what it may be.
    pub fn parse(text: &str) -> Result<&'static Figures, String> {
        if let Some(figures) = Figures::named(text) {
            return Ok(figures);
        }
        // Behind the colon of `sim:`.
        let colon = text.match_indices(':').nth(1).map(|(at, _)| at);
        let (name, list) = colon.map_or((text, ""), |at| (&text[..at], &text[at + 1..]));
        let mut figures = match Figures::named(name) {
            Some(figures) => *figures,
            None if name == CUSTOM && list.is_empty() => {
                return Err(format!(
                    "{CUSTOM} needs figures, such as {CUSTOM}:write=500us; the keys are {KEYS}"
                ));
            }
            None if name == CUSTOM => SILENT,
            None => {
                let names: Vec<&str> = FIGURES.iter().map(|figures| figures.name).collect();
                return Err(format!(
                    "no device is called `{name}`; the names are {}, {CUSTOM}",
                    names.join(", ")
                ));
            }
        };
        for item in list.split(',') {
            figures.replace(item)?;
        }
        let mut chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = chosen.iter().find(|known| known.name == text) {
            return Ok(known);
        }
        figures.name = String::leak(text.to_string());
        let figures: &'static Figures = Box::leak(Box::new(figures));
        chosen.push(figures);
        Ok(figures)
    }

    /// Replaces a figure as `KEY=VALUE` says.
    fn replace(&mut self, item: &str) -> Result<(), String> {
        let wrong = |what: &str| format!("`{item}`: {what}; the keys are {KEYS}");
        let (key, value) = item.split_once('=').ok_or_else(|| wrong("not KEY=VALUE"))?;
        let number = || match value.parse::<u64>() {
            Ok(number) if (1..=1_000_000_000).contains(&number) => Ok(number),
            _ => Err(wrong("not a number from 1 to 1000000000")),
        };
        let time = || nanoseconds(value).ok_or_else(|| wrong("not a time with ns, us, ms or s, up to 100 s"));
        match key {
            "write" => self.write.flat_ns = time()?,
            "read" => self.read.flat_ns = time()?,
            "access" => (self.write.flat_ns, self.read.flat_ns) = (time()?, time()?),
            "flush" => self.flush_ns = Some((time()?, time()?)),
            "slots" => self.slots = number()?.min(4096) as usize,
            "iops" => {
                let bytes = self.requests.map_or(256 << 10, |limit| limit.bytes);
                self.requests = Some(RequestLimit { per_second: number()?, bytes });
            }
            "rate" => {
                let rate = bytes(value).ok().filter(|rate| *rate > 0);
                let rate = rate.ok_or_else(|| wrong("not a number of bytes with k, m, g or t"))?;
                (self.read_bytes_per_second, self.write_bytes_per_second) = (rate, rate);
            }
            "noise" => match value.parse::<u32>() {
                Ok(percent) if percent < 100 => self.jitter = f64::from(percent) / 100.0,
                _ => return Err(wrong("not a percentage below 100")),
            },
            _ => return Err(wrong("not a key")),
        }
        Ok(())
    }
}

/// Reads a time such as `500us` or `1.5ms`.
fn nanoseconds(text: &str) -> Option<u64> {
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let (number, unit) = units.into_iter().find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, ns)))?;
    let ns = number.parse::<f64>().ok()? * unit;
    (0.0..=100e9).contains(&ns).then_some(ns.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modelled::figures::UNLIMITED;

    #[test]
    fn chosen_figures_replace_those_of_the_model() {
        let text = "sim:ebs-gp3:iops=8000,rate=250m,write=1.5ms";
        let (model, chosen) =
            (Figures::parse("sim:ebs-gp3").expect("known"), Figures::parse(text).expect("valid"));
        assert_eq!(chosen.name, text);
        assert_eq!(chosen.requests, Some(RequestLimit { per_second: 8000, bytes: 256 << 10 }));
        assert_eq!((chosen.write.flat_ns, chosen.write.flat_bytes), (1_500_000, model.write.flat_bytes));
        assert_eq!((chosen.read, chosen.tail), (model.read, model.tail));
        assert_eq!((chosen.read_bytes_per_second, chosen.write_bytes_per_second), (250 << 20, 250 << 20));
        assert!(std::ptr::eq(chosen, Figures::parse(text).expect("valid")), "it is kept once");
        let custom = Figures::parse("sim:custom:access=8ms,flush=200us,slots=1,noise=5").expect("valid");
        assert_eq!((custom.write.flat_ns, custom.read.flat_ns), (8_000_000, 8_000_000));
        assert_eq!((custom.flush_ns, custom.slots, custom.jitter), (Some((200_000, 200_000)), 1, 0.05));
        assert_eq!((custom.write_bytes_per_second, custom.requests, custom.tail), (UNLIMITED, None, None));
    }

    #[test]
    fn wrong_figures_are_refused_with_what_they_may_be() {
        for (text, said) in [
            ("sim:floppy", "the names are sim:nvme-enterprise"),
            ("sim:floppy:write=1ms", "`sim:floppy`"),
            ("nvme-enterprise", "no device is called `nvme-enterprise`"),
            ("sim:custom", "needs figures"),
            ("sim:custom:", "needs figures"),
            ("sim:ebs-gp3:", "``: not KEY=VALUE"),
            ("sim:ebs-gp3:iops", "`iops`: not KEY=VALUE"),
            ("sim:ebs-gp3:colour=1", "`colour=1`: not a key"),
            ("sim:ebs-gp3:iops=0", "not a number from 1"),
            ("sim:ebs-gp3:write=5", "not a time"),
            ("sim:ebs-gp3:write=-5us", "not a time"),
            ("sim:ebs-gp3:write=nanus", "not a time"),
            ("sim:ebs-gp3:write=200s", "up to 100 s"),
            ("sim:ebs-gp3:rate=0", "not a number of bytes"),
            ("sim:ebs-gp3:rate=99999999999g", "not a number of bytes"),
            ("sim:ebs-gp3:noise=100", "below 100"),
        ] {
            let error = Figures::parse(text).expect_err(text);
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
