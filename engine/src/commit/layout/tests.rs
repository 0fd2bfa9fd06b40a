//! Unit tests of `layout`.

use super::*;
use crate::base::settings::{Layout, Preset};

#[test]
fn there_are_as_many_logs_as_the_layout_or_the_setting_says() {
    let base = |preset, logs| Settings { preset, logs, ..Settings::default() };
    let count = |preset, logs| log_count(&base(preset, logs), 6);
    assert_eq!(count(Preset::Autonomous, 0), 6);
    assert_eq!(count(Preset::Autonomous, 3), 3);
    assert_eq!(count(Preset::Group, 0), 1);
    assert_eq!(count(Preset::Restricted, 0), 3);
    assert_eq!(log_count(&base(Preset::Restricted, 0), 2), 2, "a restricted log is one of several");
    assert_eq!(log_count(&base(Preset::Auto, 0), 2), 1);
    let by_page = base(Preset::Auto, 0).with_protocol(|axes| axes.set_layout(Layout::ByPage));
    assert_eq!((log_count(&by_page, 6), log_count(&by_page, 1)), (6, 2));
    assert_eq!(
        log_count(
            &base(Preset::Restricted, 0)
                .with_protocol(|axes| *axes.threads_mut().expect("threads share logs") = 4),
            6
        ),
        2
    );
    assert_eq!(
        log_count(&base(Preset::Group, 0).with_protocol(|axes| axes.set_layout(Layout::PerThread)), 6),
        6
    );
    let many = Settings { preset: Preset::Autonomous, ..Settings::default() };
    assert_eq!(log_count(&many, 256), 60, "no more than the log has segments for");
    let chosen = Settings { logs: log_count(&many, 256), ..many };
    chosen.validate().expect("what is chosen is allowed");
}

/// Returns the logs of threads that first run on these CPUs, in this order.
fn logs_of_threads(logs: usize, in_a_row: usize, nodes: &NumaNodes, cpus: &[usize]) -> Vec<u32> {
    let shares = Shares::new(logs, in_a_row, nodes);
    let mut begun = vec![0; nodes.count()];
    let log_of = |cpu: &usize| {
        let node = nodes.position_of(*cpu);
        begun[node] += 1;
        shares.log_of(node, begun[node] - 1).0
    };
    cpus.iter().map(log_of).collect()
}

/// Returns the node of each log.
fn nodes_of_logs(logs: usize, nodes: &NumaNodes) -> Vec<Option<u32>> {
    let shares = Shares::new(logs, 1, nodes);
    (0..logs as u32).map(|log| shares.node_of(LogId(log))).collect()
}

/// As many nodes, of two CPUs each, with the numbers 0, 8, 16...
fn nodes(count: usize) -> NumaNodes {
    let cpus: Vec<_> = (0..count).map(|node| [2 * node, 2 * node + 1]).collect();
    let nodes = cpus.iter().enumerate().map(|(node, cpus)| (8 * node as u32, &cpus[..]));
    NumaNodes::of(&nodes.collect::<Vec<_>>())
}

#[test]
fn on_one_node_threads_take_all_logs_in_turn() {
    for one in [NumaNodes::default(), nodes(1), nodes(2).within(|cpu| cpu < 2)] {
        assert_eq!(logs_of_threads(3, 1, &one, &[1, 0, 1, 7, 0]), [0, 1, 2, 0, 1]);
        assert_eq!(logs_of_threads(3, 2, &one, &[1, 0, 1, 7, 0, 0, 1]), [0, 0, 1, 1, 2, 2, 0]);
        assert_eq!(nodes_of_logs(3, &one), [None; 3]);
    }
}

#[test]
fn threads_take_the_logs_of_their_own_node() {
    let two = nodes(2);
    assert_eq!(
        logs_of_threads(4, 1, &two, &[2, 3, 0, 2, 1, 0]),
        [2, 3, 0, 2, 1, 0],
        "more threads than logs"
    );
    assert_eq!(logs_of_threads(5, 1, &two, &[0, 0, 0, 2, 2, 2, 2]), [0, 1, 0, 2, 3, 4, 2]);
    assert_eq!(logs_of_threads(4, 2, &two, &[0, 0, 2, 0, 2, 2]), [0, 0, 2, 1, 2, 3]);
    assert_eq!(nodes_of_logs(5, &two), [Some(0), Some(0), Some(8), Some(8), Some(8)]);
    let four = nodes(4);
    assert_eq!(logs_of_threads(8, 1, &four, &[6, 0, 4, 2, 7, 1, 5, 3]), [6, 0, 4, 2, 7, 1, 5, 3]);
    // On no node that is known: as on the first.
    assert_eq!(logs_of_threads(8, 1, &four, &[99, 0]), [0, 1]);
}

#[test]
fn nodes_share_logs_if_there_are_fewer_logs() {
    let four = nodes(4);
    assert_eq!(logs_of_threads(2, 1, &four, &[0, 2, 4, 6, 0, 6]), [0, 0, 1, 1, 0, 1]);
    assert_eq!(nodes_of_logs(2, &four), [Some(0), Some(16)]);
    assert_eq!(logs_of_threads(3, 1, &four, &[0, 2, 4, 6]), [0, 0, 1, 2]);
    assert_eq!(logs_of_threads(1, 1, &four, &[6, 0, 4]), [0, 0, 0]);
    assert_eq!(nodes_of_logs(1, &four), [Some(0)]);
}

#[test]
fn every_log_belongs_to_a_node_and_every_node_has_a_log() {
    for (logs, count) in (1..=20).flat_map(|logs| (1..=7).map(move |count| (logs, count))) {
        let shares = Shares::new(logs, 1, &nodes(count));
        let mut used = vec![false; logs];
        for (node, nth) in (0..count).flat_map(|node| (0..logs).map(move |nth| (node, nth))) {
            used[shares.log_of(node, nth).0 as usize] = true;
        }
        assert!(used.iter().all(|used| *used), "{logs} logs, {count} nodes");
        let sizes = (0..count).map(|node| shares.logs_of(node).len());
        let (least, most) = (sizes.clone().min(), sizes.max());
        assert!(least >= Some(1) && most <= least.map(|least| least + 1), "{logs} logs, {count} nodes");
        let placed = (0..logs as u32).filter(|log| shares.node_of(LogId(*log)).is_some()).count();
        assert_eq!(placed, if count > 1 { logs } else { 0 });
    }
}
