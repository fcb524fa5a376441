//! Channelz of a server: its sockets, counters and channels, as tools of gRPC ask for them.

// Clippy's exemption for tests does not reach their helpers.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use farcall::server::Admin;
use farcall::server::admin_api::{SERVICE, Snapshot, SnapshotRequest};
use farcall::server::channelz_api::CHANNELZ;
use farcall::server::channelz_api::messages::{
    AddressKind, GetChannelRequest, GetChannelResponse, GetServerRequest, GetServerResponse,
    GetServerSocketsRequest, GetServerSocketsResponse, GetServersRequest, GetServersResponse,
    GetSocketRequest, GetSocketResponse, GetSubchannelRequest, GetSubchannelResponse,
    GetTopChannelsRequest, GetTopChannelsResponse, ServerData, Socket,
};
use farcall::{Channel, Code, Request, Server, ServerBuilder, Status};
use farcall_suite::Probe;
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub, SERVICE as PROBE};
use farcall_suite::proto::{EchoRequest, FailRequest, ProduceRequest};
use farcall_suite::raw_peer::{RawPeer, frame, hello_bytes, record};
use prost::Message;
use rpc_core::wire::FrameKind;

/// No wait of this test is longer.
const LIMIT: Duration = Duration::from_secs(30);

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it happens in time")
}

/// Serves, and returns the address.
async fn serve(admin: Admin) -> String {
    let builder: ServerBuilder = Server::builder().admin(admin);
    let builder = builder.add_service(ProbeService::new(Probe::new().0));
    let listener = builder.bind("auto://127.0.0.1:0").await.unwrap();
    let address = listener.local_address().to_string();
    tokio::spawn(listener.serve());
    address
}

async fn connect(scheme: &str, address: &str) -> Channel {
    let (_, authority) = address.split_once("://").unwrap();
    within(Channel::connect(format!("{scheme}://{authority}"))).await.unwrap()
}

/// Calls a method of channelz.
async fn ask<M: Message + Default + 'static, R: Message + Default + 'static>(
    channel: &Channel,
    method: &str,
    request: M,
) -> Result<R, Status> {
    let found = CHANNELZ.methods.iter().find(|it| it.path.ends_with(&format!("/{method}")));
    let call = farcall::client::unary(channel, found.unwrap(), Request::new(request));
    within(call).await.map(farcall::Response::into_inner)
}

/// Returns the id and the counters of the server.
async fn server(channel: &Channel) -> (i64, ServerData) {
    let all: GetServersResponse =
        ask(channel, "GetServers", GetServersRequest::default()).await.unwrap();
    let [server] = &all.server[..] else { panic!("{all:?}") };
    assert!(all.end);
    (server.r#ref.clone().unwrap().server_id, server.data.clone().unwrap())
}

/// Returns the ids of all sockets, which are asked for one by one.
async fn sockets(channel: &Channel, server_id: i64) -> Vec<i64> {
    let (mut ids, mut start_socket_id) = (Vec::new(), 0);
    loop {
        let request = GetServerSocketsRequest { server_id, start_socket_id, max_results: 1 };
        let page: GetServerSocketsResponse =
            ask(channel, "GetServerSockets", request).await.unwrap();
        ids.extend(page.socket_ref.iter().map(|it| it.socket_id));
        start_socket_id = ids.last().map_or(0, |id| id + 1);
        if page.end {
            return ids;
        }
        assert_eq!(page.socket_ref.len(), 1);
    }
}

async fn socket(channel: &Channel, socket_id: i64) -> Result<Socket, Status> {
    let request = GetSocketRequest { socket_id, summary: false };
    let answer: Result<GetSocketResponse, _> = ask(channel, "GetSocket", request).await;
    answer.map(|it| it.socket.unwrap())
}

fn options(socket: &Socket) -> BTreeMap<&str, &str> {
    let options = &socket.data.as_ref().unwrap().option;
    options.iter().map(|it| (&*it.name, &*it.value)).collect()
}

#[tokio::test]
async fn servers_sockets_and_counters_are_right() {
    let address = serve(Admin::loopback()).await;
    for (scheme, transport) in [("auto", "tcp"), ("grpc", "grpc")] {
        let channel = connect(scheme, &address).await;
        let before = server(&channel).await.1;
        let stub = ProbeStub::new(channel.clone());
        for _ in 0..3 {
            within(stub.echo(EchoRequest::default())).await.unwrap();
        }
        let fail = FailRequest { code: 5, ..FailRequest::default() };
        within(stub.fail(fail)).await.unwrap_err();
        let (server_id, after) = server(&channel).await;
        // The call that asked before has ended well since, and the one that asks now runs.
        assert_eq!(after.calls_succeeded - before.calls_succeeded, 4, "{scheme}");
        assert_eq!(after.calls_failed - before.calls_failed, 1, "{scheme}");
        assert_eq!(after.calls_started - after.calls_succeeded - after.calls_failed, 1);
        let one: GetServerResponse =
            ask(&channel, "GetServer", GetServerRequest { server_id }).await.unwrap();
        assert_eq!(one.server.unwrap().data.unwrap().calls_failed, after.calls_failed);

        let other = connect(scheme, &address).await;
        let ids = sockets(&channel, server_id).await;
        assert!(ids.is_sorted() && ids.len() >= 2, "{ids:?}");
        let (mut found, mut started) = (Vec::new(), 0);
        for id in ids {
            let Ok(socket) = socket(&channel, id).await else { continue };
            let is_own = options(&socket)["transport"].starts_with(transport);
            let data = socket.data.as_ref().unwrap();
            started = started.max(if is_own { data.streams_started } else { 0 });
            let remote = socket.remote.clone().and_then(|remote| remote.address);
            let Some(AddressKind::Tcp(tcp)) = remote else { panic!("{socket:?}") };
            assert_eq!((tcp.ip_address, socket.security.is_some()), (vec![127, 0, 0, 1], false));
            found.push((is_own, tcp.port));
        }
        // This call, the two of the counters, the one of the server, pages, and the five others.
        assert!(started >= 10, "{scheme}: {started}");
        assert_eq!(found.iter().filter(|(is_own, _)| *is_own).count(), 2, "{scheme}: {found:?}");
        drop(other);
    }
}

#[tokio::test]
async fn sockets_tell_the_path_and_its_reason() {
    let channel = connect("auto", &serve(Admin::loopback()).await).await;
    let (server_id, _) = server(&channel).await;
    let [id] = sockets(&channel, server_id).await[..] else { panic!("one socket") };
    let whole = socket(&channel, id).await.unwrap();
    let options = options(&whole);
    assert_eq!(options["transport"], "tcp");
    assert!(options["fallback"].contains("RDMA"), "{options:?}");
    let figure = |name: &str| options[name].parse::<u64>().unwrap();
    assert!(figure("sent_bytes") > 0 && figure("received_bytes") > 0, "{options:?}");
    assert_eq!(figure("queued_bytes"), 0);
    let request = GetSocketRequest { socket_id: id, summary: true };
    let brief: GetSocketResponse = ask(&channel, "GetSocket", request).await.unwrap();
    assert_eq!(brief.socket.unwrap().data.unwrap().option, []);
}

#[tokio::test]
async fn channels_lead_to_their_sockets() {
    let far = serve(Admin::loopback()).await;
    let called = connect("tcp", &far).await;
    within(ProbeStub::new(called.clone()).echo(EchoRequest::default())).await.unwrap();
    let lazy = Channel::builder("tcp://127.0.0.1:1").unwrap().connect_lazy();
    let admin = Admin::loopback().channel("inventory", &called).channel("idle", &lazy);
    let channel = connect("tcp", &serve(admin).await).await;
    let ask_page = |start_channel_id, max_results| {
        let request = GetTopChannelsRequest { start_channel_id, max_results };
        ask::<_, GetTopChannelsResponse>(&channel, "GetTopChannels", request)
    };
    let page = ask_page(0, 1).await.unwrap();
    let [inventory] = &page.channel[..] else { panic!("{page:?}") };
    assert!(!page.end);
    let channel_id = inventory.r#ref.clone().unwrap().channel_id;
    let rest = ask_page(channel_id + 1, 0).await.unwrap();
    assert_eq!((rest.channel[0].r#ref.clone().unwrap().name, rest.end), ("idle".into(), true));
    let data = inventory.data.clone().unwrap();
    assert_eq!((&*data.target, data.state.unwrap().state), ("inventory", 3));
    let same: GetChannelResponse =
        ask(&channel, "GetChannel", GetChannelRequest { channel_id }).await.unwrap();
    assert_eq!(same.channel.as_ref(), Some(inventory));
    let subchannel_id = inventory.subchannel_ref[0].subchannel_id;
    let request = GetSubchannelRequest { subchannel_id };
    let answer: GetSubchannelResponse = ask(&channel, "GetSubchannel", request).await.unwrap();
    let subchannel = answer.subchannel.unwrap();
    assert_eq!(subchannel.data.unwrap().state.unwrap().state, 3);
    let socket = socket(&channel, subchannel.socket_ref[0].socket_id).await.unwrap();
    let Some(AddressKind::Tcp(remote)) = socket.remote.unwrap().address else { panic!("TCP") };
    assert!(far.ends_with(&format!(":{}", remote.port)), "{far}: {remote:?}");
}

#[tokio::test]
async fn unknown_ids_are_not_found() {
    let channel = connect("tcp", &serve(Admin::loopback()).await).await;
    for id in [i64::MIN, -1, 0, 7, i64::MAX] {
        let code =
            |answer: Result<(), Status>| assert_eq!(answer.unwrap_err().code(), Code::NotFound);
        code(socket(&channel, id).await.map(drop));
        let request = GetServerRequest { server_id: id };
        code(ask::<_, GetServerResponse>(&channel, "GetServer", request).await.map(drop));
        let request = GetChannelRequest { channel_id: id };
        code(ask::<_, GetChannelResponse>(&channel, "GetChannel", request).await.map(drop));
        let request = GetSubchannelRequest { subchannel_id: id };
        code(ask::<_, GetSubchannelResponse>(&channel, "GetSubchannel", request).await.map(drop));
        let request = GetServerSocketsRequest { server_id: id, ..Default::default() };
        let sockets = ask::<_, GetServerSocketsResponse>(&channel, "GetServerSockets", request);
        code(sockets.await.map(drop));
    }
}

/// A client that does not read leaves its response in the server's queue, which operators see.
#[tokio::test]
async fn bytes_that_wait_for_a_client_are_shown() {
    const LEN: u64 = 3 << 20;
    let address = serve(Admin::loopback()).await.replace("auto:", "tcp:");
    let mut peer = RawPeer::connect(&address).await.unwrap();
    peer.send(&hello_bytes(Vec::new())).await.unwrap();
    within(peer.read_hello()).await.unwrap();
    let produce = PROBE.methods.iter().position(|method| method.path.ends_with("/Produce"));
    let produce = u16::try_from(produce.unwrap()).unwrap();
    let message = ProduceRequest { seed: 1, len: LEN }.encode_to_vec();
    // More than the two kernels take.
    for call in (1..=41).step_by(2) {
        let request = frame(FrameKind::Request, call, produce, &message);
        peer.send(&record(1, 0, &request)).await.unwrap();
    }
    let channel = connect("tcp", &address).await;
    let queued = async {
        loop {
            let request = Request::new(SnapshotRequest::default());
            let answer = farcall::client::unary(&channel, &SERVICE.methods[0], request);
            let snapshot: Snapshot = answer.await.unwrap().into_inner();
            let queued = snapshot.connections.iter().filter_map(|it| it.queued_bytes).max();
            if let Some(queued) = queued.filter(|queued| *queued > LEN) {
                return queued;
            }
        }
    };
    let queued = within(queued).await;
    assert!(queued < 42 * LEN, "{queued}");
    drop(peer);
}
