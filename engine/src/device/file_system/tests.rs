//! Unit tests of `file_system`.

use super::*;

const TABLE: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 27 0:27 / /srv/data rw,relatime shared:2 master:3 - btrfs /dev/sdb1 rw,subvol=/
31 30 0:28 / /srv/data rw,relatime - fuse.sshfs me@host:/some\\040where rw
32 27 0:29 / /srv/database rw - overlay overlay rw,lowerdir=/a,upperdir=/b
33 27 0:30 /sub /mnt/with\\040space\\134x rw - zfs pool/set rw
";

#[test]
fn mount_is_the_innermost_and_newest_of_the_path() {
    let mount = |path: &str| mount_of(TABLE, Path::new(path)).expect("the root is a mount");
    let named = |kind: &str, source: &str| (kind.to_string(), source.to_string());
    assert_eq!(mount("/home/db"), named("ext4", "/dev/vda"));
    assert_eq!(mount("/srv/data/db"), named("fuse.sshfs", "me@host:/some where"));
    assert_eq!(mount("/srv/data2"), named("ext4", "/dev/vda"), "a name is no prefix of a longer name");
    assert_eq!(mount("/srv/database"), named("overlay", "overlay"));
    assert_eq!(mount("/mnt/with space\\x/db"), named("zfs", "pool/set"));
    assert_eq!(mount_of("", Path::new("/home")), None);
    assert_eq!(mount_of("nonsense\n1 2 - 3\n", Path::new("/home")), None);
}

#[test]
fn names_tell_memory_devices_and_unknown_devices_apart() {
    let named = |kind: &str, source: &str, is_memory, devices: &[&str]| {
        let devices = devices.iter().map(PathBuf::from).collect();
        FileSystem { kind: kind.into(), source: source.into(), is_memory, devices }.name()
    };
    assert_eq!(named("ext4", "/dev/vda1", false, &["/sys/block/vda"]), "ext4 on vda");
    assert_eq!(named("btrfs", "/dev/sda", false, &["/sys/sda", "/sys/sdb"]), "btrfs on sda and sdb");
    assert_eq!(named("overlay", "overlay", false, &[]), "overlay on an unknown device");
    assert_eq!(named("zfs", "pool/set", false, &[]), "zfs on pool/set, an unknown device");
    assert!(named("tmpfs", "tmpfs", true, &[]).contains("loses everything"));
    assert!(!named("overlay", "overlay", false, &[]).contains("loses"));
}

#[test]
fn unknown_devices_count_as_volatile() {
    let file_system = |devices: Vec<PathBuf>| FileSystem {
        kind: "ext4".into(),
        source: String::new(),
        is_memory: false,
        devices,
    };
    assert!(file_system(Vec::new()).has_volatile_cache());
    let sysfs = tempfile::tempdir().expect("a directory");
    let disk = |name: &str, cache: &str| {
        let queue = sysfs.path().join(name).join("queue");
        std::fs::create_dir_all(&queue).expect("free");
        std::fs::write(queue.join("write_cache"), format!("{cache}\n")).expect("free");
        std::fs::write(queue.join("fua"), "1\n").expect("free");
        sysfs.path().join(name)
    };
    let (durable, volatile) = (disk("a", "write through"), disk("b", "write back"));
    assert!(!file_system(vec![durable.clone()]).has_volatile_cache());
    assert!(file_system(vec![durable.clone(), volatile.clone()]).has_volatile_cache());
    assert!(file_system(vec![durable, volatile.clone()]).has_fua());
    assert!(!file_system(vec![volatile, sysfs.path().join("none")]).has_fua());
}

#[test]
fn tmpfs_is_recognized_as_memory() {
    let shared_memory = Path::new("/dev/shm");
    if magic(shared_memory) != TMPFS_MAGIC {
        return;
    }
    let file_system = FileSystem::of_directory(shared_memory);
    assert!(file_system.name().starts_with("tmpfs (memory"), "{}", file_system.name());
    assert!(!FileSystem::of_directory(Path::new("/proc")).name().contains("memory"));
}

#[test]
fn durable_cache_is_enough_only_where_writes_stay_in_place() {
    let method = |path: &str, volatile| durability_method(Path::new(path), volatile);
    if magic(Path::new("/dev/shm")) == TMPFS_MAGIC {
        assert_eq!(method("/dev/shm", false), DurabilityMethod::Plain);
        assert_eq!(method("/dev/shm", true), DurabilityMethod::Dsync);
    }
    // Nothing is known of how it writes.
    assert_eq!(method("/proc", false), DurabilityMethod::Dsync);
}
