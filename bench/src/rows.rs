//! The rows of the workloads: every value can be checked against its key alone.
//!
//! | bytes | of a value |
//! |---|---|
//! | 0 to 8 | a random number |
//! | 8 to the end | random bytes of the generator seeded by that number and the key |
//!
//! So a value under the wrong key, a mixture of two, and one of another length are found. Values
//! shorter than 16 bytes are only checked for their length.
//!
//! A value whose fields are updated one by one consists of fields that can each be checked:
//!
//! | bytes | of a field |
//! |---|---|
//! | 0 to 4 | a random number |
//! | 4 to the end | random bytes, seeded by that number, the key and the field's place |

use quenchdb::internals::base::random::Random;

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

/// Writes a new value of the row `key`.
pub fn fill_value(random: &mut Random, key: u64, value: &mut [u8]) {
    if value.len() < CHECKED_FROM_BYTES {
        return fill(random, value);
    }
    let nonce = random.next_u64();
    let (head, tail) = value.split_at_mut(8);
    head.copy_from_slice(&nonce.to_le_bytes());
    stream(key, nonce, tail, |chunk, word| chunk.copy_from_slice(word));
}

/// Returns true if `value` is a value of [`fill_value`] for `key` with `bytes` bytes.
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

/// The shape of the values of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Bytes of a value.
    pub bytes: usize,
    /// Bytes of a field, at least 8 and a divisor of `bytes`, if fields are updated one by one.
    pub field_bytes: Option<usize>,
}

fn fill_field(key: u64, place: usize, nonce: u32, field: &mut [u8]) {
    let (head, tail) = field.split_at_mut(4);
    head.copy_from_slice(&nonce.to_le_bytes());
    let seed = u64::from(nonce) | (place as u64) << 32;
    stream(key, seed, tail, |chunk, word| chunk.copy_from_slice(word));
}

fn is_field_of(key: u64, place: usize, field: &[u8]) -> bool {
    let Some((head, tail)) = field.split_first_chunk::<4>() else { return false };
    let seed = u64::from(u32::from_le_bytes(*head)) | (place as u64) << 32;
    let (mut tail, mut same) = (tail.to_vec(), true);
    stream(key, seed, &mut tail, |chunk, word| same &= chunk == word);
    same
}

impl Shape {
    /// Writes a new value of the row `key`; `value` has its length.
    pub fn fill(&self, random: &mut Random, key: u64, value: &mut [u8]) {
        let Some(field_bytes) = self.field_bytes else { return fill_value(random, key, value) };
        for (place, field) in value.chunks_mut(field_bytes).enumerate() {
            fill_field(key, place, random.next_u64() as u32, field);
        }
    }

    /// Changes a random field of the row `key`, or the whole value without fields.
    pub fn change(&self, random: &mut Random, key: u64, value: &mut [u8]) {
        let Some(field_bytes) = self.field_bytes else { return fill_value(random, key, value) };
        let place = random.below((value.len() / field_bytes) as u64) as usize;
        let field = &mut value[place * field_bytes..(place + 1) * field_bytes];
        fill_field(key, place, random.next_u64() as u32, field);
    }

    /// Returns true if `value` is a value of the two functions above for `key`.
    #[must_use]
    pub fn is_value_of(&self, key: u64, value: &[u8]) -> bool {
        let Some(field_bytes) = self.field_bytes else { return is_value_of(key, value, self.bytes) };
        let mut fields = value.chunks(field_bytes).enumerate();
        value.len() == self.bytes && fields.all(|(place, field)| is_field_of(key, place, field))
    }
}

#[cfg(test)]
mod tests;
