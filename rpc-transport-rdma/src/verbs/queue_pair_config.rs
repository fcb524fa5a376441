//! The size of a queue pair, and what it comes to on a port.

use std::hash::{BuildHasher, Hasher, RandomState};

use super::{Attachment, Endpoint, LinkLayer, Port, ReadDepths, VerbsError, WorkId};
use crate::sys::provider::{NUMBER_24_MAX, QueueIdentity};

/// Size and name of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePairConfig {
    /// Requests in flight at most, 1 to 16382; 256 by default.
    pub send_depth: u32,
    /// Messages up to this length are copied when posting, if the device can. 124 by default: with
    /// that a request takes 320 bytes of libmlx5's queue, and 448 with 220.
    pub inline_max: u32,
    /// READs outstanding at most in each direction; 16 by default.
    pub reads_max: u8,
    /// Tag of its completions, at most [`WorkId::TAG_MAX`]; 0 by default.
    pub tag: u32,
}

impl Default for QueuePairConfig {
    fn default() -> Self {
        Self { send_depth: 256, inline_max: 124, reads_max: 16, tag: 0 }
    }
}

impl QueuePairConfig {
    /// Completions that may wait at a time: those of all requests and of the drain WR.
    pub(super) fn completions(&self) -> u32 {
        self.send_depth + 1
    }

    /// Checks a configuration against the device and the format of work ids.
    pub(super) fn check(
        &self,
        attachment: &Attachment,
        port: &Port,
    ) -> Result<QueueIdentity, VerbsError> {
        if !attachment.device().is_same(&port.device) {
            return Err(VerbsError::ForeignObject { what: "the port" });
        }
        // Less one for the drain WR, and positions must outnumber what is in flight.
        let device_max = port.device.attributes().send_depth_max.saturating_sub(1);
        let max = device_max.min(u32::from(WorkId::POSITIONS) - 2);
        if self.send_depth == 0 || self.send_depth > max {
            let wanted = self.send_depth.into();
            return Err(VerbsError::LimitExceeded { what: "send depth", wanted, max: max.into() });
        }
        QueueIdentity::new(self.tag)
    }

    /// This end as the peer needs to know it, with a random first packet number.
    pub(crate) fn local_endpoint(&self, queue_pair_number: u32, port: &Port) -> Endpoint {
        let device = port.device.attributes();
        // A new hasher is seeded at random; that is enough for a number which only has to differ
        // from the last connection's, so that its late packets are not taken for ours.
        #[allow(clippy::cast_possible_truncation)]
        let random = RandomState::new().build_hasher().finish() as u32;
        Endpoint {
            queue_pair_number,
            packet_sequence_number: random & NUMBER_24_MAX,
            gid: port.gid,
            lid: port.attributes.lid,
            mtu: port.attributes.active_mtu,
            reads: ReadDepths::Apart {
                responder: self.reads_max.min(device.reads_in_max),
                initiator: self.reads_max.min(device.reads_out_max),
            },
            link_layer: port.attributes.link_layer,
            partition_key: match port.attributes.link_layer {
                LinkLayer::InfiniBand => Some(port.attributes.partition.key),
                LinkLayer::Ethernet => None,
            },
            needs_global_route: port.attributes.needs_global_route,
        }
    }
}
