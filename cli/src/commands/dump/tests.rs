//! Tests of `dump`.

use super::*;
use std::fs::Metadata;
use std::os::unix::fs::chown;

fn dump(path: &Path) -> Result<()> {
    write_file(path, |out| Ok(out.write_all(b"rows")?))
}

#[test]
fn a_file_that_is_replaced_keeps_its_owner_and_permissions() {
    let directory = tempfile::tempdir().expect("space");
    let file = directory.path().join("t.tsv");
    std::fs::write(&file, "old").expect("space");
    // Only the superuser can give a file away.
    let _ = chown(&file, Some(12345), Some(12346));
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).expect("ours");
    let of = |metadata: Metadata| (metadata.uid(), metadata.gid(), metadata.mode());
    let before = of(file.metadata().expect("there"));
    dump(&file).expect("replaced");
    assert_eq!(of(file.metadata().expect("there")), before);
    assert_eq!(std::fs::read(&file).expect("there"), b"rows");
}

#[test]
fn permissions_of_another_group_are_removed() {
    assert_eq!(without_group(0o660), 0o600);
    assert_eq!(without_group(0o664), 0o644);
    assert_eq!(without_group(0o2675), 0o655);
    assert_eq!(without_group(0o666), 0o666);
}

#[test]
fn dump_keeps_a_read_only_file_and_needs_no_readable_directory() {
    let directory = tempfile::tempdir().expect("space");
    let file = directory.path().join("t.tsv");
    dump(&file).expect("new");
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o300)).expect("ours");
    dump(&file).expect("replaced");
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o700)).expect("ours");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o444)).expect("ours");
    // The superuser may write everything.
    let may_write = OpenOptions::new().write(true).open(&file).is_ok();
    assert_eq!(dump(&file).is_ok(), may_write);
}
