//! Commit protocols through the program: every preset and axis, contradictions, and the ablation.

use crate::support::*;
use quenchdb::internals::base::depth::{is_deep, some};
use serde_json::Value;

#[track_caller]
fn bench(arguments: &[&str]) -> Value {
    let output = run_bench(&[arguments, &["--memory-bytes", "256m", "--threads", "2", "--json"]].concat());
    expect_code(&output, 0);
    json(&output)
}

#[test]
fn every_axis_can_be_chosen_and_is_reported() {
    let points: [(&[&str], &[&str]); 5] = [
        (&["--preset", "queued", "--flush-interval-us", "300"], &["layout one", "writer background"]),
        (
            &["--preset", "pipelined", "--queue", "latched", "--append", "consolidated"],
            &["acknowledger background", "queue latched"],
        ),
        (
            &["--preset", "restricted", "--logs", "2", "--dependency", "csn"],
            &["writer flusher-per-log", "dependency csn", "layout threads-per-log"],
        ),
        (
            &["--layout", "per-thread", "--logs", "2", "--writer", "worker", "--in-flight", "3"],
            &["layout per-thread", "writer worker", "dependency dsn"],
        ),
        (
            &["--preset", "autonomous", "--acknowledger", "workers", "--ack-group", "1"],
            &["acknowledger workers"],
        ),
    ];
    for (flags, words) in points {
        for commit in some(&["blocking", "async"], 1) {
            let run = |seconds: &str| run_checked(&[flags, &["--commit", commit]].concat(), seconds);
            let report = long_enough(0.3, run, |report| number(report, "committed") > 0.0);
            assert!(number(&report, "committed") > 0.0, "{report}");
            let costs = &report["coordination"];
            let protocol = costs["protocol"].as_str().expect("text");
            assert!(words.iter().all(|word| protocol.contains(word)), "{words:?}: {protocol}");
            assert!(number(costs, "context_switches_per_transaction") > 0.0, "{report}");
            assert!(number(costs, "false_waits") <= number(costs, "rule_waits"), "{report}");
        }
    }
}

/// Runs a small TPC-B and checks that the balances add up.
#[track_caller]
fn run_checked(flags: &[&str], seconds: &str) -> Value {
    let options = ["tpcb", "--branches", "2", "--accounts", "300", "--seconds", seconds, "--check"];
    let report = bench(&[&options[..], flags].concat());
    assert_eq!(report["check"]["problems"].as_array().map(Vec::len), Some(0), "{report}");
    report
}

/// Runs for a second with blocking, durable commits.
#[track_caller]
fn runs_for_a_second(flags: &[&str], words: &[&str]) {
    let run = |seconds: &str| run_checked(&[flags, &["--commit", "blocking"]].concat(), seconds);
    let report = long_enough(1.0, run, |report| number(report, "committed") > 10.0);
    assert!(number(&report, "seconds") >= 1.0 && number(&report, "committed") > 10.0, "{report}");
    assert_eq!(report["level"], "durable", "{report}");
    let protocol = report["coordination"]["protocol"].as_str().expect("text");
    assert!(words.iter().all(|word| protocol.contains(word)), "{words:?}: {protocol}");
}

#[test]
fn every_preset_runs_for_a_second() {
    for preset in some(&quenchdb::Preset::ALL.map(quenchdb::Preset::name), 2) {
        runs_for_a_second(&["--preset", preset], &[]);
    }
}

#[test]
fn changes_divided_by_page_run_for_a_second() {
    let all = [
        &["--preset", "auto"][..],
        &["--preset", "restricted", "--dependency", "exact"],
        &["--preset", "passive"],
    ];
    for flags in some(&all, 1) {
        let by_page = [&["--layout", "by-page", "--logs", "2"], flags].concat();
        runs_for_a_second(&by_page, &["layout by-page"]);
    }
}

#[test]
fn delta_false_logs_more_bytes() {
    let log_bytes = |delta: &str| {
        let options = ["tpcb", "--branches", "2", "--accounts", "300", "--delta", delta, "--seconds"];
        let run = |seconds: &str| bench(&[&options[..], &[seconds]].concat());
        let report = long_enough(0.2, run, |report| number(report, "committed") > 100.0);
        number(&report, "log_bytes_per_transaction")
    };
    // Three rows of 100 bytes of which a balance changes, and one new row.
    let (deltas, whole) = (log_bytes("true"), log_bytes("false"));
    assert!(whole > deltas + 200.0, "{deltas} bytes with deltas, {whole} without");
}

#[test]
fn bytes_by_log_and_queuing_are_reported() {
    let options = ["tpcb", "--branches", "2", "--accounts", "300", "--logs", "2", "--pin"];
    let queue = ["--queue-bytes", "128k", "--commit", "async", "--preset", "pipelined", "--seconds"];
    let run =
        |seconds: &str| bench(&[&options[..], &["--layout", "per-thread"], &queue, &[seconds]].concat());
    let report = long_enough(0.3, run, |report| number(report, "committed") > 100.0);
    assert_eq!(report["pinned"], true, "{report}");
    let by_log = report["device_bytes_by_log"].as_array().expect("a list");
    let bytes: Vec<f64> = by_log.iter().map(|bytes| bytes.as_f64().expect("a number")).collect();
    assert!(bytes.len() == 2 && bytes.iter().all(|bytes| *bytes > 0.0), "{bytes:?}");
    // Statistics are read while writes are under way.
    let (all, sum) = (number(&report, "device_bytes"), bytes.iter().sum::<f64>());
    assert!((all - sum).abs() <= all / 10.0 + 1e6, "{all} bytes in all, {bytes:?}");
    let stages = &report["stages"];
    let [whole, queuing, writing] =
        ["flush_wait_us", "queuing_us", "writing_us"].map(|of| number(stages, of));
    assert!(queuing > 0.0 && writing > 0.0 && (queuing + writing - whole).abs() < 0.01, "{stages}");
}

#[test]
fn contradictions_are_refused_with_the_reason() {
    for (flags, reason) in [
        (&["--layout", "one", "--logs", "2"][..], "--layout one has one log, not the 2 of --logs"),
        (&["--logs", "2", "--dependency", "log-order"], "log-order is no order between 2 logs"),
        (&["--preset", "pipelined", "--window-us", "1000"], "--window-us would have no effect"),
        (&["--gather-max", "3", "--writer", "committer"], "--gather-max would have no effect"),
        (&["--in-flight", "3"], "it goes with --writer worker. Choose that, or leave --in-flight out"),
        (&["--idle-us", "0", "--preset", "group"], "it goes with --writer worker"),
        (&["--steal-group", "2", "--writer", "background"], "it goes with --writer worker"),
        (&["--ack-group", "1"], "it goes with --acknowledger workers"),
        (&["--ack-odds", "2", "--preset", "group"], "it goes with --acknowledger workers"),
        (&["--threads-per-log", "3", "--preset", "group"], "it goes with --layout threads-per-log"),
        (&["--memory-fence", "latched"], "it goes with --writer memory"),
        (&["--preset", "passive", "--flush-interval-us", "5"], "it goes with another writer than memory"),
        (&["--idle-logs", "hold"], "has no clocks that an idle log could hold back"),
        (&["--queue-bytes", "100m", "--memory-bytes", "64m"], "more than a quarter of memory_bytes"),
        (
            &[
                "--shared-flush",
                "true",
                "--preset",
                "pipelined",
                "--logs",
                "2",
                "--device",
                "sim:nvme-enterprise",
            ],
            "no flush that several logs could share",
        ),
        (&["--idle-logs", "flusher"], "no log has a flusher of its own"),
    ] {
        let output = run_bench(&[&["put", "--seconds", "0.2"], flags].concat());
        expect_code(&output, 2);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(reason), "{flags:?}: {error}");
    }
    for (flags, reason) in [
        (&["--writer", "everybody"][..], "no writer is called `everybody`; there are committer"),
        (&["--queue-bytes", "200m"], "the queues have 64k to 100m"),
        (&["--queue-bytes", "64k", "--queue-entries", "1024"], "cannot be used with"),
    ] {
        let output = run_bench(&[&["put"], flags].concat());
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(reason), "{flags:?}: {error}");
    }
}

#[test]
fn the_ablation_reports_each_row_and_refuses_varied_flags() {
    let rows_of = |report: &Value| report["rows"].as_array().expect("rows").clone();
    let rows = rows_of(&long_enough(
        if is_deep() { 0.3 } else { 0.1 },
        |seconds| bench(&["ablation", "--of", "put", "--seconds", seconds]),
        |report| rows_of(report).iter().all(|row| number(&row["report"], "committed") > 0.0),
    ));
    assert_eq!(rows.len(), 9);
    for row in &rows {
        assert!(number(&row["report"], "committed") > 0.0, "{row}");
        assert_eq!(row["report"]["commit"], "async");
    }
    assert!(rows[0]["report"]["coordination"]["protocol"].as_str().expect("text").contains("latched"));
    assert_eq!(number(&rows[5]["report"], "logs"), 2.0);
    let output = run_bench(&["ablation", "--seconds", "0.3", "--queue", "latched"]);
    expect_code(&output, 2);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--queue is what the ablation varies"));
    let table = run_bench(&["ablation", "--of", "put", "--seconds", "0.1", "--memory-bytes", "256m"]);
    expect_code(&table, 0);
    let text = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(text.contains("+ exact dependencies") && text.lines().count() == 11, "{text}");
}

#[test]
fn the_published_ablation_has_own_logs_and_no_timer() {
    let rows_of = |report: &Value| report["rows"].as_array().expect("rows").clone();
    let rows = rows_of(&long_enough(
        if is_deep() { 0.3 } else { 0.1 },
        |seconds| bench(&["ablation", "--of", "put", "--as-published", "--seconds", seconds]),
        |report| rows_of(report).iter().all(|row| number(&row["report"], "committed") > 0.0),
    ));
    let names: Vec<_> = rows.iter().map(|row| row["row"].as_str().expect("text")).collect();
    let published = ["Flush", "+ queue", "+ autonomous flush", "+ autonomous acknowledgment", "+ stealing"];
    assert_eq!(names, published);
    for row in &rows {
        assert_eq!(number(&row["report"], "logs"), 2.0, "{row}");
        let protocol = row["report"]["coordination"]["protocol"].as_str().expect("text");
        assert!(protocol.contains("layout per-thread") && protocol.contains("gsn-rfa"), "{protocol}");
        assert!(row["flags"].as_str().expect("text").contains("--flush-interval-us 1000000"), "{row}");
    }
    let output = run_bench(&["ablation", "--as-published", "--flush-unit", "8k"]);
    expect_code(&output, 2);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--flush-unit is what the ablation varies"));
    expect_code(&run_bench(&["put", "--as-published"]), 2);
}

#[test]
fn clients_of_an_open_loop_leave_writes_to_the_protocol() {
    let run = |clients: &str, seconds: &str| {
        let device = ["--device", "sim:nvme-enterprise", "--preset", "autonomous", "--commit", "async"];
        let open = ["put", "--rate", "500", "--open-loop", clients, "--seconds", seconds];
        bench(&[&open[..], &device].concat())
    };
    let idle = |report: &Value| number(&report["coordination"], "idle_flushes");
    let told = long_enough(0.5, |seconds| run("callback", seconds), |report| idle(report) > 50.0);
    assert_eq!(told["open_loop"], "callback");
    // Nearly every transaction comes alone, to an idle worker, whose log the flusher writes.
    assert!(idle(&told) > 0.5 * number(&told, "committed"), "{told}");
    assert!(number(&told["kinds"][0]["latency_us"], "p50") > 0.0, "{told}");
    let sleeps = |report: &Value| number(&report["coordination"], "sleeps_per_transaction");
    let waits = run("wait", "0.5");
    assert_eq!(waits["open_loop"], "wait");
    // No commit waits, but clients do, with the option.
    assert!(sleeps(&told) < 0.05, "{told}");
    assert!(idle(&waits) < idle(&told) || sleeps(&waits) > sleeps(&told), "{waits}");
}

#[test]
fn the_model_names_what_limits_a_protocol() {
    for protocol in ["per-transaction", "group"] {
        let device = ["--device", "sim:custom:write=500us,slots=1", "--cores", "8", "--json"];
        let flags = ["model", "--threads", "8", "--protocol", protocol];
        let output = run_bench(&[&flags[..], &device].concat());
        expect_code(&output, 0);
        let all = json(&output);
        assert_eq!(all.as_array().map(Vec::len), Some(1));
        assert!(number(&all[0]["report"], "throughput_tps") > 1000.0, "{all}");
        assert_eq!(all[0]["limits"]["by"], "device write", "{all}");
    }
    let output = run_bench(&["model", "--figure", "GC-T2", "--json"]);
    expect_code(&output, 0);
    assert_eq!(json(&output)[0]["points"].as_array().map(Vec::len), Some(5));
    for (flags, said) in [
        (&["model", "--protocol", "epoch"][..], "no protocol is called `epoch`"),
        (&["model", "--figure", "AC-F99"], "no figure `AC-F99`"),
        (&["model", "--costs", "missing.json"], "cannot read the costs"),
        (&["put", "--against"], "--against does not go with put"),
    ] {
        let output = run_bench(flags);
        assert_ne!(output.status.code(), Some(0), "{flags:?}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(said), "{flags:?}: {text}");
    }
}

/// With the default settings a log's next append begins when the one before has ended, whatever the
/// store takes: no append waits for a certain size. So each log has one in flight all the time. One
/// that waits until a large buffer is full has none most of the time.
#[test]
fn a_busy_log_always_has_an_append_in_flight() {
    let in_flight = |flags: &[&str]| {
        let load = ["put", "--commit", "async", "--preset", "restricted", "--logs", "2", "--seconds", "1"];
        let report = bench(&[&load[..], &["--device", "sim:s3-express"], flags].concat());
        let writing = number(&report, "device_writes") * number(&report["stages"]["flush_us"], "mean");
        writing / 1e6 / number(&report, "seconds") / 2.0
    };
    let gathering: Vec<f64> = (0..3).map(|_| in_flight(&[])).collect();
    assert!(gathering.iter().any(|writes| *writes > 0.8), "{gathering:?}");
    let full = ["--idle-logs", "flusher", "--flush-interval-us", "1000000", "--log-buffer", "16m"];
    let filling = in_flight(&full);
    assert!(filling < 0.5, "{filling}");
}
