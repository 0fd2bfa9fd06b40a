//! Unit tests of `waiters`.

use super::*;
use crate::base::{Csn, LogId};
use std::task::Wake;

struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_future_leaves_one_waker_and_a_clone_another() {
    let wakers = Wakers::default();
    let ticket = |csn| Ticket { log: LogId(0), csn: Csn(csn), dsn: Csn::ZERO, is_exact: false };
    let counts: Vec<_> = (0..10).map(|_| Arc::new(Count(AtomicUsize::new(0)))).collect();
    let mut place = WakerPlace::default();
    counts[..9].iter().for_each(|count| wakers.put(ticket(1), &Waker::from(count.clone()), &mut place));
    wakers.put(ticket(1), &Waker::from(counts[9].clone()), &mut place.clone());
    assert_eq!(wakers.list.lock().wakers.len(), 2);
    wakers.wake(|decided| decided == ticket(2));
    wakers.wake(|decided| decided == ticket(1));
    wakers.end();
    while wakers.caller.calls.lock().thread != CallerState::Ended {
        std::thread::yield_now();
    }
    let woken = || counts.iter().map(|count| count.0.load(Ordering::SeqCst)).collect::<Vec<_>>();
    assert_eq!(woken(), [0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
    // From now on, the waking thread calls it.
    wakers.put(ticket(3), &Waker::from(counts[0].clone()), &mut WakerPlace::default());
    // It was woken, and polled again nevertheless.
    wakers.put(ticket(3), &Waker::from(counts[1].clone()), &mut place);
    wakers.put(ticket(3), &Waker::from(counts[2].clone()), &mut place);
    wakers.wake(|decided| decided == ticket(3));
    assert_eq!(woken()[..3], [1, 0, 1]);
}
