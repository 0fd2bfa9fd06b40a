//! Unit tests of `options`.

use super::*;

#[test]
fn printed_options_show_no_secret() {
    let credentials =
        S3Credentials { key_id: "AKIAHIDDEN".into(), secret: "hidden".into(), token: Some("hidden".into()) };
    let text = format!("{:?}", S3Options { credentials: Some(credentials), ..S3Options::default() });
    assert!(!text.contains("hidden\"") && !text.contains("HIDDEN"), "{text}");
}
