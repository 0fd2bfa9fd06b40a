//! Which CPUs share a cache, and which share a memory, as the kernel reports in
//! `/sys/devices/system/cpu/cpu*/cache/index*/shared_cpu_list` and
//! `/sys/devices/system/node/node*/cpulist`.
//!
//! The highest cache level counts: usually the third, one for each socket or part of a socket. If
//! the kernel reports nothing, all CPUs count as sharing one cache, and one memory.

use std::path::Path;
use std::ptr::NonNull;
use std::sync::OnceLock;

const CPUS: &str = "/sys/devices/system/cpu";
const NODES: &str = "/sys/devices/system/node";
/// Node numbers are below it, as in the kernel.
const NODES_MAX: usize = 1024;
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

/// CPUs by the memory that is near to them: the NUMA nodes that have CPUs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NumaNodes {
    /// The number and the CPUs of each node, by rising numbers. Empty if nothing is known: then all
    /// CPUs count as one node.
    nodes: Vec<(u32, Vec<usize>)>,
}

impl NumaNodes {
    /// Returns nodes with these numbers and CPUs.
    #[cfg(test)]
    #[must_use]
    pub fn of(nodes: &[(u32, &[usize])]) -> NumaNodes {
        NumaNodes { nodes: nodes.iter().map(|(number, cpus)| (*number, cpus.to_vec())).collect() }
    }

    /// Returns the nodes of this machine on which the process may run, read once. A simulated
    /// machine is one node.
    #[must_use]
    pub fn of_machine() -> &'static NumaNodes {
        static NODES_OF_MACHINE: OnceLock<NumaNodes> = OnceLock::new();
        static ONE: NumaNodes = NumaNodes { nodes: Vec::new() };
        #[cfg(feature = "simulation")]
        if crate::sync::simulation::is_simulated() {
            return &ONE;
        }
        if cfg!(any(miri, loom, feature = "shuttle")) {
            return &ONE;
        }
        NODES_OF_MACHINE.get_or_init(|| NumaNodes::read(Path::new(NODES)).within(cpus_of_process()))
    }

    /// Returns the nodes that a directory like `/sys/devices/system/node` describes. A node without
    /// CPUs has only memory, and is left out, and so are CPUs that are offline. If a list cannot be
    /// read or contradicts another one, all CPUs count as one node: a part of the nodes would leave
    /// logs without threads.
    #[must_use]
    pub fn read(directory: &Path) -> NumaNodes {
        NumaNodes { nodes: read_nodes(directory).unwrap_or_default() }
    }

    /// Leaves out nodes none of whose CPUs may be used.
    #[must_use]
    pub fn within(mut self, may_use: impl Fn(usize) -> bool) -> NumaNodes {
        self.nodes.retain(|(_, cpus)| cpus.iter().any(|cpu| may_use(*cpu)));
        self
    }

    /// Returns the number of nodes, at least one.
    #[must_use]
    pub fn count(&self) -> usize {
        self.nodes.len().max(1)
    }

    /// Returns the position of a CPU's node among the nodes, from 0. A CPU of no node counts as one
    /// of the first.
    #[must_use]
    pub fn position_of(&self, cpu: usize) -> usize {
        self.nodes.iter().position(|(_, cpus)| cpus.contains(&cpu)).unwrap_or(0)
    }

    /// Returns the kernel's number of the node at `position`, if there are several nodes.
    #[must_use]
    pub fn number(&self, position: usize) -> Option<u32> {
        let (number, _) = self.nodes.get(position).filter(|_| self.nodes.len() > 1)?;
        Some(*number)
    }
}

/// Returns the nodes with CPUs, or `None` if a list is unreadable, or a CPU is in several.
fn read_nodes(directory: &Path) -> Option<Vec<(u32, Vec<usize>)>> {
    let mut nodes = Vec::new();
    for entry in std::fs::read_dir(directory).ok()? {
        let entry = entry.ok()?;
        let name = entry.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix("node"));
        let Some(number) = digits.and_then(|digits| digits.parse::<u32>().ok()) else { continue };
        let list = std::fs::read_to_string(entry.path().join("cpulist")).ok()?;
        if list.trim().is_empty() {
            continue;
        }
        nodes.push((number, parse_list(list.trim()).filter(|_| (number as usize) < NODES_MAX)?));
    }
    nodes.sort_unstable();
    let mut cpus: Vec<usize> = nodes.iter().flat_map(|(_, cpus)| cpus).copied().collect();
    cpus.sort_unstable();
    cpus.windows(2).all(|two| two[0] != two[1]).then_some(nodes)
}

/// Returns whether the process may run on a CPU: on those of its first thread, since the calling
/// thread may be pinned. If the system does not say, all may be used.
fn cpus_of_process() -> impl Fn(usize) -> bool {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let set = sched_getaffinity(Some(rustix::process::getpid())).ok();
    move |cpu| set.is_none_or(|set| cpu < CpuSet::MAX_CPU && set.is_set(cpu))
}

/// Asks the system to keep a part of a mapping in the memory of a NUMA node, and to move there what
/// is elsewhere. Changes no content.
///
/// # Errors
/// The system knows no nodes, or forbids the call, or has no such node.
pub(super) fn place_on(node: u32, start: NonNull<u8>, len: usize) -> std::io::Result<()> {
    /// Pages that exist are moved, too.
    const MPOL_MF_MOVE: libc::c_uint = 1 << 1;
    let mut mask = [0_u64; NODES_MAX / u64::BITS as usize];
    let word = mask.get_mut((node / u64::BITS) as usize).ok_or(std::io::ErrorKind::InvalidInput)?;
    *word |= 1 << (node % u64::BITS);
    // The system reads one bit less than the number says.
    let (mode, bits) = (libc::MPOL_PREFERRED, NODES_MAX as libc::c_ulong + 1);
    // SAFETY: the call only reads the mask, and changes where pages lie, not what they hold.
    let result = unsafe {
        libc::syscall(libc::SYS_mbind, start.as_ptr(), len, mode, mask.as_ptr(), bits, MPOL_MF_MOVE)
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
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
