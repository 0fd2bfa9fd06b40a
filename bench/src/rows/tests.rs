//! Tests of `rows`.

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
fn fields_change_one_by_one_and_every_changed_byte_shows() {
    let (mut random, shape) = (Random::from_seed(3), Shape { bytes: 80, field_bytes: Some(8) });
    let mut value = vec![0; 80];
    shape.fill(&mut random, 7, &mut value);
    for _ in 0..100 {
        let before = value.clone();
        shape.change(&mut random, 7, &mut value);
        let changed = |(a, b): (&[u8], &[u8])| usize::from(a != b);
        let fields: usize = value.chunks(8).zip(before.chunks(8)).map(changed).sum();
        assert!(fields <= 1 && shape.is_value_of(7, &value));
    }
    assert!(!shape.is_value_of(8, &value) && !shape.is_value_of(7, &value[..72]));
    value.swap(0, 8);
    assert!(!shape.is_value_of(7, &value), "a field in another place");
}

#[test]
fn short_values_are_checked_for_their_length() {
    let mut value = [0; 5];
    fill_value(&mut Random::from_seed(1), 7, &mut value);
    assert!(is_value_of(7, &value, 5) && !is_value_of(7, &value, 4));
}
