//! Several values of a key: a multimap in each direction.

use quenchdb::{Database, Multimap, Result};

fn main() -> Result<()> {
    let db = Database::builder().open_in_memory()?;
    let tags: Multimap<u64, String> = db.multimap("tags of photos")?;
    let photos: Multimap<String, u64> = db.multimap("photos of tags")?;
    db.transact(|tx| -> Result<()> {
        for (photo, tag) in [(1, "sea"), (1, "beach"), (2, "sea")] {
            tags.insert(tx, photo, tag)?;
            photos.insert(tx, tag, photo)?;
        }
        Ok(())
    })?;
    let snapshot = db.begin_read()?;
    let of_sea: Vec<u64> = photos.get(&snapshot, "sea").collect::<Result<_>>()?;
    assert_eq!(of_sea, [1, 2]);
    assert_eq!(tags.get(&snapshot, 1).count(), 2);
    Ok(())
}
