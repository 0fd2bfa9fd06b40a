//! Commands that look at a store of objects, which is a directory, and the requests they count.

use crate::support::*;
use serde_json::Value;

/// The list is made beside a writer, which continues, and a reader, whose pin it shows.
#[test]
fn objects_are_listed_beside_a_writer() {
    let dir = directory();
    let place = dir.path().join("db");
    let url = format!("file://{}", text(&place));
    let said = run(&["objects", &url]);
    expect_code(&said, 2);
    assert!(String::from_utf8_lossy(&said.stderr).contains("there is no database"));
    assert!(!place.exists(), "a list creates nothing");
    let said = run(&["objects", text(dir.path())]);
    expect_code(&said, 2);
    assert!(String::from_utf8_lossy(&said.stderr).contains("is no URL"));
    let db = quenchdb::Database::open(&url).expect("new");
    let table = db.create_table("t").expect("new");
    let put = |value: &str| db.transact(|tx| tx.insert(&table, "a", value)).expect("still the writer");
    put("1");
    db.checkpoint().expect("still the writer");
    let reader = quenchdb::Database::builder().open_checkpoint(&url).expect("is there");
    put("2");
    std::fs::write(place.join("notes.txt"), "mine").expect("written");
    let listed = json(&run(&["objects", &url, "--json"]));
    put("3");
    assert_eq!((&listed["writer_epoch"], &listed["closed"]), (&Value::from(1), &Value::from(false)));
    let objects = listed["objects"].as_array().expect("a list");
    let of_class = |class: &str| objects.iter().filter(|object| object["class"] == class).collect::<Vec<_>>();
    let owner = of_class("pin")[0]["owner"].as_str().expect("text");
    assert!(owner.contains(&format!("process {}", std::process::id())), "{listed}");
    assert_eq!(of_class("unknown")[0]["name"], "notes.txt");
    let needed = of_class("log").iter().filter(|log| log["records"] == "needed").count();
    assert!(needed > 0, "{listed}");
    let live: f64 = of_class("pages").iter().map(|pages| number(pages, "live_bytes")).sum();
    assert!(live > 0.0, "{listed}");
    drop(reader);
    db.close().expect("still the writer");
    // The manifest names an object that is gone: the exit code says so.
    let pages = std::fs::read_dir(place.join("pages")).expect("there").next().expect("an extent");
    let gone = pages.expect("readable").path();
    std::fs::remove_file(&gone).expect("removed");
    let damaged = run(&["objects", &url]);
    expect_code(&damaged, 1);
    let name = gone.file_name().expect("a name").to_string_lossy().into_owned();
    assert!(String::from_utf8_lossy(&damaged.stdout).contains(&format!("MISSING: pages/{name}")));
}

/// The log is read beside a writer, which continues.
#[test]
fn log_of_a_url_is_printed_beside_its_writer() {
    let dir = directory();
    let url = format!("file://{}/db", text(dir.path()));
    let said = run(&["log", &url]);
    expect_code(&said, 2);
    assert!(String::from_utf8_lossy(&said.stderr).contains("cannot read the log of file://"));
    let db = quenchdb::Database::open(&url).expect("new");
    let table = db.create_table("t").expect("new");
    let put = |key: &str| db.transact(|tx| tx.insert(&table, key, "1")).expect("still the writer");
    ["first", "second"].into_iter().for_each(put);
    let log = run(&["log", &url]);
    expect_code(&log, 0);
    let log = String::from_utf8(log.stdout).expect("text");
    let at = |key: &str| log.find(&format!("key \"{key}\" value \"1\"")).unwrap_or_else(|| panic!("{log}"));
    assert!(at("first") < at("second"), "{log}");
    let newest = run(&["log", &url, "--limit", "1", "--json"]);
    let record = json(&newest);
    assert!(record["operations"][0].as_str().expect("text").contains("second"), "{record}");
    put("third");
    db.close().expect("still the writer");
    let help = String::from_utf8(run(&["help", "log"]).stdout).expect("text");
    assert!(help.contains("URL of a store of objects"), "{help}");
}

#[test]
fn demo_counts_its_requests_to_a_store_of_objects() {
    let dir = directory();
    let prices = dir.path().join("prices.json");
    std::fs::write(&prices, r#"{"million_puts": 1000000, "gigabyte_sent": 0}"#).expect("written");
    let url = format!("file://{}/demo", text(dir.path()));
    let output = run(&["demo", &url, "--seconds", "2", "--prices", text(&prices)]);
    expect_code(&output, 0);
    // The demo wraps its lines.
    let said = String::from_utf8(output.stdout).expect("text");
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let rest = said.split_once("work requests: ").unwrap_or_else(|| panic!("{said}")).1;
    let line = rest.split("recovery requests: ").next().unwrap_or(rest);
    let puts: f64 =
        line.split(", ").nth(1).and_then(|puts| puts.strip_suffix(" puts")?.parse().ok()).expect("puts");
    let dollars = line.rsplit('$').nth(1).and_then(|rest| rest.split(',').next()?.parse::<f64>().ok());
    // A put costs a dollar.
    assert!(puts >= 10.0 && dollars.expect("dollars") >= puts, "{line}");
    assert!(line.contains("for a million transactions"), "{line}");
    assert!(said.contains("recovery requests: "), "{said}");
}

/// What a failed command created in a store of objects is removed, with its directories.
#[test]
fn a_failed_command_on_a_new_url_leaves_nothing() {
    let dir = directory();
    let place = dir.path().join("deep/db");
    let url = format!("file://{}", text(&place));
    let [db, bad, good, none, copy] =
        ["db", "bad.tsv", "good.tsv", "none", "copy/of"].map(|name| dir.path().join(name));
    std::fs::write(&bad, "a\t1\nno tab\n").expect("written");
    std::fs::write(&good, "a\t1\n").expect("written");
    expect_code(&run(&["load", text(&db), "t", text(&good)]), 0);
    let (db, bad, good, none) = (text(&db), text(&bad), text(&good), text(&none));
    for place in [url.as_str(), text(&copy)] {
        for failing in [
            &["create", place, "a", "a"][..],
            &["create", place, ""],
            &["put", place, "t", "", "v"],
            &["put", place, "", "k", "v"],
            &["load", place, "t", bad],
            &["load", place, "t", bad, "--resume"],
            &["load", place, "", good],
            &["load", place, "t", none],
            &["load", place, "t", good, "--batch", "0"],
            &["delete", place, "t", "k"],
            &["drop", place, "t"],
            &["clear", place, "t"],
            &["rename", place, "t", "u"],
            &["compact", place],
            &["checkpoint", place],
            &["shell", place],
            &["shell", place, "--create", "-c", "put t a 1"],
            &["shell", place, "--create", "-c", "no statement"],
            &["backup", place, none],
            &["backup", db, place, "--base", db],
            &["restore", db, place],
            &["restore", place, none],
            &["salvage", none, place],
            &["salvage", place, none],
        ] {
            let failed = run(failing);
            assert_eq!(failed.status.code(), Some(2), "{failing:?} {failed:?}");
            let mut left: Vec<_> = std::fs::read_dir(dir.path()).expect("there").flatten().collect();
            left.sort_by_key(std::fs::DirEntry::file_name);
            let left: Vec<_> = left.iter().map(std::fs::DirEntry::file_name).collect();
            assert_eq!(left, ["bad.tsv", "db", "good.tsv"], "{failing:?}");
        }
        // A command that fails later leaves the database.
        expect_code(&run(&["put", place, "t", "a", "1"]), 0);
        expect_code(&run(&["put", place, "t", "", "v"]), 2);
        expect_code(&run(&["load", place, "u", bad, "--batch", "1"]), 2);
        assert_eq!(run(&["get", place, "t", "a"]).stdout, b"1\n");
        assert_eq!(run(&["get", place, "u", "a"]).stdout, b"1\n", "the first batch is durable");
        let root = if place == url { "deep" } else { "copy" };
        std::fs::remove_dir_all(dir.path().join(root)).expect("it was there");
    }
}

/// Three programs that put a row each, again and again, take turns: most puts succeed, and each
/// that does is there.
#[test]
fn short_writers_of_one_url_take_turns() {
    let dir = directory();
    let url = format!("file://{}/db", text(dir.path()));
    expect_code(&run(&["put", &url, "t", "first", "1"]), 0);
    let (each, url) = (5, &url);
    let acknowledged: Vec<String> = std::thread::scope(|scope| {
        let loops: Vec<_> = (0..3)
            .map(|writer| {
                scope.spawn(move || {
                    let keys = (0..each).map(|number| format!("{writer}-{number}"));
                    keys.filter(|key| run(&["put", url, "t", key, "x"]).status.success()).collect::<Vec<_>>()
                })
            })
            .collect();
        loops.into_iter().flat_map(|keys| keys.join().expect("no panic")).collect()
    });
    assert!(2 * acknowledged.len() >= 3 * each, "{acknowledged:?} of {}", 3 * each);
    let dumped = run(&["dump", url, "t"]);
    expect_code(&dumped, 0);
    let dumped = String::from_utf8_lossy(&dumped.stdout).into_owned();
    for key in &acknowledged {
        assert!(dumped.contains(&format!("{key}\t")), "{key} was acknowledged: {dumped}");
    }
}

#[test]
fn complete_load_is_resumed_only_if_its_file_has_changed() {
    let dir = directory();
    let (database, file) = (dir.path().join("db"), dir.path().join("rows.tsv"));
    std::fs::write(&file, "a\t1\nb\t2\n").expect("written");
    let load = |more: &[&str]| {
        let args = [&["load", text(&database), "t", text(&file), "--json"], more].concat();
        let output = run(&args);
        expect_code(&output, 0);
        let report = json(&output);
        (report["rows"].as_u64().expect("rows"), report["skipped"].as_u64().expect("skipped"))
    };
    assert_eq!(load(&[]), (2, 0));
    assert_eq!(load(&["--resume"]), (0, 2), "all of it is there");
    expect_code(&run(&["put", text(&database), "t", "a", "mine"]), 0);
    assert_eq!(load(&["--resume"]), (0, 2));
    assert_eq!(run(&["dump", text(&database), "t"]).stdout, b"a\tmine\nb\t2\n");
    assert_eq!(load(&[]), (2, 0), "without --resume it is loaded again");
    std::fs::write(&file, "a\t1\nb\t2\nc\t3\n").expect("written");
    assert_eq!(load(&["--resume"]), (3, 0), "it has changed");
    assert_eq!(load(&["--resume"]), (0, 3));
    assert_eq!(run(&["dump", text(&database), "--all"]).stdout, b"t\ta\t1\nt\tb\t2\nt\tc\t3\n");
}
