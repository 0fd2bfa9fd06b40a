//! Tests of the page and of the table.

use super::*;
use crate::figures::catalogue;
use crate::figures::results::Results;
use crate::figures::spec::{Content, Depth};
use crate::figures::table::csv;
use serde_json::json;

/// A report of two figures, one of them without numbers.
fn report() -> Report {
    let figures = catalogue::all().expect("the catalogue");
    let chosen = |id: &str| figures.iter().find(|figure| figure.id == id).expect("a figure");
    let measured = chosen("GC-F1");
    let Content::Regenerated { parts, .. } = &measured.content else { panic!("regenerated") };
    let mut results = Results::default();
    for (number, point) in parts[0].points(Depth::QUICK).iter().enumerate() {
        let throughput = 2000.0 * (1 + 2 * number) as f64;
        results.add(&point.command, json!({"throughput_tps": throughput, "commits_per_write": 1.0}));
    }
    let entry = |id, errors| Entry::of(chosen(id), Depth::QUICK, &results, errors);
    Report {
        version: "0.1.0".into(),
        depth: "quick".into(),
        date: "2026-11-26".into(),
        machine: "2 processors".into(),
        figures: vec![entry("AC-F2", Vec::new()), entry("GC-F1", vec!["a <b>".into()])],
    }
}

#[test]
fn the_page_has_each_figure_with_picture_and_numbers() {
    let page = page(&report()).expect("a page");
    for text in
        ["id=\"AC-F2\"", "id=\"GC-F1\"", "<svg", "same direction, weaker", "3.00 x", "6.00 x", "6,000"]
    {
        assert!(page.contains(text), "no {text}");
    }
    // Texts are escaped; nothing is loaded from elsewhere, and nothing runs.
    assert!(page.contains("a &lt;b&gt;") && !page.contains("<b>a"), "not escaped");
    for foreign in ["<script", "src=", "@import", "url("] {
        assert!(!page.contains(foreign), "{foreign}");
    }
}

#[test]
fn the_table_has_a_line_for_each_number() {
    let report = report();
    let table = csv(&report).expect("a table");
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "figure,part,x,variant,measure,unit,median,min,max,runs");
    assert_eq!(lines.len(), 1 + report.figures[1].rows.len());
    assert!(lines.contains(&"GC-F1,,,group,throughput,tx/s,6000,6000,6000,1"), "{table}");
}

#[test]
fn a_report_is_read_back_from_its_json() {
    let report = report();
    let text = serde_json::to_string(&report).expect("json");
    assert_eq!(serde_json::from_str::<Report>(&text).expect("a report"), report);
}
