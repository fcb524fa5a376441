//! Sources of a server's connections other than an address.

use std::error::Error;

use futures::Stream;
use rpc_core::server::Listen;
use rpc_transport_tcp::StreamListener;
use tokio::io::{AsyncRead, AsyncWrite};

use super::error::ServeFault;
use super::listener::{Incoming, Listener};
use super::socket::SocketListener;
use super::{ServeError, Server};

/// A source of connections, for [`Server::serve_incoming`].
///
/// - A [`SocketListener`]: TCP, and RDMA for clients that ask for it, as at an `auto://` address;
///   or Unix sockets.
/// - A `Stream` of `Result<IO, E>`, where tokio can read and write `IO`: any byte stream. tokio's
///   own sockets among them are served as TCP and Unix sockets, without RDMA. Others carry farcall
///   as they are: TLS streams, virtual sockets, pipes in memory. The server logs an error of the
///   stream and polls it again. A server that has TLS itself rejects such a stream.
///
/// `Kind` is found by the compiler.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a source of connections",
    note = "a listener of tokio or the standard library is one, and a `Stream` of `Result`s of \
            byte streams"
)]
pub trait IntoIncoming<Kind>: Send + 'static {
    /// The listener that accepts the connections.
    #[doc(hidden)]
    type Incoming: Listen;

    /// Prepares it for a server.
    #[doc(hidden)]
    fn into_incoming(self, server: &Server) -> Result<Self::Incoming, ServeError>;
}

/// The kinds of sources: they keep the implementations of [`IntoIncoming`] apart.
#[doc(hidden)]
pub mod kind {
    use std::marker::PhantomData;

    /// A listening socket.
    #[derive(Debug)]
    pub struct Socket;

    /// A stream of byte streams.
    #[derive(Debug)]
    pub struct Streams<IO, E>(PhantomData<(IO, E)>);

    /// It accepts connections itself, as transports' tests have it.
    #[derive(Debug)]
    pub struct Own;
}

impl<L: SocketListener> IntoIncoming<kind::Socket> for L {
    type Incoming = Incoming;

    fn into_incoming(self, server: &Server) -> Result<Incoming, ServeError> {
        Ok(Listener::from_socket(server.clone(), self)?.into_incoming())
    }
}

impl<S, IO, E> IntoIncoming<kind::Streams<IO, E>> for S
where
    S: Stream<Item = Result<IO, E>> + Send + 'static,
    IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    type Incoming = StreamListener;

    fn into_incoming(self, server: &Server) -> Result<StreamListener, ServeError> {
        check_streams(server)?;
        Ok(StreamListener::new(self))
    }
}

#[doc(hidden)]
impl<L: Listen> IntoIncoming<kind::Own> for L {
    type Incoming = L;

    fn into_incoming(self, server: &Server) -> Result<L, ServeError> {
        // It accepts without TLS.
        check_streams(server)?;
        Ok(self)
    }
}

/// Rejects settings that do not hold for byte streams of the program.
fn check_streams(server: &Server) -> Result<(), ServeError> {
    let settings = &server.settings;
    if server.tls.is_some() || settings.base.require_encryption {
        return Err(ServeFault::Streams.into());
    }
    match settings.proxy_protocol.from[..] {
        [] => Ok(()),
        _ => Err(ServeFault::ProxiedStreams.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use futures::channel::oneshot;
    use futures::future::BoxFuture;
    use futures::stream;
    use rpc_core::client::ClientConfig;
    use rpc_core::connect::Bootstrap;
    use rpc_transport_tcp::StreamConnector;
    use tokio::io::DuplexStream;

    use super::*;
    use crate::Channel;

    fn server() -> Server {
        Server::builder().build()
    }

    /// Serves a listener until a client has connected to its address; the client's transport.
    async fn serve_one(listener: impl SocketListener) -> String {
        let listener = server().bind_listener(listener).unwrap();
        let address = listener.local_address().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = listener.serve().with_graceful_shutdown(async {
            let _ = stopped.await;
        });
        let calling = async {
            let channel = Channel::connect(address).await.unwrap();
            stop.send(()).unwrap();
            channel.endpoints().remove(0).info.unwrap().transport.to_owned()
        };
        let (served, transport) = tokio::join!(serving, calling);
        served.unwrap();
        transport
    }

    #[tokio::test]
    async fn tcp_listeners_of_the_program_are_served() {
        let tokios = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        assert_eq!(serve_one(tokios).await, "tcp");
        let stds = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(serve_one(stds).await, "tcp");
    }

    #[tokio::test]
    async fn unix_listeners_of_the_program_are_served() {
        let path = std::env::temp_dir().join(format!("farcall-incoming-{}", std::process::id()));
        let tokios = tokio::net::UnixListener::bind(&path).unwrap();
        assert_eq!(serve_one(tokios).await, "unix");
        std::fs::remove_file(&path).unwrap();
        let stds = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert_eq!(serve_one(stds).await, "unix");
        std::fs::remove_file(&path).unwrap();
    }

    #[tokio::test]
    async fn a_tcp_listener_of_the_program_offers_rdma() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listener = server().bind_listener(listener).unwrap();
        assert!(listener.local_address().to_string().starts_with("auto://127.0.0.1:"));
        let offers = listener.into_incoming().offers();
        let upgrades: Vec<_> = offers.upgrades.iter().map(|upgrade| upgrade.name()).collect();
        assert_eq!(upgrades, ["rdma"]);
    }

    #[test]
    fn a_listener_that_cannot_be_served_is_an_error() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let error = server().bind_listener(listener).unwrap_err();
        assert!(error.to_string().starts_with("cannot serve the listener: "), "{error}");
    }

    /// A channel over `client`, as `Channel::builder` does not make one.
    async fn channel(client: DuplexStream) -> rpc_core::Channel {
        let stream = parking_lot::Mutex::new(Some(client));
        let connector = StreamConnector::new("pipe", ClientConfig::default(), move || {
            let stream = stream.lock().take();
            async move { stream.ok_or(io::ErrorKind::ConnectionRefused.into()) }
        });
        rpc_core::Channel::connect(connector).await.unwrap()
    }

    #[tokio::test]
    async fn a_stream_of_byte_streams_is_served_to_the_end_of_all() {
        let (pairs, ours): (Vec<_>, Vec<_>) = (0..3).map(|_| tokio::io::duplex(1000)).unzip();
        let incoming = stream::iter(ours.into_iter().map(Ok::<_, io::Error>));
        let serving = tokio::spawn(server().serve_incoming(incoming));
        for client in pairs {
            assert_eq!(channel(client).await.info().unwrap().transport, "stream");
        }
        serving.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn streams_are_served_until_the_server_is_shut_down() {
        let (client, ours) = tokio::io::duplex(1000);
        let incoming = stream::iter([Ok::<_, io::Error>(ours)]);
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async {
            let _ = stopped.await;
        };
        let serving = server().serve_incoming(incoming).with_graceful_shutdown(shutdown);
        let serving = tokio::spawn(serving);
        let channel = channel(client).await;
        stop.send(()).unwrap();
        serving.await.unwrap().unwrap();
        drop(channel);
    }

    /// It can never accept.
    #[derive(Debug)]
    struct Broken;

    impl Listen for Broken {
        fn accept(&mut self) -> BoxFuture<'_, io::Result<Option<Box<dyn Bootstrap>>>> {
            Box::pin(std::future::ready(Err(io::ErrorKind::BrokenPipe.into())))
        }
    }

    #[tokio::test]
    async fn broken_listener_ends_the_server() {
        let error = server().serve_incoming(Broken).await.unwrap_err();
        assert_eq!(error.kind(), crate::ServeErrorKind::Accept, "{error}");
        assert_eq!(error.to_string(), "cannot accept connections any more: broken pipe");
    }
}
