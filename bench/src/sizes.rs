//! Sizes as text.

/// Parses a number of bytes: digits, and k, m, g or t for powers of 1024.
///
/// # Errors
/// What the text may be.
pub fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || "a number of bytes, with k, m, g or t for powers of 1024 (64m)".to_string();
    let shift = match text.chars().last().map(|unit| unit.to_ascii_lowercase()) {
        Some('k') => 10,
        Some('m') => 20,
        Some('g') => 30,
        Some('t') => 40,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(wrong());
    }
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

/// Returns digits with commas between thousands.
#[must_use]
pub fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
