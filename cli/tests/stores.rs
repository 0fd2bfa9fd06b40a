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
    let said = String::from_utf8(output.stdout).expect("text");
    let line = said.lines().find(|line| line.contains("work requests: ")).unwrap_or_else(|| panic!("{said}"));
    let puts: f64 =
        line.split(", ").nth(1).and_then(|puts| puts.strip_suffix(" puts")?.parse().ok()).expect("puts");
    let dollars = line.rsplit('$').nth(1).and_then(|rest| rest.split(',').next()?.parse::<f64>().ok());
    // A put costs a dollar.
    assert!(puts >= 10.0 && dollars.expect("dollars") >= puts, "{line}");
    assert!(line.contains("for a million transactions"), "{line}");
    assert!(said.contains("recovery requests: "), "{said}");
}
