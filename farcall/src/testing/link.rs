//! A network between clients and a server, with faults on demand.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, duplex};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};

use super::lane::{Direction, Flow, Lane};
use super::relay::carry;

/// Buffer of each end of a connection, in bytes, like a socket's. Small next to the relay's queue.
const BUFFER_LEN: usize = 64 << 10;

/// Maximum number of connections that wait for a server to accept them. The next one is refused.
const BACKLOG: usize = 128;

/// A network between clients and a server, with faults on demand. Clones share it.
///
/// The server's side is [`incoming`](Self::incoming), or any server that listens elsewhere
/// ([`connector_to`](Self::connector_to)); the clients' side is [`connector`](Self::connector).
/// What is set holds for all connections, those that are there and those to come, until it is set
/// anew. Without faults, bytes pass at once and in order.
///
/// A direction keeps at most 1 MiB and two buffers of 64 KiB of a connection on its way; a sender
/// that is faster waits.
///
/// # Examples
///
/// ```
/// # use farcall::{AddressError, Server, Service};
/// use farcall::Channel;
/// use farcall::testing::{Direction, Link};
///
/// # fn example(service: impl Service) -> Result<(), AddressError> {
/// let link = Link::new();
/// let server = Server::builder().add_service(service).build();
/// tokio::spawn(server.serve_incoming(link.incoming()));
/// let builder = Channel::builder("tcp://inventory:7000")?;
/// let channel = builder.connect_with_connector(link.connector());
/// // A server that takes calls and does not answer:
/// link.pause(Direction::ToClient);
/// # drop(channel);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Link {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    lanes: Arc<Lanes>,
    entry: watch::Sender<Entry>,
    /// Counted up to end all connections. They end as well when the sender is gone.
    cuts: watch::Sender<u64>,
    /// Destination of connections to the server in process.
    server: Mutex<Option<mpsc::Sender<DuplexStream>>>,
}

/// Both directions, which connections share with the link.
#[derive(Debug, Default)]
struct Lanes {
    to_server: Lane,
    to_client: Lane,
    connections: AtomicUsize,
}

/// The treatment of attempts to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Entry {
    #[default]
    Open,
    Refused,
    Unanswered,
}

/// Counts a connection for as long as it is carried.
struct Counted(Arc<Lanes>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Link {
    /// A link without faults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens connections to the server in process, for
    /// [`ChannelBuilder::connect_with_connector`](crate::ChannelBuilder::connect_with_connector).
    /// Without a server an attempt is refused.
    pub fn connector(&self) -> impl Fn() -> Opening + Clone + Send + Sync + 'static {
        let link = self.clone();
        move || {
            let link = link.clone();
            Box::pin(async move {
                link.admit().await?;
                let (ours, theirs) = duplex(BUFFER_LEN);
                let server = link.server().clone().ok_or_else(refused)?;
                server.try_send(theirs).map_err(|_| refused())?;
                Ok(link.carry_to(ours))
            })
        }
    }

    /// Opens connections to a server that listens elsewhere, `host:port` over TCP. An attempt fails
    /// as that of a `TcpStream` does.
    pub fn connector_to(
        &self,
        address: impl Into<String>,
    ) -> impl Fn() -> Opening + Clone + Send + Sync + 'static {
        let (link, address) = (self.clone(), address.into());
        move || {
            let (link, address) = (link.clone(), address.clone());
            Box::pin(async move {
                link.admit().await?;
                Ok(link.carry_to(TcpStream::connect(address).await?))
            })
        }
    }

    /// The connections of a server in process, for
    /// [`Server::serve_incoming`](crate::Server::serve_incoming). One server at a time: those of an
    /// earlier server end, and it ends with its last connection. So a test can restart a server
    /// behind its clients.
    #[must_use]
    pub fn incoming(&self) -> LinkIncoming {
        let (sender, streams) = mpsc::channel(BACKLOG);
        *self.server() = Some(sender);
        LinkIncoming { streams }
    }

    /// Sets the time that every byte travels, in both directions. The default is zero. A round trip
    /// takes twice as long, and a new connection none.
    pub fn set_latency(&self, latency: Duration) {
        for direction in [Direction::ToServer, Direction::ToClient] {
            self.set_latency_of(direction, latency);
        }
    }

    /// Sets the time that every byte travels in one direction.
    pub fn set_latency_of(&self, direction: Direction, latency: Duration) {
        self.lane(direction).change(|rules| rules.latency = latency);
    }

    /// Holds back what is sent in one direction: the peer seems to hang. A sender finds out when
    /// its buffers are full.
    pub fn pause(&self, direction: Direction) {
        self.lane(direction).change(|rules| rules.flow = Flow::Waits);
    }

    /// Loses what is sent in one direction, as behind a firewall that has forgotten the connection:
    /// senders learn nothing. What follows after [`resume`](Self::resume) is the rest of a stream
    /// with a hole in it, which a receiver must refuse. An end of a stream that was lost stays so:
    /// its connection is there until it is cut.
    pub fn lose(&self, direction: Direction) {
        self.lane(direction).change(|rules| rules.flow = Flow::IsLost);
    }

    /// Lets bytes pass again. What was held back comes first.
    pub fn resume(&self, direction: Direction) {
        self.lane(direction).change(|rules| rules.flow = Flow::Passes);
    }

    /// Inverts one bit of a byte, after `after` more bytes have passed in one direction, counted
    /// over all connections. Zero means the next byte. A second call takes the place of a first
    /// whose byte has not passed.
    pub fn corrupt(&self, direction: Direction, after: u64) {
        self.lane(direction).damage_after(after);
    }

    /// Ends all connections that are there, in the middle of what they carry: both ends find their
    /// stream at its end. New ones can be made at once.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Refuses new connections, as a host does on which no server listens.
    pub fn refuse_connections(&self) {
        self.shared.entry.send_replace(Entry::Refused);
    }

    /// Leaves attempts to connect without an answer, as a host does that is down.
    pub fn ignore_connections(&self) {
        self.shared.entry.send_replace(Entry::Unanswered);
    }

    /// Takes new connections again, and those whose attempts have waited.
    pub fn accept_connections(&self) {
        self.shared.entry.send_replace(Entry::Open);
    }

    /// Returns the number of open connections.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.shared.lanes.connections.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that have passed in one direction, over all connections.
    #[must_use]
    pub fn passed_bytes(&self, direction: Direction) -> u64 {
        self.lane(direction).passed_bytes()
    }

    fn lane(&self, direction: Direction) -> &Lane {
        match direction {
            Direction::ToServer => &self.shared.lanes.to_server,
            Direction::ToClient => &self.shared.lanes.to_client,
        }
    }

    /// Returns a weak reference to the state that connections keep alive.
    #[cfg(test)]
    pub(super) fn kept_by_connections(&self) -> std::sync::Weak<impl Sized + use<>> {
        Arc::downgrade(&self.shared.lanes)
    }

    fn server(&self) -> MutexGuard<'_, Option<mpsc::Sender<DuplexStream>>> {
        self.shared.server.lock()
    }

    /// Waits until an attempt to connect is answered.
    async fn admit(&self) -> io::Result<()> {
        let mut entry = self.shared.entry.subscribe();
        // It fails when the link is gone, which holds its sender.
        let entry = entry.wait_for(|entry| *entry != Entry::Unanswered).await;
        match entry.map(|entry| *entry) {
            Ok(Entry::Open) => Ok(()),
            Ok(Entry::Refused | Entry::Unanswered) | Err(_) => Err(refused()),
        }
    }

    /// Carries a connection to `server`, and gives its client's end. It ends when it is cut, and
    /// when the link is gone.
    fn carry_to(&self, server: impl AsyncRead + AsyncWrite + Send + 'static) -> DuplexStream {
        let (client, ours) = duplex(BUFFER_LEN);
        let (lanes, mut cuts) = (Arc::clone(&self.shared.lanes), self.shared.cuts.subscribe());
        lanes.connections.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(lanes);
        tokio::spawn(async move {
            let Counted(lanes) = &counted;
            tokio::select! {
                () = carry(ours, server, [&lanes.to_server, &lanes.to_client]) => {}
                _ = cuts.changed() => {}
            }
        });
        client
    }
}

/// An attempt to connect.
type Opening = BoxFuture<'static, io::Result<DuplexStream>>;

fn refused() -> io::Error {
    io::ErrorKind::ConnectionRefused.into()
}

/// The connections that come over a [`Link`]. They end with the link, and with the next
/// [`Link::incoming`].
#[derive(Debug)]
pub struct LinkIncoming {
    streams: mpsc::Receiver<DuplexStream>,
}

impl Stream for LinkIncoming {
    type Item = io::Result<DuplexStream>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.streams.poll_recv(context).map(|stream| stream.map(Ok))
    }
}
