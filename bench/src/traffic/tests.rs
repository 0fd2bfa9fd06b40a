//! Tests of `traffic`.

use super::*;
use std::io::Write;

#[test]
fn block_device_fields_have_their_documented_order() {
    let line = " 10 11 12 13  20 21 22 23  0 31 32 40 41 42 43 50 51";
    assert_eq!(counters(line), Counters { writes: 20, written_bytes: 22 * 512, flushes: 50 });
    assert_eq!(counters("").written_bytes, 0);
}

#[test]
fn written_bytes_count_for_the_writing_process() {
    // Beside the build, not in /tmp, which may be memory.
    let program = std::env::current_exe().expect("this program");
    let directory = program.parent().expect("it is in a directory");
    let Some(device) = BlockDevice::of(directory).expect("the directory exists") else { return };
    let path = directory.join(format!("traffic-{}", std::process::id()));
    let before = device.synced().expect("counted");
    let mut file = File::create(&path).expect("created");
    file.write_all(&[7; 1 << 20]).expect("written");
    let traffic = device.since(before, 4).expect("counted");
    std::fs::remove_file(&path).expect("ours");
    assert!(traffic.written_bytes >= 1 << 20, "{traffic:?}");
    assert!(traffic.bytes_per_transaction >= (1 << 18) as f64, "{traffic:?}");
}
