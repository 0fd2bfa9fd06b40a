//! Samples: values that a type may ask for.

/// Texts, the most common first.
const TEXTS: [&str; 10] = [
    "",
    "1",
    "2000-01-01T00:00:00Z",
    "2000-01-01",
    "2000-01-01T00:00:00",
    "00:00:00",
    "127.0.0.1",
    "a@example.com",
    "http://example.com/",
    "00000000-0000-0000-0000-000000000001",
];
/// Lengths of bytes.
const LENGTHS: [usize; 5] = [0, 16, 4, 32, 8];
/// Numbers. Zero comes later, because many types exclude it.
const NUMBERS: [u8; 4] = [1, 0, 2, 100];

/// Samples of each kind that are worth a try; the last one is tried again for the others.
pub(super) const SAMPLES: usize = TEXTS.len();

pub(super) fn text(sample: usize) -> &'static str {
    TEXTS[sample.min(TEXTS.len() - 1)]
}

pub(super) fn bytes(sample: usize) -> Vec<u8> {
    vec![0; LENGTHS[sample.min(LENGTHS.len() - 1)]]
}

pub(super) fn number(sample: usize) -> u8 {
    NUMBERS[sample.min(NUMBERS.len() - 1)]
}
