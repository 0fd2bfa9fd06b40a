//! Unit tests of `queue`.

use super::super::super::predecessors::Predecessors;
use super::super::super::watermark::tests::Held;
use super::*;
use crate::base::Csn;
use crate::base::clock::Nanos;

/// Returns an entry. Every third lists so many predecessors that it takes two lines, every fifth
/// more than an entry can list.
fn entry(csn: u64) -> Entry {
    let mut predecessors = Predecessors::default();
    let count = if csn.is_multiple_of(5) { 9 } else { 2 * (csn % 3) + 1 };
    (0..count).for_each(|n| predecessors.add(Csn(csn * 10 + n)));
    Entry { csn: Csn(csn), dsn: Csn(csn - 1), begun: Nanos(csn), ready: Nanos(csn + 1), predecessors }
}

fn queues(entries: usize) -> [PendingQueue; 2] {
    Queue::ALL.map(|kind| PendingQueue::new(kind, entries))
}

#[test]
fn entries_leave_in_order_up_to_the_first_refused() {
    for queue in queues(4) {
        let mut pushed = 0;
        while queue.has_room(&Held) {
            pushed += 1;
            queue.push(entry(pushed), &Held);
        }
        assert!(pushed >= 2);
        let (mut seen, mut held) = (Vec::new(), Vec::new());
        let accept = |e: Entry| {
            let accepted = e.csn < Csn(3);
            seen.extend(accepted.then_some(e));
            accepted
        };
        let popped = queue.pop_while(true, accept, |e| {
            held.push(e.csn.0);
            true
        });
        assert_eq!(popped, Some(Popped { count: 2, refused: pushed > 2 }));
        assert_eq!(seen, [entry(1), entry(2)]);
        assert_eq!(held, (3..=pushed).collect::<Vec<_>>());
        assert!(queue.has_room(&Held));
        let again = queue.pop_while(true, |_| false, |_| panic!("each is shown once"));
        assert_eq!(again, Some(Popped { count: 0, refused: pushed > 2 }));
        let rest = queue.pop_while(true, |_| true, |_| true);
        assert_eq!(rest, Some(Popped { count: pushed - 2, refused: false }));
        assert!(queue.is_empty());
    }
}

#[test]
fn a_full_queue_is_not_an_empty_one_wherever_it_begins() {
    for queue in queues(4) {
        for round in 0..40 {
            let mut pushed = 0;
            while queue.has_room(&Held) {
                pushed += 1;
                queue.push(entry(round * 100 + pushed), &Held);
            }
            assert!(pushed > 0 && !queue.is_empty());
            let mut next = round * 100;
            let popped = queue.pop_while(
                true,
                |e| {
                    next += 1;
                    assert_eq!(e, entry(next));
                    true
                },
                |_| true,
            );
            assert_eq!(popped, Some(Popped { count: pushed, refused: false }));
            assert!(queue.is_empty());
        }
    }
}

#[test]
fn a_consumer_beside_the_producer_sees_every_entry_once() {
    for queue in queues(8) {
        let total = if cfg!(miri) { 100 } else { 10_000 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for csn in 1..=total {
                    while !queue.has_room(&Held) {
                        std::thread::yield_now();
                    }
                    queue.push(entry(csn), &Held);
                }
            });
            let mut next = 1;
            while next <= total {
                queue.pop_while(
                    true,
                    |e| {
                        assert_eq!(e, entry(next));
                        next += 1;
                        true
                    },
                    |_| true,
                );
            }
        });
    }
}
