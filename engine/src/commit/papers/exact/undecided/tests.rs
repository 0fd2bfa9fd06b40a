//! Unit tests of `undecided`.

use super::*;

/// W is at 1; so far each log is durable.
struct Durable([u64; 3]);

impl Facts for Durable {
    fn watermark(&self) -> Csn {
        Csn(1)
    }

    fn durable(&self, log: LogId) -> Csn {
        Csn(self.0[log.0 as usize])
    }

    fn is_marked(&self, _csn: Csn) -> bool {
        false
    }
}

/// 3 in log 2 read 2 in log 0, which read 1 in log 1.
#[test]
fn a_predecessor_is_committed_when_all_that_it_lists_is() {
    let all = || {
        let undecided = Undecided::new(3, RingSize::MIN);
        undecided.publish(Csn(1), LogId(1), Needs::Listed(Predecessors::default()));
        undecided.publish(Csn(2), LogId(0), Needs::after(Csn(1)));
        undecided.publish(Csn(3), LogId(2), Needs::after(Csn(2)));
        undecided
    };
    for facts in [Durable([2, 0, 3]), Durable([0, 1, 3]), Durable([2, 1, 0])] {
        assert!(!all().is_committed(Csn(3), &facts), "{:?} are durable", facts.0);
    }
    assert!(all().is_committed(Csn(3), &Durable([2, 1, 3])));
    assert!(!all().is_committed(Csn(2), &Durable([2, 0, 3])));
    assert!(all().is_committed(Csn(2), &Durable([2, 1, 0])));
}
