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
    let said = settings(Preset::Autonomous).with(|s| s.lab.dependency = Some(Dependency::Csn));
    assert_eq!(rule(said), Dependency::Csn);
    let writer = settings(Preset::Pipelined).with(|s| s.lab.writer = Some(Writer::Worker));
    assert_eq!(Axes::of(&writer).acknowledger, Acknowledger::Background);
    let latched = settings(Preset::Passive).with(|s| s.lab.memory_fence = Some(MemoryFence::Latched));
    assert_eq!(Axes::of(&latched).memory_fence, MemoryFence::Latched);
}

#[test]
fn auto_uses_mapped_memory_that_it_is_given() {
    let given = Settings { log_memory: Some("/memory".into()), ..settings(Preset::Auto) };
    assert_eq!(Axes::of(&given), Axes::of(&settings(Preset::Passive)));
    check(&given, log_count(&given, 4)).expect("together");
    let leader = given.with(|s| s.lab.writer = Some(Writer::Leader));
    assert_eq!(Axes::of(&leader).writer, Writer::Leader);
}

#[test]
fn contradictions_are_refused_with_the_reason() {
    use Preset::{Autonomous, Group, Passive, PerTransaction, Pipelined, Restricted};
    let window = Duration::from_millis(1);
    let worker = Some(Writer::Worker);
    let no_file = Settings { log_memory: None, ..settings(Passive) };
    let by_page = |preset| settings(preset).with(|s| s.lab.layout = Some(Layout::ByPage));
    let cases: [(Settings, &[&str]); 19] = [
        (
            settings(Passive).with(|s| {
                s.lab.memory_fence = Some(MemoryFence::Latched);
                s.lab.memory_cache = MemoryCache::Durable;
            }),
            &["`memory_fence`", "memory_cache = durable"],
        ),
        (
            settings(Group).with(|s| s.lab.memory_fence = Some(MemoryFence::Beside)),
            &["`memory_fence`", "preset group"],
        ),
        (Settings { logs: 1, ..by_page(Group) }, &["`logs`", "layout = by-page"]),
        (Settings { logs: 2, ..by_page(PerTransaction) }, &["`layout`", "writer = committer"]),
        (by_page(Autonomous).with(|s| s.lab.writer = worker), &["`layout`", "writer = worker"]),
        (by_page(Group).with(|s| s.lab.threads_per_log = 3), &["`threads_per_log`", "layout = by-page"]),
        (no_file, &["`log_memory`", "preset passive", "/dev/shm"]),
        (settings(Passive).with(|s| s.lab.gather_max = 3), &["`gather_max`", "writer = memory"]),
        (settings(Group).with(|s| s.lab.log_memory_bytes = 1 << 20), &["`log_memory_bytes`", "preset group"]),
        (
            Settings { logs: 3, ..settings(Group) }.with(|s| s.lab.layout = Some(Layout::One)),
            &["`logs`", "layout = one"],
        ),
        (settings(Group).with(|s| s.lab.threads_per_log = 3), &["`threads_per_log`", "layout = one"]),
        (
            Settings { logs: 2, ..settings(Restricted) }.with(|s| s.lab.threads_per_log = 3),
            &["`threads_per_log`", "logs = 2"],
        ),
        (
            settings(PerTransaction).with(|s| s.lab.gather_window = window),
            &["`gather_window`", "per-transaction"],
        ),
        (settings(Pipelined).with(|s| s.lab.gather_window = window), &["`gather_window`", "background"]),
        (settings(PerTransaction).with(|s| s.lab.gather_max = 3), &["`gather_max`", "writer = committer"]),
        (settings(Group).with(|s| s.lab.writes_in_flight = 3), &["`writes_in_flight`", "writer = leader"]),
        (
            settings(Group).with(|s| s.lab.acknowledgment_group = 4),
            &["`acknowledgment_group`", "acknowledger = leader"],
        ),
        (
            Settings { logs: 2, ..settings(Autonomous) }
                .with(|s| s.lab.dependency = Some(Dependency::LogOrder)),
            &["`dependency`", "2 logs"],
        ),
        (
            Settings { logs: 2, ..settings(Group) }.with(|s| s.lab.writer = Some(Writer::Committer)),
            &["`writer`", "there are 2"],
        ),
    ];
    for (settings, names) in cases {
        let error = check(&settings, log_count(&settings, 4)).expect_err("contradiction").to_string();
        assert!(names.iter().all(|name| error.contains(name)), "{names:?}: {error}");
    }
}
