//! `quench stat`: sections, files, tables.

use crate::support::*;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

#[test]
fn stat_has_sections_with_units() {
    let dir = directory();
    let path = dir.path().join("db");
    let db = text(&path);
    let rows: String = (0..5000).map(|n| format!("{n:08}\tvalue {n}\n")).collect();
    expect_code(&run_with_input(&["load", db, "numbers", "-"], rows.as_bytes()), 0);
    expect_code(&run_with_input(&["put", db, "large", "value", "-"], &vec![7; 100_000]), 0);
    let output = run(&["stat", db]);
    expect_code(&output, 0);
    let said = String::from_utf8(output.stdout).expect("text");
    for wanted in
        ["Database\n", "Files\n", "Space\n", "Device\n", "last close", "clean", "4 KiB", "MANIFEST", "total"]
    {
        assert!(said.contains(wanted), "{wanted:?}: {said}");
    }
    assert!(!said.contains("Tables\n"), "only with --all: {said}");
    let output = run(&["stat", db, "--all"]);
    expect_code(&output, 0);
    let said = String::from_utf8(output.stdout).expect("text");
    let numbers = said.lines().find(|line| line.trim_start().starts_with("numbers")).expect("a table");
    assert!(numbers.contains("5,000") && numbers.contains(" % "), "{numbers}");
    assert!(said.contains("store_bytes"), "all figures: {said}");
    let report = json(&run(&["stat", db, "--all", "--json"]));
    assert_eq!((&report["format"], report["id"].as_str().map(str::len)), (&1.into(), Some(16)), "{report}");
    let table = |name: &str| {
        let all = report["table_list"].as_array().expect("a list");
        all.iter().find(|table| table["name"] == name).expect("a table").clone()
    };
    assert_eq!((number(&table("numbers"), "rows"), number(&table("numbers"), "depth")), (5000.0, 2.0));
    let fill = number(&table("numbers"), "leaf_fill");
    assert!(fill > 0.3 && fill <= 1.0, "{fill}");
    let large = table("large");
    assert_eq!((number(&large, "rows"), number(&large, "large_values")), (1.0, 1.0));
    assert!(number(&large, "bytes") >= 100_000.0 && number(&large, "bytes") < 200_000.0, "{large}");
    let files = report["files"].as_array().expect("a list");
    let listed: f64 = files.iter().map(|file| number(file, "bytes")).sum();
    let manifest = std::fs::metadata(path.join("MANIFEST")).expect("there").len() as f64;
    let pages = std::fs::metadata(path.join("pages/data")).expect("there").len() as f64;
    assert!(listed >= manifest + pages, "{files:?}");
}

#[test]
fn stat_and_shell_show_the_types_of_tables() {
    let dir = directory();
    let path = dir.path().join("db");
    let db = quenchdb::Database::open(&path).expect("new");
    let ages: quenchdb::TypedTable<String, u32> = db.typed_table("ages").expect("new");
    db.index(&ages, "by age", |age: &u32| [*age]).expect("there is room");
    db.create_table("bytes").expect("new");
    db.transact(|tx| ages.insert(tx, "alice", &40)).expect("commits");
    drop(ages);
    db.close().expect("closes");
    let output = run(&["stat", text(&path), "--all"]);
    expect_code(&output, 0);
    let said = String::from_utf8(output.stdout).expect("text");
    for line in
        [["ages ", " table of String to u32"], ["ages/by age ", " index by u32"], ["bytes ", " bytes"]]
    {
        let found = said.lines().find(|said| said.trim_start().starts_with(line[0])).expect("a table");
        assert!(found.ends_with(line[1]), "{found}");
    }
    let report = json(&run(&["stat", text(&path), "--all", "--json"]));
    let types: Vec<_> =
        report["table_list"].as_array().expect("a list").iter().map(|t| t["types"].clone()).collect();
    assert_eq!(types[..2], ["table of String to u32", "index by u32"]);
    assert!(types[2].is_null());
    let output = run_with_input(&["shell", text(&path)], b"tables\n");
    expect_code(&output, 0);
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(
        said.contains("ages            table of String to u32\nages/by age     index by u32\nbytes\n"),
        "{said}"
    );
    let output = run_with_input(&["shell", text(&path), "--json"], b"tables\n");
    let tables = json(&output);
    assert_eq!(tables["types"]["ages"], "table of String to u32");
    let dumped = run(&["dump", text(&path), "--all"]);
    expect_code(&dumped, 0);
    assert_eq!(dumped.stdout, b"ages\talice\t\\x00\\x00\\x00(\nbytes\t\t\n", "without indexes");
    let page = dir.path().join("page.html");
    expect_code(&run(&["stat", text(&path), "--html", text(&page)]), 0);
    let page = std::fs::read_to_string(page).expect("written");
    assert!(page.contains("<td>table of String to u32</td>"), "{page}");
}

#[test]
fn stat_watches_until_a_signal() {
    let dir = directory();
    let path = dir.path().join("db");
    expect_code(&run(&["put", text(&path), "t", "a", "1"]), 0);
    let mut child = quench(&["stat", text(&path), "--watch", "0.05", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    // The second is printed by itself, and sees what was written meanwhile.
    let mut reports =
        lines.map(|line| serde_json::from_str::<serde_json::Value>(&line.expect("read")).expect("json"));
    assert_eq!(reports.next().expect("one")["tables"], 1);
    loop {
        // Busy while the other process reads.
        match run(&["create", text(&path), "more"]).status.code() {
            Some(3) => {}
            code => break assert_eq!(code, Some(0)),
        }
    }
    assert!(reports.any(|report| report["tables"] == 2));
    child.kill().expect("ours");
    child.wait().expect("ended");
}

#[test]
fn html_page_maps_the_space_and_escapes_names() {
    let dir = directory();
    let (path, page) = (dir.path().join("db"), dir.path().join("page.html"));
    let db = text(&path);
    let rows: String = (0..20_000).map(|n| format!("{n:08}\tvalue {n}\n")).collect();
    expect_code(&run_with_input(&["load", db, "<b>&\"x", "-"], rows.as_bytes()), 0);
    let output = run(&["stat", db, "--html", text(&page)]);
    expect_code(&output, 0);
    assert!(output.stdout.is_empty());
    let written = std::fs::read_to_string(&page).expect("written");
    assert!(written.contains("<td>&lt;b&gt;&amp;&quot;x</td><td>20,000</td>"), "{written}");
    assert!(!written.contains("<b>") && !written.contains("<script"));
    for tag in ["html", "head", "body", "svg", "ul", "table", "dl", "style"] {
        let count = |what: String| written.matches(&what).count();
        let opened = count(format!("<{tag}>")) + count(format!("<{tag} "));
        assert_eq!(opened, count(format!("</{tag}>")), "{tag}");
    }
    // Squares of the map, and four of its key.
    let squares = written.matches("<rect class=\"images\"").count();
    assert!(squares > 2, "{squares} squares with pages");
    assert!((8..2100).contains(&written.matches("<rect").count()));
    let failed = run(&["stat", db, "--html", text(&dir.path().join("no/page.html"))]);
    expect_code(&failed, 2);
    assert!(String::from_utf8_lossy(&failed.stderr).contains("cannot write"));
}
