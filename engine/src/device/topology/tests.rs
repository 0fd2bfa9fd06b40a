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
