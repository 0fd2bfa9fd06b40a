//! The ring under loom: all interleavings of threads that draw, write, and ask.

use super::*;
use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use loom::thread::spawn;

/// What is durable, and W, which does not move.
struct World {
    undecided: Undecided,
    durable: [AtomicU64; 3],
}

impl Facts for World {
    fn watermark(&self) -> Csn {
        Csn(1)
    }

    /// As `Log::durable_csn`.
    fn durable(&self, log: LogId) -> Csn {
        Csn(self.durable[log.0 as usize].load(Ordering::SeqCst))
    }

    fn is_marked(&self, _csn: Csn) -> bool {
        false
    }
}

fn world(durable: [u64; 3]) -> Arc<World> {
    Arc::new(World { undecided: Undecided::new(3, RingSize::MIN), durable: durable.map(AtomicU64::new) })
}

impl World {
    /// A draw, under the log's latch: in each model one thread draws in a log.
    fn publish(&self, csn: u64, log: u32, listed: &[u64]) {
        self.undecided.publish(Csn(csn), LogId(log), listing(listed));
    }

    fn completes(&self, log: u32, csn: u64) {
        self.durable[log as usize].store(csn, Ordering::SeqCst);
    }

    fn is_durable(&self, log: u32, csn: u64) -> bool {
        self.durable[log as usize].load(Ordering::SeqCst) >= csn
    }

    fn is_committed(&self, csn: u64) -> bool {
        self.undecided.is_committed(Csn(csn), self)
    }
}

fn listing(csns: &[u64]) -> Needs {
    let mut listed = Predecessors::default();
    csns.iter().for_each(|csn| listed.add(Csn(*csn)));
    Needs::Listed(listed)
}

/// 4 and 6 have the same line: there are two for each log.
#[test]
fn a_line_that_is_written_over_is_read_whole_or_not_at_all() {
    for over in [listing(&[3, 5]), Needs::UpTo(Csn(5))] {
        loom::model(move || {
            let world = world([0; 3]);
            world.publish(4, 0, &[1, 2]);
            let theirs = world.clone();
            let drawing = spawn(move || theirs.undecided.publish(Csn(6), LogId(0), over));
            let said = world.undecided.said(Csn(4));
            assert!(
                said == Known::Nothing || said == Known::Drawn(LogId(0), listing(&[1, 2])),
                "of 4: {said:?}"
            );
            let said = world.undecided.said(Csn(6));
            assert!(said == Known::Nothing || said == Known::Drawn(LogId(0), over), "of 6: {said:?}");
            drawing.join().expect("no panic");
            assert_eq!(world.undecided.said(Csn(6)), Known::Drawn(LogId(0), over));
        });
    }
}

/// A thread found 5 committed, and was off the CPU until the word belonged to another CSN.
#[test]
fn a_late_mark_does_not_commit_the_next_owner() {
    loom::model(|| {
        let world = world([0; 3]);
        let next = 5 + RingSize::MIN.get();
        world.publish(5, 0, &[]);
        let theirs = world.clone();
        let late = spawn(move || theirs.undecided.mark_committed(Csn(5)));
        world.publish(next, 0, &[next - 1]);
        assert_eq!(world.undecided.said(Csn(5)), Known::Nothing);
        late.join().expect("no panic");
        assert_eq!(world.undecided.said(Csn(next)), Known::Drawn(LogId(0), listing(&[next - 1])));
    });
}

/// 1 in log 1, 2 in log 0 read it, 3 in log 2 read 2; the last two are durable. Two ask while 1 is
/// written, and mark what they find.
#[test]
fn a_commit_is_acknowledged_when_its_chain_is_durable() {
    loom::model(|| {
        let world = world([2, 0, 3]);
        world.publish(1, 1, &[]);
        world.publish(2, 0, &[1]);
        world.publish(3, 2, &[2]);
        let ask = |world: &World, csn| {
            if world.is_committed(csn) {
                assert!(world.is_durable(1, 1), "{csn} is acknowledged too early");
            }
        };
        let theirs = world.clone();
        let device = spawn(move || theirs.completes(1, 1));
        let theirs = world.clone();
        let other = spawn(move || ask(&theirs, 2));
        ask(&world, 3);
        device.join().expect("no panic");
        other.join().expect("no panic");
        assert!(world.is_committed(3) && world.is_committed(2) && world.is_committed(1));
    });
}

/// 2 becomes visible when it is drawn. A transaction that reads its version lists 2, and finds what
/// 2 depends on.
#[test]
fn a_reader_of_a_version_finds_its_transactions_list() {
    loom::model(|| {
        let world = world([0; 3]);
        world.publish(1, 1, &[]);
        let visible = Arc::new(AtomicBool::new(false));
        let (theirs, stamp) = (world.clone(), visible.clone());
        let writer = spawn(move || {
            theirs.publish(2, 0, &[1]);
            stamp.store(true, Ordering::Release);
            theirs.completes(0, 2);
            theirs.completes(1, 1);
        });
        if visible.load(Ordering::Acquire) {
            assert_eq!(world.undecided.drawn_in(Csn(2)), Some((LogId(0), None)), "its log is known");
            world.publish(3, 2, &[2]);
            world.completes(2, 3);
            if world.is_committed(3) {
                assert!(
                    world.is_durable(0, 2) && world.is_durable(1, 1),
                    "a record of the chain is volatile"
                );
            }
            writer.join().expect("no panic");
            assert!(world.is_committed(3));
        }
    });
}

/// A transaction divided between two logs: 1 and 2.
#[test]
fn a_divided_transaction_is_committed_when_all_fragments_are() {
    loom::model(|| {
        let world = world([0; 3]);
        world.publish(1, 0, &[]);
        world.undecided.publish_follower(Csn(2), LogId(1));
        let writers = [(0, 1), (1, 2)].map(|(log, csn)| {
            let theirs = world.clone();
            spawn(move || theirs.completes(log, csn))
        });
        if world.is_committed(2) {
            assert!(world.is_durable(0, 1) && world.is_durable(1, 2), "a fragment is volatile");
        }
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        assert!(world.is_committed(2));
        assert!(!world.undecided.follows(Csn(2)), "it is marked");
    });
}
