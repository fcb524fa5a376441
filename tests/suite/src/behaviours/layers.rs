//! tower's own layers, on both sides.

use farcall::client::ClientCall;
use farcall::layer::TraceLayer;
use farcall::metadata::MetadataValue;
use farcall::server::{ServerRequest, layered};
use farcall::{Caller, Code, DynCaller, Request, Response, Server, Status};
use futures::future::try_join_all;
use futures::stream;
use tower::ServiceBuilder;
use tower::limit::ConcurrencyLimitLayer;
use tower::timeout::TimeoutLayer;
use tower::util::MapRequestLayer;

use super::SOON;
use super::interceptors::{ADDED, REFUSE, check_every_kind, no};
use crate::failure::{check, check_eq, refused};
use crate::harness::running::Running;
use crate::proto::probe_rpc::ProbeStub;
use crate::proto::{DownloadRequest, EchoRequest, ParkRequest, ProduceRequest};
use crate::{Failure, Harness};
use farcall_probe::watch::WatchEvent;

fn park(tag: u64) -> ParkRequest {
    ParkRequest { tag, ..Default::default() }
}

pub(super) async fn layers_of_a_client_see_every_kind_of_call(
    harness: &Harness,
) -> Result<(), Failure> {
    let server = harness.serve().await?;
    let layers = ServiceBuilder::new()
        .layer(TraceLayer::new())
        .load_shed()
        .concurrency_limit(8)
        .timeout(harness.limit())
        .filter_async(|call: ClientCall| async move {
            if call.metadata().contains_key(REFUSE) { Err(no()) } else { Ok(call) }
        })
        .map_request(|mut call: ClientCall| {
            call.metadata_mut().insert(ADDED, MetadataValue::from_static("yes"));
            call
        });
    check_every_kind(&ProbeStub::new(server.channel().await?.layer(layers))).await
}

pub(super) async fn layers_of_a_server_see_every_kind_of_call(
    harness: &Harness,
) -> Result<(), Failure> {
    let limits = ServiceBuilder::new()
        .layer(TraceLayer::new())
        .load_shed()
        .concurrency_limit(8)
        .timeout(harness.limit());
    let requests = ServiceBuilder::new()
        .filter_async(|request: ServerRequest| async move {
            if request.metadata().contains_key(REFUSE) { Err(no()) } else { Ok(request) }
        })
        .map_request(|mut request: ServerRequest| {
            request.metadata_mut().insert(ADDED, MetadataValue::from_static("yes"));
            request
        });
    let build = |probe| Server::builder().add_service(probe).layer(limits).layer(requests);
    let server = harness.serve_with(build).await?;
    check_every_kind(&server.stub().await?).await
}

pub(super) async fn layers_of_a_service_see_every_kind_of_call(
    harness: &Harness,
) -> Result<(), Failure> {
    let requests = ServiceBuilder::new()
        .filter_async(|request: ServerRequest| async move {
            if request.metadata().contains_key(REFUSE) { Err(no()) } else { Ok(request) }
        })
        .map_request(|mut request: ServerRequest| {
            request.metadata_mut().insert(ADDED, MetadataValue::from_static("yes"));
            request
        });
    let build = |probe| {
        let probe = layered(probe, requests);
        Server::builder().add_service(probe).layer(TraceLayer::new())
    };
    let server = harness.serve_with(build).await?;
    check_every_kind(&server.stub().await?).await
}

/// Sets `key` in the metadata of each response.
fn response_key(
    keys: &'static [&'static str],
    value: &'static str,
) -> impl Fn(ServerRequest) -> ServerRequest + Clone {
    move |mut request| {
        for key in keys {
            request.response_metadata_mut().insert(*key, MetadataValue::from_static(value));
        }
        request
    }
}

#[track_caller]
fn check_layered<T>(what: &str, response: &Response<T>) -> Result<(), Failure> {
    let value = |key| response.metadata().get(key).and_then(|value| value.to_str().ok());
    let found = ["x-inner", "x-both", "x-outer"].map(value);
    check_eq(what, &found, &[Some("inner"), Some("outer"), Some("outer")])
}

pub(super) async fn metadata_of_a_servers_layers_precedes_every_kind_of_response(
    harness: &Harness,
) -> Result<(), Failure> {
    let inner = MapRequestLayer::new(response_key(&["x-inner", "x-both"], "inner"));
    let outer = MapRequestLayer::new(response_key(&["x-outer", "x-both"], "outer"));
    let build = |probe| Server::builder().add_service(layered(probe, inner)).layer(outer);
    let server = harness.serve_with(build).await?;
    let stub = server.stub().await?;
    let requests = || stream::iter([EchoRequest::default()]);
    check_layered("unary", &stub.echo(EchoRequest::default()).await?)?;
    check_layered("request stream", &stub.upload(requests()).await?)?;
    let messages = vec![ProduceRequest { seed: 1, len: 10 }];
    let request = DownloadRequest { messages, ..Default::default() };
    // What the handler sets itself stays beside it: it sends the request's metadata back.
    let mut request = Request::new(request);
    request.metadata_mut().insert(ADDED, MetadataValue::from_static("yes"));
    let download = stub.download(request).await?;
    check_layered("response stream", &download)?;
    check(download.metadata().contains_key(ADDED), "the handler's own", "missing")?;
    check(download.into_inner().message().await?.is_some(), "a message", "the end")?;
    check_layered("conversation", &stub.chat(requests()).await?)
}

pub(super) async fn a_caller_whose_type_is_forgotten_makes_every_kind_of_call(
    harness: &Harness,
) -> Result<(), Failure> {
    let server = harness.serve().await?;
    let layers = ServiceBuilder::new()
        .filter_async(|call: ClientCall| async move {
            if call.metadata().contains_key(REFUSE) { Err(no()) } else { Ok(call) }
        })
        .map_request(|mut call: ClientCall| {
            call.metadata_mut().insert(ADDED, MetadataValue::from_static("yes"));
            call
        });
    let caller = DynCaller::new(server.channel().await?.layer(layers));
    check_every_kind(&ProbeStub::new(caller)).await
}

/// A call that waits for ever and is ended by a layer.
async fn check_timeout(server: &mut Running, stub: &ProbeStub<impl Caller>) -> Result<(), Failure> {
    let status = refused("a call that waits for ever", stub.park(park(1)).await)?;
    check_eq("the code", &status.code(), &Code::DeadlineExceeded)?;
    check_eq("the handler", &server.event().await?, &WatchEvent::Entered(1))?;
    check_eq("the handler", &server.event().await?, &WatchEvent::Dropped(1))?;
    stub.echo(EchoRequest::default()).await?;
    Ok(())
}

pub(super) async fn a_clients_timeout_layer_ends_a_call(harness: &Harness) -> Result<(), Failure> {
    let mut server = harness.serve().await?;
    let channel = server.channel().await?.layer(TimeoutLayer::new(SOON));
    check_timeout(&mut server, &ProbeStub::new(channel)).await
}

pub(super) async fn a_servers_timeout_layer_ends_calls_and_streams(
    harness: &Harness,
) -> Result<(), Failure> {
    let build = |probe| Server::builder().add_service(probe).layer(TimeoutLayer::new(SOON));
    let mut server = harness.serve_with(build).await?;
    let stub = server.stub().await?;
    check_timeout(&mut server, &stub).await?;
    // In the middle of a stream: what came before stays, and the status comes after it.
    let messages = vec![ProduceRequest { seed: 1, len: 5000 }; 3];
    let request = DownloadRequest { messages, park: Some(2), ..Default::default() };
    let mut stream = stub.download(request).await?.into_inner();
    let mut count = 0;
    let status = loop {
        match stream.message().await {
            Ok(Some(_)) => count += 1,
            Ok(None) => return check_eq("the stream's end", "success", "a status"),
            Err(status) => break status,
        }
    };
    check_eq("the messages", &count, &3)?;
    check(stream.message().await?.is_none(), "the stream after its end", "something")?;
    check_eq("the code", &status.code(), &Code::DeadlineExceeded)?;
    check_eq("the stream", &server.event().await?, &WatchEvent::Entered(2))?;
    check_eq("the stream", &server.event().await?, &WatchEvent::Dropped(2))
}

/// Calls that are made at the same time and let in one by one.
async fn check_one_by_one(
    server: &mut Running,
    stub: &ProbeStub<impl Caller>,
) -> Result<(), Failure> {
    const COUNT: u64 = 6;
    server.watch().open(usize::try_from(COUNT).unwrap_or_default());
    let calls = (1..=COUNT).map(|tag| stub.park(park(tag)));
    server.within("the end of all calls", try_join_all(calls)).await??;
    for _ in 0..COUNT {
        let WatchEvent::Entered(tag) = server.event().await? else {
            return check_eq("the next event", "an end", "a beginning");
        };
        check_eq("the next event", &server.event().await?, &WatchEvent::Answered(tag))?;
    }
    Ok(())
}

pub(super) async fn a_clients_limit_lets_calls_in_one_by_one(
    harness: &Harness,
) -> Result<(), Failure> {
    let mut server = harness.serve().await?;
    let channel = server.channel().await?.layer(ConcurrencyLimitLayer::new(1));
    check_one_by_one(&mut server, &ProbeStub::new(channel)).await
}

pub(super) async fn a_servers_limit_lets_calls_in_one_by_one(
    harness: &Harness,
) -> Result<(), Failure> {
    let build = |probe| Server::builder().add_service(probe).layer(ConcurrencyLimitLayer::new(1));
    let mut server = harness.serve_with(build).await?;
    let stub = server.stub().await?;
    check_one_by_one(&mut server, &stub).await
}

/// A call that is refused while another one is in flight, and not after.
async fn check_shedding<C>(server: &mut Running, stub: &ProbeStub<C>) -> Result<(), Failure>
where
    C: Caller + Clone + 'static,
{
    let parked = stub.clone();
    let parked = tokio::spawn(async move { parked.park(park(1)).await });
    check_eq("the handler", &server.event().await?, &WatchEvent::Entered(1))?;
    let status: Status = refused("one too many", stub.echo(EchoRequest::default()).await)?;
    check_eq("the code", &status.code(), &Code::ResourceExhausted)?;
    server.watch().open(1);
    parked.await??;
    // On a server the call's permit is given back after the answer was sent.
    let again = async {
        while let Err(status) = stub.echo(EchoRequest::default()).await {
            check_eq("the code", &status.code(), &Code::ResourceExhausted)?;
        }
        Ok(())
    };
    server.within("room for another call", again).await?
}

pub(super) async fn a_client_sheds_load(harness: &Harness) -> Result<(), Failure> {
    let mut server = harness.serve().await?;
    let layers = ServiceBuilder::new().load_shed().concurrency_limit(1);
    let stub = ProbeStub::new(server.channel().await?.layer(layers));
    check_shedding(&mut server, &stub).await
}

pub(super) async fn a_server_sheds_load(harness: &Harness) -> Result<(), Failure> {
    let layers = ServiceBuilder::new().load_shed().concurrency_limit(1);
    let build = |probe| Server::builder().add_service(probe).layer(layers);
    let mut server = harness.serve_with(build).await?;
    let stub = server.stub().await?;
    check_shedding(&mut server, &stub).await
}
