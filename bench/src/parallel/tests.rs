//! Tests of `parallel`.

use super::*;

#[test]
fn every_part_is_done_once_and_an_error_ends_it() {
    let mut parts = in_parallel(3, 100, "counting", &|_, _, _| {}, Ok).expect("done");
    parts.sort_unstable();
    assert_eq!(parts, (0..100).collect::<Vec<u64>>());
    let begun = AtomicU64::new(0);
    let failing = |index| {
        begun.fetch_add(1, Ordering::Relaxed);
        if index == 5 { Err(anyhow!("part five")) } else { Ok(()) }
    };
    let error = in_parallel(1, 1000, "failing", &|_, _, _| {}, failing).expect_err("fails");
    assert_eq!((error.to_string().as_str(), begun.into_inner()), ("part five", 6));
}
