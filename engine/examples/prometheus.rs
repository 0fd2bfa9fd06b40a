//! A database that Prometheus can watch: `GET /metrics` and `GET /health` on port 9600.
//!
//! `cargo run --example prometheus -- DIRECTORY`, then `curl localhost:9600/metrics`.

use quenchdb::{Database, HealthState};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).ok_or("name the directory of the database")?;
    let db = Database::builder().slow_commit_log(Duration::from_millis(100)).open(directory)?;
    let table = db.table_or_create("visits")?;
    let listener = TcpListener::bind("127.0.0.1:9600")?;
    println!("http://127.0.0.1:9600/metrics");
    for connection in listener.incoming() {
        // Something to see: each request is a row.
        db.transact(|tx| {
            let next = tx.last(&table)?.map_or(0, |(key, _)| number(&key) + 1);
            tx.insert(&table, next.to_be_bytes(), "a visit")
        })?;
        if let Err(error) = answer(&db, connection?) {
            eprintln!("a request failed: {error}");
        }
    }
    Ok(())
}

fn number(key: &[u8]) -> u64 {
    key.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn answer(db: &Database, mut connection: TcpStream) -> std::io::Result<()> {
    connection.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut request = String::new();
    let mut lines = BufReader::new(connection.try_clone()?);
    lines.read_line(&mut request)?;
    // The rest of the request says nothing that is needed.
    let mut header = String::new();
    while lines.read_line(&mut header)? > 2 {
        header.clear();
    }
    let health = db.health();
    let (status, body) = match request.split(' ').nth(1) {
        Some("/metrics") => ("200 OK", db.statistics().prometheus()),
        Some("/health") if health.state == HealthState::Failed => {
            ("503 Service Unavailable", format!("{health:?}\n"))
        }
        Some("/health") => ("200 OK", format!("{health:?}\n")),
        _ => ("404 Not Found", "ask for /metrics or /health\n".to_string()),
    };
    write!(
        connection,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
