//! Tests of the summary.

use super::*;
use crate::figures::entry::{Form, Picture, Series};
use crate::figures::results::Summary;

fn entry(id: &str, holds: Option<bool>) -> Entry {
    let because = (holds == Some(false)).then(|| "the disk is slow".to_string());
    let comparison = Comparison {
        text: "a over b".into(),
        unit: "x".into(),
        published: holds.map(|_| 2.0),
        ours: holds.map(|_| 1234.5),
        ratio: None,
        holds,
        because,
    };
    let values = vec![Summary::of(vec![1.0])];
    let picture = Picture {
        title: "p99".into(),
        x_name: "threads".into(),
        y_name: "us".into(),
        labels: vec!["1".into()],
        form: Form::Bars,
        log: false,
        series: vec![Series { name: "a".into(), values }],
    };
    Entry {
        id: id.into(),
        title: "A figure".into(),
        setting: String::new(),
        scaled: String::new(),
        verdict: if holds == Some(false) { Verdict::OtherShape } else { Verdict::SameShape },
        comparisons: vec![comparison],
        pictures: vec![picture],
        rows: Vec::new(),
        commands: Vec::new(),
        runs: 1,
        errors: Vec::new(),
    }
}

fn report() -> Report {
    Report {
        version: "0.1.0".into(),
        depth: "full".into(),
        date: "2026-11-26".into(),
        machine: "2 processors.".into(),
        figures: vec![entry("A-1", Some(true)), entry("A-2", Some(false)), entry("A-3", None)],
    }
}

#[test]
fn each_claim_has_a_line_and_each_other_shape_a_reason() {
    let text = summary(&report());
    assert!(text.contains("3 figures and tables: 2 of the same shape, 1 of another one"), "{text}");
    for line in [
        "| A-1 | a over b | 2.00 x | 1,234 x | same |",
        "| A-2 | a over b | 2.00 x | 1,234 x | other |",
        "| A-3 | a over b | - | - | not measured |",
        "- **A-2**, a over b: the disk is slow.",
    ] {
        assert!(text.lines().any(|have| have == line), "no {line} in {text}");
    }
    assert_eq!(text.matches("- **").count(), 1, "{text}");
}

#[test]
fn a_picture_is_a_file_with_a_background() {
    let files = pictures(&report());
    let names: Vec<&str> = files.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["A-1-1.svg", "A-2-1.svg", "A-3-1.svg"]);
    let drawn = &files[0].1;
    assert!(drawn.starts_with("<svg") && drawn.trim_end().ends_with("</svg>"), "{drawn}");
    assert!(drawn.lines().nth(1).is_some_and(|line| line.starts_with("<rect")), "{drawn}");
}
