//! The four tables of TATP and the index of its numbers.
//!
//! | table | key, big-endian | row |
//! |---|---|---|
//! | `subscriber` | S, 4 bytes | [`subscriber`] |
//! | `subscriber.number` | SUB_NBR, 15 digits | S |
//! | `access_info` | S, AI_TYPE | [`access_info`] |
//! | `special_facility` | S, SF_TYPE | [`special_facility`] |
//! | `call_forwarding` | S, SF_TYPE, START_TIME | [`call_forwarding`] |

use crate::record;

record! {
    /// A subscriber. Ten bits are bits of one number; ten hexadecimal digits half a byte each.
    subscriber {
        /// Current location.
        VLR_LOCATION: u32,
        /// Bit 1 is the lowest.
        BITS: u16,
        /// Home location.
        MSC_LOCATION: u32,
        /// Ten digits.
        HEX: [u8; 5],
        /// Ten bytes.
        BYTE2: [u8; 10],
        /// Telephone number, 15 digits.
        SUB_NBR: [u8; 15],
    }
}

record! {
    /// Access information.
    access_info {
        /// 0 to 255.
        DATA1: u8,
        /// 0 to 255.
        DATA2: u8,
        /// Three letters.
        DATA3: [u8; 3],
        /// Five letters.
        DATA4: [u8; 5],
    }
}

record! {
    /// A special facility.
    special_facility {
        /// 1 for 85 of 100.
        IS_ACTIVE: u8,
        /// 0 to 255.
        DATA_A: u8,
        /// 0 to 255.
        ERROR_CNTRL: u8,
        /// Five letters.
        DATA_B: [u8; 5],
    }
}

record! {
    /// Call forwarding.
    call_forwarding {
        /// End hour.
        END_TIME: u8,
        /// The number, 15 digits.
        NUMBERX: [u8; 15],
    }
}

/// The tables.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Tables<T> {
    pub subscriber: T,
    pub number: T,
    pub access_info: T,
    pub special_facility: T,
    pub call_forwarding: T,
}

impl<T> Tables<T> {
    /// Opens or creates the tables.
    ///
    /// # Errors
    /// Those of `table`.
    pub fn open(mut table: impl FnMut(&str) -> anyhow::Result<T>) -> anyhow::Result<Tables<T>> {
        Ok(Tables {
            subscriber: table("tatp.subscriber")?,
            number: table("tatp.subscriber.number")?,
            access_info: table("tatp.access_info")?,
            special_facility: table("tatp.special_facility")?,
            call_forwarding: table("tatp.call_forwarding")?,
        })
    }
}

/// Returns the number of subscriber `s`, padded with zeros.
#[must_use]
pub fn number_of(s: u32) -> [u8; 15] {
    let (mut number, mut left) = ([b'0'; 15], s);
    for digit in number.iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
    number
}

/// Key of `subscriber`; what all keys of the subscriber begin with.
#[must_use]
pub fn subscriber_key(s: u32) -> [u8; 4] {
    s.to_be_bytes()
}

/// Key of `access_info` and `special_facility`.
#[must_use]
pub fn typed_key(s: u32, kind: u8) -> [u8; 5] {
    let [a, b, c, d] = s.to_be_bytes();
    [a, b, c, d, kind]
}

/// Key of `call_forwarding`.
#[must_use]
pub fn forwarding_key(s: u32, kind: u8, start: u8) -> [u8; 6] {
    let [a, b, c, d] = s.to_be_bytes();
    [a, b, c, d, kind, start]
}

/// Returns the subscriber of a key.
#[must_use]
pub fn subscriber_of(key: &[u8]) -> Option<u32> {
    key.first_chunk().map(|s| u32::from_be_bytes(*s))
}
