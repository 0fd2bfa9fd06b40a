//! The rows of the workloads: every value can be checked without knowing who wrote it.
//!
//! | bytes | of a value |
//! |---|---|
//! | 0 to 8 | a random number |
//! | 8 to the end | random bytes of the generator seeded by that number and the key |
//!
//! So a value under the wrong key, a mixture of two, and one of another length are found. Values shorter than 16 bytes
//! are only checked for their length.

use quenchdb::base::random::Random;

const CHECKED_FROM_BYTES: usize = 16;

/// Bytes of a key: a big-endian number.
pub const KEY_BYTES: usize = 8;

fn stream(key: u64, nonce: u64, bytes: &mut [u8], mut take: impl FnMut(&mut [u8], &[u8])) {
    let mut random = Random::from_seed(key.rotate_left(32) ^ nonce);
    for chunk in bytes.chunks_mut(8) {
        let word = random.next_u64().to_le_bytes();
        let len = chunk.len();
        take(chunk, &word[..len]);
    }
}

/// Fills `bytes` with random bits.
pub fn fill(random: &mut Random, bytes: &mut [u8]) {
    for chunk in bytes.chunks_mut(8) {
        let word = random.next_u64().to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

/// A new value for the row `key`.
pub fn fill_value(random: &mut Random, key: u64, value: &mut [u8]) {
    if value.len() < CHECKED_FROM_BYTES {
        return fill(random, value);
    }
    let nonce = random.next_u64();
    let (head, tail) = value.split_at_mut(8);
    head.copy_from_slice(&nonce.to_le_bytes());
    stream(key, nonce, tail, |chunk, word| chunk.copy_from_slice(word));
}

/// True if `value` was made by [`fill_value`] for `key` with `bytes` bytes.
#[must_use]
pub fn is_value_of(key: u64, value: &[u8], bytes: usize) -> bool {
    if value.len() != bytes || bytes < CHECKED_FROM_BYTES {
        return value.len() == bytes;
    }
    let (head, tail) = value.split_at(8);
    let nonce = head.iter().rev().fold(0, |nonce, byte| nonce << 8 | u64::from(*byte));
    let mut tail = tail.to_vec();
    let mut same = true;
    stream(key, nonce, &mut tail, |chunk, word| same &= chunk == word);
    same
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_belongs_to_its_key_and_every_changed_byte_shows() {
        let mut random = Random::from_seed(1);
        for bytes in [16usize, 17, 100, 1000] {
            let mut value = vec![0; bytes];
            fill_value(&mut random, 7, &mut value);
            assert!(is_value_of(7, &value, bytes));
            assert!(!is_value_of(8, &value, bytes));
            assert!(!is_value_of(7, &value[..bytes - 1], bytes));
            for place in 0..bytes {
                let mut changed = value.clone();
                changed[place] ^= 0x10;
                assert!(!is_value_of(7, &changed, bytes), "byte {place} of {bytes}");
            }
        }
    }

    #[test]
    fn short_values_are_checked_for_their_length() {
        let mut value = [0; 5];
        fill_value(&mut Random::from_seed(1), 7, &mut value);
        assert!(is_value_of(7, &value, 5) && !is_value_of(7, &value, 4));
    }
}
