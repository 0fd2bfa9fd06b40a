//! `quench emulate gcs-rapid` as a process of its own, and databases with their log in it.

use crate::emulator::Server;
use crate::support::*;
use quenchdb::internals::base::depth::some;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

/// Returns the URL of a database with everything but the log in a directory.
fn url(rest: &std::path::Path, name: &str) -> String {
    format!("gs://quench-zonal/{name}?rest=file://{}/{name}", text(rest))
}

#[test]
fn database_with_its_log_in_a_zonal_bucket() {
    let (server, dir) = (Server::start_store("gcs-rapid", &[]), directory());
    let url = url(dir.path(), "accounts");
    server.run(&["put", &url, "t", "alice", "100"], 0);
    assert_eq!(server.run(&["get", &url, "t", "alice"], 0), b"100\n");
    server.run(&["put", &url, "t", "bob", "200"], 0);
    server.run(&["verify", &url], 0);
    let listed = String::from_utf8(server.run(&["objects", &url], 0)).expect("text");
    assert!(listed.contains("(closed)") && listed.contains("lane 0"), "{listed}");
    let here = std::fs::read_dir(dir.path().join("accounts")).expect("the rest is here");
    let names: Vec<String> =
        here.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned()).collect();
    assert!(names.contains(&"manifest".to_string()) && !names.contains(&"log".to_string()), "{names:?}");
    let probed = String::from_utf8(server.run(&["probe", &url, "--rounds", "2"], 0)).expect("text");
    assert!(probed.contains("takes appends over streams"), "{probed}");
}

#[test]
fn writers_are_killed_beside_faults_of_a_zonal_bucket() {
    let faults = "before=0.01,after=0.01,torn=0.02,late=0.01,redirect=0.02,expire=0.03,throttle=0.01";
    let (server, dir) = (Server::start_store("gcs-rapid", &["--faults", faults]), directory());
    for (name, arguments) in
        [("kills", &["--seconds", "6"][..]), ("rivals", &["--seconds", "6", "--rivals", "2"])]
    {
        let url = url(dir.path(), name);
        let report = server.run(&[&["torture", &url, "--json"], arguments].concat(), 0);
        let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
        assert_eq!((&report["lost"], &report["violations"]), (&0.into(), &0.into()), "{report}");
        assert!(report["acknowledged"].as_u64().is_some_and(|number| number > 0), "{report}");
    }
}

/// The node is killed again and again, and so is the service, which keeps what it has confirmed.
#[test]
fn torture_with_kills_of_the_zonal_bucket_loses_nothing() {
    let (dir, kept) = (directory(), directory());
    let faults = "before=0.01,after=0.01,torn=0.02,late=0.01,redirect=0.02,expire=0.03";
    let place = ["--directory", text(kept.path()), "--faults", faults];
    let rivals = ["--rivals", "2"];
    for (preset, more) in some(&[("auto", &[][..]), ("pipelined", &[]), ("autonomous", &rivals)], 1) {
        let mut server = Server::start_store("gcs-rapid", &place);
        let address = server.rapid_address();
        let url = url(dir.path(), preset);
        let arguments = ["torture", &url, "--seconds", "6", "--preset", preset, "--json"];
        let mut torture = server.quench(&[&arguments[..], more].concat());
        let torture = torture.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(1_200));
            drop(server);
            server = Server::start_store("gcs-rapid", &[&place[..], &["--listen", &address]].concat());
        }
        let output = torture.wait_with_output().expect("ends");
        expect_code(&output, 0);
        let report = json(&output);
        let (kills, acknowledged) = (&report["kills"], &report["acknowledged"]);
        assert!(kills.as_u64() > Some(0) || !more.is_empty(), "{report}");
        assert!(acknowledged.as_u64() > Some(0), "{report}");
        assert_eq!((&report["lost"], &report["violations"]), (&0.into(), &0.into()), "{report}");
        eprintln!("{preset}: {kills} kills, {acknowledged} acknowledged commits, none lost");
    }
}

/// A server that refuses each request for a zonal bucket, as Google refuses those of the JSON
/// interface, and answers no other.
fn refusing() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            let len = stream.read(&mut request).unwrap_or(0);
            if !String::from_utf8_lossy(&request[..len]).contains("quench-zonal") {
                continue;
            }
            let answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let _ = stream.write_all(answer);
        }
    });
    address
}

#[test]
fn zonal_buckets_are_told_from_others() {
    let (server, dir) = (Server::start_store("gcs-rapid", &[]), directory());
    let refused = |arguments: &[&str]| {
        let mut command = server.quench(arguments);
        let output = command.env("STORAGE_EMULATOR_HOST", refusing()).output().expect("the program starts");
        expect_code(&output, 2);
        String::from_utf8(output.stderr).expect("text")
    };
    for arguments in [
        &["probe", "gs://quench-zonal/a"][..],
        &["put", "gs://quench-zonal/a", "t", "alice", "1"],
        &["get", "gs://quench-zonal/a", "t", "alice"],
        &["verify", "gs://quench-zonal/a"],
        &["objects", "gs://quench-zonal/a"],
    ] {
        let said = refused(arguments);
        let form = "name a regional bucket for the rest: gs://quench-zonal/";
        assert!(said.contains("the bucket quench-zonal is zonal") && said.contains(form), "{said}");
        assert!(said.contains("?rest=gs://BUCKET/PREFIX"), "{said}");
    }
    // Each names the zonal one of several buckets.
    let list = "gs://one/a,gs://quench-zonal/b,gs://three/c";
    for arguments in [
        &["put", list, "t", "alice", "1"][..],
        &["get", list, "t", "alice"],
        &["stat", list],
        &["follow", list],
    ] {
        let said = refused(arguments);
        let why = "the bucket quench-zonal is zonal (class RAPID): it cannot be one of several buckets";
        let advice = "name a regional bucket instead of gs://quench-zonal/b";
        assert!(said.contains(why) && said.contains(advice), "{arguments:?}: {said}");
    }
    let rest = text(dir.path());
    let put = |place: &str| refused(&["put", place, "t", "a", "1"]);
    let said = put(&format!("gs://no-such/a?rest=file://{rest}/a"));
    assert!(said.contains("there is no bucket no-such"), "{said}");
    let said = put(&format!("gs://quench-zonal/a?rest=file://{rest}/a,s3://b/c"));
    assert!(said.contains("cannot be one of several buckets"), "{said}");
    let said = put("gs://quench-zonal/a?rest=gs://quench-zonal/b");
    assert!(said.contains("names its own bucket"), "{said}");
    let server = Server::start_store("gcs-rapid", &["--mistake", "ignores-generation"]);
    let output = server.run(&["put", &url(dir.path(), "b"), "t", "a", "1"], 2);
    let said = String::from_utf8_lossy(&output);
    assert!(said.contains("ignores the generation of a creation"), "{said}");
    for (arguments, wanted) in [
        (["--model", "s4"], "no model `s4`"),
        (["--faults", "torn=2"], "between 0 and 1"),
        (["--mistake", "all"], "no mistake `all`"),
    ] {
        let output = run(&[&["emulate", "gcs-rapid"][..], &arguments].concat());
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(wanted), "{said}");
    }
}
