//! How much of its repetitions a test makes: all of them if `QUENCH_DEEP=1` is set, otherwise a
//! small, fixed part.

/// Returns true if tests run at their whole depth.
pub fn is_deep() -> bool {
    std::env::var("QUENCH_DEEP").is_ok_and(|deep| deep == "1")
}

/// Returns how often a test repeats something: `full` times at its whole depth, otherwise a
/// twentieth of that.
pub fn depth(full: u64) -> u64 {
    if is_deep() { full } else { full.div_ceil(20) }
}

/// Returns the numbers below `full` at its whole depth, otherwise `few` of them at equal distances.
pub fn spread(full: u64, few: u64) -> impl Iterator<Item = u64> {
    let count = if is_deep() { full } else { few.min(full) };
    (0..count).map(move |n| n * full / count)
}

/// Returns all members of `all` at its whole depth, otherwise `few` of them at equal distances.
pub fn some<T: Copy>(all: &[T], few: u64) -> Vec<T> {
    spread(all.len() as u64, few).map(|n| all[n as usize]).collect()
}
