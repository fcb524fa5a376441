//! Connecting to a server of gRPC.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rpc_core::Limits;
use rpc_core::client::{Connect, Connection as _, Established};
use rpc_core::connect::{
    Bootstrap, ClientConfig, ConnectError, Connecting, OpenStream, Wanted, handshake_failed,
};
use rpc_core::wire::Spoken;

use super::connection::{GrpcConnection, Opened};
use super::first_frame::{FirstFrame, Foreign, is_go_away};
use super::goodbye::{Goodbye, ReadToEnd};
use super::ping_pace::PingPace;
use super::scheme::Scheme;

/// Connects to a server of gRPC over HTTP/2.
#[derive(Debug)]
pub struct GrpcConnector {
    authority: String,
    /// What messages call it.
    name: Arc<str>,
    scheme: Scheme,
    streams: Arc<dyn OpenStream>,
    pace: Arc<PingPace>,
    config: ClientConfig,
}

impl GrpcConnector {
    /// A connector to `host:port` by the streams that `streams` opens, which have TLS around them
    /// where the scheme says so. Upgrades of the configuration are left alone.
    pub fn new(
        scheme: Scheme,
        authority: impl Into<String>,
        streams: impl OpenStream + 'static,
        config: ClientConfig,
    ) -> Self {
        let authority = authority.into();
        let name = format!("{}://{authority}", scheme.of_address()).into();
        let pace = Arc::new(PingPace::new(config.settings.keepalive));
        Self { authority, name, scheme, streams: Arc::new(streams), pace, config }
    }

    /// Sets what messages call the server, where its streams do not go to the authority.
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
            ConnectError::Handshake { address, reason }
        };
        let handshake = self.builder().handshake(TokioIo::new(stream)).await;
        let (sender, driver) = handshake.map_err(|error| failed(io::Error::other(error)))?;
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
        match first.await {
            Ok(Ok(())) => Ok(Established::Encoded(guard.disarm())),
            Ok(Err(foreign)) => Err(failed(io::Error::other(words(&foreign)))),
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
            // h2 would end the connection once so many answers in all have crossed the resets of
            // calls that were given up.
            .max_local_error_reset_streams(None)
            .max_header_list_size(limits.max_metadata_len.max(HEADERS_LEN_MIN));
        if let Some(keepalive) = self.pace.keepalive() {
            builder
                .keep_alive_interval(keepalive.interval)
                .keep_alive_timeout(keepalive.timeout)
                // gRPC's servers take pings without calls for an abuse.
                .keep_alive_while_idle(false);
        }
        builder
    }
}

/// Smallest window of a connection in bytes. h2 derives its limit of unread small frames from it: a
/// small frame counts 255 bytes, and all together may count half of the window.
const CONNECTION_WINDOW_MIN: u64 = 16 << 20;

/// Largest window of HTTP/2, in bytes.
const CONNECTION_WINDOW_MAX: u64 = (1 << 31) - 1;

/// Window of a connection in bytes: the windows of as many streams as a connection of farcall's own
/// has calls. A narrower one would be used up by responses that nothing reads, and stop all others.
fn connection_window(limits: &Limits) -> u32 {
    let window = u64::from(limits.first_response_bytes()) * u64::from(limits.max_calls);
    let window = window.clamp(CONNECTION_WINDOW_MIN, CONNECTION_WINDOW_MAX);
    u32::try_from(window).unwrap_or(u32::MAX >> 1)
}

/// Streams that h2 remembers for a second after their calls were given up. It answers a late frame
/// of a forgotten one with another RST_STREAM.
const REMEMBERED_RESETS: usize = 1024;

/// Closes a connection when dropped: the task that drives it holds it, and would go on after an
/// attempt that has failed, timed out or been dropped.
struct CloseOnDrop {
    connection: Arc<GrpcConnection>,
    is_armed: bool,
}

impl CloseOnDrop {
    fn new(connection: Arc<GrpcConnection>) -> Self {
        Self { connection, is_armed: true }
    }

    /// Gives the connection, which stays open.
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

/// The least room for a response's headers, in bytes: gRPC's own take some hundred.
const HEADERS_LEN_MIN: u32 = 8 << 10;

/// What a peer speaks that is no server of HTTP/2.
fn words(foreign: &Foreign) -> String {
    match foreign {
        Foreign::Closed => "the server closed the connection without a word of HTTP/2: a farcall \
                            server listens at tcp:// or auto://"
            .to_owned(),
        Foreign::Bytes(first) if is_go_away(first) => "the server takes no connection (GOAWAY): a \
                                                       port with TLS is at grpcs://"
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
            let opened = tokio::time::timeout(timeout, connecting).await;
            opened.unwrap_or_else(|_| {
                Err(ConnectError::TimedOut { address: self.name.to_string(), timeout })
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

    /// A listener that says nothing, and a connector to it.
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
        let ConnectError::TimedOut { timeout, .. } = failed else { panic!("{failed}") };
        assert_eq!(timeout, Duration::from_millis(50));
        closed(listener.accept().await.unwrap().0).await;
    }

    #[tokio::test]
    async fn an_attempt_that_is_dropped_closes_its_socket() {
        let (listener, connector) = silent(LIMIT).await;
        let mut attempt = connector.connect(Wanted::Bootstrap("broken".into()));
        let accepted = async {
            let mut stream = listener.accept().await.unwrap().0;
            // The preface: the connection's task runs.
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
