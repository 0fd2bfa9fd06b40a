//! Commands of the built `quench`, as users and scripts run them.

use crate::support::*;
use quenchdb::internals::base::depth::{is_deep, some};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Returns pseudorandom bytes (xorshift), the same in each run.
fn random_bytes(state: &mut u64, len: usize) -> Vec<u8> {
    (0..len)
        .map(|_| {
            *state ^= *state << 13;
            *state ^= *state >> 7;
            *state ^= *state << 17;
            (*state >> 32) as u8
        })
        .collect()
}

/// Returns bytes as a dump shows them: of UTF-8 only what is plain.
fn escaped(bytes: &[u8]) -> String {
    let hexadecimal = |bytes: &[u8]| bytes.iter().map(|b| format!("\\x{b:02x}")).collect::<String>();
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\t' => out.push_str("\\t"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\\' => out.push_str("\\\\"),
                _ if c.is_control() => out.push_str(&hexadecimal(c.to_string().as_bytes())),
                _ => out.push(c),
            }
        }
        out.push_str(&hexadecimal(chunk.invalid()));
    }
    out
}

/// Returns sorted lines of random rows with different keys.
fn random_lines(rows: usize) -> Vec<u8> {
    let mut state = 0x1234_5678_9abc_def1;
    let mut all = std::collections::BTreeMap::new();
    for row in 0..rows {
        let key = random_bytes(&mut state, 1 + row % 40);
        all.insert(key, random_bytes(&mut state, row * 7 % 300));
    }
    all.iter().map(|(k, v)| format!("{}\t{}\n", escaped(k), escaped(v))).collect::<String>().into_bytes()
}

#[test]
fn load_then_dump_is_the_identity_on_random_bytes() {
    let dir = directory();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    let lines = random_lines(5000);
    expect_code(&run_with_input(&["load", text(&one), "t", "-", "--batch", "77"], &lines), 0);
    let dumped = run(&["dump", text(&one), "t"]);
    expect_code(&dumped, 0);
    assert!(dumped.stdout == lines, "the dump differs from what was loaded");
    expect_code(&run_with_input(&["load", text(&two), "t"], &dumped.stdout), 0);
    assert!(run(&["dump", text(&two), "t"]).stdout == lines);
    let verified = run(&["verify", text(&two), "--json"]);
    expect_code(&verified, 0);
    assert_eq!(json(&verified)["sound"], true);
}

#[test]
fn an_interrupted_load_is_resumed_from_its_last_durable_batch() {
    let dir = directory();
    let database = dir.path().join("db");
    let lines: String = (0..200_000).map(|i| format!("{i:08}\tvalue {i}\n")).collect();
    let mut load = quench(&["load", text(&database), "t", "-", "--batch", "50"]);
    let mut child = load.stdin(Stdio::piped()).spawn().expect("starts");
    let mut input = child.stdin.take().expect("piped");
    // The pipe holds 64 KiB of the input and the program's buffer 32 KiB. Of the rest, all batches
    // but the last are durable. The load cannot end, because the pipe stays open.
    let (send, taken) = std::sync::mpsc::channel();
    let all = lines.clone();
    std::thread::spawn(move || {
        let written = input.write_all(&all.as_bytes()[..600_000]);
        // The receiver keeps the pipe open until the child has ended.
        let _ = send.send((written, input));
    });
    let taken = taken.recv_timeout(Duration::from_secs(60));
    child.kill().expect("our own child");
    child.wait().expect("ended");
    taken.expect("it reads on").0.expect("it reads");
    let listed = |more: &[&str]| {
        let output = run(&[&["tables", text(&database)], more].concat());
        expect_code(&output, 0);
        String::from_utf8(output.stdout).expect("names")
    };
    assert_eq!(listed(&[]), "t\n");
    assert_eq!(listed(&["--internal"]), "quench.load\t(internal)\nt\n", "--resume needs the table");
    let again = ["load", text(&database), "t", "-", "--resume", "--json"];
    let resumed = run_with_input(&again, lines.as_bytes());
    expect_code(&resumed, 0);
    let report = json(&resumed);
    let (rows, skipped) =
        (report["rows"].as_u64().expect("rows"), report["skipped"].as_u64().expect("skipped"));
    assert_eq!((rows + skipped, skipped % 50), (200_000, 0));
    assert!(skipped > 0 && rows > 0, "{report}");
    assert!(run(&["dump", text(&database), "t"]).stdout == lines.as_bytes());
    assert_eq!(listed(&["--internal"]), "t\n", "the table of --resume is removed");
}

#[test]
fn malformed_lines_are_named_and_earlier_batches_stay() {
    let dir = directory();
    let database = dir.path().join("db");
    let output =
        run_with_input(&["load", text(&database), "t", "-", "--batch", "1"], b"a\t1\nb\t2\nc\\q\t3\n");
    expect_code(&output, 2);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("line 3") && stderr.contains("column 2"), "{stderr}");
    assert_eq!(run(&["dump", text(&database), "t"]).stdout, b"a\t1\nb\t2\n");
}

#[test]
fn rows_are_put_got_scanned_and_deleted() {
    let dir = directory();
    let path = dir.path().join("db");
    let db = text(&path);
    for (key, value) in [("a", "1"), ("b\\x00", "two\\n"), ("c", "-3")] {
        expect_code(&run(&["put", db, "t", key, value]), 0);
    }
    assert_eq!(run(&["get", db, "t", "b\\x00"]).stdout, b"two\\n\n");
    assert_eq!(run(&["get", db, "t", "b\\x00", "--raw"]).stdout, b"two\n");
    assert_eq!(run(&["scan", db, "t", "--from", "b"]).stdout, b"b\\x00\ttwo\\n\nc\t-3\n");
    assert_eq!(run(&["scan", db, "t", "--prefix", "b"]).stdout, b"b\\x00\ttwo\\n\n");
    assert_eq!(run(&["scan", db, "t", "--reverse", "--limit", "1"]).stdout, b"c\t-3\n");
    expect_code(&run(&["delete", db, "t", "a"]), 0);
    expect_code(&run(&["delete", db, "t", "a"]), 1);
    let missing = run(&["get", db, "t", "a", "--json"]);
    expect_code(&missing, 1);
    assert_eq!(json(&missing)["found"], false);
    expect_code(&run_with_input(&["put", db, "t", "raw", "-"], b"\0\xff\n"), 0);
    assert_eq!(run(&["get", db, "t", "raw", "--raw"]).stdout, b"\0\xff\n");
}

#[test]
fn a_file_is_put_got_dumped_and_loaded_as_one_value() {
    let dir = directory();
    let (path, copy, file) = (dir.path().join("db"), dir.path().join("copy"), dir.path().join("file"));
    let (db, copy) = (text(&path), text(&copy));
    let bytes: Vec<u8> = (0..3_000_000u32).map(|n| (n.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    std::fs::write(&file, &bytes).expect("room");
    let put = run(&["put", db, "t", "large", "--file", text(&file), "--json"]);
    expect_code(&put, 0);
    assert_eq!(json(&put)["value_bytes"], 3_000_000);
    expect_code(&run_with_input(&["put", db, "t", "input", "-"], &bytes[..100_000]), 0);
    assert!(run(&["get", db, "t", "large", "--raw"]).stdout == bytes);
    assert!(run(&["get", db, "t", "input", "--raw"]).stdout == bytes[..100_000]);
    assert_eq!(json(&run(&["verify", db, "--json"]))["large_values"], 2);
    let dump = run(&["dump", db, "t"]).stdout;
    expect_code(&run_with_input(&["load", copy, "t", "-"], &dump), 0);
    assert!(run(&["get", copy, "t", "large", "--raw"]).stdout == bytes);
    expect_code(&run(&["verify", copy]), 0);
    for wrong in [&["put", db, "t", "a", "1", "--file", text(&file)][..], &["put", db, "t", "a"]] {
        assert_eq!(run(wrong).status.code(), Some(2), "either a value or a file");
    }
}

#[test]
fn a_failed_command_ends_with_code_2_and_one_line() {
    let dir = directory();
    let (path, torture) = (dir.path().join("db"), dir.path().join("torture"));
    let db = text(&path);
    expect_code(&run(&["put", db, "t", "a", "1"]), 0);
    for arguments in [
        vec!["get", db, "no such table", "a"],
        vec!["dump", db, "no such table"],
        vec!["scan", db, "no such table"],
        vec!["put", db, "t", "", "empty key"],
        vec!["put", db, "t", "\\q", "bad escape"],
        vec!["load", db, "t", "/no/such/file"],
        vec!["scan", "/no/such/directory", "t", "--from", "b", "--to", "a"],
        vec!["scan", db, "no such table", "--from", "b", "--to", "a"],
        vec!["torture", text(&torture), "--preset", "group", "--log-memory", "memory", "--seconds", "1"],
    ] {
        expect_code(&run(&arguments), 2);
    }
    assert!(!torture.exists());
    let none = run(&["scan", db, "t", "--from", "b", "--to", "a"]);
    expect_code(&none, 0);
    assert!(none.stdout.is_empty());
    let stranger = dir.path().join("stranger");
    std::fs::create_dir(&stranger).expect("created");
    std::fs::write(stranger.join("notes.txt"), "mine").expect("written");
    for command in ["tables", "stat", "verify", "checkpoint", "log"] {
        expect_code(&run(&[command, text(&stranger)]), 2);
        expect_code(&run(&[command, "/no/such/directory"]), 2);
    }
    let names: Vec<_> = std::fs::read_dir(&stranger).expect("read").collect();
    assert_eq!(names.len(), 1, "nothing is created in a directory that is no database");
}

#[test]
fn every_inspecting_command_prints_json_that_parses() {
    let dir = directory();
    let path = dir.path().join("db");
    let db = text(&path);
    expect_code(&run_with_input(&["load", db, "t", "--json"], b"a\t1\nb\t2\n"), 0);
    for arguments in [
        vec!["tables", db, "--json", "--count"],
        vec!["stat", db, "--json"],
        vec!["verify", db, "--json"],
        vec!["checkpoint", db, "--json"],
    ] {
        let output = run(&arguments);
        expect_code(&output, 0);
        assert!(json(&output).is_object());
    }
    let tables = json(&run(&["tables", db, "--json", "--count"]));
    let row = |name: &str| {
        tables["tables"].as_array().expect("list").iter().find(|t| t["name"] == name).expect("table").clone()
    };
    assert_eq!(row("t")["rows"], 2);
    assert_eq!(row("t")["internal"], false);
    for line in run(&["dump", db, "t", "--json"]).stdout.lines().map(|l| l.expect("read")) {
        let row: Value = serde_json::from_str(&line).expect("json");
        assert!(row["key"].is_string() && row["value"].is_string());
    }
}

#[test]
fn an_interrupted_bench_or_demo_leaves_no_directory_behind() {
    let dir = directory();
    let entries = || std::fs::read_dir(dir.path()).expect("readable").count();
    for arguments in [vec!["bench", "put", "--seconds", "60"], vec!["demo", "--seconds", "60"]] {
        for signal in ["INT", "TERM"] {
            let mut child = quench(&arguments)
                .current_dir(dir.path())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("starts");
            let start = std::time::Instant::now();
            while entries() == 0 {
                assert!(start.elapsed().as_secs() < 20, "{arguments:?} made no directory");
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            std::thread::sleep(std::time::Duration::from_millis(500));
            let killed = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status();
            assert!(killed.expect("kill is everywhere").success());
            assert_eq!(child.wait().expect("ended").code(), Some(130), "{arguments:?} {signal}");
            assert_eq!(entries(), 0, "{arguments:?} {signal}");
        }
    }
}

#[test]
fn log_prints_the_records_that_a_kill_left() {
    let dir = directory();
    let report = run(&["bench", "put", "--reopen", "kill", "--rows", "2000", "--seconds", "1", "--json"]);
    expect_code(&report, 0);
    let report = json(&report);
    assert!(report["replayed"].as_u64().expect("replayed") >= 2000, "{report}");
    let torture = run(&["torture", text(dir.path()), "--seconds", "1"]);
    expect_code(&torture, 0);
    let log = run(&["log", text(&dir.path().join("torture-db")), "--json"]);
    expect_code(&log, 0);
    for line in log.stdout.lines().map(|l| l.expect("read")) {
        let record: Value = serde_json::from_str(&line).expect("json");
        assert!(record["csn"].is_u64() && record["operations"].is_array());
    }
}

#[test]
fn a_reader_that_closes_the_pipe_is_no_error() {
    let dir = directory();
    let path = dir.path().join("db");
    let lines: String = (0..100_000).map(|i| format!("{i:08}\tvalue {i}\n")).collect();
    expect_code(&run_with_input(&["load", text(&path), "t"], lines.as_bytes()), 0);
    let mut child = quench(&["dump", text(&path), "t"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut first = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut first).expect("a line");
    assert_eq!(first, "00000000\tvalue 0\n");
    let output = child.wait_with_output().expect("ends");
    expect_code(&output, 0);
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Returns the exit code of a command whose standard output is a closed pipe.
fn code_unread(arguments: &[&str]) -> Option<i32> {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    quench(arguments).stdout(writer).stderr(Stdio::null()).status().expect("the program starts").code()
}

#[test]
fn the_exit_code_reports_problems_even_with_a_closed_pipe() {
    let dir = directory();
    let path = dir.path().join("db");
    let db = text(&path);
    expect_code(&run(&["put", db, "t", "a", "1"]), 0);
    assert_eq!(code_unread(&["verify", db]), Some(0));
    assert_eq!(code_unread(&["get", db, "t", "a"]), Some(0));
    assert_eq!(code_unread(&["get", db, "t", "b", "--json"]), Some(1));
    let pages = path.join("pages/data");
    let mut bytes = std::fs::read(&pages).expect("there");
    bytes.chunks_mut(4096).skip(1).for_each(|block| block[100] ^= 1);
    std::fs::write(&pages, bytes).expect("ours");
    for format in [&[][..], &["--json"]] {
        let arguments = [&["verify", db], format].concat();
        expect_code(&run(&arguments), 1);
        assert_eq!(code_unread(&arguments), Some(1));
    }
}

/// Regression: a dump truncated the existing file before it wrote.
#[test]
fn a_dump_replaces_a_file_once_the_dump_is_complete() {
    let dir = directory();
    let (path, dumps) = (dir.path().join("db"), dir.path().join("dumps"));
    let rows: String = (0..1000).map(|i| format!("{i:08}\t{}\n", "v".repeat(100))).collect();
    expect_code(&run_with_input(&["load", text(&path), "t"], rows.as_bytes()), 0);
    std::fs::create_dir(&dumps).expect("ours");
    let (file, link) = (dumps.join("t.tsv"), dir.path().join("link"));
    std::fs::write(&file, b"the last one").expect("ours");
    std::os::unix::fs::symlink(&file, &link).expect("ours");
    let names = || std::fs::read_dir(&dumps).expect("ours").count();
    // Files above some KiB fail with an error, because the shell ignores SIGXFSZ (25).
    let limited = Command::new("sh")
        .args(["-c", "ulimit -f 8; trap '' 25; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_quench")])
        .args(["dump", text(&path), "t", text(&file)])
        .output()
        .expect("a shell");
    expect_code(&limited, 2);
    assert_eq!(std::fs::read(&file).expect("it stays"), b"the last one");
    assert_eq!(names(), 1, "nothing is left beside it");
    for to in [&file, &link] {
        std::fs::write(&file, b"the last one").expect("ours");
        expect_code(&run(&["dump", text(&path), "t", text(to)]), 0);
        assert!(std::fs::read(&file).expect("there") == rows.as_bytes());
    }
    assert!(link.is_symlink() && names() == 1);
    expect_code(&run(&["dump", text(&path), "t", text(&dumps.join("new"))]), 0);
    expect_code(&run(&["dump", text(&path), "t", "/dev/null"]), 0);
    assert_eq!(names(), 2);
}

#[test]
fn bench_reports_every_field() {
    for arguments in [
        vec!["ycsb", "--rows", "2000", "--ops", "4", "--zipf", "0.99"],
        vec!["put", "--commit", "async", "--preset", "autonomous"],
        vec!["put", "--level", "bounded"],
    ] {
        let run = |seconds: &str| bench(&[&arguments[..], &["--seconds", seconds]].concat());
        let report = long_enough(0.5, run, |report| number(report, "committed") > 0.0);
        for field in [
            "workload",
            "preset",
            "threads",
            "logs",
            "commit",
            "durability",
            "seconds",
            "committed",
            "aborted",
            "throughput_tps",
            "log_bytes",
            "device_bytes",
            "device_writes",
            "device_flushes",
            "cpu_seconds",
            "memory_bytes",
            "warm_up_seconds",
            "rss_bytes_max",
            "stall_us_max",
            "device_reads",
            "device_read_bytes",
            "store_bytes_written",
            "logical_bytes_written",
            "checkpoints",
            "checkpoint_seconds",
        ] {
            assert!(!report[field].is_null(), "{field} of {report}");
        }
        for latency in ["commit_latency_us", "total_latency_us"] {
            for figure in ["mean", "p50", "p90", "p99", "p999", "p9999", "max"] {
                assert!(report[latency][figure].is_f64(), "{latency}.{figure} of {report}");
            }
        }
        assert!(report["floor_us"]["p50"].as_f64().expect("p50") > 0.0);
        assert!(report["floor_of_threads_us"]["p50"].as_f64().expect("p50") > 0.0);
        assert!(report["floor_is_unreliable"].is_boolean(), "{report}");
        let committed = number(&report, "committed");
        assert!(committed > 0.0);
        assert!(number(&report, "rss_bytes_max") > 1e6, "{report}");
        let stall = number(&report, "stall_us_max");
        assert!(stall > 0.0 && stall <= 1e6 * number(&report, "seconds"), "{report}");
        let series = report["series"].as_array().expect("series");
        let in_series: f64 = series.iter().map(|interval| number(interval, "committed")).sum();
        assert!(in_series > 0.0 && in_series <= committed, "{report}");
        assert!(series.iter().all(|i| number(i, "p99_us") <= number(i, "max_us")), "{report}");
    }
}

/// Runs `quench bench`. Returns its report.
#[track_caller]
fn bench(arguments: &[&str]) -> Value {
    let output = run(&[&["bench"], arguments, &["--threads", "2", "--json"]].concat());
    expect_code(&output, 0);
    json(&output)
}

#[test]
fn bench_measures_the_device() {
    let report = bench(&["device", "--seconds", "0.4"]);
    assert_eq!(report["writes"].as_array().expect("list").len(), 4);
    assert!(number(&report["sequential_writes"], "bytes_per_second") > 0.0);
    let reads = report["reads"].as_array().expect("list");
    let kinds: Vec<_> = reads.iter().map(|r| (r["pattern"].as_str(), r["readers"].as_u64())).collect();
    let [random, sequential] = [Some("random"), Some("sequential")];
    assert_eq!(kinds, [(random, Some(1)), (random, Some(2)), (sequential, Some(1)), (sequential, Some(2))]);
    assert!(reads.iter().all(|r| number(r, "reads_per_second") > 0.0 && number(r, "p99_us") > 0.0));
}

#[test]
fn bench_kills_and_recovers_every_workload() {
    for workload in ["ycsb", "put"] {
        let report = bench(&[workload, "--rows", "2000", "--seconds", "0.4", "--reopen", "kill"]);
        let reopened = &report["reopened"];
        assert_eq!((&reopened["after"], &reopened["clean"]), (&"killed".into(), &false.into()), "{report}");
        assert!(number(&report, "replayed") > 0.0 && number(&report, "recovery_seconds") > 0.0, "{report}");
        assert_eq!(number(reopened, "found"), number(reopened, "sampled"), "{report}");
        assert_eq!((number(reopened, "missing"), number(reopened, "wrong")), (0.0, 0.0), "{report}");
        assert!(number(&report, "rss_bytes_max") > 1e6, "of the child: {report}");
    }
    // Without --rows the load lasts a fixed time.
    let report = bench(&["put", "--seconds", "0.3", "--warmup", "0", "--reopen", "kill"]);
    assert!(number(&report, "replayed") >= number(&report, "committed"), "{report}");
    let scan = bench(&["scan", "--rows", "2000", "--seconds", "0.3", "--reopen", "kill"]);
    assert_eq!(number(&scan, "rows"), 2000.0);
}

#[test]
fn bench_closes_and_reopens_and_finds_everything() {
    for workload in ["ycsb", "put"] {
        let report = bench(&[workload, "--seconds", "0.3", "--rows", "500", "--reopen", "close"]);
        let reopened = &report["reopened"];
        assert_eq!((&reopened["after"], &reopened["clean"]), (&"closed".into(), &true.into()), "{report}");
        assert_eq!(number(&report, "replayed"), 0.0);
        assert_eq!(number(reopened, "found"), number(reopened, "sampled"), "{report}");
        assert!(number(reopened, "found") > 0.0 && number(reopened, "close_seconds") > 0.0, "{report}");
    }
}

#[test]
fn bench_makes_checkpoints_during_the_workload_or_none() {
    let dir = directory();
    let picture = dir.path().join("run.svg");
    let common = ["ycsb", "--rows", "1000", "--warmup", "0.1", "--interval", "0.1", "--seconds"];
    let more = ["--checkpoint-every", "continuous", "--plot", text(&picture), "--memory-bytes", "64m"];
    let length = |report: &Value, list: &str| report[list].as_array().map_or(0, Vec::len);
    let with = long_enough(
        0.4,
        |seconds| bench(&[&common[..], &[seconds], &more].concat()),
        |report| length(report, "checkpoint_marks") > 0 && length(report, "series") >= 3,
    );
    assert!(number(&with, "checkpoints") >= 1.0 && number(&with, "checkpoint_seconds") > 0.0, "{with}");
    assert!(number(&with, "store_bytes_written") > 0.0, "{with}");
    assert_eq!((number(&with, "memory_bytes"), number(&with, "warm_up_seconds")), (67108864.0, 0.1));
    assert!(length(&with, "checkpoint_marks") > 0 && length(&with, "series") >= 3, "{with}");
    let drawn = std::fs::read_to_string(&picture).expect("drawn");
    assert!(drawn.starts_with("<svg") && drawn.contains("polyline"), "{drawn}");
    let without = bench(&[&common[..], &["0.4", "--checkpoint", "none", "--snapshots"]].concat());
    assert_eq!((number(&without, "checkpoints"), number(&without, "store_bytes_written")), (0.0, 0.0));
    assert!(number(&without["read_latency_us"], "p99") > 0.0, "{without}");
    for contradiction in [
        vec!["ycsb", "--checkpoint", "none", "--checkpoint-every", "1"],
        vec!["device", "--reopen", "kill"],
        vec!["scan", "--plot", "x.svg"],
    ] {
        expect_code(&run(&[&["bench"], &contradiction[..]].concat()), 2);
    }
}

#[test]
fn bench_scans_a_cold_table_and_reads_each_page_once() {
    let report = bench(&["scan", "--rows", "5000", "--seconds", "0.3"]);
    assert_eq!((number(&report, "rows"), number(&report, "rows_loaded")), (5000.0, 5000.0));
    assert_eq!(number(&report, "bytes"), 5000.0 * 108.0);
    let (reads, bytes) = (number(&report, "device_reads"), number(&report, "device_read_bytes"));
    assert!(bytes >= number(&report, "bytes") && reads <= 5000.0 * 108.0 / 4096.0 * 2.5, "{report}");
    assert!(number(&report["floor"], "bytes_per_second") > 0.0, "{report}");
}

#[test]
fn soak_checks_everything_and_judges_space() {
    let more = ["--checkpoint-every", "0.1", "--memory-bytes", "32m"];
    let soak = |seconds: &str| {
        let report = bench(&[&["soak", "--rows", "2000", "--seconds", seconds][..], &more].concat());
        assert_eq!(report["problems"], Value::Array(vec![]), "{report}");
        report
    };
    let shows =
        |report: &Value| number(report, "checkpoints") >= 1.0 && number(report, "write_amplification") >= 1.0;
    let report = long_enough(0.5, soak, shows);
    assert_eq!(number(&report, "logical_bytes"), 2000.0 * 108.0);
    assert!(number(&report, "store_bytes_on_disk") >= number(&report, "logical_bytes"), "{report}");
    assert!(number(&report, "space_amplification") >= 1.0, "{report}");
    assert!(number(&report, "write_amplification") >= 1.0, "{report}");
    assert!(number(&report, "pages_checked") > 0.0 && number(&report, "stored_pages_checked") > 0.0);
    assert!(number(&report, "checkpoints") >= 1.0, "{report}");
}

#[test]
fn bench_reports_reads_and_writes_of_evicted_pages() {
    let rows = ["ycsb", "--rows", "60000", "--memory-bytes", "4m", "--level", "bounded"];
    let report = long_enough(
        0.5,
        |seconds| bench(&[&rows[..], &["--seconds", seconds, "--reopen", "kill"]].concat()),
        |report| number(report, "device_reads") > 0.0 && number(report, "store_bytes_written") > 0.0,
    );
    let (reads, bytes) = (number(&report, "device_reads"), number(&report, "device_read_bytes"));
    assert!(reads > 0.0 && bytes >= 4096.0 * reads, "{report}");
    assert!(number(&report, "store_bytes_written") > 0.0, "evictions write: {report}");
    assert!(number(&report, "read_floor") > 0.0, "{report}");
    assert!(number(&report["reopened"], "found") == 10_000.0, "{report}");
}

#[test]
fn an_interrupt_leaves_no_directory_behind() {
    for (arguments, signal) in [(&["ycsb"][..], "-INT"), (&["put", "--reopen", "kill"][..], "-TERM")] {
        let dir = directory();
        let mut child = quench(&[&["bench"], arguments, &["--rows", "1000000"]].concat())
            .current_dir(dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        let entries = || std::fs::read_dir(dir.path()).expect("ours").count();
        let begun = std::time::Instant::now();
        while entries() == 0 && begun.elapsed().as_secs() < 20 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_eq!(entries(), 1, "it works in a directory of its own");
        std::thread::sleep(std::time::Duration::from_millis(400));
        let process = child.id().to_string();
        assert!(Command::new("kill").args([signal, &process]).status().expect("kill").success());
        assert_eq!(child.wait().expect("ended").code(), Some(130));
        assert_eq!(entries(), 0);
    }
}

/// Runs `QUENCH_TORTURE_SECONDS` for each preset, by default two seconds. A shallow run takes one
/// second for two presets.
#[test]
fn torture_finds_nothing_lost() {
    let seconds = std::env::var("QUENCH_TORTURE_SECONDS").unwrap_or(if is_deep() { "2" } else { "1" }.into());
    for preset in some(&quenchdb::Preset::ALL.map(quenchdb::Preset::name), 2) {
        let dir = directory();
        let options = ["--seconds", &seconds, "--preset", preset, "--alternate-io", "--json"];
        let output = run(&[&["torture", text(dir.path())], &options[..]].concat());
        let report = json(&output);
        expect_code(&output, 0);
        let (kills, acknowledged) = (&report["kills"], &report["acknowledged"]);
        assert!(kills.as_u64().expect("kills") > 0, "{report}");
        assert_eq!((&report["lost"], &report["violations"]), (&Value::from(0), &Value::from(0)), "{report}");
        eprintln!("{preset}: {kills} kills, {acknowledged} acknowledged commits, none lost");
    }
}

/// The store is a directory, in which objects take no appends.
#[test]
fn torture_of_a_store_of_objects_finds_nothing_lost() {
    let dir = directory();
    let url = format!("file://{}", text(dir.path()));
    for preset in ["auto", "autonomous"] {
        let output = run(&["torture", &url, "--seconds", "1", "--preset", preset, "--json"]);
        let report = json(&output);
        expect_code(&output, 0);
        let (kills, acknowledged) = (&report["kills"], &report["acknowledged"]);
        assert!(kills.as_u64().expect("kills") > 0, "{report}");
        assert_eq!((&report["lost"], &report["violations"]), (&Value::from(0), &Value::from(0)), "{report}");
        eprintln!("{preset}: {kills} kills, {acknowledged} acknowledged commits, none lost");
    }
}

#[test]
fn commands_take_the_url_of_a_store_of_objects() {
    let dir = directory();
    let url = format!("file://{}/accounts", text(dir.path()));
    expect_code(&run(&["put", &url, "t", "alice", "100"]), 0);
    let value = run(&["get", &url, "t", "alice"]);
    expect_code(&value, 0);
    assert_eq!(value.stdout, b"100\n");
    expect_code(&run(&["checkpoint", &url]), 0);
    expect_code(&run(&["verify", &url]), 0);
    let backup = dir.path().join("backup");
    expect_code(&run(&["backup", &url, text(&backup)]), 0);
    let restored = dir.path().join("restored");
    expect_code(&run(&["restore", text(&backup), text(&restored)]), 0);
    assert_eq!(run(&["get", text(&restored), "t", "alice"]).stdout, b"100\n");
    let [copy, other] = ["copy", "other"].map(|name| format!("file://{}/{name}", text(dir.path())));
    expect_code(&run(&["backup", text(&restored), &copy]), 0);
    let refused = run(&["backup", text(&restored), &copy]);
    expect_code(&refused, 2);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("there is a backup") && said.lines().count() == 1, "{said}");
    expect_code(&run(&["restore", &copy, &other]), 0);
    assert_eq!(run(&["get", &other, "t", "alice"]).stdout, b"100\n");
    expect_code(&run(&["put", &other, "t", "alice", "99"]), 0);
    expect_code(&run(&["put", &copy, "t", "alice", "99"]), 2);
    for (url, wanted) in [
        ("gs:///prefix", "has no bucket"),
        ("s3://user:secret@bucket/prefix", "credentials"),
        ("ftp://host/prefix", "scheme"),
    ] {
        let refused = run(&["get", url, "t", "alice"]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() != Some(0) && said.contains(wanted), "{url}: {said}");
        assert!(!said.contains("secret"), "{said}");
    }
}

/// A backup beside a writer in a store of objects does not end the writer.
#[test]
fn a_url_is_read_and_backed_up_beside_its_writer() {
    let dir = directory();
    let [url, copy, restored] =
        ["db", "copy", "restored"].map(|name| format!("file://{}/{name}", text(dir.path())));
    let db = quenchdb::Database::open(&url).expect("new");
    let table = db.create_table("t").expect("new");
    let put = |value: &str| db.transact(|tx| tx.insert(&table, "a", value)).expect("still the writer");
    put("1");
    db.checkpoint().expect("still the writer");
    put("2");
    let made = run(&["backup", &url, &copy, "--json"]);
    expect_code(&made, 0);
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(said.contains("its newest checkpoint was copied"), "{said}");
    put("3");
    assert_eq!(run(&["get", &url, "t", "a", "--checkpoint"]).stdout, b"1\n");
    assert_eq!(json(&run(&["pins", &url, "--json"]))["pins"], Value::Array(Vec::new()));
    let reader = quenchdb::Database::builder().open_checkpoint(&url).expect("is there");
    let listed = String::from_utf8(run(&["pins", &url]).stdout).expect("text");
    assert!(listed.contains(&format!("process {}", std::process::id())), "{listed}");
    let name = listed.split('\t').next().expect("a name");
    let removed = run(&["pins", &url, "--remove", name]);
    expect_code(&removed, 0);
    assert!(removed.stdout.is_empty());
    expect_code(&run(&["pins", &url, "--remove", name]), 2);
    drop(reader);
    put("4");
    db.close().expect("still the writer");
    expect_code(&run(&["restore", &copy, &restored]), 0);
    assert_eq!(run(&["get", &restored, "t", "a"]).stdout, b"1\n");
    let whole = format!("file://{}/whole", text(dir.path()));
    let made = run(&["backup", &url, &whole]);
    expect_code(&made, 0);
    assert!(made.stderr.is_empty(), "it was closed");
    assert_eq!(run(&["get", &whole, "t", "a"]).stdout, b"4\n");
}

#[test]
fn demo_finds_every_acknowledged_commit() {
    let dir = directory();
    let output = run(&["demo", text(&dir.path().join("demo")), "--seconds", "2", "--json"]);
    expect_code(&output, 0);
    let report = json(&output);
    assert_eq!(report["missing"], 0);
    assert_eq!(report["kept"], true);
    assert!(report["acknowledged"].as_u64().expect("acknowledged") > 0);
    assert_eq!(report["rounds"].as_array().expect("rounds").len(), 3);
    assert!(report["requests"].is_null() && report["recovery_requests"].is_null(), "{report}");
}

#[test]
fn demo_fits_80_columns() {
    let dir = directory();
    let output = quench(&["demo", "--seconds", "1"]).current_dir(dir.path()).output().expect("starts");
    expect_code(&output, 0);
    let said = String::from_utf8(output.stdout).expect("text");
    for line in said.lines() {
        assert!(line.chars().count() <= 80 || !line.trim().contains(' '), "{line}");
    }
    assert!(said.contains("commit,") && said.contains("Kept: all"), "{said}");
}

#[test]
fn demo_refuses_a_directory_that_is_not_empty() {
    let dir = directory();
    std::fs::write(dir.path().join("notes.txt"), "mine").expect("written");
    expect_code(&run(&["demo", text(dir.path())]), 2);
}
