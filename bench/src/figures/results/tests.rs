//! Tests of points and numbers.

use super::*;
use crate::figures::spec::{Axis, Measure};
use serde_json::json;

fn part() -> Part {
    let threads = |count: &str| Choice::new(count, &format!("--threads {count}"));
    let measure = |name: &str, unit: &str, path: &str, factor| Measure {
        name: name.into(),
        unit: unit.into(),
        path: path.into(),
        factor,
    };
    Part {
        name: String::new(),
        command: "put".into(),
        axis: Axis {
            name: "threads".into(),
            values: vec![threads("1"), threads("2").full_only(), threads("4")],
        },
        variants: vec![Choice::new("a", "--logs {x}"), Choice::new("b", "--logs {x/2}")],
        measures: vec![measure("mean", "ms", "/latency/mean", 1e-3)],
        charts: Vec::new(),
        seconds: (1.0, 2.0),
        modelled: false,
    }
}

fn at(x: &str, variant: &str) -> At {
    At { part: String::new(), x: x.into(), variant: variant.into(), measure: "mean".into() }
}

#[test]
fn numbers_are_found_by_field_index_and_condition() {
    let report = json!({
        "a": {"b": [1.5, {"c": 2}]},
        "writes": [{"bytes": 1, "durable": false, "us": 3}, {"bytes": 1, "durable": true, "us": 4}],
        "rows": [{"name": "x", "n": 5}],
    });
    assert_eq!(find(&report, "/a/b/0"), Some(1.5));
    assert_eq!(find(&report, "/a/b/1/c"), Some(2.0));
    assert_eq!(find(&report, "/writes[bytes=1&durable=true]/us"), Some(4.0));
    assert_eq!(find(&report, "/rows[name=x]/n"), Some(5.0));
    assert_eq!(find(&report, "/rows[name=x]/n over /a/b/1/c"), Some(2.5));
    let list = json!([{"name": "a, b", "x": 96.0, "n": 7}]);
    assert_eq!(find(&list, "/[name=a, b&x=96]/n"), Some(7.0));
    for wrong in ["/a/c", "/a/b/2", "/writes[bytes=2]/us", "/rows[nothing]/n", "/rows[name=x", "/a"] {
        assert_eq!(find(&report, wrong), None, "{wrong}");
    }
}

#[test]
fn points_of_a_depth_have_their_own_commands() {
    let part = part();
    let commands =
        |depth| -> Vec<String> { part.points(depth).iter().map(|point| point.command.join(" ")).collect() };
    assert_eq!(
        commands(Depth::QUICK),
        [
            "put --threads 1 --logs 1 --seconds 1",
            "put --threads 1 --logs 1 --seconds 1",
            "put --threads 4 --logs 4 --seconds 1",
            "put --threads 4 --logs 2 --seconds 1",
        ]
    );
    assert_eq!(commands(Depth::FULL).len(), 6);
    assert!(commands(Depth::FULL).contains(&"put --threads 2 --logs 1 --seconds 2".to_string()));
}

#[test]
fn keys_are_filled_in_halved_and_limited() {
    let (x, v) = (Choice::new("16", ""), Choice::new("v", "").keyed("true"));
    assert_eq!(filled("{x} {x/2} {x<8} {v}", &x, &v), "16 8 8 true");
    assert_eq!(filled("{x} {x/2} {x<8}", &Choice::new("1", ""), &v), "1 1 1");
}

#[test]
fn medians_ratios_and_changes_are_those_of_the_runs() {
    let (part, mut results) = (part(), Results::default());
    for (x, variant, runs) in [(0, 0, vec![1.0, 9.0, 2.0]), (2, 1, vec![3.0, 5.0])] {
        let points = part.points(Depth::FULL);
        let point = points.iter().find(|point| point.x == x && point.variant == variant).expect("a point");
        for mean in runs {
            results.add(&point.command, json!({"latency": {"mean": mean * 1e3}}));
        }
    }
    let parts = [part];
    let ours = |ours: Ours| results.ours(&parts, Depth::FULL, &ours);
    let median = |number| ours(number).map(|number| number.median);
    assert_eq!(median(Ours::Value(at("1", "a"))), Some(2.0));
    assert_eq!(median(Ours::Value(at("4", "b"))), Some(4.0));
    assert_eq!(median(Ours::Ratio(at("4", "b"), at("1", "a"))), Some(2.0));
    assert_eq!(median(Ours::Change(at("1", "a"), at("4", "b"))), Some(-50.0));
    // Of each round.
    let rounds = ours(Ours::Ratio(at("4", "b"), at("1", "a"))).expect("measured");
    assert_eq!((rounds.min, rounds.max, rounds.runs), (5.0 / 9.0, 3.0, vec![3.0, 5.0 / 9.0]));
    // The command of two threads and half a log for each is that of one thread: not measured.
    assert_eq!(median(Ours::Value(at("2", "b"))), None);
    assert_eq!(median(Ours::Ratio(at("1", "a"), at("2", "b"))), None);
    assert_eq!(median(Ours::Absent), None);
    let summary = Summary::of(vec![3.0, 1.0, 2.0]).expect("three");
    assert_eq!((summary.median, summary.min, summary.max), (2.0, 1.0, 3.0));
    assert_eq!(Summary::of(Vec::new()), None);
}

#[test]
fn a_variant_is_compared_with_the_best_other_one_everywhere() {
    let names = ["own", "one", "other"];
    let variants = names.map(|name| Choice::new(name, &format!("--preset {name}"))).to_vec();
    let part = Part { variants, ..part() };
    let numbers = [[10.0, 8.0, 5.0], [9.0, 10.0, 12.0], [3.0, 1.0, 2.0]];
    let mut results = Results::default();
    let mut points = part.points(Depth::FULL);
    let missing = points.pop().expect("a point");
    let report = |point: &Point| json!({"latency": {"mean": numbers[point.x][point.variant] * 1e3}});
    points.iter().for_each(|point| results.add(&point.command, report(point)));
    let parts = [part];
    let least = |results: &Results| {
        let ours = results.ours(&parts, Depth::FULL, &Ours::LeastAgainstOthers(at("", "own")));
        ours.map(|ours| ours.median)
    };
    assert_eq!(least(&results), None, "a point is missing");
    results.add(&missing.command, report(&missing));
    assert_eq!(least(&results), Some(9.0 / 12.0));
    let count = |percent| {
        let ours = Ours::CountAgainstOthers(at("", "own"), percent);
        results.ours(&parts, Depth::FULL, &ours).map(|ours| ours.median)
    };
    assert_eq!([30, 20, 0].map(count), [Some(3.0), Some(2.0), Some(2.0)]);
}
