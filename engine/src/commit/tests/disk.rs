//! A disk for tests of this layer: remembers what is durable, can be slow, fail, or hold writes
//! back.

use crate::base::clock::Clock;
use crate::base::{Error, Location, Result};
use crate::device::{
    Completion, DeviceFacts, Directory, DurabilityMethod, EntryKind, File, OpenMode, Storage, WriteQueue,
    WriteRequest,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Files by path. Cloning shares them.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    files: Mutex<BTreeMap<String, Arc<DiskFile>>>,
    /// Durable writes begun so far, and the one from which on all fail (0: none).
    writes: AtomicU64,
    fails_from: AtomicU64,
    /// The one that panics (0: none).
    panics_at: AtomicU64,
    delay_us: AtomicU64,
    /// A clock that each durable write moves, and how far.
    takes: Mutex<Option<(Clock, Duration)>>,
    /// If set, a queue completes one write at a time, the newest first.
    reverse: AtomicBool,
    /// Keep nothing, for measurements.
    discard: AtomicBool,
    held: (Mutex<bool>, Condvar),
    /// Files that are lengthened are held, too; how many are.
    holds_growth: AtomicBool,
    growing: AtomicU64,
}

#[derive(Debug)]
pub struct DiskFile {
    path: String,
    shared: Arc<Shared>,
    bytes: Mutex<Bytes>,
}

#[derive(Debug, Default)]
struct Bytes {
    visible: Vec<u8>,
    durable: Vec<u8>,
}

impl Disk {
    pub fn fail_from_write(&self, nth: u64) {
        self.shared.fails_from.store(nth, Ordering::SeqCst);
    }
    pub fn panic_at_write(&self, nth: u64) {
        self.shared.panics_at.store(nth, Ordering::SeqCst);
    }
    pub fn set_delay(&self, delay: Duration) {
        self.shared.delay_us.store(delay.as_micros() as u64, Ordering::SeqCst);
    }
    /// Each durable write moves a manual clock.
    #[cfg(feature = "shuttle")]
    pub fn each_write_takes(&self, time: Duration, clock: &Clock) {
        *self.shared.takes.lock().expect("no panic") = Some((clock.clone(), time));
    }
    /// Writes take their time and are forgotten.
    pub fn discard(&self) {
        self.shared.discard.store(true, Ordering::SeqCst);
    }
    pub fn complete_in_reverse(&self) {
        self.shared.reverse.store(true, Ordering::SeqCst);
    }
    /// Durable writes stop until [`Disk::release`].
    pub fn hold(&self) {
        *self.shared.held.0.lock().expect("no panic") = true;
    }
    /// As [`Disk::hold`], and files are not lengthened either.
    pub fn hold_growth(&self) {
        self.shared.holds_growth.store(true, Ordering::SeqCst);
        self.hold();
    }
    /// Files that are held in the middle of being lengthened.
    pub fn growing(&self) -> u64 {
        self.shared.growing.load(Ordering::SeqCst)
    }
    pub fn release(&self) {
        *self.shared.held.0.lock().expect("no panic") = false;
        self.shared.held.1.notify_all();
    }
    pub fn forget(&self) {
        self.shared.files.lock().expect("no panic").clear();
    }
    pub fn writes(&self) -> u64 {
        self.shared.writes.load(Ordering::SeqCst)
    }
    /// What a power cut would leave of each file.
    pub fn durable(&self) -> BTreeMap<String, Vec<u8>> {
        let files = self.shared.files.lock().expect("no panic");
        files.iter().map(|(p, f)| (p.clone(), f.bytes.lock().expect("no panic").durable.clone())).collect()
    }
}

impl Shared {
    fn await_release(&self) {
        let mut held = self.held.0.lock().expect("no panic");
        while *held {
            held = self.held.1.wait(held).expect("no panic");
        }
    }

    fn durable_write(&self) -> Result<()> {
        let nth = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
        let delay = self.delay_us.load(Ordering::SeqCst);
        if delay > 0 {
            std::thread::sleep(Duration::from_micros(delay));
        }
        if let Some((clock, time)) = &*self.takes.lock().expect("no panic") {
            clock.advance(*time);
        }
        self.await_release();
        assert!(nth != self.panics_at.load(Ordering::SeqCst), "planned");
        let fails_from = self.fails_from.load(Ordering::SeqCst);
        if fails_from != 0 && nth >= fails_from {
            return Err(Error::io("simulated failure", std::io::Error::from_raw_os_error(5)));
        }
        Ok(())
    }
}

fn put(bytes: &mut Vec<u8>, offset: u64, new: &[u8]) {
    let end = offset as usize + new.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset as usize..end].copy_from_slice(new);
}

impl File for DiskFile {
    fn location(&self, offset: u64) -> Location {
        Location::File { path: self.path.clone(), offset }
    }
    fn len(&self) -> Result<u64> {
        Ok(self.bytes.lock().expect("no panic").visible.len() as u64)
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let bytes = self.bytes.lock().expect("no panic");
        let range = offset as usize..offset as usize + buffer.len();
        let found = bytes.visible.get(range).ok_or_else(|| Error::corruption("short file"))?;
        buffer.copy_from_slice(found);
        Ok(())
    }
    fn write_at(&self, offset: u64, new: &[u8]) -> Result<()> {
        put(&mut self.bytes.lock().expect("no panic").visible, offset, new);
        Ok(())
    }
    fn write_durable_at(&self, offset: u64, new: &[u8]) -> Result<()> {
        self.shared.durable_write()?;
        if self.shared.discard.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut bytes = self.bytes.lock().expect("no panic");
        put(&mut bytes.visible, offset, new);
        put(&mut bytes.durable, offset, new);
        Ok(())
    }
    fn flush(&self) -> Result<()> {
        let mut bytes = self.bytes.lock().expect("no panic");
        bytes.durable = bytes.visible.clone();
        Ok(())
    }
    fn zero_extend(&self, len: u64, _rest: &mut dyn FnMut(Duration)) -> Result<()> {
        if self.shared.holds_growth.load(Ordering::SeqCst) {
            self.shared.growing.fetch_add(1, Ordering::SeqCst);
            self.shared.await_release();
        }
        self.set_len(len)
    }
    fn reserve(&self, _from: u64, _to: u64) -> Result<()> {
        Ok(())
    }
    fn set_len(&self, len: u64) -> Result<()> {
        let mut bytes = self.bytes.lock().expect("no panic");
        bytes.visible.resize(len as usize, 0);
        bytes.durable.resize(len as usize, 0);
        Ok(())
    }
}

impl Directory for Disk {
    fn open(&self, path: &str, _mode: OpenMode) -> Result<Arc<dyn File>> {
        let mut files = self.shared.files.lock().expect("no panic");
        let file = files.entry(path.to_string()).or_insert_with(|| {
            let bytes = Mutex::new(Bytes::default());
            Arc::new(DiskFile { path: path.to_string(), shared: self.shared.clone(), bytes })
        });
        Ok(file.clone())
    }
    fn remove(&self, path: &str) -> Result<()> {
        self.shared.files.lock().expect("no panic").remove(path);
        Ok(())
    }
    fn entries(&self, directory: &str) -> Result<Vec<(String, EntryKind)>> {
        let files = self.shared.files.lock().expect("no panic");
        let prefix = format!("{directory}/");
        let names = files.keys().filter_map(|path| path.strip_prefix(&prefix));
        Ok(names.map(|name| (name.to_string(), EntryKind::File)).collect())
    }
    fn create_directory(&self, _path: &str) -> Result<()> {
        Ok(())
    }
    fn flush_directory(&self, _directory: &str) -> Result<()> {
        Ok(())
    }
}

impl Storage for Disk {
    fn lock(&self, _exclusive: bool) -> Result<Box<dyn Send + Sync>> {
        Ok(Box::new(()))
    }
    fn facts(&self) -> DeviceFacts {
        DeviceFacts {
            name: "test disk".into(),
            volatile_cache: true,
            fua: true,
            direct_io: Ok(()),
            io_uring: Ok(()),
            append_only: false,
            extent_bytes: None,
            device_number: 1,
        }
    }
    fn durability(&self) -> DurabilityMethod {
        DurabilityMethod::Dsync
    }
    fn shares_flush(&self) -> bool {
        true
    }
    fn flush_together(&self, files: &[Arc<dyn File>]) -> Result<()> {
        self.shared.durable_write()?;
        files.iter().try_for_each(|file| file.flush())
    }
    fn write_queue(&self, _depth: usize) -> Result<Box<dyn WriteQueue>> {
        Ok(Box::new(DiskQueue { disk: self.clone(), flying: Vec::new(), since: Instant::now() }))
    }
}

/// Writes happen when they are reaped: until then nothing is durable, as on a slow disk.
struct DiskQueue {
    disk: Disk,
    flying: Vec<WriteRequest>,
    since: Instant,
}

impl WriteQueue for DiskQueue {
    fn submit(&mut self, request: WriteRequest) -> Result<()> {
        self.since = Instant::now();
        self.flying.push(request);
        Ok(())
    }
    fn reap(&mut self, wait: bool, done: &mut Vec<Completion>) -> Result<()> {
        if self.disk.shared.discard.load(Ordering::SeqCst) {
            let delay = Duration::from_micros(self.disk.shared.delay_us.load(Ordering::SeqCst));
            let left = delay.saturating_sub(self.since.elapsed());
            if left.is_zero() || wait {
                std::thread::sleep(left);
                let all = self.flying.drain(..);
                done.extend(all.map(|w| Completion { token: w.token, buffer: w.buffer, result: Ok(()) }));
            }
            return Ok(());
        }
        if !wait && !self.disk.writes().is_multiple_of(3) {
            // Not finished yet, from the view of a caller that does not wait.
            self.disk.shared.writes.fetch_add(1, Ordering::SeqCst);
            return Ok(());
        }
        // The newest alone, or all.
        let newest = self.disk.shared.reverse.load(Ordering::SeqCst);
        let from = if newest { self.flying.len().saturating_sub(1) } else { 0 };
        for WriteRequest { file, offset, buffer, len, durable, token } in self.flying.drain(from..) {
            let bytes = &buffer[..len];
            let result =
                if durable { file.write_durable_at(offset, bytes) } else { file.write_at(offset, bytes) };
            done.push(Completion { token, buffer, result });
        }
        Ok(())
    }
    fn in_flight(&self) -> usize {
        self.flying.len()
    }
}
