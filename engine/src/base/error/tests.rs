//! Unit tests of `error`.

use super::*;

#[test]
fn message_says_what_where_and_what_to_do() {
    let error = Error::corruption("block checksum is wrong").at(Location::Segment {
        log: LogId(1),
        segment: SegmentId(7),
        offset: 4096,
    });
    assert_eq!(
        error.to_string(),
        "block checksum is wrong (at log 1, segment 7, byte 4096); restore from a backup"
    );
    assert!(!error.is_retryable());
}

#[test]
fn full_disk_and_broken_disk_have_different_kinds() {
    let full = Error::io("cannot write", std::io::Error::from_raw_os_error(28));
    assert_eq!(full.kind(), ErrorKind::OutOfSpace);
    let broken = Error::io("cannot write", std::io::Error::from_raw_os_error(5));
    assert_eq!(broken.kind(), ErrorKind::Io);
}

#[test]
fn refused_access_has_its_own_advice() {
    let denied = Error::io("cannot open", std::io::Error::from(std::io::ErrorKind::PermissionDenied));
    for error in [denied.duplicate(), denied.of("the target")] {
        assert!(error.is_denied() && error.kind() == ErrorKind::Io, "{error}");
        assert!(error.to_string().ends_with("or run as their owner"), "{error}");
        assert!(!error.without_advice().contains("owner"), "{error}");
    }
    let broken = Error::io("cannot read", std::io::Error::from_raw_os_error(5));
    assert!(!broken.is_denied() && broken.to_string().ends_with("; check the device"), "{broken}");
}

#[test]
fn debug_output_is_the_line_with_its_advice() {
    let error = Error::invalid("the database is closed").at(Location::Setting("logs"));
    assert_eq!(format!("{error:?}"), error.to_string());
    let returned = error.with_advice("open it again");
    assert_eq!(format!("{returned:?}"), "the database is closed (at setting `logs`); open it again");
    let parts = format!("{returned:#?}");
    for part in ["kind: InvalidArgument", "what: \"the database is closed\"", "Setting(", "source: None"] {
        assert!(parts.contains(part), "{parts}");
    }
}

#[test]
fn special_advice_replaces_that_of_the_kind() {
    let error = Error::new(ErrorKind::NotFound, "no table has this name").with_advice("use `users`");
    for error in [error.duplicate(), error.at(Location::Table("user".into()))] {
        assert_eq!(error.advice(), "use `users`");
        assert!(error.to_string().ends_with("; use `users`"), "{error}");
    }
}

#[test]
fn errors_that_say_nothing_of_the_device_do_not_blame_it() {
    for (code, wanted) in [(24, "ulimit -n"), (23, "ulimit -n"), (30, "read-only"), (13, "their owner")] {
        let error = Error::io("cannot open", std::io::Error::from_raw_os_error(code));
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.advice().contains(wanted) && !error.to_string().contains("device"), "{error}");
    }
}

#[test]
fn another_kind_drops_special_advice() {
    let error = Error::io("cannot write", std::io::Error::from(std::io::ErrorKind::PermissionDenied));
    let same = error.with_kind(ErrorKind::Io);
    assert_eq!(same.advice(), DENIED_ADVICE);
    let other = same.with_kind(ErrorKind::OutcomeUnknown);
    assert_eq!(other.advice(), ErrorKind::OutcomeUnknown.advice());
    assert!(other.is_denied());
}

#[test]
fn a_later_error_names_the_reason_and_its_place() {
    let location = Location::File { path: "pages/data".into(), offset: 4096 };
    let first = Error::io("cannot flush", std::io::Error::from_raw_os_error(5)).at(location.clone());
    let later = Error::after(ErrorKind::Poisoned, "no more checkpoints", &first);
    assert_eq!((later.kind(), later.location()), (ErrorKind::Poisoned, Some(&location)));
    assert!(later.message().starts_with("no more checkpoints: cannot flush: Input/output error"), "{later}");
}

#[test]
fn error_prefix_precedes_the_message() {
    let error = Error::io("cannot write", std::io::Error::from_raw_os_error(28)).of("the target");
    assert_eq!(error.kind(), ErrorKind::OutOfSpace);
    assert!(error.to_string().starts_with("the target: cannot write: No space left"), "{error}");
}

#[test]
fn limits_of_space_are_all_out_of_space() {
    // ENOSPC, EDQUOT, EFBIG.
    for number in [28, 122, 27] {
        let error = Error::io("cannot write", std::io::Error::from_raw_os_error(number));
        assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
        assert_eq!(error.advice().contains("ulimit -f"), number == 27, "{error}");
    }
}

#[test]
fn inner_location_wins() {
    let error = Error::invalid("x").at(Location::Setting("logs")).at(Location::Setting("preset"));
    assert_eq!(error.location(), Some(&Location::Setting("logs")));
}

#[test]
fn errors_become_io_errors_and_back() {
    let full = Error::io("cannot write", std::io::Error::from_raw_os_error(28));
    let wrapped = std::io::Error::from(full);
    assert_eq!(wrapped.kind(), std::io::ErrorKind::StorageFull);
    let error = wrapped.downcast::<Error>().expect("the engine's error");
    assert_eq!((error.kind(), error.code()), (ErrorKind::OutOfSpace, "out-of-space"));
    let denied = Error::io("cannot open", std::io::Error::from(std::io::ErrorKind::PermissionDenied));
    assert_eq!(std::io::Error::from(denied).kind(), std::io::ErrorKind::PermissionDenied);
}
