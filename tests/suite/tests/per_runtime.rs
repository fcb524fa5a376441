//! A channel with a connection for each runtime that makes calls.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use farcall::client::unary;
use farcall::codegen::{HandlerFuture, ServerCall};
use farcall::sim::SimNetwork;
use farcall::{
    CallKind, Channel, ChannelBuilder, Idempotency, MethodDescriptor, Rdma, RdmaConfig, Request,
    Response, Server, Service, ServiceDescriptor, Status, per_core,
};
use tokio::runtime::{Builder, Runtime};

/// Far longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(20);

static SERVICE: ServiceDescriptor =
    ServiceDescriptor { name: "t.PerRuntime", methods: &[method("/t.PerRuntime/Ask")] };

const fn method(path: &'static str) -> MethodDescriptor {
    MethodDescriptor::new(path, CallKind::Unary, Idempotency::Unknown)
}

/// Answers each call with 7.
struct Asked;

impl Service for Asked {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &SERVICE
    }

    fn call(&self, _: usize, call: ServerCall) -> HandlerFuture {
        call.unary(async |_: Request<()>| Ok(Response::new(7_u64)))
    }
}

async fn ask(channel: &Channel) -> Result<u64, Status> {
    let reply = unary::<(), u64>(channel, &SERVICE.methods[0], Request::new(())).await?;
    Ok(reply.into_inner())
}

/// Servers on a runtime of their own, and their addresses.
struct Rig {
    servers: Vec<Server>,
    address: String,
    runtime: Runtime,
}

impl Rig {
    /// Starts servers at these addresses.
    fn new(addresses: &[&str]) -> Self {
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().expect("threads");
        let (mut servers, mut bound) = (Vec::new(), Vec::new());
        for address in addresses {
            let builder = Server::builder().add_service(Asked);
            let listener = runtime.block_on(builder.bind(*address)).expect("it is free");
            bound.push(listener.local_address().to_string());
            servers.push(listener.server().clone());
            runtime.spawn(listener.serve());
        }
        Self { servers, address: bound.join(","), runtime }
    }

    fn builder(&self) -> ChannelBuilder {
        Channel::builder(self.address.as_str()).expect("it is an address").per_runtime(true)
    }

    fn connection_count(&self) -> usize {
        self.servers.iter().map(|server| server.connections().len()).sum()
    }

    /// Waits until the servers have noticed that no client is connected.
    fn wait_for_no_connection(&self) {
        let began = Instant::now();
        while self.connection_count() > 0 {
            assert!(began.elapsed() < LIMIT, "{} are left", self.connection_count());
            thread::yield_now();
        }
    }
}

/// A rig and a channel for each kind of address with one server. Tests have different names.
fn for_each(name: &str, test: fn(&Rig, Channel)) {
    let name = |scheme: &str| format!("{scheme}per-runtime-{name}-{}", std::process::id());
    for address in ["tcp://127.0.0.1:0", &name("unix://@"), &name("inproc://"), "grpc"] {
        println!("{address}");
        let is_grpc = address == "grpc";
        let mut rig = Rig::new(&[if is_grpc { "tcp://127.0.0.1:0" } else { address }]);
        if is_grpc {
            rig.address = rig.address.replace("tcp://", "grpc://");
        }
        let channel = rig.builder().connect_lazy();
        test(&rig, channel);
    }
}

#[test]
fn each_runtime_has_a_connection_of_its_own() {
    for_each("own", |rig, channel| {
        let (before, after) = (Barrier::new(3), Barrier::new(3));
        let counts = per_core(3, |_| async {
            assert_eq!(ask(&channel).await.ok(), Some(7));
            before.wait();
            let count = rig.connection_count();
            assert_eq!(channel.endpoints().len(), 1);
            after.wait();
            Ok::<_, io::Error>(count)
        });
        assert_eq!(counts.unwrap(), [3; 3]);
        rig.wait_for_no_connection();
    });
}

#[test]
fn each_core_of_a_client_has_a_lane_of_its_own() {
    let network = SimNetwork::new(0);
    network.add_device("sim0", &[Ipv4Addr::LOCALHOST.into()]);
    let [server_rdma, client_rdma] =
        [(); 2].map(|()| Rdma::simulated(&network, RdmaConfig::default()));
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let builder = Server::builder().add_service(Asked).rdma(&server_rdma);
    let listener = runtime.block_on(builder.bind("auto://127.0.0.1:0")).unwrap();
    let address = listener.local_address().to_string();
    runtime.spawn(listener.serve());
    let builder = Channel::builder(address.as_str()).unwrap().per_runtime(true).rdma(&client_rdma);
    let channel = builder.connect_lazy();
    let (before, after) = (Barrier::new(3), Barrier::new(3));
    let counts =
        |rdma: &Rdma| -> Vec<_> { rdma.lanes().iter().map(|lane| lane.connection_count).collect() };
    let counted = per_core(3, |_| async {
        assert_eq!(ask(&channel).await.ok(), Some(7));
        before.wait();
        let counts = [&client_rdma, &server_rdma].map(counts);
        after.wait();
        Ok::<_, io::Error>(counts)
    });
    let [of_client, of_server] = &counted.unwrap()[0];
    assert_eq!((&of_client[..], &of_server[..]), (&[1, 1, 1][..], &[3][..]));
}

/// On one connection, the task that reads it would be on the runtime that waits.
#[test]
fn runtime_that_blocks_stops_no_calls_of_another() {
    for_each("blocked", |_, channel| {
        let (connected, called) = (Barrier::new(2), Barrier::new(2));
        let ended = per_core(2, |core| {
            let (channel, connected, called) = (&channel, &connected, &called);
            async move {
                if core == 0 {
                    assert_eq!(ask(channel).await.ok(), Some(7));
                    connected.wait();
                } else {
                    connected.wait();
                    assert_eq!(ask(channel).await.ok(), Some(7));
                }
                called.wait();
                Ok::<_, io::Error>(())
            }
        });
        ended.unwrap();
    });
}

#[test]
fn runtimes_of_a_list_have_connections_of_their_own() {
    let rig = Rig::new(&["tcp://127.0.0.1:0", "tcp://127.0.0.1:0"]);
    let channel = rig.builder().connect_lazy();
    let (connected, called) = (Barrier::new(2), Barrier::new(2));
    let ended = per_core(2, |core| {
        let (rig, channel, connected, called) = (&rig, &channel, &connected, &called);
        async move {
            if core == 1 {
                // The first one keeps both servers connected, and is blocked by now.
                connected.wait();
            }
            let is_each_called = |count| rig.connection_count() == count;
            while !is_each_called(2 * (core + 1)) {
                assert_eq!(ask(channel).await.ok(), Some(7));
            }
            if core == 0 {
                connected.wait();
            }
            called.wait();
            Ok::<_, io::Error>(())
        }
    });
    ended.unwrap();
    rig.wait_for_no_connection();
}

#[test]
fn tasks_of_one_runtime_share_a_connection() {
    let rig = Rig::new(&["tcp://127.0.0.1:0"]);
    let mut runtime = Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    let channel = runtime.block_on(rig.builder().connect()).unwrap();
    let calling = [(); 20].map(|()| {
        let channel = channel.clone();
        runtime.spawn(async move { ask(&channel).await })
    });
    for call in calling {
        assert_eq!(runtime.block_on(call).unwrap().ok(), Some(7));
    }
    assert_eq!(rig.connection_count(), 1);
}

#[test]
fn thread_without_a_runtime_uses_the_first_connection() {
    let rig = Rig::new(&["tcp://127.0.0.1:0"]);
    let channel = rig.runtime.block_on(rig.builder().connect()).unwrap();
    assert_eq!(futures::executor::block_on(ask(&channel)).ok(), Some(7));
    assert_eq!(rig.connection_count(), 1);
    assert!(channel.endpoints()[0].info.is_some());
}

/// More runtimes than can have connections at a time, one after another: were one of them
/// remembered after its end, the last two would share a connection.
#[test]
fn runtimes_that_have_ended_are_forgotten() {
    let rig = Rig::new(&["tcp://127.0.0.1:0"]);
    let channel = rig.builder().connect_lazy();
    for number in 0..1100 {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        assert_eq!(runtime.block_on(ask(&channel)).ok(), Some(7), "runtime {number}");
    }
    rig.wait_for_no_connection();
    let runtimes = [(); 2].map(|()| Builder::new_current_thread().enable_all().build().unwrap());
    for runtime in &runtimes {
        assert_eq!(runtime.block_on(ask(&channel)).ok(), Some(7));
    }
    assert_eq!(rig.connection_count(), 2);
}

/// The tasks that watch over runtimes hold nothing of a channel.
#[test]
fn connections_of_all_runtimes_close_with_the_channel() {
    let rig = Rig::new(&["tcp://127.0.0.1:0"]);
    let channel = rig.builder().connect_lazy();
    let mut runtimes = [(); 2].map(|()| Builder::new_multi_thread());
    let runtimes = runtimes.each_mut().map(|it| it.worker_threads(1).enable_all().build().unwrap());
    for runtime in &runtimes {
        assert_eq!(runtime.block_on(ask(&channel)).ok(), Some(7));
    }
    assert_eq!(rig.connection_count(), 2);
    drop(channel);
    rig.wait_for_no_connection();
}
