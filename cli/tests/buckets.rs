//! `quench buckets`: a database in three directories that behave like buckets.

use serde_json::Value;
use std::path::Path;

fn list(root: &Path, names: &[&str]) -> String {
    let url = |name: &&str| format!("file://{}", root.join(name).display());
    names.iter().map(url).collect::<Vec<_>>().join(",")
}

fn run_quench(arguments: &[&str], code: i32) -> String {
    let output = crate::support::quench(arguments).output().expect("starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}{errors}");
    format!("{text}{errors}")
}

fn buckets(arguments: &[&str]) -> Vec<Value> {
    let text = run_quench(&[&["--json", "buckets"], arguments].concat(), 0);
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    report["buckets"].as_array().expect("a list").clone()
}

/// Returns the number of objects with data in a bucket.
fn objects(root: &Path, name: &str) -> usize {
    let count = |directory| std::fs::read_dir(root.join(name).join(directory)).into_iter().flatten().count();
    count("log") + count("pages") + count("files")
}

#[test]
fn emptied_bucket_is_filled_and_a_lost_one_replaced() {
    let root = tempfile::tempdir().expect("a directory");
    let root = root.path();
    let three = list(root, &["a", "b", "c"]);
    for number in 0..5 {
        run_quench(&["put", &three, "t", &format!("key {number}"), "value"], 0);
    }
    assert!(buckets(&[&three]).iter().all(|bucket| bucket["counts"] == true), "all are there");

    std::fs::remove_dir_all(root.join("b")).expect("removed");
    std::fs::create_dir(root.join("b")).expect("empty");
    let found = buckets(&[&three]);
    assert_eq!(found[1]["counts"], false, "{found:?}");
    assert_eq!(found[1]["problem"], "it has no manifest", "{found:?}");
    let found = buckets(&[&three, "--repair"]);
    assert!(found.iter().all(|bucket| bucket["whole"] == true), "{found:?}");
    assert!(objects(root, "b") > 0, "it has objects again");

    std::fs::remove_dir_all(root.join("c")).expect("removed");
    let replacement = format!("{}={}", list(root, &["c"]), list(root, &["d"]));
    let found = buckets(&[&three, "--replace", &replacement]);
    assert!(found.iter().all(|bucket| bucket["whole"] == true), "{found:?}");
    assert!(objects(root, "d") > 0, "it has everything");
    let refused = run_quench(&["get", &three, "t", "key 1"], 2);
    assert!(refused.contains("/d, not of the database"), "{refused}");

    std::fs::remove_dir_all(root.join("a")).expect("removed");
    let now = list(root, &["a", "b", "d"]);
    assert_eq!(run_quench(&["get", &now, "t", "key 4"], 0), "value\n");
}

#[test]
fn wrong_requests_for_buckets_are_refused_in_one_line() {
    let root = tempfile::tempdir().expect("a directory");
    let root = root.path();
    let three = list(root, &["a", "b", "c"]);
    run_quench(&["put", &three, "t", "k", "v"], 0);
    let one = list(root, &["a"]);
    let other = format!("{}={}", list(root, &["x"]), list(root, &["d"]));
    let cases: [(&[&str], &str); 5] = [
        (&["buckets", &one], "not a list of the URLs of several buckets"),
        (&["buckets", &one, "--repair"], "not a list of the URLs of several buckets"),
        (&["buckets", &list(root, &["x", "y", "z"])], "does not exist"),
        (&["buckets", &three, "--replace", &other], "does not name"),
        (&["buckets", &three, "--replace", "nonsense"], "not OLD=NEW"),
    ];
    for (arguments, expected) in cases {
        let text = run_quench(arguments, 2);
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
}
