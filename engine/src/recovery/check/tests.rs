//! Lost CSNs are found and named.

use super::*;

fn present(csns: impl IntoIterator<Item = u64>) -> Present {
    let mut present = Present::above(Csn(10));
    csns.into_iter().for_each(|csn| present.insert(Csn(csn)));
    present
}

#[test]
fn what_is_neither_there_nor_void_below_the_watermark_is_lost() {
    let all = present((5..200).filter(|csn| ![63, 64, 65, 130].contains(csn)));
    let none = CsnSet::default();
    assert_eq!(all.lost(Csn(10), Csn(200), &none), [(Csn(63), Csn(65)), (Csn(130), Csn(130))]);
    assert_eq!(all.lost(Csn(64), Csn(130), &none), [(Csn(65), Csn(65))]);
    assert_eq!(all.lost(Csn(10), Csn(203), &none)[2], (Csn(200), Csn(202)));
    let voids = CsnSet::from_ranges([(Csn(1), Csn(64)), (Csn(130), Csn(140))]);
    assert_eq!(all.lost(Csn(10), Csn(200), &voids), [(Csn(65), Csn(65))]);
}

#[test]
fn an_empty_log_has_lost_everything_up_to_the_watermark() {
    assert_eq!(present([]).lost(Csn(10), Csn(13), &CsnSet::default()), [(Csn(11), Csn(12))]);
    assert_eq!(present([]).lost(Csn(10), Csn(11), &CsnSet::default()), []);
    assert_eq!(present([Csn::MAX.0 - 1]).lost(Csn(10), Csn(11), &CsnSet::default()), []);
}

#[test]
fn what_is_lost_is_counted_and_named() {
    let lost = [(Csn(5), Csn(7)), (Csn(9), Csn(9))];
    let told = describe(&lost).expect("something is lost");
    assert!(told.starts_with("4 committed") && told.ends_with("CSN 5 to 7, 9"), "{told}");
    assert_eq!(describe(&[]), None);
}
