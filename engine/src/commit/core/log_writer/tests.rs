//! Unit tests of `log_writer`.

use super::*;

#[test]
fn lowering_a_due_time_says_whether_it_changed() {
    let flush_request = FlushRequest::none();
    assert!(flush_request.lower_due(Nanos(50)));
    assert!(!flush_request.lower_due(Nanos(50)) && !flush_request.lower_due(Nanos(60)));
    assert_eq!(flush_request.due(), Nanos(50));
    assert!(flush_request.lower_due(Nanos(40)));
    assert_eq!(flush_request.due(), Nanos(40));
}

#[test]
fn the_flusher_is_woken_for_a_first_or_an_earlier_record() {
    let flush_request = FlushRequest::none();
    assert_eq!(flush_request.due_after_append(NEVER, true), None, "no thread waits");
    assert_eq!(flush_request.due_after_append(Nanos(50), false), Some(Nanos(50)));
    assert_eq!(flush_request.due_after_append(Nanos(60), false), None);
    assert_eq!(flush_request.due_after_append(Nanos(40), false), Some(Nanos(40)));
    // Demanded when there was nothing to write.
    assert_eq!(flush_request.due_after_append(Nanos(60), true), Some(Nanos(40)));
    assert_eq!(flush_request.due_after_append(NEVER, true), Some(Nanos(40)));
}

#[test]
fn what_is_needed_only_rises() {
    let flush_request = FlushRequest::none();
    flush_request.require_watermark(Csn(5));
    flush_request.require_watermark(Csn(3));
    assert_eq!(flush_request.required_watermark(), Csn(5));
    flush_request.require_watermark(Csn(6));
    assert_eq!(flush_request.required_watermark(), Csn(6));
}
