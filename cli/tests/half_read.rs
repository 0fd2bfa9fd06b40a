//! Inputs of `load` that are half of something, or something else than they seem.

use crate::support::*;
use std::path::Path;
use std::process::Output;

/// What a load says and leaves.
struct Loaded {
    output: Output,
    said: String,
    rows: String,
}

/// Loads an input into a new database. Nothing but the table of the load may be in it.
fn load(root: &Path, input: &[u8], more: &[&str]) -> Loaded {
    let path = root.join("db");
    let _ = std::fs::remove_dir_all(&path);
    let db = text(&path);
    let output = run_with_input(&[&["load", db, "t", "-"], more].concat(), input);
    let said = String::from_utf8(output.stderr.clone()).expect("text");
    let rows = match output.status.code() {
        Some(0 | 1) => String::from_utf8(run(&["dump", db, "t"]).stdout).expect("text"),
        _ => {
            assert!(!path.exists(), "a refused input creates nothing: {said}");
            String::new()
        }
    };
    Loaded { output, said, rows }
}

/// Checks that inputs are refused, each with an error that has these words.
#[track_caller]
fn expect_refused(format: &str, cases: &[(&str, &str)]) {
    let dir = directory();
    for (input, wanted) in cases {
        let loaded = load(dir.path(), input.as_bytes(), &["--format", format]);
        expect_code(&loaded.output, 2);
        assert!(loaded.said.contains(wanted), "{input:?}: {}", loaded.said);
    }
}

/// Checks that inputs are loaded as these rows.
#[track_caller]
fn expect_loaded(format: &str, cases: &[(&[u8], &str)]) {
    let dir = directory();
    for (input, wanted) in cases {
        let loaded = load(dir.path(), input, &["--format", format]);
        assert_eq!(loaded.output.status.code(), Some(0), "{}: {}", input.escape_ascii(), loaded.said);
        assert_eq!(loaded.rows, *wanted, "{}", input.escape_ascii());
    }
}

/// Regression: the rest of the file was the value of the row, and the load succeeded.
#[test]
fn open_quote_is_an_error_with_the_line_where_it_begins() {
    expect_refused(
        "csv",
        &[
            (
                "key,value\na,1\nb,\"2\nc,3\nd,4\n",
                "line 3: column 3: the quote that begins here is not closed",
            ),
            ("key,value\n\"a", "line 2: column 1: the quote"),
            ("key,value\na,\"x\r\ny\"\r\nb,\"", "line 4: column 3: the quote"),
            ("key,\"value\na,1\n", "line 1: column 5: the quote"),
            ("key,value\na,\"1\"\"", "line 2: column 3: the quote"),
        ],
    );
}

#[test]
fn quoted_field_with_text_after_it_is_named_with_all_its_lines() {
    let dir = directory();
    let input = b"key,value\na,1\nb,\"2\nc,\"3\nd,4\n";
    let refused = load(dir.path(), input, &["--format", "csv"]);
    expect_code(&refused.output, 2);
    for wanted in ["lines 3 to 4: line 4, column 4", "begins in line 3, column 3"] {
        assert!(refused.said.contains(wanted), "{}", refused.said);
    }
    // Both lines count, because rows of both are left out.
    expect_code(&load(dir.path(), input, &["--format", "csv", "--skip-bad", "1"]).output, 2);
    let skipped = load(dir.path(), input, &["--format", "csv", "--skip-bad", "2"]);
    assert_eq!((skipped.output.status.code(), &*skipped.rows), (Some(1), "a\t1\nd\t4\n"), "{}", skipped.said);
}

#[test]
fn malformed_csv_is_refused_with_line_and_column() {
    expect_refused(
        "csv",
        &[
            ("key,value\na\n", "line 2: 1 field instead of 2"),
            ("key,value\na,1,2\n", "line 2: 3 fields instead of 2"),
            ("key,value\n  \n", "line 2: 1 field instead of 2"),
            ("key,value\na,\"b\"c\n", "line 2: column 6: text after the end of the quoted field"),
            ("key,value\na,b\rc\n", "line 2: column 4: a carriage return"),
            ("key,value\r\na,1\r", "line 2: column 4: a carriage return"),
            ("key,value\na,1\0\n", "line 2: column 4: a NUL byte"),
            ("key,value\na,\"\0\"\n", "line 2: column 4: a NUL byte"),
            ("key,value\na,\\x", "line 2: `\\x` begins a field in hexadecimal"),
            ("key,value\na,\\x4", "line 2: `\\x` begins a field in hexadecimal"),
            ("key,value\na,1\nkey,value\nb,2\n", "line 3: the header again"),
            ("key,key\na,1\n", "line 1: the header has two columns `key`"),
            ("key,value,key\na,1,b\n", "line 1: the header has two columns `key`"),
            ("key,value,more\na,1,b\n", "line 1: the first line must be the header"),
        ],
    );
}

#[test]
fn malformed_tsv_is_refused_with_line_and_column() {
    expect_refused(
        "tsv",
        &[
            ("a\t1\nb", "line 2: column 2: no tab"),
            ("a\t1\n\n", "line 2: column 1: no tab"),
            ("a\t1\t2\n", "line 1: column 4: a second tab"),
            ("a\t1\\", "line 1: column 4: a lone backslash"),
            ("a\t\\x4", "line 1: column 3: `\\x` needs"),
            ("a\t1\rb\t2\r", "line 1: column 4: a carriage return that ends no line"),
            ("a\t1\r\nb\t2\r", "line 2: column 4: a carriage return"),
            ("a\t1\r\r\n", "line 1: column 4: a carriage return"),
            ("a\t1\n\0\0\0\0", "line 2: column 1: a NUL byte"),
            ("a\x00\t\x001\x00\n\x00", "line 1: column 2: a NUL byte"),
        ],
    );
}

#[test]
fn malformed_json_lines_are_refused_with_line_and_column() {
    expect_refused(
        "jsonl",
        &[
            ("{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\",\"val", "line 2: column 15: EOF"),
            ("{\"key\":\"a\",\"value\":\"1\"", "line 1: column 22: EOF"),
            ("{\"key\":\"a\",\"value\":\"1\\", "line 1: column 22: EOF"),
            ("{\"key\":\"a\",\"value_base64\":\"AA\"}\n", "line 1: `value_base64` is not base64"),
            ("{\"key\":\"a\",\"value\":\"1\"}\n\n", "line 2: an empty line"),
            (
                "{\"key\":\"a\",\"value\":\"1\"}{\"key\":\"b\",\"value\":\"2\"}\n",
                "line 1: column 24: trailing",
            ),
            ("{\"key\":\"a\",\"value\":\"\0\"}\n", "line 1: column 21: control character"),
            ("{\"key\":\"a\",\"key\":\"b\",\"value\":\"1\"}\n", "line 1: column 16: duplicate field `key`"),
            ("[{\"key\":\"a\",\"value\":\"1\"}]\n", "line 1: column 1: an array"),
        ],
    );
    let dir = directory();
    let bad = load(dir.path(), b"{\"key\":\"a\",\"value\":\"\xff\"}\n", &["--format", "json"]);
    expect_code(&bad.output, 2);
    assert!(bad.said.contains("line 1: column"), "{}", bad.said);
}

#[test]
fn half_a_character_at_the_end_is_refused_elsewhere_bytes_stay() {
    let dir = directory();
    for (format, head) in [("tsv", &b"a\t1\nb\tgr"[..]), ("csv", b"key,value\na,1\nb,gr")] {
        for half in [&b"\xc3"[..], b"\xf0\x9f", b"\xf0\x9f\xa6"] {
            let loaded = load(dir.path(), &[head, half].concat(), &["--format", format]);
            expect_code(&loaded.output, 2);
            assert!(loaded.said.contains("ends within a character"), "{}", loaded.said);
        }
    }
    expect_loaded(
        "tsv",
        &[(b"a\xff\t\xc3\nb\t\xff", "a\\xff\t\\xc3\nb\t\\xff\n"), ("ü\t🦊".as_bytes(), "ü\t🦊\n")],
    );
    expect_loaded("csv", &[(b"key,value\na\xff,\"\xc3\"\nb,\xfc\n", "a\\xff\t\\xc3\nb\t\\xfc\n")]);
}

#[test]
fn whole_rows_load_with_every_end_of_line() {
    let two = "a\t1\nb\t2\n";
    expect_loaded("tsv", &[(b"a\t1\nb\t2", two), (b"a\t1\r\nb\t2\r\n", two), (b"a\t1\r\nb\t2", two)]);
    expect_loaded(
        "csv",
        &[
            (b"key,value\na,1\nb,2", two),
            (b"key,value\r\na,1\r\nb,2\r\n", two),
            (b"key,value\ra,1\rb,2\r", two),
            (b"key,value\ra,1\rb,2", two),
            (b"\n\nkey,value\n\na,1\n\r\n\nb,2\n\n", two),
            (b"value,key\n\"1\",\"a\"\n2,b\n", two),
            (b"key,value\na,\"x,\"\"y\"\"\r\nz\"\nb\"c,d\"e\"\n", "a\tx,\"y\"\\r\\nz\nb\"c\td\"e\"\n"),
            (b"key,value\na,\nb,\"\"\n", "a\t\nb\t\n"),
        ],
    );
    let objects = "{\"key\":\"a\",\"value\":\"1\"}\r\n{\"key\":\"b\",\"value\":\"2\"}";
    expect_loaded("jsonl", &[(objects.as_bytes(), two)]);
}

#[test]
fn byte_order_mark_is_dropped_and_half_of_one_refused() {
    let dir = directory();
    let mark = "\u{feff}".as_bytes();
    for (format, input) in [
        ("tsv", &b"a\t1\n"[..]),
        ("csv", b"key,value\na,1\n"),
        ("csv", b"\"key\",\"value\"\na,1\n"),
        ("ndjson", b"{\"key\":\"a\",\"value\":\"1\"}\n"),
    ] {
        expect_loaded(format, &[(&[mark, input].concat(), "a\t1\n")]);
        for half in [&mark[..1], &mark[..2]] {
            let loaded = load(dir.path(), half, &["--format", format]);
            expect_code(&loaded.output, 2);
            assert!(loaded.said.contains("ends within a byte order mark"), "{}", loaded.said);
        }
        let marked = load(dir.path(), mark, &["--format", format]);
        assert_eq!((marked.output.status.code(), &*marked.rows), (Some(0), ""), "an empty file");
    }
    // Inside a row it is a character like others.
    expect_loaded("tsv", &[("a\u{feff}\t1\n".as_bytes(), "a\\xef\\xbb\\xbf\t1\n")]);
}

#[test]
fn resumed_load_finds_its_position_beside_marks_and_quotes() {
    let dir = directory();
    let (path, file) = (dir.path().join("db"), dir.path().join("rows.csv"));
    let head = "\u{feff}key,value\r\n\r\na,\"1\r\n2\"\r\nb,2\r\n";
    std::fs::write(&file, format!("{head}c,\"3\r\nd,4\r\n")).expect("ours");
    let load =
        |more: &[&str]| run(&[&["load", text(&path), "t", text(&file), "--batch", "1"], more].concat());
    let stopped = load(&[]);
    expect_code(&stopped, 2);
    let said = String::from_utf8_lossy(&stopped.stderr).into_owned();
    assert!(said.contains("2 rows of this run are durable") && said.contains("line 6: column 3"), "{said}");
    expect_code(&load(&["--resume"]), 2);
    std::fs::write(&file, format!("{head}c,\"3\"\r\nd,4\r\n")).expect("ours");
    let resumed = load(&["--resume", "--json"]);
    expect_code(&resumed, 0);
    let report = json(&resumed);
    assert_eq!((number(&report, "rows"), number(&report, "skipped")), (2.0, 2.0), "{report}");
    let rows = run(&["dump", text(&path), "t"]).stdout;
    assert_eq!(String::from_utf8_lossy(&rows), "a\t1\\r\\n2\nb\t2\nc\t3\nd\t4\n");
}

#[test]
fn row_that_reads_as_the_header_survives_csv() {
    let dir = directory();
    let (db, copy) = (dir.path().join("db"), dir.path().join("copy"));
    expect_code(&run(&["put", text(&db), "t", "key", "value"]), 0);
    let dump = run(&["dump", text(&db), "t", "--format", "csv"]).stdout;
    assert_eq!(dump, b"key,value\n\\x6b6579,value\n");
    expect_code(&run_with_input(&["load", text(&copy), "t", "--format", "csv"], &dump), 0);
    assert_eq!(run(&["get", text(&copy), "t", "key"]).stdout, b"value\n");
}

#[test]
fn columns_of_other_files_are_chosen_by_name_or_number() {
    let dir = directory();
    let named = b"id,age,\"full name\"\n1,30,Ann\n2,40,Bob\n";
    let choice = ["--format", "csv", "--key-column", "full name", "--value-column", "age"];
    let loaded = load(dir.path(), named, &choice);
    expect_code(&loaded.output, 0);
    assert_eq!(loaded.rows, "Ann\t30\nBob\t40\n");
    let numbers = ["--format", "csv", "--no-header", "--key-column", "3", "--value-column", "1"];
    assert_eq!(load(dir.path(), b"1,x,a\n2,y,b\n", &numbers).rows, "a\t1\nb\t2\n");
    for (input, choice, wanted) in [
        (&named[..], &["--key-column", "name"][..], "the header has no column `name` and no column `value`"),
        (named, &["--key-column", "id", "--value-column", "id"], "both the key and the value"),
        (b"id,id,value\n1,2,3\n", &["--key-column", "id"], "two columns `id`"),
        (b"id,value\n1,2\n3\n", &["--key-column", "id"], "line 3: 1 field instead of 2"),
        (b"1,2\n", &["--no-header", "--key-column", "id"], "a number from 1"),
        (b"1,2\n", &["--no-header", "--key-column", "3"], "2 fields, and column 3 is wanted"),
        (b"1,2,3\n4,5\n", &["--no-header", "--key-column", "1"], "line 2: 2 fields instead of 3"),
    ] {
        let refused = load(dir.path(), input, &[&["--format", "csv"], choice].concat());
        expect_code(&refused.output, 2);
        assert!(refused.said.contains(wanted), "{choice:?}: {}", refused.said);
    }
    let tsv = load(dir.path(), b"a\t1\n", &["--key-column", "a"]);
    expect_code(&tsv.output, 2);
    assert!(tsv.said.contains("are for CSV"), "{}", tsv.said);
}
