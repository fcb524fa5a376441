//! A limit on what all peers of a server have together, and what each of them may have of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tonic::Status;

use super::peer_key::PeerKey;
use crate::calls::saturation::Saturation;
use crate::quota::{Bound, Charge, Quota, Refusal, Share};
use crate::transport::Addresses;

/// A limit on calls or connections.
#[derive(Debug)]
pub(super) struct PeerLimit {
    names: Names,
    quota: Arc<Quota<PeerKey>>,
    bound: Bound,
    saturation: Mutex<Saturation>,
    /// The same as the saturation says, for those who take and find room.
    is_full: AtomicBool,
}

/// What a limit is called.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names {
    /// What is counted.
    pub(super) what: &'static str,
    /// The setting for all peers together.
    pub(super) setting: &'static str,
    /// The setting for one of them.
    pub(super) peer_setting: &'static str,
}

/// Counts towards a limit. Dropped, it counts no longer.
pub(super) type Permit = Charge<PeerKey>;

/// What one peer may have of a limit, and has.
#[derive(Debug)]
pub(crate) struct PeerShare {
    limit: Arc<PeerLimit>,
    share: Arc<Share<PeerKey>>,
}

impl PeerLimit {
    /// A limit of `max`. A peer may have `per_peer` of it, or, if that is not set, what is free
    /// and at least `floor`.
    pub(super) fn new(names: Names, max: usize, per_peer: Option<usize>, floor: u64) -> Arc<Self> {
        let bound = match per_peer {
            Some(count) => Bound::Fixed(count as u64),
            None => Bound::Dynamic { floor },
        };
        let (quota, saturation) = (Quota::new(max as u64), Mutex::default());
        Arc::new(Self { names, quota, bound, saturation, is_full: AtomicBool::new(false) })
    }

    /// The share of the peer at `addresses`. A peer without an address has no share, only the
    /// limit itself: all such peers would be one.
    pub(super) fn share(self: &Arc<Self>, addresses: &Addresses) -> PeerShare {
        let key = PeerKey::of(addresses);
        let bound = match key {
            PeerKey::Local => Bound::Fixed(u64::MAX),
            PeerKey::V4(_) | PeerKey::V6(_) => self.bound,
        };
        PeerShare { limit: Arc::clone(self), share: self.quota.share(key, bound) }
    }

    /// Logs, if it is time to, that the limit keeps something from `peer`, or from an unknown one.
    pub(super) fn refused(&self, peer: Option<PeerKey>) {
        let refused_count = {
            let mut saturation = self.saturation.lock().unwrap_or_else(PoisonError::into_inner);
            self.is_full.store(true, Ordering::Relaxed);
            saturation.handle_refusal(Instant::now())
        };
        let Some(refused_count) = refused_count else { return };
        let Names { what, setting, peer_setting } = self.names;
        let (max, total) = (self.quota.max(), self.quota.total());
        let (most_of, most) = match self.quota.largest() {
            Some((key, held)) => (key.to_string(), held),
            None => (String::new(), 0),
        };
        let peer = peer.map(tracing::field::display);
        tracing::warn!(
            setting,
            peer_setting,
            max,
            total,
            most_of,
            most,
            peer,
            refused_count,
            "the limit on {what} is reached",
        );
    }

    /// Logs, if it is time to, that the limit has room again.
    fn taken(&self) {
        if !self.is_full.load(Ordering::Relaxed) {
            return;
        }
        let refused_count = {
            let mut saturation = self.saturation.lock().unwrap_or_else(PoisonError::into_inner);
            let refused_count = saturation.handle_taken(Instant::now());
            self.is_full.store(saturation.is_full(), Ordering::Relaxed);
            refused_count
        };
        if let Some(refused_count) = refused_count {
            let Names { what, setting, .. } = self.names;
            tracing::warn!(setting, refused_count, "the limit on {what} has room again");
        }
    }
}

impl PeerShare {
    /// Takes a place.
    ///
    /// # Errors
    ///
    /// When there is none, or none for this peer, with the limit and how to raise it.
    pub(super) fn try_take(&self) -> Result<Permit, Status> {
        match self.share.try_take(1) {
            Ok(permit) => {
                self.limit.taken();
                Ok(permit)
            }
            Err(refusal) => Err(self.refuse(refusal)),
        }
    }

    /// Looks whether there is a place.
    ///
    /// # Errors
    ///
    /// As [`PeerShare::try_take`].
    pub(super) fn check(&self) -> Result<(), Status> {
        if self.share.admits(1) {
            return Ok(());
        }
        let (held, quota) = (self.share.held(), self.share.quota());
        Err(self.refuse(Refusal { held, total: quota.total(), max: quota.max() }))
    }

    fn refuse(&self, Refusal { held, total, max }: Refusal) -> Status {
        self.limit.refused(Some(*self.share.key()));
        let Names { what, setting, peer_setting } = self.limit.names;
        Status::resource_exhausted(if total >= max {
            format!("the server has {total} {what} already, and {max} are its limit ({setting})")
        } else {
            format!(
                "the server has {total} {what}, of at most {max} ({setting}), and {held} of them \
                 are this peer's, which is its share ({peer_setting})"
            )
        })
    }
}
