//! A running emulator.

use crate::counts::{Counter, Counts};
use crate::fate::Fates;
use crate::faults::Faults;
use crate::mistakes::Mistake;
use crate::options::Options;
use crate::server::Server;
use crate::service::Shared;
use crate::sessions::Sessions;
use crate::store::Store;
use crate::uploads::Uploads;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// A server that runs until it is dropped. Then its port is free, and requests under way end
/// without an answer.
#[derive(Debug)]
pub struct Emulator {
    address: SocketAddr,
    key: (String, String),
    shared: Arc<Shared>,
    /// None only while it is dropped.
    runtime: Option<Runtime>,
}

impl Emulator {
    /// Starts a server and returns when it accepts connections.
    ///
    /// # Errors
    /// The address is in use; the directory cannot be opened, or another emulator has it.
    pub fn start(options: Options) -> io::Result<Emulator> {
        let shared = Arc::new(Shared {
            store: Store::open(&options)?,
            uploads: Uploads::default(),
            sessions: Sessions::new(options.session, &options.secret),
            counter: Counter::default(),
            fates: Fates::new(options.latency, options.faults.clone(), options.seed),
        });
        let listener = TcpListener::bind(options.listen)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", options.listen)))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime =
            Builder::new_multi_thread().worker_threads(2).thread_name("emulator").enable_all().build()?;
        let server = Server::new(shared.clone(), &options.key_id, &options.secret);
        let listener = {
            let _guard = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        runtime.spawn(server.run(listener));
        let key = (options.key_id, options.secret);
        Ok(Emulator { address, key, shared, runtime: Some(runtime) })
    }

    /// Returns the address, with the port that was chosen.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of the server, for `AWS_ENDPOINT_URL_S3`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the environment variables that lead an SDK to this server.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, String); 4] {
        [
            ("AWS_ENDPOINT_URL_S3", self.url()),
            ("AWS_ACCESS_KEY_ID", self.key.0.clone()),
            ("AWS_SECRET_ACCESS_KEY", self.key.1.clone()),
            ("AWS_REGION", "us-east-1".into()),
        ]
    }

    /// Returns what happened since the start.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.counter.read()
    }

    /// Changes what goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.shared.fates.set_faults(faults);
    }

    /// Changes the promises that this server breaks from now on.
    pub fn set_mistakes(&self, mistakes: Vec<Mistake>) {
        self.shared.store.set_mistakes(mistakes);
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Requests stop where they wait, so that the directory is free soon.
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }
}
