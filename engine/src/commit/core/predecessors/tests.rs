//! Unit tests of `predecessors`.

use super::*;

#[test]
fn predecessors_are_distinguished_up_to_their_bound() {
    let mut predecessors = Predecessors::default();
    assert_eq!(predecessors.all(), Some(&[][..]));
    for csn in [3, 4, 3, 4, 5] {
        predecessors.add(Csn(csn));
    }
    assert_eq!(predecessors.all(), Some(&[Csn(3), Csn(4), Csn(5)][..]));
    (6..9).for_each(|csn| predecessors.add(Csn(csn)));
    assert_eq!(predecessors.all().map(<[Csn]>::len), Some(PREDECESSORS));
    predecessors.add(Csn(7));
    assert_eq!(predecessors.all().map(<[Csn]>::len), Some(PREDECESSORS), "known already");
    predecessors.add(Csn(9));
    assert_eq!(predecessors.all(), None);
    predecessors.add(Csn(3));
    assert_eq!(predecessors.all(), None, "too many once, too many for ever");
}
