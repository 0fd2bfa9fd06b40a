//! A program on a pseudo-terminal.

use super::quench;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub const DEADLINE: Duration = Duration::from_secs(60);
/// Escape sequences that switch a terminal to its alternate screen and back.
pub const ENTER: &str = "\x1b[?1049h";
pub const LEAVE: &str = "\x1b[?1049l";

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
pub struct OnTerminal {
    pub terminal: File,
    /// Stays open so that the test can read the terminal's settings and write [`END_MARK`].
    other_end: File,
    pub child: Child,
    written: Arc<Mutex<Vec<u8>>>,
}

impl OnTerminal {
    /// Starts `quench bench` in a directory.
    pub fn start(arguments: &[&str], directory: &std::path::Path) -> OnTerminal {
        let mut command = quench(&[&["bench"], arguments].concat());
        command.current_dir(directory);
        OnTerminal::with(command)
    }

    pub fn with(mut command: Command) -> OnTerminal {
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

    pub fn written(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().expect("no panic")).into_owned()
    }

    #[track_caller]
    pub fn wait_for(&mut self, what: &str) {
        let began = Instant::now();
        while !screen(&self.written()).contains(what) {
            assert!(began.elapsed() < DEADLINE, "no {what:?} in {}", screen(&self.written()));
            assert_eq!(self.child.try_wait().expect("ours"), None, "{}", self.written());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn is_raw(&self) -> bool {
        !tcgetattr(&self.other_end).expect("a terminal").local_modes.contains(LocalModes::ICANON)
    }

    /// Waits for the end of the program. Returns all of its output.
    #[track_caller]
    pub fn wait(&mut self) -> (ExitStatus, String) {
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
    pub fn end(mut self) -> (ExitStatus, String) {
        let (status, written) = self.wait();
        assert!(!self.is_raw(), "the terminal is restored");
        let (before, after) = written.rsplit_once(LEAVE).expect("a return to the normal screen");
        assert!(before.contains(ENTER) && !after.contains(ENTER), "{written:?}");
        (status, after.to_string())
    }

    /// Types text, as a person does.
    pub fn write(&mut self, text: &str) {
        self.terminal.write_all(text.as_bytes()).expect("typed");
    }

    /// Waits for a text in the output after the place `from`, without escape sequences and carriage
    /// returns. Returns the place behind the text.
    #[track_caller]
    pub fn expect(&mut self, what: &str, from: usize) -> usize {
        let began = Instant::now();
        loop {
            let plain = without_escapes(&self.written());
            if let Some(at) = plain.get(from..).and_then(|rest| rest.find(what)) {
                return from + at + what.len();
            }
            let end: String = plain.chars().rev().take(2000).collect::<Vec<_>>().into_iter().rev().collect();
            assert!(began.elapsed() < DEADLINE, "no {what:?} after {from}: {end:?}");
            assert_eq!(self.child.try_wait().expect("ours"), None, "no {what:?}: {end:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Returns the output without carriage returns and the sequences that move the cursor or choose
/// colours.
pub fn without_escapes(written: &str) -> String {
    let mut plain = String::new();
    let mut rest = written.chars();
    while let Some(char) = rest.next() {
        if char == '\x1b' {
            // A letter ends the sequence after the bracket.
            rest.by_ref().skip(1).find(char::is_ascii_alphabetic);
        } else if char != '\r' {
            plain.push(char);
        }
    }
    plain
}
