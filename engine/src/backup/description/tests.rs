//! Descriptions are read back as they were written, and damaged ones are refused.

use super::*;

fn sample() -> Description {
    let base = Some(Base { id: BackupId(5), csn: Csn(70) });
    let source = (1..2000).map(|n| (PageId(n * n), BlockRef(n << 24 | n))).collect();
    Description { id: BackupId(9), base, manifest: Manifest::new(DatabaseId(1), 4096), source }
}

#[test]
fn a_description_reads_back_and_finds_its_pages() {
    let description = sample();
    let decoded = Description::decode(&description.encode().expect("fits")).expect("whole");
    assert_eq!(decoded, description);
    assert_eq!(decoded.find(PageId(49)), Some(BlockRef(7 << 24 | 7)));
    assert_eq!(decoded.find(PageId(50)), None);
}

#[test]
fn every_flipped_byte_and_every_cut_is_found() {
    let mut description = sample();
    description.source.truncate(40);
    let bytes = description.encode().expect("fits");
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        assert!(Description::decode(&damaged).is_err(), "byte {at}");
    }
    for len in HEADER_BYTES..bytes.len() {
        assert!(Description::decode(&bytes[..len]).is_err(), "{len} bytes");
    }
    assert!(Description::decode(&[0; SECTOR_BYTES]).is_err());
}
