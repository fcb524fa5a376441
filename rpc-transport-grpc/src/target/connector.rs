//! Connecting to a gRPC server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rpc_core::Limits;
use rpc_core::client::{
    ClientConfig, Connect, Connecting, Connection as _, Established, OpenStream,
};
use rpc_core::connect::{Bootstrap, ConnectError, ConnectFault, Wanted, handshake_failed};
use rpc_core::wire::Spoken;

use super::connection::{GrpcConnection, Opened};
use super::first_frame::{FirstFrame, Foreign, is_go_away};
use super::goodbye::{Goodbye, ReadToEnd};
use super::ping_pace::PingPace;
use super::scheme::Scheme;

/// A connector to a gRPC server over HTTP/2.
#[derive(Debug)]
pub struct GrpcConnector {
    authority: String,
    /// The server's name in messages.
    name: Arc<str>,
    scheme: Scheme,
    streams: Arc<dyn OpenStream>,
    pace: Arc<PingPace>,
    config: ClientConfig,
}

impl GrpcConnector {
    /// Creates a connector to `host:port`. `streams` opens its byte streams, with TLS if the scheme
    /// requires it.
    ///
    /// Ignores the configuration's settings for upgrades.
    pub fn new(
        scheme: Scheme,
        authority: impl Into<String>,
        streams: impl OpenStream + 'static,
        config: ClientConfig,
    ) -> Self {
        let authority = authority.into();
        let name = format!("{}://{authority}", scheme.address_scheme()).into();
        let pace = Arc::new(PingPace::new(config.settings.keepalive));
        Self { authority, name, scheme, streams: Arc::new(streams), pace, config }
    }

    /// Sets the server's name in messages. Use it if the streams do not lead to the authority.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into().into();
        self
    }

    async fn handshake(&self, mut stream: Box<dyn Bootstrap>) -> Result<Established, ConnectError> {
        stream.open().await.map_err(|error| handshake_failed(&self.name, error))?;
        let addresses = stream.addresses();
        let goodbye = Arc::new(Goodbye::new(Arc::clone(&self.name), Arc::clone(&self.pace)));
        let (stream, first) = FirstFrame::new(ReadToEnd::new(stream, Arc::clone(&goodbye)));
        let failed = |reason: io::Error| {
            let address = self.name.to_string();
            ConnectError::from(ConnectFault::Handshake { address, reason })
        };
        let handshake = self.builder().handshake(TokioIo::new(stream)).await;
        let (sender, driver) = handshake.map_err(|error| failed(io::Error::other(error)))?;
        // From here on a task holds the connection. The guard closes it if this attempt fails,
        // times out, or is dropped at the next await.
        let guard = CloseOnDrop::new(GrpcConnection::start(Opened {
            sender,
            driver,
            goodbye,
            addresses,
            server: Arc::clone(&self.name),
            scheme: self.scheme,
            authority: self.authority.clone(),
            limits: self.config.settings.limits,
        }));
        // hyper's handshake succeeds without a byte from the server. A peer of another protocol
        // would otherwise pass as connected and fail the first calls.
        match first.await {
            Ok(Ok(())) => Ok(Established::Encoded(guard.disarm())),
            Ok(Err(foreign)) => Err(failed(io::Error::other(describe(&foreign)))),
            Err(_) => Err(failed(io::ErrorKind::ConnectionAborted.into())),
        }
    }

    fn builder(&self) -> http2::Builder<TokioExecutor> {
        let limits = &self.config.settings.limits;
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(limits.first_response_bytes())
            .initial_connection_window_size(connection_window(limits))
            .max_concurrent_reset_streams(REMEMBERED_RESETS)
            // h2 counts answers that cross the reset of a cancelled call, and would end a healthy
            // connection once their total reaches the limit.
            .max_local_error_reset_streams(None)
            .max_header_list_size(limits.max_metadata_len.max(HEADERS_LEN_MIN));
        let keepalive = self.pace.keepalive();
        if let Some(interval) = keepalive.interval {
            builder
                .keep_alive_interval(interval)
                .keep_alive_timeout(keepalive.timeout)
                // gRPC servers treat pings on an idle connection as abuse.
                .keep_alive_while_idle(false);
        }
        builder
    }
}

/// Minimum window of a connection in bytes. h2 derives its limit on unread small frames from the
/// window: each small frame counts 255 bytes, and all of them together may count half of the
/// window.
const CONNECTION_WINDOW_MIN: u64 = 16 << 20;

/// Maximum window of HTTP/2 in bytes.
const CONNECTION_WINDOW_MAX: u64 = (1 << 31) - 1;

/// Returns the window of a connection in bytes: one stream window for each call that a farcall
/// connection may have. A narrower window could be used up by unread responses, which would stall
/// every other call.
fn connection_window(limits: &Limits) -> u32 {
    let window = u64::from(limits.first_response_bytes()) * u64::from(limits.max_calls);
    let window = window.clamp(CONNECTION_WINDOW_MIN, CONNECTION_WINDOW_MAX);
    u32::try_from(window).unwrap_or(u32::MAX >> 1)
}

/// Number of cancelled streams that h2 remembers for a second. It answers a late frame on a
/// forgotten stream with another RST_STREAM.
const REMEMBERED_RESETS: usize = 1024;

/// Closes a connection when dropped. The task that drives the connection also holds it, and would
/// keep it alive after an attempt that failed, timed out or was dropped.
struct CloseOnDrop {
    connection: Arc<GrpcConnection>,
    is_armed: bool,
}

impl CloseOnDrop {
    fn new(connection: Arc<GrpcConnection>) -> Self {
        Self { connection, is_armed: true }
    }

    /// Returns the connection and leaves it open.
    fn disarm(mut self) -> Arc<GrpcConnection> {
        self.is_armed = false;
        Arc::clone(&self.connection)
    }
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        if self.is_armed {
            self.connection.close();
        }
    }
}

/// Minimum room for a response's headers in bytes. gRPC's own headers take a few hundred.
const HEADERS_LEN_MIN: u32 = 8 << 10;

/// Describes a peer that does not speak HTTP/2.
fn describe(foreign: &Foreign) -> String {
    match foreign {
        Foreign::Closed => "the server closed the connection before it sent any HTTP/2: for a \
                            farcall server, write tcp:// or auto://"
            .to_owned(),
        Foreign::Bytes(first) if is_go_away(first) => "the server refused the connection \
                                                       (GOAWAY): for a port with TLS, write \
                                                       grpcs://"
            .to_owned(),
        Foreign::Bytes(first) => match Spoken::of(first).map(Spoken::describe) {
            Some(text) => format!("the server does not speak HTTP/2: {text}"),
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

    fn is_encoded(&self) -> bool {
        true
    }

    fn set_alternatives(&self, alternatives: &Arc<[SocketAddr]>) {
        self.streams.set_alternatives(alternatives);
    }

    fn connect(&self, _: Wanted) -> BoxFuture<'_, Result<Established, ConnectError>> {
        Box::pin(async {
            let timeout = self.config.settings.handshake_timeout;
            let handshake = |stream| -> Connecting<'_> { Box::pin(self.handshake(stream)) };
            let connecting = self.streams.connect_by(&self.name, &handshake);
            // The timeout drops the attempt at whatever point it has reached. `CloseOnDrop` cleans
            // up.
            let opened = tokio::time::timeout(timeout, connecting).await;
            opened.unwrap_or_else(|_| {
                Err(ConnectError::from(ConnectFault::TimedOut {
                    address: self.name.to_string(),
                    timeout,
                }))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncReadExt as _;
    use tokio::net::{TcpListener, TcpStream};

    use super::super::test_stream::connector;
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    /// Starts a silent listener. Returns it with a connector to it.
    async fn silent(handshake_timeout: Duration) -> (TcpListener, GrpcConnector) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        let config = ClientConfig::with_settings(|it| it.handshake_timeout = handshake_timeout);
        (listener, connector(authority, config))
    }

    /// Reads until the client has closed the stream.
    async fn closed(mut stream: TcpStream) {
        let read = async { while stream.read(&mut [0; 64]).await.is_ok_and(|len| len > 0) {} };
        tokio::time::timeout(LIMIT, read).await.expect("the client closes its socket");
    }

    #[tokio::test]
    async fn an_attempt_that_times_out_closes_its_socket() {
        let (listener, connector) = silent(Duration::from_millis(50)).await;
        let failed = connector.connect(Wanted::Bootstrap("broken".into())).await.unwrap_err();
        let ConnectFault::TimedOut { timeout, .. } = failed.fault() else { panic!("{failed}") };
        assert_eq!(*timeout, Duration::from_millis(50));
        closed(listener.accept().await.unwrap().0).await;
    }

    #[tokio::test]
    async fn a_dropped_attempt_closes_its_socket() {
        let (listener, connector) = silent(LIMIT).await;
        let mut attempt = connector.connect(Wanted::Bootstrap("broken".into()));
        let accepted = async {
            let mut stream = listener.accept().await.unwrap().0;
            // The preface has arrived, so the connection's task runs.
            stream.read_exact(&mut [0; 24]).await.unwrap();
            stream
        };
        let stream = tokio::select! {
            _ = &mut attempt => panic!("the server has said nothing"),
            stream = accepted => stream,
        };
        drop(attempt);
        closed(stream).await;
    }
}
