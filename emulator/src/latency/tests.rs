//! Unit tests of the latency models, against the figures that they stand for.

use super::*;

fn median(model: Latency, writes: bool, bytes: u64) -> f64 {
    let mut random = fastrand::Rng::with_seed(7);
    let mut times: Vec<f64> =
        (0..2001).map(|_| model.draw(writes, bytes, &mut random).as_secs_f64() * 1e3).collect();
    times.sort_by(f64::total_cmp);
    times[1000]
}

#[test]
fn express_write_is_flat_to_1_mib_then_linear() {
    for bytes in [0, 128 << 10, 1 << 20] {
        assert!((7.8..8.2).contains(&median(Latency::S3Express, true, bytes)), "{bytes}");
    }
    assert!((21.0..23.0).contains(&median(Latency::S3Express, true, 2 << 20)));
}

#[test]
fn standard_takes_ten_times_as_long() {
    assert!((74.0..80.0).contains(&median(Latency::S3Standard, true, 2 << 20)));
    assert!((97.0..103.0).contains(&median(Latency::S3Standard, false, 4096)));
}

#[test]
fn one_request_in_a_hundred_is_in_the_tail() {
    let mut random = fastrand::Rng::with_seed(3);
    let times: Vec<Duration> = (0..20_000).map(|_| Latency::S3Express.draw(true, 100, &mut random)).collect();
    let above = times.iter().filter(|time| **time > Duration::from_micros(8_800)).count();
    assert!((100..300).contains(&above), "{above}");
    assert!(times.iter().max().unwrap() <= &Duration::from_millis(240));
}
