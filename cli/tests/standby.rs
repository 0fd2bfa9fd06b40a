//! `quench follow` and `quench demo --standby` as processes, in buckets with and without appends.

use crate::emulator::{DIRECTORY_BUCKET, Server};
use crate::support::*;
use serde_json::Value;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

/// A child that is killed when it is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn json_of(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// Returns what an HTTP server answers.
fn ask(address: &str) -> String {
    let begun = Instant::now();
    let mut peer = loop {
        match TcpStream::connect(address) {
            Ok(peer) => break peer,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(20), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    peer.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").expect("a peer");
    let mut answer = String::new();
    peer.read_to_string(&mut answer).expect("text");
    answer
}

/// Starts to follow a database, and puts three rows meanwhile. Returns when they are shown, with
/// the rest of what the follower prints.
fn follow_three_puts(server: &Server, url: &str, more: &[&str]) -> (Killed, Lines<BufReader<ChildStdout>>) {
    let arguments = [&["follow", url, "--json", "--every", "0.1"], more].concat();
    let mut child = Killed(server.quench(&arguments).stdout(Stdio::piped()).spawn().expect("starts"));
    let mut lines = BufReader::new(child.0.stdout.take().expect("piped")).lines();
    let mut next = || json_of(&lines.next().expect("a line").expect("text"));
    let first = next()["csn"].as_u64().expect("a CSN");
    for number in 0..3 {
        server.run(&["put", url, "t", &format!("key {number}"), "1"], 0);
    }
    let begun = Instant::now();
    loop {
        let line = next();
        if line["csn"].as_u64().is_some_and(|csn| csn >= first + 3) && line["lag_csns"] == 0 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{line}");
    }
    (child, lines)
}

#[test]
fn follow_prints_the_csn_of_another_process() {
    let server = Server::start(&[]);
    for bucket in [DIRECTORY_BUCKET, "quench"] {
        let url = format!("s3://{bucket}/followed");
        server.run(&["put", &url, "t", "alice", "100"], 0);
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = free.local_addr().expect("known").to_string();
        drop(free);
        let (mut child, _lines) = follow_three_puts(&server, &url, &["--serve-metrics", &address]);
        let metrics = ask(&address);
        assert!(metrics.contains("quenchdb_standby_follows 1\n"), "{metrics}");
        let id = rustix::process::Pid::from_child(&child.0);
        rustix::process::kill_process(id, rustix::process::Signal::INT).expect("it runs");
        assert!(child.0.wait().expect("a child").success());
        let pins = json_of(&String::from_utf8(server.run(&["pins", &url, "--json"], 0)).expect("text"));
        assert_eq!(pins["pins"].as_array().map(Vec::len), Some(0), "a signal leaves no pin: {pins}");
    }
    let said = server.run(&["follow", "s3://quench/none"], 2);
    assert!(String::from_utf8_lossy(&said).contains("holds no database"));
}

#[test]
fn follow_shows_a_database_in_several_buckets() {
    let server = Server::start(&[]);
    let urls = ["one", "two", "three"].map(|prefix| format!("s3://quench/{prefix}"));
    let url = urls.join(",");
    server.run(&["put", &url, "t", "alice", "100"], 0);
    drop(follow_three_puts(&server, &url, &[]));
    let said = server.run(&["follow", &urls[..2].join(",")], 2);
    assert!(String::from_utf8_lossy(&said).contains("other buckets"), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn follow_keeps_a_copy_of_a_directory_up_to_date() {
    let server = Server::start(&[]);
    let dir = directory();
    let (db, copy) = (dir.path().join("db"), dir.path().join("copy"));
    let (db, copy) = (text(&db), text(&copy));
    server.run(&["put", db, "t", "alice", "1"], 0);
    for round in 0..3 {
        let mut child = Killed(
            server
                .quench(&["follow", db, "--into", copy, "--json", "--every", "0.1"])
                .stdout(Stdio::piped())
                .spawn()
                .expect("starts"),
        );
        let mut lines = BufReader::new(child.0.stdout.take().expect("piped")).lines();
        let mut next = || json_of(&lines.next().expect("a line").expect("text"));
        let first = next()["csn"].as_u64().expect("a CSN");
        let value = format!("value {round}");
        server.run(&["put", db, "t", "alice", &value], 0);
        let begun = Instant::now();
        while next()["csn"].as_u64().is_none_or(|csn| csn <= first) {
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
        drop(child);
        let read = server.run(&["get", copy, "t", "alice"], 0);
        assert!(String::from_utf8_lossy(&read).contains(&value), "{}", String::from_utf8_lossy(&read));
    }
}

#[test]
fn demo_takes_over_from_dead_writers_and_from_zombies() {
    let server = Server::start(&[]);
    let url = format!("s3://{DIRECTORY_BUCKET}/demo-standby");
    for place in [Some(url.as_str()), None] {
        let dir = directory();
        let path = place.unwrap_or_else(|| text(dir.path()));
        let report = server.run(&["demo", "--standby", path, "--seconds", "4", "--json"], 0);
        let report = json_of(&String::from_utf8(report).expect("text"));
        assert_eq!((&report["missing"], &report["kept"]), (&Value::from(0), &Value::from(true)), "{report}");
        let takeovers = report["takeovers"].as_array().expect("a list");
        assert_eq!(takeovers.len(), 4, "{report}");
        for takeover in takeovers {
            assert!(takeover["acknowledged"].as_u64().is_some_and(|number| number > 0), "{report}");
        }
        assert!(takeovers.iter().any(|takeover| takeover["zombie"] == true), "{report}");
    }
}
