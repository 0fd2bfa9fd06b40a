//! Unit tests of `levels`.

use super::*;
use crate::base::settings::Preset;

#[test]
fn each_level_is_due_when_it_promises() {
    let loss_window = Duration::from_millis(8);
    let settings = Settings { preset: Preset::Group, loss_window, ..Settings::default() };
    let waits = Waits::new(&Axes::of(&settings), &settings);
    let due = |level, ready, last_write| due(level, ready, last_write, &waits);
    let ready = Nanos(10_000_000);
    assert_eq!(due(Durability::Durable, ready, Nanos(0)), ready);
    assert_eq!(due(Durability::Durable, ready, ready), Nanos(10_200_000));
    assert_eq!(due(Durability::BoundedLoss, ready, ready), Nanos(16_000_000));
    assert_eq!(due(Durability::Lazy, ready, ready), NEVER);
}

#[test]
fn a_moment_beyond_all_time_is_never() {
    assert_eq!(after(Nanos(5), Duration::from_secs(1 << 55)), NEVER);
    assert_eq!(after(Nanos(5), Duration::from_secs(18_446_744_074)), NEVER);
    assert_eq!(after(NEVER, Duration::from_nanos(1)), NEVER);
}
