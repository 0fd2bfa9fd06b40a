//! Numbers for people.

pub use quench_bench::sizes::grouped;

/// Returns a number of bytes with a unit of powers of 1024 and at most one digit after the point.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let (mut number, mut unit) = (bytes as f64 / 1024.0, 0);
    // 1023.95 would be shown as 1024.0.
    while number >= 1023.95 && unit + 1 < UNITS.len() {
        number /= 1024.0;
        unit += 1;
    }
    let text = format!("{number:.1}");
    format!("{} {}", text.strip_suffix(".0").unwrap_or(&text), UNITS[unit])
}

/// Returns a number with commas between thousands.
pub fn count(number: u64) -> String {
    grouped(&number.to_string())
}

#[cfg(test)]
mod tests;
