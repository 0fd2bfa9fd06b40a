//! See `quench_fuzz::TARGETS`.

#![no_main]

#[global_allocator]
static ALLOCATOR: quench_fuzz::allocation::Noting = quench_fuzz::allocation::Noting;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    quench_fuzz::allocation::run_bounded(quench_fuzz::target("reader"), data);
});
