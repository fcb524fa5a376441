//! Connecting to a server of gRPC.

use std::io;
use std::sync::Arc;

use futures::future::BoxFuture;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rpc_core::client::{Connect, Connection};
use rpc_core::connect::{ClientConfig, ConnectError, Wanted};
use rpc_core::transport::Addresses;
use rpc_core::wire::Spoken;
use tokio::net::TcpStream;

use super::connection::{GrpcConnection, Opened};
use super::first_frame::{FirstFrame, Foreign};

/// Connects to a server of gRPC over HTTP/2, without TLS.
#[derive(Debug)]
pub struct GrpcConnector {
    authority: String,
    /// What messages call it.
    name: Arc<str>,
    config: ClientConfig,
}

impl GrpcConnector {
    /// A connector to `host:port`; the name is resolved anew at each connection. Upgrades of the
    /// configuration are left alone.
    pub fn new(authority: impl Into<String>, config: ClientConfig) -> Self {
        let authority = authority.into();
        Self { name: format!("grpc://{authority}").into(), authority, config }
    }

    async fn open(&self) -> Result<Arc<dyn Connection>, ConnectError> {
        let unreachable =
            |reason| ConnectError::Unreachable { address: self.name.to_string(), reason };
        let stream = TcpStream::connect(&self.authority).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let addresses = Addresses {
            local: Some(stream.local_addr().map_err(unreachable)?),
            peer: Some(stream.peer_addr().map_err(unreachable)?),
            ..Addresses::default()
        };
        let (stream, first) = FirstFrame::new(stream);
        let failed = |reason: io::Error| {
            let address = self.name.to_string();
            ConnectError::Handshake { address, reason }
        };
        let handshake = self.builder().handshake(TokioIo::new(stream)).await;
        let (sender, driver) = handshake.map_err(|error| failed(io::Error::other(error)))?;
        let connection = GrpcConnection::start(Opened {
            sender,
            driver,
            addresses,
            server: Arc::clone(&self.name),
            authority: self.authority.clone(),
            limits: self.config.limits,
        });
        match first.await {
            Ok(Ok(())) => Ok(connection),
            Ok(Err(foreign)) => {
                connection.close();
                Err(failed(io::Error::other(words(&foreign))))
            }
            Err(_) => Err(failed(io::ErrorKind::ConnectionAborted.into())),
        }
    }

    fn builder(&self) -> http2::Builder<TokioExecutor> {
        let ClientConfig { limits, keepalive, .. } = &self.config;
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(limits.max_stream_bytes)
            // Several streams at once, as over farcall's own connections.
            .initial_connection_window_size(limits.max_stream_bytes.saturating_mul(4))
            .max_header_list_size(limits.max_metadata_len.max(HEADERS_LEN_MIN));
        if let Some(keepalive) = keepalive {
            builder
                .keep_alive_interval(keepalive.interval)
                .keep_alive_timeout(keepalive.timeout)
                .keep_alive_while_idle(true);
        }
        builder
    }
}

/// The least room for a response's headers, in bytes: gRPC's own take some hundred.
const HEADERS_LEN_MIN: u32 = 8 << 10;

/// What a peer speaks that is no server of HTTP/2.
fn words(foreign: &Foreign) -> String {
    match foreign {
        Foreign::Closed => "the server closed the connection without a word of HTTP/2: a farcall \
                            server listens at tcp:// or auto://"
            .to_owned(),
        Foreign::Bytes(first) => match Spoken::of(first).map(Spoken::words) {
            Some(words) => format!("the server does not speak HTTP/2: {words}"),
            None => format!("the server does not speak HTTP/2: its first bytes are {first:02x?}"),
        },
    }
}

impl Connect for GrpcConnector {
    fn config(&self) -> &ClientConfig {
        &self.config
    }

    fn address(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    fn is_foreign(&self) -> bool {
        true
    }

    fn connect(&self, _: Wanted) -> BoxFuture<'_, Result<Arc<dyn Connection>, ConnectError>> {
        Box::pin(async {
            let timeout = self.config.handshake_timeout;
            let opened = tokio::time::timeout(timeout, self.open()).await;
            opened.unwrap_or_else(|_| {
                let (address, timeout_ms) = (self.name.to_string(), timeout.as_millis());
                Err(ConnectError::TimedOut { address, timeout_ms })
            })
        })
    }
}
