//! What a client does that a hostile server, or a handler that blocks, can make dear.

use std::time::Duration;

use clap::ValueEnum;
use farcall::{Address, Channel, ChannelBuilder, Config};

use super::tally::{Group, SharedTally};
use crate::proto::probe_rpc::ProbeStub;
use crate::proto::relay_rpc::RelayStub;
use crate::proto::{DownloadRequest, EchoRequest};

/// Between two calls. A caller that does not wait between failures is what backoff is for; without
/// any pause the client's own processor would bound the attempts.
const PAUSE: Duration = Duration::from_millis(1);

/// Between two connections that are made for one call each.
const CONNECTION_PAUSE: Duration = Duration::from_millis(100);

/// What a call may take.
const LIMIT: Duration = Duration::from_secs(60);

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Exposure {
    /// Makes calls, one after the other, over one channel.
    Calls,
    /// Makes a connection for each call, and lets the server choose the path.
    Connections,
    /// Begins a download, reads one message, and then nothing more.
    Download,
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
    pub(super) config: Config,
    pub(super) tally: SharedTally,
}

impl Exposed {
    /// Goes on for ever.
    pub(super) async fn run(self) {
        match self.exposure {
            Exposure::Calls => self.keep_calling().await,
            Exposure::Connections => self.keep_connecting().await,
            Exposure::Download => self.download().await,
            Exposure::Block => self.keep_blocking().await,
        }
    }

    async fn keep_calling(self) {
        let channel =
            ChannelBuilder::new(Address::Tcp(self.hostile)).config(&self.config).connect_lazy();
        let stub = ProbeStub::new(channel.with_timeout(LIMIT));
        loop {
            let call = async { to_result(stub.echo(EchoRequest::default()).await) };
            self.tally.count(Group::Exposed, call).await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn keep_connecting(self) {
        loop {
            let channel = ChannelBuilder::new(Address::Auto(self.hostile.clone()))
                .config(&self.config)
                .connect_lazy();
            let stub = ProbeStub::new(channel.with_timeout(LIMIT));
            let call = async { to_result(stub.echo(EchoRequest::default()).await) };
            self.tally.count(Group::Exposed, call).await;
            tokio::time::sleep(CONNECTION_PAUSE).await;
        }
    }

    async fn download(self) {
        let stub = ProbeStub::new(
            ChannelBuilder::new(Address::Tcp(self.hostile)).config(&self.config).connect_lazy(),
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
        let stub = RelayStub::new(self.honest.with_timeout(LIMIT));
        loop {
            let call = async { to_result(stub.ask(EchoRequest::default()).await) };
            self.tally.count(Group::Exposed, call).await;
        }
    }
}

fn to_result<T>(result: Result<T, farcall::Status>) -> Result<(), String> {
    result.map(drop).map_err(|status| status.to_string())
}
