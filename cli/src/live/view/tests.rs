//! Tests of `view`.

use super::*;
use quench_bench::activity::{StageSums, Sums};
use quench_bench::latencies::{Counted, Latencies};
use quench_bench::store::Total;
use quench_bench::watch::Sample;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

/// A run that wavers, `tenths` of a second after its beginning.
pub fn sample(tenths: u64, measuring: bool) -> Sample {
    let count: u64 = (0..tenths).map(|tenth| 4000 + (tenth / 5 * 397) % 1500).sum();
    let latencies = Latencies::default();
    for n in 0..count / 100 {
        latencies.record_ns(80_000 + n % 100 * 700 + if n % 250 == 0 { 2_000_000 } else { 0 });
    }
    let each = |us: f64| Total { count, us: count as f64 * us };
    Sample {
        at: Duration::from_millis(100 * tenths),
        measuring,
        sums: Sums { committed: count, aborted: tenths / 2, ..Sums::default() },
        latencies: Counted::of([&latencies].into_iter()),
        stages: StageSums { sampled: count / 16, execute: count / 16 * 6_200, ..StageSums::default() },
        rows: 2 * count,
        gauges: Gauges {
            row_wait_seconds: count as f64 * 0.4e-6,
            log_inserts: each(1.1),
            commits: each(96.0),
            acknowledges: each(7.5),
            log_writes: 810 * tenths,
            log_write_bytes: 810 * 6144 * tenths,
            device_flushes: 810 * tenths,
            log_bytes_in_use: 3_000_000 + 400_000 * tenths,
            pages: 30_000,
            pages_max: 31_500,
            page_bytes: 4096,
            memory_bytes: 134_217_728,
            version_bytes: 262_144,
            pages_evicted: 90 * tenths,
            reads: 95 * tenths,
            checkpoints: 2,
            checkpoint_seconds: 1.84,
            checkpoint_running: Some(0.37),
            recovery_seconds: 0.92,
        },
    }
}

fn picture(scene: &Scene<'_>, (width, height): (u16, u16)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("no terminal is needed");
    terminal.draw(|frame| draw(frame, scene)).expect("drawn");
    let buffer = terminal.backend().buffer();
    let line = |y: u16| -> String {
        let cells: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        cells.trim_end().to_string() + "\n"
    };
    (0..height).map(line).collect()
}

fn history(tenths: u64) -> History {
    let mut history = History::new(Duration::from_secs(1));
    (0..=tenths).for_each(|tenth| history.push(sample(tenth, true)));
    history
}

const TITLE: &str = "ycsb, 4 threads, blocking, durable, preset group";

#[test]
fn fixed_samples_give_the_picture_of_the_documentation() {
    let (history, doing) = (history(180), Doing { what: "measuring".into(), done: 18_000, total: 60_000 });
    let scene = Scene {
        title: TITLE,
        doing: &doing,
        elapsed: Duration::from_secs(18),
        history: &history,
        ends: false,
    };
    let picture = picture(&scene, (80, 24));
    let documented = include_str!("../../../../docs/guide/benchmark.md");
    assert!(documented.contains(&picture), "docs/guide/benchmark.md shows another picture than\n{picture}");
    for shown in ["p99.9", "flush wait", "lock wait", "37 %", "hits", "evicted", "30,000 of 31,500", "0.92 s"]
    {
        assert!(picture.contains(shown), "{shown} in\n{picture}");
    }
}

#[test]
fn a_run_that_has_not_begun_and_a_small_terminal_are_drawn_too() {
    let (empty, doing) =
        (History::new(Duration::from_secs(1)), Doing { what: "loading rows".into(), done: 1, total: 4 });
    let scene =
        |history, ends| Scene { title: TITLE, doing: &doing, elapsed: Duration::from_secs(3), history, ends };
    let loading = picture(&scene(&empty, false), (80, 24));
    assert!(loading.contains("loading rows, 3 s,  25 %"), "{loading}");
    let long = history(40);
    assert!(picture(&scene(&long, true), (120, 40)).contains("ending ..."));
    for size in [(1, 1), (20, 5), (40, 10), (300, 3)] {
        picture(&scene(&long, false), size);
    }
}

#[test]
fn figures_have_three_digits_and_a_unit() {
    for (us, text) in
        [(0.0, "-"), (0.5, "0.50 us"), (12.34, "12.3 us"), (999.0, "999 us"), (1234.0, "1.23 ms")]
    {
        assert_eq!(time(us), text);
    }
    assert_eq!((time(2.5e6), size(999.0), size(4096.0)), ("2.50 s".into(), "999 B".into(), "4.10 kB".into()));
    assert_eq!(
        (grouped(0.0), grouped(999.4), grouped(1_234_567.0)),
        ("0".into(), "999".into(), "1,234,567".into())
    );
}
