//! What the store takes of the memory of its database.

use super::PageStore;
use super::overlay::Overlay;
use crate::base::Account;
use crate::device::AlignedBuffer;
use std::sync::Arc;

impl PageStore {
    /// Bytes of memory that the tables of references take.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let state = self.state.lock();
        let tables = [&state.round, &state.working].map(Overlay::memory_bytes);
        state.mapping.memory_bytes() + tables.iter().sum::<u64>() + state.free.memory_bytes()
    }

    /// Large buffers, and what is there because somebody has an older checkpoint, are charged to `memory` from now on. Once.
    pub fn charge_to(&self, memory: &Arc<Account>) {
        let _ = self.memory.set(memory.clone());
        self.state.lock().free.charge_to(memory);
    }

    pub(super) fn buffer(&self, len: usize) -> AlignedBuffer {
        match self.memory.get() {
            Some(memory) => AlignedBuffer::charged(len, memory),
            None => AlignedBuffer::zeroed(len),
        }
    }
}
