//! Names of in-process servers.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use futures::future::BoxFuture;
use tokio::sync::mpsc;

use super::bootstrap::{InprocBootstrap, pair};
use crate::client::{Connect, Established};
use crate::connect::{self, Bootstrap, ClientConfig, ConnectError, ConnectFault, Wanted};
use crate::server::Listen;

/// Clients that wait to be accepted; as a TCP listener's backlog, it bounds a burst.
const BACKLOG: usize = 128;

type Names = HashMap<String, mpsc::Sender<InprocBootstrap>>;

fn names() -> MutexGuard<'static, Names> {
    static NAMES: OnceLock<Mutex<Names>> = OnceLock::new();
    let names = NAMES.get_or_init(Mutex::default);
    // A map is consistent between any two statements.
    names.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Accepts the in-process connections to one name. Dropped, the name is free again.
#[derive(Debug)]
pub struct InprocListener {
    name: String,
    incoming: mpsc::Receiver<InprocBootstrap>,
}

impl InprocListener {
    /// Takes `name` in this process.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AddrInUse`] when another listener has it.
    pub fn bind(name: impl Into<String>) -> io::Result<Self> {
        let name = name.into();
        let (sender, incoming) = mpsc::channel(BACKLOG);
        let mut names = names();
        if names.contains_key(&name) {
            let message = "another server in this process has the name";
            return Err(io::Error::new(io::ErrorKind::AddrInUse, message));
        }
        names.insert(name.clone(), sender);
        Ok(Self { name, incoming })
    }
}

impl Drop for InprocListener {
    fn drop(&mut self) {
        names().remove(&self.name);
    }
}

impl Listen for InprocListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Option<Box<dyn Bootstrap>>>> {
        Box::pin(async {
            let bootstrap = self.incoming.recv().await;
            Ok(bootstrap.map(|bootstrap| Box::new(bootstrap) as Box<dyn Bootstrap>))
        })
    }
}

/// Connects to the in-process server of one name.
#[derive(Debug)]
pub struct InprocConnector {
    name: String,
    config: ClientConfig,
}

impl InprocConnector {
    /// A connector to `name`, which need not be taken yet.
    pub fn new(name: impl Into<String>, config: ClientConfig) -> Self {
        Self { name: name.into(), config }
    }

    async fn open(&self) -> io::Result<InprocBootstrap> {
        // Cloned, so that the lock is not held while the backlog is full.
        let listener = names().get(&self.name).cloned();
        let listener = listener.ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "no server in this process listens there")
        })?;
        let (client, server) = pair();
        listener.send(server).await.map_err(|_| io::ErrorKind::ConnectionRefused)?;
        Ok(client)
    }
}

impl Connect for InprocConnector {
    fn config(&self) -> &ClientConfig {
        &self.config
    }

    fn address(&self) -> Arc<str> {
        format!("inproc://{}", self.name).into()
    }

    fn connect(&self, wanted: Wanted) -> BoxFuture<'_, Result<Established, ConnectError>> {
        Box::pin(async move {
            let bootstrap = self.open().await.map_err(|reason| {
                let address = self.address().to_string();
                ConnectError::from(ConnectFault::Unreachable { address, reason })
            })?;
            connect::connect(Box::new(bootstrap), &self.address(), &self.config, wanted).await
        })
    }
}
