//! The program on a pseudo-terminal: `--live` draws, ends on request, and restores the terminal;
//! long operations print their progress.

use crate::support::*;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(60);
/// Escape sequences that switch a terminal to its alternate screen and back.
const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

/// Written to the terminal after the program has ended: the end of the program's output.
const END_MARK: &str = "\0gone";

const LINES: usize = 30;
const COLUMNS: usize = 100;

/// Returns what a terminal shows after the output `written`. Of escape sequences only cursor moves
/// count.
fn screen(written: &str) -> String {
    let mut cells = vec![vec![' '; COLUMNS]; LINES];
    let (mut line, mut column) = (0, 0);
    let mut rest = written.chars();
    while let Some(char) = rest.next() {
        if char == '\x1b' {
            // A letter ends the sequence after the bracket.
            let mut sequence = String::new();
            for char in rest.by_ref().skip(1) {
                sequence.push(char);
                if char.is_ascii_alphabetic() {
                    break;
                }
            }
            if let Some(place) = sequence.strip_suffix('H') {
                let numbers: Vec<usize> = place.split(';').filter_map(|number| number.parse().ok()).collect();
                if let [to_line, to_column] = numbers[..] {
                    (line, column) = (to_line - 1, to_column - 1);
                }
            }
        } else if let Some(cell) = cells.get_mut(line).and_then(|line| line.get_mut(column)) {
            (*cell, column) = (char, column + 1);
        }
    }
    cells.into_iter().map(|line| line.into_iter().collect::<String>() + "\n").collect()
}

/// A program on a pseudo-terminal, with its output.
struct OnTerminal {
    terminal: File,
    /// Stays open so that the test can read the terminal's settings and write [`END_MARK`].
    other_end: File,
    child: Child,
    written: Arc<Mutex<Vec<u8>>>,
}

impl OnTerminal {
    /// Starts `quench bench` in a directory.
    fn start(arguments: &[&str], directory: &std::path::Path) -> OnTerminal {
        let mut command = quench(&[&["bench"], arguments].concat());
        command.current_dir(directory);
        OnTerminal::with(command)
    }

    fn with(mut command: Command) -> OnTerminal {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("ours");
        let name = ptsname(&terminal, Vec::new()).expect("it has a name");
        let name = name.to_str().expect("a path");
        let other_end = File::options().read(true).write(true).open(name).expect("opened");
        let size = Winsize { ws_row: LINES as u16, ws_col: COLUMNS as u16, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&other_end, size).expect("a size");
        let end = || Stdio::from(other_end.try_clone().expect("one more"));
        command.env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end());
        let child = command.spawn().expect("the program starts");
        let terminal = File::from(terminal);
        let (mut reader, written) = (terminal.try_clone().expect("one more"), Arc::default());
        let all: Arc<Mutex<Vec<u8>>> = Arc::clone(&written);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = reader.read(&mut bytes) {
                all.lock().expect("no panic").extend_from_slice(&bytes[..read]);
            }
        });
        OnTerminal { terminal, other_end, child, written }
    }

    fn written(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().expect("no panic")).into_owned()
    }

    #[track_caller]
    fn wait_for(&mut self, what: &str) {
        let began = Instant::now();
        while !screen(&self.written()).contains(what) {
            assert!(began.elapsed() < DEADLINE, "no {what:?} in {}", screen(&self.written()));
            assert_eq!(self.child.try_wait().expect("ours"), None, "{}", self.written());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.other_end).expect("a terminal").local_modes.contains(LocalModes::ICANON)
    }

    /// Waits for the end of the program. Returns all of its output.
    #[track_caller]
    fn wait(&mut self) -> (ExitStatus, String) {
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("ours") {
                break status;
            }
            if began.elapsed() > DEADLINE {
                let _ = self.child.kill();
                panic!("the program does not end: {:?}", self.written());
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        self.other_end.write_all(END_MARK.as_bytes()).expect("there is room");
        let ended = Instant::now();
        loop {
            let written = self.written();
            if let Some(all) = written.strip_suffix(END_MARK) {
                return (status, all.to_string());
            }
            assert!(ended.elapsed() < DEADLINE, "something else writes: {written:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the end of the program. Returns its output after the return to the normal screen.
    #[track_caller]
    fn end(mut self) -> (ExitStatus, String) {
        let (status, written) = self.wait();
        assert!(!self.is_raw(), "the terminal is restored");
        let (before, after) = written.rsplit_once(LEAVE).expect("a return to the normal screen");
        assert!(before.contains(ENTER) && !after.contains(ENTER), "{written:?}");
        (status, after.to_string())
    }
}

const SMALL: [&str; 6] = ["--threads", "2", "--memory-bytes", "64m", "--rows", "1000"];

#[test]
fn a_key_or_signal_ends_an_endless_run_with_its_result() {
    let directory = directory();
    for key in [Some(b'q'), Some(0x1b), Some(3), None] {
        let mut run = OnTerminal::start(&[&["live"][..], &SMALL].concat(), directory.path());
        run.wait_for("measuring, ");
        run.wait_for(" now, ");
        assert!(run.is_raw());
        match key {
            Some(key) => run.terminal.write_all(&[key]).expect("typed"),
            None => {
                let child = rustix::process::Pid::from_child(&run.child);
                rustix::process::kill_process(child, rustix::process::Signal::TERM).expect("alive");
            }
        }
        let (status, after) = run.end();
        assert_eq!(status.code(), Some(0), "{after}");
        assert!(after.contains("transactions/s  (") && after.contains("longest stall"), "{key:?}: {after}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).expect("there").count(), 0, "nothing is left behind");
}

#[test]
fn a_killed_child_leaves_the_terminal_restored() {
    let directory = directory();
    let arguments =
        ["tatp", "--subscribers", "500", "--live", "--seconds", "3", "--reopen", "kill", "--check"];
    let mut run = OnTerminal::start(&[&arguments[..], &SMALL[..4]].concat(), directory.path());
    run.wait_for(" now, ");
    let (status, after) = run.end();
    assert_eq!(status.code(), Some(0), "{after}");
    assert!(after.contains("everything holds") && after.contains("acknowledged changes"), "{after}");
}

#[test]
fn an_early_stop_restores_the_terminal_without_a_result() {
    let directory = directory();
    let load = ["live", "--threads", "1", "--rows", "100000000"];
    let mut run = OnTerminal::start(&load, directory.path());
    run.wait_for("loading rows");
    run.terminal.write_all(b"q").expect("typed");
    let (status, after) = run.end();
    assert_eq!((status.code(), after.contains("transactions")), (Some(130), false), "{after:?}");
    assert_eq!(std::fs::read_dir(directory.path()).expect("there").count(), 0, "nothing is left behind");
}

#[test]
fn without_a_terminal_live_fails_with_one_line() {
    for arguments in [&["live"][..], &["tpcb", "--live"], &["put", "--live", "--json"]] {
        let output = run_bench(arguments);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.lines().count() == 1 && said.contains("is not a terminal"), "{said}");
        assert!(!said.contains('\x1b'), "{said:?}");
    }
    for arguments in [&["scan", "--live"][..], &["device", "--live"], &["load", "--live"]] {
        let output = run_bench(arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("--live does not go with"));
    }
}

#[test]
fn long_reads_print_progress_but_not_among_rows() {
    let directory = directory();
    let (path, file) = (directory.path().join("db"), directory.path().join("rows"));
    let db = text(&path);
    expect_code(&run_with_input(&["load", db, "t", "-"], b"a\t1\nb\t2\n"), 0);
    let written = |arguments: &[&str]| {
        let (status, written) = OnTerminal::with(quench(arguments)).wait();
        assert_eq!(status.code(), Some(0), "{written}");
        written
    };
    for arguments in [&["tables", db, "--count"][..], &["dump", db, "t", text(&file)]] {
        let written = written(arguments);
        assert!(written.contains("t: 0 rows"), "{arguments:?}: {written:?}");
    }
    assert!(written(&["log", db]).contains("log bytes scanned"));
    let rows = written(&["dump", db, "t"]);
    assert!(rows.contains("a\t1") && !rows.contains("rows"), "{rows:?}");
}
