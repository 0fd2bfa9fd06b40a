//! Checkpoints of a tree that keeps changing: the sum of their images.
//!
//! A checkpoint epoch works as the real one: a page's image shows the moment at which the epoch
//! began. The first structure change to a page in an epoch makes the images of all participants
//! first; at the end all other pages are imaged. The images together must be a sound tree with
//! exactly the rows of that moment. That fails if the observer is called late, twice or for too few
//! pages, if a new page gets the wrong epoch, or if an older value finds no room.

use crate::base::random::Random;
use crate::base::{Error, PageId, Result};
use crate::buffer::{ExclusiveGuard, FrameTable, PageBytes, PageSource, Pool};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex};
use crate::tree::image::{Resolved, image_page, validate_image};
use crate::tree::{EntryMeta, LeafHint, Tree, TreeObserver, max_entry_bytes};
use std::collections::{BTreeMap, HashMap};

type Images = BTreeMap<PageId, Vec<u8>>;
type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Default)]
struct Epoch {
    number: u32,
    images: Images,
    /// By stamp: the value that the snapshot has instead of an entry written after it.
    older: HashMap<u64, Option<Vec<u8>>>,
}

/// An observer to which stamps seen by the running epoch's snapshot are settled.
#[derive(Default)]
struct Checkpoint {
    /// The last stamp given out.
    stamp: AtomicU64,
    horizon: AtomicU64,
    /// True if an epoch begins in the next structure change, after it has allocated its pages.
    begin: AtomicBool,
    changes: AtomicU64,
    epoch: Mutex<Epoch>,
}

impl Checkpoint {
    fn begin_epoch(&self, frames: &FrameTable) {
        self.horizon.store(self.stamp.load(Ordering::Relaxed), Ordering::Relaxed);
        frames
            .begin_epoch(|number| {
                *self.epoch.lock() = Epoch { number, ..Epoch::default() };
                Ok(())
            })
            .expect("it does not fail");
    }

    fn image(&self, page: PageId, bytes: PageBytes<'_>) {
        let horizon = self.horizon.load(Ordering::Relaxed);
        let mut epoch = self.epoch.lock();
        let mut out = vec![0; bytes.len()];
        image_page(bytes, &mut out, &mut |meta, _, older| {
            if meta.stamp <= horizon {
                return if meta.tombstone { Resolved::Absent } else { Resolved::Keep };
            }
            match &epoch.older[&meta.stamp] {
                Some(value) => older.extend_from_slice(value),
                None => return Resolved::Absent,
            }
            Resolved::Older
        });
        validate_image(&out).expect("an image");
        assert!(epoch.images.insert(page, out).is_none(), "{page} was imaged twice");
    }
}

impl TreeObserver for Checkpoint {
    fn is_settled(&self, stamp: u64) -> bool {
        stamp <= self.horizon.load(Ordering::Relaxed)
    }

    fn before_structure_change(&self, participants: &[&ExclusiveGuard<'_>]) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        if self.begin.swap(false, Ordering::Relaxed) {
            self.begin_epoch(participants[0].frames());
        }
        let number = self.epoch.lock().number;
        for guard in participants.iter().filter(|guard| guard.epoch() < number) {
            self.image(guard.page_id(), guard.bytes());
            guard.set_imaged(number);
        }
    }
}

impl PageSource for Images {
    fn read_page(&self, page: PageId, _: bool, into: &mut [u8]) -> Result<()> {
        let image = self.get(&page).ok_or_else(|| Error::corruption(format!("{page} has no image")))?;
        into.copy_from_slice(image);
        Ok(())
    }
}

#[derive(Clone)]
struct Version {
    meta: EntryMeta,
    value: Vec<u8>,
}

struct Table {
    tree: Tree,
    checkpoint: Arc<Checkpoint>,
    random: Random,
    hint: LeafHint,
    /// The content of the tree, without settled tombstones; and the earlier states of
    /// the others, the newest last.
    live: BTreeMap<Vec<u8>, Version>,
    undo: Vec<(Vec<u8>, Option<Version>)>,
    epoch: u32,
    /// The rows when the epoch began.
    snapshot: Rows,
}

impl Table {
    fn new(page_bytes: usize, seed: u64) -> Table {
        let checkpoint = Arc::new(Checkpoint::default());
        let tree = Tree::create(super::pool(page_bytes, 8_000), checkpoint.clone()).expect("room");
        let (random, hint) = (Random::from_seed(seed), LeafHint::default());
        let (live, undo, snapshot) = Default::default();
        Table { tree, checkpoint, random, hint, live, undo, epoch: 0, snapshot }
    }

    fn key(&mut self) -> Vec<u8> {
        let n = self.random.below(3_000) as u32;
        [&b"common/"[..(n % 8) as usize], &(n / 3).to_be_bytes(), &b"tail"[..(n % 3) as usize]].concat()
    }

    fn put(&mut self) {
        let key = self.key();
        let longest = max_entry_bytes(self.tree.pool.page_bytes()) - key.len();
        let len = match self.random.below(10) {
            0 => longest,
            1..5 => 0,
            _ => self.random.below(longest as u64 / 2) as usize,
        };
        self.change(key, false, len);
    }

    fn change(&mut self, key: Vec<u8>, tombstone: bool, len: usize) {
        let mut write = self.tree.write(&key, len, &mut self.hint).expect("room");
        // A settled tombstone may be purged or not.
        let before = write.entry().map(|meta| {
            let mut value = Vec::new();
            write.copy_value(&mut value);
            Version { meta, value }
        });
        notice_epoch(&self.checkpoint, &mut self.epoch, &mut self.snapshot, &self.live, &mut self.undo);
        let stamp = self.checkpoint.stamp.fetch_add(1, Ordering::Relaxed) + 1;
        self.checkpoint.epoch.lock().older.insert(stamp, self.snapshot.get(&key).cloned());
        let value = vec![stamp as u8; len];
        write.put(stamp, tombstone, &value);
        drop(write);
        self.undo.push((key.clone(), before));
        self.live.insert(key, Version { meta: EntryMeta { stamp, tombstone, large: false }, value });
    }

    /// Undoes the last changes, as an abort does; that never needs room.
    fn abort(&mut self, changes: u64) {
        let structure_changes = self.checkpoint.changes.load(Ordering::Relaxed);
        for _ in 0..changes {
            let Some((key, before)) = self.undo.pop() else { break };
            let mut write = self.tree.write(&key, 0, &mut self.hint).expect("an abort needs no room");
            match &before {
                Some(before) => write.put(before.meta.stamp, before.meta.tombstone, &before.value),
                None => write.remove(),
            }
            drop(write);
            match before {
                Some(before) => drop(self.live.insert(key, before)),
                None => drop(self.live.remove(&key)),
            }
        }
        assert_eq!(self.checkpoint.changes.load(Ordering::Relaxed), structure_changes);
    }

    fn purge(&mut self, key: &[u8]) {
        self.tree.purge(key).expect("readable");
        notice_epoch(&self.checkpoint, &mut self.epoch, &mut self.snapshot, &self.live, &mut self.undo);
    }

    /// Begins the epoch now, or in the middle of the first structure change.
    fn begin_epoch(&mut self) {
        if self.random.below(2) == 0 {
            self.checkpoint.begin.store(true, Ordering::Relaxed);
        } else {
            self.checkpoint.begin_epoch(self.tree.pool.frames());
            notice_epoch(&self.checkpoint, &mut self.epoch, &mut self.snapshot, &self.live, &mut self.undo);
        }
    }

    /// Makes changes of all kinds.
    fn mix(&mut self) {
        for _ in 0..self.random.below(2_500) {
            match self.random.below(200) {
                0 => {
                    let changes = self.random.below(500);
                    self.abort(changes);
                }
                1..20 => {
                    let key = self.key();
                    self.purge(&key);
                }
                20..60 => {
                    let key = self.key();
                    self.change(key, true, 0);
                }
                _ => self.put(),
            }
        }
    }

    /// Makes all rows short, fills space that seems free, and sometimes makes the rows long again:
    /// one transaction aborts, the other does not.
    fn squeeze(&mut self) {
        for key in self.live.keys().cloned().collect::<Vec<_>>() {
            self.change(key, false, 0);
        }
        for _ in 0..2_000 {
            let key = self.key();
            if !self.live.contains_key(&key) {
                self.change(key, false, 20);
            }
        }
        if self.random.below(2) == 0 {
            let undo = std::mem::take(&mut self.undo);
            let (shortened, new): (Vec<_>, Vec<_>) =
                undo.into_iter().partition(|(_, before)| before.is_some());
            self.undo = shortened;
            self.abort(u64::MAX);
            self.undo = new;
        }
    }

    /// Deletes nearly all rows, or purges them, so that the tree shrinks to its root.
    fn empty(&mut self, purge: bool) {
        for key in self.live.keys().cloned().collect::<Vec<_>>() {
            if purge {
                self.purge(&key);
            } else if self.random.below(100) > 0 {
                self.change(key, true, 0);
            }
        }
    }

    fn end_epoch(&mut self) {
        if self.checkpoint.begin.swap(false, Ordering::Relaxed) {
            return;
        }
        let number = self.checkpoint.epoch.lock().number;
        for page in self.tree.check_invariants().expect("sound").page_ids {
            let guard = self.tree.pool.shared(page).expect("resident");
            if self.tree.pool.frames().epoch_of(page) < number {
                self.checkpoint.image(page, guard.bytes());
                self.tree.pool.frames().set_imaged(page, number);
            }
        }
        let images = std::mem::take(&mut self.checkpoint.epoch.lock().images);
        let pages: Vec<PageId> = images.keys().copied().collect();
        let page_bytes = self.tree.pool.page_bytes();
        let pool = Pool::new(page_bytes, 8_000 * page_bytes as u64, Arc::new(images)).expect("small");
        pool.restore(pages.iter().copied()).expect("each once");
        let restored = Tree::open(pool, Arc::new(Checkpoint::default()), self.tree.root());
        let mut found: Vec<PageId> =
            restored.check_invariants().expect("a sound tree").page_ids.into_iter().collect();
        found.sort();
        assert_eq!(found, pages, "images that belong to nobody");
        let rows: Rows = super::all(&restored, 50).into_iter().collect();
        assert!(rows == self.snapshot, "the images are not the tree of the moment when the epoch began");
    }
}

fn rows(live: &BTreeMap<Vec<u8>, Version>) -> Rows {
    let present = live.iter().filter(|(_, version)| !version.meta.tombstone);
    present.map(|(key, version)| (key.clone(), version.value.clone())).collect()
}

/// Called after every possible structure change, before anything else changes.
fn notice_epoch(
    checkpoint: &Checkpoint,
    epoch: &mut u32,
    snapshot: &mut Rows,
    live: &BTreeMap<Vec<u8>, Version>,
    undo: &mut Vec<(Vec<u8>, Option<Version>)>,
) {
    let number = checkpoint.epoch.lock().number;
    if std::mem::replace(epoch, number) != number {
        *snapshot = rows(live);
        undo.clear();
    }
}

fn run(page_bytes: usize, seed: u64) {
    let mut table = Table::new(page_bytes, seed);
    for round in 0..12 {
        table.begin_epoch();
        match round % 4 {
            1 => table.squeeze(),
            2 => table.empty(false),
            3 => table.empty(true),
            _ => table.mix(),
        }
        table.end_epoch();
    }
    let mut found = Rows::new();
    for (key, _) in super::all(&table.tree, 50) {
        match super::get(&table.tree, &key).expect("just seen") {
            (meta, value) if !meta.tombstone => drop(found.insert(key, value)),
            _ => (),
        }
    }
    assert!(found == rows(&table.live), "the tree itself is wrong");
}

#[test]
fn images_of_an_epoch_are_the_tree_of_its_beginning() {
    let seeds = if cfg!(miri) { 1 } else { 25 };
    for seed in 0..seeds {
        run(1024, seed);
        run(4096, seed + 1_000);
    }
}
