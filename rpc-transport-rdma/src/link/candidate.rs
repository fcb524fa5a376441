//! A path whose ends are joined and that is not trusted yet: its proof, and why it failed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use rpc_core::connect::{Bootstrap, Candidate, Declined, Obstacle, PathBinding};
use rpc_core::quota::Charge;
use rpc_core::quota::PeerKey;
use rpc_core::transport::{CloseReason, PathInfo, Transport};
use tokio::time::Instant;

use crate::connection::Connection;
use crate::link::path_memory::{AddressPair, PathMemory};
use crate::link::transport::RdmaTransport;
use crate::proto::connection::ProofStage;
use crate::verbs::Mtu;
use crate::worker::Worker;

/// Maximum time of a path's proof. With the default timeout and retries a queue pair gives up
/// after about half a second, or twice that on a device that stretches its timeouts.
pub(super) const PROOF_TIMEOUT: Duration = Duration::from_secs(3);

/// A path whose ends are joined. Dropped before it is a link, it is torn down.
pub(super) struct ConnectedEnd {
    pub(super) connection: Option<Arc<Connection>>,
    pub(super) worker: Arc<Worker>,
    /// Given back with the verdict, when this becomes a link or is dropped.
    pub(super) _unproven: Option<Charge<PeerKey>>,
    pub(super) path: JoinedPath,
}

/// A path, as its proof describes it.
#[derive(Debug, Clone)]
pub(super) struct JoinedPath {
    pub(super) memory: Arc<PathMemory>,
    /// `None` where the byte stream has no addresses.
    pub(super) pair: Option<AddressPair>,
    pub(super) mtu: Mtu,
    pub(super) slot_len: u32,
    pub(super) info: PathInfo,
}

impl Drop for ConnectedEnd {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.fail(CloseReason::Local);
        }
    }
}

impl JoinedPath {
    /// Records a failed proof, and describes it. `error` is what ended the attempt.
    fn handle_failure(&self, stage: ProofStage, error: &dyn fmt::Display) -> Declined {
        let (mtu, len) = (self.mtu, self.slot_len);
        let text = match stage {
            // Nothing was learned but that nothing comes: the channel's own backoff is enough.
            ProofStage::Probe | ProofStage::Done => error.to_string(),
            ProofStage::Message => format!("small messages pass and {len} bytes do not: {error}"),
            ProofStage::PeerReads => format!("the peer's READs fail: {error}"),
            ProofStage::PeerMessage => format!("{len} bytes of the peer do not arrive: {error}"),
            ProofStage::Reads => format!("READs from the peer fail: {error}"),
            ProofStage::NoMemory => format!("no memory for the proof: {error}"),
            ProofStage::WrongBytes => format!("READs bring wrong bytes: {error}"),
        };
        let loses_packets = !matches!(stage, ProofStage::WrongBytes);
        let says_nothing =
            matches!(stage, ProofStage::Probe | ProofStage::Done | ProofStage::NoMemory);
        let mut text = format!("the path could not be proven: {text}");
        if !says_nothing && let Some(pair) = self.pair {
            let now = Instant::now();
            if self.memory.handle_failure(pair, mtu, loses_packets, &text, now) {
                text = format!(
                    "{text}; the path's MTU may be below {} bytes, and 1024 bytes come next",
                    mtu.bytes()
                );
            }
        }
        Declined::with(Obstacle::Unproven, text)
    }
}

impl Candidate for ConnectedEnd {
    fn bind(&mut self, binding: PathBinding) -> Result<(), Declined> {
        let is_bound = self.connection.as_ref().is_some_and(|connection| connection.bind(binding));
        let text = "a probe arrived before the path could be bound to the TLS session";
        is_bound.then_some(()).ok_or_else(|| Declined::new(text))
    }

    fn prove(&mut self) -> BoxFuture<'_, Result<(), Declined>> {
        Box::pin(async {
            let Some(connection) = &self.connection else {
                return Err(Declined::new("the path is in use"));
            };
            let failed = |error: &dyn fmt::Display| {
                self.path.handle_failure(connection.proof_stage(), error)
            };
            connection.probe().map_err(|error| failed(&error))?;
            tokio::select! {
                // In this order: an end that follows the proof is not the proof's.
                biased;
                () = connection.proven.cancelled() => Ok(()),
                () = connection.ending.cancelled() => Err(failed(&connection.closed())),
                () = tokio::time::sleep(PROOF_TIMEOUT) => {
                    let ms = PROOF_TIMEOUT.as_millis();
                    let missing = match connection.proof_stage() {
                        ProofStage::Probe => "no answer to a probe",
                        _ => "nothing",
                    };
                    Err(failed(&format_args!("{missing} within {ms} ms")))
                }
            }
        })
    }

    fn is_probed(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.is_probed())
    }

    fn into_transport(mut self: Box<Self>, bootstrap: Box<dyn Bootstrap>) -> Box<dyn Transport> {
        match self.connection.take() {
            Some(connection) => {
                let (worker, info) = (Arc::clone(&self.worker), self.path.info);
                Box::new(RdmaTransport::new(connection, bootstrap, worker, info))
            }
            None => bootstrap.into_transport(),
        }
    }
}
