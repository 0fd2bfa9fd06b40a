//! Is there a cycle that the level forbids?
//!
//! Snapshot isolation allows a cycle of dependencies exactly if two anti-dependencies are adjacent
//! in it. So the search walks a graph with two nodes for each transaction; a cycle of that graph is
//! forbidden:
//!
//! ```text
//!   (T, reached by an anti-dependency)     continues by: dependency
//!   (T, reached by a dependency)           continues by: dependency, anti-dependency
//! ```
//!
//! A serializable transaction has one node: it continues by any edge, however it was reached.
//!
//! "Ended before the other began" is a dependency, too. All such pairs would be too many, so the
//! ends form a chain by time: a transaction leads to its own end, each end to the next end, and the
//! last end before a begin to the transaction that begins.

/// The reason why one transaction precedes another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Edge {
    /// Both wrote the list, in this order.
    Write,
    /// The second read a write of the first.
    Read,
    /// The first read the state before a write of the second.
    Anti,
}

/// Transactions and their dependencies.
pub(crate) struct Graph {
    /// (from, to, edge, key), later sorted by `from`.
    edges: Vec<(u32, u32, Edge, u32)>,
    /// For each transaction: its begin, and its end if that is known and the transaction is judged.
    times: Vec<(u64, Option<u64>)>,
    /// For each transaction, whether it is serializable.
    serializable: Vec<bool>,
}

/// A step of a cycle: from this transaction, by this edge (`None`: it ended before the next began)
/// of this key.
pub(crate) type Step = (usize, Option<(Edge, u32)>);

impl Graph {
    pub(crate) fn new(times: Vec<(u64, Option<u64>)>, serializable: Vec<bool>) -> Graph {
        Graph { edges: Vec::new(), times, serializable }
    }

    pub(crate) fn link(&mut self, from: usize, to: usize, edge: Edge, key: u32) {
        if from != to {
            self.edges.push((from as u32, to as u32, edge, key));
        }
    }

    /// Returns a forbidden cycle, if one exists.
    pub(crate) fn cycle(mut self) -> Option<Vec<Step>> {
        self.edges.sort_unstable_by_key(|(from, ..)| *from);
        let n = self.times.len();
        let mut first = vec![0; n + 1];
        for (from, ..) in &self.edges {
            first[*from as usize + 1] += 1;
        }
        for i in 0..n {
            first[i + 1] += first[i];
        }
        let mut ends: Vec<(u64, u32)> =
            self.times.iter().enumerate().filter_map(|(t, (_, end))| Some(((*end)?, t as u32))).collect();
        ends.sort_unstable();
        let mut end_of = vec![u32::MAX; n];
        for (i, (_, t)) in ends.iter().enumerate() {
            end_of[*t as usize] = i as u32;
        }
        // For each end, the transactions that begin between this end and the next.
        let mut begins: Vec<(u32, u32)> = Vec::new();
        for (t, (begun, _)) in self.times.iter().enumerate() {
            let before = ends.partition_point(|(end, _)| end < begun);
            if before > 0 {
                begins.push((before as u32 - 1, t as u32));
            }
        }
        begins.sort_unstable();
        Search { graph: &self, first, end_of, begins, ends }.run()
    }
}

struct Search<'g> {
    graph: &'g Graph,
    /// For each transaction, the index of its first edge.
    first: Vec<usize>,
    /// For each transaction, the number of its end.
    end_of: Vec<u32>,
    /// (number of an end, a transaction that begins between it and the next).
    begins: Vec<(u32, u32)>,
    ends: Vec<(u64, u32)>,
}

/// A node: 2 t and 2 t + 1 are transaction t, reached by an anti-dependency or otherwise; from 2 n
/// the ends.
type Node = usize;

impl Search<'_> {
    /// Returns the `index`th successor of `node`: `None` behind the last, `Some(None)` for one not
    /// judged.
    fn successor(&self, node: Node, index: usize) -> Option<Option<Node>> {
        let n = self.graph.times.len();
        if node >= 2 * n {
            let end = node - 2 * n;
            if index == 0 {
                return Some((end + 1 < self.ends.len()).then_some(node + 1));
            }
            let start = self.begins.partition_point(|(e, _)| (*e as usize) < end);
            let (e, t) = self.begins.get(start + index - 1)?;
            return (*e as usize == end).then_some(Some(2 * *t as usize + 1));
        }
        let (t, by_dependency) = (node / 2, node % 2 == 1);
        if index == 0 {
            return Some((self.end_of[t] != u32::MAX).then(|| 2 * n + self.end_of[t] as usize));
        }
        let at = self.first[t] + index - 1;
        if at >= self.first[t + 1] {
            return None;
        }
        let (_, to, edge, _) = self.graph.edges[at];
        let to = to as usize;
        if edge == Edge::Anti && !by_dependency {
            return Some(None);
        }
        let is_one_node = edge != Edge::Anti || self.graph.serializable[to];
        Some(Some(2 * to + usize::from(is_one_node)))
    }

    fn run(&self) -> Option<Vec<Step>> {
        let nodes = 2 * self.graph.times.len() + self.ends.len();
        // 0: not seen, 1: on the path, 2: done.
        let mut seen = vec![0u8; nodes];
        let mut path: Vec<(Node, usize)> = Vec::new();
        for start in 0..nodes {
            if seen[start] != 0 {
                continue;
            }
            seen[start] = 1;
            path.push((start, 0));
            while let Some((node, index)) = path.last_mut() {
                let (node, at) = (*node, *index);
                *index += 1;
                match self.successor(node, at) {
                    None => {
                        seen[node] = 2;
                        path.pop();
                    }
                    Some(Some(next)) if seen[next] == 0 => {
                        seen[next] = 1;
                        path.push((next, 0));
                    }
                    Some(Some(next)) if seen[next] == 1 => {
                        let from = path.iter().position(|(node, _)| *node == next)?;
                        return Some(self.steps(&path[from..]));
                    }
                    Some(_) => {}
                }
            }
        }
        None
    }

    /// Returns the transactions of a cycle, without the chain of ends.
    fn steps(&self, cycle: &[(Node, usize)]) -> Vec<Step> {
        let n = self.graph.times.len();
        let step = |&(node, index): &(Node, usize)| {
            // The index already points to the next successor.
            (node < 2 * n).then(|| {
                let by = (index > 1).then(|| self.graph.edges[self.first[node / 2] + index - 2]);
                (node / 2, by.map(|(_, _, edge, key)| (edge, key)))
            })
        };
        cycle.iter().filter_map(step).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycle(n: usize, edges: &[(usize, usize, Edge)], serializable: bool) -> bool {
        cycle_with(edges, &vec![serializable; n])
    }

    fn cycle_with(edges: &[(usize, usize, Edge)], serializable: &[bool]) -> bool {
        // All transactions overlap.
        let mut graph = Graph::new(vec![(0, Some(10)); serializable.len()], serializable.to_vec());
        for (from, to, edge) in edges {
            graph.link(*from, *to, *edge, 0);
        }
        graph.cycle().is_some()
    }

    #[test]
    fn two_anti_dependencies_in_a_row_are_allowed_and_only_they() {
        use Edge::{Anti, Read, Write};
        assert!(!cycle(2, &[(0, 1, Anti), (1, 0, Anti)], false), "write skew");
        assert!(cycle(2, &[(0, 1, Anti), (1, 0, Anti)], true), "is not serializable");
        assert!(cycle(2, &[(0, 1, Write), (1, 0, Anti)], false), "lost update");
        assert!(cycle(2, &[(0, 1, Read), (1, 0, Read)], false));
        assert!(cycle(4, &[(0, 1, Read), (1, 2, Anti), (2, 3, Read), (3, 0, Anti)], false), "long fork");
        assert!(!cycle(3, &[(0, 1, Read), (1, 2, Anti), (2, 0, Anti)], false));
        assert!(!cycle(3, &[(0, 1, Read), (1, 2, Write), (0, 2, Anti)], true), "no cycle at all");
    }

    #[test]
    fn only_a_serializable_transaction_joins_two_anti_dependencies() {
        use Edge::{Anti, Read};
        let skew = [(0, 1, Anti), (1, 0, Anti)];
        for (serializable, forbidden) in
            [([false, false], false), ([true, false], false), ([false, true], false), ([true, true], true)]
        {
            assert_eq!(cycle_with(&skew, &serializable), forbidden, "{serializable:?}");
        }
        // The read-only anomaly: 1 is between the two anti-dependencies.
        let read_only = [(0, 1, Anti), (1, 2, Anti), (2, 0, Read)];
        for pivot in 0..3 {
            let serializable: Vec<bool> = (0..3).map(|n| n == pivot).collect();
            assert_eq!(cycle_with(&read_only, &serializable), pivot == 1, "{serializable:?}");
        }
    }

    #[test]
    fn an_end_before_a_beginning_is_a_dependency() {
        // 0 ended before 1 began and read the state before 1's write: allowed. The reverse reads
        // the past.
        for (edge, forbidden) in [((0, 1, Edge::Anti), false), ((1, 0, Edge::Anti), true)] {
            let mut graph = Graph::new(vec![(0, Some(1)), (2, Some(3)), (4, Some(5))], vec![false; 3]);
            graph.link(edge.0, edge.1, edge.2, 7);
            let found = graph.cycle();
            assert_eq!(found.is_some(), forbidden, "{found:?}");
            if let Some(steps) = found {
                assert_eq!(steps, [(0, None), (1, Some((Edge::Anti, 7)))]);
            }
        }
        let mut unknown = Graph::new(vec![(0, None), (2, Some(3))], vec![false; 2]);
        unknown.link(1, 0, Edge::Anti, 0);
        assert!(unknown.cycle().is_none(), "nobody knows when it ended");
    }
}
