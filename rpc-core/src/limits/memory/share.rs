//! One connection's share of its server's memory budget.

use std::fmt;
use std::sync::{Arc, OnceLock};

use tonic::Status;

use super::machine;
use crate::limits::peer_key::PeerKey;
use crate::limits::quota::{Bound, Charge};
use crate::limits::shared::{LimitShare, Names, SharedLimit};

/// What a connection may hold although less is free: a stream's window by default, so that one
/// that was opened can go on.
const FLOOR: u64 = 256 << 10;

/// Which part of the memory that the process may use is the default budget: as much again is what
/// handlers make of it, and half of the machine is left to the application.
const DEFAULT_PART: u64 = 4;

/// Who holds memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum MemoryHolder {
    /// All handshakes together.
    Handshakes,
    /// A connection, which has a number because an address may have many.
    Connection {
        /// Its number.
        number: u64,
        /// Its peer.
        peer: PeerKey,
    },
}

impl fmt::Display for MemoryHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handshakes => f.write_str("handshakes"),
            Self::Connection { peer, .. } => write!(f, "a connection of {peer}"),
        }
    }
}

/// The budget of a server: `max` bytes, or a quarter of what the process may use.
pub(crate) fn memory_limit(max: Option<u64>) -> Arc<SharedLimit<MemoryHolder>> {
    let names = Names {
        what: "bytes of queued and received messages",
        setting: "server.max_memory",
        holder: "this connection's",
        share_setting: None,
    };
    SharedLimit::new(names, memory_max(max))
}

/// `max` bytes, or a quarter of what the process may use.
pub(crate) fn memory_max(max: Option<u64>) -> u64 {
    static DEFAULT: OnceLock<u64> = OnceLock::new();
    let default = || *DEFAULT.get_or_init(|| machine::usable() / DEFAULT_PART);
    max.unwrap_or_else(default)
}

/// What one connection may hold of its server's memory budget. A client's connection has none, and
/// may hold what its own limits allow.
#[derive(Debug, Clone, Default)]
pub struct MemoryShare {
    share: Option<Arc<LimitShare<MemoryHolder>>>,
}

/// Bytes that count towards a budget. Dropped, they count no longer.
#[derive(Debug, Default)]
#[must_use]
pub struct MemoryCharge {
    charge: Option<Charge<MemoryHolder>>,
}

impl MemoryShare {
    /// The share of a holder.
    pub(crate) fn new(limit: &Arc<SharedLimit<MemoryHolder>>, holder: MemoryHolder) -> Self {
        let share = limit.share(holder, Bound::Dynamic { floor: FLOOR });
        Self { share: Some(Arc::new(share)) }
    }

    /// The share of the only holder of a budget, which the tests of a transport charge.
    #[doc(hidden)]
    #[must_use]
    pub fn of_budget(max: u64) -> Self {
        Self::new(&memory_limit(Some(max)), MemoryHolder::Handshakes)
    }

    /// Looks whether `len` more bytes fit.
    ///
    /// # Errors
    ///
    /// When they do not, with the limit and how to raise it.
    pub fn check(&self, len: u64) -> Result<(), Status> {
        self.share.as_ref().map_or(Ok(()), |share| share.check(len))
    }

    /// Counts `len` bytes, if they fit.
    ///
    /// # Errors
    ///
    /// As [`MemoryShare::check`]; then nothing is counted.
    pub fn try_take(&self, len: u64) -> Result<MemoryCharge, Status> {
        let charge = self.share.as_ref().map(|share| share.try_take(len)).transpose()?;
        Ok(MemoryCharge { charge })
    }

    /// Makes a charge of this share `len` bytes if it grows into what is to spare: half of the
    /// budget stays free for others. Where nothing is counted, it always may.
    pub(crate) fn try_grow(&self, charge: &mut MemoryCharge, len: u64) -> bool {
        let Some(share) = &self.share else { return true };
        // Another holder may grow between the check and the charge. Then the two of them leave less
        // than half of the budget free, by one window at most.
        let may_grow = share.has_spare(len.saturating_sub(charge.len()));
        if may_grow {
            charge.set(len);
        }
        may_grow
    }

    /// Counts `len` bytes that exist already, whether they fit or not.
    pub fn take(&self, len: u64) -> MemoryCharge {
        MemoryCharge { charge: self.share.as_ref().map(|share| share.take(len)) }
    }
}

impl MemoryCharge {
    /// The bytes that count.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.charge.as_ref().map_or(0, Charge::amount)
    }

    /// Whether nothing counts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes it `len` bytes, whether they fit or not.
    pub fn set(&mut self, len: u64) {
        if let Some(charge) = &mut self.charge {
            charge.set(len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_a_part_of_what_there_is() {
        let max = memory_limit(None).max();
        println!("the default budget here: {} MiB", max >> 20);
        assert!(max >= 16 << 20 && max <= machine::usable() / 2);
    }

    #[test]
    fn a_connection_is_refused_by_name_and_what_exists_is_counted() {
        let limit = memory_limit(Some(8 << 20));
        let holder = |number| MemoryHolder::Connection { number, peer: PeerKey::Local };
        let [one, other] = [1, 2].map(|number| MemoryShare::new(&limit, holder(number)));
        let kept = one.try_take(4 << 20).unwrap();
        let refused = one.try_take(1).unwrap_err();
        assert!(refused.message().contains("(server.max_memory)"), "{refused}");
        assert!(other.check(2 << 20).is_ok());
        let mut existing = one.take(1 << 20);
        existing.set(5 << 20);
        assert_eq!(limit.total(), 9 << 20);
        assert!(other.check(0).is_err(), "new calls are refused");
        drop((kept, existing));
        assert_eq!(limit.total(), 0);
    }

    #[test]
    fn a_client_is_not_bounded() {
        let share = MemoryShare::default();
        assert!(share.check(u64::MAX).is_ok());
        assert!(share.try_take(u64::MAX).unwrap().is_empty());
    }
}
