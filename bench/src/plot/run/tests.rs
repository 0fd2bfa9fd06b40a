//! Tests of `plot`.

use super::*;
use crate::series::{CheckpointMark, Interval};

#[test]
fn a_run_becomes_a_picture_with_its_lines_and_checkpoints() {
    let series = (0..20)
        .map(|s| Interval {
            second: s as f64,
            seconds: 1.0,
            committed: 1000 + s * 10,
            p99_us: 100.0 * s as f64,
            max_us: 1e6,
            ..Interval::default()
        })
        .collect();
    let marks = vec![
        CheckpointMark { from: -1.0, to: 3.0, bytes: 1 },
        CheckpointMark { from: 7.5, to: 9.0, bytes: 1 },
    ];
    let report = Report { workload: "ycsb".into(), series, checkpoint_marks: marks, ..Report::default() };
    let path = std::env::temp_dir().join(format!("quench-plot-{}.svg", std::process::id()));
    draw(&report, &path).expect("drawn");
    let text = std::fs::read_to_string(&path).expect("written");
    std::fs::remove_file(&path).expect("ours");
    assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
    assert!(text.contains("ycsb: ") && text.contains("p99"));
    let bands = text.matches("#FFD699").count();
    assert_eq!(bands, 4, "two checkpoints in two charts");
}

#[test]
fn a_run_without_a_series_is_refused() {
    assert!(draw(&Report::default(), Path::new("/nowhere/at/all.svg")).is_err());
}
