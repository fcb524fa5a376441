//! A path whose ends are joined and that is not trusted yet: its proof, and why it failed.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use rpc_core::connect::{Bootstrap, Candidate, Declined, Obstacle, PathBinding};
use rpc_core::quota::Charge;
use rpc_core::quota::PeerKey;
use rpc_core::transport::{CloseReason, PathInfo, Transport, TransportError};
use tokio::time::Instant;

use crate::connection::Connection;
use crate::link::path_memory::{AddressPair, PathMemory};
use crate::link::transport::RdmaTransport;
use crate::proto::connection::ProofStage;
use crate::verbs::{CompletionError, Mtu, WorkStatus};
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

/// The meaning of a failed proof for the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Evidence {
    /// Packets get lost, and smaller ones may not.
    Loss,
    /// The path, or its peer, is wrong with any MTU.
    Defect,
    /// This host or its device ended the attempt.
    Nothing,
}

impl Evidence {
    /// Judges the end of a connection that was being proven.
    fn from_end(reason: &CloseReason) -> Self {
        let failed = match reason {
            CloseReason::Protocol(_) => return Self::Defect,
            CloseReason::Failed(failed) => failed,
            _ => return Self::Nothing,
        };
        // Without a cause it is a timeout of the peer's.
        let Some(cause) = failed.source() else { return Self::Loss };
        match cause.downcast_ref().map(|error: &CompletionError| error.status) {
            // A flush may overtake the failure that it follows.
            Some(WorkStatus::RetryExceeded | WorkStatus::Flushed) => Self::Loss,
            Some(
                WorkStatus::BadResponse
                | WorkStatus::RemoteInvalidRequest
                | WorkStatus::RemoteAccess
                | WorkStatus::RemoteOperation,
            ) => Self::Defect,
            _ => Self::Nothing,
        }
    }
}

impl JoinedPath {
    /// Records a failed proof, and describes it. `error` is what ended the attempt.
    fn handle_failure(
        &self,
        stage: ProofStage,
        evidence: Evidence,
        error: &dyn fmt::Display,
    ) -> Declined {
        let (mtu, len) = (self.mtu, self.slot_len);
        let evidence = match stage {
            // Nothing was learned but that nothing comes: the channel's own backoff is enough.
            ProofStage::Probe | ProofStage::Done | ProofStage::NoMemory => Evidence::Nothing,
            ProofStage::WrongBytes => Evidence::Defect,
            _ => evidence,
        };
        let text = match stage {
            ProofStage::NoMemory => format!("no memory for the proof: {error}"),
            _ if evidence == Evidence::Nothing => error.to_string(),
            ProofStage::Probe | ProofStage::Done => error.to_string(),
            ProofStage::Message => format!("small messages pass and {len} bytes do not: {error}"),
            ProofStage::PeerReads => format!("the peer's READs fail: {error}"),
            ProofStage::PeerMessage => format!("{len} bytes of the peer do not arrive: {error}"),
            ProofStage::Reads => format!("READs from the peer fail: {error}"),
            ProofStage::WrongBytes => format!("READs bring wrong bytes: {error}"),
        };
        let mut text = format!("the path could not be proven: {text}");
        if evidence != Evidence::Nothing
            && let Some(pair) = self.pair
        {
            let (now, loses_packets) = (Instant::now(), evidence == Evidence::Loss);
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
            let ended = |error: TransportError| {
                let evidence = match &error {
                    TransportError::Closed { reason } => Evidence::from_end(reason),
                    _ => Evidence::Nothing,
                };
                self.path.handle_failure(connection.proof_stage(), evidence, &error)
            };
            connection.probe().map_err(ended)?;
            tokio::select! {
                // In this order: an end that follows the proof is not the proof's.
                biased;
                () = connection.proven.cancelled() => Ok(()),
                () = connection.ending.cancelled() => Err(ended(connection.closed())),
                () = tokio::time::sleep(PROOF_TIMEOUT) => {
                    let ms = PROOF_TIMEOUT.as_millis();
                    let stage = connection.proof_stage();
                    let missing = match stage {
                        ProofStage::Probe => "no answer to a probe",
                        _ => "nothing",
                    };
                    let text = format!("{missing} within {ms} ms");
                    Err(self.path.handle_failure(stage, Evidence::Loss, &text))
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

#[cfg(test)]
mod tests {
    use rpc_core::Reason;

    use super::*;
    use crate::verbs::{Gid, PostError, RawCompletion};
    use crate::{AsyncEventKind, DeviceEvent};

    fn failed(cause: impl Error + Send + Sync + 'static) -> CloseReason {
        CloseReason::Failed(Reason::new("it failed", cause))
    }

    fn work(status: u32) -> CloseReason {
        let raw = RawCompletion { status, ..RawCompletion::default() };
        failed(crate::verbs::Completion::from_raw(&raw).error().unwrap())
    }

    #[test]
    fn only_the_path_and_its_peer_are_held_against_a_pair() {
        let violation = rpc_core::wire::ProtocolError::Invalid { what: "kind", value: 9 };
        let (flushed, remote_access, retries_exceeded, bind, fatal) = (5, 10, 12, 6, 19);
        for (reason, expected) in [
            (work(retries_exceeded), Evidence::Loss),
            (work(flushed), Evidence::Loss),
            (CloseReason::Failed("the peer did not answer a READ".into()), Evidence::Loss),
            (work(remote_access), Evidence::Defect),
            (violation.into(), Evidence::Defect),
            (work(bind), Evidence::Nothing),
            (work(fatal), Evidence::Nothing),
            (failed(PostError::NotReady), Evidence::Nothing),
            (failed(DeviceEvent::new(AsyncEventKind::DeviceFatal)), Evidence::Nothing),
            (failed(DeviceEvent::new(AsyncEventKind::GidChange)), Evidence::Nothing),
            (CloseReason::Local, Evidence::Nothing),
            (CloseReason::RuntimeEnded, Evidence::Nothing),
        ] {
            assert_eq!(Evidence::from_end(&reason), expected, "{reason:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_counts_by_its_stage_and_evidence() {
        for (stage, evidence, expected) in [
            (ProofStage::Message, Evidence::Loss, Ok(Mtu::B1024)),
            (ProofStage::PeerReads, Evidence::Nothing, Ok(Mtu::B4096)),
            (ProofStage::Probe, Evidence::Loss, Ok(Mtu::B4096)),
            (ProofStage::NoMemory, Evidence::Loss, Ok(Mtu::B4096)),
            (ProofStage::Reads, Evidence::Defect, Err(())),
            (ProofStage::WrongBytes, Evidence::Loss, Err(())),
        ] {
            let pair = AddressPair { local: Gid::default(), peer: [10, 0, 0, 2].into() };
            let path = JoinedPath {
                memory: Arc::default(),
                pair: Some(pair),
                mtu: Mtu::B4096,
                slot_len: 4352,
                info: PathInfo::new(4096, 0),
            };
            let declined = path.handle_failure(stage, evidence, &"it ended");
            assert!(declined.reason.contains("it ended"), "{declined}");
            let known = path.memory.mtu_max(pair, Instant::now()).map_err(drop);
            assert_eq!(known, expected, "{stage:?} {evidence:?}");
        }
    }
}
