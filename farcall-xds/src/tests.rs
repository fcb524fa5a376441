//! The resolver against a fake control plane, on a paused clock. `farcall-suite` has one with
//! Envoy's messages on tonic's server.

use std::sync::Arc;
use std::time::Duration;

use farcall::codegen::{HandlerFuture, ServerCall};
use farcall::resolve::{Refresh, Resolve, ResolveError, Scheme};
use farcall::testing::TestServer;
use farcall::{
    CallKind, Code, Idempotency, MethodDescriptor, Request, Response, Server, Service,
    ServiceDescriptor, Status, Streaming,
};
use futures::channel::mpsc;
use futures::{Stream, StreamExt};
use parking_lot::{Mutex, MutexGuard};
use prost::Message;
use prost::bytes::Bytes;
use tokio::time::{Instant, timeout};

use super::api::{self, DiscoveryRequest, DiscoveryResponse};
use super::resolver::{MISSING_AFTER, Xds};
use super::resource::Kind;

static SERVICE: ServiceDescriptor = ServiceDescriptor {
    name: "envoy.service.discovery.v3.AggregatedDiscoveryService",
    methods: &[MethodDescriptor::new(
        "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
        CallKind::Streaming,
        Idempotency::Unknown,
    )],
};

type Responses = mpsc::UnboundedSender<Result<DiscoveryResponse, Status>>;

/// The streams that were opened, each with the sender of its responses.
#[derive(Default)]
struct Streams {
    opened: Vec<Responses>,
    requests: Vec<DiscoveryRequest>,
    /// Refuses streams with this status.
    refusal: Option<Status>,
    /// Does not read requests.
    is_deaf: bool,
    /// Does not begin a response.
    is_silent: bool,
    /// Number of responses that the connection has taken.
    taken: usize,
}

#[derive(Clone, Default)]
struct Fake(Arc<Mutex<Streams>>);

impl Fake {
    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.0.lock()
    }

    fn open(
        &self,
        mut requests: Streaming<DiscoveryRequest>,
    ) -> Result<impl Stream<Item = Result<DiscoveryResponse, Status>> + use<>, Status> {
        let (sender, responses) = mpsc::unbounded();
        let fake = self.clone();
        let mut streams = self.streams();
        if let Some(status) = &streams.refusal {
            return Err(status.clone());
        }
        streams.opened.push(sender);
        let is_deaf = streams.is_deaf;
        tokio::spawn(async move {
            if is_deaf {
                // Held, but never read.
                let _requests = requests;
                return std::future::pending().await;
            }
            while let Some(Ok(request)) = requests.next().await {
                fake.streams().requests.push(request);
            }
        });
        let fake = self.clone();
        Ok(responses.inspect(move |_| fake.streams().taken += 1))
    }

    /// Sends resources on the last stream.
    fn tell(&self, kind: Kind, resources: Vec<Bytes>) {
        let response = DiscoveryResponse {
            version_info: "1".to_owned(),
            resources,
            type_url: kind.url().to_owned(),
            nonce: "1".to_owned(),
        };
        let streams = self.streams();
        let last = streams.opened.last().expect("a stream is open");
        last.unbounded_send(Ok(response)).expect("it is open");
    }

    /// Sends everything that leads to an endpoint at this port.
    fn tell_all(&self, port: u32) {
        let clusters = Some(api::RouteAction { cluster: "c".to_owned(), weighted_clusters: None });
        let prefix = Some(String::new());
        let condition = Some(api::RouteMatch { prefix, ..api::RouteMatch::default() });
        let route = api::Route { condition, action: clusters };
        let host = api::VirtualHost {
            name: "all".to_owned(),
            domains: vec![Bytes::from_static(b"*")],
            routes: vec![encoded(&route)],
        };
        let route_config = Some(api::RouteConfiguration {
            name: String::new(),
            virtual_hosts: vec![encoded(&host)],
        });
        let manager = api::HttpConnectionManager { rds: None, route_config };
        let type_url = "type.googleapis.com/envoy.extensions.filters.network.\
                        http_connection_manager.v3.HttpConnectionManager";
        let api_listener =
            Some(api::Any { type_url: type_url.to_owned(), value: encoded(&manager) });
        let api_listener = Some(api::ApiListener { api_listener });
        let listener = api::Listener { name: "shop".to_owned(), api_listener };
        self.tell(Kind::Listener, vec![any(Kind::Listener, &listener)]);
        let kind = Some(3);
        let cluster = api::Cluster { name: "c".to_owned(), kind, eds_cluster_config: None };
        self.tell(Kind::Cluster, vec![any(Kind::Cluster, &cluster)]);
        self.tell(Kind::Assignment, vec![any(Kind::Assignment, &assignment(port))]);
    }
}

fn encoded(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}

fn any(kind: Kind, message: &impl Message) -> Bytes {
    encoded(&api::Any { type_url: kind.url().to_owned(), value: encoded(message) })
}

fn assignment(port: u32) -> api::ClusterLoadAssignment {
    let (address, port) = ("10.0.0.1".to_owned(), Some(api::Port::Value(port)));
    let socket_address = Some(api::SocketAddress { address, port });
    let endpoint = Some(api::Endpoint { address: Some(api::Address { socket_address }) });
    let endpoint = api::LbEndpoint { endpoint, ..api::LbEndpoint::default() };
    let lb_endpoints = vec![encoded(&endpoint)];
    let locality = api::LocalityLbEndpoints { lb_endpoints, ..Default::default() };
    api::ClusterLoadAssignment { cluster_name: "c".to_owned(), endpoints: vec![encoded(&locality)] }
}

impl Service for Fake {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &SERVICE
    }

    fn call(&self, _: usize, call: ServerCall) -> HandlerFuture {
        let fake = self.clone();
        call.streaming(async move |request: Request<Streaming<DiscoveryRequest>>| {
            if fake.streams().is_silent {
                std::future::pending::<()>().await;
            }
            fake.open(request.into_inner()).map(Response::new)
        })
    }
}

struct Rig {
    fake: Fake,
    server: TestServer,
    resolver: Xds,
    refresh: Refresh,
}

impl Rig {
    fn new() -> Self {
        let fake = Fake::default();
        let server = TestServer::start(Server::builder().add_service(fake.clone()));
        let resolver = Xds::new(server.channel(), "shop", Scheme::Tcp);
        Self { fake, server, resolver, refresh: Refresh::default() }
    }

    async fn next(&mut self) -> Result<Vec<String>, ResolveError> {
        let next = self.resolver.next(&self.refresh);
        let found = timeout(Duration::from_secs(3600), next).await;
        let endpoints = found.expect("it does not wait for ever")?;
        Ok(endpoints.into_iter().map(|endpoint| endpoint.address.to_string()).collect())
    }

    /// Returns the next list, while something happens at the control plane.
    async fn next_while(
        &mut self,
        happens: impl AsyncFnOnce(Fake),
    ) -> Result<Vec<String>, ResolveError> {
        let fake = self.fake.clone();
        tokio::join!(self.next(), happens(fake)).0
    }
}

/// Waits until this many streams have been opened.
async fn opened(fake: &Fake, count: usize) {
    let turns = async {
        while fake.streams().opened.len() < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(3600), turns).await.expect("they are opened");
}

#[tokio::test(start_paused = true)]
async fn a_missing_resource_is_reported_once() {
    let mut rig = Rig::new();
    let began = Instant::now();
    let error = rig.next().await.unwrap_err().to_string();
    let expected = "the xDS service shop: the Listener `shop` did not arrive within 15 s and is \
                    taken as missing";
    assert_eq!(error, expected);
    assert!(began.elapsed() >= MISSING_AFTER);
    // It arrives after all.
    let found = rig.next_while(async |fake| fake.tell_all(7000)).await;
    assert_eq!(found.unwrap(), ["tcp://10.0.0.1:7000"]);
}

#[tokio::test(start_paused = true)]
async fn an_ended_stream_is_reopened_after_a_pause() {
    let mut rig = Rig::new();
    let found = rig
        .next_while(async |fake| {
            opened(&fake, 1).await;
            fake.tell_all(7000);
        })
        .await;
    assert_eq!(found.unwrap(), ["tcp://10.0.0.1:7000"]);
    // Ends each stream with its first response, twenty times.
    let began = Instant::now();
    let found = rig
        .next_while(async |fake| {
            for count in 1..=20 {
                opened(&fake, count).await;
                fake.tell_all(7000);
                fake.streams().opened.last().expect("one is open").close_channel();
            }
            opened(&fake, 21).await;
            fake.tell_all(7001);
        })
        .await;
    assert_eq!(found.unwrap(), ["tcp://10.0.0.1:7001"]);
    assert!(began.elapsed() >= Duration::from_secs(19), "{:?}", began.elapsed());
    let requests = &rig.fake.streams().requests;
    assert_eq!(requests.iter().filter(|request| request.node.is_some()).count(), 21);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_an_error_with_its_message() {
    let mut rig = Rig::new();
    rig.fake.streams().refusal = Some(Status::new(Code::PermissionDenied, "who are you?"));
    let error = rig.next().await.unwrap_err().to_string();
    let expected = "the xDS service shop: the control plane: PermissionDenied: who are you?";
    assert_eq!(error, expected);
    rig.fake.streams().refusal = None;
    let found = rig
        .next_while(async |fake| {
            opened(&fake, 1).await;
            fake.tell_all(7000);
        })
        .await;
    assert_eq!(found.unwrap(), ["tcp://10.0.0.1:7000"]);
    // After an error, the same list counts as news.
    rig.fake.streams().refusal = Some(Status::new(Code::Unavailable, "gone"));
    rig.server.link().cut();
    let error = rig.next().await.unwrap_err().to_string();
    assert!(error.starts_with("the xDS service shop: the control plane: "), "{error}");
    rig.fake.streams().refusal = None;
    let mut found = rig.next().await;
    while found.is_err() {
        // The channel to the control plane backs off.
        tokio::time::sleep(Duration::from_secs(1)).await;
        found = rig.next().await;
    }
    assert_eq!(found.unwrap(), ["tcp://10.0.0.1:7000"]);
}

#[tokio::test(start_paused = true)]
async fn a_silent_control_plane_is_an_error() {
    let mut rig = Rig::new();
    rig.fake.streams().is_silent = true;
    let error = rig.next().await.unwrap_err().to_string();
    let expected = "the xDS service shop: the control plane: Unavailable: no response for the \
                    Listener `shop` within 15 s";
    assert_eq!(error, expected);
}

#[tokio::test(start_paused = true)]
async fn a_control_plane_that_reads_nothing_is_an_error() {
    let mut rig = Rig::new();
    rig.fake.streams().is_deaf = true;
    let error = rig
        .next_while(async |fake| {
            opened(&fake, 1).await;
            // Each one is answered with a thousand bytes of errors.
            let garbage = vec![Bytes::from_static(&[0xff]); 100];
            for _ in 0..20_000 {
                fake.tell(Kind::Listener, garbage.clone());
            }
        })
        .await
        .unwrap_err()
        .to_string();
    let expected = "the xDS service shop: the control plane: Unavailable: it read no request for";
    assert!(error.starts_with(expected), "{error}");
    // The rest stays unread.
    assert!(rig.fake.streams().taken < 10_000, "{}", rig.fake.streams().taken);
}
