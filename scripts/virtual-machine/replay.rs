//! Replays what dm-log-writes has recorded, up to points in time.
//!
//! `replay LOG TARGET FROM COUNT`: applies to TARGET the entries of LOG from number FROM on, COUNT
//! of them at most, up to and with the first mark, or the first write that was made durable (a
//! flush or FUA) behind the COUNTth. Prints `NEXT MARK`: the number of the entry behind the last,
//! and the number that the last mark passed has for a name, or `-`. At the end of the log NEXT is
//! `end`.
//!
//! Format (all little-endian): block 0 holds magic, version, number of entries (8 bytes each),
//! block size (4). Each entry is a block with sector, number of sectors, flags, length of data (8
//! bytes each), then the name of a mark; behind it the sectors that were written.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

const MAGIC: u64 = 0x6a73_6677_7368_72;
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;
const MARK: u64 = 8;

fn word(bytes: &[u8], index: usize) -> u64 {
    u64::from_le_bytes(bytes[8 * index..8 * index + 8].try_into().expect("eight bytes"))
}

fn run() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, log, target, from, count] = &arguments[..] else {
        return Err(std::io::Error::other("replay LOG TARGET FROM COUNT"));
    };
    let number = |text: &str| text.parse::<u64>().map_err(std::io::Error::other);
    let (from, count) = (number(from)?, number(count)?);
    let (log, target) = (File::open(log)?, OpenOptions::new().write(true).open(target)?);
    let mut head = [0; 28];
    log.read_exact_at(&mut head, 0)?;
    if word(&head, 0) != MAGIC {
        return Err(std::io::Error::other("this is no log of dm-log-writes"));
    }
    let entries = word(&head, 2);
    let block = u64::from(u32::from_le_bytes(head[24..28].try_into().expect("four bytes")));
    let (mut at, mut entry, mut last_mark) = (block, vec![0; block as usize], "-".to_string());
    for index in 0..entries {
        log.read_exact_at(&mut entry, at)?;
        let (sector, sectors, flags, len) =
            (word(&entry, 0), word(&entry, 1), word(&entry, 2), word(&entry, 3));
        at += block;
        let has_data = flags & DISCARD == 0 && sectors > 0;
        if index >= from && has_data {
            let mut data = vec![0; (sectors * block) as usize];
            log.read_exact_at(&mut data, at)?;
            target.write_all_at(&data, sector * block)?;
        }
        at += if has_data { sectors * block } else { 0 };
        if flags & MARK != 0 {
            let name = String::from_utf8_lossy(&entry[32..32 + len as usize]);
            let name = name.trim_end_matches('\0');
            // The log makes a mark of its own at its end.
            if name.parse::<u64>().is_ok() {
                last_mark = name.to_string();
            }
        }
        let is_point = flags & MARK != 0 || flags & (FLUSH | FUA) != 0 && index + 1 >= from + count;
        if index >= from && is_point && index + 1 < entries {
            println!("{} {last_mark}", index + 1);
            return Ok(());
        }
    }
    println!("end {last_mark}");
    Ok(())
}

fn main() {
    if let Err(error) = run() {
        eprintln!("replay: {error}");
        std::process::exit(2);
    }
}
