//! Methods and services that a server does not have.

use bytes::Bytes;
use farcall::client::unary;
use farcall::{CallKind, Code, Idempotency, MethodDescriptor, Request};

use super::echo::echo;
use crate::failure::{check, check_eq, refused};
use crate::proto::absent_rpc::AbsentStub;
use crate::proto::probe_rpc::ProbeStub;
use crate::proto::{EchoReply, EchoRequest};
use crate::{Failure, Harness};

/// A method that the service does not have, as a newer client might call it.
static NEWER: MethodDescriptor =
    MethodDescriptor::new("/farcall.suite.Probe/Newer", CallKind::Unary, Idempotency::Unknown);

fn request() -> EchoRequest {
    EchoRequest { payload: Bytes::from_static(b"?"), tail: Bytes::new() }
}

pub(super) async fn unknown_methods_and_services_are_unimplemented(
    harness: &Harness,
) -> Result<(), Failure> {
    let server = harness.serve().await?;
    let channel = server.channel().await?;
    let answer = unary::<_, EchoReply>(&channel, &NEWER, Request::new(request())).await;
    let status = refused("an unknown method", answer)?;
    check_eq("the code", &status.code(), &Code::Unimplemented)?;
    check(status.message().contains(NEWER.path), "the method's name in", status.message())?;
    let answer = AbsentStub::new(channel.clone()).call(request()).await;
    let status = refused("an unknown service", answer)?;
    check_eq("the code", &status.code(), &Code::Unimplemented)?;
    echo(&ProbeStub::new(channel), 1, 100).await
}
