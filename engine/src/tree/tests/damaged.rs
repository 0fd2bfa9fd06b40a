//! Pages with flipped bits: anything may be answered, but nothing panics, hangs or leaves the page.

use super::{Horizon, put, tree};
use crate::base::{PageId, Result};
use crate::buffer::{PAGE_HEADER_BYTES, PageSource, Pool};
use crate::sync::Arc;
use crate::tree::image::{Resolved, image_page, validate_image};
use crate::tree::{LeafBatch, Tree};
use std::ops::Bound;

const PAGE_BYTES: usize = 1024;

struct Images(Vec<Vec<u8>>);

impl PageSource for Images {
    fn read_page(&self, page: PageId, _: bool, into: &mut [u8]) -> Result<()> {
        into.copy_from_slice(&self.0[page.0 as usize]);
        Ok(())
    }
}

/// The images of a tree of three levels, by page id; the root is page 1.
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
            &mut crate::buffer::Copies::default(),
        );
        batch.clear();
    }
    let mut from = tree.scan_backward(Bound::Unbounded, 3, &mut batch, &mut crate::buffer::Copies::default());
    while let Ok(Some(key)) = from {
        batch.clear();
        from =
            tree.scan_backward(Bound::Excluded(&key), 3, &mut batch, &mut crate::buffer::Copies::default());
    }
    let _ = tree.check_invariants();
    let _ = tree.destroy();
}

#[test]
fn flipped_bits_do_no_harm() {
    let images = images();
    let leaf = images.iter().position(|image| image.get(PAGE_HEADER_BYTES) == Some(&1)).expect("a leaf");
    let inner = images.iter().skip(2).position(|image| image[PAGE_HEADER_BYTES] == 2).expect("an inner") + 2;
    let mut refused = 0;
    for page in [1, inner, leaf] {
        for bit in (PAGE_HEADER_BYTES * 8..PAGE_BYTES * 8).step_by(if cfg!(miri) { 779 } else { 1 }) {
            let mut image = images[page].clone();
            image[bit / 8] ^= 1 << (bit % 8);
            refused += u32::from(validate_image(&image).is_err());
            // All of the header, and a part of the rest: here nobody validates before the page is used.
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
fn arbitrary_bytes_are_no_image() {
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
