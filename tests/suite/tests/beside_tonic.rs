//! The very same `impl` behind farcall's server and behind tonic's: what a client can observe is
//! the same.
//!
//! Not compared is what tonic has no word for (trailing metadata of a success, a handler's view of
//! its deadline) and what it leaves to chance (a panic takes its whole connection with it).

use std::collections::BTreeMap;
use std::time::Duration;

use farcall::Limits;
use farcall_suite::entries::{entries, metadata, sample, sorted};
use farcall_suite::proto::absent_client::AbsentClient;
use farcall_suite::proto::absent_rpc::AbsentStub;
use farcall_suite::proto::probe_client::ProbeClient;
use farcall_suite::proto::probe_rpc::ProbeStub;
use farcall_suite::proto::probe_server::ProbeServer;
use farcall_suite::proto::{EchoRequest, FailRequest, ParkRequest, ProduceRequest, ReflectRequest};
use farcall_suite::{Failure, Harness, Path, Probe, WatchEvent, payload};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Status};
use tonic_types::{ErrorDetails, StatusExt};

const LIMIT: Duration = Duration::from_secs(30);

/// Known differences, with the behavior of each. The book has the reasons.
const DIFFERENCES: &[(&str, &str, &str)] = &[
    ("deadline", "DeadlineExceeded", "Cancelled"),
    ("message over 4 MiB", "ResourceExhausted", "OutOfRange"),
];

/// Observations, by the name of the attempt.
#[derive(Debug, Default)]
struct Observed(BTreeMap<String, String>);

impl Observed {
    fn note(&mut self, what: impl Into<String>, seen: impl std::fmt::Debug) {
        self.0.insert(what.into(), format!("{seen:?}"));
    }

    fn status(&mut self, what: &str, status: &Status) {
        let metadata = entries(status.metadata()).map(sorted).map_err(|status| status.to_string());
        self.note(what, (status.code(), status.message(), status.details(), metadata));
    }
}

fn rich() -> Status {
    let mut details = ErrorDetails::new();
    details
        .add_bad_request_violation("name", "must not be empty")
        .set_retry_info(Some(Duration::from_secs(3)));
    Status::with_error_details(tonic::Code::InvalidArgument, "reich, 日本語\nin two lines", details)
}

fn reflected() -> Request<ReflectRequest> {
    let mut request = Request::new(ReflectRequest { as_trailers: false });
    *request.metadata_mut() = metadata(&sample()).expect("the sample is metadata");
    request
}

fn failing(code: i32, status: &Status) -> FailRequest {
    FailRequest {
        code,
        message: status.message().to_owned(),
        details: status.details().to_vec().into(),
        metadata: sample(),
    }
}

/// Tries everything on a client of either kind; they have the same methods, but tonic's want to
/// be borrowed mutably.
macro_rules! observe {
    ($client:expr, $absent:expr, $watch:expr) => {{
        let (mut client, mut absent) = ($client, $absent);
        let mut observed = Observed::default();
        for len in [0, 1, 1000, 65_536, 3 << 20] {
            let request = EchoRequest { payload: payload(1, len), ..Default::default() };
            let reply = client.echo(request).await.map(|reply| reply.into_inner().payload);
            observed.note(format!("echo of {len}"), reply.map(|reply| reply == payload(1, len)));
        }
        let reply = client.produce(ProduceRequest { seed: 7, len: 100 }).await?.into_inner();
        observed.note("produce", reply);
        let reply = client.reflect(reflected()).await?;
        observed.note("response's metadata", sorted(entries(reply.metadata())?));
        observed.note("request's metadata", sorted(reply.into_inner().entries));
        for code in 1..=16 {
            let ended = client.fail(failing(code, &rich())).await;
            let status = ended.expect_err("the call fails");
            observed.status(&format!("code {code}"), &status);
            let details = status.get_error_details();
            observed.note(format!("details of code {code}"), details);
        }
        let over = client.produce(ProduceRequest { seed: 1, len: 5 << 20 }).await;
        observed.note("message over 4 MiB", over.expect_err("it is over the default limit").code());
        let status = absent.call(EchoRequest::default()).await.expect_err("no service has it");
        observed.note("unknown service", status.code());
        let mut parked = Request::new(ParkRequest { tag: 1, ..Default::default() });
        parked.set_timeout(Duration::from_secs(2));
        let status = client.park(parked).await.expect_err("the gate stays closed");
        observed.note("deadline", status.code());
        observed.note("deadline's handler", [$watch.event().await?, $watch.event().await?]);
        let given_up = client.park(ParkRequest { tag: 2, ..Default::default() });
        tokio::select! {
            ended = given_up => panic!("the gate stays closed: {ended:?}"),
            event = $watch.event() => observed.note("handler begins", event?),
        }
        observed.note("dropped call's handler", $watch.event().await?);
        Ok::<_, Failure>(observed)
    }};
}

/// The events of a service under tonic's server, with the suite's bound.
struct TonicWatch(farcall_suite::Watch);

impl TonicWatch {
    async fn event(&mut self) -> Result<WatchEvent, Failure> {
        let event = tokio::time::timeout(LIMIT, self.0.next()).await;
        Ok(event.expect("a handler does something in time").expect("the server lives"))
    }
}

#[allow(unused_mut, reason = "tonic's clients are borrowed mutably, ours are not")]
async fn over_farcall() -> Result<Observed, Failure> {
    let mut server = Harness::new(Path::Tcp, LIMIT).serve().await?;
    let channel = server.channel_under(Limits::default()).await?;
    observe!(ProbeStub::new(channel.clone()), AbsentStub::new(channel), server)
}

async fn over_tonic() -> Result<Observed, Failure> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}", listener.local_addr()?);
    let (probe, watch) = Probe::new();
    let server = Server::builder().add_service(ProbeServer::new(probe));
    let serving = tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let endpoint = Endpoint::from_shared(address).expect("the address is one");
    let channel = endpoint.connect().await.expect("tonic's server accepts");
    let mut watch = TonicWatch(watch);
    let observed = observe!(ProbeClient::new(channel.clone()), AbsentClient::new(channel), watch);
    serving.abort();
    observed
}

#[tokio::test]
async fn a_client_observes_the_same() -> Result<(), Failure> {
    let both = async { tokio::try_join!(over_farcall(), over_tonic()) };
    let (mut ours, mut tonics) = tokio::time::timeout(LIMIT, both).await.expect("it ends")?;
    for (what, our, tonics_own) in DIFFERENCES {
        assert_eq!(ours.0.remove(*what).as_deref(), Some(*our), "{what}");
        assert_eq!(tonics.0.remove(*what).as_deref(), Some(*tonics_own), "{what}");
    }
    assert_eq!(ours.0.len(), tonics.0.len());
    for (what, seen) in &ours.0 {
        assert_eq!(Some(seen), tonics.0.get(what), "{what}");
    }
    Ok(())
}
