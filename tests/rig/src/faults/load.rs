//! Calls of every kind over every column, one after the other, until they are told to stop.
//!
//! Calls have no deadline: that they end is the transport's doing. What does not end within
//! [`CALL_LIMIT`] is given up, and counts as endless.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use farcall::{Address, Channel, ChannelBuilder, ConnectionInfo};
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::call::{CallEnd, Caller, Kind};
use super::column::Column;
use super::config::{rdma, settings};
use super::sample::Sample;
use crate::RigError;
use crate::conductor::wait::until;
use crate::failures::Failures;
use farcall_suite::OneServer as _;
use farcall_suite::proto::probe_rpc::ProbeStub;

/// Beyond what any row allows.
const CALL_LIMIT: Duration = Duration::from_secs(45);

/// After a failure the next call waits, as a sensible client would.
const PAUSE: Duration = Duration::from_millis(50);

/// Number of answers of each kind, before anything is broken, that show that all is well.
const ANSWERS_FIRST: usize = 2;

/// The bound on those; on emulated processors a connection takes a second.
const FIRST_LIMIT: Duration = Duration::from_secs(60);

/// The calls of all columns.
#[derive(Debug)]
pub(super) struct Load {
    lanes: Vec<(Column, Channel)>,
    seen: Arc<Seen>,
    workers: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Seen {
    stop: AtomicBool,
    samples: Mutex<Vec<Sample>>,
    failures: Failures,
}

impl Load {
    /// Starts calling the server at `authority`, over one column after another. On emulated
    /// processors the server's search for its devices takes a second or more, and clients that come
    /// during another's search wait for 2 s at most.
    pub(super) fn start(
        runtime: &Handle,
        authority: &str,
        columns: &[Column],
    ) -> Result<Self, RigError> {
        let _entered = runtime.enter();
        let mut load = Self { lanes: Vec::new(), seen: Arc::default(), workers: Vec::new() };
        for &column in columns {
            let channel = channel(column, authority)?;
            for kind in Kind::ALL {
                let seed = ((column as u64) << 8) | kind as u64;
                let caller = Caller::new(ProbeStub::new(channel.clone()), kind, seed);
                let seen = Arc::clone(&load.seen);
                load.workers.push(runtime.spawn(work(caller, column, kind, seen)));
            }
            load.lanes.push((column, channel));
            load.until_answered()?;
        }
        Ok(load)
    }

    /// Waits for the first answers of every kind.
    fn until_answered(&self) -> Result<Duration, RigError> {
        let answered = until("answers to calls of every kind", FIRST_LIMIT, || {
            let samples = self.seen.samples();
            let answers = |column: Column, kind: Kind| {
                let mine = |sample: &&Sample| {
                    (sample.column, sample.kind, sample.end) == (column, kind, CallEnd::Answered)
                };
                samples.iter().filter(mine).count()
            };
            let columns = self.lanes.iter().map(|(column, _)| *column);
            let mut pairs = columns.flat_map(|column| Kind::ALL.map(|kind| (column, kind)));
            Ok(pairs.all(|(column, kind)| answers(column, kind) >= ANSWERS_FIRST))
        });
        answered.inspect_err(|_| self.failures().iter().for_each(|text| println!("  {text}")))
    }

    /// Returns the samples so far.
    pub(super) fn samples(&self) -> Vec<Sample> {
        self.seen.samples().clone()
    }

    /// Returns the messages of calls that failed.
    pub(super) fn failures(&self) -> Vec<String> {
        self.seen.failures.shown()
    }

    /// Returns the connection info of a column.
    pub(super) fn info(&self, column: Column) -> Option<ConnectionInfo> {
        let lane = self.lanes.iter().find(|(other, _)| *other == column);
        lane.and_then(|(_, channel)| channel.info())
    }

    /// Returns true if a column uses its proper transport.
    pub(super) fn is_home(&self, column: Column) -> bool {
        self.info(column).is_some_and(|info| info.transport == column.transport())
    }

    /// Lets the calls in flight end, and starts no more.
    pub(super) fn stop(&mut self) -> Result<(), RigError> {
        self.seen.stop.store(true, Ordering::Relaxed);
        // A worker gives up a call that does not end, and so ends itself.
        let limit = CALL_LIMIT + Duration::from_secs(10);
        until("the end of the calls in flight", limit, || {
            Ok(self.workers.iter().all(JoinHandle::is_finished))
        })?;
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.workers.iter().for_each(JoinHandle::abort);
    }
}

impl Seen {
    fn samples(&self) -> MutexGuard<'_, Vec<Sample>> {
        self.samples.lock()
    }
}

/// A channel that connects at its first call, with devices of its own.
pub(super) fn channel(column: Column, authority: &str) -> Result<Channel, RigError> {
    let address = format!("{}://{authority}", column.scheme());
    let address: Address = address
        .parse()
        .map_err(|_| RigError::Unexpected { role: "server", line: authority.to_owned() })?;
    let builder = settings().channel(ChannelBuilder::new(address)).rdma(&rdma(authority));
    Ok(builder.connect_lazy())
}

async fn work(mut caller: Caller, column: Column, kind: Kind, seen: Arc<Seen>) {
    while !seen.stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let ended = tokio::time::timeout(CALL_LIMIT, caller.call()).await;
        let (end, text) = ended.unwrap_or((CallEnd::Endless, None));
        seen.samples().push(Sample { column, kind, began, ended: Instant::now(), end });
        if let Some(text) = text {
            seen.failures.add(format!("{column}: {}", without_ports(&text)));
        }
        if end != CallEnd::Answered {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// The message without the ports of its connections.
fn without_ports(fields: &str) -> String {
    let mut pieces = fields.split(':');
    let mut shown = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        shown.push(':');
        let rest = piece.trim_start_matches(|c: char| c.is_ascii_digit());
        shown.push_str(if rest.len() < piece.len() { "N" } else { "" });
        shown.push_str(rest);
    }
    shown
}

/// The other client's role: calls over RDMA for as long as the process lives, and says when calls
/// of all kinds have been answered.
///
/// # Errors
///
/// Returns an error if they are not.
pub fn run_for_ever(runtime: &Handle, authority: &str) -> Result<(), RigError> {
    let _load = Load::start(runtime, authority, &[Column::Rdma])?;
    println!("calling");
    loop {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_that_differ_in_ports_alone_are_said_once() {
        let shown = without_ports("with 10.0.0.1:39608 <-> 10.0.1.1:1: rdma: no 2");
        assert_eq!(shown, "with 10.0.0.1:N <-> 10.0.1.1:N: rdma: no 2");
        assert_eq!(without_ports(""), "");
    }
}
