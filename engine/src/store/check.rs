//! Does every block belong to one thing only, or to several images, and is it marked as used by as many?
//!
//! The mapping was checked when it was loaded (M1); this looks whether rounds have kept it so. One hold of the lock, so
//! that no round changes anything meanwhile; no block is read.

use super::blocks::{BlockNumber, BlockRef};
use super::{PageStore, State};
use crate::base::PageId;
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
    /// Every use of a block, by the last committed round, by the one that is being written, and for the next one.
    fn uses(&self) -> impl Iterator<Item = (Owner, BlockNumber)> {
        let mapping = &self.mapping;
        let directory = mapping.directory().iter().enumerate();
        let directory = directory.map(|(index, reference)| (Owner::Directory(index), *reference));
        let parts = (0..mapping.part_count()).flat_map(move |part| {
            let pages = mapping.page_ids(part).into_iter();
            let pages = pages.map(move |page| (Owner::Page(page), mapping.get(page)));
            std::iter::once((Owner::Mapping(part), mapping.stored(part))).chain(pages)
        });
        let new = [&self.round, &self.working].into_iter().flat_map(move |overlay| {
            let pages = overlay.parts().flat_map(|part| overlay.part(part).map(move |image| (part, image)));
            pages.map(move |(part, (slot, reference))| (Owner::NewImage(mapping.id(part, slot)), reference))
        });
        let references = directory.chain(parts).chain(new);
        let present = references.filter(|(_, reference): &(Owner, BlockRef)| !reference.is_absent());
        let catalog = self.catalog_blocks.iter().enumerate();
        present
            .map(|(owner, reference)| (owner, reference.block()))
            .chain(catalog.map(|(index, block)| (Owner::Catalog(index), *block)))
    }
}

impl PageStore {
    /// What is wrong with the use of space: blocks with more owners than they can have, and blocks in use that are marked as free.
    #[must_use]
    pub fn check_space(&self) -> Vec<String> {
        let state = self.state.lock();
        let mut owners = vec![0u8; state.free.blocks() as usize];
        let (mut problems, mut shared) = (Vec::new(), HashMap::<BlockNumber, Vec<Owner>>::new());
        for (owner, block) in state.uses() {
            if block.0 >= state.free.blocks() || !state.free.is_used(block) {
                problems.push(format!("the block of {owner} is marked as free (at {})", self.place(block)));
            } else if owners[block.0 as usize] >= state.free.users(block) {
                // More than were ever noted (F4).
                shared.insert(block, Vec::new());
            } else {
                owners[block.0 as usize] += 1;
            }
            if problems.len() + shared.len() >= PROBLEMS_MAX {
                break;
            }
        }
        if !shared.is_empty() {
            for (owner, block) in state.uses() {
                if let Some(owners) = shared.get_mut(&block) {
                    owners.push(owner);
                }
            }
        }
        for (block, owners) in shared {
            let names: Vec<String> = owners.iter().map(Owner::to_string).collect();
            problems.push(format!("{} share a block (at {})", names.join(" and "), self.place(block)));
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
    use crate::store::blocks::BlockKind;

    #[test]
    fn blocks_that_are_shared_or_marked_as_free_are_found() {
        let store = PageStore::create(&MemoryStorage::new(), DatabaseId(1), 4096).expect("memory");
        for csn in 1..=2 {
            let round = store.begin_round(csn as u32, Csn(csn)).expect("no other round");
            for page in 1..=600 {
                let mut image = AlignedBuffer::zeroed(4096);
                let block = store.write_block(BlockKind::Page, page, &mut image, Csn(csn)).expect("memory");
                round.record(PageId(page), block);
            }
            round.write_blob(b"catalog").expect("memory");
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
}
