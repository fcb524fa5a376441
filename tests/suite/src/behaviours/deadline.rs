//! Deadlines, as both sides see them.

use std::time::Duration;

use farcall::{Code, Deadline, Request};
use tokio::time::Instant;

use super::SOON;
use super::echo::echo;
use crate::failure::{check, check_eq, refused};
use crate::proto::probe_rpc::ProbeStub;
use crate::proto::{ParkRequest, RemainingRequest};
use crate::{Failure, Harness};
use farcall_probe::watch::WatchEvent;

pub(super) async fn a_deadline_ends_the_call_and_drops_its_handler(
    harness: &Harness,
) -> Result<(), Failure> {
    let mut server = harness.serve_either().await?;
    let stub = server.probe().await?;
    let mut request = Request::new(ParkRequest { tag: 1, ..Default::default() });
    request.set_timeout(SOON);
    let status = refused("a call that waits for ever", stub.park(request).await)?;
    let is_right = server.stack().may_end_late_with(status.code());
    check(is_right, "the code of a call that is over its time", status.code())?;
    check_eq("the handler", &server.event().await?, &WatchEvent::Entered(1))?;
    check_eq("the handler", &server.event().await?, &WatchEvent::Dropped(1))?;
    echo(&stub, 1, 100).await
}

pub(super) async fn a_deadline_in_the_past_never_reaches_a_handler(
    harness: &Harness,
) -> Result<(), Failure> {
    let mut server = harness.serve().await?;
    let stub = server.stub().await?;
    let past = Instant::now().checked_sub(Duration::from_millis(1)).unwrap_or_else(Instant::now);
    let mut request = Request::new(ParkRequest { tag: 1, ..Default::default() });
    request.extensions_mut().insert(Deadline(past));
    let status = refused("a call after its deadline", stub.park(request).await)?;
    check_eq("the code", &status.code(), &Code::DeadlineExceeded)?;
    echo(&stub, 1, 100).await?;
    check_eq("an event of the handler", &server.watch().try_next(), &None)
}

pub(super) async fn a_handler_sees_what_is_left_of_the_deadline(
    harness: &Harness,
) -> Result<(), Failure> {
    let server = harness.serve().await?;
    let stub = server.stub().await?;
    let reply = stub.remaining(RemainingRequest {}).await?.into_inner();
    check_eq("a deadline that the caller did not set", &reply.remaining_us, &None)?;
    let timeout = Duration::from_secs(3600);
    let mut request = Request::new(RemainingRequest {});
    request.set_timeout(timeout);
    let left = stub.remaining(request).await?.into_inner().remaining_us;
    let bound = left.map(Duration::from_micros).filter(|left| !left.is_zero() && *left < timeout);
    check(bound.is_some(), "what is left of an hour", left)?;
    // Of two deadlines, the earlier one counts.
    let mut request = Request::new(RemainingRequest {});
    request.set_timeout(timeout);
    request.extensions_mut().insert(Deadline::after(Instant::now(), timeout / 2));
    let left = stub.remaining(request).await?.into_inner().remaining_us;
    let bound = left.map(Duration::from_micros).filter(|left| *left < timeout / 2);
    check(bound.is_some(), "what is left of half an hour", left)
}

pub(super) async fn a_stub_may_have_a_timeout_of_its_own(harness: &Harness) -> Result<(), Failure> {
    let mut server = harness.serve().await?;
    let stub = ProbeStub::new(server.channel().await?).with_timeout(SOON);
    let request = ParkRequest { tag: 1, ..Default::default() };
    let status = refused("a call that waits for ever", stub.park(request).await)?;
    check_eq("the code", &status.code(), &Code::DeadlineExceeded)?;
    let message = status.message();
    check(message.ends_with("(the stub's timeout)"), "the status's message", message)?;
    check_eq("the handler", &server.event().await?, &WatchEvent::Entered(1))?;
    check_eq("the handler", &server.event().await?, &WatchEvent::Dropped(1))?;
    // A call's own timeout takes the place of the stub's.
    let mut request = Request::new(RemainingRequest {});
    request.set_timeout(Duration::from_secs(3600));
    let left = stub.remaining(request).await?.into_inner().remaining_us.unwrap_or_default();
    check(Duration::from_micros(left) > SOON, "what is left of an hour", left)
}
