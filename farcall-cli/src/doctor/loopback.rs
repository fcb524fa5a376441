//! A path over RDMA from this host to itself: the handshake, the proof, small messages, and large
//! ones that travel by READ.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use farcall::codegen::{HandlerFuture, ServerCall, ServiceDescriptor};
use farcall::prost::Message;
use farcall::{
    CallKind, Channel, Idempotency, MethodDescriptor, Rdma, Request, Response, Server, Service,
    Status,
};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use hdrhistogram::Histogram;

/// Maximum time of the test.
const LIMIT: Duration = Duration::from_secs(20);
/// Length of a large message, which travels by READ. Those in flight fit into 8 MiB of locked
/// memory beside a lane, on both ends.
const LARGE_LEN: usize = 256 << 10;
/// Round trips of small messages.
const ROUND_TRIPS: u32 = 200;
/// Large messages in all, and at a time.
const TRANSFERS: usize = 128;
const TRANSFERS_AT_ONCE: usize = 4;

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "farcall::prost")]
struct Payload {
    #[prost(bytes = "vec", tag = "1")]
    bytes: Vec<u8>,
}

const ECHO: MethodDescriptor = method("/farcall.doctor.Loopback/Echo");
const TAKE: MethodDescriptor = method("/farcall.doctor.Loopback/Take");
static METHODS: [MethodDescriptor; 2] = [ECHO, TAKE];
static SERVICE: ServiceDescriptor =
    ServiceDescriptor { name: "farcall.doctor.Loopback", methods: &METHODS };

const fn method(path: &'static str) -> MethodDescriptor {
    let (kind, idempotency) = (CallKind::Unary, Idempotency::NoSideEffects);
    MethodDescriptor::new(path, kind, idempotency)
}

/// Answers with the request, or with nothing.
struct Loopback;

impl Service for Loopback {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &SERVICE
    }

    fn call(&self, method: usize, call: ServerCall) -> HandlerFuture {
        call.unary(move |request: Request<Payload>| async move {
            let sent = request.into_inner();
            Ok(Response::new(if method == 0 { sent } else { Payload::default() }))
        })
    }
}

/// Figures of the path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    /// Median of the round trips of small messages.
    pub(super) round_trip: Duration,
    /// Large messages, in MB/s.
    pub(super) megabytes: f64,
}

impl Measured {
    pub(super) fn describe(&self, address: IpAddr) -> String {
        let (micros, megabytes) = (self.round_trip.as_secs_f64() * 1e6, self.megabytes);
        format!(
            "{address} to itself over rdma: p50 {micros:.1} us, 256 KiB messages by READ \
             {megabytes:.0} MB/s"
        )
    }
}

/// Serves at an address of this host, and calls that server over RDMA.
///
/// # Errors
///
/// Returns the reason if no call gets through, or bytes are changed on the way.
pub(super) async fn measure(rdma: &Rdma, address: IpAddr) -> Result<Measured, String> {
    let bound = format!("rdma://{}", SocketAddr::new(address, 0));
    let server = Server::builder().rdma(rdma).add_service(Loopback).bind(bound).await;
    let listener = server.map_err(|error| error.to_string())?;
    let at = listener.local_address().to_string();
    let serving = tokio::spawn(listener.serve());
    let measured = tokio::time::timeout(LIMIT, measure_at(rdma, &at)).await;
    serving.abort();
    measured.unwrap_or_else(|_| Err(format!("no end within {} s", LIMIT.as_secs())))
}

async fn measure_at(rdma: &Rdma, at: &str) -> Result<Measured, String> {
    let builder = Channel::builder(at).map_err(|error| error.to_string())?;
    let channel = builder.rdma(rdma).connect().await.map_err(|error| error.to_string())?;
    let pattern = (0..=250).cycle().take(LARGE_LEN).collect::<Vec<u8>>();
    let echoed = call(&channel, &METHODS[0], pattern.clone()).await?;
    if echoed != pattern {
        return Err("a READ completed with other bytes than were sent".to_owned());
    }
    // Three digits, up to a minute.
    let times = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3);
    let mut times = times.map_err(|error| error.to_string())?;
    for _ in 0..ROUND_TRIPS {
        let start = Instant::now();
        call(&channel, &METHODS[0], vec![7; 32]).await?;
        let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        times.saturating_record(nanos);
    }
    let start = Instant::now();
    let mut running = FuturesUnordered::new();
    for _ in 0..TRANSFERS {
        if running.len() == TRANSFERS_AT_ONCE {
            running.next().await.transpose()?;
        }
        running.push(call(&channel, &METHODS[1], pattern.clone()));
    }
    while let Some(ended) = running.next().await {
        ended?;
    }
    let seconds = start.elapsed().as_secs_f64().max(1e-9);
    // 32 MiB are exact in a float.
    #[allow(clippy::cast_precision_loss)]
    let megabytes = (TRANSFERS * LARGE_LEN) as f64 / 1e6 / seconds;
    let round_trip = Duration::from_nanos(times.value_at_quantile(0.5));
    Ok(Measured { round_trip, megabytes })
}

async fn call(
    channel: &Channel,
    method: &'static MethodDescriptor,
    bytes: Vec<u8>,
) -> Result<Vec<u8>, String> {
    let reply =
        farcall::client::unary::<_, Payload>(channel, method, Request::new(Payload { bytes }));
    let reply = reply.await.map_err(|status: Status| status.to_string())?;
    Ok(reply.into_inner().bytes)
}
