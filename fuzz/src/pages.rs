//! Targets of the page store: blocks, packs, pages of trees, the mapping.

use crate::parsers::DATABASE;
use quenchdb::internals::base::checksum::crc;
use quenchdb::internals::base::{PageId, Result};
use quenchdb::internals::buffer::{ExclusiveGuard, PageSource, Pool, ScanBuffer};
use quenchdb::internals::checkpoint::{StoredCatalog, TableRecord, encode_catalog};
use quenchdb::internals::device::simulated::SimulatedStorage;
use quenchdb::internals::store::block::{self, BlockIdentity, BlockKind, BlockNumber};
use quenchdb::internals::store::pack::codec::{Codec, decompress};
use quenchdb::internals::store::{BLOCK_HEADER_BYTES, BlobRef, BlockRef, Manifest, ManifestFile, pack};
use quenchdb::internals::tree::image::{settle_image, validate_image};
use quenchdb::internals::tree::{LeafBatch, Tree, TreeObserver};
use quenchdb::{Csn, Database, Settings};
use std::ops::Bound;
use std::sync::Arc;

/// A page block or a pack, sealed as the first byte says; or bytes that a codec unpacks.
pub(crate) fn block(data: &[u8]) {
    let Some((how, data)) = data.split_first() else { return };
    let mut bytes = data.to_vec();
    bytes.resize(4096, 0);
    let mut out = vec![0; 4096];
    if how & 7 == 7 {
        for codec in [Codec::Lz4, Codec::Zstd] {
            let _ = decompress(codec, data, &mut out[..usize::from(*how) * 16 + 1]);
        }
        return;
    }
    let kind = if how & 2 == 2 { BlockKind::Pack } else { BlockKind::Page };
    let subject = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
    let identity = BlockIdentity { database: DATABASE, kind, subject };
    let reference = if how & 1 == 1 {
        block::seal(&mut bytes, identity, Csn(9), BlockNumber(3))
    } else {
        BlockRef(u64::from_le_bytes(bytes[24..32].try_into().expect("eight bytes")))
    };
    let _ = (block::identify(&bytes), block::verify_file_header(&bytes, DATABASE));
    let _ = block::verify_page(&bytes, DATABASE, PageId(subject), reference);
    if let Ok(entries) = pack::directory(&bytes, DATABASE) {
        for entry in entries {
            let _ = entry.unpack(&bytes, DATABASE, &mut out);
            let to_it = BlockRef(3 << 24 | u64::from(entry.crc & 0xff_ffff));
            let _ = pack::unpack(&bytes, DATABASE, entry.page, to_it, &mut out);
        }
    }
}

const PAGE_BYTES: usize = 1024;

/// Pages by number; a missing page equals the first.
struct Images(Vec<Vec<u8>>);

impl PageSource for Images {
    fn read_page(&self, page: PageId, _: bool, into: &mut [u8]) -> Result<()> {
        into.copy_from_slice(self.0.get(page.0 as usize - 1).unwrap_or(&self.0[0]));
        Ok(())
    }
}

struct AllSettled;

impl TreeObserver for AllSettled {
    fn is_settled(&self, _: u64) -> bool {
        true
    }

    fn before_structure_change(&self, _: &[&ExclusiveGuard<'_>]) {}
}

/// Up to four pages of a tree with the root in the first, also if they are no valid images. Any
/// answer is allowed.
pub(crate) fn page(data: &[u8]) {
    if data.is_empty() {
        return;
    }
    let pages: Vec<Vec<u8>> = data
        .chunks(PAGE_BYTES)
        .take(4)
        .map(|part| {
            let mut page = part.to_vec();
            page.resize(PAGE_BYTES, 0);
            if validate_image(&page).is_ok() {
                let mut settled = page.clone();
                settle_image(&mut settled);
                validate_image(&settled).expect("an image of an image");
            }
            page
        })
        .collect();
    let count = pages.len() as u64 + 1;
    let pool = Pool::new(PAGE_BYTES, 8 * PAGE_BYTES as u64, Arc::new(Images(pages))).expect("small");
    pool.restore((1..count).map(PageId)).expect("each once");
    let tree = Tree::open(pool, Arc::new(AllSettled), PageId(1));
    let mut value = Vec::new();
    for key in [&b""[..], b"p", b"prefix", b"prefix\x80\x01", b"prefiy", &[255; 100]] {
        let _ = tree.lookup(key, &mut value);
    }
    let mut batch = LeafBatch::default();
    let mut from = Ok(Some(Vec::new()));
    while let Ok(Some(key)) = from {
        from = tree.scan_forward(Bound::Included(&key), usize::MAX, &mut batch, &mut ScanBuffer::default());
        batch.clear();
    }
    let mut from = tree.scan_backward(Bound::Unbounded, 3, &mut batch, &mut ScanBuffer::default());
    while let Ok(Some(key)) = from {
        batch.clear();
        from = tree.scan_backward(Bound::Excluded(&key), 3, &mut batch, &mut ScanBuffer::default());
    }
    let _ = tree.check_invariants();
    let _ = tree.destroy();
}

const BLOCK_BYTES: usize = 4096;

/// A closed database with directory, mapping, catalog and pages of the input, all sealed. In
/// references of the directory and the mapping, 0xff.. - n means the nth block of the next level
/// with its checksum. The target opens, verifies, reads and writes it.
pub(crate) fn mapping(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == b'|').map(<[u8]>::to_vec);
    let (references, pages) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let mut file = vec![vec![0; BLOCK_BYTES]];
    block::seal_file_header(&mut file[0], DATABASE);
    let mut add = |content: &[u8], kind, subject| {
        let mut block = vec![0; BLOCK_BYTES];
        let len = content.len().min(BLOCK_BYTES - BLOCK_HEADER_BYTES);
        block[BLOCK_HEADER_BYTES..BLOCK_HEADER_BYTES + len].copy_from_slice(&content[..len]);
        let identity = BlockIdentity { database: DATABASE, kind, subject };
        let reference = block::seal(&mut block, identity, Csn(1), BlockNumber(file.len() as u64));
        file.push(block);
        reference
    };
    let page_refs: Vec<BlockRef> =
        (1..).zip(pages.chunks(1024).take(4)).map(|(n, page)| add(page, BlockKind::Page, n)).collect();
    let resolved = |bytes: &[u8], next: &[BlockRef]| -> Vec<u8> {
        let resolve = |word: &[u8]| match word {
            [0xf0..=0xff, ..] => {
                next.get(usize::from(0xff - word[0])).map_or(word.to_vec(), |r| r.0.to_le_bytes().to_vec())
            }
            _ => word.to_vec(),
        };
        bytes.chunks(8).flat_map(resolve).collect()
    };
    let (upper, lower) = references.split_at(references.len().min(32));
    let lower: Vec<BlockRef> = (0..)
        .zip(lower.chunks(64).take(3))
        .map(|(n, part)| add(&resolved(part, &page_refs), BlockKind::Mapping, n))
        .collect();
    let directory = add(&resolved(upper, &lower), BlockKind::Directory, 0);
    let table = TableRecord {
        id: quenchdb::internals::base::TableId(1),
        name: "t".into(),
        root: PageId(1),
        types: None,
    };
    let catalog = encode_catalog(&StoredCatalog { tables: vec![table], ..StoredCatalog::default() });
    // A blob's block: the reference of the next, and the bytes.
    let first = add(&[&[0; 8], &catalog[..]].concat(), BlockKind::Blob, 0);
    let mut manifest = Manifest::new(DATABASE, BLOCK_BYTES as u32);
    (manifest.checkpoint, manifest.covered) = (Csn(1), Csn(1));
    (manifest.first_csn, manifest.next_csn) = (Csn(2), Csn(2));
    manifest.next_table = quenchdb::internals::base::TableId(2);
    manifest.store.directory = vec![directory];
    manifest.store.pages = file.len() as u64;
    manifest.store.catalog = Some(BlobRef { first, len: catalog.len() as u64, crc: crc(&catalog) });
    let disk = SimulatedStorage::new(1);
    disk.write_file(quenchdb::internals::store::PAGES_PATH, &file.concat());
    ManifestFile::create(&disk, &manifest).expect("a whole disk");
    use_it(&disk);
}

fn use_it(disk: &SimulatedStorage) {
    let settings = Settings::default().with(|s| {
        s.memory_bytes = 1 << 20;
        s.segment_bytes = 64 << 10;
        s.lab.log_buffer_bytes = 64 << 10;
        s.log_bytes_max = 1 << 20;
        s.lab.checkpoint_log_bytes = 256 << 10;
    });
    let builder = || Database::builder().settings(settings.clone()).storage(Arc::new(disk.duplicate()));
    let _ = builder().verify("simulated", None);
    let Ok(db) = builder().open("simulated") else { return };
    let _ = db.verify(None);
    let Ok(table) = db.table("t") else { return };
    if let Ok(snapshot) = db.begin_read() {
        let _ = snapshot.range(&table, ..).take(1000).filter(Result::is_ok).count();
        let _ = snapshot.range(&table, ..).rev().take(1000).filter(Result::is_ok).count();
    }
    let _ = db.transact(|tx| {
        tx.insert(&table, "key", [7; 300])?;
        tx.remove(&table, "prefix")
    });
    let _ = db.checkpoint();
}

/// Calls `each` with a tree of one page, and with a tree of several.
pub(crate) fn small_trees(each: impl Fn(&Pool, Vec<PageId>) -> Vec<u8>) -> Vec<Vec<u8>> {
    struct None;
    impl PageSource for None {
        fn read_page(&self, page: PageId, _: bool, _: &mut [u8]) -> Result<()> {
            Err(quenchdb::Error::corruption(format!("{page} has no image")))
        }
    }
    let tree_of = |rows: u32| {
        let pool = Pool::new(PAGE_BYTES, 64 * PAGE_BYTES as u64, Arc::new(None)).expect("small");
        let tree = Tree::create(pool.clone(), Arc::new(AllSettled)).expect("room");
        for n in 0..rows {
            let key = [b"prefix".as_slice(), &n.wrapping_mul(2_654_435_761).to_be_bytes()].concat();
            let mut hint = quenchdb::internals::tree::LeafHint::default();
            tree.write(&key, 20, &mut hint).expect("room").put(0, false, &[n as u8; 20]);
        }
        let pages = (1..pool.page_count().min(5)).map(PageId).collect();
        each(&pool, pages)
    };
    vec![tree_of(5), tree_of(60)]
}
