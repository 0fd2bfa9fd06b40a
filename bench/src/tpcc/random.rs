//! The random numbers and texts of TPC-C: clauses 2.1.6, 4.3.2 and 4.3.3.

use quenchdb::internals::base::random::Random;

/// The constants C of NURand, the same for all terminals of a run (clause 2.1.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Constants {
    /// For last names, A = 255.
    pub last_name: u64,
    /// For customers, A = 1023.
    pub customer: u64,
    /// For items, A = 8191.
    pub item: u64,
}

impl Constants {
    /// Those of a population.
    #[must_use]
    pub fn of_population(seed: u64) -> Constants {
        let mut random = Random::from_seed(seed ^ 0xc10ad);
        Constants { last_name: random.below(256), customer: random.below(1024), item: random.below(8192) }
    }

    /// Those of a run over that population: the last names' constant differs by 65 to 119, but not
    /// by 96 or 112 (clause 2.1.6.1).
    #[must_use]
    pub fn of_run(&self, seed: u64) -> Constants {
        let mut random = Random::from_seed(seed ^ 0xc0a11);
        let allowed: Vec<u64> = (0..256)
            .filter(|c: &u64| {
                let delta = c.abs_diff(self.last_name);
                (65..=119).contains(&delta) && delta != 96 && delta != 112
            })
            .collect();
        let last_name = allowed[random.below(allowed.len() as u64) as usize];
        Constants { last_name, customer: random.below(1024), item: random.below(8192) }
    }
}

/// A number from `low` to `high`, both included, all alike.
pub fn uniform(random: &mut Random, low: u64, high: u64) -> u64 {
    low + random.below(high - low + 1)
}

/// NURand(A, `low`, `high`): not uniform.
pub fn nurand(random: &mut Random, a: u64, c: u64, low: u64, high: u64) -> u64 {
    let drawn = uniform(random, 0, a) | uniform(random, low, high);
    (drawn + c) % (high - low + 1) + low
}

const SYLLABLES: [&[u8]; 10] =
    [b"BAR", b"OUGHT", b"ABLE", b"PRI", b"PRES", b"ESE", b"ANTI", b"CALLY", b"ATION", b"EING"];

/// A text of at most `N` bytes.
#[derive(Clone, Copy, Debug)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    fn new() -> Text<N> {
        Text { bytes: [0; N], len: 0 }
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

/// The last name of a number below 1000 (clause 4.3.2.3).
#[must_use]
pub fn last_name(number: u64) -> Text<16> {
    let mut name = Text::new();
    for digit in [number / 100, number / 10 % 10, number % 10] {
        name.push(SYLLABLES[digit as usize]);
    }
    name
}

fn of_alphabet<const N: usize>(random: &mut Random, low: usize, alphabet: &[u8]) -> Text<N> {
    let mut text = Text::new();
    for _ in 0..uniform(random, low as u64, N as u64) {
        text.push(&[alphabet[random.below(alphabet.len() as u64) as usize]]);
    }
    text
}

/// A random a-string of `low` to `N` characters.
pub fn letters<const N: usize>(random: &mut Random, low: usize) -> Text<N> {
    of_alphabet(random, low, b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
}

/// A random n-string of `low` to `N` digits.
pub fn digits<const N: usize>(random: &mut Random, low: usize) -> Text<N> {
    of_alphabet(random, low, b"0123456789")
}

const ORIGINAL: &[u8] = b"ORIGINAL";

/// I_DATA or S_DATA: 26 to 50 characters, in one case of ten with `ORIGINAL` somewhere (clause
/// 4.3.3.1).
pub fn data(random: &mut Random) -> Text<50> {
    let mut text = letters::<50>(random, 26);
    if random.chance(1, 10) {
        let at = random.below((text.len - ORIGINAL.len() + 1) as u64) as usize;
        text.bytes[at..at + ORIGINAL.len()].copy_from_slice(ORIGINAL);
    }
    text
}

/// True if [`data`] put it there.
#[must_use]
pub fn is_original(data: &[u8]) -> bool {
    data.windows(ORIGINAL.len()).any(|window| window == ORIGINAL)
}

/// Street, street, city, state and ZIP code, each at its place.
pub fn address(random: &mut Random) -> [u8; 71] {
    let mut address = [0; 71];
    for at in [0, 20, 40] {
        let part = letters::<20>(random, 10);
        address[at..at + part.len].copy_from_slice(part.as_bytes());
    }
    address[60..62].copy_from_slice(of_alphabet::<2>(random, 2, b"ABCDEFGHIJKLMNOPQRSTUVWXYZ").as_bytes());
    address[62..66].copy_from_slice(digits::<4>(random, 4).as_bytes());
    address[66..].copy_from_slice(b"11111");
    address
}

/// The numbers `1 ..= count` in random order.
pub fn permutation(random: &mut Random, count: u16) -> Vec<u16> {
    let mut numbers: Vec<u16> = (1..=count).collect();
    for place in (1..numbers.len()).rev() {
        numbers.swap(place, random.below(place as u64 + 1) as usize);
    }
    numbers
}

/// Seconds since 1970.
#[must_use]
pub fn now() -> u32 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    // A clock before 1970 is not worth an error in a benchmark; 0 would mean null.
    since.map_or(1, |since| since.as_secs() as u32).max(1)
}

/// Chi-square of `seen` against `expected`.
#[cfg(test)]
pub(crate) fn chi_square(seen: &[u64], expected: &[f64]) -> f64 {
    seen.iter().zip(expected).map(|(&seen, expected)| (seen as f64 - expected).powi(2) / expected).sum()
}

/// The 99.99th percentile of chi-square, about (Wilson and Hilferty).
#[cfg(test)]
pub(crate) fn chi_square_bound(degrees: usize) -> f64 {
    let k = degrees as f64;
    k * (1.0 - 2.0 / (9.0 * k) + 3.72 * (2.0 / (9.0 * k)).sqrt()).powi(3)
}

#[cfg(test)]
mod tests;
