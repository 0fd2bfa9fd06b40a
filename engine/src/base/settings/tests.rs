//! Unit tests of `settings`.

use super::*;

#[test]
fn defaults_are_valid() {
    Settings::default().validate().expect("defaults");
}

#[test]
fn a_wrong_setting_is_named_with_its_range() {
    let error = Settings { logs: 1000, ..Settings::default() }.validate().expect_err("too many");
    assert_eq!(
        error.to_string(),
        "1000 is outside 0 to 256 (at setting `logs`); fix the call or the setting"
    );
}

/// A buffer in mapped memory is the unit in which that is divided.
#[test]
fn log_buffers_may_be_short_except_in_mapped_memory() {
    let of = |log_buffer_bytes, log_memory| {
        Settings { log_memory, ..Settings::default() }.with(|s| s.lab.log_buffer_bytes = log_buffer_bytes)
    };
    of(8 << 10, None).validate().expect("two sectors");
    of(4 << 10, None).validate().expect_err("no room for a block");
    of(8 << 10, Some("memory".into())).validate().expect_err("too short for mapped memory");
    of(64 << 10, Some("memory".into())).validate().expect("long enough");
}

/// A number of milliseconds or microseconds beyond 64 bits was taken for its remainder, which is in
/// the range.
#[test]
fn duration_beyond_64_bits_is_refused() {
    let (milliseconds, microseconds) = (
        Duration::from_secs(18_446_744_073_709_552),
        Duration::from_micros(u64::MAX) + Duration::from_micros(2),
    );
    let base = Settings::default;
    let cases = [
        ("loss_window", Settings { loss_window: milliseconds, ..base() }),
        ("write_deadline", Settings { write_deadline: milliseconds, ..base() }),
        (
            "gather_window",
            Settings { preset: Preset::Group, ..base() }
                .with_protocol(|axes| axes.gather_mut().expect("leaders gather").window = milliseconds),
        ),
        ("flush_interval", base().with_protocol(|axes| axes.flush_interval = milliseconds)),
        ("lock_wait", Settings { lock_wait: milliseconds, ..base() }),
        ("transact_wait", Settings { transact_wait: Some(milliseconds), ..base() }),
        (
            "idle_max",
            Settings { preset: Preset::Autonomous, ..base() }
                .with_protocol(|axes| axes.worker_mut().expect("workers write").idle_max = microseconds),
        ),
        ("insertion_latency", base().with(|s| s.lab.insertion_latency = microseconds)),
    ];
    for (name, settings) in cases {
        let error = settings.validate().expect_err(name).to_string();
        assert!(error.contains(name) && error.contains(&u64::MAX.to_string()), "{name}: {error}");
    }
}

#[test]
fn contradictions_are_named() {
    let base = Settings::default;
    let small = || Settings { log_bytes_max: 64 << 20, ..base() };
    let cases: [(Settings, &[&str]); 4] = [
        (Settings { log_bytes_max: 1 << 20, ..base() }, &["log_bytes_max", "segment_bytes"]),
        (
            Settings { preset: Preset::Autonomous, logs: 100, ..base() },
            &["log_bytes_max", "logs = 100", "segment_bytes = 16777216"],
        ),
        (Settings { logs: 2, ..small() }, &["log_bytes_max", "logs = 2", "segment_bytes = 16777216"]),
        (
            small().with(|s| s.lab.transaction_bytes_max = 33 << 20),
            &["transaction_bytes_max", "log_bytes_max = 67108864"],
        ),
    ];
    for (settings, names) in cases {
        let error = settings.validate().expect_err("contradiction").to_string();
        assert!(names.iter().all(|name| error.contains(name)), "{names:?}: {error}");
    }
    small().with(|s| s.lab.transaction_bytes_max = 32 << 20).validate().expect("fits");
    small().validate().expect("what is chosen fits");
    let checkpoints = (small().checkpoint_log_bytes() >> 20, base().checkpoint_log_bytes() >> 20);
    assert_eq!(checkpoints, (32, 512), "a small log has a checkpoint when it is half full");
    assert_eq!((small().transaction_bytes(1) >> 20, base().transaction_bytes(1) >> 20), (21, 1344));
}

#[test]
fn compression_that_is_not_built_in_is_refused_by_name() {
    for compression in Compression::ALL {
        assert_eq!(Compression::from_name(compression.name()).expect("known"), compression);
        let checked = Settings { compression, ..Settings::default() }.validate();
        assert_eq!(checked.is_ok(), compression.is_built_in(), "{compression:?}");
        if let Err(error) = checked {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("feature `zstd`"), "{error}");
        }
    }
    assert!(Compression::from_name("gzip").expect_err("unknown").to_string().contains("lz4"));
}
