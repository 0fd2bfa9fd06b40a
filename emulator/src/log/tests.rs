//! Unit tests of the log: torn ends, damage, files that go.

use super::*;

fn put(key: &str) -> Record {
    Record::Put { bucket: "b".into(), key: key.into(), tag: 1, parts: 1 }
}

fn reopen(directory: &Path) -> io::Result<(Log<Record>, Vec<Record>)> {
    let mut records = Vec::new();
    let log = Log::open(directory, |record, _| records.push(record))?;
    Ok((log, records))
}

#[test]
fn torn_record_at_the_end_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = reopen(directory.path()).unwrap();
    log.add(&put("one"), b"first").unwrap();
    let path = path(directory.path(), 1);
    let whole = fs::metadata(&path).unwrap().len();
    log.add(&put("two"), b"second").unwrap();
    drop(log);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    for len in whole + 1..fs::metadata(&path).unwrap().len() {
        file.set_len(len).unwrap();
        let (mut log, records) = reopen(directory.path()).unwrap();
        assert_eq!(records, [put("one")], "{len}");
        log.add(&put("two"), b"second").unwrap();
    }
    assert_eq!(reopen(directory.path()).unwrap().1, [put("one"), put("two")]);
}

#[test]
fn damage_before_the_last_file_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = reopen(directory.path()).unwrap();
    log.add(&put("one"), b"first").unwrap();
    drop(log);
    fs::write(path(directory.path(), 2), b"").unwrap();
    let path = path(directory.path(), 1);
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = reopen(directory.path()).unwrap_err().to_string();
    assert!(error.contains("00000001.log is damaged at byte 0"), "{error}");
}

#[test]
fn older_files_go_when_the_log_is_written_again() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = reopen(directory.path()).unwrap();
    log.add(&put("dead"), b"old").unwrap();
    log.rewrite([(put("live"), Bytes::from_static(b"new"))].into_iter()).unwrap();
    assert!(!log.is_wasteful());
    log.add(&put("last"), b"newest").unwrap();
    drop(log);
    assert_eq!(numbers(directory.path()).unwrap(), [2]);
    assert_eq!(reopen(directory.path()).unwrap().1, [put("live"), put("last")]);
}
