//! Futures that wait for commits, and wakers that are not as they should be.

use super::super::core::levels;
use super::failure::in_time;
use super::*;
use std::sync::Barrier;
use std::sync::mpsc;

/// Calls this once.
struct Once<F>(Mutex<Option<F>>);

impl<F: FnOnce() + Send> std::task::Wake for Once<F> {
    fn wake(self: Arc<Self>) {
        let run = self.0.lock().take();
        run.into_iter().for_each(|run| run());
    }
}

fn waker(run: impl FnOnce() + Send + 'static) -> Waker {
    Waker::from(Arc::new(Once(Mutex::new(Some(run)))))
}

impl World {
    /// Returns a commit that the disk holds up, and that was polled once with `waker`.
    fn polled(&self, waker: &Waker) -> Ticket {
        self.disk.hold();
        let ticket = self.asynchronous(0, Csn::ZERO, Durability::Durable).expect("room");
        assert!(self.commit.waits().poll(ticket, waker, &mut WakerPlace::default()).is_none());
        ticket
    }
}

/// Presets whose commits do not write before they return, and that have something to hold up.
fn held_up_by_the_disk() -> Vec<Settings> {
    let mut settings = all();
    settings.retain(|settings| settings.preset != Preset::PerTransaction);
    assert!(settings.len() >= 7, "of the eight points that a short run takes");
    settings
}

/// Regression: the flusher acknowledged a transaction that had been left to it until W passed, and
/// did not call the transaction's waker.
#[test]
fn a_waker_is_called_by_the_late_acknowledger() {
    let settings = settings(Preset::Autonomous).with_protocol(|axes| axes.dependency = Some(Dependency::Dsn));
    let world = World::with(settings, Hooks::default());
    let core = &world.commit;
    let leads: Vec<_> = core
        .durability
        .logs
        .iter()
        .map(|writer| world.commit.writes.try_become_leader(writer).expect("free"))
        .collect();
    let write = |log: usize| {
        let block = core.durability.logs[log].take_block().expect("one");
        core.writes.write_inline(
            &core.durability.logs[log],
            block,
            &world.commit.inspect().metrics().leader_flushes,
        );
    };
    let first = world.asynchronous(0, Csn::ZERO, Durability::Lazy).expect("room");
    let second = world.asynchronous(1, first.csn, Durability::Durable).expect("room");
    write(1);
    core.acknowledgments.publish();
    let (woken, is_woken) = mpsc::channel();
    let waker = waker(move || woken.send(()).expect("the receiver exists"));
    assert!(world.commit.waits().poll(second, &waker, &mut WakerPlace::default()).is_none());
    // Durable, and not published.
    write(0);
    core.acknowledgments.schedule(levels::NOW);
    is_woken.recv_timeout(Duration::from_secs(300)).expect("the waker is called");
    drop(leads);
}

/// Regression: the acknowledging thread called wakers while it was the log's leader. A waker that
/// waited for another commit of that log hung, and so did every commit behind it.
#[test]
fn a_waker_that_blocks_holds_up_other_wakers_only() {
    for settings in held_up_by_the_disk() {
        let what = format!("{settings:?}");
        let world = Arc::new(World::with(settings, Hooks::default()));
        let (both, theirs) = (Arc::new(Barrier::new(2)), world.clone());
        let meets = both.clone();
        let first = world.polled(&waker(move || {
            theirs.blocking(0, Csn::ZERO).expect("commits");
            meets.wait();
        }));
        let (woken, second) = mpsc::channel();
        world.polled(&waker(move || woken.send(()).expect("the receiver exists")));
        world.disk.release();
        let theirs = world.clone();
        in_time(&what, move || {
            theirs.commit.waits().wait([first], None).expect("commits");
            theirs.blocking(0, Csn::ZERO).expect("commits");
        });
        assert!(second.try_recv().is_err(), "it is called behind the first");
        both.wait();
        second.recv_timeout(Duration::from_secs(30)).expect("called");
    }
}

#[test]
fn a_waker_that_panics_is_no_fault_of_the_engine() {
    for settings in held_up_by_the_disk() {
        let world = World::with(settings, Hooks::default());
        world.polled(&waker(|| panic!("as this test wants it")));
        let (woken, second) = mpsc::channel();
        world.polled(&waker(move || woken.send(()).expect("the receiver exists")));
        world.disk.release();
        second.recv_timeout(Duration::from_secs(30)).expect("called");
        world.blocking(0, Csn::ZERO).expect("not poisoned");
    }
}
