//! Unit tests of the log: torn ends, damage, files that go.

use super::*;

fn put(key: &str) -> Change {
    Change::Put { bucket: "b".into(), key: key.into(), tag: 1, parts: 1, modified_ms: 0 }
}

fn reopen(directory: &Path) -> io::Result<(Log, Vec<Change>)> {
    let mut changes = Vec::new();
    let log = Log::open(directory, |change, _| changes.push(change))?;
    Ok((log, changes))
}

#[test]
fn torn_record_at_the_end_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = reopen(directory.path()).unwrap();
    log.add(&put("one"), b"first").unwrap();
    let path = log.path(1);
    let whole = fs::metadata(&path).unwrap().len();
    log.add(&put("two"), b"second").unwrap();
    drop(log);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    for len in whole + 1..fs::metadata(&path).unwrap().len() {
        file.set_len(len).unwrap();
        let (mut log, changes) = reopen(directory.path()).unwrap();
        assert_eq!(changes, [put("one")], "{len}");
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
    fs::write(directory.path().join("00000002.log"), b"").unwrap();
    let path = directory.path().join("00000001.log");
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = reopen(directory.path()).unwrap_err().to_string();
    assert!(error.contains("00000001.log is damaged at byte 0"), "{error}");
}

#[test]
fn oldest_file_goes_when_nothing_in_it_is_live() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = reopen(directory.path()).unwrap();
    log.add(&Change::CreateBucket { bucket: "b".into() }, b"").unwrap();
    let old = log.add(&put("k"), b"old").unwrap();
    log.files.get_mut(&1).unwrap().len = FILE_BYTES;
    log.add(&put("k"), b"new").unwrap();
    assert!(log.path(1).exists());
    log.release(&old);
    assert!(!log.path(1).exists());
    drop(log);
    // The bucket is in the second file, too.
    let created = Change::CreateBucket { bucket: "b".into() };
    assert_eq!(reopen(directory.path()).unwrap().1, [created, put("k")]);
}
