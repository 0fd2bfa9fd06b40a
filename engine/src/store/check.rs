//! Checks that every block in use has the owners that its reference count claims.
//!
//! The mapping was checked when it was loaded (M1); this checks that checkpoints kept it correct.
//! The check yields the lock now and then. It ignores blocks that change meanwhile, which the
//! allocator records. It reads no block.
//!
//! While no checkpoint is open, every counted reference (F4) is known. It is in the mapping, an
//! overlay, or the catalog; or it stands for the header, for held content, for an image with a
//! writer, or for a block whose write failed (F3). A block with a higher count is leaked: it would
//! never be freed. An open or undecided checkpoint has blocks that are in no table (its catalog,
//! its parts of the mapping), so the check for leaks needs a caller that keeps checkpoints from
//! running. After an open no block is leaked, because free space is derived.

use super::block::{BlockNumber, BlockRef};
use super::mapping::Images;
use super::page_store::PageStore;
use super::state::{Phase, State};
use super::yielding_lock::{SLICE, examined};
use crate::base::PageId;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;

/// Problems listed, at most.
const PROBLEMS_MAX: usize = 100;

/// The owner of a reference.
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

impl Images {
    /// Uses of blocks by the last committed checkpoint, without the parts of the mapping.
    fn other_uses(&self) -> impl Iterator<Item = (Owner, BlockNumber)> {
        let directory = self.mapping.directory().iter().enumerate();
        let directory = directory.map(|(index, reference)| (Owner::Directory(index), *reference));
        let catalog = self.catalog_blocks.iter().enumerate();
        present(directory).chain(catalog.map(|(index, block)| (Owner::Catalog(index), *block)))
    }

    /// Uses of blocks in one part of the mapping: by the last committed checkpoint, by the open
    /// one, and for the next one.
    fn uses_in(&self, part: usize) -> impl Iterator<Item = (Owner, BlockNumber)> {
        let mapping = &self.mapping;
        let stored = std::iter::once((Owner::Mapping(part), mapping.stored(part)));
        let pages = mapping.page_ids(part).into_iter();
        let pages = pages.map(move |page| (Owner::Page(page), mapping.get(page)));
        let new = [&self.in_checkpoint, &self.next].into_iter().flat_map(move |overlay| overlay.part(part));
        let new = new.map(move |(slot, reference)| (Owner::NewImage(mapping.id(part, slot)), reference));
        present(stored.chain(pages).chain(new))
    }
}

fn present(uses: impl Iterator<Item = (Owner, BlockRef)>) -> impl Iterator<Item = (Owner, BlockNumber)> {
    uses.filter(|(_, reference)| !reference.is_absent()).map(|(owner, reference)| (owner, reference.block()))
}

struct SpaceCheck<'a> {
    store: &'a PageStore,
}

impl PageStore {
    /// Returns problems in the use of space: blocks with too many owners, used blocks that are
    /// marked as free, and, unless a checkpoint is open, leaked blocks. One call at a time.
    #[must_use]
    pub fn check_space(&self) -> Vec<String> {
        SpaceCheck { store: self }.run()
    }
}

impl SpaceCheck<'_> {
    fn run(&self) -> Vec<String> {
        let (blocks, number) = {
            let mut state = self.store.state.lock();
            state.blocks.free.fills.watch(true);
            (
                state.blocks.free.bitmap.blocks(),
                (state.checkpoint.phase == Phase::Idle).then_some(state.checkpoint.epoch),
            )
        };
        let mut owners = vec![0u8; blocks as usize];
        let (mut problems, mut shared) = (Vec::new(), HashMap::<BlockNumber, Vec<Owner>>::new());
        self.visit_uses(&mut |state, owner, block| {
            if state.blocks.free.fills.has_changed(block) || problems.len() + shared.len() >= PROBLEMS_MAX {
                return;
            }
            if block.0 >= blocks || !state.blocks.free.bitmap.is_used(block) {
                problems.push(format!(
                    "the block of {owner} is marked as free (at {})",
                    self.store.file.location(block)
                ));
            } else if owners[block.0 as usize] >= state.blocks.free.fills.live(block) {
                // More owners than were counted (F4).
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
            problems.push(format!(
                "{} share a block (at {})",
                names.join(" and "),
                self.store.file.location(block)
            ));
        }
        if let (true, Some(number)) = (problems.is_empty(), number) {
            problems.extend(self.miscounted(number, &owners));
        }
        self.store.state.lock().blocks.free.fills.watch(false);
        problems
    }

    /// Visits every use of a block by a table, in parts. Each page is visited once, wherever its
    /// images move meanwhile.
    fn visit_uses(&self, visit: &mut dyn FnMut(&State, Owner, BlockNumber)) {
        {
            let state = self.store.state.lock();
            state.images.other_uses().for_each(|(owner, block)| visit(&state, owner, block));
        }
        for part in 0.. {
            self.store.state.yield_to_waiters();
            let state = self.store.state.lock();
            if part >= state.images.part_count() {
                return;
            }
            for (owner, block) in state.images.uses_in(part) {
                examined(1);
                visit(&state, owner, block);
            }
        }
    }

    /// Returns the number of held items in each block.
    fn held(&self) -> HashMap<BlockNumber, u8> {
        let mut held = HashMap::<BlockNumber, u8>::new();
        let generations = self.store.state.lock().blocks.free.held_for();
        for generation in generations {
            for skipped in (0..).step_by(SLICE) {
                self.store.state.yield_to_waiters();
                let state = self.store.state.lock();
                let mut blocks = state.blocks.free.held(generation, skipped).take(SLICE).peekable();
                if blocks.peek().is_none() {
                    break;
                }
                blocks.for_each(|block| {
                    examined(1);
                    *held.entry(block).or_default() += 1;
                });
            }
        }
        held
    }

    /// Returns blocks whose reference count differs from their references, unless a checkpoint
    /// began after epoch `number` or is open. `owners`: the references in tables, for each block.
    fn miscounted(&self, number: u32, owners: &[u8]) -> Vec<String> {
        let mut held = self.held();
        // The header (B2).
        held.insert(BlockNumber(0), 1);
        let (mut first, mut leaked, mut problems) = (None, 0u64, Vec::new());
        for (slice, owners) in owners.chunks(SLICE).enumerate() {
            self.store.state.yield_to_waiters();
            let state = self.store.state.lock();
            if state.checkpoint.phase != Phase::Idle || state.checkpoint.epoch != number {
                return Vec::new();
            }
            for (at, owners) in owners.iter().enumerate() {
                examined(1);
                let block = BlockNumber((slice * SLICE + at) as u64);
                let noted = state.blocks.free.fills.live(block);
                let others = held.get(&block).copied().unwrap_or(0)
                    + state.blocks.in_flight.references_to(block, noted);
                match noted.cmp(&(owners + others)) {
                    Ordering::Equal => {}
                    _ if state.blocks.free.fills.has_changed(block) => {}
                    Ordering::Greater => {
                        first.get_or_insert(block);
                        leaked += 1;
                    }
                    Ordering::Less if problems.len() < PROBLEMS_MAX => problems.push(format!(
                        "a block has {owners} images or other content and {others} that somebody may need, but {noted} are noted (at {})",
                        self.store.file.location(block)
                    )),
                    Ordering::Less => {}
                }
            }
        }
        if let Some(first) = first {
            problems.push(format!(
                "leaked block: {leaked} are marked as used by more than there is, the first at {}",
                self.store.file.location(first)
            ));
        }
        problems
    }
}

#[cfg(test)]
mod tests;
