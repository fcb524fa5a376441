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

/// What accepted streams are called in the log.
const NAME: &str = "stream";

/// Serves the byte streams that the program gives it: TLS streams, virtual sockets, pipes in
/// memory.
///
/// Connections over them report the transport `stream`. `TcpStream`s and `UnixStream`s of tokio's
/// are served as TCP and Unix sockets, as fast as those of a listener.
///
/// A stream is read and written from several tasks, one at a time, and from threads outside of a
/// runtime if calls are made there. Each write is followed by a flush. A connection needs no
/// memory beyond that of a connection over TCP: what waits to be written is bounded by the same
/// limits, 4 MiB of small frames and 128 MiB of large ones. What the stream buffers comes on top;
/// a small frame waits behind it, so that 128 KiB are better than 1 MiB.
///
/// When the source of streams ends, the server serves those that are open until they end, and has
/// ended then. It can still be shut down meanwhile.
///
/// # Errors of the source
///
/// An error is logged, and the next stream is asked for: at once if its kind is that of a failed
/// handshake or a broken stream, and after 50 ms otherwise. None ends the server.
pub struct StreamListener {
    streams: BoxStream<'static, io::Result<Box<dyn Bootstrap>>>,
    offers: Offers,
}

impl StreamListener {
    /// Serves what comes out of `streams`.
    pub fn new<IO, E>(streams: impl Stream<Item = Result<IO, E>> + Send + 'static) -> Self
    where
        IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        Self::with_peers(streams, |_| None)
    }

    /// Serves what comes out of `streams`, of which `peer` tells who is at the other end. Peers
    /// without an address have no limits for each peer: only those of the server and of a
    /// connection hold. A `TcpStream` of tokio's has the addresses of its socket.
    pub fn with_peers<IO, E>(
        streams: impl Stream<Item = Result<IO, E>> + Send + 'static,
        peer: impl Fn(&IO) -> Option<SocketAddr> + Send + 'static,
    ) -> Self
    where
        IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let streams = streams.map(move |stream| {
            let stream = stream.map_err(|error| of_one_stream(into_io_error(error.into())))?;
            let peer = peer(&stream);
            bootstrap(stream, NAME, peer)
        });
        Self { streams: streams.fuse().boxed(), offers: Offers::default() }
    }

    /// Sets what the listener brings to its server.
    #[must_use]
    pub fn with_offers(self, offers: Offers) -> Self {
        Self { offers, ..self }
    }
}

fn into_io_error(error: Box<dyn Error + Send + Sync>) -> io::Error {
    error.downcast().map_or_else(io::Error::other, |error| *error)
}

/// Marks the errors that a single client can cause, so that the server neither waits nor ends.
fn of_one_stream(error: io::Error) -> io::Error {
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
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use rpc_core::client::ClientConfig;
    use rpc_core::server::{ServerParts, ServerSettings};
    use rpc_core::{Channel, Server};
    use tokio::net::{TcpListener, TcpStream, UnixStream};

    use super::*;
    use crate::StreamConnector;

    fn server() -> Server {
        ServerParts::default().build(ServerSettings::default())
    }

    /// A channel over `stream`, and none once that has ended.
    async fn channel<IO>(stream: IO) -> Channel
    where
        IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let stream = Mutex::new(Some(stream));
        let connector = StreamConnector::new("pipe", ClientConfig::default(), move || {
            let stream = stream.lock().unwrap().take();
            async move { stream.ok_or(io::ErrorKind::ConnectionRefused.into()) }
        });
        Channel::connect(connector).await.unwrap()
    }

    /// What a connection between `client` and `ours` says of itself.
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
        // The source has ended at once, the connection with its channel, and then the server.
        let (served, described) = tokio::join!(serving, calling);
        served.unwrap();
        described
    }

    #[tokio::test]
    async fn a_stream_is_served_to_its_end_and_then_the_server_has_ended() {
        let (client, ours) = tokio::io::duplex(100);
        assert_eq!(described(client, ours).await, ["stream pipe", "stream stream to 10.0.0.1:7"]);
    }

    #[tokio::test]
    async fn a_socket_is_served_as_what_it_is() {
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
    async fn a_source_that_fails_without_a_break_lets_other_tasks_run() {
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
    fn errors_that_a_single_client_can_cause_delay_no_other() {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, InvalidData, OutOfMemory};
        for (kind, expected) in [
            (BrokenPipe, ConnectionAborted),
            (InvalidData, ConnectionAborted),
            (OutOfMemory, OutOfMemory),
        ] {
            let error = of_one_stream(into_io_error(io::Error::new(kind, "why").into()));
            assert_eq!((error.kind(), error.to_string().as_str()), (expected, "why"));
        }
        assert_eq!(into_io_error("why".into()).to_string(), "why");
    }
}
