//! Channels to the servers that a control plane tells by xDS: it is one of Envoy's messages on
//! tonic's server, and the servers are farcall's.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use farcall::balance::Connectivity;
use farcall::{Channel, Code, Listener, Request, Server};
use farcall_suite::Probe;
use farcall_suite::control_plane::{ControlPlane, Health, Service};
use farcall_suite::proto::EchoRequest;
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub};
use farcall_testkit::process::bounded;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const LIMIT: Duration = Duration::from_secs(60);

/// The name of the service.
const NAME: &str = "inventory.shop:7000";

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

/// A server of the service.
struct Running {
    address: SocketAddr,
    shutdown: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Running {
    async fn start() -> Self {
        let builder = Server::builder().add_service(ProbeService::new(Probe::new().0));
        let listener: Listener = builder.bind("tcp://127.0.0.1:0").await.expect("a port");
        let address = listener.local_address().to_string();
        let address = address.trim_start_matches("tcp://").parse().expect("host:port");
        let (shutdown, ended) = oneshot::channel::<()>();
        let serving = listener.serve().with_graceful_shutdown(async { drop(ended.await) });
        let serving = tokio::spawn(async move { serving.await.expect("it serves") });
        Self { address, shutdown, serving }
    }

    async fn shut_down(self) {
        drop(self.shutdown);
        within(self.serving).await.expect("it has ended in order");
    }
}

async fn three() -> [Running; 3] {
    [Running::start().await, Running::start().await, Running::start().await]
}

fn service<'a>(servers: impl IntoIterator<Item = &'a Running>) -> Service {
    Service::new(NAME, servers.into_iter().map(|server| server.address))
}

fn channel(control_plane: SocketAddr) -> Channel {
    let address = format!("xds+tcp://{control_plane}/{NAME}");
    let builder = Channel::builder(address.as_str()).expect("an address");
    let builder = builder.scheme(farcall_xds::scheme());
    builder.wait_for_ready(true).connect_lazy()
}

async fn echo(channel: &Channel) -> Result<(), farcall::Status> {
    let request = EchoRequest { payload: "hi".into(), ..EchoRequest::default() };
    let stub = ProbeStub::new(channel.clone());
    within(stub.echo(Request::new(request))).await.map(drop)
}

/// The servers of a channel, in order.
fn known(channel: &Channel) -> Vec<String> {
    let mut known: Vec<_> =
        channel.endpoints().iter().map(|status| status.endpoint.address.to_string()).collect();
    known.sort();
    known
}

/// Waits until the channel has these servers, each connected.
async fn has<'a>(channel: &Channel, servers: impl IntoIterator<Item = &'a Running>) {
    let mut wanted: Vec<_> =
        servers.into_iter().map(|server| format!("tcp://{}", server.address)).collect();
    wanted.sort();
    let is_ready = |channel: &Channel| {
        channel
            .endpoints()
            .iter()
            .all(|endpoint| matches!(endpoint.connectivity, Connectivity::Ready { .. }))
    };
    until(|| known(channel) == wanted && is_ready(channel)).await;
}

/// Calls one after the other, until it is told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
    calling: JoinHandle<Vec<farcall::Status>>,
}

impl Load {
    fn start(channel: &Channel) -> Self {
        let (stop, calls) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (channel, stopped, counted) = (channel.clone(), Arc::clone(&stop), Arc::clone(&calls));
        let calling = tokio::spawn(async move {
            let mut failed = Vec::new();
            while !stopped.load(Relaxed) {
                failed.extend(echo(&channel).await.err());
                counted.fetch_add(1, Relaxed);
            }
            failed
        });
        Self { stop, calls, calling }
    }

    /// Waits for more calls.
    async fn go_on(&self) {
        let before = self.calls.load(Relaxed);
        until(|| self.calls.load(Relaxed) > before + 50).await;
    }

    async fn stop(self) -> Vec<farcall::Status> {
        self.stop.store(true, Relaxed);
        within(self.calling).await.expect("it does not panic")
    }
}

#[tokio::test]
async fn servers_come_and_go_and_no_call_fails() {
    let [one, two, three] = three().await;
    let control_plane = ControlPlane::start(&[service([&one, &two])]).await.unwrap();
    let channel = channel(control_plane.address());
    echo(&channel).await.unwrap();
    has(&channel, [&one, &two]).await;
    let load = Load::start(&channel);
    load.go_on().await;
    // Another one comes, and one is about to go, goes, and is forgotten.
    let mut draining = service([&one, &two, &three]);
    control_plane.set(std::slice::from_ref(&draining));
    has(&channel, [&one, &two, &three]).await;
    draining.endpoints[0].health = Health::Draining;
    control_plane.set(&[draining]);
    has(&channel, [&two, &three]).await;
    one.shut_down().await;
    load.go_on().await;
    control_plane.set(&[service([&two, &three])]);
    // One that does not serve is no different from one that goes.
    let mut unhealthy = service([&two, &three]);
    unhealthy.endpoints[1].health = Health::Unhealthy;
    control_plane.set(&[unhealthy]);
    has(&channel, [&two]).await;
    load.go_on().await;
    let failed = load.stop().await;
    assert!(failed.is_empty(), "{failed:?}");
    let seen = control_plane.seen();
    assert!(seen.faults.is_empty() && seen.rejected.is_empty(), "{seen:?}");
    assert_eq!(seen.nodes.len(), 1);
    assert_eq!(seen.nodes[0].id, "farcall");
    // Of each kind the first response, and four lists more.
    assert!(seen.acknowledged >= 7, "{seen:?}");
}

#[tokio::test]
async fn the_last_list_is_kept_while_the_control_plane_is_away() {
    let [one, two, three] = three().await;
    let control_plane = ControlPlane::start(&[service([&one, &two])]).await.unwrap();
    let address = control_plane.address();
    let channel = channel(address);
    echo(&channel).await.unwrap();
    has(&channel, [&one, &two]).await;
    let load = Load::start(&channel);
    control_plane.stop().await;
    load.go_on().await;
    // It comes back with another list, and without the service's listener after that.
    let control_plane = ControlPlane::start_at(address, &[service([&three])]).await.unwrap();
    has(&channel, [&three]).await;
    let before = control_plane.seen().acknowledged;
    control_plane.set(&[]);
    // Of the listener, the routes, the cluster and the endpoints.
    until(|| control_plane.seen().acknowledged >= before + 4).await;
    assert_eq!(known(&channel), [format!("tcp://{}", three.address)]);
    load.go_on().await;
    let failed = load.stop().await;
    assert!(failed.is_empty(), "{failed:?}");
    assert!(control_plane.seen().faults.is_empty(), "{:?}", control_plane.seen());
}

#[tokio::test]
async fn an_unreadable_resource_is_rejected_and_changes_nothing() {
    let [one, two, _] = three().await;
    let control_plane = ControlPlane::start(&[service([&one])]).await.unwrap();
    let channel = channel(control_plane.address());
    echo(&channel).await.unwrap();
    control_plane.set_garbage(&service([&one, &two]));
    until(|| !control_plane.seen().rejected.is_empty()).await;
    let seen = control_plane.seen();
    let reason = "cannot decode a ClusterLoadAssignment: ";
    assert!(seen.rejected[0].starts_with(reason), "{:?}", seen.rejected);
    assert_eq!(known(&channel), [format!("tcp://{}", one.address)]);
    echo(&channel).await.unwrap();
    control_plane.set(&[service([&two])]);
    has(&channel, [&two]).await;
    assert!(control_plane.seen().faults.is_empty(), "{:?}", control_plane.seen());
}

#[tokio::test]
async fn a_control_plane_that_is_not_there_is_named() {
    // Nothing listens at a port that was just given back.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let target = format!("xds+tcp://{address}/{NAME}");
    let builder = Channel::builder(target.as_str()).unwrap();
    let channel = builder.scheme(farcall_xds::scheme()).connect_lazy();
    let status = echo(&channel).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let pieces = [target, format!("grpc://{address}")];
    assert!(pieces.iter().all(|it| status.message().contains(it)), "{}", status.message());
}

/// The environment of a program cannot be changed while it runs, so that this test is run again by
/// another one, as a process with the bootstrap of a pod.
const IN_A_POD: &str = "in_a_pod_a_service_is_found_by_its_name";

/// Variable that tells the test in the pod the expected server.
const WANTED: &str = "FARCALL_TEST_XDS_SERVER";

#[tokio::test]
#[ignore = "another test runs it in a process of its own"]
async fn in_a_pod_a_service_is_found_by_its_name() {
    let wanted = std::env::var(WANTED).expect("the other test says it");
    let channel = Channel::builder(format!("xds+tcp:///{NAME}").as_str()).unwrap();
    let channel = channel.scheme(farcall_xds::scheme());
    let channel = channel.wait_for_ready(true).connect_lazy();
    echo(&channel).await.unwrap();
    assert_eq!(known(&channel), [wanted]);
}

/// Runs the test in the pod with this bootstrap.
async fn in_a_pod(variable: &str, value: &str, server: &Running) {
    let program = std::env::current_exe().expect("Linux names the program that runs");
    let mut command = Command::new(program);
    command.args(["--ignored", "--exact", IN_A_POD]).env(variable, value).stdin(Stdio::null());
    command.env(WANTED, format!("tcp://{}", server.address));
    let run = move || bounded::output(&mut command, LIMIT);
    let text = tokio::task::spawn_blocking(run).await.expect("it does not panic");
    let text = text.expect("the test in the pod passes");
    assert!(text.contains("1 passed"), "{text}");
}

/// A folder of the test's own. Dropped, it is deleted.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("farcall-xds-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_prepared_for_grpc_needs_nothing_else() {
    let folder = Folder::new("pod");
    let (socket, file) = (folder.0.join("XDS"), folder.0.join("bootstrap.json"));
    let server = Running::start().await;
    let services = [service([&server])];
    let agent = ControlPlane::start_at_socket(&socket, &services).unwrap();
    // As Istio's agent writes it beside a program.
    let bootstrap = format!(
        r#"{{
            "xds_servers": [{{
                "server_uri": "unix://{}",
                "channel_creds": [{{ "type": "insecure" }}],
                "server_features": ["xds_v3"]
            }}],
            "node": {{
                "id": "sidecar~10.0.0.7~shop.shop~shop.svc.cluster.local",
                "metadata": {{ "GENERATOR": "grpc" }}
            }}
        }}"#,
        socket.display()
    );
    std::fs::write(&file, &bootstrap).unwrap();
    in_a_pod("GRPC_XDS_BOOTSTRAP", &file.display().to_string(), &server).await;
    in_a_pod("GRPC_XDS_BOOTSTRAP_CONFIG", &bootstrap, &server).await;
    let seen = agent.seen();
    assert!(seen.faults.is_empty(), "{seen:?}");
    assert_eq!(seen.nodes.len(), 2);
    let node = &seen.nodes[0];
    assert_eq!(node.id, "sidecar~10.0.0.7~shop.shop~shop.svc.cluster.local");
    assert_eq!(node.user_agent_name, "farcall");
    let metadata = node.metadata.as_ref().expect("it is told");
    assert!(metadata.fields.contains_key("GENERATOR"), "{metadata:?}");
}
