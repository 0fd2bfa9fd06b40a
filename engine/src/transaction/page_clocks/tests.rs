//! Tests of the clocks of pages; with loom, of their orderings.

use super::*;

#[cfg(not(any(loom, feature = "shuttle")))]
#[test]
fn a_clock_only_rises_and_belongs_to_one_page() {
    let clocks = PageClocks::new(&Arc::default());
    assert_eq!(clocks.get(PageId(7)), (Gsn(0), LogId(0)));
    clocks.raise(PageId(7), Gsn(10), LogId(3));
    clocks.raise(PageId(7), Gsn(9), LogId(4));
    assert_eq!(clocks.get(PageId(7)), (Gsn(10), LogId(3)));
    assert_eq!(clocks.get(PageId(8)), (Gsn(0), LogId(0)));
    clocks.raise(PageId(u32::MAX.into()), Gsn(11), LogId(255));
    assert_eq!(clocks.get(PageId(u32::MAX.into())), (Gsn(11), LogId(255)));
}

#[cfg(loom)]
mod orderings {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;
    use loom::thread::spawn;

    const PAGE: PageId = PageId(1);

    fn pages() -> Arc<PageClocks> {
        let pages = Arc::new(PageClocks::new(&std::sync::Arc::default()));
        // Created here: loom does not follow the creation.
        pages.raise(PAGE, Gsn(1), LogId(0));
        pages
    }

    #[test]
    fn a_page_keeps_the_highest_clock_and_its_log() {
        loom::model(|| {
            let pages = pages();
            let raising = [(5, 1), (7, 2)].map(|(gsn, log)| {
                let theirs = pages.clone();
                spawn(move || theirs.raise(PAGE, Gsn(gsn), LogId(log)))
            });
            let known = [(Gsn(1), LogId(0)), (Gsn(5), LogId(1)), (Gsn(7), LogId(2))];
            let (first, second) = (pages.get(PAGE), pages.get(PAGE));
            assert!(known.contains(&first) && known.contains(&second) && first <= second);
            raising.into_iter().for_each(|thread| thread.join().expect("no panic"));
            assert_eq!(pages.get(PAGE), (Gsn(7), LogId(2)));
        });
    }

    /// Two transactions change a leaf, in any order. The second to be drawn is above the first if
    /// it saw its version.
    #[test]
    fn a_transaction_that_sees_a_change_has_a_higher_clock() {
        loom::model(|| {
            let pages = pages();
            let visible = Arc::new(AtomicBool::new(false));
            let (theirs, stamp) = (pages.clone(), visible.clone());
            let writer = spawn(move || {
                let clock = TransactionClock::new(LogId(1));
                clock.observe_page(&theirs, PAGE, Gsn(1));
                clock.change_page(&theirs, PAGE, LogId(1));
                // The log was ahead.
                clock.raise_changed(&theirs, Gsn(40), LogId(1));
                stamp.store(true, Ordering::Release);
            });
            let clock = TransactionClock::new(LogId(2));
            let seen = visible.load(Ordering::Acquire);
            clock.observe_page(&pages, PAGE, Gsn(1));
            clock.change_page(&pages, PAGE, LogId(2));
            if seen {
                assert!(clock.gsn.get() > Gsn(40), "{:?} saw 40", clock.gsn.get());
                assert!(!clock.is_alone(Some(LogId(2))), "what it saw is in log 1");
            }
            writer.join().expect("no panic");
            let (gsn, _) = pages.get(PAGE);
            assert!(gsn >= Gsn(40) && gsn >= clock.gsn.get(), "the page's clock fell behind");
        });
    }
}
