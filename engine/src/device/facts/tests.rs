//! Unit tests of `facts`.

use super::*;

fn device(name: &str, number: u64, volatile_cache: bool) -> DeviceFacts {
    DeviceFacts {
        name: name.into(),
        volatile_cache,
        fua: true,
        direct_io: Ok(()),
        io_uring: Ok(()),
        append_only: false,
        extent_bytes: None,
        device_number: number,
    }
}

/// The directory was on a disk without a cache, its `log` on one with a cache: what was written
/// there was acknowledged unflushed.
#[test]
fn cache_is_volatile_if_any_subdirectory_device_is() {
    let mut facts = device("vda", 1, false);
    facts.join("log", &device("sdb", 2, true));
    assert_eq!((facts.name.as_str(), facts.volatile_cache), ("vda, log on sdb", true));
    assert_eq!(facts.device_number, 1);
}

#[test]
fn subdirectory_facts_follow_links() {
    let (directory, elsewhere) = (tempfile::tempdir().expect("free"), Path::new("/proc/self"));
    let alone = of_database(directory.path(), &["log"], DeviceTrust::Auto);
    assert!(!alone.name.contains("log on"), "there is none: {}", alone.name);
    std::fs::create_dir(directory.path().join("log")).expect("free");
    let beside = of_database(directory.path(), &["log"], DeviceTrust::Auto);
    assert_eq!((&beside.name, beside.volatile_cache), (&alone.name, alone.volatile_cache));
    std::fs::remove_dir(directory.path().join("log")).expect("empty");
    std::os::unix::fs::symlink(elsewhere, directory.path().join("log")).expect("free");
    // No block device: nothing is known of it, so it counts as volatile.
    let linked = of_database(directory.path(), &["log"], DeviceTrust::Auto);
    assert!(linked.volatile_cache);
    assert!(linked.name == alone.name || linked.name.contains(", log on proc"), "{}", linked.name);
    assert!(!of_database(directory.path(), &["log"], DeviceTrust::Device).volatile_cache);
}
