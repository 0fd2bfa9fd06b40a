//! The latch: its transitions one by one and, under loom, all interleavings of the orders that matter.

#[cfg(not(loom))]
mod transitions {
    use crate::buffer::latch::{Latch, Obstacle, SHARED_HOLDERS_MAX, State};

    fn unlocked() -> Latch {
        let latch = Latch::default();
        assert!(latch.claim_free());
        latch.release(true);
        latch
    }

    #[test]
    fn fresh_latch_is_free_and_gives_nothing() {
        let latch = Latch::default();
        assert_eq!(latch.state(), State::Free);
        assert_eq!(latch.begin_read(), None);
        assert_eq!(latch.begin_read_slow(), Err(Obstacle::Free));
        assert_eq!(latch.try_exclusive(), Err(Obstacle::Free));
        assert_eq!(latch.try_shared(), Err(Obstacle::Free));
        assert!(!latch.claim_evicted() && !latch.claim_marked() && !latch.mark());
    }

    #[test]
    fn change_makes_readers_restart_and_no_change_does_not() {
        let latch = unlocked();
        let version = latch.begin_read().expect("unlocked");
        latch.try_exclusive().expect("unlocked");
        assert!(latch.validate(version).is_err(), "a writer is there");
        assert_eq!(latch.begin_read_slow(), Err(Obstacle::Busy));
        latch.release(false);
        assert!(latch.validate(version).is_ok(), "nothing was written");
        latch.try_exclusive().expect("unlocked");
        latch.release(true);
        assert!(latch.validate(version).is_err());
        assert!(latch.upgrade(version).is_err() && latch.upgrade_shared(version).is_err());
    }

    #[test]
    fn readers_keep_writers_out_but_not_other_readers() {
        let latch = unlocked();
        let version = latch.begin_read().expect("unlocked");
        for n in 1..=SHARED_HOLDERS_MAX {
            latch.try_shared().expect("room for one more");
            assert_eq!(latch.state(), State::Shared(n));
        }
        assert_eq!(latch.try_shared(), Err(Obstacle::Busy), "the counter is full");
        assert!(latch.upgrade_shared(version).is_err(), "the counter is full");
        assert_eq!(latch.try_exclusive(), Err(Obstacle::Busy));
        assert!(latch.upgrade(version).is_err() && !latch.mark());
        assert!(latch.validate(version).is_ok());
        (0..SHARED_HOLDERS_MAX).for_each(|_| latch.release_shared());
        assert_eq!(latch.state(), State::Unlocked);
        assert!(latch.upgrade(version).is_ok());
    }

    #[test]
    fn touching_a_marked_page_saves_it() {
        let latch = unlocked();
        let version = latch.begin_read().expect("unlocked");
        assert!(latch.mark() && !latch.mark());
        assert!(latch.validate(version).is_ok(), "marking changes no bytes");
        assert_eq!(latch.begin_read(), None, "the hot path leaves it to the slow one");
        assert_eq!(latch.begin_read_slow(), Ok(version));
        assert_eq!(latch.state(), State::Unlocked);
        assert!(!latch.claim_marked(), "it was touched");
        assert!(latch.mark());
        latch.try_shared().expect("in memory");
        assert_eq!(latch.state(), State::Shared(1));
        latch.release_shared();
        assert!(latch.mark() && latch.upgrade(version).is_ok());
    }

    #[test]
    fn evicted_page_must_be_brought_in_and_is_another_version() {
        let latch = unlocked();
        let version = latch.begin_read().expect("unlocked");
        assert!(latch.mark() && latch.claim_marked());
        latch.release_to(State::Evicted);
        assert_eq!(latch.try_shared(), Err(Obstacle::Evicted));
        assert_eq!(latch.begin_read_slow(), Err(Obstacle::Evicted));
        assert!(latch.validate(version).is_err());
        assert!(latch.claim_evicted() && !latch.claim_evicted());
        latch.release(true);
        assert!(latch.begin_read().expect("in memory") > version);
    }

    #[test]
    fn version_survives_freeing_and_reuse() {
        let latch = unlocked();
        let version = latch.begin_read().expect("unlocked");
        latch.try_exclusive().expect("unlocked");
        latch.release_to(State::Free);
        assert!(latch.validate(version).is_err());
        assert!(latch.claim_free());
        assert!(latch.version_after(true) > version);
        latch.release(true);
        assert!(latch.validate(version).is_err());
        assert!(!latch.set_evicted(), "the page is in use");
    }
}

#[cfg(loom)]
mod interleavings {
    use crate::base::{PageId, Result};
    use crate::buffer::latch::{Latch, LatchWait};
    use crate::buffer::{PageBytesMut, PageSource, Pool};
    use crate::sync::Arc;
    use crate::sync::atomic::{AtomicU64, Ordering};
    use loom::thread::spawn;

    /// A latch and a "page" of two words that writers keep equal.
    struct Page {
        latch: Latch,
        words: [AtomicU64; 2],
    }

    impl Page {
        fn new() -> Arc<Page> {
            let page = Page { latch: Latch::default(), words: [AtomicU64::new(0), AtomicU64::new(0)] };
            assert!(page.latch.claim_free());
            page.latch.release(true);
            Arc::new(page)
        }

        /// Adds one to both words; the caller holds Exclusive.
        fn increment(&self) {
            let mut bytes = PageBytesMut::new(&self.words);
            let next = bytes.word(0) + 1;
            assert_eq!(bytes.word(1) + 1, next, "a writer saw another writer's half");
            bytes.set_word(0, next);
            bytes.set_word(1, next);
            self.latch.release(true);
        }

        fn increment_when_possible(&self) {
            let mut wait = LatchWait::default();
            while self.latch.try_exclusive().is_err() {
                wait.pause();
            }
            self.increment();
        }

        fn pair(&self) -> (u64, u64) {
            (self.words[0].load(Ordering::Relaxed), self.words[1].load(Ordering::Relaxed))
        }
    }

    #[test]
    fn validated_read_is_never_torn() {
        loom::model(|| {
            let page = Page::new();
            let writer = page.clone();
            let writer = spawn(move || {
                writer.increment_when_possible();
                writer.increment_when_possible();
            });
            if let Some(version) = page.latch.begin_read() {
                let (a, b) = page.pair();
                if page.latch.validate(version).is_ok() {
                    assert_eq!(a, b);
                }
            }
            writer.join().expect("no panic");
        });
    }

    #[test]
    fn upgrade_keeps_what_was_read_before_it_true() {
        loom::model(|| {
            let page = Page::new();
            let other = page.clone();
            let writer = spawn(move || other.increment_when_possible());
            if let Some(version) = page.latch.begin_read() {
                let (a, b) = page.pair();
                if page.latch.upgrade(version).is_ok() {
                    assert_eq!((a, a), (b, page.pair().0), "the page was not changed in between");
                    page.increment();
                }
            }
            writer.join().expect("no panic");
            let (a, b) = page.pair();
            assert_eq!(a, b);
        });
    }

    #[test]
    fn shared_holder_sees_whole_pages_without_validation() {
        loom::model(|| {
            let page = Page::new();
            let other = page.clone();
            let writer = spawn(move || other.increment_when_possible());
            let version = page.latch.begin_read();
            let before = page.pair();
            let held = match version {
                Some(version) if page.latch.upgrade_shared(version).is_ok() => {
                    assert_eq!(before, page.pair());
                    true
                }
                _ => page.latch.try_shared().is_ok(),
            };
            if held {
                let (a, b) = page.pair();
                assert_eq!(a, b);
                page.latch.release_shared();
            }
            writer.join().expect("no panic");
            assert_eq!(page.pair(), (1, 1));
        });
    }

    #[test]
    fn two_writers_never_lose_an_update() {
        loom::model(|| {
            let page = Page::new();
            let other = page.clone();
            let writer = spawn(move || other.increment_when_possible());
            page.increment_when_possible();
            writer.join().expect("no panic");
            page.increment_when_possible();
            assert_eq!(page.pair(), (3, 3));
        });
    }

    #[test]
    fn page_is_evicted_or_touched_but_not_both() {
        loom::model(|| {
            let page = Page::new();
            assert!(page.latch.mark());
            let other = page.clone();
            let evictor = spawn(move || other.latch.claim_marked());
            let touched = page.latch.begin_read_slow().is_ok();
            let claimed = evictor.join().expect("no panic");
            assert!(touched != claimed);
        });
    }

    struct Sevens;

    impl PageSource for Sevens {
        fn read_page(&self, _page: PageId, into: &mut [u8]) -> Result<()> {
            into.fill(7);
            Ok(())
        }
    }

    #[test]
    fn page_is_brought_in_once_and_whole() {
        loom::model(|| {
            let pool = Pool::new(64, 64, std::sync::Arc::new(Sevens)).expect("small");
            pool.restore([PageId(1)].into_iter()).expect("one page");
            let other = pool.clone();
            let reader = spawn(move || {
                let guard = other.optimistic(PageId(1)).expect("there is an image");
                let last = guard.bytes().word(7);
                assert!(guard.validate().is_err() || last == 0x0707_0707_0707_0707);
            });
            let guard = pool.shared(PageId(1)).expect("there is an image");
            assert_eq!(guard.bytes().word(7), 0x0707_0707_0707_0707);
            drop(guard);
            reader.join().expect("no panic");
            assert_eq!(pool.resident_pages(), 1);
        });
    }
}
