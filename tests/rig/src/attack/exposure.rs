//! Behavior of a client that a hostile server, or a blocking handler, can make expensive.

use std::io;
use std::time::Duration;

use clap::ValueEnum;
use farcall::resolve::{Dns, DnsName, Scheme};
use farcall::{Address, Channel, ChannelBuilder};
use farcall_testkit::name_server::resolver_at;

use super::tally::{Group, SharedTally};
use farcall_suite::SharedSettings;
use farcall_suite::proto::probe_rpc::ProbeStub;
use farcall_suite::proto::relay_rpc::RelayStub;
use farcall_suite::proto::{DownloadRequest, EchoRequest};

/// The name that a hostile name server tells of, and that of its service.
pub(super) const NAME: &str = "shop.test.";
pub(super) const SERVICE_NAME: &str = "_farcall._tcp.shop.test.";

/// Between two calls. A caller that does not wait between failures is what backoff is for; without
/// any pause the client's own processor would bound the attempts.
const PAUSE: Duration = Duration::from_millis(1);

/// Between two connections that are made for one call each.
const CONNECTION_PAUSE: Duration = Duration::from_millis(100);

/// Timeout of a call.
const LIMIT: Duration = Duration::from_secs(60);

/// A client's behavior.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Exposure {
    /// Makes calls, one after the other, over one channel.
    Calls,
    /// Makes a connection for each call, and lets the server choose the path.
    Connections,
    /// Begins a download, reads one message, and then nothing more.
    Download,
    /// `Calls` over HTTP/2.
    GrpcCalls,
    /// `GrpcCalls` where each call must end with the status of a proxy's page.
    Proxy,
    /// Makes a channel to the targets of a service that a name server tells, and one call.
    Targets,
    /// Makes a channel to the addresses that a name server tells, and one call.
    Addresses,
    /// Calls the honest server's handler that blocks, over a connection of other calls.
    Block,
}

impl Exposure {
    /// Its name on the command line.
    pub(super) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// A client that is about to expose itself.
#[derive(Debug)]
pub(super) struct Exposed {
    pub(super) exposure: Exposure,
    /// Host and port of the hostile server.
    pub(super) hostile: String,
    /// A connection to the honest server, with calls of its own.
    pub(super) honest: Channel,
    pub(super) settings: SharedSettings,
    pub(super) tally: SharedTally,
}

impl Exposed {
    /// Goes on for ever.
    pub(super) async fn run(self) {
        match self.exposure {
            Exposure::Calls => self.keep_calling(Address::Tcp).await,
            Exposure::GrpcCalls => self.keep_calling(Address::Grpc).await,
            Exposure::Proxy => self.keep_calling_proxy().await,
            Exposure::Targets => self.resolve(None).await,
            Exposure::Addresses => self.resolve(Some(9)).await,
            Exposure::Connections => self.keep_connecting().await,
            Exposure::Download => self.download().await,
            Exposure::Block => self.keep_blocking().await,
        }
    }

    async fn keep_calling(self, scheme: fn(String) -> Address) {
        let channel =
            self.settings.channel(ChannelBuilder::new(scheme(self.hostile))).connect_lazy();
        let stub = ProbeStub::new(channel).with_timeout(LIMIT);
        loop {
            let call = async { to_result(stub.echo(EchoRequest::default()).await) };
            self.tally.count(Group::Exposed, call).await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn keep_calling_proxy(self) {
        let builder = self.settings.channel(ChannelBuilder::new(Address::Grpc(self.hostile)));
        let stub = ProbeStub::new(builder.connect_lazy()).with_timeout(LIMIT);
        loop {
            let call = async {
                match stub.echo(EchoRequest::default()).await {
                    Err(status) if is_of_proxy(&status) => Ok(()),
                    other => Err(format!("not a proxy's page: {other:?}")),
                }
            };
            self.tally.count(Group::Exposed, call).await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Resolves by the hostile name server, and stays idle.
    async fn resolve(self, port: Option<u16>) {
        let resolver = self.hostile.parse().map_err(io::Error::other).and_then(resolver_at);
        let Ok(resolver) = resolver else { return };
        let dns = Dns::with_resolver(resolver, DnsName::new(NAME, port, Scheme::Tcp));
        let channel = self.settings.channel(ChannelBuilder::new(Address::Tcp(self.hostile)));
        let stub = ProbeStub::new(channel.connect_with_resolver(dns)).with_timeout(LIMIT);
        let call = async { to_result(stub.echo(EchoRequest::default()).await) };
        self.tally.count(Group::Exposed, call).await;
        // Kept, and not used.
        std::future::pending::<()>().await;
        drop(stub);
    }

    async fn keep_connecting(self) {
        loop {
            let builder = ChannelBuilder::new(Address::Auto(self.hostile.clone()));
            let channel = self.settings.channel(builder).connect_lazy();
            let stub = ProbeStub::new(channel).with_timeout(LIMIT);
            let call = async { to_result(stub.echo(EchoRequest::default()).await) };
            self.tally.count(Group::Exposed, call).await;
            tokio::time::sleep(CONNECTION_PAUSE).await;
        }
    }

    async fn download(self) {
        let stub = ProbeStub::new(
            self.settings.channel(ChannelBuilder::new(Address::Tcp(self.hostile))).connect_lazy(),
        );
        let mut stream = None;
        let begin = async {
            let begun = stub.download(DownloadRequest::default()).await;
            let mut messages = begun.map_err(|status| status.to_string())?.into_inner();
            let first = messages.message().await.map(drop).map_err(|status| status.to_string());
            stream = Some(messages);
            first
        };
        self.tally.count(Group::Exposed, begin).await;
        // Kept, and not read.
        std::future::pending::<()>().await;
        drop(stream);
    }

    async fn keep_blocking(self) {
        let stub = RelayStub::new(self.honest).with_timeout(LIMIT);
        loop {
            let call = async { to_result(stub.ask(EchoRequest::default()).await) };
            self.tally.count(Group::Exposed, call).await;
        }
    }
}

/// Returns true if a status is what gRPC makes of `503`, with a piece of the page.
fn is_of_proxy(status: &farcall::Status) -> bool {
    let message = status.message();
    status.code() == farcall::Code::Unavailable
        && message.contains("HTTP 503")
        && message.contains("Service Unavailable")
        && !message.contains('\x1b')
}

fn to_result<T>(result: Result<T, farcall::Status>) -> Result<(), String> {
    result.map(drop).map_err(|status| status.to_string())
}
