//! `quench shell` on a terminal, as a person uses it.

use crate::support::terminal::OnTerminal;
use crate::support::*;
use std::path::Path;

/// Starts the shell of a database, with its history in a file.
fn shell(db: &Path, history: &Path, more: &[&str]) -> OnTerminal {
    let mut command = quench(&[&["shell", text(db)], more].concat());
    command.env("QUENCH_HISTORY", history);
    OnTerminal::with(command)
}

#[test]
fn a_person_reads_writes_and_commits_in_the_shell() {
    let dir = directory();
    let (db, history) = (dir.path().join("db"), dir.path().join("state/history"));
    let mut shell = shell(&db, &history, &["--create"]);
    let mut at = shell.expect("db> ", 0);
    let mut say = |line: &str, answer: &str| {
        shell.write(&format!("{line}\r"));
        at = shell.expect(line, at);
        at = shell.expect(answer, at);
    };
    say("create users", "db> ");
    say("tables", "users\ndb> ");
    say("put users grün 'a b'", "db> ");
    say("get users grün", "a b\ndb> ");
    say("begin", "db*> ");
    say("put users b 2", "db*> ");
    say("scan users from a limit 10", "b\t2\ngrün\ta b\ndb*> ");
    say("rollback", "db> ");
    say("get users b", "no row has the key `b`\ndb> ");
    say("begin", "db*> ");
    say("put users c 3", "db*> ");
    say("commit", "committed, CSN ");
    say("get userz c", "no table has this name");
    say("nonsense", "is no command");
    say(".timer on", " ms\ndb> ");
    say("count users", "2\n");
    say(".stat", "tables");
    say(".help", "Ctrl-D ends");
    // The database is open here.
    expect_code(&run(&["get", text(&db), "users", "c"]), 3);
    let busy = run(&["get", text(&db), "users", "c", "--json"]);
    expect_code(&busy, 3);
    let error: serde_json::Value = serde_json::from_slice(&busy.stderr).expect("an object");
    assert_eq!(error["error"]["code"], "busy");
    shell.write("\x04");
    let (status, written) = shell.wait();
    assert_eq!(status.code(), Some(0), "{written}");
    assert!(!shell.is_raw(), "the terminal is restored");
    assert_eq!(run(&["get", text(&db), "users", "c"]).stdout, b"3\n");
    assert!(std::fs::read_to_string(&history).expect("kept").contains("put users grün 'a b'"));
}

#[test]
fn tab_completes_and_the_history_returns() {
    let dir = directory();
    let (db, history) = (dir.path().join("db"), dir.path().join("history"));
    expect_code(&run(&["put", text(&db), "users", "alice", "1"]), 0);
    let mut first = shell(&db, &history, &[]);
    let at = first.expect("db> ", 0);
    first.write("get u\tal\t\r");
    first.expect("1\ndb> ", at);
    first.write(".quit\r");
    assert_eq!(first.wait().0.code(), Some(0));
    let mut second = shell(&db, &history, &[]);
    let at = second.expect("db> ", 0);
    // The key for the line before, twice: `.quit`, then `get`.
    second.write("\x1b[A\x1b[A\r");
    second.expect("1\ndb> ", at);
    second.write("quit\r");
    assert_eq!(second.wait().0.code(), Some(0));
}

#[test]
fn an_interrupt_ends_a_statement_or_a_line_not_the_shell() {
    let dir = directory();
    let (db, history) = (dir.path().join("db"), dir.path().join("history"));
    let rows: String = (0..300_000).map(|n| format!("{n:08}\t{n}\n")).collect();
    expect_code(&run_with_input(&["load", text(&db), "t", "--batch", "20000"], rows.as_bytes()), 0);
    let mut shell = shell(&db, &history, &[]);
    let mut at = shell.expect("db> ", 0);
    shell.write("scan t\r");
    at = shell.expect("00000010\t10", at);
    // The terminal of this test is not the one that controls the process, so no key sends signals.
    let child = rustix::process::Pid::from_child(&shell.child);
    rustix::process::kill_process(child, rustix::process::Signal::INT).expect("alive");
    at = shell.expect("interrupted\ndb> ", at);
    shell.write("get t 000\x03");
    at = shell.expect("db> ", at);
    shell.write("get t 00000007\r");
    shell.expect("\n7\ndb> ", at);
    shell.write("begin\r");
    at = shell.expect("db*> ", at);
    shell.write("\x04");
    shell.expect("rolled back", at);
    assert_eq!(shell.wait().0.code(), Some(0));
}

/// Regression: of lines that arrived together only the first was executed.
#[test]
fn pasted_lines_are_executed_one_after_the_other() {
    let dir = directory();
    let (db, history) = (dir.path().join("db"), dir.path().join("history"));
    for (name, begin, end) in [("plain", "", "\r"), ("bracketed", "\x1b[200~", "\x1b[201~\r")] {
        let mut shell = shell(&db, &history, &["--create"]);
        let at = shell.expect("db> ", 0);
        let statements = format!("create {name}\nPUT {name} a 1; put {name} b 2;\nscan {name} FROM b\n");
        shell.write(&format!("{begin}{}{end}", statements.replace('\n', "\r")));
        shell.expect("\nb\t2\n", at);
        shell.write(".quit\r");
        assert_eq!(shell.wait().0.code(), Some(0));
        assert_eq!(run(&["dump", text(&db), name]).stdout, b"a\t1\nb\t2\n", "{name}");
    }
}

#[test]
fn a_signal_at_the_prompt_restores_the_terminal() {
    let dir = directory();
    let (db, history) = (dir.path().join("db"), dir.path().join("history"));
    let mut shell = shell(&db, &history, &["--create"]);
    shell.expect("db> ", 0);
    assert!(shell.is_raw());
    let child = rustix::process::Pid::from_child(&shell.child);
    rustix::process::kill_process(child, rustix::process::Signal::TERM).expect("alive");
    assert_eq!(shell.wait().0.code(), Some(130));
    assert!(!shell.is_raw(), "the terminal is restored");
}
