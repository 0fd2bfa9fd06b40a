//! Unit tests of `topology`.

use super::*;

fn machine(caches: &[&[(&str, &str)]]) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a directory");
    for (cpu, indices) in caches.iter().enumerate() {
        std::fs::create_dir_all(root.path().join(format!("cpu{cpu}"))).expect("a directory");
        for (index, (level, list)) in indices.iter().enumerate() {
            let directory = root.path().join(format!("cpu{cpu}/cache/index{index}"));
            std::fs::create_dir_all(&directory).expect("a directory");
            std::fs::write(directory.join("level"), level).expect("writable");
            std::fs::write(directory.join("shared_cpu_list"), list).expect("writable");
        }
    }
    root
}

#[test]
fn cpus_are_grouped_by_their_highest_shared_cache() {
    let (left, right): (&[_], &[_]) =
        (&[("1", "0"), ("3", "0,2\n"), ("2", "0-1")], &[("1", "1"), ("2", "0-1"), ("3", "1,3\n")]);
    let root = machine(&[left, right, left, right]);
    let groups = CacheGroups::read(root.path());
    assert_eq!((0..4).map(|cpu| groups.group_of(cpu)).collect::<Vec<_>>(), [0, 1, 0, 1]);
    assert_eq!((groups.count(), groups.largest()), (2, 2));
}

#[test]
fn missing_or_invalid_cache_lists_make_one_group() {
    let nonsense: &[_] = &[("3", "4-1"), ("x", "0"), ("2", "0-99999999")];
    for root in [machine(&[&[], &[]]), machine(&[nonsense, nonsense]), machine(&[])] {
        let groups = CacheGroups::read(root.path());
        assert_eq!((groups.group_of(0), groups.group_of(1), groups.group_of(77)), (0, 0, 0));
        assert_eq!(groups.count(), 1);
    }
}

#[test]
fn this_machine_can_be_read() {
    let groups = CacheGroups::of_machine();
    assert!(groups.count() >= 1 && groups.largest() >= 1);
}

/// A directory of nodes with these names and lists of CPUs; none: the list is missing.
fn nodes(lists: &[(&str, Option<&str>)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a directory");
    for (name, list) in lists {
        let directory = root.path().join(name);
        std::fs::create_dir(&directory).expect("a directory");
        if let Some(list) = list {
            std::fs::write(directory.join("cpulist"), list).expect("writable");
        }
    }
    // As the kernel has beside them.
    std::fs::write(root.path().join("online"), "0-1\n").expect("writable");
    std::fs::create_dir(root.path().join("nodes-of-another-kind")).expect("a directory");
    root
}

fn read(lists: &[(&str, Option<&str>)]) -> NumaNodes {
    NumaNodes::read(nodes(lists).path())
}

#[test]
fn each_cpu_is_on_the_node_that_lists_it() {
    let found = read(&[("node1", Some("2-3,6\n")), ("node0", Some("0-1,5\n"))]);
    assert_eq!(found, NumaNodes::of(&[(0, &[0, 1, 5]), (1, &[2, 3, 6])]));
    assert_eq!([0, 1, 2, 3, 5, 6].map(|cpu| found.position_of(cpu)), [0, 0, 1, 1, 0, 1]);
    assert_eq!(
        (found.count(), found.number(0), found.number(1), found.number(2)),
        (2, Some(0), Some(1), None)
    );
    // 4 is offline, 99 does not exist.
    assert_eq!((found.position_of(4), found.position_of(99)), (0, 0));
}

#[test]
fn sparse_node_numbers_keep_their_order() {
    let found = read(&[("node10", Some("4-5")), ("node8", Some("2-3")), ("node0", Some("0-1"))]);
    assert_eq!([0, 2, 5].map(|cpu| found.position_of(cpu)), [0, 1, 2]);
    assert_eq!([0, 1, 2].map(|position| found.number(position)), [Some(0), Some(8), Some(10)]);
}

#[test]
fn nodes_without_cpus_are_left_out() {
    let found = read(&[("node0", Some("\n")), ("node1", Some("0-3")), ("node2", Some(""))]);
    assert_eq!((found.count(), found.position_of(3)), (1, 0));
    assert_eq!(found.number(0), None, "with one node there is nothing to place");
}

#[test]
fn nodes_that_the_process_may_not_use_are_left_out() {
    let all = || read(&[("node0", Some("0-1")), ("node1", Some("2-3")), ("node2", Some("4-5"))]);
    let found = all().within(|cpu| cpu == 1 || cpu == 4);
    assert_eq!((found.count(), found.number(0), found.number(1)), (2, Some(0), Some(2)));
    assert_eq!(found.position_of(5), 1);
    let none = all().within(|_| false);
    assert_eq!((none.count(), none.position_of(4), none.number(0)), (1, 0, None));
}

#[test]
fn missing_or_invalid_node_lists_make_one_node() {
    let whole = ("node0", Some("0-1"));
    for second in [
        ("node1", None),
        ("node1", Some("3-2")),
        ("node1", Some("two")),
        ("node1", Some("2-99999999")),
        ("node1", Some("1-2")),
        ("node1024", Some("2-3")),
    ] {
        assert_eq!(read(&[whole, second]), NumaNodes::default(), "{second:?}");
    }
    let root = tempfile::tempdir().expect("a directory");
    for missing in [root.path(), &root.path().join("nothing")] {
        let found = NumaNodes::read(missing);
        assert_eq!((found.count(), found.position_of(7), found.number(0)), (1, 0, None));
    }
}

#[cfg(not(miri))]
#[test]
fn nodes_of_this_machine_can_be_read() {
    let found = NumaNodes::of_machine();
    assert!((1..=NODES_MAX).contains(&found.count()));
    assert!(found.position_of(crate::sync::thread::current_cpu()) < found.count());
}

#[cfg(not(miri))]
#[test]
fn a_placed_buffer_keeps_its_content_and_has_a_node() {
    let mut buffer = crate::device::AlignedBuffer::zeroed(1 << 20);
    buffer.fill(7);
    let start = NonNull::from(&mut buffer[0]);
    match place_on(0, start, buffer.len()) {
        Ok(()) => {
            let maps = std::fs::read_to_string("/proc/self/numa_maps").expect("the system knows nodes");
            let address = format!("{:x} ", start.as_ptr() as usize);
            let line = maps.lines().find(|line| line.starts_with(&address)).expect("a mapping of its own");
            assert!(line.contains("prefer:0"), "{line}");
        }
        // Containers and small systems.
        Err(error) => assert!(matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)), "{error}"),
    }
    for unknown in [NODES_MAX as u32 - 1, NODES_MAX as u32, u32::MAX] {
        place_on(unknown, start, buffer.len()).expect_err("no machine has it");
    }
    assert!(buffer.iter().all(|byte| *byte == 7));
}
