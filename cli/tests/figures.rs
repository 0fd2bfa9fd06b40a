//! `bench figures`: the figures of the papers as runs of the program.

use crate::support::*;
use std::path::Path;
use std::process::Command;

/// Measures a figure of two short points into `out`.
fn measure(out: &Path, more: &[&str]) -> std::process::Output {
    let arguments = ["figures", "GC-F1", "--seconds", "0.1", "--json", "--out", text(out)];
    run_bench(&[&arguments[..], more].concat())
}

fn points(out: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let files = std::fs::read_dir(out.join("points")).expect("points");
    let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), std::fs::read(&path).expect("a point"))).collect()
}

#[test]
fn a_figure_is_measured_once_and_reported() {
    let directory = directory();
    let out = directory.path().join("figures");
    let output = measure(&out, &[]);
    expect_code(&output, 0);
    let report = json(&output);
    let figure = &report["figures"][0];
    assert_eq!((&figure["id"], &figure["runs"]), (&"GC-F1".into(), &1.into()));
    assert!(number(&figure["claims"][0]["ours"], "median") > 1.0, "{}", figure["claims"]);
    let first = points(&out);
    assert_eq!(first.len(), 2);
    // Nothing is measured again.
    let again = measure(&out, &[]);
    expect_code(&again, 0);
    assert_eq!(json(&again)["figures"], report["figures"]);
    assert_eq!(points(&out), first);
    let page = std::fs::read_to_string(out.join("report.html")).expect("a page");
    assert!(page.contains("id=\"GC-F1\"") && page.contains("<svg"), "{page}");
    let claims = std::fs::read_to_string(out.join("README.md")).expect("the claims");
    assert!(claims.lines().any(|line| line.starts_with("| GC-F1 | ")), "{claims}");
    let drawn = std::fs::read_to_string(out.join("pictures/GC-F1-1.svg")).expect("a picture");
    assert!(drawn.starts_with("<svg"), "{drawn}");
    let table = std::fs::read_to_string(out.join("figures.csv")).expect("a table");
    assert!(table.lines().any(|line| line.starts_with("GC-F1,,,group,throughput,tx/s,")), "{table}");
    // Another call adds its figure to the report.
    expect_code(&run_bench(&["figures", "AC-F2", "--seconds", "0.1", "--out", text(&out)]), 0);
    let page = std::fs::read_to_string(out.join("report.html")).expect("a page");
    assert!(page.contains("id=\"GC-F1\"") && page.contains("id=\"AC-F2\""), "{page}");
}

#[test]
fn points_of_another_build_are_measured_again() {
    let directory = directory();
    let out = directory.path().join("figures");
    expect_code(&measure(&out, &[]), 0);
    for (path, text) in points(&out) {
        let mut point: serde_json::Value = serde_json::from_slice(&text).expect("json");
        point["build"] = "another".into();
        std::fs::write(path, point.to_string()).expect("written");
    }
    let foreign = points(&out);
    expect_code(&measure(&out, &["--any-build"]), 0);
    assert_eq!(points(&out), foreign);
    expect_code(&measure(&out, &[]), 0);
    for (path, text) in points(&out) {
        let point: serde_json::Value = serde_json::from_slice(&text).expect("json");
        assert_ne!(point["build"], "another", "{}", path.display());
        assert_eq!(point["reports"].as_array().map(Vec::len), Some(1));
    }
}

#[test]
fn wrong_names_flags_and_files_are_refused() {
    let directory = directory();
    let out = directory.path().join("figures");
    let refused = |arguments: &[&str], part: &str| {
        let output = run_bench(arguments);
        expect_code(&output, 2);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(part), "{arguments:?}: {error}");
    };
    refused(&["figures", "XY-F1"], "XY-F1 is no figure; `quench bench figures --list` prints all");
    refused(&["put", "--quick"], "--quick does not go with put");
    expect_code(&measure(&out, &[]), 0);
    let (path, _) = points(&out).remove(0);
    std::fs::write(&path, "{").expect("written");
    let arguments = ["figures", "GC-F1", "--seconds", "0.1", "--out", text(&out)];
    refused(&arguments, "is no point of a figure; remove it");
    refused(&["figures", "GC-F1", "--out", "/proc/none"], "cannot create /proc/none");
}

#[test]
fn the_list_names_every_figure() {
    let output = run_bench(&["figures", "--list", "--json"]);
    expect_code(&output, 0);
    let list = json(&output);
    let list = list.as_array().expect("a list");
    assert!(list.len() > 70, "{}", list.len());
    let of = |id: &str| list.iter().find(|figure| figure["id"] == id).expect("a figure");
    assert_eq!(of("GC-F1")["points"].as_array().map(Vec::len), Some(2));
    assert_eq!(of("AC-F2")["points"].as_array().map(Vec::len), Some(0));
}

/// Returns what a browser without a window prints: the page after loading, and its messages.
fn browse(chromium: &str, page: &Path, profile: &Path) -> (String, String) {
    let output = Command::new(chromium)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("the browser starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_browser_shows_the_page_without_messages() {
    let chromium = "chromium";
    if Command::new(chromium).arg("--version").output().is_err() {
        return skip(&"chromium is not installed");
    }
    let directory = directory();
    let out = directory.path().join("figures");
    expect_code(&measure(&out, &[]), 0);
    let page = out.join("report.html");
    let (shown, messages) = browse(chromium, &page, &directory.path().join("profile"));
    assert!(!messages.contains("CONSOLE"), "{messages}");
    for section in shown.split("<section").skip(1) {
        assert!(section.contains("<svg") && section.contains("class=\"number\""), "{section}");
    }
    assert_eq!(shown.matches("<section").count(), 1);
    // The check of messages sees one.
    let wrong = directory.path().join("wrong.html");
    std::fs::write(&wrong, "<script>nothing.here()</script>").expect("written");
    let (_, messages) = browse(chromium, &wrong, &directory.path().join("profile"));
    assert!(messages.contains("CONSOLE"), "{messages}");
}

#[test]
fn runs_are_shown_on_a_page() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name);
    let (one, page) = (at("one.json"), at("one.html"));
    let run = [
        "ycsb",
        "--rows",
        "2000",
        "--seconds",
        "0.3",
        "--interval",
        "0.1",
        "--device",
        "sim:nvme-enterprise",
    ];
    let output = run_bench(&[&run[..], &["--json", "--report", text(&page)]].concat());
    expect_code(&output, 0);
    std::fs::write(&one, &output.stdout).expect("written");
    std::fs::write(at("two.json"), &output.stdout).expect("written");
    let shown = std::fs::read_to_string(&page).expect("a page");
    for part in
        ["raw durable 4 KiB write, sim:nvme-enterprise", "darker is more", "budget", "padding of the log"]
    {
        assert!(shown.contains(part), "no {part}");
    }
    let both = at("both.html");
    let two = at("two.json");
    expect_code(&crate::support::run(&["report", text(&one), text(&two), "-o", text(&both)]), 0);
    let shown = std::fs::read_to_string(&both).expect("a page");
    assert!(shown.contains("one.json") && shown.contains("two.json"), "{shown}");
    std::fs::write(&two, "{}").expect("written");
    let output = crate::support::run(&["report", text(&two), "-o", text(&both)]);
    expect_code(&output, 2);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("two.json is no report of a workload"), "{error}");
}
