//! Unit tests of `connection`.

use super::*;

#[track_caller]
fn parsed(text: &str) -> (String, bool, bool) {
    let endpoint = Endpoint::parse(text).unwrap();
    (endpoint.url, endpoint.is_encrypted, endpoint.is_amazon)
}

#[test]
fn endpoint_is_recognized() {
    let is = |url: &str, encrypted, amazon| (url.to_string(), encrypted, amazon);
    assert_eq!(parsed("http://127.0.0.1:9000"), is("http://127.0.0.1:9000", false, false));
    assert_eq!(parsed("http://localhost:9000/"), is("http://127.0.0.1:9000", false, false));
    assert_eq!(parsed("https://localhost/s3"), is("https://localhost/s3", true, false));
    assert_eq!(parsed("http://[::1]:9000"), is("http://[::1]:9000", false, false));
    assert_eq!(parsed("http://[::1]"), is("http://[::1]", false, false));
    let amazon = "https://s3.eu-west-1.amazonaws.com";
    assert_eq!(parsed(amazon), is(amazon, true, true));
}

#[test]
fn wrong_endpoint_is_refused_without_quoting_it() {
    for text in [
        "localhost:9000",
        "ftp://hidden",
        "http://",
        "http://hidden host",
        "http://user:hidden@host",
        "http://host?hidden",
        "http://hidden:port",
    ] {
        let error = Endpoint::parse(text).unwrap_err().to_string();
        assert!(error.contains("the endpoint of S3") && error.contains("write http://host:port"), "{error}");
        assert!(!error.contains("hidden"), "{error}");
    }
}

#[test]
fn only_directory_buckets_take_appends() {
    assert!(is_directory_bucket("bucket--usw2-az1--x-s3"));
    assert!(!is_directory_bucket("bucket"));
}

#[test]
fn missing_credentials_are_an_error_at_once() {
    let config = SdkConfig::builder().behavior_version(BehaviorVersion::latest()).build();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let error = runtime.block_on(check_credentials(&config)).unwrap_err();
    assert_eq!(error.kind(), crate::base::ErrorKind::InvalidArgument);
    assert!(error.message().contains("no credentials for S3 are found: set AWS_ACCESS_KEY_ID"), "{error}");
}
