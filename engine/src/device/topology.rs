//! Which CPUs share a cache? As the kernel says in `/sys/devices/system/cpu/cpu*/cache/index*/shared_cpu_list`.
//!
//! Of each CPU the highest level that it shares with others counts: usually the third, one for each socket or part of one. Where the
//! kernel says nothing all CPUs count as sharing one.

use std::path::Path;
use std::sync::OnceLock;

const CPUS: &str = "/sys/devices/system/cpu";
/// CPUs with higher numbers are not looked for.
const CPUS_MOST: usize = 4096;

/// CPUs by the cache that they share.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CacheGroups {
    /// By CPU number: the lowest CPU that shares its cache. Empty if nothing is known.
    first: Vec<u32>,
}

impl CacheGroups {
    /// Those of this machine, read once. A simulated one has two CPUs that share a cache, wherever it is run, so that a seed goes the
    /// same way on every machine.
    #[must_use]
    pub fn of_machine() -> &'static CacheGroups {
        #[cfg(feature = "simulation")]
        if crate::sync::simulation::is_simulated() {
            static SIMULATED: OnceLock<CacheGroups> = OnceLock::new();
            return SIMULATED.get_or_init(|| CacheGroups { first: vec![0; 2] });
        }
        static GROUPS: OnceLock<CacheGroups> = OnceLock::new();
        GROUPS.get_or_init(|| CacheGroups::read(Path::new(CPUS)))
    }

    /// Those that a directory like `/sys/devices/system/cpu` describes. What cannot be read is as if it was not there.
    #[must_use]
    pub fn read(cpus: &Path) -> CacheGroups {
        let mut first = Vec::new();
        for cpu in 0..CPUS_MOST {
            let directory = cpus.join(format!("cpu{cpu}"));
            if !directory.exists() {
                break;
            }
            let sharing = shared_with(&directory.join("cache"));
            first.push(sharing.into_iter().min().unwrap_or(0).min(cpu) as u32);
        }
        CacheGroups { first }
    }

    /// The group of a CPU, as the number of its first CPU.
    #[must_use]
    pub fn group_of(&self, cpu: usize) -> u32 {
        self.first.get(cpu).copied().unwrap_or(0)
    }

    /// How many groups there are, at least one.
    #[must_use]
    pub fn count(&self) -> usize {
        let mut firsts = self.first.clone();
        firsts.sort_unstable();
        firsts.dedup();
        firsts.len().max(1)
    }

    /// CPUs of the largest group, at least one.
    #[must_use]
    pub fn largest(&self) -> usize {
        let size = |group: &u32| self.first.iter().filter(|first| *first == group).count();
        self.first.iter().map(size).max().unwrap_or(1)
    }
}

/// The CPUs that share the cache of the highest level with this one; none if it shares none or the kernel does not say.
fn shared_with(cache: &Path) -> Vec<usize> {
    let Ok(indices) = std::fs::read_dir(cache) else { return Vec::new() };
    let caches = indices.filter_map(|index| {
        let index = index.ok()?.path();
        let text = |name: &str| std::fs::read_to_string(index.join(name)).ok();
        let level: u32 = text("level")?.trim().parse().ok()?;
        let cpus = parse_list(text("shared_cpu_list")?.trim())?;
        Some((level, cpus))
    });
    caches.max_by_key(|(level, _)| *level).map(|(_, cpus)| cpus).unwrap_or_default()
}

/// `0-3,8,10-11`; none if it is something else.
fn parse_list(list: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for range in list.split(',') {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let (from, to) = (from.trim().parse::<usize>().ok()?, to.trim().parse::<usize>().ok()?);
        if from > to || to >= CPUS_MOST {
            return None;
        }
        cpus.extend(from..=to);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
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
    fn a_kernel_that_says_nothing_or_nonsense_makes_one_group() {
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
}
