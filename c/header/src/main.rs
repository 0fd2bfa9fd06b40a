//! Writes `include/quenchdb.h`, or compares it: `quenchdb-header [--check]`, in the folder `c`.

use std::error::Error;
use std::path::Path;

/// Handles, which C code has without `const`, because each call may change what is behind them.
const HANDLES: [&str; 8] =
    ["database", "table", "transaction", "cursor", "ticket", "changes", "standby", "error"];

/// The first function of each section of the header.
const SECTIONS: [(&str, &str); 10] = [
    ("quench_version", "Version and memory"),
    ("quench_error_code", "Errors"),
    ("quench_open", "Opening and closing databases"),
    ("quench_open_table", "Tables: rows of bytes, in the order of the bytes of their keys"),
    ("quench_begin", "Transactions and snapshots"),
    ("quench_get", "Reading rows, from transactions and snapshots"),
    ("quench_put", "Changing rows, in a transaction"),
    ("quench_open_cursor", "Cursors: rows of a range, in both directions"),
    ("quench_ticket_csn", "Tickets: commits that no thread waits for"),
    ("quench_open_changes", "Change feeds: the committed transactions of a database, in order"),
];
const LAST_SECTIONS: [(&str, &str); 2] = [
    ("quench_flush", "Backups, checks and numbers"),
    ("quench_open_standby", "Standbys: copies that follow another process, for reading and for taking over"),
];

/// Returns a header in which comments of one line take one line.
fn shorten(header: &str) -> String {
    let lines: Vec<&str> = header.lines().collect();
    let mut short = String::new();
    let mut at = 0;
    while at < lines.len() {
        let is_short = lines[at].trim() == "/**" && lines.get(at + 2).is_some_and(|end| end.trim() == "*/");
        if is_short {
            let text = lines[at + 1].trim().trim_start_matches("* ");
            short.push_str(&format!("{} {text} */\n", lines[at]));
            at += 3;
        } else {
            short.push_str(lines[at]);
            short.push('\n');
            at += 1;
        }
    }
    short
}

/// Returns the header for the sources.
fn generate() -> Result<String, Box<dyn Error>> {
    let mut config = cbindgen::Config::from_file("cbindgen.toml")?;
    let version = env!("CARGO_PKG_VERSION");
    config.after_includes = config.after_includes.map(|text| text.replace("@VERSION@", version));
    let mut header = Vec::new();
    cbindgen::Builder::new().with_crate(".").with_config(config).generate()?.write(&mut header);
    let mut header = shorten(&String::from_utf8(header)?);
    for handle in HANDLES {
        for before in ["const struct ", "struct "] {
            header = header.replace(&format!("{before}quench_{handle} *"), &format!("quench_{handle} *"));
        }
    }
    for (function, title) in SECTIONS.iter().chain(&LAST_SECTIONS) {
        let at = header.find(&format!(" {function}(")).or_else(|| header.find(&format!("*{function}(")));
        let at = at.ok_or_else(|| format!("there is no function {function}"))?;
        let begin = header[..at].rfind("/**").ok_or("a function has no comment")?;
        header.insert_str(begin, &format!("/* ---- {title} ---- */\n\n"));
    }
    Ok(header)
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = Path::new("include/quenchdb.h");
    let header = generate()?;
    if std::env::args().any(|argument| argument == "--check") {
        if std::fs::read_to_string(path)? != header {
            return Err(
                "include/quenchdb.h is older than the sources: run `make header` in the folder c".into()
            );
        }
        return Ok(());
    }
    Ok(std::fs::write(path, header)?)
}
