//! Checks the checksums that a client sends with a body, in headers or behind it.

use crate::refusal::Refusal;
use s3s::TrailingHeaders;
use s3s::checksum::ChecksumHasher;
use s3s::dto::{Checksum, PutObjectInput, UploadPartInput};

/// The checksums of a body, as base64.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expected {
    crc32: Option<String>,
    crc32c: Option<String>,
    crc64nvme: Option<String>,
    sha1: Option<String>,
    sha256: Option<String>,
}

/// Returns the checksums in the headers of a put or of a part: two types with the same fields.
macro_rules! expected_of {
    ($input:expr) => {
        Expected {
            crc32: $input.checksum_crc32.clone(),
            crc32c: $input.checksum_crc32c.clone(),
            crc64nvme: $input.checksum_crc64nvme.clone(),
            sha1: $input.checksum_sha1.clone(),
            sha256: $input.checksum_sha256.clone(),
        }
    };
}

impl From<&PutObjectInput> for Expected {
    fn from(input: &PutObjectInput) -> Expected {
        expected_of!(input)
    }
}

impl From<&UploadPartInput> for Expected {
    fn from(input: &UploadPartInput) -> Expected {
        expected_of!(input)
    }
}

impl Expected {
    /// Adds the checksums that came behind the body.
    pub fn with_trailers(mut self, trailers: Option<&TrailingHeaders>) -> Expected {
        let Some(headers) = trailers.and_then(TrailingHeaders::take) else { return self };
        let value =
            |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(ToString::to_string);
        for (field, name) in [
            (&mut self.crc32, "x-amz-checksum-crc32"),
            (&mut self.crc32c, "x-amz-checksum-crc32c"),
            (&mut self.crc64nvme, "x-amz-checksum-crc64nvme"),
            (&mut self.sha1, "x-amz-checksum-sha1"),
            (&mut self.sha256, "x-amz-checksum-sha256"),
        ] {
            *field = value(name).or_else(|| field.take());
        }
        self
    }

    /// # Errors
    /// The body has another checksum.
    pub fn check(&self, body: &[u8]) -> Result<(), Refusal> {
        let mut hasher = ChecksumHasher {
            crc32: self.crc32.as_ref().map(|_| Default::default()),
            crc32c: self.crc32c.as_ref().map(|_| Default::default()),
            crc64nvme: self.crc64nvme.as_ref().map(|_| Default::default()),
            sha1: self.sha1.as_ref().map(|_| Default::default()),
            sha256: self.sha256.as_ref().map(|_| Default::default()),
        };
        hasher.update(body);
        let Checksum {
            checksum_crc32,
            checksum_crc32c,
            checksum_crc64nvme,
            checksum_sha1,
            checksum_sha256,
            ..
        } = hasher.finalize();
        for (name, expected, found) in [
            ("CRC-32", &self.crc32, checksum_crc32),
            ("CRC-32C", &self.crc32c, checksum_crc32c),
            ("CRC-64/NVME", &self.crc64nvme, checksum_crc64nvme),
            ("SHA-1", &self.sha1, checksum_sha1),
            ("SHA-256", &self.sha256, checksum_sha256),
        ] {
            if *expected != found {
                return Err(Refusal::new("BadDigest", 400, format!("the body has another {name}")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
