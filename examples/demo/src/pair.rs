//! A server and a client of it, in one process and apart in everything else.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use farcall::{Channel, ConnectionInfo, ServeError, Server, TransportStats};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use farcall_examples::proto::etcdserverpb::kv_rpc::KvService;
use farcall_examples::{Kv, MESSAGE_LEN_MAX};

/// A connection that is not in the server's list by then never will be.
const LISTED_LIMIT: Duration = Duration::from_secs(10);

/// Between two looks at the list.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// A running server and a channel to it.
#[derive(Debug)]
pub(crate) struct Pair {
    server: Server,
    channel: Channel,
    shutdown: oneshot::Sender<()>,
    serving: JoinHandle<Result<(), ServeError>>,
}

impl Pair {
    /// Serves `address` and connects to it.
    ///
    /// # Errors
    ///
    /// Returns an error if either is not possible.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, the server ends with the runtime.
    pub(crate) async fn start(address: &str) -> Result<Self> {
        let builder = Server::builder().max_message_len(MESSAGE_LEN_MAX);
        let listener = builder.add_service(KvService::new(Kv::default())).bind(address).await?;
        let (address, server) = (listener.local_address().to_string(), listener.server().clone());
        let (shutdown, shut_down) = oneshot::channel::<()>();
        let serving = tokio::spawn(async move {
            listener.serve().with_graceful_shutdown(async { drop(shut_down.await) }).await
        });
        // A configuration of its own: two processes would share nothing either.
        let channel =
            Channel::builder(&address)?.max_message_len(MESSAGE_LEN_MAX).connect().await?;
        let pair = Self { server, channel, shutdown, serving };
        let listed = tokio::time::timeout(LISTED_LIMIT, pair.listed()).await;
        listed.context("the server does not know of its connection")?;
        Ok(pair)
    }

    /// A client is told of its connection a little before the server has it in its list.
    async fn listed(&self) {
        while self.server.connections().is_empty() {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// The client's channel.
    #[must_use]
    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Returns what the client's connection reports about itself.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection has ended.
    pub(crate) fn info(&self) -> Result<ConnectionInfo> {
        self.channel
            .endpoints()
            .into_iter()
            .find_map(|it| it.info)
            .context("the connection has ended")
    }

    /// Returns the counters of both sides: the client's frames, and the bytes that each side
    /// copied.
    ///
    /// # Errors
    ///
    /// Returns an error unless there is exactly one connection.
    pub(crate) fn stats(&self) -> Result<TransportStats> {
        let mut stats = self.info()?.stats;
        match &self.server.connections()[..] {
            [connection] => stats.copied_bytes += connection.stats.copied_bytes,
            others => bail!("the server has {} connections instead of one", others.len()),
        }
        Ok(stats)
    }

    /// Ends both in order.
    ///
    /// # Errors
    ///
    /// Returns an error if the server ends with an error.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, the server ends with the runtime.
    pub(crate) async fn stop(self) -> Result<()> {
        drop(self.channel);
        drop(self.shutdown);
        Ok(self.serving.await??)
    }
}
