//! Mapped memory for tests of this module: a store is durable when its thread has fenced, or when
//! any thread has sent a barrier. A power cut keeps nothing else.

use crate::device::mapped::{MappedMemory, MemoryFacts, Primitive, Survives};
use crate::sync::thread;
use std::sync::{Mutex, mpsc};
use std::time::Duration;

#[derive(Debug)]
pub struct Mapped {
    bytes: Mutex<Bytes>,
    panic: Mutex<Option<Panic>>,
    /// Offset, bytes and node of each request for a node.
    placed: Mutex<Vec<(u64, u64, u32)>>,
}

/// To come in a store or a fence.
#[derive(Debug)]
struct Panic {
    /// So many come before.
    after: u64,
    reached: mpsc::Sender<()>,
    go_on: mpsc::Receiver<()>,
}

#[derive(Clone, Debug)]
struct Bytes {
    visible: Vec<u8>,
    durable: Vec<u8>,
    /// By thread, in the order of the stores.
    under_way: Vec<(u64, usize, Vec<u8>)>,
}

fn put(to: &mut [u8], at: usize, bytes: &[u8]) {
    to[at..at + bytes.len()].copy_from_slice(bytes);
}

impl Mapped {
    pub fn new(bytes: u64) -> Mapped {
        let zeros = vec![0; bytes as usize];
        Mapped::of(Bytes { visible: zeros.clone(), durable: zeros, under_way: Vec::new() })
    }

    fn of(bytes: Bytes) -> Mapped {
        Mapped { bytes: Mutex::new(bytes), panic: Mutex::default(), placed: Mutex::default() }
    }

    /// Lets `after` stores or fences pass. The next one reports on the returned receiver, waits for
    /// a message from the returned sender, and panics.
    pub fn panic_later(&self, after: u64) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
        let ((reached, is_reached), (tell, go_on)) = (mpsc::channel(), mpsc::channel());
        *self.panic.lock().expect("no panic under it") = Some(Panic { after, reached, go_on });
        (is_reached, tell)
    }

    /// Cancels the planned panic, unless a thread has already reached it.
    pub fn calm(&self) {
        *self.panic.lock().expect("no panic under it") = None;
    }

    fn may_panic(&self) {
        let mut panic = self.panic.lock().expect("no panic under it");
        if let Some(planned) = panic.as_mut().filter(|planned| planned.after > 0) {
            planned.after -= 1;
        } else if let Some(planned) = panic.take() {
            drop(panic);
            planned.reached.send(()).expect("the test waits");
            planned.go_on.recv().expect("the test continues");
            panic!("planned");
        }
    }

    /// Returns offset, bytes and node of each request for a node.
    pub fn placed(&self) -> Vec<(u64, u64, u32)> {
        self.placed.lock().expect("no panic").clone()
    }

    /// What a power cut leaves.
    pub fn after_power_cut(&self) -> Mapped {
        let mut left = self.bytes.lock().expect("no panic").clone();
        left.under_way.clear();
        left.visible = left.durable.clone();
        Mapped::of(left)
    }

    fn fence_all(&self, of: impl Fn(u64) -> bool) {
        // A fencing thread may be interrupted here.
        thread::yield_now();
        let mut bytes = self.bytes.lock().expect("no panic");
        let (fenced, left) = std::mem::take(&mut bytes.under_way).into_iter().partition(|(by, ..)| of(*by));
        bytes.under_way = left;
        let fenced: Vec<(u64, usize, Vec<u8>)> = fenced;
        fenced.iter().for_each(|(_, at, stored)| put(&mut bytes.durable, *at, stored));
    }
}

impl MappedMemory for Mapped {
    fn facts(&self) -> MemoryFacts {
        MemoryFacts {
            path: "mapped".into(),
            bytes: self.bytes(),
            survives: Survives::PowerCut,
            reason: "a test".into(),
            primitive: Primitive::Unknown,
            latency: Duration::ZERO,
        }
    }
    fn bytes(&self) -> u64 {
        self.bytes.lock().expect("no panic").visible.len() as u64
    }
    fn load(&self, offset: u64, into: &mut [u8]) {
        let bytes = self.bytes.lock().expect("no panic");
        into.copy_from_slice(&bytes.visible[offset as usize..offset as usize + into.len()]);
    }
    fn store(&self, offset: u64, stored: &[u8]) {
        self.may_panic();
        let mut bytes = self.bytes.lock().expect("no panic");
        put(&mut bytes.visible, offset as usize, stored);
        bytes.under_way.push((thread::number(), offset as usize, stored.to_vec()));
    }
    fn fence(&self) {
        self.may_panic();
        let own = thread::number();
        self.fence_all(|by| by == own);
    }
    fn barrier(&self) {
        self.fence_all(|_| true);
    }
    fn flush(&self) {
        self.barrier();
    }
    fn place(&self, offset: u64, bytes: u64, node: u32) {
        self.placed.lock().expect("no panic").push((offset, bytes, node));
    }
}
