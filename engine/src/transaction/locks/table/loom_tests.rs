//! Loom: locks and latches do not miss each other.

use super::*;
use crate::buffer::latch::Latch;
use crate::transaction::descriptor::Descriptors;
use loom::sync::Arc;

struct World {
    locks: TableLocks,
    latch: Latch,
    /// The row: the number of changes.
    row: AtomicU64,
}

/// A reader locks the key, then reads the leaf without a latch. A writer latches the leaf, then
/// looks for locks. One of the two sees the other (rule 1).
#[test]
fn a_reader_and_a_writer_do_not_miss_each_other() {
    loom::model(|| {
        let descriptors = Descriptors::default();
        let [reader, writer] = std::array::from_fn(|_| descriptors.take_any().expect("free"));
        let world =
            Arc::new(World { locks: TableLocks::default(), latch: Latch::default(), row: AtomicU64::new(0) });
        assert!(world.latch.claim_free());
        world.latch.release(true);
        let other = world.clone();
        let writes = loom::thread::spawn(move || {
            let latched = other.latch.try_exclusive().is_ok();
            let mut found = Vec::new();
            if latched {
                if other.locks.is_any() {
                    other.locks.forbid_change(b"k", writer, &mut found);
                }
                if found.is_empty() {
                    other.row.store(1, Ordering::Relaxed);
                }
                other.latch.release(found.is_empty());
            }
            latched && found.is_empty()
        });
        world.locks.lock_key(b"k", Held { id: reader, mode: LockMode::Shared, since: Nanos(0) });
        let read = world.latch.begin_read().and_then(|version| {
            let row = world.row.load(Ordering::Relaxed);
            world.latch.validate(version).is_ok().then_some(row)
        });
        let has_written = writes.join().expect("no panic");
        assert!(read != Some(0) || !has_written, "the row changed under a lock of its reader");
    });
}
