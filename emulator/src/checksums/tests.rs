//! Unit tests of checksums: a wrong one of each kind is found.

use super::*;

#[test]
fn right_checksums_pass_and_wrong_ones_do_not() {
    // Of the nine digits that the definitions of the CRCs give as their example.
    let body = b"123456789";
    let right = Expected {
        crc32: Some("y/Q5Jg==".into()),
        crc32c: Some("4waSgw==".into()),
        crc64nvme: Some("rosUhgp5mIg=".into()),
        sha1: Some("98O8HYCOBHMq32eZZczDTKeuNEE=".into()),
        sha256: None,
    };
    right.check(body).unwrap();
    for wrong in [
        Expected { crc32: Some("AAAAAA==".into()), ..right.clone() },
        Expected { crc32c: Some("AAAAAA==".into()), ..right.clone() },
        Expected { crc64nvme: Some("AAAAAAAAAAA=".into()), ..right.clone() },
        Expected { sha1: right.crc32.clone(), ..right.clone() },
        Expected { sha256: right.crc32.clone(), ..right.clone() },
    ] {
        assert_eq!(wrong.check(body).unwrap_err().code, "BadDigest");
    }
    Expected::default().check(b"anything").unwrap();
}
