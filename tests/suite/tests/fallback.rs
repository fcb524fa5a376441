//! Connections that stay on TCP where there is no RDMA: each says why, once in the log and when
//! asked.

mod log;

use farcall::{Channel, ChannelBuilder, ConnectErrorKind, Server};
use farcall_suite::OneServer as _;
use farcall_suite::proto::EchoRequest;
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub};
use farcall_suite::{Failure, Probe, payload};
use log::Log;
use tokio::sync::Mutex;

/// Held by each test, because a log that is captured on one thread may miss a line that another
/// thread writes for the first time at that moment.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Returns the reasons of this host: loopback has no RDMA device, whatever other devices there are.
fn here() -> &'static [&'static str] {
    &[
        "rdma: this host: there is no RDMA device",
        "rdma: this host: no active RDMA port has the address 127.0.0.1",
        "rdma: this host: cannot list RDMA devices",
        "rdma: this host: libibverbs.so.1 is not installed",
    ]
}

fn is_reason(reason: &str, expected: &[&str]) -> bool {
    expected.iter().any(|expected| reason.starts_with(expected))
}

/// Starts a server and gives its host and port. It starts at `rdma://` without a device, too.
async fn serve(scheme: &str) -> Result<String, Failure> {
    let address = format!("{scheme}://127.0.0.1:0");
    let (probe, _watch) = Probe::new();
    let builder = Server::builder().rdma_required(false).add_service(ProbeService::new(probe));
    let listener = builder.bind(&address).await?;
    let address = listener.local_address().to_string();
    tokio::spawn(listener.serve());
    Ok(address.replacen(&format!("{scheme}://"), "", 1))
}

async fn echo(channel: &Channel) -> Result<(), Failure> {
    let sent = payload(1, 100_000);
    let request = EchoRequest { payload: sent.clone(), ..Default::default() };
    let reply = ProbeStub::new(channel.clone()).echo(request).await?.into_inner();
    assert_eq!(reply.payload, sent);
    Ok(())
}

#[tokio::test]
async fn auto_without_a_device_runs_over_tcp_and_says_why_once() -> Result<(), Failure> {
    let _alone = ALONE.lock().await;
    let (log, _capturing) = Log::capture();
    let authority = serve("auto").await?;
    let channel = Channel::connect(format!("auto://{authority}")).await?;
    for _ in 0..3 {
        echo(&channel).await?;
    }
    let info = channel.info().expect("it is connected");
    let reason = info.fallback.expect("there is a reason");
    assert_eq!(info.transport, "tcp");
    assert!(is_reason(&reason, here()), "{reason}");
    // Without a device nothing is wrong, and another test of this process may have had the line.
    let is_fault = !reason.contains("no RDMA device") && !reason.contains("not installed");
    let lines = log.all_lines();
    let lines: Vec<_> = lines.iter().filter(|it| it.contains(" connected over TCP")).collect();
    assert!(lines.len() == 1 || (lines.is_empty() && !is_fault), "{lines:#?}");
    for line in lines {
        assert_eq!(line.contains("WARN"), is_fault, "{line}");
        assert!(line.contains(&reason) && line.contains(&authority), "{line}");
    }
    Ok(())
}

#[tokio::test]
async fn rdma_without_a_device_is_an_error_that_says_why() -> Result<(), Failure> {
    let _alone = ALONE.lock().await;
    let (log, _capturing) = Log::capture();
    let authority = serve("rdma").await?;
    let refused = Channel::connect(format!("rdma://{authority}")).await;
    let Err(error) = refused else { panic!("{refused:?}") };
    let text = error.to_string();
    assert_eq!(error.kind(), ConnectErrorKind::RdmaRequired, "{error:?}");
    let (address, reason) =
        text.split_once(": rdma is required but not possible: ").expect("a reason");
    assert!(is_reason(&format!("rdma: {reason}"), here()), "{reason}");
    assert!(address.contains(&authority), "{text}");
    assert!(log.take_lines().iter().all(|line| !line.contains("without RDMA")), "{log:?}");
    Ok(())
}

#[tokio::test]
async fn required_rdma_fails_a_call_with_the_reason() -> Result<(), Failure> {
    let _alone = ALONE.lock().await;
    let authority = serve("auto").await?;
    let address = format!("rdma://{authority}").parse().expect("an address");
    let stub = ProbeStub::new(ChannelBuilder::new(address).connect_lazy());
    let status = stub.echo(EchoRequest::default()).await.expect_err("there is no device");
    assert_eq!(status.code(), farcall::Code::Unavailable);
    let is_said = |reason: &&str| status.message().contains(reason.trim_start_matches("rdma: "));
    assert!(here().iter().any(is_said), "{status}");
    Ok(())
}

#[tokio::test]
async fn a_tcp_address_tries_nothing_and_has_nothing_to_say() -> Result<(), Failure> {
    let _alone = ALONE.lock().await;
    let (log, _capturing) = Log::capture();
    let authority = serve("auto").await?;
    let channel = Channel::connect(format!("tcp://{authority}")).await?;
    echo(&channel).await?;
    let info = channel.info().expect("it is connected");
    assert_eq!((info.transport, info.fallback), ("tcp", None));
    assert!(log.lines().is_empty(), "{log:?}");
    Ok(())
}

/// A client with a device gets this answer from a server without RDMA. This host may have no
/// device, so the offer is made by hand.
mod server_without_rdma {
    use std::sync::Arc;

    use farcall_suite::raw_peer::RawPeer;
    use rpc_core::client::ClientConfig;
    use rpc_core::connect::{Candidate, Declined, PendingOffer, Upgrade, UpgradePolicy};
    use rpc_core::transport::Addresses;
    use rpc_core::wire::hello::{self, Hello, Offer};
    use rpc_transport_tcp::TcpConnector;

    use super::*;

    const REASON: &str = "not offered at the address where it listens";

    /// A client's side of RDMA as far as the offer.
    #[derive(Debug)]
    struct Offered;

    impl Upgrade for Offered {
        fn name(&self) -> &'static str {
            "rdma"
        }

        fn offer(&self, _: &Addresses) -> Result<Box<dyn PendingOffer>, Declined> {
            Ok(Box::new(Self))
        }

        fn accept(
            &self,
            _: &Addresses,
            _: &[u8],
        ) -> Result<(Vec<u8>, Box<dyn Candidate>), Declined> {
            Err(Declined::new("a client accepts nothing"))
        }
    }

    impl PendingOffer for Offered {
        fn blob(&self) -> Vec<u8> {
            b"a queue pair".to_vec()
        }

        fn connect(self: Box<Self>, _: &[u8]) -> Result<Box<dyn Candidate>, Declined> {
            Err(Declined::new("the server accepted"))
        }
    }

    fn connector(authority: &str, policy: UpgradePolicy) -> TcpConnector {
        TcpConnector::new(authority.to_owned(), ClientConfig { policy, ..Default::default() })
    }

    #[tokio::test]
    async fn a_client_that_would_like_rdma_falls_back() -> Result<(), Failure> {
        let _alone = ALONE.lock().await;
        let (log, _capturing) = Log::capture();
        let authority = serve("tcp").await?;
        let policy = UpgradePolicy::Prefer(vec![Arc::new(Offered)]);
        let channel = rpc_core::Channel::connect(connector(&authority, policy)).await?.into();
        echo(&channel).await?;
        let info = channel.info().expect("it is connected");
        assert_eq!(
            (info.transport, info.fallback),
            (
                "tcp",
                Some(format!("rdma: the server: {REASON}; not tried again on this connection"))
            )
        );
        // One line of the client and one of the server, which here share a log. The call was
        // answered, so that both have been written.
        let lines = log.lines();
        assert_eq!(lines.len(), 2, "{lines:#?}");
        assert!(lines.iter().all(|line| line.contains("WARN") && line.contains(REASON)));
        Ok(())
    }

    #[tokio::test]
    async fn a_client_that_requires_rdma_fails() -> Result<(), Failure> {
        let _alone = ALONE.lock().await;
        let authority = serve("tcp").await?;
        let policy = UpgradePolicy::Require(Arc::new(Offered));
        match rpc_core::Channel::connect(connector(&authority, policy)).await {
            Err(error) if error.kind() == ConnectErrorKind::RdmaRequired => {
                let reason = format!("not possible: the server: {REASON}");
                assert!(error.to_string().ends_with(&reason), "{error}");
            }
            other => panic!("{other:?}"),
        }
        Ok(())
    }

    #[tokio::test]
    async fn an_offer_that_makes_no_sense_is_declined_with_a_reason() -> Result<(), Failure> {
        let _alone = ALONE.lock().await;
        let authority = serve("auto").await?;
        let mut peer = RawPeer::connect(&authority).await?;
        let blob = bytes::Bytes::from_static(b"\xff no blob \xff");
        let offers = vec![Offer { name: "rdma".to_owned(), blob }];
        let hello = Hello { offers, ..Hello::new(&farcall::Limits::default()) };
        peer.send(&hello::encode(&hello).expect("a short Hello")).await?;
        let answer = peer.read_hello().await?;
        assert_eq!(answer.accepted, None);
        let [declined] = &answer.declined[..] else { panic!("{answer:?}") };
        let text = "the peer's blob does not decode";
        let reason = declined.reason();
        assert!(declined.is_about("rdma") && reason.as_str().contains(text), "{declined:?}");
        Ok(())
    }
}
