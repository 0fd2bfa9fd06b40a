//! What lies in the store of objects of a database, and why.

use super::storage::Pin;

/// The objects of a database in a store of objects, and why each of them is there.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ObjectList {
    /// The store, as a URL.
    pub store: String,
    /// The number of the last claim: each process that opens the database for writing makes one.
    pub writer_epoch: u64,
    /// The number of the manifest, which rises with each put.
    pub generation: u64,
    /// The last writer has ended, and none of its requests is in flight. False if a writer is
    /// alive, and after a crash.
    pub closed: bool,
    /// All objects, in the order of their names.
    pub objects: Vec<StoredObject>,
    /// Names of objects that the manifest names and the store does not have, in order. Each is a
    /// damage.
    pub missing: Vec<String>,
}

/// An object in a store of objects.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct StoredObject {
    /// Its name below the database's URL.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// The writer epoch in its name, if it is in the name: that of its writer, or for a pin that of
    /// the newest object that it keeps.
    pub epoch: Option<u64>,
    /// The number behind the epoch in its name.
    pub number: Option<u64>,
    /// What it holds.
    pub content: ObjectContent,
    /// Why it is there.
    pub state: ObjectState,
}

/// What an object holds.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ObjectContent {
    /// The manifest, which names what counts.
    Manifest,
    /// Blocks of the log.
    Log(LogObject),
    /// Pages.
    Pages {
        /// Bytes that the manifest refers to.
        live_bytes: u64,
    },
    /// A small file, such as the description of a backup.
    File {
        /// Its path; `None` if the manifest does not name the object.
        path: Option<String>,
    },
    /// The pin of a reader of a checkpoint.
    Pin(Pin),
    /// A trial write of a process that tests the store or measures it.
    Probe,
    /// Something that this database does not write: one at a longer URL may.
    Unknown,
}

/// An object of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LogObject {
    /// The segment that it belongs to; `None` if the manifest names none that has it.
    pub segment: Option<u64>,
    /// Its place among the objects of the segment, from 0, if objects take appends.
    pub lane: Option<u64>,
    /// Its number in the segment, from 1, if each object is one block.
    pub block: Option<u64>,
    /// The epoch of the writer that fenced it, so that no earlier writer can append to it; `None`
    /// if it has no fence at its end. An object of its own that is a fence fences its segment.
    pub fenced_by: Option<u64>,
    /// Whether the next recovery needs its records.
    pub records: LogRecords,
}

/// Whether the next recovery needs the records in an object of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LogRecords {
    /// Its segment has records above what the checkpoint covers.
    Needed,
    /// The checkpoint covers all records of its segment.
    Covered,
    /// It has none: it waits for its first block, or it is a fence.
    Absent,
    /// A lower block is missing, or a fence has its number, so no recovery reads it.
    Ignored,
    /// The manifest does not name it.
    Unnamed,
    /// The log could not be read.
    Unknown,
}

/// Why an object is there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum ObjectState {
    /// The database uses it: the manifest names it, or it is the manifest or a pin.
    Used,
    /// The manifest does not name it, and the pin of a reader keeps it.
    Pinned,
    /// The last writer has made it, and the manifest does not name it yet, or no longer. That
    /// writer names or deletes it. If the writer was killed, the next one deletes it.
    Recent,
    /// An earlier writer has left it, and the next writer deletes it.
    Orphan,
    /// It is the fence of a segment that was deleted. It stays, because an earlier writer could
    /// write in its place.
    Fence,
    /// It is not the database's, and no writer deletes it.
    Foreign,
}
