//! Deadlines of calls that handlers make.

use std::time::Duration;

use farcall::{Channel, Code, Deadline, Request, Server, Status};
use tokio::sync::mpsc;

use super::SOON;
use crate::failure::{Cause, check, check_eq, refused};
use crate::proto::probe_rpc::ProbeStub;
use crate::proto::relay_rpc::RelayStub;
use crate::proto::{EchoRequest, ParkRequest, RemainingRequest};
use crate::{Failure, Harness};
use farcall_probe::relay::relay;
use farcall_probe::watch::WatchEvent;

const HOUR: Duration = Duration::from_secs(3600);
/// The remaining time of the deadlines along the way.
#[derive(Debug)]
struct Left {
    /// In the handler between the two servers.
    between: Option<Duration>,
    /// In the handler behind it.
    inherited: Option<Duration>,
    /// There, for a call with a deadline of its own that is later.
    extended: Option<Duration>,
    /// There, for a call with a deadline of its own that is earlier.
    shortened: Option<Duration>,
    /// There, for a call that does not inherit.
    detached: Option<Duration>,
}

async fn left(stub: &ProbeStub, timeout: Option<Duration>) -> Result<Option<Duration>, Status> {
    let mut request = Request::new(RemainingRequest {});
    if let Some(timeout) = timeout {
        request.set_timeout(timeout);
    }
    let left = stub.remaining(request).await?.into_inner().remaining_us;
    Ok(left.map(Duration::from_micros))
}

async fn look(stub: &ProbeStub) -> Result<Left, Status> {
    Ok(Left {
        between: Deadline::current().map(Deadline::remaining),
        inherited: left(stub, None).await?,
        extended: left(stub, Some(10 * HOUR)).await?,
        shortened: left(stub, Some(HOUR / 60)).await?,
        detached: Deadline::detached(left(stub, None)).await?,
    })
}

/// Makes a call of each kind, in which the relay may look.
async fn ask(stub: &RelayStub<Channel>, timeout: Option<Duration>) -> Result<(), Failure> {
    let request = || {
        let mut request = Request::new(EchoRequest::default());
        if let Some(timeout) = timeout {
            request.set_timeout(timeout);
        }
        request
    };
    stub.ask(request()).await?;
    let mut stream = stub.listen(request()).await?.into_inner();
    while stream.message().await?.is_some() {}
    Ok(())
}

pub(super) async fn calls_of_a_handler_inherit_its_deadline(
    harness: &Harness,
) -> Result<(), Failure> {
    let behind = harness.serve().await?;
    let probe = behind.stub().await?;
    let (tell, mut reports) = mpsc::unbounded_channel();
    let looking = relay(move |_| {
        let (probe, tell) = (probe.clone(), tell.clone());
        async move {
            // The test may have failed already.
            let _ = tell.send(look(&probe).await?);
            Ok(())
        }
    });
    let between = harness.serve_with(|_| Server::builder().add_service(looking)).await?;
    let stub = RelayStub::new(between.channel().await?);
    ask(&stub, Some(HOUR)).await?;
    ask(&stub, None).await?;
    let mut next = || reports.try_recv().map_err(|_| Failure::new(Cause::Silent));
    for kind in ["unary", "stream"] {
        let seen = next()?;
        let Left { between, inherited, extended, shortened, detached } = &seen;
        let is_shorter = *between < Some(HOUR) && inherited.is_some() && inherited <= between;
        let is_bounded = extended.is_some() && extended <= between;
        let is_shortened = shortened.is_some_and(|left| left <= HOUR / 60);
        let holds = is_shorter && is_bounded && is_shortened && detached.is_none();
        check(holds, &format!("what is left of an hour ({kind})"), &seen)?;
    }
    for kind in ["unary", "stream"] {
        let seen = next()?;
        let Left { between, inherited, extended, shortened, detached } = &seen;
        let none = [between, inherited, detached].iter().all(|left| left.is_none());
        let own = shortened.is_some_and(|left| left <= HOUR / 60) && *extended > Some(HOUR);
        check(none && own, &format!("deadlines without one to inherit ({kind})"), &seen)?;
    }
    Ok(())
}

pub(super) async fn a_call_of_a_handler_ends_with_the_handlers_own(
    harness: &Harness,
) -> Result<(), Failure> {
    let mut behind = harness.serve().await?;
    let probe = behind.stub().await?;
    let parking = relay(move |_| {
        let probe = probe.clone();
        async move {
            probe.park(ParkRequest { tag: 1, ..Default::default() }).await?;
            Ok(())
        }
    });
    let between = harness.serve_with(|_| Server::builder().add_service(parking)).await?;
    let stub = RelayStub::new(between.channel().await?);
    let mut request = Request::new(EchoRequest::default());
    request.set_timeout(SOON);
    let status = refused("a call that waits for ever", stub.ask(request).await)?;
    check_eq("the code", &status.code(), &Code::DeadlineExceeded)?;
    check_eq("the handler behind", &behind.event().await?, &WatchEvent::Entered(1))?;
    check_eq("the handler behind", &behind.event().await?, &WatchEvent::Dropped(1))
}
