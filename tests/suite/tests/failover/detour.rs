//! An upgraded path that a test can cut and mend: queues inside the process, offered as an upgrade
//! of whatever byte stream a connection starts on.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use rpc_core::connect::{Bootstrap, Candidate, Declined, PathBinding, PendingOffer, Upgrade};
use rpc_core::handoff::Handoff;
use rpc_core::transport::{
    Addresses, Admission, CloseReason, Counters, Delivery, Handler, OutFrame, Transport,
    TransportError, TransportStats,
};
use rpc_core::wire::{HEADER_LEN, ProtocolError};
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The words of a path that was cut.
pub(crate) const CUT: &str = "the cable was cut";

/// Time in which the proof of a cut path fails.
pub(crate) const PROOF_LIMIT: Duration = Duration::from_secs(3);

/// Frames from this length on are announced, as on any transport.
const LARGE_LEN: usize = 64 << 10;

/// The cable. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Detour {
    shared: Arc<Cable>,
}

#[derive(Debug, Default)]
struct Cable {
    is_cut: watch::Sender<bool>,
    /// Ends that were offered and wait for the server.
    offered: Mutex<HashMap<u64, DetourEnd>>,
    offers: AtomicU64,
    /// Proofs under way at this moment.
    proving: AtomicUsize,
}

impl Detour {
    /// Ends what runs over the cable, and lets nothing over it any more.
    pub(crate) fn cut(&self) {
        self.shared.is_cut.send_replace(true);
    }

    /// Lets new paths over the cable.
    pub(crate) fn mend(&self) {
        self.shared.is_cut.send_replace(false);
    }

    /// Returns the number of paths offered so far.
    pub(crate) fn offers(&self) -> u64 {
        self.shared.offers.load(Ordering::Relaxed)
    }

    /// Returns the number of paths that are being proven now.
    pub(crate) fn proving(&self) -> usize {
        self.shared.proving.load(Ordering::Relaxed)
    }

    fn candidate(&self, end: DetourEnd) -> Joined {
        Joined { end, cable: Arc::clone(&self.shared) }
    }
}

impl Upgrade for Detour {
    fn name(&self) -> &'static str {
        "detour"
    }

    fn offer(&self, _: &Addresses) -> Result<Box<dyn PendingOffer>, Declined> {
        let (ours, theirs) = pair(&self.shared.is_cut);
        let number = self.shared.offers.fetch_add(1, Ordering::Relaxed);
        self.shared.offered.lock().insert(number, theirs);
        Ok(Box::new(Offered { number, joined: self.candidate(ours) }))
    }

    fn accept(
        &self,
        _: &Addresses,
        offer: &[u8],
    ) -> Result<(Vec<u8>, Box<dyn Candidate>), Declined> {
        let number = offer.try_into().map(u64::from_le_bytes);
        let number = number.map_err(|_| Declined::new("no number"))?;
        let end = self.shared.offered.lock().remove(&number);
        let end = end.ok_or_else(|| Declined::new("the client has not offered that"))?;
        Ok((Vec::new(), Box::new(self.candidate(end))))
    }
}

struct Offered {
    number: u64,
    joined: Joined,
}

impl PendingOffer for Offered {
    fn blob(&self) -> Vec<u8> {
        self.number.to_le_bytes().to_vec()
    }

    fn connect(self: Box<Self>, _: &[u8]) -> Result<Box<dyn Candidate>, Declined> {
        Ok(Box::new(self.joined))
    }
}

struct Joined {
    end: DetourEnd,
    cable: Arc<Cable>,
}

/// Counts a proof until it is dropped.
struct Proving<'a>(&'a AtomicUsize);

impl Drop for Proving<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Candidate for Joined {
    fn bind(&mut self, _: PathBinding) -> Result<(), Declined> {
        // The two ends are in one process, which no other peer can join.
        Ok(())
    }

    fn prove(&mut self) -> BoxFuture<'_, Result<(), Declined>> {
        Box::pin(async move {
            self.cable.proving.fetch_add(1, Ordering::Relaxed);
            let _proving = Proving(&self.cable.proving);
            if *self.cable.is_cut.borrow() {
                tokio::time::sleep(PROOF_LIMIT).await;
                return Err(Declined::new("no answer"));
            }
            Ok(())
        })
    }

    fn is_probed(&self) -> bool {
        // The two ends are in one process, and a proof takes no message.
        true
    }

    fn into_transport(self: Box<Self>, bootstrap: Box<dyn Bootstrap>) -> Box<dyn Transport> {
        *self.end.bootstrap.lock() = Some(bootstrap);
        Box::new(self.end)
    }
}

/// One end of a path.
struct DetourEnd {
    outgoing: UnboundedSender<Bytes>,
    incoming: Mutex<Option<UnboundedReceiver<Bytes>>>,
    bootstrap: Mutex<Option<Box<dyn Bootstrap>>>,
    is_cut: watch::Receiver<bool>,
    shared: Arc<SharedEnd>,
}

#[derive(Default)]
struct SharedEnd {
    counters: Counters,
    close: CancellationToken,
    aborted: OnceLock<CloseReason>,
}

fn pair(is_cut: &watch::Sender<bool>) -> (DetourEnd, DetourEnd) {
    let (to_server, from_client) = mpsc::unbounded_channel();
    let (to_client, from_server) = mpsc::unbounded_channel();
    let end = |outgoing, incoming| DetourEnd {
        outgoing,
        incoming: Mutex::new(Some(incoming)),
        bootstrap: Mutex::default(),
        is_cut: is_cut.subscribe(),
        shared: Arc::default(),
    };
    (end(to_server, from_server), end(to_client, from_client))
}

impl DetourEnd {
    fn push(&self, frame: Bytes) -> Result<(), TransportError> {
        let closed = |reason| Err(TransportError::Closed { reason });
        if self.shared.close.is_cancelled() {
            return closed(CloseReason::Local);
        }
        if *self.is_cut.borrow() {
            return closed(CloseReason::Failed(CUT.into()));
        }
        self.shared.counters.sent_count.add(1);
        self.outgoing.send(frame).or_else(|_| closed(CloseReason::Peer))
    }
}

impl Transport for DetourEnd {
    fn name(&self) -> &'static str {
        "detour"
    }

    fn start(&self, handler: Arc<dyn Handler>) {
        let incoming = self.incoming.lock().take();
        let bootstrap = self.bootstrap.lock().take();
        let (incoming, bootstrap) = incoming.zip(bootstrap).expect("it is started once");
        let (is_cut, shared) = (self.is_cut.clone(), Arc::clone(&self.shared));
        tokio::spawn(async move {
            let reason = receive(incoming, bootstrap, is_cut, &shared, &*handler).await;
            shared.close.cancel();
            handler.handle_closed(reason);
        });
    }

    fn try_send(&self, frame: OutFrame<'_>) -> Result<bool, TransportError> {
        let mut memory = vec![0; frame.len()];
        frame.write(&mut memory)?;
        self.push(memory.into()).map(|()| true)
    }

    fn send<'a>(&'a self, frame: OutFrame<'a>) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move { self.try_send(frame).map(drop) })
    }

    fn send_control(&self, header: [u8; HEADER_LEN]) -> Result<(), TransportError> {
        self.push(Bytes::copy_from_slice(&header))
    }

    fn close(&self) {
        self.shared.close.cancel();
    }

    fn abort(&self, reason: CloseReason) {
        // The first end has said why.
        let _ = self.shared.aborted.set(reason);
        self.shared.close.cancel();
    }

    fn stats(&self) -> TransportStats {
        self.shared.counters.snapshot()
    }
}

impl fmt::Debug for DetourEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DetourEnd").finish_non_exhaustive()
    }
}

/// Delivers until the path or one of its ends is over. The bootstrap is closed with this end.
async fn receive(
    mut incoming: UnboundedReceiver<Bytes>,
    mut bootstrap: Box<dyn Bootstrap>,
    mut is_cut: watch::Receiver<bool>,
    shared: &SharedEnd,
    handler: &dyn Handler,
) -> CloseReason {
    let mut byte = [0];
    let mut peer = std::pin::pin!(bootstrap.read(&mut byte));
    loop {
        let frame = tokio::select! {
            biased;
            _ = is_cut.wait_for(|is_cut| *is_cut) => return CloseReason::Failed(CUT.into()),
            () = shared.close.cancelled() => {
                return shared.aborted.get().cloned().unwrap_or(CloseReason::Local);
            }
            frame = incoming.recv() => frame,
            _ = &mut peer => return CloseReason::Peer,
        };
        let Some(frame) = frame else { return CloseReason::Peer };
        shared.counters.received_bytes.add(frame.len() as u64);
        if let Err(error) = deliver(frame, handler) {
            return error.into();
        }
    }
}

fn deliver(frame: Bytes, handler: &dyn Handler) -> Result<(), ProtocolError> {
    let prefix = frame.first_chunk().filter(|_| frame.len() >= LARGE_LEN);
    let mut handoff = Handoff::none();
    let Some(prefix) = prefix else {
        return handler.handle_frame(frame, Delivery::Whole, &mut handoff);
    };
    match handler.handle_announced(prefix, frame.len() as u64)? {
        Admission::Accept { .. } => handler.handle_frame(frame, Delivery::Announced, &mut handoff),
        Admission::Refuse => Ok(()),
    }
}
