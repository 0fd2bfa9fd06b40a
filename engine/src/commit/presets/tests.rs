//! Unit tests of `presets`.

use super::*;
use std::time::Duration;

fn settings(preset: Preset) -> Settings {
    let log_memory = (preset == Preset::Passive).then(|| "/memory".into());
    Settings { preset, log_memory, ..Settings::default() }
}

#[test]
fn a_preset_is_a_point_on_the_axes() {
    let axes = |preset| Axes::of(&settings(preset));
    assert!(axes(Preset::PerTransaction).one_record_a_block);
    assert!(!axes(Preset::Group).one_record_a_block);
    let autonomous = axes(Preset::Autonomous);
    assert_eq!((autonomous.writer, autonomous.acknowledger), (Writer::Worker, Acknowledger::Workers));
    assert_eq!(axes(Preset::Pipelined).acknowledger, Acknowledger::Background);
    assert_eq!(axes(Preset::Queued).dependency, Dependency::LogOrder);
    let restricted = axes(Preset::Restricted);
    assert_eq!((restricted.dependency, restricted.flushers(3)), (Dependency::Dsn, 3));
    assert_eq!(restricted.flush_unit_bytes, 1 << 20, "a whole buffer, of 512 KiB for each of two threads");
    assert_eq!((restricted.threads_in_a_row, axes(Preset::Auto).threads_in_a_row), (2, 1));
    assert_eq!(axes(Preset::Passive).memory_fence, MemoryFence::Beside);
    for preset in Preset::ALL {
        let settings = settings(preset);
        settings.validate().expect("alone");
        check(&settings, log_count(&settings, 4)).expect("together");
    }
}

#[test]
fn a_setting_moves_one_axis_and_the_rule_follows_the_logs() {
    let rule = |settings: Settings| Axes::of(&settings).dependency;
    assert_eq!(rule(Settings { logs: 2, ..settings(Preset::Group) }), Dependency::Dsn);
    assert_eq!(rule(Settings { logs: 1, ..settings(Preset::Autonomous) }), Dependency::LogOrder);
    let said = Settings { dependency: Some(Dependency::Csn), ..settings(Preset::Autonomous) };
    assert_eq!(rule(said), Dependency::Csn);
    let writer = Settings { writer: Some(Writer::Worker), ..settings(Preset::Pipelined) };
    assert_eq!(Axes::of(&writer).acknowledger, Acknowledger::Background);
    let latched = Settings { memory_fence: Some(MemoryFence::Latched), ..settings(Preset::Passive) };
    assert_eq!(Axes::of(&latched).memory_fence, MemoryFence::Latched);
}

#[test]
fn auto_uses_mapped_memory_that_it_is_given() {
    let given = Settings { log_memory: Some("/memory".into()), ..settings(Preset::Auto) };
    assert_eq!(Axes::of(&given), Axes::of(&settings(Preset::Passive)));
    check(&given, log_count(&given, 4)).expect("together");
    let leader = Settings { writer: Some(Writer::Leader), ..given };
    assert_eq!(Axes::of(&leader).writer, Writer::Leader);
}

#[test]
fn contradictions_are_refused_with_the_reason() {
    use Preset::{Autonomous, Group, Passive, PerTransaction, Pipelined, Restricted};
    let window = Duration::from_millis(1);
    let worker = Some(Writer::Worker);
    let no_file = Settings { log_memory: None, ..settings(Passive) };
    let by_page = |preset| Settings { layout: Some(Layout::ByPage), ..settings(preset) };
    let cases: [(Settings, &[&str]); 19] = [
        (
            Settings {
                memory_fence: Some(MemoryFence::Latched),
                memory_cache: MemoryCache::Durable,
                ..settings(Passive)
            },
            &["`memory_fence`", "memory_cache = durable"],
        ),
        (
            Settings { memory_fence: Some(MemoryFence::Beside), ..settings(Group) },
            &["`memory_fence`", "preset group"],
        ),
        (Settings { logs: 1, ..by_page(Group) }, &["`logs`", "layout = by-page"]),
        (Settings { logs: 2, ..by_page(PerTransaction) }, &["`layout`", "writer = committer"]),
        (Settings { writer: worker, ..by_page(Autonomous) }, &["`layout`", "writer = worker"]),
        (Settings { threads_per_log: 3, ..by_page(Group) }, &["`threads_per_log`", "layout = by-page"]),
        (no_file, &["`log_memory`", "preset passive", "/dev/shm"]),
        (Settings { gather_max: 3, ..settings(Passive) }, &["`gather_max`", "writer = memory"]),
        (Settings { log_memory_bytes: 1 << 20, ..settings(Group) }, &["`log_memory_bytes`", "preset group"]),
        (Settings { layout: Some(Layout::One), logs: 3, ..settings(Group) }, &["`logs`", "layout = one"]),
        (Settings { threads_per_log: 3, ..settings(Group) }, &["`threads_per_log`", "layout = one"]),
        (
            Settings { threads_per_log: 3, logs: 2, ..settings(Restricted) },
            &["`threads_per_log`", "logs = 2"],
        ),
        (
            Settings { gather_window: window, ..settings(PerTransaction) },
            &["`gather_window`", "per-transaction"],
        ),
        (Settings { gather_window: window, ..settings(Pipelined) }, &["`gather_window`", "background"]),
        (Settings { gather_max: 3, ..settings(PerTransaction) }, &["`gather_max`", "writer = committer"]),
        (Settings { writes_in_flight: 3, ..settings(Group) }, &["`writes_in_flight`", "writer = leader"]),
        (
            Settings { acknowledgment_group: 4, ..settings(Group) },
            &["`acknowledgment_group`", "acknowledger = leader"],
        ),
        (
            Settings { dependency: Some(Dependency::LogOrder), logs: 2, ..settings(Autonomous) },
            &["`dependency`", "2 logs"],
        ),
        (
            Settings { writer: Some(Writer::Committer), logs: 2, ..settings(Group) },
            &["`writer`", "there are 2"],
        ),
    ];
    for (settings, names) in cases {
        let error = check(&settings, log_count(&settings, 4)).expect_err("contradiction").to_string();
        assert!(names.iter().all(|name| error.contains(name)), "{names:?}: {error}");
    }
}
