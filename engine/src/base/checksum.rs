//! Checksums: CRC-32C everywhere, computed by the processor where it can.

/// Returns the CRC-32C of `bytes`.
#[must_use]
pub fn crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Returns the CRC-32C of the bytes of `previous` followed by `bytes`.
#[must_use]
pub fn crc_append(previous: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(previous, bytes)
}
