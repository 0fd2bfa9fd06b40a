//! Bit rot: in each block of the log, and in the bytes that each read of an open returns.

use super::Answer::{Prefix, Refused, Whole};
use super::{
    Counts, FOUND_OR_REPLACED, SEED, answers, assert_answers, assert_newest_of_its_log, class_of_write,
    in_memory, is_write, judge, on_the_device, place_of,
};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::{
    CrashKind, Mishap, MishapKind, OperationKind, SimulatedStorage,
};

/// A block of the log on the device after the run.
struct Block {
    class: &'static str,
    path: String,
    offset: u64,
    /// Bytes that its checksums cover.
    covered: u64,
    bytes: u64,
}

/// Returns the log blocks of the run without faults, except overwritten ones.
fn blocks(well: &SimulatedStorage) -> Vec<Block> {
    const HEADER_BYTES: u64 = 80;
    let lines = well.describe(0);
    let written: Vec<Option<(String, u64)>> =
        lines.iter().map(|line| place_of(line).filter(|(path, _)| path.starts_with("log/"))).collect();
    let mut blocks = Vec::new();
    for (operation, place) in written.iter().enumerate().filter(|(at, _)| is_write(&lines[*at])) {
        let Some((path, offset)) = place else { continue };
        let is_overwritten = |at: usize| is_write(&lines[at]) && written[at] == *place;
        if (operation + 1..lines.len()).any(is_overwritten) {
            continue;
        }
        let file = well.read_file(path).expect("it was written to");
        let header = &file[*offset as usize..];
        assert_eq!(header[4..8], *b"QLOG", "{}", lines[operation]);
        let payload = u32::from_le_bytes(header[40..44].try_into().expect("four"));
        let covered = HEADER_BYTES + u64::from(payload);
        let bytes = covered.next_multiple_of(4096);
        let class = class_of_write(well, &lines, operation, path, *offset);
        blocks.push(Block { class, path: path.clone(), offset: *offset, covered, bytes });
    }
    blocks
}

/// In each run one bit of one log block flips: in its header, its records, or its padding.
#[test]
fn rot_of_any_but_the_newest_log_block_refuses_the_database() {
    for (workload, of_newest) in on_the_device() {
        let _alone = crate::support::alone();
        workload.run(&SimulatedStorage::new(SEED));
        let well = SimulatedStorage::new(SEED);
        let history = workload.run(&well);
        let (mut found, mut random) = (Counts::new(), Random::from_seed(SEED));
        for Block { class, path, offset, covered, bytes } in blocks(&well) {
            let mut rot = |byte: u64| {
                let left = well.duplicate();
                let mut file = left.read_file(&path).expect("the log file");
                file[(offset + byte) as usize] ^= 1 << random.below(8);
                left.write_file(&path, &file);
                judge(
                    &workload,
                    &left,
                    &history,
                    &format!("rot of a {class}, {path} at {offset}, byte {byte}"),
                )
            };
            // The checksum, magic, version and log; the payload's checksum, sequence and length;
            // then records.
            for byte in [0, 5, 8, 12, 28, 32, 40, 80, 80 + (covered - 80) / 2, covered - 1] {
                *found.entry((class, rot(byte))).or_default() += 1;
            }
            if covered < bytes {
                assert_eq!(rot(bytes - 1), Whole, "no reader reads the padding of a block");
            }
        }
        println!(
            "{}, {} logs, rot of blocks: {found:?}",
            workload.settings.preset.name(),
            workload.settings.logs
        );
        assert_answers(&found, "log block", &[Refused]);
        assert!(found[&("log block", Refused)] >= 10, "{found:?}");
        assert_answers(&found, "log block below the checkpoint", &FOUND_OR_REPLACED);
        assert_newest_of_its_log(&workload, &found, &[of_newest]);
        assert_answers(&found, "newest log block", &[Prefix]);
    }
}

/// In each run one read of an open finds one bit flipped, permanently: in the log, the manifest,
/// the mapping, or a page.
#[test]
fn rot_in_a_read_is_found_but_in_the_newest_log_block() {
    for (workload, of_newest) in on_the_device().into_iter().chain([(in_memory(2), Refused)]) {
        let _alone = crate::support::alone();
        workload.run(&SimulatedStorage::new(SEED));
        let well = SimulatedStorage::new(SEED);
        let history = workload.run(&well);
        let (blocks, mut found) = (blocks(&well), Counts::new());
        for (after, seed) in (0..).flat_map(|after| (0..4).map(move |seed| (after, seed))) {
            let left = well.crash(CrashKind::Kill, well.operations(), seed);
            left.inject_mishap(Mishap { operation: OperationKind::Read, after, kind: MishapKind::Rot });
            let answer = judge(&workload, &left, &history, &format!("rot in read {after}, seed {seed}"));
            if left.fault_counts().of("bit rot") == 0 {
                break;
            }
            let (path, byte) = left.describe(0).iter().find_map(|line| rotten(line)).expect("a bit flipped");
            let contains = |block: &&Block| {
                block.path == path && (block.offset..block.offset + block.bytes).contains(&byte)
            };
            let class = match blocks.iter().find(contains) {
                Some(block) => block.class,
                None if path.starts_with("log/") => "no log block",
                None if path == "MANIFEST" => "manifest",
                None => "store",
            };
            *found.entry((class, answer)).or_default() += 1;
        }
        println!("{} bit rot: {found:?}", workload.settings.preset.name());
        // Only damage to the newest log block may shorten the history without an error.
        for (class, answer) in found.keys() {
            let may_be_missed = match *class {
                "newest log block" => true,
                "newest block of its log" => of_newest == Prefix,
                _ => false,
            };
            assert!(*answer != Prefix || may_be_missed, "rot in {class} is missed: {found:?}");
        }
        assert_answers(&found, "manifest", &[Whole]);
        assert_answers(&found, "store", &FOUND_OR_REPLACED);
        assert!(answers(&found, "store").iter().any(|answer| *answer != Whole), "{found:?}");
    }
}

/// Returns path and byte of the bit that a line of the journal flips.
fn rotten(line: &str) -> Option<(String, u64)> {
    let mut words = line.strip_prefix("Rot { path: \"")?.split("\", byte: ");
    let path = words.next()?.to_string();
    let byte = words.next()?.split(',').next()?.parse().ok()?;
    Some((path, byte))
}
