//! Pages with flipped bits: any answer is allowed, but no panic, no hang and no access outside.

use super::{Horizon, put, tree};
use crate::base::{ErrorKind, PageId, Result};
use crate::buffer::{PAGE_HEADER_BYTES, PageSource, Pool, ScratchPage};
use crate::store::ImageKind;
use crate::sync::Arc;
use crate::tree::edit::{Fences, NodeMut};
use crate::tree::image::{EntryMeta, Resolved, image_page, validate_image, validate_image_of};
use crate::tree::node::{BOOKS_WORD, HEADER_WORD, KIND_MASK, Node, SLOTS_WORD, Slot, leaf_entry_word};
use crate::tree::{LeafBatch, LeafHint, Tree, max_entry_bytes, max_key_bytes};
use std::ops::Bound;
use std::time::Duration;

const PAGE_BYTES: usize = 1024;

struct Images(Vec<Vec<u8>>);

impl PageSource for Images {
    fn read_page(&self, page: PageId, _: bool, into: &mut [u8]) -> Result<()> {
        into.copy_from_slice(&self.0[page.0 as usize]);
        Ok(())
    }
}

/// Returns the images of a tree of three levels, by page id; the root is page 1.
fn images() -> Vec<Vec<u8>> {
    let (tree, _) = tree(PAGE_BYTES);
    for n in 0..500u32 {
        let key = [b"prefix".as_slice(), &n.wrapping_mul(2_654_435_761).to_be_bytes(), &[9; 12]].concat();
        put(&tree, &key, 0, false, &[n as u8; 20]);
    }
    assert!(tree.check_invariants().expect("sound").depth >= 3);
    let mut images = vec![Vec::new()];
    for page in 1..tree.pool.page_count() {
        let guard = tree.pool.shared(PageId(page)).expect("readable");
        let mut image = vec![0; PAGE_BYTES];
        image_page(guard.bytes(), &mut image, &mut |_, _, _| Resolved::Keep);
        validate_image(&image).expect("an image");
        images.push(image);
    }
    images
}

fn read_everything(images: Vec<Vec<u8>>) {
    let pages = images.len() as u64;
    let pool =
        Pool::new(PAGE_BYTES, (pages + 1) * PAGE_BYTES as u64, Arc::new(Images(images))).expect("small");
    pool.restore((1..pages).map(PageId)).expect("each once");
    let tree = Tree::open(pool, Arc::new(Horizon::default()), PageId(1));
    let mut value = Vec::new();
    for key in [&b""[..], b"p", b"prefix", b"prefix\x80\x01", b"prefiy", &[255; 100]] {
        let _ = tree.lookup(key, &mut value);
    }
    let mut batch = LeafBatch::default();
    let mut from = Ok(Some(Vec::new()));
    while let Ok(Some(key)) = from {
        from = tree.scan_forward(
            Bound::Included(&key),
            usize::MAX,
            &mut batch,
            &mut crate::buffer::ScanBuffer::default(),
        );
        batch.clear();
    }
    let mut from =
        tree.scan_backward(Bound::Unbounded, 3, &mut batch, &mut crate::buffer::ScanBuffer::default());
    while let Ok(Some(key)) = from {
        batch.clear();
        from = tree.scan_backward(
            Bound::Excluded(&key),
            3,
            &mut batch,
            &mut crate::buffer::ScanBuffer::default(),
        );
    }
    let _ = tree.check_invariants();
    let _ = tree.destroy();
}

/// Regression: of a torn leaf, whose entry seems to lie before its heap, a batch put the prefix
/// into the copy of an earlier leaf.
#[test]
fn torn_leaf_leaves_the_earlier_entries_of_a_batch() {
    let mut batch = LeafBatch::default();
    let image = leaf(b"", None, |node| node.insert(0, b"a", PLAIN, &[1; 600], 600));
    let sound = ScratchPage::from_image(&image);
    let mut torn = ScratchPage::from_image(&image);
    let slot = Node::new(sound.bytes()).slot(0).0;
    torn.bytes_mut().set_word(SLOTS_WORD, slot - 40);
    for page in [&sound, &torn] {
        batch.begin(PageId(1), Node::new(page.bytes()));
        batch.push(Node::new(page.bytes()), 0..1, false);
    }
    assert_eq!((batch.entry(0).key, batch.entry(0).value), (&b"a"[..], &[1; 600][..]));
    assert_eq!(batch.entry(1).key, b"");
}

#[test]
fn flipped_bits_do_no_harm() {
    let images = images();
    let kind = |image: &Vec<u8>| image.get(PAGE_HEADER_BYTES).map(|byte| byte & KIND_MASK);
    let leaf = images.iter().position(|image| kind(image) == Some(1)).expect("a leaf");
    let inner = images.iter().skip(2).position(|image| kind(image) == Some(2)).expect("an inner") + 2;
    let mut refused = 0;
    for page in [1, inner, leaf] {
        for bit in (PAGE_HEADER_BYTES * 8..PAGE_BYTES * 8).step_by(if cfg!(miri) { 779 } else { 1 }) {
            let mut image = images[page].clone();
            image[bit / 8] ^= 1 << (bit % 8);
            refused += u32::from(validate_image(&image).is_err());
            // All of the header, and a part of the rest. Here the page is used without validation.
            if bit < 96 * 8 || bit % 31 == 0 {
                let mut damaged = images.clone();
                damaged[page] = image;
                read_everything(damaged);
            }
        }
    }
    assert!(refused > 2_000 || cfg!(miri), "{refused}");
}

#[test]
fn arbitrary_bytes_are_not_an_image() {
    for seed in 0..200u64 {
        let mut state = seed;
        let bytes: Vec<u8> = (0..PAGE_BYTES)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                (state >> 56) as u8
            })
            .collect();
        assert!(validate_image(&bytes).is_err());
    }
    assert!(validate_image(&[]).is_err());
    assert!(validate_image(&[0; PAGE_BYTES]).is_err());
}

/// A source that validates images, as the store does.
struct Checked(Images, ImageKind);

impl PageSource for Checked {
    fn read_page(&self, page: PageId, own_stamps: bool, into: &mut [u8]) -> Result<()> {
        self.0.read_page(page, own_stamps, into)?;
        validate_image_of(self.1, into)
    }
}

const PLAIN: EntryMeta = EntryMeta { stamp: 0, tombstone: false, large: false };

/// Returns the image of a leaf with these fences.
fn leaf(lower: &[u8], upper: Option<&[u8]>, fill: impl FnOnce(&mut NodeMut<'_>)) -> Vec<u8> {
    let mut page = ScratchPage::new(PAGE_BYTES);
    let mut node = NodeMut::new(page.bytes_mut());
    node.init(0, &Fences { lower: lower.to_vec(), upper: upper.map(<[u8]>::to_vec) }, PageId(0));
    fill(&mut node);
    let mut image = vec![0; PAGE_BYTES];
    page.bytes().copy_to(0, &mut image);
    image
}

/// Returns the result of `writes` to a tree whose root is `image`.
fn write_all(kind: ImageKind, image: Vec<u8>, writes: Vec<(&'static [u8], Vec<u8>)>) -> Result<()> {
    let source = Arc::new(Checked(Images(vec![Vec::new(), image]), kind));
    let (done, result) = std::sync::mpsc::channel();
    // Detached, because a thread that hangs cannot be ended.
    std::thread::spawn(move || {
        let pool = Pool::new(PAGE_BYTES, 64 * PAGE_BYTES as u64, source).expect("small");
        pool.restore([PageId(1)].into_iter()).expect("once");
        let tree = Tree::open(pool, Arc::new(Horizon::default()), PageId(1));
        let mut hint = LeafHint::default();
        let mut write = |(key, value): (&'static [u8], Vec<u8>)| -> Result<()> {
            tree.write(key, value.len(), &mut hint)?.put(0, false, &value);
            Ok(())
        };
        let _ = done.send(writes.into_iter().try_for_each(&mut write));
    });
    result.recv_timeout(Duration::from_secs(20)).expect("a writer panics, or restarts for ever")
}

#[track_caller]
fn assert_refused(result: Result<()>) {
    assert_eq!(result.expect_err("no writer makes such a page").kind(), ErrorKind::Corruption);
}

/// Regression: a node with one entry cannot be split and has no room for another. The writer
/// started over for ever.
#[test]
fn leaf_with_a_too_long_entry_is_refused() {
    let most = max_entry_bytes(PAGE_BYTES);
    let image =
        |bytes: usize| leaf(b"", None, |node| node.insert(0, b"m", PLAIN, &vec![7; bytes - 1], bytes - 1));
    let writes = || vec![(&b"a"[..], vec![1; most - 1]), (&b"z"[..], vec![1; most - 1])];
    write_all(ImageKind::Settled, image(most), writes()).expect("a writer may make this");
    assert_refused(write_all(ImageKind::Settled, image(PAGE_BYTES - 200), writes()));
    assert_refused(write_all(ImageKind::Settled, image(most + 1), writes()));
}

#[test]
fn too_long_fences_and_keys_are_refused() {
    let most = max_key_bytes(PAGE_BYTES);
    let fences = |bytes: usize| leaf(&vec![b'a'; bytes], Some(&vec![b'b'; bytes]), |_| ());
    let key = |bytes: usize| leaf(b"", None, |node| node.insert(0, &vec![b'a'; bytes], PLAIN, &[], 0));
    for (image, longer) in [(fences(most), fences(most + 1)), (key(most), key(most + 1))] {
        validate_image(&image).expect("a writer may make this");
        assert!(validate_image(&longer).is_err());
    }
}

/// Returns a leaf with an entry `a` in whose value another entry `b` lies. The garbage is reduced
/// by the overlap, so that the sum is right.
fn overlapping() -> Vec<u8> {
    let value_len = 20;
    let mut inner = vec![0; 64];
    inner[8..16].copy_from_slice(&leaf_entry_word(value_len, value_len, PLAIN).to_le_bytes());
    inner[16] = b'b';
    let mut image = leaf(b"", None, |node| {
        // The value begins 17 bytes after the entry's beginning; the next word is 7 bytes further.
        node.insert(0, b"a", PLAIN, &[&[0; 7][..], &inner].concat(), 71);
        node.insert(1, b"c", PLAIN, &[0; 100], 100);
        node.remove(1);
    });
    let page = ScratchPage::from_image(&image);
    let node = Node::new(page.bytes());
    let at = Slot::new(node.slot(0).offset() + 24, b"b", 0);
    let bytes = (16 + 1 + value_len).next_multiple_of(8);
    let mut set = |word: usize, to: u64| image[word * 8..][..8].copy_from_slice(&to.to_le_bytes());
    set(SLOTS_WORD + 1, at.0);
    set(HEADER_WORD, page.bytes().word(HEADER_WORD) + (1 << 16));
    set(BOOKS_WORD, page.bytes().word(BOOKS_WORD) - bytes as u64);
    image
}

/// Regression: a write to the outer entry changed the lengths of the inner entry, and the next
/// split panicked in the middle.
#[test]
fn leaf_with_an_entry_inside_another_is_refused() {
    let most = max_entry_bytes(PAGE_BYTES);
    let longer = [&[0; 7][..], &[0xff; 64]].concat();
    let fill = [&b"d"[..], b"e", b"f", b"g", b"h"].map(|key| (key, vec![1; most - 1]));
    let writes = [(&b"a"[..], longer)].into_iter().chain(fill).collect();
    assert_refused(write_all(ImageKind::Settled, overlapping(), writes));
}

/// Regression: the stamp was mistaken for that of a version of this run.
#[test]
fn stamp_in_a_settled_image_is_refused() {
    let stamped =
        |stamp| leaf(b"", None, |node| node.insert(0, b"a", EntryMeta { stamp, ..PLAIN }, b"value", 5));
    for (kind, stamp, is_refused) in
        [(ImageKind::Settled, 0, false), (ImageKind::Stamped, 9, false), (ImageKind::Settled, 9, true)]
    {
        let result = write_all(kind, stamped(stamp), vec![(b"a", vec![1])]);
        assert_eq!(result.map_err(|error| error.kind()).err(), is_refused.then_some(ErrorKind::Corruption));
    }
}
