//! What counts of the parts of a long transaction.

use super::*;
use crate::base::random::Random;

fn part(number: u32, start: u64) -> Part {
    Part { first: Csn(u64::from(number.min(1))), start, number }
}

#[test]
fn what_a_later_part_takes_back_does_not_count() {
    let counting = |parts: &[(u64, usize)]| {
        let parts: Vec<_> = (0..).zip(parts).map(|(n, (start, bytes))| (part(n, *start), *bytes)).collect();
        counting_bytes(&parts)
    };
    assert_eq!(counting(&[(0, 10), (10, 5), (15, 0)]), Some(vec![10, 5, 0]));
    assert_eq!(counting(&[(0, 10), (10, 5), (7, 20)]), Some(vec![7, 0, 20]));
    assert_eq!(counting(&[(0, 10), (4, 5), (9, 5), (6, 1), (7, 2)]), Some(vec![4, 2, 0, 1, 2]));
    assert_eq!(counting(&[(0, 10), (0, 3)]), Some(vec![0, 3]));
    assert_eq!(counting(&[(0, 10), (11, 3)]), None, "a gap");
    assert_eq!(counting_bytes(&[(part(1, 0), 10)]), None, "the first is missing");
    assert_eq!(counting_bytes(&[(part(0, 0), 10), (part(2, 10), 10)]), None, "one is missing");
    assert_eq!(counting_bytes(&[(part(0, 0), 10), (part(1, u64::MAX), 10)]), None);
}

#[test]
fn what_counts_is_what_a_buffer_without_parts_would_hold() {
    for seed in 0..300 {
        let mut random = Random::from_seed(seed);
        let (mut whole, mut parts, mut pending) = (Vec::new(), Vec::new(), Vec::new());
        let mut base = 0;
        for step in 0..random.below(40) {
            match random.below(5) {
                0 => {
                    let to = random.below(whole.len() as u64 + 1) as usize;
                    whole.truncate(to);
                    pending.truncate(to.saturating_sub(base));
                    base = base.min(to);
                }
                1 => {
                    let bytes = std::mem::take(&mut pending);
                    parts.push((part(parts.len() as u32, base as u64), bytes));
                    base = whole.len();
                }
                _ => {
                    let bytes = vec![step as u8; 1 + random.below(5) as usize];
                    whole.extend_from_slice(&bytes);
                    pending.extend_from_slice(&bytes);
                }
            }
        }
        parts.push((part(parts.len() as u32, base as u64), pending));
        let lens: Vec<_> = parts.iter().map(|(part, bytes)| (*part, bytes.len())).collect();
        let counting = counting_bytes(&lens).expect("they fit");
        let put_together: Vec<u8> =
            parts.iter().zip(counting).flat_map(|((_, bytes), counts)| bytes[..counts].to_vec()).collect();
        assert_eq!(put_together, whole, "seed {seed}");
    }
}
