//! The messages of `google.storage.v2` that a database needs, with the fields that it uses.
//!
//! Names and numbers are those of Google's reference; what is not here is skipped by the decoder.
//! Emulator and client share them.

use bytes::Bytes;
use prost::{Message, Oneof};

/// The beginning of the paths of all methods.
pub const SERVICE: &str = "/google.storage.v2.Storage/";

/// Most bytes of data in a message.
pub const DATA_BYTES_MAX: usize = 2 << 20;

/// The storage class of a zonal bucket.
pub const RAPID_CLASS: &str = "RAPID";

/// Asks for the description of a bucket.
#[derive(Clone, PartialEq, Message)]
pub struct GetBucketRequest {
    /// `projects/_/buckets/NAME`.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// The description of a bucket.
#[derive(Clone, PartialEq, Message)]
pub struct Bucket {
    /// `projects/_/buckets/NAME`.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The region.
    #[prost(string, tag = "5")]
    pub location: String,
    /// The class of objects without a class of their own.
    #[prost(string, tag = "7")]
    pub storage_class: String,
}

/// A moment.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Timestamp {
    /// Seconds since 1970.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
}

/// The description of an object.
#[derive(Clone, PartialEq, Message)]
pub struct Object {
    /// The key.
    #[prost(string, tag = "1")]
    pub name: String,
    /// `projects/_/buckets/NAME`.
    #[prost(string, tag = "2")]
    pub bucket: String,
    /// Differs for each object that had this name. Appends leave it.
    #[prost(int64, tag = "3")]
    pub generation: i64,
    /// Bytes. Of an object that is not finalized, the length may be an old one.
    #[prost(int64, tag = "6")]
    pub size: i64,
    /// When the object was finalized, if it was.
    #[prost(message, optional, tag = "36")]
    pub finalize_time: Option<Timestamp>,
}

/// Bytes with a checksum.
#[derive(Clone, PartialEq, Message)]
pub struct ChecksummedData {
    /// The bytes.
    #[prost(bytes = "bytes", tag = "1")]
    pub content: Bytes,
    /// Their CRC-32C.
    #[prost(fixed32, optional, tag = "2")]
    pub crc32c: Option<u32>,
}

impl ChecksummedData {
    /// Returns bytes with their checksum.
    #[must_use]
    pub fn new(content: Bytes) -> ChecksummedData {
        let crc32c = Some(crc32c::crc32c(&content));
        ChecksummedData { content, crc32c }
    }

    /// Returns whether the checksum is that of the bytes, or absent.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.crc32c.is_none_or(|crc| crc == crc32c::crc32c(&self.content))
    }
}

/// How to create an object.
#[derive(Clone, PartialEq, Message)]
pub struct WriteObjectSpec {
    /// Its name and bucket.
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Object>,
    /// The generation that must be there; 0 = none.
    #[prost(int64, optional, tag = "3")]
    pub if_generation_match: Option<i64>,
    /// The object takes appends.
    #[prost(bool, optional, tag = "9")]
    pub appendable: Option<bool>,
}

/// How to open an object that takes appends.
#[derive(Clone, PartialEq, Message)]
pub struct AppendObjectSpec {
    /// `projects/_/buckets/NAME`.
    #[prost(string, tag = "1")]
    pub bucket: String,
    /// The key.
    #[prost(string, tag = "2")]
    pub object: String,
    /// The generation that must be there.
    #[prost(int64, tag = "3")]
    pub generation: i64,
    /// Of a redirect.
    #[prost(string, optional, tag = "6")]
    pub routing_token: Option<String>,
    /// Of an earlier answer: the same writer continues. Without one, the stream takes over.
    #[prost(message, optional, tag = "7")]
    pub write_handle: Option<BidiWriteHandle>,
}

/// Names a writer.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BidiWriteHandle {
    /// Opaque.
    #[prost(bytes = "bytes", tag = "1")]
    pub handle: Bytes,
}

/// The first message of a stream of appends.
#[derive(Clone, PartialEq, Oneof)]
pub enum FirstMessage {
    /// Creates an object.
    #[prost(message, tag = "2")]
    WriteObjectSpec(WriteObjectSpec),
    /// Opens one.
    #[prost(message, tag = "11")]
    AppendObjectSpec(AppendObjectSpec),
}

/// A message of a stream of appends.
#[derive(Clone, PartialEq, Message)]
pub struct BidiWriteObjectRequest {
    /// In the first message only.
    #[prost(oneof = "FirstMessage", tags = "2, 11")]
    pub first_message: Option<FirstMessage>,
    /// Where the bytes begin in the object.
    #[prost(int64, tag = "3")]
    pub write_offset: i64,
    /// The bytes.
    #[prost(message, optional, tag = "4")]
    pub checksummed_data: Option<ChecksummedData>,
    /// Asks for an answer.
    #[prost(bool, tag = "7")]
    pub state_lookup: bool,
    /// Makes all bytes up to the end of this message durable.
    #[prost(bool, tag = "8")]
    pub flush: bool,
    /// Ends the object for ever.
    #[prost(bool, tag = "9")]
    pub finish_write: bool,
}

impl BidiWriteObjectRequest {
    /// Returns a message with bytes of the object.
    #[must_use]
    pub fn data(write_offset: u64, bytes: Bytes) -> BidiWriteObjectRequest {
        let checksummed_data = Some(ChecksummedData::new(bytes));
        BidiWriteObjectRequest { write_offset: write_offset as i64, checksummed_data, ..Default::default() }
    }

    /// Returns the message with a flush, of which the service is to say when it is done.
    #[must_use]
    pub fn flushed(self) -> BidiWriteObjectRequest {
        BidiWriteObjectRequest { flush: true, state_lookup: true, ..self }
    }
}

/// What an answer says of the object.
#[derive(Clone, PartialEq, Oneof)]
pub enum WriteStatus {
    /// Bytes of the object that are durable.
    #[prost(int64, tag = "1")]
    PersistedSize(i64),
    /// The whole description: after the creation and the end.
    #[prost(message, tag = "2")]
    Resource(Object),
}

/// An answer on a stream of appends.
#[derive(Clone, PartialEq, Message)]
pub struct BidiWriteObjectResponse {
    /// The state of the object.
    #[prost(oneof = "WriteStatus", tags = "1, 2")]
    pub write_status: Option<WriteStatus>,
    /// Replaces earlier handles.
    #[prost(message, optional, tag = "3")]
    pub write_handle: Option<BidiWriteHandle>,
}

/// A detail of `ABORTED`: open the stream elsewhere.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BidiWriteObjectRedirectedError {
    /// To be repeated in the next request.
    #[prost(string, optional, tag = "1")]
    pub routing_token: Option<String>,
    /// If there is one, the object was created.
    #[prost(message, optional, tag = "2")]
    pub write_handle: Option<BidiWriteHandle>,
    /// The generation of the object that was created.
    #[prost(int64, optional, tag = "3")]
    pub generation: Option<i64>,
}

/// Which object a stream of reads is about.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BidiReadObjectSpec {
    /// `projects/_/buckets/NAME`.
    #[prost(string, tag = "1")]
    pub bucket: String,
    /// The key.
    #[prost(string, tag = "2")]
    pub object: String,
    /// The generation; 0 = the newest.
    #[prost(int64, tag = "3")]
    pub generation: i64,
    /// Of a redirect.
    #[prost(message, optional, tag = "13")]
    pub read_handle: Option<BidiReadHandle>,
    /// Of a redirect.
    #[prost(string, optional, tag = "14")]
    pub routing_token: Option<String>,
}

/// Names a reader.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BidiReadHandle {
    /// Opaque.
    #[prost(bytes = "bytes", tag = "1")]
    pub handle: Bytes,
}

/// A message of a stream of reads.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BidiReadObjectRequest {
    /// In the first message only.
    #[prost(message, optional, tag = "1")]
    pub read_object_spec: Option<BidiReadObjectSpec>,
    /// Ranges to read.
    #[prost(message, repeated, tag = "8")]
    pub read_ranges: Vec<ReadRange>,
}

/// A range to read.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ReadRange {
    /// Its first byte.
    #[prost(int64, tag = "1")]
    pub read_offset: i64,
    /// Its length; 0 = to the end.
    #[prost(int64, tag = "2")]
    pub read_length: i64,
    /// Chosen by the reader.
    #[prost(int64, tag = "3")]
    pub read_id: i64,
}

/// An answer on a stream of reads.
#[derive(Clone, PartialEq, Message)]
pub struct BidiReadObjectResponse {
    /// The description of the object, in the first answer.
    #[prost(message, optional, tag = "4")]
    pub metadata: Option<Object>,
    /// Pieces of ranges.
    #[prost(message, repeated, tag = "6")]
    pub object_data_ranges: Vec<ObjectRangeData>,
}

/// A piece of a range.
#[derive(Clone, PartialEq, Message)]
pub struct ObjectRangeData {
    /// The bytes.
    #[prost(message, optional, tag = "1")]
    pub checksummed_data: Option<ChecksummedData>,
    /// The range to which they belong, with the offset of these bytes.
    #[prost(message, optional, tag = "2")]
    pub read_range: Option<ReadRange>,
    /// These are the last bytes of the range.
    #[prost(bool, tag = "3")]
    pub range_end: bool,
}

/// A detail of `ABORTED`: read elsewhere.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BidiReadObjectRedirectedError {
    /// To be repeated in the next request.
    #[prost(message, optional, tag = "1")]
    pub read_handle: Option<BidiReadHandle>,
    /// To be repeated in the next request.
    #[prost(string, optional, tag = "2")]
    pub routing_token: Option<String>,
}

/// Asks for the description of an object: only a server needs it.
#[cfg(any(test, feature = "internals"))]
#[derive(Clone, PartialEq, Eq, Message)]
pub struct GetObjectRequest {
    /// `projects/_/buckets/NAME`.
    #[prost(string, tag = "1")]
    pub bucket: String,
    /// The key.
    #[prost(string, tag = "2")]
    pub object: String,
    /// The generation; 0 = the newest.
    #[prost(int64, tag = "3")]
    pub generation: i64,
}

/// Removes an object.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeleteObjectRequest {
    /// `projects/_/buckets/NAME`.
    #[prost(string, tag = "1")]
    pub bucket: String,
    /// The key.
    #[prost(string, tag = "2")]
    pub object: String,
    /// The generation; 0 = the newest.
    #[prost(int64, tag = "4")]
    pub generation: i64,
}

/// Asks for a part of a list.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ListObjectsRequest {
    /// `projects/_/buckets/NAME`.
    #[prost(string, tag = "1")]
    pub parent: String,
    /// Where the part begins.
    #[prost(string, tag = "3")]
    pub page_token: String,
    /// The beginning of the keys.
    #[prost(string, tag = "6")]
    pub prefix: String,
}

/// A part of a list.
#[derive(Clone, PartialEq, Message)]
pub struct ListObjectsResponse {
    /// The objects.
    #[prost(message, repeated, tag = "1")]
    pub objects: Vec<Object>,
    /// Where the next part begins; empty at the end.
    #[prost(string, tag = "3")]
    pub next_page_token: String,
}

/// No answer but success.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Empty {}

/// `google.rpc.Status`, in the details of a refusal.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RpcStatus {
    /// The code.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// For people.
    #[prost(string, tag = "2")]
    pub message: String,
    /// Details of any type.
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Any>,
}

/// A message of any type.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Any {
    /// Ends with the name of the type.
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// The message.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

impl RpcStatus {
    /// Returns the detail of the type with this name, if the bytes hold a status with one.
    #[must_use]
    pub fn detail<M: Message + Default>(details: &[u8], name: &str) -> Option<M> {
        let status = RpcStatus::decode(details).ok()?;
        let any = status.details.iter().find(|any| any.type_url.rsplit(['/', '.']).next() == Some(name))?;
        M::decode(&any.value[..]).ok()
    }
}

#[cfg(test)]
mod tests;
