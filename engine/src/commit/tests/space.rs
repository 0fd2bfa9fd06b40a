//! Waiting for log space: how long, and with which result.

use super::*;
use std::sync::atomic::AtomicUsize;

impl World {
    fn fill_log(&self) {
        self.commit.environment.segments.pretend_full(true);
    }

    fn free_log(&self) {
        self.commit.environment.segments.pretend_full(false);
        self.commit.space().recycle(Csn::MAX, Csn::MAX).expect("recycles");
    }
}

/// Returns a commit layer without log space, whose clock is moved by hand, and the number of looks
/// for space by committers.
fn world_without_space() -> (World, Arc<AtomicUsize>) {
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = looks.clone();
    let on_log_pressure = Box::new(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let hooks = Hooks { on_log_pressure, ..Hooks::default() };
    let world = World::with_clock(settings(Preset::Group), hooks, Clock::manual());
    world.fill_log();
    (world, looks)
}

#[test]
fn a_full_log_asks_for_space_and_continues_with_it() {
    let (world, looks) = world_without_space();
    std::thread::scope(|scope| {
        let committer = scope.spawn(|| world.blocking(0, Csn::ZERO));
        eventually("asked", || looks.load(Ordering::SeqCst) > 0);
        assert_eq!(world.commit.progress().newest_drawn(), Csn(0), "nothing is drawn before there is space");
        world.free_log();
        committer.join().expect("no panic").expect("commits");
    });
}

/// Regression: a simulated clock leapt to the end of another thread's sleep of 15 seconds, while
/// the thread that makes segments had no turn. The next look refused the commit, though the log was
/// nearly empty.
#[test]
fn a_wait_for_log_space_outlives_a_clock_that_leaps() {
    let (world, looks) = world_without_space();
    let looks = || looks.load(Ordering::SeqCst);
    std::thread::scope(|scope| {
        let committer = scope.spawn(|| world.blocking(0, Csn::ZERO));
        for _ in 0..3 {
            let before = looks();
            eventually("it looks", || looks() > before);
            world.clock.advance(Duration::from_secs(15));
            // The second of these looks began after the leap.
            let before = looks();
            eventually("it looks again", || looks() > before + 1 || committer.is_finished());
            assert!(!committer.is_finished(), "a leap is one look");
        }
        world.free_log();
        committer.join().expect("no panic").expect("commits");
    });
}

#[test]
fn a_wait_for_log_space_ends() {
    let (world, looks) = world_without_space();
    std::thread::scope(|scope| {
        let committer = scope.spawn(|| world.blocking(0, Csn::ZERO));
        while !committer.is_finished() {
            let before = looks.load(Ordering::SeqCst);
            world.clock.advance(WaitTimer::POLL_INTERVAL_MAX);
            eventually("it looks", || looks.load(Ordering::SeqCst) > before || committer.is_finished());
        }
        let refused = committer.join().expect("no panic").expect_err("there is no space");
        assert_eq!(refused.kind(), ErrorKind::OutOfSpace);
        assert!(refused.to_string().contains("log_bytes_max"), "{refused}");
    });
    assert!(world.clock.now().since(Nanos(0)) >= crate::commit::core::append::SPACE_WAIT);
    assert!(looks.load(Ordering::SeqCst) >= 499, "the last one is refused");
}
