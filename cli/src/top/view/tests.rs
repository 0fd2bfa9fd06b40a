//! Tests of the screen of `top`.

use super::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn figures(tps: f64) -> Figures {
    Figures {
        preset: "auto".into(),
        interval_seconds: 1.0,
        transactions_per_second: tps,
        aborts_per_second: 12.0,
        conflicts_per_second: 3.0,
        row_waits_per_second: 7.0,
        commit_p50_us: Some(140.0),
        commit_p99_us: Some(2300.0),
        flush_p50_us: Some(110.0),
        flush_p99_us: None,
        log_bytes_per_second: 4.2e6,
        device_writes_per_second: 9000.0,
        device_flushes_per_second: 8999.0,
        log_bytes_in_use: 3e8,
        log_history_bytes: 0.0,
        recovery_seconds_estimate: 0.84,
        cache_hit_ratio: Some(0.9876),
        page_faults_per_second: 55.0,
        pages_evicted_per_second: 54.0,
        pages: 1000.0,
        pages_max: 2000.0,
        page_bytes: 4096.0,
        memory_bytes: 1e9,
        store_bytes: 5e9,
        checkpoints: 3.0,
        version_bytes: 1234.0,
        open_snapshots: 4.0,
        health: "healthy".into(),
        health_reasons: Vec::new(),
        disk_full: false,
        tables: vec![
            TableRates {
                name: "orders".into(),
                rows_read_per_second: 12_345.0,
                rows_changed_per_second: 678.0,
            },
            TableRates { name: "idle".into(), rows_read_per_second: 0.0, rows_changed_per_second: 0.0 },
        ],
    }
}

fn screen(width: u16, height: u16, scene: &Scene<'_>) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory");
    terminal.draw(|frame| draw(frame, scene)).expect("memory");
    let buffer = terminal.backend().buffer();
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(row).collect::<Vec<_>>().join("\n")
}

#[test]
fn screen_shows_figures_and_tables_at_every_size() {
    let history: VecDeque<Figures> = (1..200).map(|n| figures(f64::from(n) * 100.0)).collect();
    let directory = Path::new("/data/mydb");
    let text = screen(100, 30, &Scene { directory, history: &history, notice: None });
    for shown in [
        "quench top /data/mydb   preset auto",
        "q ends it",
        "transactions/s: 19,900 now, 19,900 at most",
        "p99             2.30 ms",
        "98.76 %",
        "orders",
        "12,345",
        "678",
    ] {
        assert!(text.contains(shown), "{shown} is not in\n{text}");
    }
    assert!(text.contains("flush p99") && text.contains('█'), "{text}");
    let closed = screen(100, 30, &Scene { directory, history: &history, notice: Some("closed") });
    assert!(closed.contains("/data/mydb   closed"), "{closed}");
    // No size makes it panic, and none needs a history.
    for (width, height) in [(1, 1), (20, 5), (400, 100)] {
        screen(width, height, &Scene { directory, history: &VecDeque::new(), notice: None });
        screen(width, height, &Scene { directory, history: &history, notice: None });
    }
}

#[test]
fn screen_shows_what_is_wrong_with_the_database() {
    let reasons = vec!["commits wait".to_string(), "checkpoints fail".to_string()];
    let newest = Figures { health: "degraded".into(), health_reasons: reasons, ..figures(1.0) };
    let scene =
        Scene { directory: Path::new("/data/mydb"), history: &VecDeque::from([newest]), notice: None };
    let text = screen(160, 30, &scene);
    assert!(text.contains("degraded: commits wait; checkpoints fail"), "{text}");
}

#[test]
fn lines_have_their_columns_under_the_heading() {
    let (heading, line) = (heading(), line(&figures(1234.5)));
    assert_eq!(heading.len(), line.len());
    let ends = |title: &str| heading.find(title).expect("a column") + title.len();
    assert!(line[..ends("tx/s")].ends_with("1,234") || line[..ends("tx/s")].ends_with("1,235"), "{line}");
    assert!(line[..ends("p99")].ends_with("2.30 ms"), "{line}");
    assert!(line[..ends("hits")].ends_with("98.76 %"), "{line}");
}
