//! A running emulator of a zonal bucket.

use super::faults::RapidFaults;
use super::options::RapidOptions;
use super::service::answer;
use super::shared::Shared;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

/// A server that runs until it is dropped. Then its port is free, and its objects are gone unless
/// it has a directory.
#[derive(Debug)]
pub struct RapidEmulator {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// None only while it is dropped.
    runtime: Option<Runtime>,
}

impl RapidEmulator {
    /// Starts a server and returns when it accepts connections.
    ///
    /// # Errors
    /// The address is in use; the directory cannot be opened, or another server has it.
    pub fn start(options: RapidOptions) -> io::Result<RapidEmulator> {
        let listener = TcpListener::bind(options.listen)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", options.listen)))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::new(options)?);
        let runtime =
            Builder::new_multi_thread().worker_threads(2).thread_name("emulator").enable_all().build()?;
        let listener = {
            let _guard = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        runtime.spawn(accept(shared.clone(), listener));
        Ok(RapidEmulator { address, shared, runtime: Some(runtime) })
    }

    /// Returns the address, with the port that was chosen.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the environment variable that leads a client to this server.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, String); 1] {
        [("STORAGE_EMULATOR_HOST_GRPC", self.address.to_string())]
    }

    /// Returns requests by method, and faults, since the start.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.shared.counts()
    }

    /// Changes what goes wrong from now on.
    pub fn set_faults(&self, faults: RapidFaults) {
        self.shared.set_faults(faults);
    }

    /// Returns the keys of all objects, with their lengths and whether they are finalized.
    #[must_use]
    pub fn objects(&self) -> BTreeMap<String, (usize, bool)> {
        let objects = self.shared.objects();
        objects.all.iter().map(|(key, it)| (key.clone(), (it.durable.len(), it.is_final))).collect()
    }
}

impl Drop for RapidEmulator {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }
}

async fn accept(shared: Arc<Shared>, listener: tokio::net::TcpListener) {
    loop {
        // A connection that ended before it was accepted is no reason to stop.
        if let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(connection(shared.clone(), stream));
        }
    }
}

async fn connection(shared: Arc<Shared>, stream: TcpStream) {
    // It only makes small answers wait.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let answer = answer(shared.clone(), request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let server = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
    // How a connection ends is the client's business.
    let _ = server.await;
}
