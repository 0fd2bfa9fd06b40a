//! Unit tests of `file`.

use super::*;
use crate::base::settings::MemoryCache;

fn options(bytes: u64) -> MapOptions {
    MapOptions {
        create: true,
        read_only: false,
        bytes,
        new_bytes: 1 << 20,
        cache: MemoryCache::Volatile,
        store: None,
        latency: Duration::ZERO,
    }
}

fn directory() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() }.expect("writable")
}

#[test]
fn stored_bytes_are_visible_after_mapping_again() {
    let directory = directory();
    let path = directory.path().join("memory");
    let memory = map_file(&path, options(1 << 20)).expect("mapped");
    memory.store(4096, &[7; 64]);
    memory.fence();
    memory.barrier();
    drop(memory);
    let memory = map_file(&path, MapOptions { bytes: 0, create: false, ..options(0) }).expect("again");
    let mut found = [0; 72];
    memory.load(4096, &mut found);
    assert_eq!((&found[..64], &found[64..]), (&[7; 64][..], &[0; 8][..]));
    assert_eq!(memory.bytes(), 1 << 20);
    let facts = memory.facts();
    assert_eq!(facts.survives, Survives::ProcessCrash, "{facts}");
    assert!(facts.to_string().contains("a crash of the process only"), "{facts}");
}

/// The length that a full disk left was taken for the memory's at the next open, which then had
/// another one than was said, for ever.
#[test]
fn a_new_file_has_no_length_before_it_has_all_its_blocks() {
    let directory = directory();
    let path = directory.path().join("memory");
    let file = std::fs::File::create_new(&path).expect("new");
    let fd = OwnedFd::from(file);
    let len = || rustix::fs::fstat(&fd).expect("open").st_size;
    // The file system is full, or the process is killed, halfway: what is allocated by then counts,
    // if it may.
    let halfway = |flags: FallocateFlags| {
        if flags.contains(FallocateFlags::KEEP_SIZE) { Ok(()) } else { rustix::fs::ftruncate(&fd, 1 << 19) }
    };
    let refused = allocate(&fd, 0, 1 << 20, |flags| {
        halfway(flags)?;
        assert_eq!(len(), 0, "a kill leaves it so");
        Err(rustix::io::Errno::NOSPC)
    });
    assert_eq!(refused, Err(rustix::io::Errno::NOSPC));
    assert_eq!(len(), 0);
    drop(fd);
    let memory = map_file(&path, options(1 << 20)).expect("there is space now");
    assert_eq!(memory.bytes(), 1 << 20);
}

#[test]
fn unsuitable_mapped_file_is_refused_with_the_reason() {
    let directory = directory();
    let path = directory.path().join("memory");
    let missing = map_file(&path, MapOptions { create: false, ..options(0) }).expect_err("none there");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let memory = map_file(&path, options(1 << 20)).expect("mapped");
    assert_eq!(map_file(&path, options(0)).expect_err("taken").kind(), ErrorKind::Busy);
    drop(memory);
    let error = map_file(&path, options(2 << 20)).expect_err("another length").to_string();
    assert!(error.contains("log_memory_bytes = 2097152") && error.contains("1048576 bytes"), "{error}");
    let error = map_file(directory.path(), MapOptions { create: false, read_only: true, ..options(0) });
    assert_eq!(error.expect_err("a directory").kind(), ErrorKind::InvalidArgument);
}

#[test]
fn store_takes_at_least_the_configured_latency() {
    let directory = directory();
    let slow = MapOptions { latency: Duration::from_micros(200), ..options(1 << 20) };
    let memory = map_file(&directory.path().join("memory"), slow).expect("mapped");
    let begun = Instant::now();
    (0..10).for_each(|i| memory.store(i * 8, &[1; 8]));
    assert!(begun.elapsed() >= Duration::from_millis(2));
}

/// A copy of 64 MiB takes longer than the configured latency by itself.
#[test]
fn latency_of_a_store_is_added_to_the_copy() {
    const BYTES: u64 = 16 << 20;
    let directory = directory();
    let bytes = vec![7; BYTES as usize];
    let added = Duration::from_millis(50);
    let memories = [Duration::ZERO, added].map(|latency| {
        let slow = MapOptions { latency, ..options(BYTES) };
        map_file(&directory.path().join(latency.as_micros().to_string()), slow).expect("mapped")
    });
    // In turn, so that a moment of a slow machine is not held against one of them.
    let mut shortest = [Duration::MAX; 2];
    for _ in 0..5 {
        for (memory, shortest) in memories.iter().zip(&mut shortest) {
            let begun = Instant::now();
            memory.store(0, &bytes);
            *shortest = begun.elapsed().min(*shortest);
        }
    }
    let [copy, both] = shortest;
    assert!(both >= added + copy / 2, "a copy takes {copy:?}, with a latency of {added:?} {both:?}");
}
