//! What both sides' drivers do about pings.

use tokio::time::Instant;

use crate::calls::keepalive::{Pinged, Traffic};
use crate::transport::Transport;
use crate::wire::{FrameHeader, FrameKind, ProtocolError};

/// What a transport has counted, as far as it is a sign of life.
pub(crate) fn traffic<T: Transport>(transport: &T) -> Traffic {
    let stats = transport.stats();
    Traffic { sent_count: stats.sent_count, received_bytes: stats.received_bytes }
}

/// Asks the peer for a sign of life.
pub(crate) fn ping<T: Transport>(transport: &T, number: u64) {
    send(transport, FrameKind::Ping, number);
}

/// Answers a ping of the peer, unless an answer is waiting to be sent already.
pub(crate) fn answer<T: Transport>(
    transport: &T,
    pinged: &mut Pinged,
    ping: &FrameHeader,
) -> Result<(), ProtocolError> {
    if pinged.handle_ping(Instant::now().into_std(), traffic(transport))? {
        send(transport, FrameKind::Pong, ping.argument);
    }
    Ok(())
}

fn send<T: Transport>(transport: &T, kind: FrameKind, number: u64) {
    let mut header = FrameHeader::bare(kind, 0);
    header.argument = number;
    // A connection that is closed has nobody to tell.
    let _ = transport.send_control(header.to_bytes());
}
