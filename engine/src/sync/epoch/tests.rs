//! Unit tests of `epoch`.

use super::*;

#[test]
fn readers_keep_what_they_saw() {
    let cell = EpochCell::default();
    cell.replace(Some(String::from("old")), &pin());
    let guard = pin();
    let seen = cell.load(&guard).expect("just stored");
    cell.replace(Some(String::from("new")), &pin());
    assert_eq!(seen, "old");
    assert_eq!(cell.load(&guard).map(String::as_str), Some("new"));
    cell.replace(None, &guard);
    assert!(cell.load(&guard).is_none());
}

#[test]
fn readers_keep_the_bytes_that_they_saw() {
    let cell = EpochBytes::default();
    assert_eq!(cell.load(&pin()), None);
    cell.replace(Some((b"he", b"ad")), &pin());
    let guard = pin();
    let seen = cell.load(&guard).expect("just stored");
    cell.replace(Some((b"", b"")), &pin());
    assert_eq!(seen, b"head");
    assert_eq!(cell.load(&guard), Some(&b""[..]));
    cell.replace(None, &guard);
    assert_eq!(cell.load(&guard), None);
}

#[test]
fn concurrent_readers_of_bytes_see_one_replacement() {
    let cell = EpochBytes::default();
    let bytes = |i: u64| [i.to_le_bytes(); 4].concat();
    cell.replace(Some((&bytes(0), &[])), &pin());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..if cfg!(miri) { 50 } else { 20_000 } {
                    let guard = pin();
                    let seen = cell.load(&guard).expect("never emptied");
                    assert!(seen.chunks(8).all(|word| word == &seen[..8]));
                }
            });
        }
        for i in 0..if cfg!(miri) { 50 } else { 20_000 } {
            let bytes = bytes(i);
            let (head, body) = bytes.split_at(i as usize % 33);
            cell.replace(Some((head, body)), &pin());
        }
    });
}

#[test]
fn concurrent_readers_never_see_freed_memory() {
    let cell = EpochCell::default();
    cell.replace(Some(vec![0u64; 8]), &pin());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..if cfg!(miri) { 50 } else { 20_000 } {
                    let guard = pin();
                    let values = cell.load(&guard).expect("never emptied");
                    assert!(values.iter().all(|v| v == &values[0]));
                }
            });
        }
        for i in 0..if cfg!(miri) { 50 } else { 20_000 } {
            cell.replace(Some(vec![i; 8]), &pin());
        }
    });
}
