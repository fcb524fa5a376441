//! The orders that all connections of an assault share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::peer::{Peer, Reading, Record};
use crate::attack::Scale;

/// Maximum time for a peer to send everything. A victim that stops reading delays it, which is a
/// valid defence.
pub(super) const SENDING_LIMIT: Duration = Duration::from_secs(20);

/// The orders that all connections of an assault share.
#[derive(Debug, Clone)]
pub(super) struct Orders {
    pub(super) victim: SocketAddr,
    pub(super) scale: Scale,
    pub(super) record: Arc<Record>,
}

impl Orders {
    /// A connection after its Hello.
    pub(super) async fn greeted(&self, hello: &[u8], reading: Reading) -> std::io::Result<Peer> {
        let mut peer = Peer::connect(self.victim, reading, &self.record).await?;
        match peer.greet(hello).await {
            Ok(()) => Ok(peer),
            Err(error) => {
                peer.count_closed();
                Err(error)
            }
        }
    }

    /// Sends in bounded time, and then stays until the victim closes.
    pub(super) async fn send_and_stay(
        &self,
        mut peer: Peer,
        parts: impl Iterator<Item = Vec<u8>>,
    ) -> Option<Peer> {
        let sending = async {
            for part in parts {
                peer.flood(&part).await?;
            }
            Ok::<_, std::io::Error>(())
        };
        match tokio::time::timeout(SENDING_LIMIT, sending).await {
            Ok(Err(_)) => {
                peer.count_closed();
                None
            }
            Ok(Ok(())) | Err(_) => Some(peer),
        }
    }
}
