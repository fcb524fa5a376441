//! Pings and pongs, the same for both roles.

use tokio::time::Instant;

use crate::policy::keepalive::{PingLimiter, Traffic};
use crate::transport::Transport;
use crate::wire::{FrameHeader, FrameKind, ProtocolError};

/// What a transport has counted, as far as it is a sign of life.
pub(crate) fn traffic<T: Transport>(transport: &T) -> Traffic {
    let stats = transport.stats();
    Traffic { sent_count: stats.sent_count, received_bytes: stats.received_bytes }
}

/// Sends a ping.
pub(crate) fn send<T: Transport>(transport: &T, number: u64) {
    send_control(transport, FrameKind::Ping, number);
}

/// Whether a ping of the peer is to be answered: not while an answer is waiting to be sent.
///
/// # Errors
///
/// When there are too many.
pub(crate) fn handle_ping<T: Transport>(
    transport: &T,
    ping_limiter: &mut PingLimiter,
) -> Result<bool, ProtocolError> {
    ping_limiter.handle_ping(Instant::now().into_std(), traffic(transport))
}

/// Answers a ping. Nothing may be locked that its sessions' methods lock: what the transport lets
/// go of while it sends may be the application's, whose destructor may ask for the connection.
pub(crate) fn answer<T: Transport>(transport: &T, ping: &FrameHeader) {
    send_control(transport, FrameKind::Pong, ping.argument);
}

fn send_control<T: Transport>(transport: &T, kind: FrameKind, number: u64) {
    let mut header = FrameHeader::bare(kind, 0);
    header.argument = number;
    // A closed connection has no peer to tell.
    let _ = transport.send_control(header.to_bytes());
}
