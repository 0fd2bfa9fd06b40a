//! Values larger than memory should hold: written from a reader, read piece by piece.

use quenchdb::{Database, Result};
use std::io::{Read, Seek, SeekFrom};

fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let db = Database::open(directory.path().join("files"))?;
    let files = db.create_table("files")?;
    // A file, a socket: anything that can be read. If the transaction runs again, so does this.
    let source = || std::io::repeat(7).take(5_000_000);
    let written = db.transact(|tx| tx.insert_from(&files, "film", source()))?;
    assert_eq!(written, 5_000_000);

    let snapshot = db.begin_read()?;
    let mut film = snapshot.read_value(&files, "film")?.expect("it was written");
    assert_eq!(film.len(), 5_000_000);
    film.seek(SeekFrom::Start(4_999_990)).expect("inside");
    let mut end = Vec::new();
    film.read_to_end(&mut end).expect("the disk works");
    assert_eq!(end, [7; 10]);
    Ok(())
}
