//! `grpc://` and `grpcs://` to many servers: lists, names of DNS, and the word of a control plane.
//! The servers are tonic's.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use farcall::balance::{BalanceConfig, Connectivity, Policy};
use farcall::resolve::{Dns, DnsName, Scheme};
use farcall::retry::{MethodConfig, RetryPolicy};
use farcall::tls::{ClientTls, ClientTlsConfig, Pem};
use farcall::{Channel, ChannelBuilder, Code, Request, Response, Status, async_trait};
use farcall_suite::control_plane::{ControlPlane, Service};
use farcall_suite::interop_proto::Empty;
use farcall_suite::interop_proto::test_service_rpc::TestServiceStub;
use farcall_suite::interop_proto::test_service_server::{TestService, TestServiceServer};
use farcall_testkit::certificates::{Authority, Wanted};
use farcall_testkit::name_server::{Zone, address};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Identity, ServerTlsConfig};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tower::ServiceBuilder;

const LIMIT: Duration = Duration::from_secs(30);

/// The service whose health is watched.
const SERVICE: &str = "grpc.testing.TestService";

/// Waits for something, within a bound.
async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it happens in time")
}

/// Waits until something is so, within a bound.
async fn until(is_so: impl Fn() -> bool) {
    let turns = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    within(turns).await;
}

#[derive(Clone, Default)]
struct Counts {
    calls: Arc<AtomicUsize>,
    is_busy: Arc<AtomicBool>,
    authorities: Arc<Mutex<Vec<String>>>,
}

#[async_trait]
impl TestService for Counts {
    async fn empty_call(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        self.calls.fetch_add(1, Relaxed);
        match self.is_busy.load(Relaxed) {
            true => Err(Status::unavailable("busy")),
            false => Ok(Response::new(Empty {})),
        }
    }
}

/// One of tonic's servers.
struct Running {
    address: SocketAddr,
    counts: Counts,
    health: HealthReporter,
    shutdown: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Running {
    /// Serves at `host`, at this port if it is not 0.
    async fn start(host: [u8; 4], port: u16, identity: Option<&Identity>) -> Self {
        let listener = TcpListener::bind(SocketAddr::from((host, port))).await.expect("a port");
        let address = listener.local_addr().expect("it has one");
        let (counts, (health, health_service)) =
            (Counts::default(), tonic_health::server::health_reporter());
        health.set_service_status(SERVICE, ServingStatus::Serving).await;
        let authorities = Arc::clone(&counts.authorities);
        let layer = ServiceBuilder::new()
            .map_request(move |request: http::Request<tonic::body::Body>| {
                let authority = request.uri().authority().map(ToString::to_string);
                authorities.lock().extend(authority);
                request
            })
            .into_inner();
        let mut server = tonic::transport::Server::builder();
        if let Some(identity) = identity {
            let tls = ServerTlsConfig::new().identity(identity.clone());
            server = server.tls_config(tls).expect("it is one");
        }
        let router = server
            .layer(layer)
            .add_service(TestServiceServer::new(counts.clone()))
            .add_service(health_service);
        let (shutdown, is_shut_down) = oneshot::channel::<()>();
        let serving =
            router.serve_with_incoming_shutdown(TcpListenerStream::new(listener), async {
                drop(is_shut_down.await);
            });
        let serving = tokio::spawn(async { serving.await.expect("it serves") });
        Self { address, counts, health, shutdown, serving }
    }

    fn calls(&self) -> usize {
        self.counts.calls.load(Relaxed)
    }

    async fn set_health(&self, status: ServingStatus) {
        self.health.set_service_status(SERVICE, status).await;
    }

    /// Returns the authorities of the requests so far, each once.
    fn authorities(&self) -> Vec<String> {
        let mut authorities = self.counts.authorities.lock().clone();
        authorities.sort();
        authorities.dedup();
        authorities
    }
}

/// Three servers at addresses of loopback that end with these numbers, at one port.
async fn three(first: u8, identity: Option<&Identity>) -> [Running; 3] {
    let one = Running::start([127, 0, 0, first], 0, identity).await;
    let port = one.address.port();
    let two = Running::start([127, 0, 0, first + 1], port, identity).await;
    [one, two, Running::start([127, 0, 0, first + 2], port, identity).await]
}

fn builder(address: &str) -> ChannelBuilder {
    let balance = BalanceConfig::default()
        .with_policy(Policy::RoundRobin)
        .with_health_check(SERVICE.to_owned());
    let retries = RetryPolicy::default().with_retryable_codes([Code::Unavailable]);
    let method = MethodConfig::default().with_retry(retries).with_idempotent(true);
    let builder = Channel::builder(address).expect("an address");
    builder.balance(balance).method(SERVICE, method).scheme(farcall_xds::scheme())
}

async fn call(channel: &Channel) -> Result<(), Status> {
    let stub = TestServiceStub::new(channel.clone());
    within(stub.empty_call(Request::new(Empty {}))).await.map(drop)
}

fn states(channel: &Channel, is_so: impl Fn(Connectivity) -> bool) -> usize {
    channel.endpoints().iter().filter(|it| is_so(it.connectivity)).count()
}

/// Balances, heeds health, retries, and survives a server that shuts down.
async fn behaves_as_many(channel: Channel, servers: [Running; 3]) {
    call(&channel).await.expect("a server is there");
    let ready = |state| matches!(state, Connectivity::Ready { .. });
    until(|| states(&channel, ready) == 3).await;
    for _ in 0..9 {
        call(&channel).await.expect("all serve");
    }
    assert!(servers.iter().all(|server| server.calls() >= 3), "calls are balanced");
    // Of health.
    servers[0].set_health(ServingStatus::NotServing).await;
    until(|| states(&channel, |state| state == Connectivity::TransientFailure) == 1).await;
    let before = servers[0].calls();
    for _ in 0..9 {
        call(&channel).await.expect("two serve");
    }
    assert_eq!(servers[0].calls(), before, "it reports that it is not serving");
    servers[0].set_health(ServingStatus::Serving).await;
    until(|| states(&channel, ready) == 3).await;
    // Of retries.
    let before = servers[1].calls();
    servers[1].counts.is_busy.store(true, Relaxed);
    for _ in 0..9 {
        call(&channel).await.expect("another one answers");
    }
    assert!(servers[1].calls() > before, "it was tried");
    servers[1].counts.is_busy.store(false, Relaxed);
    // Of a shutdown.
    let [one, two, gone] = servers;
    gone.shutdown.send(()).expect("it runs");
    while !gone.serving.is_finished() {
        call(&channel).await.expect("no call fails");
    }
    for _ in 0..9 {
        call(&channel).await.expect("two are left");
    }
    drop((one, two));
}

#[tokio::test]
async fn a_list_of_grpc_servers_behaves_as_many() {
    let servers = three(20, None).await;
    let [one, two, three] = servers.each_ref().map(|server| server.address);
    let channel = builder(&format!("grpc://{one},{two},{three}")).connect_lazy();
    call(&channel).await.expect("they serve");
    until(|| servers.iter().all(|server| !server.authorities().is_empty())).await;
    for server in &servers {
        assert_eq!(server.authorities(), [server.address.to_string()]);
    }
    behaves_as_many(channel, servers).await;
}

/// A resolver of `shop.test`, which stands for the servers.
async fn dns(servers: &[Running; 3], scheme: Scheme) -> Dns {
    let zone = Zone::default();
    let record = |server: &Running| address("shop.test.", server.address.ip(), 60);
    zone.set(servers.iter().map(|it| record(it).expect("it is a name")).collect());
    let port = servers[0].address.port();
    let name = DnsName::new("shop.test.", Some(port), scheme);
    Dns::with_resolver(zone.serve().await.expect("a port of loopback"), name)
}

#[tokio::test]
async fn a_name_of_grpc_servers_behaves_as_many() {
    let servers = three(23, None).await;
    let port = servers[0].address.port();
    let resolver = dns(&servers, Scheme::Grpc).await;
    let address = format!("dns+grpc:///shop.test:{port}");
    let channel = builder(&address).connect_with_resolver(resolver);
    call(&channel).await.expect("they serve");
    until(|| servers.iter().all(|server| !server.authorities().is_empty())).await;
    for server in &servers {
        assert_eq!(server.authorities(), [format!("shop.test:{port}")]);
    }
    behaves_as_many(channel, servers).await;
}

#[tokio::test]
async fn a_name_of_grpcs_servers_is_verified_and_balanced() {
    let authority = Authority::new("names").expect("it is made");
    let leaf = authority.issue(Wanted::named("shop.test")).expect("it is issued");
    let identity = Identity::from_pem(leaf.cert, leaf.key);
    let servers = three(26, Some(&identity)).await;
    let port = servers[0].address.port();
    let resolver = dns(&servers, Scheme::Grpcs).await;
    let config = ClientTlsConfig::default().with_ca(Pem::bytes(authority.pem()));
    let tls = ClientTls::new(config).expect("it is one");
    let builder = builder(&format!("dns+grpcs:///shop.test:{port}")).tls(&tls);
    behaves_as_many(builder.connect_with_resolver(resolver), servers).await;
}

#[tokio::test]
async fn grpc_servers_of_a_control_plane_behave_as_many() {
    let servers = three(29, None).await;
    let service = Service::new("shop.test:7000", servers.iter().map(|server| server.address));
    let control_plane = ControlPlane::start(&[service]).await.expect("a port of loopback");
    let address = format!("xds+grpc://{}/shop.test:7000", control_plane.address());
    let channel = builder(&address).connect_lazy();
    call(&channel).await.expect("they serve");
    until(|| servers.iter().all(|server| !server.authorities().is_empty())).await;
    assert_eq!(servers[0].authorities(), ["shop.test:7000"]);
    behaves_as_many(channel, servers).await;
    control_plane.stop().await;
}

#[tokio::test]
async fn what_a_grpc_name_lacks_is_said() {
    let plain = builder("dns+grpcs:///shop.test:1");
    let servers = three(32, None).await;
    let channel = plain.connect_with_resolver(dns(&servers, Scheme::Grpcs).await);
    let status = call(&channel).await.unwrap_err();
    let reason = "grpcs:// needs TLS: set `tls` on the channel (feature `tls`)";
    assert!(status.message().contains(reason), "{}", status.message());
}
