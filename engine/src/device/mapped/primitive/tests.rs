//! Unit tests of `primitive`.

use super::*;

#[repr(align(64))]
struct Lines([u8; 8 * LINE_BYTES]);

#[test]
fn every_primitive_stores_exactly_the_given_bytes() {
    let mut all: Vec<Primitive> = available().into_iter().map(Primitive::Store).collect();
    all.extend([Primitive::DurableCache, Primitive::Unknown]);
    for primitive in all {
        for (offset, len) in [(0, 8), (8, 56), (56, 16), (64, 128), (40, 400)] {
            let mut lines = Box::new(Lines([0xEE; 8 * LINE_BYTES]));
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            // SAFETY: inside `lines`, which is ours, and 8-aligned.
            unsafe { primitive.store(lines.0.as_mut_ptr().add(offset), &bytes) };
            primitive.fence();
            assert_eq!(&lines.0[offset..offset + len], &bytes[..], "{primitive}");
            let untouched = lines.0[..offset].iter().chain(&lines.0[offset + len..]);
            assert!(untouched.copied().all(|byte| byte == 0xEE), "{primitive}");
        }
    }
}

#[test]
fn missing_or_ineffective_primitive_is_refused() {
    let chosen = Primitive::choose(MemoryCache::Volatile, None).expect("there is always a way");
    assert_eq!(chosen, available().first().map_or(Primitive::Unknown, |best| Primitive::Store(*best)));
    assert_eq!(Primitive::choose(MemoryCache::Durable, None).expect("fence"), Primitive::DurableCache);
    let error = Primitive::choose(MemoryCache::Durable, Some(MemoryStore::Clwb)).expect_err("no effect");
    assert!(error.to_string().contains("memory_cache = durable"), "{error}");
    for store in MemoryStore::ALL {
        let chosen = Primitive::choose(MemoryCache::Volatile, Some(store));
        assert_eq!(chosen.is_ok(), available().contains(&store), "{store}");
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[test]
fn primitives_match_the_flags_of_the_kernel() {
    let Ok(text) = std::fs::read_to_string("/proc/cpuinfo") else { return };
    let flags: Vec<&str> = text
        .lines()
        .find(|line| line.starts_with("flags"))
        .map_or(Vec::new(), |line| line.split_whitespace().collect());
    for (store, flag) in [
        (MemoryStore::Clwb, "clwb"),
        (MemoryStore::ClflushOpt, "clflushopt"),
        (MemoryStore::Clflush, "clflush"),
        (MemoryStore::NonTemporal, "sse2"),
    ] {
        assert_eq!(available().contains(&store), flags.contains(&flag), "{store}");
    }
}
