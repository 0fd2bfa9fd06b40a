//! Unit tests of faults: what a specification says is what is drawn.

use super::*;

#[test]
fn specification_is_printed_as_it_was_read() {
    let text = "throttle=0.1,error-after=0.2,late=0.05:2000ms";
    let faults: Faults = text.parse().unwrap();
    assert_eq!(faults.to_string(), text);
    assert!(!faults.are_none());
    assert!("".parse::<Faults>().unwrap().are_none());
}

#[test]
fn draw_divides_the_numbers_by_probability() {
    let faults: Faults = "throttle=0.1,slow=0.2:3s".parse().unwrap();
    let drawn = |number| faults.draw(number).map(|fault| (fault.name, fault.time));
    assert_eq!(drawn(0.0), Some(("throttle", Duration::ZERO)));
    assert_eq!(drawn(0.099), Some(("throttle", Duration::ZERO)));
    assert_eq!(drawn(0.101), Some(("slow", Duration::from_secs(3))));
    assert_eq!(drawn(0.301), None);
}

#[test]
fn wrong_specification_says_what_to_write() {
    for (text, part) in [
        ("throttle", "write name=probability"),
        ("throttle=2", "between 0 and 1"),
        ("late=0.1", "late=probability:2s"),
        ("late=0.1:2m", "500ms or 2s"),
        ("reset=0.1:2s", "takes no time"),
        ("loss=0.1", "there is no fault `loss`"),
        ("lost=0.6,cut=0.6", "more than 1"),
    ] {
        let error = text.parse::<Faults>().unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}
