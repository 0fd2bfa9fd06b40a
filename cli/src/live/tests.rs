//! Tests of `live`.

use super::*;

#[test]
fn q_escape_and_control_c_end_the_run_and_nothing_else_does() {
    let key = |code, modifiers| KeyEvent::new(code, modifiers);
    for code in [KeyCode::Char('q'), KeyCode::Char('Q'), KeyCode::Esc] {
        assert!(quits(key(code, KeyModifiers::NONE)));
    }
    assert!(quits(key(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    for code in [KeyCode::Char('c'), KeyCode::Enter, KeyCode::Char('x')] {
        assert!(!quits(key(code, KeyModifiers::NONE)), "{code:?}");
    }
}

#[test]
fn interrupt_before_the_measurement_ends_the_program() {
    let shared = Shared::new(Duration::from_secs(1));
    assert!(shared.at("loading rows", 1, 2));
    assert!(!shared.interrupt() && shared.ends());
    let shared = Shared::new(Duration::from_secs(1));
    shared.sampled(view::sample(1, true));
    assert!(shared.interrupt() && shared.ends(), "the run ends with its result");
    assert!(!shared.interrupt(), "a second request does not wait");
    shared.over.store(true, Ordering::Release);
    assert!(!shared.at("closing", 0, 1), "the terminal is not ours any more");
}
