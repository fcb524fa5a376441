//! Statuses, whole.

use std::time::Duration;

use bytes::Bytes;
use farcall::client::unary;
use farcall::{Code, Status};
use prost::Message;
use tonic_types::{ErrorDetails, StatusExt};

use crate::failure::{check_eq, refused};
use crate::proto::{EchoReply, FailRequest};
use crate::{Failure, Harness};
use farcall_probe::entries::{entries, sample, sorted};

pub(super) async fn a_status_arrives_with_message_details_and_metadata(
    harness: &Harness,
) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let message = "nicht möglich: 日本語 🚂\nsecond line\twith a tab and 100 %";
    let request = FailRequest {
        code: Code::FailedPrecondition.into(),
        message: message.to_owned(),
        details: Bytes::from_static(b"\x00raw\xff details"),
        metadata: sample(),
    };
    let status = refused("a call that fails", server.probe().await?.fail(request).await)?;
    check_eq("the code", &status.code(), &Code::FailedPrecondition)?;
    check_eq("the message", status.message(), message)?;
    check_eq("the details", status.details(), b"\x00raw\xff details")?;
    check_eq("the metadata", &sorted(entries(status.metadata())?), &sorted(sample()))
}

/// The details that tonic-types makes and reads.
pub(super) async fn rich_error_details_survive(harness: &Harness) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let mut details = ErrorDetails::new();
    details
        .set_retry_info(Some(Duration::from_secs(3)))
        .add_quota_failure_violation("clients/me", "no quota left")
        .add_bad_request_violation("name", "must not be empty")
        .set_request_info("request-7", "served by none")
        .set_localized_message("de", "geht nicht");
    let sent = Status::with_error_details(Code::InvalidArgument, "rich", details.clone());
    let request = FailRequest {
        code: sent.code().into(),
        message: sent.message().to_owned(),
        details: Bytes::copy_from_slice(sent.details()),
        metadata: Vec::new(),
    };
    let status = refused("a call that fails", server.probe().await?.fail(request).await)?;
    let arrived = status.get_error_details();
    check_eq("the details", &format!("{arrived:?}"), &format!("{details:?}"))?;
    check_eq("the code", &status.code(), &Code::InvalidArgument)
}

pub(super) async fn every_code_survives(harness: &Harness) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let stub = server.probe().await?;
    for code in 1..=16 {
        let request = FailRequest { code, message: format!("{code}"), ..Default::default() };
        let status = refused("a call that fails", stub.fail(request).await)?;
        check_eq("the code", &i32::from(status.code()), &code)?;
        check_eq("the message", status.message(), &format!("{code}"))?;
    }
    Ok(())
}

/// A message with the payload's tag and the wrong wire type.
#[derive(Clone, PartialEq, Message)]
struct Misfit {
    #[prost(uint64, tag = "1")]
    payload: u64,
}

pub(super) async fn a_message_that_does_not_decode_is_an_internal_error(
    harness: &Harness,
) -> Result<(), Failure> {
    let server = harness.serve().await?;
    let channel = server.channel().await?;
    let method = &crate::proto::probe_rpc::SERVICE.methods[0];
    let request = farcall::Request::new(Misfit { payload: 7 });
    let answer = unary::<_, EchoReply>(&channel, method, request).await;
    let status = refused("a request of another type", answer)?;
    check_eq("the code", &status.code(), &Code::Internal)?;
    super::echo::echo(&crate::proto::probe_rpc::ProbeStub::new(channel), 1, 100).await
}
