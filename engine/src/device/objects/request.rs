//! Requests to a store of objects, and the ways in which they end.

use bytes::Bytes;
use std::ops::Range;
use std::time::Duration;

/// The version of an object that a store names (ETag or generation). Two versions are equal only if
/// the object has not changed in between.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Version(pub String);

/// When a put takes effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    /// Always. For a name that only this writer uses, and only with these bytes.
    Always,
    /// If there is no object of this name.
    Absent,
    /// If the object still has this version.
    Unchanged(Version),
}

/// A request. A request takes effect as a whole or not at all; it may take effect late, after its
/// sender has given up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Creates or replaces an object. The reply has its version.
    Put {
        /// The name, relative to the database.
        name: String,
        /// The whole content.
        body: Bytes,
        /// When it takes effect.
        condition: Condition,
    },
    /// Creates an object that takes appends, if there is none of this name. On some stores no other
    /// object takes them, and an object that is created so cannot be replaced. The reply has its
    /// version.
    Create {
        /// The name.
        name: String,
        /// The first bytes; at least one.
        body: Bytes,
    },
    /// Adds bytes to the end of an object that was created for it and has exactly `offset` bytes.
    /// The reply has its new version.
    Append {
        /// The name.
        name: String,
        /// Length of the object before; above 0.
        offset: u64,
        /// The bytes to add.
        body: Bytes,
        /// The version that the object must have, too, where the store can check it.
        version: Option<Version>,
    },
    /// Opens the stream of an object that was created for appends, where appends go over streams.
    /// The reply has the bytes that are durable. Refused if the object is finalized, or if another
    /// writer has taken it over and this one is to continue.
    Open {
        /// The name.
        name: String,
        /// The version that the object must have.
        version: Version,
        /// This client becomes the only writer; otherwise it continues as the writer that it was.
        takes_over: bool,
    },
    /// Ends an object whose stream is open, for ever: it never changes again. Nothing may be
    /// pending. The reply has its length.
    Finalize {
        /// The name.
        name: String,
        /// The version that the object must have.
        version: Version,
        /// The length that the object must have.
        len: u64,
    },
    /// Reads a range of an object's bytes, or all of them. A range that begins before the end and
    /// ends behind it is cut; one that begins at the end or behind it is empty. The reply has body,
    /// version and the length of the whole object.
    Get {
        /// The name.
        name: String,
        /// The bytes; `None` = all.
        range: Option<Range<u64>>,
    },
    /// Asks for length and version.
    Head {
        /// The name.
        name: String,
    },
    /// Lists all objects whose names begin with `prefix`, in order of their names. A prefix is
    /// empty or ends with `/`.
    List {
        /// The beginning of the names.
        prefix: String,
    },
    /// Removes an object; an absent one is no failure.
    Delete {
        /// The name.
        name: String,
    },
}

impl Request {
    /// Returns the name of the object, or the prefix of a list.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Request::Put { name, .. }
            | Request::Create { name, .. }
            | Request::Append { name, .. }
            | Request::Open { name, .. }
            | Request::Finalize { name, .. }
            | Request::Get { name, .. }
            | Request::Head { name }
            | Request::Delete { name } => name,
            Request::List { prefix } => prefix,
        }
    }

    /// Returns the kind of the request, for people and statistics.
    #[must_use]
    pub fn kind(&self) -> RequestKind {
        match self {
            Request::Put { .. } | Request::Create { .. } => RequestKind::Put,
            Request::Append { .. } => RequestKind::Append,
            Request::Open { .. } => RequestKind::Open,
            Request::Finalize { .. } => RequestKind::Finalize,
            Request::Get { .. } => RequestKind::Get,
            Request::Head { .. } => RequestKind::Head,
            Request::List { .. } => RequestKind::List,
            Request::Delete { .. } => RequestKind::Delete,
        }
    }
}

/// The kinds of requests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RequestKind {
    /// [`Request::Put`] and [`Request::Create`].
    Put,
    /// [`Request::Append`].
    Append,
    /// [`Request::Open`].
    Open,
    /// [`Request::Finalize`].
    Finalize,
    /// [`Request::Get`].
    Get,
    /// [`Request::Head`].
    Head,
    /// [`Request::List`].
    List,
    /// [`Request::Delete`].
    Delete,
}

impl RequestKind {
    /// All kinds.
    #[cfg(feature = "internals")]
    pub const ALL: [RequestKind; 8] = [
        RequestKind::Put,
        RequestKind::Append,
        RequestKind::Open,
        RequestKind::Finalize,
        RequestKind::Get,
        RequestKind::Head,
        RequestKind::List,
        RequestKind::Delete,
    ];

    /// The name in messages and statistics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RequestKind::Put => "put",
            RequestKind::Append => "append",
            RequestKind::Open => "open",
            RequestKind::Finalize => "finalize",
            RequestKind::Get => "get",
            RequestKind::Head => "head",
            RequestKind::List => "list",
            RequestKind::Delete => "delete",
        }
    }
}

/// An object in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Its name, relative to the database.
    pub name: String,
    /// Its length in bytes.
    pub len: u64,
}

/// What a successful request returned. Fields that do not belong to its kind are empty.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// The object's version after the request.
    pub version: Option<Version>,
    /// Length of the whole object in bytes.
    pub len: u64,
    /// The bytes that were read.
    pub body: Bytes,
    /// The objects that were listed.
    pub listed: Vec<Listed>,
    /// The object takes no more appends, as it is finalized.
    pub is_final: bool,
    /// How long ago the object that was read had been written, in whole seconds, if the store says
    /// so. Its clock and that of this machine differ, so nothing but the time of a wait may depend
    /// on it.
    pub age: Option<Duration>,
}

/// Why a request did not succeed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// What follows from it.
    pub kind: FailureKind,
    /// The store's answer or the client's error, without secrets.
    pub what: String,
}

impl Failure {
    /// Returns whether the store has refused the request itself, so that it certainly took no
    /// effect, and nothing that is there is the reason.
    pub(super) fn is_certain(&self) -> bool {
        matches!(self.kind, FailureKind::Forbidden | FailureKind::Denied)
    }
}

/// What follows from a failed request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureKind {
    /// The condition or the offset does not hold. Nothing happened, unless an earlier copy of the
    /// request is the reason.
    Refused,
    /// There is no such object. Nothing happened.
    Absent,
    /// The object takes no more appends. Nothing happened.
    Full,
    /// Another request was in the way. Nothing happened; the same request may be sent again.
    Again,
    /// The store asks for fewer requests. The request may have taken effect, or may still.
    Throttled,
    /// A timeout, a lost connection or an internal error. The request may have taken effect, or
    /// may still.
    Unknown,
    /// The store refuses the request for now: credentials that have expired or are being replaced,
    /// a permission, a clock that differs from the store's, a full disk. Nothing happened; the same
    /// request may be sent again.
    Forbidden,
    /// The store refuses whatever is sent: no such bucket, a wrong setting, a request that it does
    /// not know. Nothing happened.
    Denied,
}

impl FailureKind {
    /// Returns whether the request may have taken effect, or may still.
    #[must_use]
    pub fn is_ambiguous(self) -> bool {
        matches!(self, FailureKind::Throttled | FailureKind::Unknown)
    }
}
