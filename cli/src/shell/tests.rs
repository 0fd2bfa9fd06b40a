//! Tests of the language of the shell and of its completion.

use super::complete::Completion;
use super::statement::{Statement, parse};
use super::words::{quoted, split};
use crate::commands::range::Asked;
use quenchdb::{Database, Isolation};

#[test]
fn words_are_split_at_blanks_outside_quotes() {
    let words = |line: &str| split(line).concat().into_iter().map(|word| word.text).collect::<Vec<_>>();
    assert_eq!(words("  put t 'a b'  \"it's\" x'y "), ["put", "t", "a b", "it's", "x'y"]);
    assert_eq!(words("get t '' # a comment"), ["get", "t", ""]);
    assert_eq!(words("# all"), Vec::<String>::new());
    assert!(split("get t 'a b").concat().last().is_some_and(|word| word.is_open));
}

#[test]
fn semicolons_outside_quotes_end_statements() {
    let words = |line: &str| -> Vec<Vec<String>> {
        let statements = split(line).into_iter();
        statements.map(|words| words.into_iter().map(|word| word.text).collect()).collect()
    };
    assert_eq!(words("get t a;"), [&["get", "t", "a"][..], &[]]);
    assert_eq!(words("get t 'a;b';tables ; # end;"), [&["get", "t", "a;b"][..], &["tables"], &[]]);
    let parsed = parse("put t 'a' 1;; DELETE t a;").expect("right");
    let put = Statement::Put { table: "t".into(), key: b"a".to_vec(), value: b"1".to_vec() };
    assert_eq!(parsed, [put, Statement::Delete { table: "t".into(), key: b"a".to_vec() }]);
    parse("tables; get t").expect_err("nothing is executed of a wrong line");
}

#[test]
fn commands_and_keywords_may_be_in_upper_case() {
    let parsed = |line: &str| parse(line).expect("right");
    for (upper, lower) in [
        ("GET Users A", "get Users A"),
        ("Scan t FROM a LIMIT 3 Reverse", "scan t from a limit 3 reverse"),
        ("BEGIN SERIALIZABLE", "begin serializable"),
        (".MODE JSONL", ".mode json"),
        (".Timer ON", ".timer on"),
    ] {
        assert_eq!(parsed(upper), parsed(lower), "{upper}");
    }
    let other = Statement::Get { table: "users".into(), key: b"A".to_vec() };
    assert_ne!(parsed("get Users A"), [other], "names of tables keep their case");
}

#[test]
fn a_quoted_word_is_read_as_the_same_bytes() {
    for bytes in [
        &b""[..],
        b"a",
        b"a b",
        b"#x",
        b"'\" both",
        b"\"",
        b"it's",
        b"\xff\n ",
        b"a;b",
        b";",
        "ü ü".as_bytes(),
    ] {
        let words = split(&quoted(bytes)).concat();
        assert_eq!(words.len(), 1, "{words:?}");
        assert_eq!(words[0].bytes().expect("escapes"), bytes);
    }
}

#[test]
fn statements_are_parsed() {
    let parsed = |line: &str| parse(line).expect("right").pop().expect("a statement");
    let put = Statement::Put { table: "t".into(), key: b"a b".to_vec(), value: b"\xff".to_vec() };
    assert_eq!(parsed("put t 'a b' \\xff"), put);
    let range = Asked { from: Some(b"a".to_vec()), to: Some(b"limit".to_vec()), prefix: None };
    let scan = Statement::Scan { table: "users".into(), range, limit: 10, reverse: true };
    assert_eq!(parsed("scan users from a limit 10 to limit reverse"), scan);
    assert_eq!(parsed("begin"), Statement::Begin(Isolation::Snapshot));
    assert_eq!(parsed("begin serializable"), Statement::Begin(Isolation::Serializable));
    assert_eq!(parsed(".timer on"), Statement::Timer(true));
    assert_eq!(parse("   # nothing"), Ok(Vec::new()));
}

#[test]
fn a_wrong_statement_is_explained() {
    for (line, wanted) in [
        ("gett t a", "`gett` is no command"),
        ("tables; tablets", "`tablets` is no command"),
        ("get t", "the key is missing: get TABLE KEY"),
        ("get t a b", "`b` is not expected: get TABLE KEY"),
        ("put t a \\q", "the value: column 1"),
        ("scan t limit x", "`x` is no number"),
        ("scan t from", "the key after `from` is missing"),
        ("scan t prefix a to b", "`prefix` excludes"),
        ("begin chaos", "`chaos` is not expected: begin ["),
        (".timer", "a choice is missing: .timer on|off"),
        (".mode", "the format is missing: .mode tsv|csv|json"),
        (".mode xml", "`xml` is not expected: .mode tsv|csv|json"),
        ("get t 'a", "closing quote"),
    ] {
        let error = parse(line).expect_err(line);
        assert!(error.contains(wanted), "{line}: {error}");
    }
}

#[test]
fn commands_tables_keys_and_keywords_are_completed() {
    let database = Database::builder().open_in_memory().expect("memory");
    let users = database.create_table("users").expect("new");
    database.create_table("orders").expect("new");
    for key in ["alice", "alina", "bob b"] {
        database.transact(|tx| tx.insert(&users, key, "1")).expect("commits");
    }
    let completion = Completion { database };
    for (line, start, wanted) in [
        ("co", 0, &["count", "commit"][..]),
        ("CO", 0, &["count", "commit"]),
        ("tables; co", 8, &["count", "commit"]),
        ("GET users al", 10, &["alice", "alina"]),
        ("get ", 4, &["orders", "users"]),
        ("get u", 4, &["users"]),
        ("get users al", 10, &["alice", "alina"]),
        ("get users b", 10, &["\"bob b\""]),
        ("get users 'bob ", 10, &["\"bob b\""]),
        ("scan users f", 11, &["from"]),
        ("scan users from ali", 16, &["alice", "alina"]),
        ("scan users from a l", 18, &["limit"]),
        ("get nothing a", 12, &[]),
        ("put users a b", 12, &[]),
        ("begin s", 6, &["snapshot", "serializable"]),
    ] {
        let found = completion.complete_line(line);
        assert_eq!(
            (found.0, found.1.iter().map(String::as_str).collect::<Vec<_>>()),
            (start, wanted.to_vec()),
            "{line}"
        );
    }
}
