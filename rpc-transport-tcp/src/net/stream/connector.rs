//! Connecting over streams that the program opens itself.

use std::fmt;
use std::io;
use std::sync::Arc;

use futures::future::BoxFuture;
use rpc_core::client::{self, ClientConfig, Connect, Established, OpenStream};
use rpc_core::connect::{Bootstrap, ConnectError, ConnectFault, Wanted};
use tokio::io::{AsyncRead, AsyncWrite};

use super::accepted::bootstrap;

type Open = dyn Fn() -> BoxFuture<'static, io::Result<Box<dyn Bootstrap>>> + Send + Sync;

/// A connector over byte streams that the program opens: through a proxy, over TLS, to a virtual
/// socket or in memory. [`StreamListener`](crate::StreamListener) documents the requirements on
/// streams.
pub struct StreamConnector {
    name: Arc<str>,
    config: ClientConfig,
    open: Box<Open>,
}

impl StreamConnector {
    /// Creates a connector. It calls `open` for each connection attempt, and drops an attempt that
    /// exceeds the handshake timeout of `config`.
    ///
    /// `name` stands for the server in messages: `cannot connect to <name>: ..`.
    ///
    /// # Examples
    ///
    /// ```
    /// use rpc_core::client::ClientConfig;
    /// use rpc_transport_tcp::StreamConnector;
    /// use tokio::net::TcpStream;
    ///
    /// let connector = StreamConnector::new("backend", ClientConfig::default(), || async {
    ///     TcpStream::connect("10.0.0.1:7000").await
    /// });
    /// ```
    pub fn new<F, Fut, IO>(name: impl Into<String>, config: ClientConfig, open: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<IO>> + Send + 'static,
        IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let name: Arc<str> = name.into().into();
        let stream_name = Arc::clone(&name);
        let open = move || -> BoxFuture<'static, io::Result<Box<dyn Bootstrap>>> {
            let (opening, name) = (open(), Arc::clone(&stream_name));
            Box::pin(async move { bootstrap(opening.await?, &name, None) })
        };
        Self { name, config, open: Box::new(open) }
    }
}

/// Lets other libraries' protocols use the program's streams.
impl OpenStream for StreamConnector {
    fn open_stream(&self) -> BoxFuture<'_, io::Result<Box<dyn Bootstrap>>> {
        Box::pin(async {
            let timeout = self.config.settings.handshake_timeout;
            let opened = tokio::time::timeout(timeout, (self.open)()).await;
            opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        })
    }
}

impl Connect for StreamConnector {
    fn config(&self) -> &ClientConfig {
        &self.config
    }

    fn address(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    fn connect(&self, wanted: Wanted) -> BoxFuture<'_, Result<Established, ConnectError>> {
        Box::pin(async move {
            let bootstrap = self.open_stream().await.map_err(|reason| {
                let address = self.name.to_string();
                ConnectError::from(ConnectFault::Unreachable { address, reason })
            })?;
            client::connect(bootstrap, &self.name, &self.config, wanted).await
        })
    }
}

impl fmt::Debug for StreamConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamConnector")
            .field("name", &self.name)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rpc_core::Channel;
    use tokio::io::DuplexStream;

    use super::*;

    /// Returns the error with which an attempt over `open` fails.
    async fn refused<Fut>(open: impl Fn() -> Fut + Send + Sync + 'static) -> String
    where
        Fut: Future<Output = io::Result<DuplexStream>> + Send + 'static,
    {
        let timeout = Duration::from_millis(1);
        let config = ClientConfig::with_settings(|it| it.handshake_timeout = timeout);
        let connector = StreamConnector::new("backend", config, open);
        Channel::connect(connector).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn an_error_names_the_server() {
        let closed = || async { Err(io::Error::other("the proxy is closed")) };
        assert_eq!(refused(closed).await, "cannot connect to backend: the proxy is closed");
        let late = refused(std::future::pending).await;
        assert_eq!(late, "cannot connect to backend: timed out");
        let silent = refused(|| async {
            let (ours, theirs) = tokio::io::duplex(1000);
            // Never read.
            std::mem::forget(theirs);
            Ok(ours)
        });
        assert_eq!(
            silent.await,
            "the handshake with backend did not end within 1 ms (handshake_timeout)"
        );
    }
}
