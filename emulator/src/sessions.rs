//! Sessions of directory buckets: temporary credentials for one bucket.
//!
//! A token says what its session may do, and until when; a code made with the server's secret shows
//! that it was not changed. So sessions survive a restart, as those of the real store survive the
//! end of one of its machines.

use crate::refusal::Refusal;
use aws_sigv4::sign::v4::calculate_signature;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Temporary credentials.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Session {
    pub bucket: String,
    pub key_id: String,
    pub secret: String,
    pub token: String,
    pub expires: SystemTime,
    pub read_only: bool,
}

/// Makes and recognizes sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    lasts: Duration,
    secret: String,
}

impl Sessions {
    /// Sessions last so long. `secret` protects them.
    pub fn new(lasts: Duration, secret: &str) -> Sessions {
        Sessions { lasts, secret: secret.into() }
    }

    /// Begins a session for a bucket.
    pub fn begin(&self, bucket: &str, read_only: bool) -> Session {
        let expires = SystemTime::now() + self.lasts;
        let milliseconds = expires.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        self.session(bucket, milliseconds, read_only)
    }

    fn session(&self, bucket: &str, expires_ms: u64, read_only: bool) -> Session {
        let mode = if read_only { "ro" } else { "rw" };
        let says = format!("{expires_ms}.{mode}.{bucket}");
        let code = |purpose: &str| calculate_signature(&self.secret, format!("{purpose} {says}").as_bytes());
        Session {
            bucket: bucket.into(),
            key_id: code("key")[..20].to_uppercase(),
            secret: code("secret"),
            token: format!("{}.{says}", code("token")),
            expires: UNIX_EPOCH + Duration::from_millis(expires_ms),
            read_only,
        }
    }

    /// Returns the session of a token.
    ///
    /// # Errors
    /// The token was not made here, or its session has ended.
    pub fn find(&self, token: &str) -> Result<Session, Refusal> {
        let session = self.parse(token).filter(|session| session.token == token);
        let session = session
            .ok_or_else(|| Refusal::new("InvalidToken", 403, "there is no session with this token"))?;
        if session.expires < SystemTime::now() {
            return Err(Refusal::new("ExpiredToken", 403, "the session has ended"));
        }
        Ok(session)
    }

    fn parse(&self, token: &str) -> Option<Session> {
        let mut parts = token.splitn(4, '.').skip(1);
        let (expires, mode, bucket) = (parts.next()?, parts.next()?, parts.next()?);
        Some(self.session(bucket, expires.parse().ok()?, mode == "ro"))
    }
}

#[cfg(test)]
mod tests;
