//! `bytes` against the same operations on a plain array of bytes, at every offset and length of a
//! small page.

use super::{PageBytes, ScratchPage};

const PAGE: usize = 40;

/// Lengths and offsets a little beyond the page; fewer under Miri, which is slow.
fn positions() -> impl Iterator<Item = usize> + Clone {
    (0..PAGE + 9).step_by(if cfg!(miri) { 5 } else { 1 })
}

fn image() -> Vec<u8> {
    (0..PAGE as u8).map(|i| i.wrapping_mul(37).wrapping_add(11)).collect()
}

fn content(page: PageBytes<'_>) -> Vec<u8> {
    let mut all = vec![0xAA; PAGE];
    page.copy_to(0, &mut all);
    all
}

fn inside(offset: usize, len: usize) -> bool {
    offset + len <= PAGE
}

#[test]
fn values_are_little_endian_at_any_offset_and_zero_outside() {
    let page = ScratchPage::from_image(&image());
    let mut padded = image();
    padded.resize(PAGE + 32, 0);
    for offset in 0..PAGE + 16 {
        let at = |len: usize| &padded[offset..offset + len];
        let bytes = page.bytes();
        assert_eq!(bytes.get_u8(offset), padded[offset]);
        assert_eq!(bytes.get_u16(offset), u16::from_le_bytes(at(2).try_into().expect("2 bytes")));
        assert_eq!(bytes.get_u32(offset), u32::from_le_bytes(at(4).try_into().expect("4 bytes")));
        assert_eq!(bytes.get_u64(offset), u64::from_le_bytes(at(8).try_into().expect("8 bytes")));
    }
}

#[test]
fn no_offset_however_wild_reads_or_writes_anything() {
    let mut page = ScratchPage::from_image(&image());
    for offset in [PAGE + 1, usize::MAX, usize::MAX - 7, usize::MAX / 8, isize::MAX as usize] {
        let bytes = page.bytes();
        assert_eq!((bytes.get_u8(offset), bytes.get_u16(offset)), (0, 0));
        assert_eq!((bytes.get_u32(offset), bytes.get_u64(offset), bytes.word(offset)), (0, 0, 0));
        let mut into = [7; 3];
        bytes.copy_to(offset, &mut into);
        assert_eq!(into, [0; 3]);
        let mut out = vec![1];
        bytes.append_to(offset, 4, &mut out);
        bytes.append_to(4, offset, &mut out);
        assert_eq!(out, [1]);
        assert!(bytes.compare(offset, 1, b"").is_eq());
        assert!(bytes.compare(0, offset, b"a").is_lt());
        let mut bytes = page.bytes_mut();
        assert!(!bytes.set_u8(offset, 1) && !bytes.set_u16(offset, 1) && !bytes.set_u32(offset, 1));
        assert!(!bytes.set_u64(offset, 1) && !bytes.set_word(offset, 1));
        assert!(!bytes.copy_from(offset, b"abc") && !bytes.fill(offset, 1, 1) && !bytes.fill(0, offset, 1));
    }
    assert_eq!(content(page.bytes()), image());
}

#[test]
fn copying_out_gives_the_bytes_or_zeros() {
    let (page, image) = (ScratchPage::from_image(&image()), image());
    for (offset, len) in positions().flat_map(|o| positions().map(move |l| (o, l))) {
        let mut into = vec![0xAA; len];
        let mut out = b"before".to_vec();
        page.bytes().copy_to(offset, &mut into);
        page.bytes().append_to(offset, len, &mut out);
        if inside(offset, len) {
            assert_eq!(into, &image[offset..offset + len]);
            assert_eq!(out, [b"before", &image[offset..offset + len]].concat());
        } else {
            assert!(into.iter().all(|b| *b == 0));
            assert_eq!(out, b"before");
        }
    }
}

#[test]
fn copying_in_and_filling_change_just_the_bytes_named() {
    for (offset, len) in positions().flat_map(|o| positions().map(move |l| (o, l))) {
        let from: Vec<u8> = (0..len as u8).map(|i| 200 - i).collect();
        let mut copied = ScratchPage::from_image(&image());
        let mut filled = ScratchPage::from_image(&image());
        assert_eq!(copied.bytes_mut().copy_from(offset, &from), inside(offset, len));
        assert_eq!(filled.bytes_mut().fill(offset, len, 0xEE), inside(offset, len));
        let (mut want_copied, mut want_filled) = (image(), image());
        if inside(offset, len) {
            want_copied[offset..offset + len].copy_from_slice(&from);
            want_filled[offset..offset + len].fill(0xEE);
        }
        assert_eq!(content(copied.bytes()), want_copied);
        assert_eq!(content(filled.bytes()), want_filled);
    }
}

#[test]
fn setting_a_value_changes_just_its_bytes() {
    for offset in 0..PAGE + 2 {
        let value = 0xF1F2_F3F4_F5F6_F7F8_u64;
        for len in [1, 2, 4, 8] {
            let mut page = ScratchPage::from_image(&image());
            let mut bytes = page.bytes_mut();
            let done = match len {
                1 => bytes.set_u8(offset, value as u8),
                2 => bytes.set_u16(offset, value as u16),
                4 => bytes.set_u32(offset, value as u32),
                _ => bytes.set_u64(offset, value),
            };
            let mut want = image();
            if inside(offset, len) {
                want[offset..offset + len].copy_from_slice(&value.to_le_bytes()[..len]);
            }
            assert_eq!(done, inside(offset, len));
            assert_eq!(content(page.bytes()), want);
        }
    }
}

#[test]
fn comparing_is_lexicographic_and_a_prefix_is_less() {
    let image = image();
    let page = ScratchPage::from_image(&image);
    for (offset, len) in positions().flat_map(|o| positions().map(move |l| (o, l))) {
        let ours = image.get(offset..offset + len).unwrap_or(&[]);
        let mut others = vec![ours.to_vec(), [ours, &[0]].concat(), vec![], vec![0xFF]];
        others.extend((1..ours.len()).map(|cut| ours[..cut].to_vec()));
        for changed in 0..ours.len() {
            for by in [1, 0x80, 0xFF] {
                let mut other = ours.to_vec();
                other[changed] = other[changed].wrapping_add(by);
                others.push(other);
            }
        }
        for other in others {
            assert_eq!(page.bytes().compare(offset, len, &other), ours.cmp(&other), "{ours:?} {other:?}");
        }
    }
}
