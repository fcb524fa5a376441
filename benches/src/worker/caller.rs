//! One call after the other: the calls of an asynchronous subject, and what makes them.

use std::future::Future;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use tokio::task::JoinHandle;

use super::load::{Load, Operation};
use super::quota::Quota;
use super::tally::Tally;

/// A connection of an asynchronous subject, by its calls. Each returns how many bytes came back, so
/// that what did not do its work is noticed.
pub trait Client: Clone + Sized + 'static {
    /// Sends a payload and gets it back.
    fn echo(&self, payload: Bytes) -> impl Future<Output = Result<usize>>;

    /// Sends a payload.
    fn upload(&self, payload: Bytes) -> impl Future<Output = Result<()>>;

    /// Gets a payload.
    fn download(&self, len: usize) -> impl Future<Output = Result<usize>>;

    /// Gets payloads as long as `quota` wants more, counting them there, and ends the stream.
    fn feed(&self, len: usize, quota: &mut Quota) -> impl Future<Output = Result<()>>;

    /// Runs a caller as a task: `tokio::spawn(caller.run())`, or `spawn_local` for what has to stay
    /// on its thread. Whether the future may go to another thread is known only where this is
    /// implemented.
    fn spawn(caller: Caller<Self>) -> JoinHandle<Result<Tally>>;
}

/// Makes calls one after the other, over connections that take turns.
#[derive(Debug, Clone)]
pub struct Caller<C> {
    /// One, or several where there are more connections than calls in flight.
    clients: Vec<C>,
    /// Index of the connection to use next.
    next: usize,
    load: Load,
    payload: Bytes,
    quota: Quota,
}

impl<C: Client> Caller<C> {
    pub(super) fn new(clients: Vec<C>, load: Load, payload: Bytes, quota: Quota) -> Self {
        Self { clients, next: 0, load, payload, quota }
    }

    /// The connection to use next.
    pub(crate) fn client(&self) -> Result<&C> {
        self.clients.get(self.next).context("a caller without a connection")
    }

    /// Makes the calls.
    ///
    /// # Errors
    ///
    /// Returns an error if one fails, or brings back something of another length.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the call that it waits for.
    pub async fn run(mut self) -> Result<Tally> {
        let mut tally = Tally::new()?;
        if self.load.operation == Operation::Feed {
            let client = self.client()?.clone();
            client.feed(self.load.size, &mut self.quota).await?;
            tally.add_messages(self.quota.done());
            return Ok(tally);
        }
        let mut begun = Instant::now();
        while self.quota.wants_call(begun) {
            let after =
                || format!("a call failed after {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
            let len = self.call().await.with_context(after)?;
            self.next = if self.next + 1 < self.clients.len() { self.next + 1 } else { 0 };
            ensure!(len == self.load.size, "{len} bytes came back, not {}", self.load.size);
            let ended = Instant::now();
            tally.add_calls(ended - begun, 1)?;
            self.quota.add(1);
            begun = ended;
        }
        Ok(tally)
    }

    async fn call(&self) -> Result<usize> {
        let (client, size) = (self.client()?, self.load.size);
        match self.load.operation {
            Operation::Echo => client.echo(self.payload.clone()).await,
            Operation::Download => client.download(size).await,
            Operation::Upload | Operation::Feed => {
                client.upload(self.payload.clone()).await.map(|()| size)
            }
        }
    }
}
