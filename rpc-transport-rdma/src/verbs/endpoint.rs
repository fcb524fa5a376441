//! What two queue pairs must know of each other, and the parameters of their path.
//!
//! Pure values: how an [`Endpoint`] travels to the peer is not decided here.

use super::{Gid, LinkLayer, Mtu, VerbsError};

/// Numbers of queue pairs and packets have 24 bits.
pub(super) const NUMBER_24_MAX: u32 = 0x00ff_ffff;

/// One end of a connection as its peer needs to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// Number of the queue pair, 24 bits.
    pub queue_pair_number: u32,
    /// Sequence number of its first packet, 24 bits.
    pub packet_sequence_number: u32,
    /// The port's GID.
    pub gid: Gid,
    /// The port's LID; 0 on Ethernet.
    pub lid: u16,
    /// The largest path MTU that the port can have now.
    pub mtu: Mtu,
    /// READs that it can have outstanding in either direction.
    pub reads_max: u8,
    /// What carries the port's packets.
    pub link_layer: LinkLayer,
}

/// What two endpoints agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreement {
    /// The path MTU.
    pub mtu: Mtu,
    /// READs that may be outstanding in each direction.
    pub reads_max: u8,
}

/// How a connection waits and retries.
///
/// The defaults let a dead peer be noticed within about half a second: the acknowledgement timeout
/// is 4.096 us x 2^14 = 67 ms, tried seven times (devices may stretch it up to fourfold).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Acknowledgement timeout: 4.096 us x 2^this. 1 to 31; 14 by default.
    pub timeout: u8,
    /// Retries after a missing acknowledgement. 1 to 6; 6 by default, so that loss of a few per
    /// cent does not end a connection. 7 is refused: on Soft-RoCE it means for ever, and a dead
    /// peer would never be noticed.
    pub retry_count: u8,
    /// Retries when the peer has no receive posted. 0 to 7; 7, the default, means for ever,
    /// because one greedy client must not end the others' connections on a shared queue.
    pub rnr_retry: u8,
    /// How long a sender waits when we have no receive posted, as verbs numbers it. 1 to 31; 12,
    /// the default, is 0.64 ms. 0 is refused: it means 655 ms.
    pub rnr_timer: u8,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self { timeout: 14, retry_count: 6, rnr_retry: 7, rnr_timer: 12 }
    }
}

/// Everything that a provider needs to connect a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathAttributes {
    /// The port that is used here.
    pub port: u8,
    /// Position of the GID in that port's table.
    pub gid_index: u8,
    /// Sequence number of our first packet.
    pub packet_sequence_number: u32,
    /// The peer.
    pub remote: Endpoint,
    /// What was agreed on.
    pub agreement: Agreement,
    /// How to wait and retry.
    pub options: ConnectOptions,
}

/// Why a queue pair could not be connected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The peer's endpoint has a value that cannot be.
    #[error("the peer's endpoint has an invalid {field}: {value}")]
    InvalidEndpoint {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u32,
    },
    /// One end is on InfiniBand and the other on Ethernet.
    #[error("the link layers differ: {local:?} here, {remote:?} at the peer")]
    LinkLayerMismatch {
        /// Here.
        local: LinkLayer,
        /// There.
        remote: LinkLayer,
    },
    /// An option is outside its range.
    #[error("connect option {option} is {value}, which is not in {min}..={max}")]
    InvalidOption {
        /// The option.
        option: &'static str,
        /// Its value.
        value: u8,
        /// The smallest value.
        min: u8,
        /// The largest value.
        max: u8,
    },
    /// The queue pair was connected or halted before.
    #[error("the queue pair has been connected or halted before")]
    NotInitial,
    /// The device refused.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
}

impl ConnectOptions {
    /// Checks that each option is in its range.
    pub(super) fn check(&self) -> Result<(), ConnectError> {
        let ranges = [
            ("timeout", self.timeout, 1, 31),
            ("retry_count", self.retry_count, 1, 6),
            ("rnr_retry", self.rnr_retry, 0, 7),
            ("rnr_timer", self.rnr_timer, 1, 31),
        ];
        for (option, value, min, max) in ranges {
            if !(min..=max).contains(&value) {
                return Err(ConnectError::InvalidOption { option, value, min, max });
            }
        }
        Ok(())
    }
}

impl Endpoint {
    /// What this end and its peer can both do.
    ///
    /// # Errors
    ///
    /// [`ConnectError::InvalidEndpoint`] or [`ConnectError::LinkLayerMismatch`] when the peer's
    /// values, which came over the network, cannot be.
    pub fn agree(&self, remote: &Self) -> Result<Agreement, ConnectError> {
        let invalid = |field, value| Err(ConnectError::InvalidEndpoint { field, value });
        let number = remote.queue_pair_number;
        if number == 0 || number > NUMBER_24_MAX {
            return invalid("queue pair number", number);
        }
        if remote.packet_sequence_number > NUMBER_24_MAX {
            return invalid("packet sequence number", remote.packet_sequence_number);
        }
        if remote.reads_max == 0 {
            return invalid("number of READs", 0);
        }
        if self.link_layer != remote.link_layer {
            let (local, remote) = (self.link_layer, remote.link_layer);
            return Err(ConnectError::LinkLayerMismatch { local, remote });
        }
        if remote.link_layer == LinkLayer::InfiniBand && remote.lid == 0 {
            return invalid("LID", 0);
        }
        Ok(Agreement {
            mtu: self.mtu.min(remote.mtu),
            reads_max: self.reads_max.min(remote.reads_max),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint() -> Endpoint {
        Endpoint {
            queue_pair_number: 17,
            packet_sequence_number: 5,
            gid: Gid::default(),
            lid: 0,
            mtu: Mtu::B4096,
            reads_max: 16,
            link_layer: LinkLayer::Ethernet,
        }
    }

    #[test]
    fn both_ends_agree_on_the_smaller_values() {
        let remote = Endpoint { mtu: Mtu::B1024, reads_max: 4, ..endpoint() };
        let agreement = endpoint().agree(&remote).unwrap();
        assert_eq!(agreement, Agreement { mtu: Mtu::B1024, reads_max: 4 });
        assert_eq!(remote.agree(&endpoint()).unwrap(), agreement);
    }

    #[test]
    fn an_impossible_endpoint_is_refused() {
        let bad = [
            Endpoint { queue_pair_number: 0, ..endpoint() },
            Endpoint { queue_pair_number: 1 << 24, ..endpoint() },
            Endpoint { packet_sequence_number: 1 << 24, ..endpoint() },
            Endpoint { reads_max: 0, ..endpoint() },
            Endpoint { link_layer: LinkLayer::InfiniBand, lid: 3, ..endpoint() },
        ];
        for remote in bad {
            assert!(endpoint().agree(&remote).is_err(), "{remote:?}");
        }
    }

    #[test]
    fn an_infinite_retry_count_and_the_slow_timer_are_refused() {
        ConnectOptions::default().check().unwrap();
        let seven = ConnectOptions { retry_count: 7, ..Default::default() };
        assert!(seven.check().unwrap_err().to_string().contains("retry_count is 7"));
        assert!(ConnectOptions { rnr_timer: 0, ..Default::default() }.check().is_err());
    }
}
