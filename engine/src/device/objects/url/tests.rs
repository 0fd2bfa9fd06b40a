//! Unit tests of `url`.

use super::*;
use crate::base::ErrorKind;

#[track_caller]
fn parsed(text: &str) -> (Scheme, String, String) {
    let url = ObjectUrl::parse(text).expect("a valid URL");
    (url.scheme, url.bucket, url.prefix)
}

#[track_caller]
fn refused(text: &str) -> String {
    let error = ObjectUrl::parse(text).expect_err("an invalid URL");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    error.message().to_string()
}

#[test]
fn url_is_split_into_scheme_bucket_and_prefix() {
    let split = |scheme, bucket: &str, prefix: &str| (scheme, bucket.to_string(), prefix.to_string());
    assert_eq!(parsed("s3://b--usw2-az1--x-s3/a/b"), split(Scheme::S3, "b--usw2-az1--x-s3", "a/b"));
    assert_eq!(parsed("s3://bucket"), split(Scheme::S3, "bucket", ""));
    assert_eq!(parsed("s3://bucket/"), split(Scheme::S3, "bucket", ""));
    assert_eq!(parsed("az://container/db"), split(Scheme::Azure, "container", "db"));
    assert_eq!(parsed("gs://my_bucket.x/db/"), split(Scheme::Google, "my_bucket.x", "db"));
    assert_eq!(parsed("file:///var/lib/my db/"), split(Scheme::File, "", "var/lib/my db"));
}

#[test]
fn displayed_url_is_parsed_to_the_same_place() {
    for text in ["s3://bucket/a/b", "s3://bucket", "az://c/d", "gs://b/@x", "file:///a/b"] {
        let url = ObjectUrl::parse(text).expect("a valid URL");
        assert_eq!(url.to_string(), text);
        assert_eq!(ObjectUrl::parse(&format!("{url}/")).expect("a trailing slash is allowed"), url);
    }
}

#[test]
fn url_without_bucket_or_path_is_refused() {
    assert!(refused("s3://").contains("no bucket"), "{}", refused("s3://"));
    assert!(refused("gs:///prefix").contains("no bucket"));
    assert!(refused("file://").contains("no path"));
    assert!(refused("file:///").contains("no path"));
    assert!(refused("file://host/path").contains("names a host"));
}

#[test]
fn url_of_another_scheme_is_refused() {
    assert!(refused("http://bucket/prefix").contains("unknown"));
    assert!(refused("S3://bucket/prefix").contains("unknown"));
    assert!(refused("/var/lib/db").contains("begins with a scheme"));
}

#[test]
fn odd_parts_of_a_prefix_are_refused() {
    for (text, reason) in [
        ("s3://b/a//c", "empty part"),
        ("s3://b//", "empty part"),
        ("s3://b//c", "empty part"),
        ("s3://b/../c", "`..`"),
        ("file:///a/..", "`..`"),
        ("az://c/./d", "`.`"),
        ("s3://b/a%20b", "nothing is decoded"),
        ("s3://b/a\\b", "backslash"),
        ("s3://b/a\nb", "control character"),
        ("s3://b c/a", "cannot exist"),
        ("s3://../a", "cannot exist"),
        ("s3://b:9000/a", "port"),
    ] {
        assert!(refused(text).contains(reason), "{text}: {}", refused(text));
    }
    assert!(refused(&format!("s3://b/{}", "x".repeat(901))).contains("shorten"));
}

#[test]
fn credentials_are_refused_and_never_quoted() {
    for text in [
        "s3://KEY:hidden@bucket/prefix",
        "s3://KEY:hid/den@bucket/prefix",
        "s3://hidden@bucket/prefix",
        "s3://bucket/prefix?token=hidden",
        "s3://bucket/prefix#hidden",
        "hidden://bucket",
        "s3://KEY:hidden",
    ] {
        let message = refused(text);
        assert!(!message.contains("hid") && !message.contains("KEY"), "{text}: {message}");
    }
    assert!(refused("s3://KEY:hidden@bucket/prefix").contains("credentials"));
}

#[test]
fn paths_are_not_taken_for_urls() {
    for text in ["s3://b", "file:///a", "foo://x", "az://"] {
        assert!(ObjectUrl::is_url(text), "{text}");
    }
    for text in ["/a/b", "db", "./s3:/b", "a/b://c", "://x", "1s3://b"] {
        assert!(!ObjectUrl::is_url(text), "{text}");
    }
}

#[test]
fn a_list_of_urls_is_split_where_a_scheme_follows_a_comma() {
    assert_eq!(ObjectUrl::split("s3://a/p"), ["s3://a/p"]);
    assert_eq!(ObjectUrl::split("s3://a/p,gs://b/q,file:///d"), ["s3://a/p", "gs://b/q", "file:///d"]);
    assert_eq!(ObjectUrl::split("s3://a/p,q"), ["s3://a/p,q"]);
    let error = ObjectUrl::parse("s3://a/p,gs://b/q").expect_err("a list").to_string();
    assert!(error.contains("several buckets"), "{error}");
    assert_eq!(ObjectUrl::split("file:///a,b,s3://c/d,e"), ["file:///a,b", "s3://c/d,e"]);
}

#[test]
fn rest_of_a_zonal_bucket_is_another_url() {
    let url = ObjectUrl::parse("gs://zonal/a/b?rest=gs://regional/c").unwrap();
    assert_eq!((url.scheme, &url.bucket[..], &url.prefix[..]), (Scheme::Google, "zonal", "a/b"));
    let rest = url.rest.as_ref().unwrap();
    assert_eq!((rest.scheme, &rest.bucket[..], &rest.prefix[..]), (Scheme::Google, "regional", "c"));
    assert_eq!(url.to_string(), "gs://zonal/a/b?rest=gs://regional/c");
    let local = ObjectUrl::parse("gs://zonal/a?rest=file:///tmp/x").unwrap();
    assert_eq!(local.rest.unwrap().to_string(), "file:///tmp/x");
    for (wrong, said) in [
        ("gs://zonal/a?rest=gs://zonal/b", "names its own bucket"),
        ("gs://zonal/a?rest=gs://b/c?rest=gs://d/e", "twice"),
        ("gs://zonal/a?rest=b", "begins with a scheme"),
        ("gs://zonal/a?other=b", "has a query"),
        ("s3://bucket/a?rest=gs://b/c", "has a query"),
    ] {
        let error = ObjectUrl::parse(wrong).unwrap_err().to_string();
        assert!(error.contains(said), "{wrong}: {error}");
    }
}
