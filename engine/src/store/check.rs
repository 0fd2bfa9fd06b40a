//! Does every block belong to one thing only, or to several images, and is it marked as used by as many?
//!
//! The mapping was checked when it was loaded (M1); this looks whether rounds have kept it so. It lets others in now and then. What they
//! change meanwhile is not judged: to which blocks that happens is noted. No block is read.
//!
//! While no round is open, every reference that is noted (F4) is known: it stands for something in the mapping, in an overlay, in the
//! catalog, for the header, for something that is replaced but held for readers and backups, for an image that is with a writer, or for a block whose write failed
//! (F3). So a block with fewer of these than are noted is leaked: nobody would ever give it back. A round has blocks in its hands that are
//! in no table (its catalog, its parts of the mapping), and an undecided one keeps them: while there is one leaks are not looked for. Whoever wants to
//! know keeps checkpoints from running. After an open there are none, since free space is derived.

use super::blocks::{BlockNumber, BlockRef};
use super::lock::{SLICE, looked_at};
use super::{PageStore, Phase, State};
use crate::base::PageId;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;

/// More than this help nobody.
const PROBLEMS_MAX: usize = 100;

/// What refers to a block.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Directory(usize),
    Mapping(usize),
    Page(PageId),
    NewImage(PageId),
    Catalog(usize),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Directory(index) => write!(f, "directory block {index}"),
            Owner::Mapping(index) => write!(f, "mapping block {index}"),
            Owner::Page(page) => write!(f, "{page:?}"),
            Owner::NewImage(page) => write!(f, "the new image of {page:?}"),
            Owner::Catalog(index) => write!(f, "part {index} of the catalog"),
        }
    }
}

impl State {
    /// Every use of a block by the last committed round, but for those in parts of the mapping.
    fn other_uses(&self) -> impl Iterator<Item = (Owner, BlockNumber)> {
        let directory = self.mapping.directory().iter().enumerate();
        let directory = directory.map(|(index, reference)| (Owner::Directory(index), *reference));
        let catalog = self.catalog_blocks.iter().enumerate();
        present(directory).chain(catalog.map(|(index, block)| (Owner::Catalog(index), *block)))
    }

    /// Every use of a block in one part of the mapping, by the last committed round, by the one that is being written, and for the next one.
    fn uses_in(&self, part: usize) -> impl Iterator<Item = (Owner, BlockNumber)> {
        let mapping = &self.mapping;
        let stored = std::iter::once((Owner::Mapping(part), mapping.stored(part)));
        let pages = mapping.page_ids(part).into_iter();
        let pages = pages.map(move |page| (Owner::Page(page), mapping.get(page)));
        let new = [&self.round, &self.working].into_iter().flat_map(move |overlay| overlay.part(part));
        let new = new.map(move |(slot, reference)| (Owner::NewImage(mapping.id(part, slot)), reference));
        present(stored.chain(pages).chain(new))
    }

    fn part_count(&self) -> usize {
        self.mapping.part_count().max(self.round.part_count()).max(self.working.part_count())
    }
}

fn present(uses: impl Iterator<Item = (Owner, BlockRef)>) -> impl Iterator<Item = (Owner, BlockNumber)> {
    uses.filter(|(_, reference)| !reference.is_absent()).map(|(owner, reference)| (owner, reference.block()))
}

impl PageStore {
    /// What is wrong with the use of space: blocks with more owners than they can have, blocks in use that are marked as free, and, unless
    /// a round is open, blocks that are marked as used by more than there is. One at a time.
    #[must_use]
    pub fn check_space(&self) -> Vec<String> {
        let (blocks, number) = {
            let mut state = self.state.lock();
            state.free.watch(true);
            (state.free.blocks(), (state.phase == Phase::Idle).then_some(state.number))
        };
        let mut owners = vec![0u8; blocks as usize];
        let (mut problems, mut shared) = (Vec::new(), HashMap::<BlockNumber, Vec<Owner>>::new());
        self.visit_uses(&mut |state, owner, block| {
            if state.free.has_changed(block) || problems.len() + shared.len() >= PROBLEMS_MAX {
                return;
            }
            if block.0 >= blocks || !state.free.is_used(block) {
                problems.push(format!("the block of {owner} is marked as free (at {})", self.place(block)));
            } else if owners[block.0 as usize] >= state.free.users(block) {
                // More than were ever noted (F4).
                shared.insert(block, Vec::new());
            } else {
                owners[block.0 as usize] += 1;
            }
        });
        if !shared.is_empty() {
            self.visit_uses(&mut |_, owner, block| {
                if let Some(owners) = shared.get_mut(&block) {
                    owners.push(owner);
                }
            });
        }
        for (block, owners) in shared {
            let names: Vec<String> = owners.iter().map(Owner::to_string).collect();
            problems.push(format!("{} share a block (at {})", names.join(" and "), self.place(block)));
        }
        if let (true, Some(number)) = (problems.is_empty(), number) {
            problems.extend(self.miscounted(number, &owners));
        }
        self.state.lock().free.watch(false);
        problems
    }

    /// Every use of a block by what is in a table, part by part: each page is looked at once, wherever its images go meanwhile.
    fn visit_uses(&self, visit: &mut dyn FnMut(&State, Owner, BlockNumber)) {
        {
            let state = self.state.lock();
            state.other_uses().for_each(|(owner, block)| visit(&state, owner, block));
        }
        for part in 0.. {
            self.state.let_others_in();
            let state = self.state.lock();
            if part >= state.part_count() {
                return;
            }
            for (owner, block) in state.uses_in(part) {
                looked_at(1);
                visit(&state, owner, block);
            }
        }
    }

    /// How many things are held in each block.
    fn held(&self) -> HashMap<BlockNumber, u8> {
        let mut held = HashMap::<BlockNumber, u8>::new();
        let generations = self.state.lock().free.held_for();
        for generation in generations {
            for skipped in (0..).step_by(SLICE) {
                self.state.let_others_in();
                let state = self.state.lock();
                let mut blocks = state.free.held(generation, skipped).take(SLICE).peekable();
                if blocks.peek().is_none() {
                    break;
                }
                blocks.for_each(|block| {
                    looked_at(1);
                    *held.entry(block).or_default() += 1;
                });
            }
        }
        held
    }

    /// Blocks whose references are not as many as are noted, unless there was a round since `number`, or is one. `owners`: of each block, those
    /// in tables, which are not too many.
    fn miscounted(&self, number: u32, owners: &[u8]) -> Vec<String> {
        let mut held = self.held();
        // The header (B2).
        held.insert(BlockNumber(0), 1);
        let (mut first, mut leaked, mut problems) = (None, 0u64, Vec::new());
        for (slice, owners) in owners.chunks(SLICE).enumerate() {
            self.state.let_others_in();
            let state = self.state.lock();
            if state.phase != Phase::Idle || state.number != number {
                return Vec::new();
            }
            for (at, owners) in owners.iter().enumerate() {
                looked_at(1);
                let block = BlockNumber((slice * SLICE + at) as u64);
                let noted = state.free.users(block);
                let others = held.get(&block).copied().unwrap_or(0) + state.unsettled.of(block, noted);
                match noted.cmp(&(owners + others)) {
                    Ordering::Equal => {}
                    _ if state.free.has_changed(block) => {}
                    Ordering::Greater => {
                        first.get_or_insert(block);
                        leaked += 1;
                    }
                    Ordering::Less if problems.len() < PROBLEMS_MAX => problems.push(format!(
                        "a block has {owners} images or other content and {others} that somebody may need, but {noted} are noted (at {})",
                        self.place(block)
                    )),
                    Ordering::Less => {}
                }
            }
        }
        if let Some(first) = first {
            problems.push(format!(
                "leaked block: {leaked} are marked as used by more than there is, the first at {}",
                self.place(first)
            ));
        }
        problems
    }

    fn place(&self, block: BlockNumber) -> crate::base::Location {
        self.source.file.location(block.0 * self.source.page_bytes as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Csn, DatabaseId};
    use crate::device::AlignedBuffer;
    use crate::device::memory::MemoryStorage;
    use crate::device::simulated::{Fault, FaultKind, OperationKind, SimulatedStorage};
    use crate::store::blocks::BlockKind;
    use crate::store::{Heat, ImageKind, Round};
    use std::sync::Arc;

    #[test]
    fn blocks_that_are_shared_or_marked_as_free_are_found() {
        let store = PageStore::create(&MemoryStorage::new(), DatabaseId(1), 4096).expect("memory");
        for csn in 1..=2 {
            let round = written(&store, csn, 600);
            assert_eq!(store.check_space(), [""; 0], "in the middle of a round");
            let finished = round.finish().expect("memory");
            store.round_committed(finished);
            assert_eq!(store.check_space(), [""; 0]);
        }
        let (first, second) = {
            let mut state = store.state.lock();
            let (first, second) = (state.mapping.get(PageId(7)), state.mapping.get(PageId(550)));
            state.mapping.set(PageId(7), second);
            state.free.release(first.block());
            (first, second)
        };
        let problems = store.check_space();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("page 7 and page 550 share a block"), "{problems:?}");
        {
            let mut state = store.state.lock();
            state.mapping.set(PageId(7), first);
            state.free.release(second.block());
        }
        let problems = store.check_space();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].contains("page 7 is marked as free"), "{problems:?}");
        assert!(problems[1].contains("page 550 is marked as free"), "{problems:?}");
    }

    /// A round that is to be finished, with an image of each of so many pages.
    fn written(store: &Arc<PageStore>, csn: u64, pages: u64) -> Round {
        let round = store.begin_round(csn as u32, Csn(csn)).expect("no other round");
        for page in 1..=pages {
            let mut image = AlignedBuffer::zeroed(4096);
            let block = store.write_block(BlockKind::Page, page, &mut image, Csn(csn)).expect("memory");
            round.record(PageId(page), block);
        }
        round.write_blob(b"catalog").expect("memory");
        round
    }

    fn rounds(store: &Arc<PageStore>, csns: std::ops::RangeInclusive<u64>) {
        for csn in csns {
            store.round_committed(written(store, csn, 20).finish().expect("memory"));
        }
    }

    #[test]
    fn blocks_that_nobody_owns_are_found_and_those_of_writers_and_holders_are_not() {
        let storage = MemoryStorage::new();
        let store = PageStore::create(&storage, DatabaseId(1), 4096).expect("memory");
        store.compress(crate::base::settings::Compression::Lz4);
        rounds(&store, 1..=2);
        let held = store.hold();
        rounds(&store, 3..=3);
        assert!(store.usage().held_blocks > 0);
        // A pack of three images: one gets into a table, one is given back, one is still with its writer.
        let mut writer = store.writer(&storage, 256 << 10).expect("a queue");
        for page in 1..=3 {
            let image = |_: &mut [u8]| Some((ImageKind::Settled, 0));
            writer.push(PageId(page), Csn(4), Heat::Cold, image).expect("memory");
            assert_eq!(store.check_space(), [""; 0], "with the writer");
        }
        let mut written = Vec::new();
        writer.reap(true, &mut written).expect("memory");
        assert!(
            written.len() == 3 && written.iter().all(|w| w.reference.block() == written[0].reference.block())
        );
        assert_eq!(store.check_space(), [""; 0], "written");
        store.record(written[0].page, written[0].reference, false);
        assert_eq!(store.check_space(), [""; 0], "one is recorded");
        store.discard(written[1].reference);
        assert_eq!(store.check_space(), [""; 0], "and one given back");
        let pack = written[2].reference.block();
        // Forgotten by its writer.
        store.state.lock().unsettled.recorded(pack, 2);
        let problems = store.check_space();
        let is_leak = |problems: &[String], blocks| {
            problems.len() == 1 && problems[0].contains(&format!("leaked block: {blocks} are marked"))
        };
        assert!(is_leak(&problems, 1), "{problems:?}");
        store.state.lock().set_working(PageId(3), written[2].reference);
        assert_eq!(store.check_space(), [""; 0]);
        drop(held);
        assert_eq!(store.check_space(), [""; 0]);
        let (lost, _) = store.state.lock().free.allocate_run(2).expect("free blocks");
        let problems = store.check_space();
        assert!(is_leak(&problems, 2), "{problems:?}");
        let place = store.place(lost).to_string();
        assert!(problems[0].ends_with(&place), "{problems:?}");
        // A round has such blocks.
        let round = store.begin_round(4, Csn(4)).expect("no other round");
        assert_eq!(store.check_space(), [""; 0]);
        drop(round);
        assert!(is_leak(&store.check_space(), 2));
    }

    #[test]
    fn a_block_whose_write_failed_is_not_leaked_and_one_that_was_given_back_too_often_is_found() {
        let disk = SimulatedStorage::new(1);
        let store = PageStore::create(&disk, DatabaseId(1), 4096).expect("a whole disk");
        rounds(&store, 1..=2);
        let free = store.usage().free_blocks;
        disk.inject(Fault { operation: OperationKind::Write, after: 0, kind: FaultKind::Once, error: 5 });
        let round = store.begin_round(3, Csn(3)).expect("no other round");
        round.write_blob(b"another catalog").expect_err("an error of the device");
        drop(round);
        assert_eq!((store.usage().free_blocks, store.check_space()), (free - 1, vec![]), "F3");
        {
            let mut state = store.state.lock();
            // Held for somebody who reads the last checkpoint, and in the mapping still.
            let (generation, reference) = (state.free.hold(), state.mapping.get(PageId(5)));
            state.free.committed(generation + 1, Vec::new());
            state.free.release_image(PageId(5), reference.block());
        }
        let problems = store.check_space();
        assert!(problems.len() == 1 && problems[0].contains("but 1 are noted"), "{problems:?}");
    }
}
