//! Serving connections over streams that the program accepts itself.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;

use futures::future::BoxFuture;
use futures::stream::{BoxStream, Stream, StreamExt as _};
use rpc_core::connect::Bootstrap;
use rpc_core::server::{Listen, Offers};
use tokio::io::{AsyncRead, AsyncWrite};

use super::accepted::bootstrap;

/// The name of accepted streams in the log.
const NAME: &str = "stream";

/// A listener that serves the program's byte streams: TLS streams, virtual sockets, in-memory
/// pipes.
///
/// Its connections report the transport `stream`. tokio's `TcpStream`s and `UnixStream`s become TCP
/// and Unix connections, as fast as those of a listener.
///
/// Several tasks read and write a stream, one at a time. Threads outside a runtime do so too if
/// calls are made there. A flush follows each write. A connection needs no more memory than one
/// over TCP: the same limits bound the bytes that wait to be written, 4 MiB of small frames and 128
/// MiB of large ones. The stream's own buffer comes on top. A small frame waits behind it, so
/// prefer 128 KiB to 1 MiB.
///
/// When the source of streams ends, the server serves the open ones until they end, and then ends
/// itself. It can still be shut down meanwhile.
///
/// # Errors of the source
///
/// The server logs an error and asks for the next stream: at once if the kind of the error suggests
/// a failed handshake or a broken stream, otherwise after 50 ms. No error ends the server.
pub struct StreamListener {
    streams: BoxStream<'static, io::Result<Box<dyn Bootstrap>>>,
    offers: Offers,
}

impl StreamListener {
    /// Serves the streams that `streams` yields.
    pub fn new<IO, E>(streams: impl Stream<Item = Result<IO, E>> + Send + 'static) -> Self
    where
        IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        Self::with_peers(streams, |_| None)
    }

    /// Serves the streams that `streams` yields. `peer` returns the address of a stream's peer.
    ///
    /// Peers without an address have no per-peer limits: only those of the server and of a
    /// connection apply. tokio's `TcpStream` has its socket's addresses.
    pub fn with_peers<IO, E>(
        streams: impl Stream<Item = Result<IO, E>> + Send + 'static,
        peer: impl Fn(&IO) -> Option<SocketAddr> + Send + 'static,
    ) -> Self
    where
        IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let streams = streams.map(move |stream| {
            let stream = stream.map_err(|error| as_client_error(into_io_error(error.into())))?;
            let peer = peer(&stream);
            bootstrap(stream, NAME, peer)
        });
        Self { streams: streams.fuse().boxed(), offers: Offers::default() }
    }

    /// Sets the upgrades and other protocols that the listener offers clients.
    #[must_use]
    pub fn with_offers(self, offers: Offers) -> Self {
        Self { offers, ..self }
    }
}

fn into_io_error(error: Box<dyn Error + Send + Sync>) -> io::Error {
    error.downcast().map_or_else(io::Error::other, |error| *error)
}

/// Converts errors that a single client can cause, so that the server neither waits nor ends.
fn as_client_error(error: io::Error) -> io::Error {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, Interrupted, InvalidData, PermissionDenied, TimedOut,
        UnexpectedEof, WouldBlock,
    };
    match error.kind() {
        BrokenPipe | Interrupted | InvalidData | PermissionDenied | TimedOut | UnexpectedEof
        | WouldBlock => io::Error::new(ConnectionAborted, error),
        _ => error,
    }
}

impl Listen for StreamListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Option<Box<dyn Bootstrap>>>> {
        Box::pin(async { self.streams.next().await.transpose() })
    }

    fn offers(&self) -> Offers {
        self.offers.clone()
    }
}

impl fmt::Debug for StreamListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamListener").field("offers", &self.offers).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use parking_lot::Mutex;
    use rpc_core::client::ClientConfig;
    use rpc_core::server::{ServerParts, ServerSettings};
    use rpc_core::{Channel, Server};
    use tokio::net::{TcpListener, TcpStream, UnixStream};

    use super::*;
    use crate::StreamConnector;

    fn server() -> Server {
        ServerParts::default().build(ServerSettings::default())
    }

    /// Returns a channel over `stream`. It makes no second connection.
    async fn channel<IO>(stream: IO) -> Channel
    where
        IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let stream = Mutex::new(Some(stream));
        let connector = StreamConnector::new("pipe", ClientConfig::default(), move || {
            let stream = stream.lock().take();
            async move { stream.ok_or(io::ErrorKind::ConnectionRefused.into()) }
        });
        Channel::connect(connector).await.unwrap()
    }

    /// Returns the descriptions of both ends of a connection between `client` and `ours`.
    async fn described<IO>(client: IO, ours: IO) -> [String; 2]
    where
        IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let server = server();
        let incoming = futures::stream::iter([Ok::<_, io::Error>(ours)]);
        let peer = "10.0.0.1:7".parse().unwrap();
        let listener = StreamListener::with_peers(incoming, move |_| Some(peer));
        let serving = server.serve(listener);
        let calling = async {
            let channel = channel(client).await;
            let ours = channel.info().unwrap();
            let theirs = server.connections().remove(0);
            [ours, theirs].map(|info| format!("{} {}", info.transport, info.addresses))
        };
        // The source ends at once, then the connection with its channel, and then the server.
        let (served, described) = tokio::join!(serving, calling);
        served.unwrap();
        described
    }

    #[tokio::test]
    async fn the_server_ends_after_the_last_stream() {
        let (client, ours) = tokio::io::duplex(100);
        assert_eq!(described(client, ours).await, ["stream pipe", "stream stream to 10.0.0.1:7"]);
    }

    #[tokio::test]
    async fn sockets_are_recognized() {
        let (client, ours) = UnixStream::pair().unwrap();
        assert_eq!(described(client, ours).await, ["unix pipe", "unix stream to 10.0.0.1:7"]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connecting = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(connecting, listener.accept());
        let (client, (ours, peer)) = (client.unwrap(), accepted.unwrap());
        let local = ours.local_addr().unwrap();
        let expected = [format!("tcp {peer} <-> {local}"), format!("tcp {local} <-> {peer}")];
        assert_eq!(described(client, ours).await, expected);
    }

    #[tokio::test]
    async fn errors_of_the_source_do_not_end_the_server() {
        let (client, ours) = tokio::io::duplex(100);
        let broken = io::Error::from(io::ErrorKind::BrokenPipe);
        let listener = StreamListener::new(futures::stream::iter([Err(broken), Ok(ours)]));
        let server = server();
        let serving = tokio::spawn(async move { server.serve(listener).await });
        drop(channel(client).await);
        serving.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_source_that_keeps_failing_yields_to_other_tasks() {
        const ERROR_COUNT: usize = 100_000;
        let (stop, stopped) = futures::channel::oneshot::channel::<()>();
        tokio::spawn(async { stop.send(()) });
        let count = Arc::new(AtomicUsize::new(0));
        let failing = futures::stream::repeat_with({
            let count = Arc::clone(&count);
            move || {
                count.fetch_add(1, Ordering::Relaxed);
                Err::<TcpStream, _>(io::Error::from(io::ErrorKind::BrokenPipe))
            }
        });
        let listener = StreamListener::new(failing.take(ERROR_COUNT));
        let server = server();
        let shutdown = async {
            let _ = stopped.await;
        };
        server.serve_until(listener, shutdown).await.unwrap();
        assert!(count.load(Ordering::Relaxed) < ERROR_COUNT, "no other task has run");
    }

    #[test]
    fn errors_that_one_client_causes_delay_no_other() {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, InvalidData, OutOfMemory};
        for (kind, expected) in [
            (BrokenPipe, ConnectionAborted),
            (InvalidData, ConnectionAborted),
            (OutOfMemory, OutOfMemory),
        ] {
            let error = as_client_error(into_io_error(io::Error::new(kind, "why").into()));
            assert_eq!((error.kind(), error.to_string().as_str()), (expected, "why"));
        }
        assert_eq!(into_io_error("why".into()).to_string(), "why");
    }
}
