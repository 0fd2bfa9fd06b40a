//! A daemon has closed its standard input and outputs: no file, socket or ring of a database gets
//! their numbers, whatever is opened when.

use crate::support::processes::one_test;
use crate::support::skipped::skip;
use crate::support::{rows, small};
use quenchdb::{BackupOptions, Database, Preset, RestoreOptions, Settings};
use std::path::Path;
use std::process::Command;

/// Closes the standard descriptors, whatever has them.
fn close_standard() {
    // SAFETY: nothing in this process, a test that is a child of another, uses them any more.
    (0..3).for_each(|descriptor| unsafe {
        let _ = libc::close(descriptor);
    });
}

fn put(db: &Database, key: u64) {
    let table = db.table_or_create("t").expect("free");
    db.transact(|tx| tx.insert(&table, key.to_be_bytes(), vec![7; 3000])).expect("commits");
}

/// Uses a database in all ways that open something. The descriptors are closed while no thread of
/// the engine runs: otherwise this closes what a thread has just opened.
fn use_all(directory: &Path, settings: &Settings) {
    let path = directory.join("db");
    close_standard();
    let db = Database::builder().settings(settings.clone()).open(&path).expect("opens");
    (0..300).for_each(|key| put(&db, key));
    db.checkpoint().expect("has space");
    let reader = Database::builder().open_checkpoint(&path).expect("readable");
    assert_eq!(rows(&reader, "t").len(), 300);
    Database::ask_statistics(&path).expect("it answers");
    db.backup(directory.join("backup"), BackupOptions::default()).expect("sound");
    reader.close().expect("closes");
    db.close().expect("closes");
    close_standard();
    Database::restore([directory.join("backup")], directory.join("restored"), RestoreOptions::default())
        .expect("whole");
    close_standard();
    let db = Database::builder().settings(settings.clone()).open(&path).expect("opens");
    assert_eq!(rows(&db, "t").len(), 300);
    put(&db, 300);
    db.close().expect("closes");
}

/// Not a test: the code that strace watches.
#[test]
fn child() {
    let Some(directory) = std::env::var_os("QUENCH_WITHOUT_STANDARD") else { return };
    for preset in [Preset::Auto, Preset::Autonomous, Preset::Passive] {
        let directory = Path::new(&directory).join(preset.name());
        std::fs::create_dir(&directory).expect("space");
        let memory = directory.join("memory");
        let log_memory = (preset == Preset::Passive).then(|| memory.clone());
        let settings = small(preset, 1).with(|s| (s.segment_bytes, s.log_memory) = (64 << 10, log_memory));
        use_all(&directory, &settings);
    }
}

/// Returns the number that a line of strace says a call has returned, and whether it is one that
/// makes a descriptor of something else than `/dev/null`.
fn made(line: &str) -> Option<u32> {
    const CALLS: [&str; 9] = [
        "openat(",
        "socket(",
        "accept4(",
        "accept(",
        "io_uring_setup(",
        "eventfd2(",
        "epoll_create1(",
        "pidfd_open(",
        "memfd_create(",
    ];
    let is_made = CALLS.iter().any(|call| line.contains(call)) && !line.contains("\"/dev/null\"");
    // The system's own description of the process or the machine, read at once.
    let is_of_system = ["\"/proc/", "\"/sys/"].iter().any(|path| line.contains(path));
    let number = line.rsplit_once(" = ")?.1.split(|c: char| !c.is_ascii_digit()).next()?;
    (is_made && !is_of_system).then(|| number.parse().ok())?
}

#[test]
fn no_descriptor_of_a_database_is_a_standard_one() {
    if Command::new("strace").arg("-V").output().is_err() {
        skip(&"there is no strace");
        return;
    }
    let directory = tempfile::tempdir().expect("space");
    let (data, trace) = (directory.path().join("data"), directory.path().join("trace"));
    std::fs::create_dir(&data).expect("space");
    let test = one_test(module_path!(), "child");
    let mut command = Command::new("strace");
    command.args(["-f", "-e", "trace=desc", "-o"]).arg(&trace);
    command.arg(test.get_program()).args(test.get_args()).env("QUENCH_WITHOUT_STANDARD", &data);
    let ended = command.output().expect("starts");
    let trace = std::fs::read_to_string(&trace).expect("written");
    let closed = trace.find("close(2)").expect("the child closes its descriptors");
    let lines: Vec<&str> = trace[closed..].lines().collect();
    let made: Vec<(usize, u32)> =
        lines.iter().enumerate().filter_map(|(at, line)| Some((at, made(line)?))).collect();
    // One that was closed at this moment, by another thread, gets another number at once.
    let is_moved = |at: usize, number: u32| {
        let thread = lines[at].split_whitespace().next().expect("a number");
        let next = lines[at + 1..].iter().find(|line| line.split_whitespace().next() == Some(thread));
        next.is_some_and(|line| line.contains(&format!("fcntl({number}, F_DUPFD_CLOEXEC, 3")))
    };
    let is_standard = |(at, number): &&(usize, u32)| *number < 3 && !is_moved(*at, *number);
    let standard: Vec<&str> = made.iter().filter(is_standard).map(|(at, _)| lines[*at]).collect();
    assert!(standard.is_empty(), "{standard:#?}");
    assert!(made.len() > 20, "{} descriptors", made.len());
    assert!(ended.status.success(), "{ended:?}");
}
