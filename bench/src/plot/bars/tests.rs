//! Tests of `bars`.

use super::*;
use crate::comparison::Spread;

#[test]
fn comparison_picture_has_bars_and_greys_another_tier() {
    let line = |engine: &str, tier_differs: bool| Line {
        engine: engine.into(),
        tier: "process crash".into(),
        tier_differs,
        throughput_tps: Spread { median: 1000.0, min: 900.0, max: 1100.0 },
        p50_us: Spread { median: 100.0, ..Spread::default() },
        ..Line::default()
    };
    let engines = vec![line("quenchdb", false), line("rocksdb", false), line("fjall", true)];
    let comparison = Comparison { workload: "put".into(), engines, ..Comparison::default() };
    let path = std::env::temp_dir().join(format!("quench-bars-{}.svg", std::process::id()));
    draw_comparison(&comparison, &path).expect("drawn");
    let text = std::fs::read_to_string(&path).expect("written");
    std::fs::remove_file(&path).expect("ours");
    let bars = |color: &str| text.matches(&format!("fill=\"{color}\"")).count();
    assert_eq!((bars("#1F5AA6"), bars("#C8C8C8"), bars("#78AADC"), bars("#BE2832")), (2, 1, 3, 3), "{text}");
    assert!(text.contains("quenchdb") && text.contains("[fjall: survives process crash]"), "{text}");
}

#[test]
fn nothing_is_not_drawn() {
    assert!(draw_comparison(&Comparison::default(), Path::new("/nowhere/at/all.svg")).is_err());
}
