//! Unit tests of `image`.

use super::*;
use crate::base::random::Random;

#[test]
fn image_behaves_like_a_vector_and_copies_do_not_change() {
    let mut random = Random::from_seed(7);
    let (mut image, mut model) = (Image::default(), Vec::new());
    let mut copies = Vec::new();
    for step in 0..2000 {
        let at = random.below(5 * PAGE_BYTES as u64) as usize;
        if random.chance(1, 6) {
            image.resize(at);
            model.resize(at, 0);
        } else {
            // Whole pages often, zeros sometimes.
            let whole = random.chance(1, 3);
            let at = if whole { at / PAGE_BYTES * PAGE_BYTES } else { at };
            let len = if whole { 2 * PAGE_BYTES } else { random.below(6000) as usize };
            let bytes = vec![if random.chance(1, 4) { 0 } else { step as u8 }; len];
            image.write(at as u64, &bytes);
            model.resize(model.len().max(at + len), 0);
            model[at..at + len].copy_from_slice(&bytes);
        }
        assert_eq!(image.to_vec(), model, "step {step}");
        if random.chance(1, 20) {
            copies.push((image.clone(), model.clone()));
        }
        let from = random.below(model.len() as u64 + 1) as usize;
        let mut part = vec![1; random.below((model.len() - from) as u64 + 1) as usize];
        image.read(from as u64, &mut part).expect("inside");
        assert_eq!(part, model[from..from + part.len()]);
        assert!(image.read(from as u64, &mut vec![0; model.len() - from + 1]).is_err());
    }
    assert!(copies.len() > 20);
    for (copy, model) in copies {
        assert_eq!(copy.to_vec(), model);
    }
}
