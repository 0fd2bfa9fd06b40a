//! Tests of `scratch`.

use super::*;
use std::os::unix::fs::MetadataExt;

#[test]
fn scratch_of_a_killed_program_with_the_same_pid_is_kept() {
    let parent = tempfile::tempdir().expect("space");
    let left = Scratch::within(parent.path(), "dump").expect("new").keep();
    let next = Scratch::within(parent.path(), "dump").expect("another name");
    assert!(left.is_dir() && next.path().is_dir() && left != next.path());
    let mode = |path: &Path| path.metadata().expect("there").mode() & 0o777;
    assert_eq!((mode(&left), mode(next.path())), (0o700, 0o700), "what is in it may be secret");
    let path = next.path().to_path_buf();
    drop(next);
    assert!(left.is_dir() && !path.exists());
}
