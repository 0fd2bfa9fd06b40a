//! The mapped memory of a simulated storage. Its operations are in the journal of the disk.

use super::change::Change;
use super::faults::OperationKind;
use super::storage::SimulatedStorage;
use crate::device::mapped::{MappedMemory, MemoryFacts, Primitive, Survives, WORD_BYTES};
use crate::device::memory::OWN_MEMORY;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The mapped memory of a [`SimulatedStorage`].
#[derive(Debug)]
pub(super) struct SimulatedMemory {
    pub(super) storage: SimulatedStorage,
    pub(super) latency: Duration,
    pub(super) has_durable_cache: bool,
}

/// Returns a number of the calling thread.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

impl SimulatedMemory {
    /// Performs `change`. Memory reports no errors; after a stop nothing happens.
    fn change(&self, change: Change) {
        let _ = self.storage.change(OperationKind::Memory, OWN_MEMORY, 0, change);
    }
}

impl MappedMemory for SimulatedMemory {
    fn facts(&self) -> MemoryFacts {
        MemoryFacts {
            path: OWN_MEMORY.into(),
            bytes: self.bytes(),
            survives: Survives::PowerCut,
            reason: "simulated".into(),
            primitive: Primitive::Unknown,
            latency: self.latency,
        }
    }

    fn bytes(&self) -> u64 {
        self.storage.shared.disk.lock().now.memory().len()
    }

    fn load(&self, offset: u64, into: &mut [u8]) {
        let disk = self.storage.shared.disk.lock();
        disk.now.memory().visible().read(offset, into).expect("inside the memory");
    }

    fn store(&self, offset: u64, bytes: &[u8]) {
        let aligned = offset.is_multiple_of(WORD_BYTES as u64) && bytes.len().is_multiple_of(WORD_BYTES);
        assert!(aligned && offset + bytes.len() as u64 <= self.bytes(), "whole words inside the memory");
        let thread = this_thread();
        self.change(Change::Store { thread, offset, bytes: bytes.into() });
        if self.has_durable_cache {
            // A crash between the two leaves any words of this store, the last of the thread.
            self.change(Change::Fence { thread: Some(thread) });
        }
    }

    fn is_durable_when_stored(&self) -> bool {
        self.has_durable_cache
    }

    fn fence(&self) {
        if !self.storage.shared.disk.lock().ignore_fences {
            self.change(Change::Fence { thread: Some(this_thread()) });
        }
    }

    fn barrier(&self) {
        if !self.storage.shared.disk.lock().ignore_fences {
            self.change(Change::Fence { thread: None });
        }
    }

    fn flush(&self) {
        self.change(Change::FlushMemory);
    }
}
