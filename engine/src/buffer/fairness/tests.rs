//! The fairness ticket and its queue.

use super::*;
use crate::buffer::Pool;
use crate::buffer::test_sources::Zeros;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Instant;

fn pool(pages: u64) -> Arc<Pool> {
    let pool = Pool::new(4096, pages << 12, Arc::new(Zeros)).expect("small");
    pool.restore((1..100).map(PageId)).expect("each id once");
    pool
}

fn queue_len(pool: &Pool) -> usize {
    pool.memory.fairness.queue.lock().len()
}

#[test]
fn tickets_follow_the_order_of_the_queue() {
    // A thread that does not run for a second leaves the queue and joins it again at the end.
    let in_order = (0..20).find_map(|_| Some(tickets_of_four()).filter(|(left, _)| *left == 0));
    assert_eq!(in_order.expect("in one of 20 runs no thread leaves the queue").1, [0, 1, 2, 3]);
}

/// Returns how often one of four threads left the queue, and the order in which they held the
/// ticket.
fn tickets_of_four() -> (u32, Vec<usize>) {
    let pool = pool(20);
    let (send, order) = channel();
    let first = pool.memory.take_ticket().expect("no thread holds it");
    assert!(pool.memory.take_ticket().is_none(), "a thread does not wait for itself");
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let (other, send) = (pool.clone(), send.clone());
            let thread = std::thread::spawn(move || {
                let mut left = 0;
                while other.memory.take_ticket().map(|_ticket| send.send(n).expect("listens")).is_none() {
                    left += 1;
                }
                left
            });
            while queue_len(&pool) < 2 + n {
                std::thread::yield_now();
            }
            thread
        })
        .collect();
    drop(first);
    let left = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
    assert_eq!((queue_len(&pool), pool.memory.fairness.holder.load(Ordering::SeqCst)), (0, 0));
    (left, order.try_iter().collect())
}

#[test]
fn queue_that_does_not_move_is_left() {
    let pool = pool(20);
    let _never_ends = pool.memory.take_ticket().expect("no thread holds it");
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(pool.memory.take_ticket().is_none()));
    });
    assert!(begun.elapsed() >= LOOK_AGAIN);
    assert_eq!(queue_len(&pool), 1);
}

#[test]
fn thread_that_unwinds_leaves_queue_and_ticket() {
    let pool = pool(20);
    let unwinds = || {
        let waits = || {
            pool.memory.fairness.join_queue(thread::number());
            let _place = PlaceInQueue(&pool.memory.fairness);
            std::panic::resume_unwind(Box::new("a bug"));
        };
        std::thread::scope(|scope| assert!(scope.spawn(waits).join().is_err()));
    };
    let first = pool.memory.take_ticket().expect("no thread holds it");
    unwinds();
    assert_eq!(queue_len(&pool), 1);
    drop(first);
    unwinds();
    assert_eq!((queue_len(&pool), pool.memory.fairness.holder.load(Ordering::SeqCst)), (0, 0));
}

#[test]
fn last_frame_and_kept_pages_belong_to_the_ticket() {
    let pool = pool(20);
    let pages = pool.memory().resident_pages_max();
    let ticket = pool.memory.take_ticket().expect("no thread holds it");
    std::thread::scope(|scope| {
        let others = || {
            (1..pages).for_each(|page| assert!(pool.optimistic(PageId(page)).is_ok(), "room"));
            assert!(pool.optimistic(PageId(pages)).is_err(), "no evictor runs, and one frame is left");
        };
        scope.spawn(others);
    });
    pool.optimistic(PageId(50)).expect("this thread holds the ticket");
    let candidates = || {
        let mut candidates = Vec::new();
        pool.memory().next_candidates(1000, 2 * pool.page_count(), &mut candidates);
        candidates
    };
    let (first, kept) = (candidates(), PageId(50));
    assert!(first.contains(&PageId(1)) && !first.contains(&kept), "{first:?}");
    drop(ticket);
    assert!(candidates().contains(&kept), "the ticket is returned");
}
