//! tonic's interceptors, on both sides.

use std::sync::Arc;

use farcall::server::intercepted;
use farcall::{Caller, Code, Request, Server, Status};
use futures::stream;
use parking_lot::Mutex;
use tonic::GrpcMethod;

use crate::failure::{check, check_eq, refused};
use crate::proto::probe_rpc::ProbeStub;
use crate::proto::{DownloadRequest, EchoRequest, ProduceRequest, ReflectRequest};
use crate::{Failure, Harness};
use farcall_probe::entries::entries;

/// The metadata with which a call asks to be refused.
pub(super) const REFUSE: &str = "x-refuse";
/// The metadata that is added to calls that are not.
pub(super) const ADDED: &str = "x-added";

/// The status of calls that ask to be refused.
pub(super) fn no() -> Status {
    Status::permission_denied("as it was asked to be")
}

/// The interceptor of the behaviours.
fn intercept(mut request: Request<()>) -> Result<Request<()>, Status> {
    if request.metadata().contains_key(REFUSE) {
        return Err(no());
    }
    request.metadata_mut().insert(ADDED, farcall::metadata::MetadataValue::from_static("yes"));
    Ok(request)
}

fn with<T>(message: T, is_refused: bool) -> Request<T> {
    let mut request = Request::new(message);
    if is_refused {
        let value = farcall::metadata::MetadataValue::from_static("please");
        request.metadata_mut().insert(REFUSE, value);
    }
    request
}

fn uploaded() -> impl futures::Stream<Item = EchoRequest> + Send + 'static {
    stream::iter((0_u8..3).map(|n| EchoRequest { payload: vec![n].into(), ..Default::default() }))
}

fn downloaded() -> DownloadRequest {
    let messages = vec![ProduceRequest { seed: 1, len: 10 }; 3];
    DownloadRequest { messages, ..Default::default() }
}

/// Makes calls of every kind through something that adds [`ADDED`] to them and honours [`REFUSE`].
pub(super) async fn check_every_kind(stub: &ProbeStub<impl Caller>) -> Result<(), Failure> {
    let reflected = stub.reflect(with(ReflectRequest::default(), false)).await?;
    let keys = reflected.into_inner().entries.into_iter().map(|entry| entry.key);
    check_eq("the metadata of a unary call", &keys.collect(), &vec![ADDED.to_owned()])?;
    let download = stub.download(with(downloaded(), false)).await?;
    let keys = entries(download.metadata())?.into_iter().map(|entry| entry.key);
    check_eq("the metadata of a response stream", &keys.collect(), &vec![ADDED.to_owned()])?;
    let mut messages = download.into_inner();
    let mut count = 0;
    while messages.message().await?.is_some() {
        count += 1;
    }
    check_eq("the messages of a response stream", &count, &3)?;
    let upload = stub.upload(with(uploaded(), false)).await?.into_inner();
    check_eq("the messages of a request stream", &upload.count, &3)?;
    let mut replies = stub.chat(with(uploaded(), false)).await?.into_inner();
    let mut count = 0;
    while replies.message().await?.is_some() {
        count += 1;
    }
    check_eq("the messages of a conversation", &count, &3)?;
    let statuses = [
        refused("unary", stub.reflect(with(ReflectRequest::default(), true)).await)?,
        refused("response stream", stub.download(with(downloaded(), true)).await)?,
        refused("request stream", stub.upload(with(uploaded(), true)).await)?,
        refused("conversation", stub.chat(with(uploaded(), true)).await)?,
    ];
    let is_refusal = |status: &Status| {
        status.code() == Code::PermissionDenied && status.message() == no().message()
    };
    check(statuses.iter().all(is_refusal), "the refusals", statuses)
}

pub(super) async fn interceptors_of_a_client_see_every_kind_of_call(
    harness: &Harness,
) -> Result<(), Failure> {
    let server = harness.serve().await?;
    let methods = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&methods);
    let interceptor = move |request: Request<()>| {
        let method = request.extensions().get::<GrpcMethod<'static>>();
        let name = method.map(|method| format!("{}/{}", method.service(), method.method()));
        seen.lock().push(name.unwrap_or_default());
        intercept(request)
    };
    check_every_kind(&ProbeStub::new(server.channel().await?.intercept(interceptor))).await?;
    let mut methods = methods.lock().clone();
    methods.truncate(4);
    let expected = ["Reflect", "Download", "Upload", "Chat"];
    let expected = expected.map(|name| format!("farcall.suite.Probe/{name}"));
    check_eq("the methods that the interceptor saw", methods.as_slice(), expected.as_slice())
}

pub(super) async fn interceptors_of_a_server_see_every_kind_of_call(
    harness: &Harness,
) -> Result<(), Failure> {
    let build = |probe| Server::builder().add_service(intercepted(probe, intercept));
    let server = harness.serve_with(build).await?;
    check_every_kind(&server.stub().await?).await
}

pub(super) async fn an_interceptor_that_panics_ends_its_own_call_only(
    harness: &Harness,
) -> Result<(), Failure> {
    let panicking = |request: Request<()>| {
        if request.metadata().contains_key(REFUSE) {
            // As `panic!`, without a backtrace among the output of the tests.
            std::panic::resume_unwind(Box::new("as it was asked to"));
        }
        Ok(request)
    };
    let build = |probe| Server::builder().add_service(intercepted(probe, panicking));
    let server = harness.serve_with(build).await?;
    let stub = server.stub().await?;
    let ended = stub.reflect(with(ReflectRequest::default(), true)).await;
    let status = refused("a call whose interceptor panics", ended)?;
    check_eq("the code", &status.code(), &Code::Internal)?;
    stub.reflect(with(ReflectRequest::default(), false)).await?;
    Ok(())
}
