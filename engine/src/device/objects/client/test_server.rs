//! A server that records requests and answers as a test says. It knows nothing about objects.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A request that the server received.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: String,
    /// With the query.
    pub path: String,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| &value[..])
    }

    pub fn is_session(&self) -> bool {
        self.path.contains("?session")
    }
}

/// How the server answers.
#[derive(Clone)]
pub enum Answer {
    Reply {
        status: u16,
        headers: String,
        body: Vec<u8>,
    },
    /// Ends the connection without a byte.
    Close,
    /// Promises 10 bytes more than it sends, and ends the connection.
    Cut {
        headers: String,
        body: Vec<u8>,
    },
    /// Never answers.
    Silence,
}

/// Returns an answer with headers, one a line.
pub fn reply(status: u16, headers: &str, body: impl Into<Vec<u8>>) -> Answer {
    let headers = headers.lines().map(|line| format!("{}\r\n", line.trim())).collect();
    Answer::Reply { status, headers, body: body.into() }
}

/// Returns an error as S3 has it.
pub fn error(status: u16, code: &str) -> Answer {
    let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>it says</Message></Error>");
    reply(status, "content-type: application/xml", body)
}

pub struct Server {
    pub url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    /// Starts a server. `answer` gets the request and the number of requests before it. The threads
    /// end with the process.
    pub fn start(answer: impl Fn(&Seen, usize) -> Answer + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (recorded, answer) = (seen.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (recorded, answer) = (recorded.clone(), answer.clone());
                std::thread::spawn(move || serve(stream, &recorded, &*answer));
            }
        });
        Server { url, seen }
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

fn receive(stream: &mut BufReader<TcpStream>) -> Option<Seen> {
    let mut first = String::new();
    stream.read_line(&mut first).ok()?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_string(), words.next()?.to_string());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_string()));
    }
    let mut seen = Seen { method, path, headers, body: Vec::new() };
    let len = seen.header("content-length").map_or(0, |len| len.parse().unwrap());
    seen.body.resize(len, 0);
    stream.read_exact(&mut seen.body).ok()?;
    Some(seen)
}

fn serve(stream: TcpStream, recorded: &Mutex<Vec<Seen>>, answer: &dyn Fn(&Seen, usize) -> Answer) {
    let mut stream = BufReader::new(stream);
    while let Some(seen) = receive(&mut stream) {
        let number = {
            let mut recorded = recorded.lock().unwrap();
            recorded.push(seen.clone());
            recorded.len() - 1
        };
        let (status, headers, body, more) = match answer(&seen, number) {
            Answer::Reply { status, headers, body } => (status, headers, body, 0),
            Answer::Cut { headers, body } => (206, headers, body, 10),
            Answer::Close => return,
            Answer::Silence => return std::thread::sleep(Duration::from_secs(60)),
        };
        // An answer to a head has the length of a body that it does not have.
        let len = if headers.contains("content-length") {
            String::new()
        } else {
            format!("content-length: {}\r\n", body.len() + more)
        };
        let text = format!("HTTP/1.1 {status} Status\r\n{headers}{len}\r\n");
        let sent = stream.get_mut().write_all(&[text.as_bytes(), &body].concat());
        if sent.is_err() || more > 0 {
            return;
        }
    }
}
