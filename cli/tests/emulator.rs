//! `quench emulate s3` as a process of its own, and databases in it: killed on both sides.

use crate::support::*;
use quenchdb::internals::base::depth::some;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const DIRECTORY_BUCKET: &str = "quench--local-az1--x-s3";
const FAULTS: &str =
    "throttle=0.02,error-before=0.01,error-after=0.02,lost=0.02,reset=0.01,late=0.01:300ms,twice=0.02";

/// An emulator in a process of its own, which is killed when it is dropped.
pub struct Server {
    child: Child,
    environment: Vec<(String, String)>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts an emulator and waits until it listens.
    pub fn start(arguments: &[&str]) -> Server {
        Server::start_store("s3", arguments)
    }

    /// Starts an emulator of a store and waits until it listens.
    pub fn start_store(store: &str, arguments: &[&str]) -> Server {
        let arguments = [&["emulate", store, "--json"], arguments].concat();
        let mut child = quench(&arguments).stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let environment = said["environment"].as_object().expect("variables").iter();
        let environment =
            environment.map(|(name, value)| (name.clone(), value.as_str().expect("text").into()));
        Server { environment: environment.collect(), child }
    }

    /// Returns host and port.
    pub fn address(&self) -> String {
        let endpoint = self.environment.iter().find(|(name, _)| name == "AWS_ENDPOINT_URL_S3");
        endpoint.expect("an endpoint").1.trim_start_matches("http://").to_string()
    }

    /// Returns host and port of a zonal bucket.
    pub fn rapid_address(&self) -> String {
        let endpoint = self.environment.iter().find(|(name, _)| name == "STORAGE_EMULATOR_HOST_GRPC");
        endpoint.expect("an address").1.clone()
    }

    /// Returns a command that finds the server.
    pub fn quench(&self, arguments: &[&str]) -> Command {
        let mut command = quench(arguments);
        command.envs(self.environment.iter().cloned());
        command
    }

    #[track_caller]
    pub fn run(&self, arguments: &[&str], code: i32) -> Vec<u8> {
        let output = self.quench(arguments).output().expect("the program starts");
        expect_code(&output, code);
        if code == 2 { output.stderr } else { output.stdout }
    }
}

#[test]
fn database_outlives_its_machine_and_the_server() {
    let dir = directory();
    let place = ["--directory", text(dir.path())];
    for bucket in [DIRECTORY_BUCKET, "quench"] {
        let url = format!("s3://{bucket}/accounts");
        let server = Server::start(&place);
        server.run(&["put", &url, "t", "alice", "100"], 0);
        let address = server.address();
        drop(server);
        let server = Server::start(&[&place[..], &["--listen", &address]].concat());
        assert_eq!(server.run(&["get", &url, "t", "alice"], 0), b"100\n");
        server.run(&["verify", &url], 0);
    }
}

/// Waits until the first open has raced requests, which takes seconds beside faults: until the
/// directory of the emulator has the mark of that.
fn wait_for_races(directory: &Path, url: &str) {
    let bucket_and_prefix = url.trim_start_matches("s3://");
    let prefix = bucket_and_prefix.split_once('/').expect("a prefix").1;
    let begun = Instant::now();
    let is_mark = |words: &[u8]| words.starts_with(b"probe/raced-");
    let is_there = || {
        let files = std::fs::read_dir(directory).expect("there").map(|entry| entry.expect("readable").path());
        files.map(|file| std::fs::read(file).unwrap_or_default()).any(|bytes| {
            let names = bytes.windows(prefix.len()).enumerate().filter(|(_, at)| *at == prefix.as_bytes());
            // The number of the database lies between.
            names.map(|(at, _)| &bytes[at..]).any(|name| name.windows(12).take(80).any(is_mark))
        })
    };
    while !is_there() {
        assert!(begun.elapsed() < Duration::from_secs(120), "no open has passed the races of {url}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn torture_with_kills_of_both_sides_loses_nothing() {
    let dir = directory();
    let place = ["--directory", text(dir.path()), "--faults", FAULTS];
    for (bucket, preset) in some(&[("quench", "pipelined"), (DIRECTORY_BUCKET, "auto")], 1) {
        let mut server = Server::start(&place);
        let address = server.address();
        let url = format!("s3://{bucket}/torture-{preset}");
        let arguments = ["torture", &url, "--seconds", "4", "--preset", preset, "--json"];
        let torture =
            server.quench(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        wait_for_races(dir.path(), &url);
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(1_000));
            drop(server);
            server = Server::start(&[&place[..], &["--listen", &address]].concat());
        }
        let output = torture.wait_with_output().expect("ends");
        expect_code(&output, 0);
        let report = json(&output);
        let (kills, acknowledged) = (&report["kills"], &report["acknowledged"]);
        assert!(
            kills.as_u64().expect("kills") > 0 && acknowledged.as_u64().expect("commits") > 0,
            "{report}"
        );
        assert_eq!((&report["lost"], &report["violations"]), (&Value::from(0), &Value::from(0)), "{report}");
        eprintln!("{preset}: {kills} kills, {acknowledged} acknowledged commits, none lost");
    }
}

/// Three servers with a bucket each; a killed one comes back as it was, the last one empty.
#[test]
fn torture_over_three_servers_with_kills_of_each_loses_nothing() {
    let dir = directory();
    let zones = ["zone-a", "zone-b", "zone-c"];
    let start = |zone: &str, listen: &str| {
        let kept = dir.path().join(zone);
        let place = if zone == "zone-c" { vec!["--memory"] } else { vec!["--directory", text(&kept)] };
        let common = ["--bucket", zone, "--faults", FAULTS, "--listen", listen];
        Server::start(&[&place[..], &common].concat())
    };
    let mut servers: Vec<Server> = zones.iter().map(|zone| start(zone, "127.0.0.1:0")).collect();
    let url = zones.map(|zone| format!("s3://{zone}/db")).join(",");
    let mut torture = servers[0].quench(&["torture", &url, "--seconds", "12", "--json"]);
    for (zone, server) in zones.iter().zip(&servers) {
        let variable = format!("QUENCH_S3_ENDPOINT_{}", zone.to_uppercase().replace('-', "_"));
        torture.env(variable, format!("http://{}", server.address()));
    }
    let torture = torture.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    wait_for_races(&dir.path().join("zone-a"), "s3://zone-a/db");
    // Each has time to be repaired before the next one is killed.
    for zone in [0, 1, 2, 0, 1] {
        std::thread::sleep(Duration::from_millis(2_000));
        let address = servers[zone].address();
        let server = servers.remove(zone);
        drop(server);
        servers.insert(zone, start(zones[zone], &address));
    }
    let output = torture.wait_with_output().expect("ends");
    expect_code(&output, 0);
    let report = json(&output);
    assert!(number(&report, "kills") > 0.0 && number(&report, "acknowledged") > 0.0, "{report}");
    assert_eq!((&report["lost"], &report["violations"]), (&Value::from(0), &Value::from(0)), "{report}");
}

#[test]
fn rivals_that_take_over_lose_nothing() {
    for (bucket, preset) in some(&[(DIRECTORY_BUCKET, "auto"), ("quench", "pipelined")], 1) {
        let server = Server::start(&["--faults", FAULTS]);
        let url = format!("s3://{bucket}/rivals");
        let arguments =
            ["torture", &url, "--rivals", "3", "--threads", "2", "--rounds", "1", "--seconds", "4", "--json"];
        let report: Value =
            serde_json::from_slice(&server.run(&[&arguments[..], &["--preset", preset]].concat(), 0))
                .expect("JSON");
        assert!(number(&report, "takeovers") > 1.0 && number(&report, "acknowledged") > 0.0, "{report}");
        assert_eq!((&report["lost"], &report["violations"]), (&Value::from(0), &Value::from(0)), "{report}");
    }
}

#[test]
fn bench_runs_in_a_store_of_objects() {
    let server = Server::start(&[]);
    for bucket in [DIRECTORY_BUCKET, "quench"] {
        let url = format!("s3://{bucket}/bench");
        let arguments = [
            "bench",
            "ycsb",
            "--path",
            &url,
            "--rows",
            "2000",
            "--seconds",
            "0.3",
            "--threads",
            "2",
            "--json",
        ];
        let report: Value = serde_json::from_slice(&server.run(&arguments, 0)).expect("JSON");
        assert!(number(&report, "throughput_tps") > 0.0, "{report}");
        assert!(number(&report["floor_us"], "p50") > 0.0, "{report}");
        let requests = &report["requests"];
        let blocks = number(requests, "appends") + number(requests, "puts");
        assert!(blocks >= 10.0, "{report}");
        assert!(number(requests, "sent_bytes") >= 4096.0 * blocks, "{report}");
        // A request alone costs $1.13 for a million.
        let least = blocks * 1.13 / number(&report, "committed");
        assert!(number(requests, "dollars_per_million_transactions") >= least, "{report}");
        let said = server.run(&arguments, 2);
        assert!(String::from_utf8_lossy(&said).contains("holds a database; give a new prefix"));
        let reused = [&arguments[..], &["--reuse", "--reopen", "kill"]].concat();
        let report: Value = serde_json::from_slice(&server.run(&reused, 0)).expect("JSON");
        assert!(!report["reopened"].is_null(), "{report}");
    }
}

/// `stores.rs` runs it in a directory, which takes no appends.
#[test]
fn demo_runs_in_a_bucket_that_takes_appends() {
    let server = Server::start(&[]);
    let url = format!("s3://{DIRECTORY_BUCKET}/demo");
    let report = server.run(&["demo", &url, "--seconds", "1", "--json"], 0);
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    assert_eq!(report["missing"], Value::from(0), "{report}");
    let (work, recovery) = (&report["requests"], &report["recovery_requests"]);
    let blocks = number(work, "appends") + number(work, "puts");
    assert!(blocks >= 10.0 && number(work, "sent_bytes") >= 4096.0 * blocks, "{report}");
    assert!(number(work, "dollars_per_million_transactions") > 0.0, "{report}");
    assert!(
        number(recovery, "gets") > 0.0 && number(recovery, "puts") > 0.0 && number(recovery, "dollars") > 0.0,
        "{report}"
    );
}

/// One database lies below another one. A list claims nothing.
#[test]
fn objects_are_listed_with_their_reasons() {
    let server = Server::start(&[]);
    let list = |url: &str| -> Value {
        serde_json::from_slice(&server.run(&["objects", url, "--json"], 0)).expect("JSON")
    };
    for bucket in [DIRECTORY_BUCKET, "quench"] {
        let url = format!("s3://{bucket}/listed");
        server.run(&["put", &url, "t", "alice", "100"], 0);
        server.run(&["put", &format!("{url}/inner"), "t", "bob", "1"], 0);
        let listed = list(&url);
        assert_eq!(list(&url), listed, "a list changes nothing");
        assert_eq!((&listed["writer_epoch"], &listed["closed"]), (&Value::from(1), &Value::from(true)));
        let objects = listed["objects"].as_array().expect("a list");
        let inner = |object: &&Value| object["name"].as_str().is_some_and(|name| name.starts_with("inner/"));
        assert!(objects.iter().any(|object| inner(&object)), "{listed}");
        for object in objects {
            assert_eq!(object["class"] == "unknown", inner(&object), "{object}");
        }
        let of_class = |class: &str| objects.iter().filter(|object| object["class"] == class).count();
        assert_eq!(of_class("manifest"), 1, "{listed}");
        assert!(of_class("pages") > 0 && of_class("log") > 0, "{listed}");
        let mut logs = objects.iter().filter(|object| object["class"] == "log");
        // It was closed, so a checkpoint covers everything.
        assert!(logs.all(|log| log["records"] == "covered" || log["records"] == "absent"), "{listed}");
        let totals = listed["totals"].as_array().expect("totals").iter();
        let counted: f64 = totals.map(|total| number(total, "objects")).sum();
        assert_eq!(counted, objects.len() as f64, "{listed}");
        let shown = String::from_utf8(server.run(&["objects", &url], 0)).expect("text");
        let last = objects.last().expect("an object")["name"].as_str().expect("text");
        assert!(shown.contains(last) && shown.contains("total: pages, used: "), "{shown}");
    }
    for (url, wanted) in
        [("s3://quench/none", "there is no database"), ("s3://no-such-bucket/db", "NoSuchBucket")]
    {
        let said = server.run(&["objects", url], 2);
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains(wanted), "{said}");
    }
}

#[test]
fn log_in_a_bucket_is_printed_beside_its_writer() {
    let server = Server::start(&[]);
    for bucket in [DIRECTORY_BUCKET, "quench"] {
        let url = format!("s3://{bucket}/bench");
        let bench = ["bench", "put", "--path", &url, "--seconds", "600", "--threads", "1", "--json"];
        let mut bench =
            server.quench(&bench).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        let begun = Instant::now();
        // Returns the first and the last CSN of a log that has a row.
        let mut printed = || loop {
            // Before the database is there, and while the log changes, this fails.
            let output = server.quench(&["log", &url, "--json"]).output().expect("the program starts");
            let log = String::from_utf8(output.stdout).expect("text");
            if log.contains("put table") {
                let csn = |line: Option<&str>| -> u64 {
                    let record: Value = serde_json::from_str(line.expect("a line")).expect("JSON");
                    assert!(record["operations"].is_array(), "{record}");
                    record["csn"].as_u64().expect("a CSN")
                };
                break (csn(log.lines().next()), csn(log.lines().last()));
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "no log has a row");
            assert!(bench.try_wait().expect("a child").is_none(), "the writer has ended");
        };
        let (first, last) = printed();
        assert!(first <= last);
        // The writer was not ended: it commits more.
        while printed().1 <= last {}
        bench.kill().expect("it runs");
        bench.wait().expect("a child");
    }
}

#[test]
fn objects_of_an_unreachable_store_are_given_up() {
    let server = Server::start(&[]);
    let environment = server.environment.clone();
    drop(server);
    let mut command = quench(&["objects", &format!("s3://{DIRECTORY_BUCKET}/db")]);
    let output = command.envs(environment).output().expect("the program starts");
    expect_code(&output, 2);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("connection refused"), "{said}");
}

#[test]
fn signal_ends_the_emulator_with_its_counts() {
    let mut server = Server::start(&[]);
    server.run(&["put", &format!("s3://{DIRECTORY_BUCKET}/db"), "t", "a", "1"], 0);
    let id = rustix::process::Pid::from_child(&server.child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("it runs");
    let began = Instant::now();
    let status = loop {
        match server.child.try_wait().expect("a child") {
            Some(status) => break status,
            None if began.elapsed() > Duration::from_secs(20) => panic!("the emulator does not end"),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    assert_eq!(status.code(), Some(0));
}

#[test]
fn wrong_stores_are_refused_in_one_line() {
    let server = Server::start(&["--mistake", "ignores-offset"]);
    let said = server.run(&["put", &format!("s3://{DIRECTORY_BUCKET}/db"), "t", "a", "1"], 2);
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("ignores the offset of an append"), "{said}");
    let said = server.run(&["put", "s3://no-such-bucket/db", "t", "a", "1"], 2);
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("NoSuchBucket"), "{said}");
    let url = format!("s3://{DIRECTORY_BUCKET}/db");
    for (variable, wrong, wanted) in [
        ("AWS_SECRET_ACCESS_KEY", "wrong", "check AWS_SECRET_ACCESS_KEY"),
        ("AWS_ACCESS_KEY_ID", "nobody", "check AWS_ACCESS_KEY_ID"),
        ("AWS_ENDPOINT_URL_S3", "nowhere", "the endpoint of S3 has no scheme"),
    ] {
        let output = server.quench(&["put", &url, "t", "a", "1"]).env(variable, wrong).output();
        let output = output.expect("the program starts");
        expect_code(&output, 2);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(wanted) && said.lines().count() == 1, "{variable}: {said}");
    }
    for (arguments, wanted) in [
        (["--model", "s4"], "no model `s4`"),
        (["--faults", "lost=2"], "between 0 and 1"),
        (["--mistake", "all"], "no mistake `all`"),
        (["--directory", "/proc/none"], "/proc/none"),
    ] {
        let output = run(&[&["emulate", "s3"][..], &arguments].concat());
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(wanted), "{said}");
    }
}
