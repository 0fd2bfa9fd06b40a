//! The clients of stores of objects against servers that others wrote. `scripts/servers` installs
//! them; without them these tests are skipped.

use crate::support::*;
use object_store::azure::{AzureAccessKey, AzureAuthorizer, AzureCredential};
use object_store::client::{HttpRequest, HttpRequestBody};
use quenchdb::internals::base::depth::some;
use quenchdb::internals::device::objects::{
    CloudOptions, CloudStore, Condition, FailureKind, ObjectStore, ObjectUrl, Request, S3Credentials,
    S3Options, S3Store, Version, perform, probe,
};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A server in a process of its own, which is killed when it is dropped.
struct Server {
    child: Child,
    address: SocketAddr,
    _directory: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the program of a server, or reports that the test is skipped.
fn program(name: &str) -> Option<PathBuf> {
    let place = std::env::var_os("QUENCH_SERVERS").map(PathBuf::from);
    let home = || std::env::home_dir().map(|home| home.join(".cache/quench-servers"));
    let found = place.or_else(home).map(|place| place.join("bin").join(name)).filter(|path| path.exists());
    if found.is_none() {
        skip(&format!("there is no server `{name}`; scripts/servers installs it"));
    }
    found
}

/// Starts a server on a free port and waits until it answers. Another program may take the port in
/// between, so there are several attempts.
fn start(name: &str, arguments: impl Fn(&Path, u16) -> Vec<String>) -> Option<Server> {
    let program = program(name)?;
    for _ in 0..5 {
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = free.local_addr().expect("bound");
        drop(free);
        let directory = directory();
        let child = command(&program, directory.path(), arguments(directory.path(), address.port()));
        let mut server = Server { child, address, _directory: directory };
        if server.answers() {
            return Some(server);
        }
    }
    panic!("{name} does not start");
}

fn command(program: &Path, directory: &Path, arguments: Vec<String>) -> Child {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory);
    command.env("ROOT_ACCESS_KEY", KEY).env("ROOT_SECRET_KEY", SECRET);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("an installed server starts")
}

impl Server {
    fn answers(&mut self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(30) {
            if TcpStream::connect(self.address).is_ok() {
                return true;
            }
            if self.child.try_wait().expect("a child").is_some() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sends one request and returns the status of the answer.
    fn send(&self, head: &str, headers: &str, body: &str) -> u16 {
        let mut stream = TcpStream::connect(self.address).expect("the server listens");
        let (address, length) = (self.address, body.len());
        let request = format!(
            "{head} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n\
             {headers}\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect(&answer)
    }
}

const KEY: &str = "quenchkey";
const SECRET: &str = "quenchsecret";
/// The account of Azurite, which its documentation names.
const ACCOUNT: &str = "devstoreaccount1";
const ACCOUNT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Starts Azurite with a container `quench`.
fn azurite() -> Option<Server> {
    let server = start("azurite-blob", |directory, port| {
        let port = port.to_string();
        let arguments = ["--blobPort", &port, "--location", text(directory), "--skipApiVersionCheck"];
        let quiet = ["--silent", "--disableTelemetry"];
        arguments.iter().chain(&quiet).map(ToString::to_string).collect()
    })?;
    let path = format!("/{ACCOUNT}/quench?restype=container");
    let body = HttpRequestBody::empty();
    let mut create: HttpRequest =
        http::Request::put(format!("{}{path}", server.url())).body(body).expect("a request");
    create.headers_mut().insert("content-length", 0.into());
    let credential = AzureCredential::AccessKey(AzureAccessKey::try_new(ACCOUNT_KEY).expect("a key"));
    AzureAuthorizer::new(&credential, ACCOUNT).try_authorize(&mut create).expect("signed");
    let signed = create.headers().iter().filter(|(name, _)| *name != "content-length");
    let headers: String =
        signed.map(|(name, value)| format!("{name}: {}\r\n", value.to_str().expect("text"))).collect();
    assert_eq!(server.send(&format!("PUT {path}"), &headers, ""), 201);
    Some(server)
}

impl Server {
    fn azure_environment(&self) -> [(&'static str, String); 3] {
        [
            ("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT.into()),
            ("AZURE_STORAGE_ACCOUNT_KEY", ACCOUNT_KEY.into()),
            ("AZURE_STORAGE_ENDPOINT", format!("{}/{ACCOUNT}", self.url())),
        ]
    }
}

fn cloud(url: &str, settings: &[(&str, String)]) -> CloudStore {
    let settings = settings.iter().map(|(name, value)| ((*name).into(), value.clone())).collect();
    let options = CloudOptions {
        settings,
        attempt_timeout: Duration::from_secs(5),
        read_deadline: Duration::from_secs(5),
        ..CloudOptions::default()
    };
    CloudStore::connect(&ObjectUrl::parse(url).expect("a URL"), &options).expect("complete settings")
}

fn versitygw() -> Option<Server> {
    start("versitygw", |directory, port| {
        let root = directory.join("root");
        std::fs::create_dir_all(root.join("quench")).expect("a directory");
        ["--port", &format!("127.0.0.1:{port}"), "posix", text(&root)].map(String::from).to_vec()
    })
}

fn put(name: &str, body: &[u8], condition: Condition) -> Request {
    Request::Put { name: name.into(), body: body.to_vec().into(), condition }
}

fn create(name: &str, body: &[u8]) -> Request {
    Request::Create { name: name.into(), body: body.to_vec().into() }
}

fn append(name: &str, offset: u64, body: &[u8], version: Option<&Version>) -> Request {
    Request::Append { name: name.into(), offset, body: body.to_vec().into(), version: version.cloned() }
}

fn get(name: &str, range: Option<Range<u64>>) -> Request {
    Request::Get { name: name.into(), range }
}

#[track_caller]
fn refused(store: &dyn ObjectStore, request: Request, kind: FailureKind) {
    let failure = perform(store, request).expect_err("a refusal");
    assert_eq!(failure.kind, kind, "{}", failure.what);
}

#[track_caller]
fn done(store: &dyn ObjectStore, request: Request) -> quenchdb::internals::device::objects::Reply {
    perform(store, request).unwrap_or_else(|failure| panic!("{}", failure.what))
}

/// Conditions, versions, ranges, names and lists, as the engine relies on them.
fn keeps_the_rules_of_objects(store: &dyn ObjectStore) {
    let first = done(store, put("a/b", b"0123456789", Condition::Absent)).version.expect("a version");
    refused(store, put("a/b", b"x", Condition::Absent), FailureKind::Refused);
    let unchanged = Condition::Unchanged(first.clone());
    let second = done(store, put("a/b", b"9876543210", unchanged.clone())).version.expect("a version");
    refused(store, put("a/b", b"x", unchanged), FailureKind::Refused);
    for (range, wanted) in
        [(0..3, "987"), (8..20, "10"), (10..12, ""), (50..60, ""), (4..4, ""), (9..u64::MAX, "0")]
    {
        let read = done(store, get("a/b", Some(range.clone())));
        assert_eq!((&read.body[..], read.len), (wanted.as_bytes(), 10), "{range:?}");
        assert_eq!(read.version.as_ref(), Some(&second), "{range:?}");
    }
    assert_eq!(&done(store, get("a/b", None)).body[..], b"9876543210");
    assert_eq!(done(store, Request::Head { name: "a/b".into() }).len, 10);
    for request in [get("a/c", None), get("a/c", Some(0..5)), Request::Head { name: "a/c".into() }] {
        refused(store, request, FailureKind::Absent);
    }
    done(store, put("a/b b+%ü", b"1", Condition::Always));
    let large = vec![7; 5 << 20];
    done(store, put("c", &large, Condition::Always));
    assert_eq!(done(store, get("c", None)).body, large);
    let listed = done(store, Request::List { prefix: "a/".into() }).listed;
    assert_eq!(listed.len(), 2, "{listed:?}");
    assert_eq!((&listed[0].name[..], listed[0].len), ("a/b", 10));
    for name in ["a/b", "a/b", "a/b b+%ü"] {
        done(store, Request::Delete { name: name.into() });
    }
    assert_eq!(done(store, Request::List { prefix: String::new() }).listed.len(), 1);
}

/// Whether a server keeps the bytes and the version of a read together.
#[derive(Clone, Copy)]
enum Reads {
    Whole,
    SometimesTorn,
}

/// What an open says of a store that showed an object half replaced.
const TORN_READ: &str = "shows an object half replaced";

/// As a user would: a database that outlives its machine, and a torture. A server that tears a read
/// now and then is refused by the open that sees it, which is repeated.
fn keeps_databases(url: &str, environment: &[(&str, String)], reads: Reads) {
    let run = |arguments: &[&str]| {
        let output = || quench(arguments).envs(environment.iter().cloned()).output().expect("starts");
        let is_torn = |output: &Output| String::from_utf8_lossy(&output.stderr).contains(TORN_READ);
        let output = match reads {
            Reads::Whole => output(),
            Reads::SometimesTorn => (0..10).map(|_| output()).find(|output| !is_torn(output)).expect("opens"),
        };
        expect_code(&output, 0);
        output
    };
    let database = format!("{url}/accounts");
    run(&["put", &database, "t", "alice", "100"]);
    assert_eq!(run(&["get", &database, "t", "alice"]).stdout, b"100\n");
    run(&["verify", &database]);
    for preset in some(&["auto", "pipelined"], 1) {
        let place = format!("{url}/{preset}");
        let report = json(&run(&["torture", &place, "--seconds", "3", "--preset", preset, "--json"]));
        assert!(number(&report, "kills") > 0.0 && number(&report, "acknowledged") > 0.0, "{report}");
        assert_eq!((&report["lost"], &report["violations"]), (&Value::from(0), &Value::from(0)), "{report}");
    }
}

#[test]
fn azurite_keeps_the_rules_and_databases() {
    let Some(server) = azurite() else { return };
    let environment = server.azure_environment();
    let store = cloud("az://quench/some prefix/db", &environment);
    let facts = probe(&store).expect("a store that can be used");
    assert!(facts.appends && facts.appends_check_version, "{facts:?}");
    keeps_the_rules_of_objects(&store);
    let first = done(&store, create("log/1", b"header")).version.expect("a version");
    refused(&store, create("log/1", b"header"), FailureKind::Refused);
    done(&store, append("log/1", 6, b"one", Some(&first)));
    refused(&store, append("log/1", 9, b"two", Some(&first)), FailureKind::Refused);
    for offset in [1, 6, 10] {
        refused(&store, append("log/1", offset, b"two", None), FailureKind::Refused);
    }
    let newest = done(&store, append("log/1", 9, b"two", None));
    let read = done(&store, get("log/1", None));
    assert_eq!((&read.body[..], read.version), (&b"headeronetwo"[..], newest.version));
    refused(&store, append("log/2", 6, b"one", None), FailureKind::Absent);
    done(&store, Request::Delete { name: "log/1".into() });
    refused(&store, append("log/1", 12, b"late", None), FailureKind::Absent);
    keeps_databases("az://quench/databases", &environment, Reads::Whole);
}

#[test]
fn wrong_settings_of_azure_are_refused_in_one_line() {
    let Some(server) = azurite() else { return };
    let right = server.azure_environment();
    let said = |url: &str, change: (&'static str, &str)| {
        let output = quench(&["put", url, "t", "a", "1"])
            .envs(right.iter().cloned())
            .env(change.0, change.1)
            .output()
            .expect("starts");
        expect_code(&output, 2);
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(said.lines().count() == 1 && !said.contains("Eby8"), "{said}");
        said
    };
    let key = ("AZURE_STORAGE_ACCOUNT_KEY", "d3Jvbmc=");
    for (url, change, wanted) in [
        ("az://none/db", ("X", ""), "ContainerNotFound"),
        ("az://quench/db", key, "check the account key"),
        ("az://quench/db", ("AZURE_STORAGE_ACCOUNT_KEY", "%%%"), "AZURE_STORAGE_ACCOUNT_KEY"),
        ("az://quench/db", ("AZURE_STORAGE_ACCOUNT_NAME", ""), "set AZURE_STORAGE_ACCOUNT_NAME"),
        ("az://quench/db", ("AZURE_STORAGE_ENDPOINT", "nowhere"), "is no URL"),
        ("az://quench/db", ("AZURE_STORAGE_CONNECTION_STRING", "nothing"), "CONNECTION_STRING is wrong"),
    ] {
        let said = said(url, change);
        assert!(said.contains(wanted), "{url}, {change:?}: {said}");
    }
}

impl Server {
    fn s3_environment(&self) -> [(&'static str, String); 4] {
        [
            ("AWS_ENDPOINT_URL_S3", self.url()),
            ("AWS_ACCESS_KEY_ID", KEY.into()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.into()),
            ("AWS_REGION", "us-east-1".into()),
        ]
    }

    /// The guide's table says that this server is refused.
    #[track_caller]
    fn is_refused(&self, by: &[&str], because: &[&str]) {
        let refusal = quench(by).envs(self.s3_environment()).output().expect("starts");
        expect_code(&refusal, 2);
        let said = String::from_utf8(refusal.stderr).expect("text");
        assert!(because.iter().any(|because| said.contains(because)), "{said}");
    }
}

const OPEN: [&str; 5] = ["put", "s3://quench/db", "t", "a", "1"];
const TORN: &str = "shows an object half replaced";

#[test]
fn s3proxy_is_refused_because_replacements_race() {
    let server = start("s3proxy", |directory, port| {
        std::fs::create_dir_all(directory.join("objects/quench")).expect("a bucket");
        let settings = format!(
            "s3proxy.endpoint=http://127.0.0.1:{port}\ns3proxy.authorization=none\n\
             jclouds.provider=filesystem-nio2\njclouds.filesystem.basedir={}\n",
            directory.join("objects").display()
        );
        std::fs::write(directory.join("settings"), settings).expect("written");
        ["--properties", "settings"].map(String::from).to_vec()
    });
    let Some(server) = server else { return };
    server.is_refused(&OPEN, &["does not keep `replace if unchanged`"]);
}

#[test]
fn s3mock_is_refused_because_creations_race() {
    let server = start("s3mock", |_, port| {
        let bucket = "--com.adobe.testing.s3mock.store.initialBuckets=quench";
        [format!("--http.port={port}"), "--server.port=0".into(), bucket.into()].to_vec()
    });
    let Some(server) = server else { return };
    server.is_refused(
        &OPEN,
        &["does not keep `create if absent`", "does not keep `replace if unchanged`", TORN],
    );
}

#[test]
fn rclone_is_refused_because_reads_are_torn() {
    let server = start("rclone", |directory, port| {
        std::fs::create_dir_all(directory.join("objects/quench")).expect("a bucket");
        let (key, address) = (format!("{KEY},{SECRET}"), format!("127.0.0.1:{port}"));
        ["serve", "s3", "--auth-key", &key, "--addr", &address, "objects"].map(String::from).to_vec()
    });
    let Some(server) = server else { return };
    // An open finds it in four of five cases.
    server.is_refused(&["probe", "s3://quench/db", "--rounds", "300"], &[TORN]);
}

#[test]
fn s3rver_is_refused_because_it_ignores_conditions() {
    let server = start("s3rver", |directory, port| {
        let port = port.to_string();
        let place = ["-d", text(directory), "-p", &port, "-a", "127.0.0.1", "--configure-bucket", "quench"];
        place.map(String::from).to_vec()
    });
    let Some(server) = server else { return };
    let environment = server.s3_environment().map(|(name, value)| match name {
        "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY" => (name, "S3RVER".into()),
        _ => (name, value),
    });
    let put = quench(&["put", "s3://quench/db", "t", "a", "1"]).envs(environment).output().expect("starts");
    expect_code(&put, 2);
    assert!(String::from_utf8_lossy(&put.stderr).contains("ignores the condition `create if absent`"));
}

#[test]
fn moto_keeps_databases() {
    let server =
        start("moto", |_, port| ["-H", "127.0.0.1", "-p", &port.to_string()].map(String::from).to_vec());
    let Some(server) = server else { return };
    assert_eq!(server.send("PUT /quench", "", ""), 200);
    let put = |row: &str| {
        let put = quench(&["put", "s3://quench/db", "t", row, "1"]).envs(server.s3_environment()).output();
        put.expect("starts")
    };
    // A race that it loses once in 300 rounds may end the first open.
    if !String::from_utf8_lossy(&put("a").stderr).contains("when requests race") {
        expect_code(&put("b"), 0);
    }
}

#[test]
fn versitygw_keeps_the_rules_and_databases() {
    let Some(server) = versitygw() else { return };
    let options = S3Options {
        endpoint: Some(server.url()),
        region: Some("us-east-1".into()),
        credentials: Some(S3Credentials { key_id: KEY.into(), secret: SECRET.into(), token: None }),
        ..S3Options::default()
    };
    let url = ObjectUrl::parse("s3://quench/some prefix/db").expect("a URL");
    let store = S3Store::connect(&url, &options).expect("complete settings");
    assert!(!probe(&store).expect("a store that can be used").appends);
    keeps_the_rules_of_objects(&store);
    keeps_databases("s3://quench/databases", &server.s3_environment(), Reads::Whole);
    let mut race = quench(&["probe", "s3://quench/probed", "--rounds", "50"]);
    expect_code(&race.envs(server.s3_environment()).output().expect("starts"), 0);
}

/// What toxiproxy does to connections, one after the other.
const TOXICS: [&str; 6] = [
    r#"{"type":"reset_peer","attributes":{"timeout":30}}"#,
    r#"{"type":"limit_data","stream":"upstream","attributes":{"bytes":3000}}"#,
    r#"{"type":"limit_data","stream":"downstream","attributes":{"bytes":300}}"#,
    r#"{"type":"timeout","attributes":{"timeout":200}}"#,
    r#"{"type":"latency","attributes":{"latency":100,"jitter":90}}"#,
    r#"{"type":"slicer","attributes":{"average_size":64,"size_variation":32,"delay":10}}"#,
];

#[test]
fn torture_behind_cut_connections_loses_nothing() {
    let proxy = start("server", |_, port| ["-port", &port.to_string()].map(String::from).to_vec());
    let Some(proxy) = proxy else { return };
    let emulator = crate::emulator::Server::start(&[]);
    let json_type = "content-type: application/json\r\n";
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let listen = free.local_addr().expect("bound");
    drop(free);
    let body =
        format!(r#"{{"name":"s3","listen":"{listen}","upstream":"{}","enabled":true}}"#, emulator.address());
    assert_eq!(proxy.send("POST /proxies", json_type, &body), 201);
    let url = "s3://quench--local-az1--x-s3/cut";
    let mut torture = emulator.quench(&["torture", url, "--seconds", "8", "--json"]);
    torture.env("AWS_ENDPOINT_URL_S3", format!("http://{listen}"));
    let torture = torture.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let begun = Instant::now();
    for toxic in TOXICS.iter().cycle().take_while(|_| begun.elapsed() < Duration::from_secs(9)) {
        let toxic = format!(r#"{{"name":"fault",{}"#, &toxic[1..]);
        assert_eq!(proxy.send("POST /proxies/s3/toxics", json_type, &toxic), 200);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(proxy.send("DELETE /proxies/s3/toxics/fault", "", ""), 204);
        std::thread::sleep(Duration::from_millis(300));
    }
    let output = torture.wait_with_output().expect("ends");
    expect_code(&output, 0);
    let report = json(&output);
    assert!(number(&report, "acknowledged") > 0.0, "{report}");
    assert_eq!((&report["lost"], &report["violations"]), (&Value::from(0), &Value::from(0)), "{report}");
}

#[test]
fn fake_gcs_server_keeps_the_rules_and_databases() {
    let server = start("fake-gcs-server", |directory, port| {
        let root = directory.join("root");
        std::fs::create_dir_all(root.join("quench")).expect("a directory");
        let port = port.to_string();
        let address = ["-scheme", "http", "-host", "127.0.0.1", "-port", &port, "-log-level", "error"];
        address.iter().chain(&["-filesystem-root", text(&root)]).map(ToString::to_string).collect()
    });
    let Some(server) = server else { return };
    let environment = [("STORAGE_EMULATOR_HOST", server.url())];
    let store = cloud("gs://quench/some prefix/db", &environment);
    assert!(!probe(&store).expect("a store that can be used").appends);
    keeps_the_rules_of_objects(&store);
    keeps_databases("gs://quench/databases", &environment, Reads::SometimesTorn);
}
