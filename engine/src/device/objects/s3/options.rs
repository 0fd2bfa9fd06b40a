//! Settings of the client, with defaults for a store in the same zone.

use std::fmt;
use std::time::Duration;

/// Settings of an [`S3Store`](super::S3Store). What is `None` comes from the environment and the
/// configuration files, as for every AWS program.
#[derive(Clone, Debug)]
pub struct S3Options {
    /// The server, `http://host:port` or `https://host:port`; otherwise `AWS_ENDPOINT_URL_S3`,
    /// `AWS_ENDPOINT_URL`, the profile, or Amazon's server of the region.
    pub endpoint: Option<String>,
    /// The region; otherwise `AWS_REGION`, the profile, the machine's own.
    pub region: Option<String>,
    /// Credentials; otherwise `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, the profile, web
    /// identity, or the machine's role.
    pub credentials: Option<S3Credentials>,
    /// Whether requests to a directory bucket use a session (`CreateSession`); otherwise
    /// `AWS_S3_DISABLE_EXPRESS_SESSION_AUTH`, or true. Some servers know no sessions.
    pub session_auth: Option<bool>,
    /// Time to establish a connection.
    pub connect_timeout: Duration,
    /// Time of one attempt; an attempt has a second more for each MiB that it transfers. A write
    /// has one attempt.
    pub attempt_timeout: Duration,
    /// For so long a read is sent again after failures that may pass.
    pub read_deadline: Duration,
    /// Threads of the client.
    pub threads: usize,
}

impl Default for S3Options {
    fn default() -> S3Options {
        S3Options {
            endpoint: None,
            region: None,
            credentials: None,
            session_auth: None,
            connect_timeout: Duration::from_secs(3),
            attempt_timeout: Duration::from_secs(10),
            read_deadline: Duration::from_secs(60),
            threads: 2,
        }
    }
}

/// Credentials that do not come from the environment. Printing them shows no secret.
#[derive(Clone)]
pub struct S3Credentials {
    /// The access key's id.
    pub key_id: String,
    /// The secret key.
    pub secret: String,
    /// The token of temporary credentials.
    pub token: Option<String>,
}

impl fmt::Debug for S3Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("S3Credentials(hidden)")
    }
}

#[cfg(test)]
mod tests;
