//! Starting the thread.

use super::*;
use crate::base::PageId;
use crate::buffer::read_ahead::Work;
use crate::buffer::test_sources::{Images, PAGE_BYTES};

#[test]
fn thread_that_was_not_started_gets_no_work() {
    let pool = Pool::new(PAGE_BYTES, 64 * PAGE_BYTES as u64, Arc::new(Images::default())).expect("small");
    let refused = ReadAheadThread::start_by(&pool, |_| Err(std::io::ErrorKind::WouldBlock.into()));
    assert!(refused.is_err());
    let ask = || pool.read_ahead.ask(Work::Load(vec![PageId(1), PageId(2)]));
    assert!(ask().is_err(), "no thread would do it");
    let _thread = ReadAheadThread::start(&pool).expect("a thread");
    assert!(ask().is_ok());
}
