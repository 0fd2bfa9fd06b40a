//! Which CPUs share a cache, as the kernel reports in
//! `/sys/devices/system/cpu/cpu*/cache/index*/shared_cpu_list`.
//!
//! The highest cache level counts: usually the third, one for each socket or part of a socket. If
//! the kernel reports nothing, all CPUs count as sharing one cache.

use std::path::Path;
use std::sync::OnceLock;

const CPUS: &str = "/sys/devices/system/cpu";
/// CPUs with higher numbers are ignored.
const CPUS_MAX: usize = 4096;

/// CPUs by the cache that they share.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CacheGroups {
    /// By CPU number: the lowest CPU that shares its cache. Empty if nothing is known.
    first: Vec<u32>,
}

impl CacheGroups {
    /// Returns the groups of this machine, read once. A simulated machine has two CPUs that share a
    /// cache, so that a seed gives the same run on every machine.
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

    /// Returns the groups that a directory like `/sys/devices/system/cpu` describes. Ignores
    /// unreadable files.
    #[must_use]
    pub fn read(cpus: &Path) -> CacheGroups {
        let mut first = Vec::new();
        for cpu in 0..CPUS_MAX {
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

    /// Returns the number of groups, at least one.
    #[must_use]
    pub fn count(&self) -> usize {
        let mut firsts = self.first.clone();
        firsts.sort_unstable();
        firsts.dedup();
        firsts.len().max(1)
    }

    /// Returns the number of CPUs in the largest group, at least one.
    #[must_use]
    pub fn largest(&self) -> usize {
        let size = |group: &u32| self.first.iter().filter(|first| *first == group).count();
        self.first.iter().map(size).max().unwrap_or(1)
    }
}

/// Returns the CPUs that share the highest cache level with this CPU; empty if the kernel reports
/// none.
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

/// Parses a list like `0-3,8,10-11`.
fn parse_list(list: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for range in list.split(',') {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let (from, to) = (from.trim().parse::<usize>().ok()?, to.trim().parse::<usize>().ok()?);
        if from > to || to >= CPUS_MAX {
            return None;
        }
        cpus.extend(from..=to);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests;
