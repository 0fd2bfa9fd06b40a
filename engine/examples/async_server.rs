//! A server on tokio: each request is a transaction that no thread waits for, and every client can
//! follow all changes. Clients put it under load and check the answers.
//!
//! `ADD name n` is answered with the new sum once that is durable; `WATCH` with each change.

use quenchdb::{Change, Database, Error, Result, Table};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio::task::{JoinSet, spawn_blocking};

const CLIENTS: u64 = 16;
const REQUESTS: u64 = 50;

struct Server {
    db: Database,
    sums: Table,
    changes: broadcast::Sender<String>,
}

impl Server {
    /// Reads the change feed on a thread that may block. Ends when the database is closed.
    fn follow(self: &Arc<Server>) -> Result<()> {
        let mut watch = self.db.watch(&self.sums, "")?;
        let sender = self.changes.clone();
        spawn_blocking(move || {
            for change in &mut watch {
                let Ok((csn, Change::Put { key, .. })) = change else { continue };
                // Without a client that follows there is no receiver.
                let _ = sender.send(format!("{csn} {}\n", String::from_utf8_lossy(&key)));
            }
        });
        Ok(())
    }

    async fn add(&self, name: String, n: i64) -> Result<i64> {
        let sums = self.sums.clone();
        // The closure runs on a blocking thread; the wait for the device needs none.
        self.db.transact_async(spawn_blocking, move |tx| tx.add(&sums, &name, n)).await
    }

    async fn serve(self: Arc<Server>, stream: TcpStream) -> std::io::Result<()> {
        let (reader, mut writer) = stream.into_split();
        let mut lines = BufReader::new(reader).lines();
        while let Some(line) = lines.next_line().await? {
            let words: Vec<&str> = line.split_whitespace().collect();
            let answer = match words[..] {
                ["ADD", name, n] => match n.parse() {
                    Ok(n) => self.add(name.into(), n).await.map_or_else(refused, |sum| format!("{sum}\n")),
                    Err(_) => format!("ERROR {n} is no number\n"),
                },
                ["WATCH"] => {
                    let mut changes = self.changes.subscribe();
                    writer.write_all(b"OK\n").await?;
                    while let Ok(change) = changes.recv().await {
                        writer.write_all(change.as_bytes()).await?;
                    }
                    return Ok(());
                }
                _ => "ERROR expected ADD name n, or WATCH\n".to_string(),
            };
            writer.write_all(answer.as_bytes()).await?;
        }
        Ok(())
    }
}

fn refused(error: Error) -> String {
    format!("ERROR {error}\n")
}

/// Adds to one sum that all clients share, and to one of its own. Returns the last answers.
async fn client(address: SocketAddr, number: u64) -> std::io::Result<(i64, i64)> {
    let (reader, mut writer) = TcpStream::connect(address).await?.into_split();
    let mut answers = BufReader::new(reader).lines();
    let mut last = [0; 2];
    for _ in 0..REQUESTS {
        for (sum, name) in last.iter_mut().zip(["all".to_string(), format!("client-{number}")]) {
            writer.write_all(format!("ADD {name} 1\n").as_bytes()).await?;
            let answer = answers.next_line().await?.unwrap_or_default();
            *sum = answer.parse().expect("a durable sum");
        }
    }
    Ok((last[0], last[1]))
}

async fn run(db: Database) -> std::io::Result<()> {
    let sums = db.create_table("sums")?;
    let server = Arc::new(Server { db, sums, changes: broadcast::channel(10_000).0 });
    server.follow()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let serving = server.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serving.clone().serve(stream));
        }
    });

    let (reader, mut writer) = TcpStream::connect(address).await?.into_split();
    let mut watched = BufReader::new(reader).lines();
    writer.write_all(b"WATCH\n").await?;
    assert_eq!(watched.next_line().await?.as_deref(), Some("OK"));

    let begun = std::time::Instant::now();
    let mut clients = JoinSet::new();
    (0..CLIENTS).for_each(|number| drop(clients.spawn(client(address, number))));
    let mut highest = 0;
    while let Some(ended) = clients.join_next().await {
        let (all, own) = ended.expect("no panic")?;
        assert_eq!(own, REQUESTS as i64, "no request of this client is lost or repeated");
        highest = highest.max(all);
    }
    assert_eq!(highest, (CLIENTS * REQUESTS) as i64, "no request of any client is lost or repeated");
    let requests = 2 * CLIENTS * REQUESTS;
    println!("{requests} durable requests by {CLIENTS} clients in {:?}", begun.elapsed());

    // Each of them comes through the change feed, in order.
    let mut before = 0;
    for _ in 0..requests {
        let line = watched.next_line().await?.expect("the server runs");
        let csn: u64 = line.split(' ').next().and_then(|csn| csn.parse().ok()).expect("a CSN");
        assert!(csn > before, "{csn} after {before}");
        before = csn;
    }
    println!("all {requests} were watched");
    server.db.clone().close().map_err(std::io::Error::from)
}

fn main() -> std::io::Result<()> {
    let directory = tempfile::tempdir()?;
    let db = Database::open(directory.path().join("sums"))?;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run(db))
}
