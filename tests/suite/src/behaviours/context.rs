//! The context of a handler: its call and its connection.

use farcall::{CallContext, Extensions, PeerInfo, Request, Server, Status};
use tokio::sync::mpsc::{self, UnboundedReceiver};

use super::SOON;
use crate::OneServer as _;
use crate::failure::{Cause, check, check_eq};
use crate::harness::running::Running;
use crate::proto::EchoRequest;
use crate::proto::relay_rpc::RelayStub;
use crate::{Failure, Harness};
use farcall_probe::relay::relay;

/// A server whose handlers hand out their context, and then wait for ever if the request has a
/// payload.
async fn serve(harness: &Harness) -> Result<(Running, UnboundedReceiver<CallContext>), Failure> {
    let (tell, contexts) = mpsc::unbounded_channel();
    let telling = relay(move |request: Request<EchoRequest>| {
        let tell = tell.clone();
        async move {
            let call = CallContext::current();
            let call = call.ok_or_else(|| Status::internal("a handler without a context"))?;
            // The test may have failed already.
            let _ = tell.send(call);
            if !request.get_ref().payload.is_empty() {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    });
    let server = harness.serve_with(|_| Server::builder().add_service(telling)).await?;
    Ok((server, contexts))
}

/// A request whose handler waits for ever.
fn waiting() -> Request<EchoRequest> {
    Request::new(EchoRequest { payload: "wait".into(), ..Default::default() })
}

async fn next(
    server: &Running,
    contexts: &mut UnboundedReceiver<CallContext>,
) -> Result<CallContext, Failure> {
    let call = server.within("a handler", contexts.recv()).await?;
    call.ok_or_else(|| Failure::new(Cause::Silent))
}

pub(super) async fn work_elsewhere_learns_that_its_call_was_given_up(
    harness: &Harness,
) -> Result<(), Failure> {
    let (server, mut contexts) = serve(harness).await?;
    let stub = RelayStub::new(server.channel().await?);
    let calling = stub.clone();
    // By the client, in the handler and in its stream.
    let dropped = tokio::spawn(async move { calling.ask(waiting()).await });
    let call = next(&server, &mut contexts).await?;
    check_eq("the method", call.method().path, "/farcall.suite.Relay/Ask")?;
    check(!call.is_cancelled(), "a call that goes on", &call)?;
    dropped.abort();
    server.within("the end of a dropped call", call.cancelled()).await?;
    let mut stream = stub.listen(waiting()).await?.into_inner();
    {
        let reading = stream.message();
        tokio::select! {
            _ = reading => {}
            call = next(&server, &mut contexts) => {
                check(!call?.is_cancelled(), "a stream", "its end")?;
            }
        }
    }
    drop(stream);
    // By the deadline.
    let mut timed = waiting();
    timed.set_timeout(SOON);
    let (ended, call) = tokio::join!(stub.ask(timed), next(&server, &mut contexts));
    check(ended.is_err(), "a call that waits for ever", ended)?;
    server.within("the end of a timed call", call?.cancelled()).await?;
    // By the end of the connection.
    let calling = stub.clone();
    let cut = tokio::spawn(async move { calling.ask(waiting()).await });
    let call = next(&server, &mut contexts).await?;
    server.abort();
    server.within("the end of a call without connection", call.cancelled()).await?;
    check(cut.await?.is_err(), "a call without connection", "success")
}

pub(super) async fn a_handler_that_ends_by_itself_is_not_given_up(
    harness: &Harness,
) -> Result<(), Failure> {
    let (server, mut contexts) = serve(harness).await?;
    let stub = RelayStub::new(server.channel().await?);
    stub.ask(EchoRequest::default()).await?;
    let mut stream = stub.listen(EchoRequest::default()).await?.into_inner();
    while stream.message().await?.is_some() {}
    for _ in 0..2 {
        let call = next(&server, &mut contexts).await?;
        check(!call.is_cancelled(), "a call that ended well", call)?;
    }
    Ok(())
}

fn insert_peer(peer: &PeerInfo, extensions: &mut Extensions) {
    extensions.insert(peer.clone());
}

pub(super) async fn a_handler_knows_its_connection(harness: &Harness) -> Result<(), Failure> {
    for has_extension in [false, true] {
        let (tell, mut contexts) = mpsc::unbounded_channel();
        let telling = relay(move |request: Request<EchoRequest>| {
            let extension = request.extensions().get::<PeerInfo>().cloned();
            // The test may have failed already.
            let _ = tell.send((PeerInfo::current(), extension));
            async { Ok(()) }
        });
        let build = |_| {
            let builder = Server::builder().add_service(telling);
            if has_extension { builder.peer_extensions(insert_peer) } else { builder }
        };
        let server = harness.serve_with(build).await?;
        let channel = server.channel().await?;
        let ours = channel.info().map(|info| info.addresses);
        RelayStub::new(channel).ask(EchoRequest::default()).await?;
        let seen = contexts.try_recv().map_err(|_| Failure::new(Cause::Silent))?;
        let (Some(peer), extension) = seen else {
            return check(false, "the peer that a handler sees", seen);
        };
        check_eq("the transport", peer.transport, harness.path().name())?;
        let theirs = (peer.addresses.peer, peer.addresses.local);
        check_eq("the addresses", &Some(theirs), &ours.map(|ours| (ours.local, ours.peer)))?;
        let expected = has_extension.then(|| PeerInfo::clone(&peer));
        check_eq("the request's extension", &extension, &expected)?;
    }
    Ok(())
}
