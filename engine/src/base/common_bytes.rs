//! Counts the bytes that two byte strings have in common.

const WORD: usize = size_of::<u64>();

/// Returns how many bytes `a` and `b` have in common at their beginning.
#[inline]
#[must_use]
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let words = a.as_chunks::<WORD>().0.iter().zip(b.as_chunks::<WORD>().0);
    let equal = WORD * words.take_while(|(a, b)| a == b).count();
    equal + a[equal..].iter().zip(&b[equal..]).take_while(|(a, b)| a == b).count()
}

/// Returns how many bytes `a` and `b` have in common at their end.
#[inline]
#[must_use]
pub fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    let words = a.as_rchunks::<WORD>().1.iter().rev().zip(b.as_rchunks::<WORD>().1.iter().rev());
    let equal = WORD * words.take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[..a.len() - equal], &b[..b.len() - equal]);
    equal + a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_and_suffix_are_those_of_a_comparison_by_bytes() {
        let bytes: Vec<u8> = (0..40).collect();
        for (len, other_len) in [(0, 0), (0, 7), (1, 1), (7, 9), (8, 8), (16, 17), (23, 40), (40, 40)] {
            for differing in 0..=len {
                let (a, mut b) = (&bytes[..len], bytes[..other_len].to_vec());
                if let Some(byte) = b.get_mut(differing) {
                    *byte ^= 0x80;
                }
                let expected = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
                assert_eq!(common_prefix(a, &b), expected, "{a:?} {b:?}");
                let (a, b): (Vec<u8>, Vec<u8>) =
                    (a.iter().rev().copied().collect(), b.iter().rev().copied().collect());
                assert_eq!(common_suffix(&a, &b), expected, "{a:?} {b:?}");
            }
        }
    }
}
