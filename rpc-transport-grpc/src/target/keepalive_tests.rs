//! Pings of `grpc://` at a server that enforces gRPC's rule (gRFC A8). Runs on paused time.

use std::io;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use rpc_core::client::{ClientConfig, Connect as _, Established, OpenStream};
use rpc_core::connect::{Bootstrap, Wanted};
use rpc_core::policy::keepalive::Keepalive;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep};

use super::go_away_tests::{SERVER_STREAMING, start};
use super::{GrpcConnector, Scheme};
use crate::test_stream::Stream;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Minimum time between two pings, and between a ping and its call: the default of gRPC servers.
const PING_INTERVAL_MIN: Duration = Duration::from_secs(300);

const STRIKES_MAX: u32 = 2;

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const ACK: u8 = 1;

/// Opens streams to an in-process server.
#[derive(Debug)]
struct Opener(UnboundedSender<DuplexStream>);

impl OpenStream for Opener {
    fn open_stream(&self) -> BoxFuture<'_, io::Result<Box<dyn Bootstrap>>> {
        async {
            let (near, far) = duplex(1 << 16);
            let _ = self.0.send(far);
            Ok(Box::new(Stream(near)) as Box<dyn Bootstrap>)
        }
        .boxed()
    }
}

/// A server that answers no call and counts pings.
struct StrictServer {
    stream: DuplexStream,
    has_call: bool,
    last_ping: Option<Instant>,
    strikes: u32,
}

impl StrictServer {
    fn new(stream: DuplexStream) -> Self {
        Self { stream, has_call: false, last_ping: None, strikes: 0 }
    }

    /// Serves one connection, and reports the time of each ping.
    async fn serve(mut self, pings: UnboundedSender<Instant>) -> io::Result<()> {
        self.stream.read_exact(&mut [0; 24]).await?;
        self.send(SETTINGS, 0, &[]).await?;
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).await?;
            let [a, b, c, kind, flags, ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            self.stream.read_exact(&mut payload).await?;
            match kind {
                HEADERS => self.has_call = true,
                SETTINGS if flags & ACK == 0 => self.send(SETTINGS, ACK, &[]).await?,
                PING if flags & ACK == 0 => {
                    let _ = pings.send(Instant::now());
                    if !self.accepts_ping() {
                        let reason = u32::from(h2::Reason::ENHANCE_YOUR_CALM).to_be_bytes();
                        let payload = [&[0; 4][..], &reason, b"too_many_pings"].concat();
                        self.send(GO_AWAY, 0, &payload).await?;
                        return Ok(());
                    }
                    self.send(PING, ACK, &payload).await?;
                }
                _ => {}
            }
        }
    }

    fn accepts_ping(&mut self) -> bool {
        let now = Instant::now();
        let is_late = self.last_ping.is_none_or(|last| now >= last + PING_INTERVAL_MIN);
        if !is_late || !self.has_call {
            self.strikes += 1;
        }
        self.last_ping = Some(now);
        self.strikes <= STRIKES_MAX
    }

    async fn send(&mut self, kind: u8, flags: u8, payload: &[u8]) -> io::Result<()> {
        let len = u8::try_from(payload.len()).expect("it is short");
        let frame = [&[0, 0, len, kind, flags, 0, 0, 0, 0][..], payload].concat();
        self.stream.write_all(&frame).await
    }
}

/// A channel's connector to a strict server.
struct Rig {
    connector: GrpcConnector,
    streams: UnboundedReceiver<DuplexStream>,
    pings: UnboundedReceiver<Instant>,
    pinged: UnboundedSender<Instant>,
}

impl Rig {
    fn new(config: ClientConfig) -> Self {
        let ((opened, streams), (pinged, pings)) = (unbounded_channel(), unbounded_channel());
        let connector = GrpcConnector::new(Scheme::Plain, "strict:1", Opener(opened), config);
        Self { connector, streams, pings, pinged }
    }

    async fn connect(&mut self) -> Established {
        let served = async {
            let stream = self.streams.recv().await.expect("the connector opens one");
            tokio::spawn(StrictServer::new(stream).serve(self.pinged.clone()));
        };
        let connecting = self.connector.connect(Wanted::Best);
        futures::future::join(connecting, served).await.0.expect("it listens")
    }

    /// Returns the times of the pings so far, relative to `began`.
    fn pings_since(&mut self, began: Instant) -> Vec<Duration> {
        let pings = std::iter::from_fn(|| self.pings.try_recv().ok());
        pings.map(|at| at - began).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn calls_outlive_the_ping_rule_by_default() {
    let mut rig = Rig::new(ClientConfig::default());
    let (connection, began) = (rig.connect().await, Instant::now());
    let call = start(&connection, &SERVER_STREAMING);
    sleep(2 * HOUR).await;
    assert!(!call.is_finished() && connection.is_open());
    let pings = rig.pings_since(began);
    // A dead server is still detected.
    assert!((20..=24).contains(&pings.len()), "{pings:?}");
}

#[tokio::test(start_paused = true)]
async fn connection_without_calls_is_not_pinged() {
    let mut rig = Rig::new(ClientConfig::default());
    let (connection, began) = (rig.connect().await, Instant::now());
    sleep(3 * HOUR).await;
    assert!(connection.is_open());
    assert_eq!(rig.pings_since(began), []);
}

#[tokio::test(start_paused = true)]
async fn interval_doubles_after_too_many_pings() {
    let keepalive = Keepalive::new(10 * SECOND, 5 * SECOND);
    let mut rig = Rig::new(ClientConfig::with_settings(|it| it.keepalive = keepalive));
    for factor in [1, 2, 4] {
        let (connection, began) = (rig.connect().await, Instant::now());
        let Err(ended) = start(&connection, &SERVER_STREAMING).await.expect("it does not panic")
        else {
            panic!("the server answers nothing");
        };
        assert!(ended.message().contains("too_many_pings"), "{ended}");
        let first = rig.pings_since(began)[0];
        let expected = factor * 10 * SECOND;
        assert!((expected..expected + SECOND).contains(&first), "{first:?}");
    }
}
