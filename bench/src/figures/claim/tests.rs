//! Tests of bands and verdicts.

use super::*;

fn claim(published: Published, unit: &str, without: f64) -> Claim {
    Claim {
        text: String::new(),
        place: String::new(),
        published,
        unit: unit.into(),
        without,
        ours: Ours::Value(At {
            part: String::new(),
            x: String::new(),
            variant: String::new(),
            measure: String::new(),
        }),
        because: String::new(),
        headline: false,
    }
}

fn verdict(claim: &Claim, runs: &[f64]) -> (Verdict, Option<f64>) {
    claim.verdict(Summary::of(runs.to_vec()).as_ref())
}

/// Rounds to three digits behind the point.
fn rounded(number: Option<f64>) -> Option<f64> {
    number.map(|number| (number * 1e3).round() / 1e3)
}

#[test]
fn a_band_is_half_to_twice_the_effect() {
    let band = |published, unit, without| {
        let (low, high) = claim(published, unit, without).band();
        (rounded(low), rounded(high))
    };
    assert_eq!(band(Published::Number(1.6), "x", 1.0), (Some(1.3), Some(2.2)));
    assert_eq!(band(Published::Number(0.5), "x", 1.0), (Some(0.333), Some(0.667)));
    assert_eq!(band(Published::Number(-50.0), "%", 0.0), (Some(-66.667), Some(-33.333)));
    assert_eq!(band(Published::Number(20.0), "%", 0.0), (Some(10.0), Some(40.0)));
    // As much as another one, where 18 times as much would be no effect.
    assert_eq!(band(Published::Number(1.0), "x", 18.0), (Some(0.514), Some(1.895)));
    assert_eq!(band(Published::More, "x", 1.0), (Some(1.1), None));
    assert_eq!(band(Published::Less, "x", 1.0), (None, Some(0.909)));
}

#[test]
fn a_verdict_is_that_of_band_direction_and_noise() {
    let faster = claim(Published::Number(1.6), "x", 1.0);
    assert_eq!(verdict(&faster, &[1.5, 1.6, 1.4]).0, Verdict::Reproduced);
    assert_eq!(rounded(verdict(&faster, &[1.5]).1), Some(0.833));
    assert_eq!(verdict(&faster, &[1.2, 1.1, 1.25]).0, Verdict::SameDirection);
    assert_eq!(verdict(&faster, &[4.0, 4.1, 3.9]).0, Verdict::SameDirection);
    assert_eq!(rounded(verdict(&faster, &[4.0, 4.1, 3.9]).1), Some(5.0));
    assert_eq!(verdict(&faster, &[0.9, 0.8, 0.95]).0, Verdict::NotHere);
    // Even with a median within the band.
    assert_eq!(verdict(&faster, &[0.9, 1.6, 1.7]).0, Verdict::WithinNoise);
    let shorter = claim(Published::Number(-28.4), "%", 0.0);
    assert_eq!(verdict(&shorter, &[-20.0, -30.0, -35.0]).0, Verdict::Reproduced);
    assert_eq!(verdict(&shorter, &[-5.0, -6.0, -7.0]).0, Verdict::SameDirection);
    assert_eq!(verdict(&shorter, &[5.0, 6.0, 7.0]).0, Verdict::NotHere);
    let more = claim(Published::More, "x", 1.0);
    assert_eq!(verdict(&more, &[1.05, 1.04, 1.06]), (Verdict::SameDirection, None));
    assert_eq!(verdict(&more, &[30.0]), (Verdict::Reproduced, None));
    assert_eq!(verdict(&more, &[]), (Verdict::NotMeasured, None));
    let absent = Claim { ours: Ours::Absent, ..more };
    assert_eq!(verdict(&absent, &[]), (Verdict::NotHere, None));
}
