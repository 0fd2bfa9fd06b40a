//! Tests of the summary.

use super::*;
use crate::figures::claim::{At, Claim, Ours, Published};
use crate::figures::entry::{Form, Picture, Series};
use crate::figures::runs::Summary;

fn entry(id: &str, ours: Option<f64>) -> Entry {
    let claim = Claim {
        text: "a over b".into(),
        place: "figure 1".into(),
        published: Published::Number(2.0),
        unit: "x".into(),
        without: 1.0,
        ours: Ours::LeastAgainstOthers(At {
            part: String::new(),
            x: String::new(),
            variant: String::new(),
            measure: String::new(),
        }),
        because: "the disk is slow".into(),
        headline: id == "A-2",
    };
    let ours = ours.and_then(|ours| Summary::of(vec![ours, ours / 2.0, ours * 2.0]));
    let comparison = Comparison::judged(&claim, ours);
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
        state: State::Measured,
        claims: vec![comparison],
        shown: Vec::new(),
        modelled: Vec::new(),
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
        figures: vec![
            entry("A-1", Some(2.5)),
            entry("A-2", Some(1234.5)),
            entry("A-3", None),
            entry("A-4", Some(1.2)),
        ],
    }
}

#[test]
fn each_claim_has_a_line_and_a_reason_if_not_reproduced() {
    let text = summary(&report());
    let counts = "4 figures and tables of papers, 0 tables of our own, 4 claims: 1 reproduced, 1 in the same direction, \
                  1 within noise, 0 not here, 1 not measured.";
    assert!(text.contains(counts), "{text}");
    for line in [
        "| A-1 | a over b | 2.00 x | 2.50 x (1.25 to 5.00) | reproduced |",
        "| A-2 | a over b | 2.00 x | 1,234 x (617 to 2,469) | same direction, stronger: 1,234 of the effect |",
        "| A-3 | a over b | 2.00 x | - | not measured |",
        "| A-4 | a over b | 2.00 x | 1.20 x (0.600 to 2.40) | within noise |",
        "- **A-2**, a over b (reproduced: 1.50 to 3.00): the disk is slow.",
    ] {
        assert!(text.lines().any(|have| have == line), "no {line} in {text}");
    }
    assert_eq!(text.matches("- **").count(), 3, "{text}");
    let headlines = headlines(&report());
    assert!(headlines.lines().count() == 5 && headlines.contains("| A-2 | a over b |"), "{headlines}");
}

#[test]
fn a_picture_is_a_file_with_a_background() {
    let files = pictures(&report());
    let names: Vec<&str> = files.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["A-1-1.svg", "A-2-1.svg", "A-3-1.svg", "A-4-1.svg"]);
    let drawn = &files[0].1;
    assert!(drawn.starts_with("<svg") && drawn.trim_end().ends_with("</svg>"), "{drawn}");
    assert!(drawn.lines().nth(1).is_some_and(|line| line.starts_with("<rect")), "{drawn}");
}
