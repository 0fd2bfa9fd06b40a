//! The pages of an overlay beside a model.

use super::*;
use crate::base::random::Random;
use crate::device::memory::MemoryStorage;

const SECTORS: usize = 64;

fn overlay(content: &[u8]) -> (Arc<dyn File>, Arc<dyn File>) {
    let view = Arc::new(MemoryStorage::new());
    let mode = OpenMode { create: true, read_only: false, direct: true };
    let base = Roles::pages(&*view, mode).expect("memory");
    base.write_at(0, content).expect("memory");
    let directory = std::env::temp_dir();
    let storage = OverlayStorage::new(view, Vec::new(), &directory).expect("a scratch file");
    (storage.pages(mode).expect("is there"), base)
}

#[test]
fn random_writes_and_lengths_read_as_of_one_file() {
    let mut random = Random::from_seed(7);
    for _ in 0..20 {
        let mut model = vec![0; SECTORS * SECTOR_BYTES];
        model.iter_mut().for_each(|byte| *byte = random.below(256) as u8);
        let before = model.clone();
        let (pages, base) = overlay(&model);
        for _ in 0..200 {
            let at = random.below(2 * SECTORS as u64) as usize * SECTOR_BYTES;
            let len = (1 + random.below(4)) as usize * SECTOR_BYTES;
            match random.below(12) {
                0 => {
                    pages.set_len(at as u64).expect("space");
                    model.resize(at, 0);
                }
                1..6 => {
                    let bytes = vec![random.below(256) as u8; len];
                    pages.write_at(at as u64, &bytes).expect("space");
                    model.resize(model.len().max(at + len), 0);
                    model[at..at + len].copy_from_slice(&bytes);
                }
                _ => {
                    let (mut one, mut many) = (vec![1; len], vec![2; len]);
                    let read = pages.read_at(at as u64, &mut one);
                    let mut reads = [ReadRequest { offset: at as u64, buffer: &mut many, result: Ok(()) }];
                    let mut ended = 0;
                    pages.read_many(&mut reads, &mut |index, _| ended += index + 1);
                    let [ReadRequest { result, .. }] = reads;
                    assert_eq!(
                        (read.is_ok(), result.is_ok(), ended),
                        (at + len <= model.len(), read.is_ok(), 1)
                    );
                    if read.is_ok() {
                        assert!(one == model[at..at + len] && many == one);
                    }
                }
            }
            assert_eq!(pages.len().expect("known"), model.len() as u64);
        }
        let mut after = vec![0; before.len()];
        base.read_at(0, &mut after).expect("unchanged");
        assert!(after == before, "the checkpoint is never written");
    }
}
