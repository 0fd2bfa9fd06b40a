//! Tests of drawings.

use super::*;
use crate::figures::runs::Summary;

fn picture(form: Form, log: bool) -> Picture {
    let value = |number: f64| Summary::of(vec![number, number * 1.5]);
    Picture {
        title: "throughput".into(),
        x_name: "threads".into(),
        y_name: "tx/s".into(),
        labels: vec!["1".into(), "2".into(), "16".into()],
        form,
        log,
        series: vec![
            Series { name: "group".into(), values: vec![value(10.0), value(20.0), None] },
            Series { name: "passive".into(), values: vec![value(15.0), None, value(9000.0)] },
        ],
    }
}

#[test]
fn a_drawing_has_labels_names_and_replaceable_colors() {
    for (form, log) in [(Form::Lines, false), (Form::Lines, true), (Form::Bars, true), (Form::Stacked, false)]
    {
        let drawn = svg(&picture(form, log)).expect("drawn");
        for text in ["group", "passive", "16", "threads", "tx/s"] {
            assert!(drawn.contains(text), "{form:?}: no {text}");
        }
        assert!(drawn.starts_with("<svg") && drawn.contains("viewBox"), "{form:?}");
        // The style sheet of the page names these.
        assert!(drawn.contains("#010101") && drawn.contains("#DDDDDD"), "{form:?}: {drawn}");
        assert!(!drawn.contains("#FFFFFF"), "{form:?} has a background");
    }
}

#[test]
fn lines_have_a_mark_for_each_value_and_bars_a_rectangle() {
    let lines = svg(&picture(Form::Lines, false)).expect("drawn");
    assert_eq!(lines.matches("<circle").count(), 4);
    let bars = svg(&picture(Form::Bars, false)).expect("drawn");
    let legend = 2;
    assert_eq!(bars.matches("<rect").count(), 4 + legend);
}

#[test]
fn nothing_is_drawn_without_numbers() {
    let empty = Picture { series: Vec::new(), ..picture(Form::Lines, false) };
    assert!(svg(&empty).expect_err("empty").to_string().contains("nothing to draw in `throughput`"));
}
