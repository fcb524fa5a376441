//! The in-process transport: a queue each way, and names to find a server by.
//!
//! The handshake runs over an in-memory byte stream, so that every connection starts alike;
//! after it, frames move from side to side by ownership, without a copy.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::mpsc;

use crate::client::{self, ClientConfig, Connect, Established};
use crate::connect::{Bootstrap, ConnectError, ConnectFault, Wanted};
use crate::server::Listen;
use crate::transport::inproc::InprocTransport;
use crate::transport::{Addresses, Transport};

/// Clients that wait to be accepted; as a TCP listener's backlog, it bounds a burst.
const BACKLOG: usize = 128;

/// The room for handshake bytes each way; a longer Hello flows in turns.
const STREAM_LEN: usize = 16 << 10;

type Names = HashMap<String, mpsc::Sender<InprocBootstrap>>;

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
            let message = "another server in this process has this name";
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
            io::Error::new(io::ErrorKind::NotFound, "no server in this process has this name")
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
            client::connect(Box::new(bootstrap), &self.address(), &self.config, wanted).await
        })
    }
}

/// One end of an in-process connection before its handshake.
#[derive(Debug)]
struct InprocBootstrap {
    stream: DuplexStream,
    transport: InprocTransport,
}

impl Bootstrap for InprocBootstrap {
    fn addresses(&self) -> Addresses {
        Addresses::default()
    }

    fn reregister(self: Box<Self>) -> io::Result<Box<dyn Bootstrap>> {
        Ok(self)
    }

    fn into_transport(self: Box<Self>) -> Box<dyn Transport> {
        Box::new(self.transport)
    }
}

impl AsyncRead for InprocBootstrap {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for InprocBootstrap {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

fn names() -> MutexGuard<'static, Names> {
    static NAMES: OnceLock<Mutex<Names>> = OnceLock::new();
    NAMES.get_or_init(Mutex::default).lock()
}

/// The two ends of a new connection.
fn pair() -> (InprocBootstrap, InprocBootstrap) {
    let (a, b) = tokio::io::duplex(STREAM_LEN);
    let (left, right) = InprocTransport::pair("inproc");
    (
        InprocBootstrap { stream: a, transport: left },
        InprocBootstrap { stream: b, transport: right },
    )
}
