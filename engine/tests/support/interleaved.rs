//! A storage that runs an action before each of its operations.

use quenchdb::internals::base::{Location, Result};
use quenchdb::internals::device::{
    DeviceFacts, Directory, DurabilityMethod, EntryKind, File, OpenMode, Storage, WriteQueue,
};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

/// The kind of operation that follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Read,
    Other,
}

/// The action that runs before an operation.
pub type Interrupt = Box<dyn FnMut(Step)>;

thread_local! {
    /// The action that runs before every operation of this thread on an [`Interleaved`] storage.
    static INTERRUPT: RefCell<Option<Interrupt>> = const { RefCell::new(None) };
}

fn interrupt(step: Step) {
    // The action's own operations do not run it again, because it is taken out meanwhile.
    let taken = INTERRUPT.with(|interrupt| interrupt.borrow_mut().take());
    if let Some(mut action) = taken {
        action(step);
        INTERRUPT.with(|interrupt| *interrupt.borrow_mut() = Some(action));
    }
}

/// Sets the action of this thread.
pub fn set_interrupt(action: Option<Interrupt>) {
    INTERRUPT.with(|interrupt| *interrupt.borrow_mut() = action);
}

/// A storage that runs this thread's action before its operations.
#[derive(Debug)]
pub struct Interleaved(pub Arc<dyn Directory>);

#[derive(Debug)]
struct InterleavedFile(Arc<dyn File>);

impl Directory for Interleaved {
    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        interrupt(Step::Other);
        Ok(Arc::new(InterleavedFile(self.0.open(path, mode)?)))
    }
    fn remove(&self, path: &str) -> Result<()> {
        self.0.remove(path)
    }
    fn entries(&self, directory: &str) -> Result<Vec<(String, EntryKind)>> {
        interrupt(Step::Other);
        self.0.entries(directory)
    }
    fn create_directory(&self, path: &str) -> Result<()> {
        self.0.create_directory(path)
    }
    fn flush_directory(&self, directory: &str) -> Result<()> {
        self.0.flush_directory(directory)
    }
}

impl Storage for Interleaved {
    fn lock(&self, exclusive: bool) -> Result<Box<dyn Send + Sync>> {
        self.0.lock(exclusive)
    }
    fn facts(&self) -> DeviceFacts {
        self.0.facts()
    }
    fn durability(&self) -> DurabilityMethod {
        self.0.durability()
    }
    fn write_queue(&self, depth: usize) -> Result<Box<dyn WriteQueue>> {
        self.0.write_queue(depth)
    }
}

impl File for InterleavedFile {
    fn location(&self, offset: u64) -> Location {
        self.0.location(offset)
    }
    fn len(&self) -> Result<u64> {
        self.0.len()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        interrupt(Step::Read);
        self.0.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        interrupt(Step::Other);
        self.0.write_at(offset, bytes)
    }
    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        interrupt(Step::Other);
        self.0.write_durable_at(offset, bytes)
    }
    fn flush(&self) -> Result<()> {
        interrupt(Step::Other);
        self.0.flush()
    }
    fn zero_extend(&self, len: u64, rest: &mut dyn FnMut(Duration)) -> Result<()> {
        self.0.zero_extend(len, rest)
    }
    fn reserve(&self, from: u64, to: u64) -> Result<()> {
        self.0.reserve(from, to)
    }
    fn set_len(&self, len: u64) -> Result<()> {
        interrupt(Step::Other);
        self.0.set_len(len)
    }
    fn claim(&self) -> Result<()> {
        self.0.claim()
    }
    fn unclaim(&self) {
        self.0.unclaim();
    }
    fn try_lock(&self) -> Result<bool> {
        interrupt(Step::Other);
        self.0.try_lock()
    }
    fn is_locked(&self) -> Result<bool> {
        interrupt(Step::Other);
        self.0.is_locked()
    }
}
