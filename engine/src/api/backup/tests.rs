//! Tests of places.

use super::*;
use crate::base::settings::DeviceTrust;

#[test]
fn device_settings_apply_to_a_directory() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let place = Place::from(directory.path());
    for (device_trust, volatile) in [(DeviceTrust::Flush, true), (DeviceTrust::Device, false)] {
        let settings = Settings { device_trust, io_uring: false, ..Settings::default() };
        let facts = place.open_source(&settings).expect("there").facts();
        assert_eq!(facts.volatile_cache, volatile);
        assert_eq!(facts.io_uring, Err("switched off".to_string()));
    }
}
