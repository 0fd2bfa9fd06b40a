//! The engine's only source of randomness: SplitMix64 and xoshiro256++ (Blackman and Vigna, 2019),
//! seeded.

/// A small, fast generator for decisions and identities, not for secrets.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// Returns the generator of `seed`: equal seeds give equal numbers.
    #[must_use]
    pub fn from_seed(seed: u64) -> Random {
        let mut x = seed;
        let state = std::array::from_fn(|_| {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = x;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        });
        Random { state }
    }

    /// Returns a generator seeded by the operating system (through the standard library's hash
    /// keys).
    #[must_use]
    pub fn from_entropy() -> Random {
        use std::hash::{BuildHasher, Hasher};
        #[cfg(feature = "simulation")]
        if let Some(environment) = super::environment::Environment::current() {
            return Random::from_seed(Random::from_seed(environment.draw_seed()).next_u64());
        }
        let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
        hasher.write_u64(std::process::id().into());
        Random::from_seed(hasher.finish())
    }

    /// Returns the next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Returns a number below `bound` (0 when `bound` is 0), by multiply-shift: the bias is below
    /// 2^-32 for bounds used here.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number in [0, 1).
    #[cfg(feature = "internals")]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns true with probability `numerator / denominator`.
    #[cfg(feature = "internals")]
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }
}

#[cfg(test)]
mod tests;
