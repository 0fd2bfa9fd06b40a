//! The latch: its transitions one by one and, under loom, all interleavings of the orders that
//! matter.

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
        assert!(
            !latch.claim_evicted() && !latch.claim_marked(super::super::Version::default()) && !latch.mark()
        );
    }

    #[test]
    fn change_makes_readers_restart_and_no_change_does_not() {
        let latch = unlocked();
        let version = latch.begin_read().expect("unlocked");
        latch.try_exclusive().expect("unlocked");
        assert!(latch.validate(version).is_err(), "a writer holds it");
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
        assert!(!latch.claim_marked(version), "it was touched");
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
        assert!(
            latch.mark()
                && !latch.claim_marked(super::super::Version::default())
                && latch.claim_marked(version)
        );
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
    //! Loom runs one thread at a time, so a load never returns a store that comes later in that
    //! order. A checked cell therefore tests that shared holders' loads stay before the next
    //! writer's stores.
    //!
    //! Writers store without loading first: see `Latch::peek`. Without one of the fences, or with a
    //! weaker ordering anywhere in the latch, one of these tests fails.

    use crate::base::{PageId, Result};
    use crate::buffer::latch::{Latch, State};
    use crate::buffer::{Interrupt, PageBytes, PageBytesMut, PageSource, Pool};
    use crate::sync::atomic::AtomicU64;
    use loom::cell::UnsafeCell;
    use loom::thread::spawn;
    use std::sync::Arc;

    /// A latch and a "page" of two words that writers keep equal.
    struct Page {
        latch: Latch,
        words: [AtomicU64; 2],
        /// Stands for page memory that only holders access.
        held: UnsafeCell<u64>,
    }

    // SAFETY: loom checks that the accesses to `held` do not race; that is the point of the tests.
    unsafe impl Sync for Page {}
    // SAFETY: as above.
    unsafe impl Send for Page {}

    impl Page {
        fn new() -> Arc<Page> {
            let words = [AtomicU64::new(0), AtomicU64::new(0)];
            let page = Page { latch: Latch::default(), words, held: UnsafeCell::new(0) };
            assert!(page.latch.claim_free());
            page.latch.release(true);
            Arc::new(page)
        }

        /// Writes both words; the caller holds Exclusive, which ends.
        fn write_and_release(&self, value: u64) {
            let mut bytes = PageBytesMut::new(&self.words);
            bytes.set_word(0, value);
            bytes.set_word(1, value);
            // SAFETY: loom verifies that no other thread accesses the cell.
            self.held.with_mut(|held| unsafe { *held = value });
            self.latch.release(true);
        }

        /// Makes one attempt: loom cannot explore all the ways in which two threads could spin.
        fn write(&self, value: u64) -> bool {
            let entered = self.latch.try_exclusive().is_ok();
            if entered {
                self.write_and_release(value);
            }
            entered
        }

        fn pair(&self) -> (u64, u64) {
            let bytes = PageBytes::new(&self.words);
            (bytes.word(0), bytes.word(1))
        }

        /// Returns the pair, read by a holder, which also reads the cell.
        fn held_pair(&self) -> (u64, u64) {
            // SAFETY: loom verifies that no other thread accesses the cell.
            let held = self.held.with(|held| unsafe { *held });
            let pair = self.pair();
            assert_eq!(held, pair.0);
            pair
        }

        /// Makes one attempt at a shared hold.
        fn look(&self) {
            if self.latch.try_shared().is_ok() {
                whole(self.held_pair());
                self.latch.release_shared();
            }
        }
    }

    fn whole((a, b): (u64, u64)) {
        assert_eq!(a, b, "torn");
    }

    #[test]
    fn validated_read_is_never_torn() {
        loom::model(|| {
            let page = Page::new();
            let other = page.clone();
            let writer = spawn(move || {
                assert!(other.write(1) && other.write(2), "no other thread holds it");
            });
            if let Some(version) = page.latch.begin_read() {
                let pair = page.pair();
                if page.latch.validate(version).is_ok() {
                    whole(pair);
                }
            }
            writer.join().expect("no panic");
        });
    }

    #[test]
    fn validated_read_in_reverse_order_is_never_torn() {
        loom::model(|| {
            let page = Page::new();
            let other = page.clone();
            let writer = spawn(move || other.write(1));
            if let Some(version) = page.latch.begin_read() {
                let bytes = PageBytes::new(&page.words);
                let pair = (bytes.word(1), bytes.word(0));
                if page.latch.validate(version).is_ok() {
                    whole(pair);
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
            let writer = spawn(move || other.write(1));
            let mut upgraded = false;
            if let Some(version) = page.latch.begin_read() {
                let pair = page.pair();
                upgraded = page.latch.upgrade(version).is_ok();
                if upgraded {
                    whole(pair);
                    assert_eq!(pair, page.held_pair(), "the page was not changed in between");
                    page.write_and_release(2);
                }
            }
            let written = writer.join().expect("no panic");
            assert!(upgraded || written, "one of them was first");
            whole(page.pair());
        });
    }

    #[test]
    fn shared_upgrade_keeps_what_was_read_before_it_true() {
        loom::model(|| {
            let page = Page::new();
            let other = page.clone();
            let writer = spawn(move || other.write(1));
            if let Some(version) = page.latch.begin_read() {
                let pair = page.pair();
                if page.latch.upgrade_shared(version).is_ok() {
                    whole(pair);
                    assert_eq!(pair, page.held_pair(), "the page was not changed in between");
                    page.latch.release_shared();
                }
            }
            let written = writer.join().expect("no panic");
            assert_eq!(page.pair(), if written { (1, 1) } else { (0, 0) });
        });
    }

    #[test]
    fn shared_holders_and_writers_exclude_each_other() {
        loom::model(|| {
            let page = Page::new();
            let (first, second) = (page.clone(), page.clone());
            let writer = spawn(move || first.write(1));
            let reader = spawn(move || second.look());
            page.look();
            writer.join().expect("no panic");
            reader.join().expect("no panic");
            page.look();
        });
    }

    #[test]
    fn writers_exclude_each_other() {
        loom::model(|| {
            let page = Page::new();
            let other = page.clone();
            let writer = spawn(move || other.write(1));
            let mine = page.write(2);
            let theirs = writer.join().expect("no panic");
            assert!(mine || theirs, "one of them was first");
            page.look();
        });
    }

    #[test]
    fn page_is_evicted_or_touched_but_not_both() {
        loom::model(|| {
            let page = Page::new();
            assert!(page.latch.mark());
            let version = page.latch.version_after(false);
            let other = page.clone();
            let evictor = spawn(move || {
                let claimed = other.latch.claim_marked(version);
                if claimed {
                    other.latch.release_to(State::Evicted);
                }
                claimed
            });
            let touched = page.latch.begin_read_slow();
            let valid = touched.is_ok_and(|version| page.latch.validate(version).is_ok());
            let claimed = evictor.join().expect("no panic");
            assert!(valid != claimed);
        });
    }

    struct Sevens;

    impl PageSource for Sevens {
        fn read_page(&self, _page: PageId, _own_stamps: bool, into: &mut [u8]) -> Result<()> {
            into.fill(7);
            Ok(())
        }
    }

    #[test]
    fn page_is_brought_in_once_and_whole() {
        loom::model(|| {
            let pool = Pool::new(64, 64, Arc::new(Sevens)).expect("small");
            pool.restore([PageId(1)].into_iter()).expect("one page");
            let other = pool.clone();
            let look = |pool: &Pool| match pool.try_exclusive(PageId(1)) {
                Ok(guard) => guard.bytes().word(7) == 0x0707_0707_0707_0707,
                Err(Interrupt::Restart) => false,
                Err(Interrupt::Failed(error)) => panic!("the page has an image: {error}"),
            };
            let reader = spawn(move || look(&other));
            let seen = look(&pool);
            assert!(reader.join().expect("no panic") || seen, "one of them was first");
            assert!(look(&pool));
            assert_eq!(pool.memory().resident_pages(), 1);
        });
    }
}
