//! Unit tests of `log_writer`.

use super::*;

#[test]
fn whoever_makes_a_log_due_earlier_is_told_so() {
    let flush_request = FlushRequest::none();
    assert!(flush_request.lower_due(Nanos(50)));
    assert!(!flush_request.lower_due(Nanos(50)) && !flush_request.lower_due(Nanos(60)));
    assert_eq!(flush_request.due(), Nanos(50));
    assert!(flush_request.lower_due(Nanos(40)));
    assert_eq!(flush_request.due(), Nanos(40));
}

#[test]
fn the_flusher_is_told_of_the_first_record_and_of_one_that_is_due_earlier() {
    let flush_request = FlushRequest::none();
    assert_eq!(flush_request.due_after_append(NEVER, true), None, "nobody waits");
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
