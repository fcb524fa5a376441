//! The peer of a script: what it was granted and has granted, and what it says.

use crate::proto::remote_memory::RemoteKey;
use crate::proto::wire::{Grant, MESSAGE_HEADER_LEN, MessageHeader, MessageKind, Rts};
use crate::quota::slots::RESERVE;

/// Number that each side's messages carry.
pub(super) const OUR_EPOCH: u32 = 1;
pub(super) const PEER_EPOCH: u32 = 2;

/// The most that a peer grants ahead of what it has received.
const GRANT_AHEAD: u32 = 8;

/// A frame that the connection has offered to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct OfferedToPeer {
    pub(super) transfer: u32,
    pub(super) key: Option<RemoteKey>,
    pub(super) is_withdrawn: bool,
}

/// The peer's state.
#[derive(Debug)]
pub(super) struct Peer {
    /// Ordinary messages that have come, and credits that were returned with them.
    pub(super) received: u32,
    returned: u32,
    control_received: u16,
    /// Total number of ordinary messages that it allows.
    pub(super) granted: u32,
    /// The part of those that it has announced.
    announced: u32,
    control_announced: u16,
    /// Ordinary messages that it has sent, and credits that it has given back.
    spent: u32,
    control_sent: u16,
    /// Total number of messages that it may send, and the number of its control messages that were
    /// seen.
    allowed: u32,
    control_seen: u16,
    /// Set while it is asked for unused credits.
    pub(super) is_reclaimed: bool,
    given_back: u32,
    pub(super) is_probed: bool,
    pub(super) offers: Vec<OfferedToPeer>,
    /// The transfers that it offers.
    pub(super) offering: Vec<u32>,
    next_transfer: u32,
    /// Set if it has broken a rule that the connection could not check.
    pub(super) has_lied: bool,
}

impl Peer {
    /// A peer that grants so much at first and may send so much.
    pub(super) fn new(granted: u32, allowed: u32) -> Self {
        Self {
            received: 0,
            returned: 0,
            control_received: 0,
            granted,
            announced: granted,
            control_announced: 0,
            spent: 0,
            control_sent: 0,
            allowed,
            control_seen: 0,
            is_reclaimed: false,
            given_back: 0,
            is_probed: false,
            offers: Vec::new(),
            offering: Vec::new(),
            next_transfer: 1,
            has_lied: false,
        }
    }

    /// Takes a message of the connection's. Gives the transfer of an offer, and the address that it
    /// names.
    ///
    /// # Panics
    ///
    /// Panics if that was sent without credit, or grants more than `slots`.
    pub(super) fn receive(
        &mut self,
        message: &[u8],
        key: Option<RemoteKey>,
        slots: u32,
    ) -> Option<(u32, u64)> {
        let (header, body) = MessageHeader::parse(message).expect("a connection writes messages");
        assert_eq!(header.epoch, PEER_EPOCH);
        if header.kind.is_reserved() {
            self.control_received = self.control_received.wrapping_add(1);
        } else {
            self.received += 1;
        }
        if let MessageKind::Return { returned } = header.kind {
            self.received += returned.wrapping_sub(self.returned);
            self.returned = returned;
        }
        let (received, announced) = (self.received, self.announced);
        let Grant { count, control_seen, .. } = header.grant;
        if !self.has_lied {
            let ahead = self.control_received.wrapping_sub(self.control_announced);
            assert!(u32::from(ahead) <= RESERVE, "{ahead} control messages of a reserve");
            assert!(received <= announced, "{received} messages, and credit for {announced}");
            assert!(count >= self.allowed, "a grant is taken back");
            assert!(count - self.spent <= slots, "{} granted of {slots} slots", count - self.spent);
            assert!(control_seen <= self.control_sent, "what was not sent is seen");
        }
        (self.allowed, self.control_seen) = (count, control_seen);
        match header.kind {
            MessageKind::Rts { transfer } | MessageKind::Proof { transfer } => {
                let offer = Rts::parse(body).expect("a connection writes offers");
                assert_eq!(offer.segments.len(), 1);
                self.offers.push(OfferedToPeer { transfer, key, is_withdrawn: false });
                return Some((transfer, offer.segments[0].memory.address));
            }
            MessageKind::Cancel { transfer } => {
                let of = self.offers.iter_mut().filter(|offer| offer.transfer == transfer);
                of.for_each(|offer| offer.is_withdrawn = true);
            }
            MessageKind::Ats { transfer, .. } => {
                let before = self.offering.len();
                self.offering.retain(|offered| *offered != transfer);
                let is_known = self.offering.len() < before || self.has_lied;
                assert!(is_known, "{transfer} is not offered any more");
            }
            MessageKind::Probe => self.is_probed = true,
            MessageKind::Reclaim { .. } => self.is_reclaimed = true,
            _ => {}
        }
        None
    }

    /// Grants more, as far ahead as it does.
    pub(super) fn grant(&mut self, more: u32) {
        self.granted = (self.granted + more).min(self.received + GRANT_AHEAD).max(self.granted);
    }

    /// A message of this kind, if the peer has what it takes.
    pub(super) fn say(&mut self, kind: MessageKind, body: &[u8]) -> Option<Vec<u8>> {
        if kind.is_reserved() {
            let unseen = self.control_sent.wrapping_sub(self.control_seen);
            if u32::from(unseen) >= RESERVE || self.has_lied {
                return None;
            }
            self.control_sent += 1;
        } else {
            if self.spent >= self.allowed || self.has_lied {
                return None;
            }
            self.spent += 1;
        }
        self.announced = self.granted;
        self.control_announced = self.control_received;
        Some(message(kind, self.grant_to_say(self.spent == self.allowed), body))
    }

    /// Gives back what it was asked for and does not use.
    pub(super) fn give_back(&mut self) -> Option<Vec<u8>> {
        self.is_reclaimed = false;
        let excess = (self.allowed - self.spent).checked_sub(1).filter(|excess| *excess > 0)?;
        self.spent += excess - 1;
        self.given_back += excess - 1;
        self.say(MessageKind::Return { returned: self.given_back }, &[])
    }

    fn grant_to_say(&self, wants_more: bool) -> Grant {
        Grant { count: self.announced, control_seen: self.control_announced, wants_more }
    }

    /// The number of its next offer.
    pub(super) fn next_transfer(&mut self) -> u32 {
        self.next_transfer += 1;
        self.next_transfer
    }

    /// A message that keeps no rule, made of these bytes.
    pub(super) fn lie(&self, bytes: &[u8]) -> Vec<u8> {
        let mut message = message(MessageKind::Frame, self.grant_to_say(false), &[]);
        let (head, body) = bytes.split_at(bytes.len().min(6));
        // Each byte of the header's first part, and the low ones of its numbers.
        for (byte, at) in head.iter().zip([0, 1, 2, 8, 12, 13]) {
            message[at] ^= byte;
        }
        message.extend_from_slice(body);
        message
    }
}

fn message(kind: MessageKind, grant: Grant, body: &[u8]) -> Vec<u8> {
    let header = MessageHeader { kind, epoch: OUR_EPOCH, grant }.to_bytes();
    let mut message = Vec::with_capacity(MESSAGE_HEADER_LEN + body.len());
    message.extend_from_slice(&header);
    message.extend_from_slice(body);
    message
}
