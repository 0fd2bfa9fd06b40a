//! Unit tests of `presets`.

use super::*;
use crate::base::settings::{
    Acknowledger, AcknowledgerOptions, AcknowledgmentOptions, Gather, Layout, Queue, WorkerOptions,
};
use std::time::Duration;

fn settings(preset: Preset) -> Settings {
    let log_memory = (preset == Preset::Passive).then(|| "/memory".into());
    Settings { preset, log_memory, ..Settings::default() }
}

/// Each preset, written out: layout, writer, acknowledger, interval in microseconds, flush unit.
#[test]
fn each_preset_is_the_protocol_of_this_table() {
    const NO_GATHERING: Gather = Gather { window: Duration::ZERO, siblings: 5, most: None };
    let shared = |in_a_row| LayoutOptions::ThreadsPerLog { threads: 2, in_a_row };
    let leader = |adapts_to_load| WriterOptions::Leader { gather: NO_GATHERING, adapts_to_load };
    let background = |queues_waiters| WriterOptions::Background { queues_waiters };
    let worker = WriterOptions::Worker(WorkerOptions {
        writes_in_flight: 2,
        stealing_group: None,
        idle_max: Duration::from_micros(50),
        gather: NO_GATHERING,
    });
    let memory = WriterOptions::Memory { fence: MemoryFence::Beside };
    let workers = AcknowledgerOptions::Workers(AcknowledgmentOptions { group: 2, odds: 1 });
    let unit = Some(16_384);
    use AcknowledgerOptions::{Background, Leader};
    use LayoutOptions::{One, PerThread};
    let table = [
        (Preset::PerTransaction, One, WriterOptions::Committer, Leader, 200, unit),
        (Preset::Group, One, leader(false), Leader, 200, unit),
        (Preset::Queued, One, background(true), Background, 1000, unit),
        (Preset::Pipelined, One, background(false), Background, 200, unit),
        (Preset::Autonomous, PerThread, worker, workers, 200, unit),
        (Preset::Restricted, shared(true), WriterOptions::FlusherPerLog, Leader, 1000, None),
        (Preset::Passive, PerThread, memory, workers, 200, unit),
        (Preset::Auto, shared(false), leader(true), Leader, 300, unit),
    ];
    assert_eq!(table.map(|row| row.0), Preset::ALL);
    for (preset, layout, writer, acknowledger, interval, flush_unit_bytes) in table {
        let expected = Axes {
            layout,
            writer,
            acknowledger,
            dependency: None,
            idle_logs: IdleLogs::Raise,
            append: Append::Latched,
            queue: Queue::LockFree,
            await_cohort: true,
            shared_flush: None,
            flush_interval: Duration::from_micros(interval),
            flush_unit_bytes,
        };
        assert_eq!(preset.axes(), expected, "{preset}");
        assert_eq!(expected.log_buffer_bytes(), Settings::default().log_buffer_bytes(), "{preset}");
    }
}

#[test]
fn what_follows_from_a_preset_is_as_its_page_says() {
    let axes = |preset| Axes::of(&settings(preset));
    let waits = Preset::ALL.map(|preset| axes(preset).awaits_cohort());
    assert_eq!(waits, [false, true, false, true, true, true, false, true]);
    assert_eq!(
        Preset::ALL.map(|preset| axes(preset).queues_waiters()).map(u8::from),
        [0, 0, 1, 0, 0, 0, 0, 0]
    );
    assert_eq!(axes(Preset::Queued).rule(), Dependency::LogOrder);
    let restricted = axes(Preset::Restricted);
    assert_eq!((restricted.rule(), restricted.flushers(3)), (Dependency::Dsn, 3));
    assert_eq!(restricted.flush_unit_bytes(), 1 << 20, "a whole buffer, of 512 KiB for each of two threads");
    assert_eq!((restricted.threads_in_a_row(), axes(Preset::Auto).threads_in_a_row()), (2, 1));
    let wide = Settings { logs: 0, ..settings(Preset::Restricted) }
        .with_protocol(|axes| axes.threads_mut().into_iter().for_each(|threads| *threads = 4));
    assert_eq!(Axes::of(&wide).flush_unit_bytes(), 2 << 20);
    for preset in Preset::ALL {
        let settings = settings(preset);
        settings.validate().expect("alone");
        check(&settings, log_count(&settings, 4)).expect("together");
    }
}

#[test]
fn an_experiment_moves_one_axis_and_the_rule_follows_the_logs() {
    let rule = |settings: Settings| Axes::of(&settings).rule();
    assert_eq!(rule(Settings { logs: 2, ..settings(Preset::Group) }), Dependency::Dsn);
    assert_eq!(rule(Settings { logs: 1, ..settings(Preset::Autonomous) }), Dependency::LogOrder);
    let changed = |preset, change: fn(&mut Axes)| Axes::of(&settings(preset).with_protocol(change));
    let said = changed(Preset::Autonomous, |axes| axes.dependency = Some(Dependency::Csn));
    assert_eq!(said.rule(), Dependency::Csn);
    let writer = changed(Preset::Pipelined, |axes| axes.set_writer(Writer::Worker));
    let is = (writer.writer.kind(), writer.acknowledger.kind());
    assert_eq!(is, (Writer::Worker, Acknowledger::Background));
    let alone = changed(Preset::Auto, |axes| axes.set_writer(Writer::Leader));
    assert_eq!(alone.writer, Writer::Leader.into(), "a leader that is chosen does not delegate");
    let by_page = changed(Preset::Autonomous, |axes| axes.set_layout(Layout::ByPage));
    assert_eq!(by_page.writer, Writer::Leader.into(), "no worker has a log of its own");
}

#[test]
fn auto_uses_mapped_memory_that_it_is_given() {
    let given = Settings { log_memory: Some("/memory".into()), ..settings(Preset::Auto) };
    assert_eq!(Axes::of(&given), Axes::of(&settings(Preset::Passive)));
    check(&given, log_count(&given, 4)).expect("together");
    let leader = given.with_protocol(|axes| axes.set_writer(Writer::Leader));
    assert_eq!(Axes::of(&leader).writer.kind(), Writer::Leader);
}

#[test]
fn contradictions_are_refused_with_the_reason() {
    use Preset::{Autonomous, Group, Passive, PerTransaction, Pipelined, Restricted};
    let no_file = Settings { log_memory: None, ..settings(Passive) };
    let with =
        |preset, logs, change: fn(&mut Axes)| Settings { logs, ..settings(preset) }.with_protocol(change);
    let by_page = |preset, logs| with(preset, logs, |axes| axes.set_layout(Layout::ByPage));
    let cases: [(Settings, &[&str]); 19] = [
        (
            with(Passive, 1, |axes| axes.writer = WriterOptions::Memory { fence: MemoryFence::Latched })
                .with(|s| s.lab.memory_cache = MemoryCache::Durable),
            &["`memory_fence`", "memory_cache = durable"],
        ),
        (by_page(Group, 1), &["`logs`", "layout = by-page"]),
        (by_page(PerTransaction, 2), &["`layout`", "writer = committer"]),
        (
            by_page(Autonomous, 0).with_protocol(|axes| axes.set_writer(Writer::Worker)),
            &["`layout`", "writer = worker"],
        ),
        (
            by_page(Group, 0).with_protocol(|axes| axes.set_writer(Writer::Collector)),
            &["`layout`", "writer = collector"],
        ),
        (no_file, &["`log_memory`", "preset passive", "/dev/shm"]),
        (settings(Group).with(|s| s.lab.log_memory_bytes = 1 << 20), &["`log_memory_bytes`", "preset group"]),
        (
            with(Restricted, 2, |axes| *axes.threads_mut().expect("threads share logs") = 3),
            &["`threads_per_log`", "logs = 2"],
        ),
        (
            with(Autonomous, 2, |axes| axes.dependency = Some(Dependency::LogOrder)),
            &["`dependency`", "2 logs"],
        ),
        (with(Group, 2, |axes| axes.set_writer(Writer::Committer)), &["`writer`", "there are 2"]),
        (
            with(Autonomous, 1, |axes| axes.worker_mut().expect("workers").stealing_group = Some(2)),
            &["`stealing_group`", "one log"],
        ),
        (with(Pipelined, 1, |axes| axes.shared_flush = Some(true)), &["`shared_flush`", "logs = 1"]),
        (
            with(Restricted, 2, |axes| axes.shared_flush = Some(false)),
            &["`shared_flush`", "writer = flusher-per-log"],
        ),
        (with(Pipelined, 2, |axes| axes.append = Append::Consolidated), &["`append`", "logs = 2"]),
        (with(Passive, 1, |axes| axes.append = Append::Consolidated), &["`append`", "writer = memory"]),
        (with(Autonomous, 2, |axes| axes.idle_logs = IdleLogs::Hold), &["`idle_logs`", "dependency = dsn"]),
        (
            with(Restricted, 2, |axes| {
                (axes.dependency, axes.idle_logs) = (Some(Dependency::Gsn), IdleLogs::Worker);
            }),
            &["`idle_logs`", "writer = flusher-per-log"],
        ),
        (with(Autonomous, 2, |axes| axes.idle_logs = IdleLogs::Flusher), &["`idle_logs`", "writer = worker"]),
        (Settings { log_bytes_max: 64 << 20, ..with(Autonomous, 2, |_| ()) }, &["`log_bytes_max`", "2 logs"]),
    ];
    for (settings, names) in cases {
        let error = check(&settings, log_count(&settings, 4)).expect_err("contradiction").to_string();
        assert!(names.iter().all(|name| error.contains(name)), "{names:?}: {error}");
    }
}
