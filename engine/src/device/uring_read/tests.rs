//! Unit tests of `uring_read`.

use super::*;
use std::io::Write;
use std::os::fd::AsRawFd;

#[test]
fn reads_beyond_the_ring_complete_and_short_ones_are_returned() {
    if super::super::uring::available().is_err() {
        return;
    }
    let mut file = tempfile::tempfile().expect("a file");
    let bytes: Vec<u8> = (0..300u32).flat_map(u32::to_le_bytes).collect();
    file.write_all(&bytes).expect("written");
    let many = ManyReads::default();
    for _ in 0..2 {
        let mut buffers = vec![[0u8; 4]; 301];
        let mut reads: Vec<_> = (0u64..)
            .zip(&mut buffers)
            .map(|(index, buffer)| ReadRequest { offset: (300 - index) * 4, buffer, result: Ok(()) })
            .collect();
        let mut done = Vec::new();
        let again = many.read(file.as_raw_fd(), &mut reads, &mut |index, read| {
            assert_eq!(*read.buffer, (300 - index as u32).to_le_bytes());
            done.push(index);
        });
        assert_eq!(again, [0], "the first lies behind the end");
        done.sort_unstable();
        assert_eq!(done, (1..301).collect::<Vec<_>>(), "each of the others once");
        assert!((1..301).all(|index| u32::from_le_bytes(buffers[index]) == 300 - index as u32));
    }
    assert_eq!(many.idle.lock().len(), 1);
}

#[test]
fn panicking_callback_waits_for_reads_in_flight() {
    if super::super::uring::available().is_err() {
        return;
    }
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(&[7; 64 * 512]).expect("written");
    let many = ManyReads::default();
    let mut buffers = vec![[0u8; 512]; 64];
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut reads: Vec<_> = (0u64..)
            .zip(&mut buffers)
            .map(|(index, buffer)| ReadRequest { offset: index * 512, buffer, result: Ok(()) })
            .collect();
        many.read(file.as_raw_fd(), &mut reads, &mut |_, _| panic!("the first is enough"));
    }));
    assert!(panicked.is_err());
    // All were started together, and none is on its way any more.
    assert!(buffers.iter().all(|buffer| buffer.iter().all(|byte| *byte == 7)));
    assert_eq!(many.idle.lock().len(), 1, "the ring is kept");
}
/// A ring was kept for ever for each of the most calls that there ever were at the same time.
#[test]
fn concurrent_calls_keep_a_bounded_number_of_rings() {
    if super::super::uring::available().is_err() {
        return;
    }
    let many = ManyReads::default();
    let flight = |_| Flight { ring: IoUring::new(2).ok(), reads: 0, home: &many.idle };
    let flights: Vec<_> = (0..2 * IDLE_MOST).map(flight).collect();
    assert!(flights.iter().filter(|flight| flight.ring.is_some()).count() > IDLE_MOST, "rings can be made");
    drop(flights);
    assert_eq!(many.idle.lock().len(), IDLE_MOST);
}
