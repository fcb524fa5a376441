//! The end of a connection that this side has closed: the peer reads everything sent before.
//!
//! Closing a socket with unread bytes resets the connection. The reset discards data that the peer
//! has not read yet.

use std::future::poll_fn;
use std::io::{self, IoSliceMut};
use std::time::Duration;

use crate::connection::shared::ConnectionShared;
use crate::connection::socket::{Moved, Socket};

/// Maximum wait for the peer to close its side.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of bytes read and discarded: more than the sockets of both sides hold. A peer
/// that keeps sending would otherwise occupy a core for all of [`TIMEOUT`].
const LEN_MAX: usize = 16 << 20;

/// Length of one read in bytes.
const READ_LEN: usize = 16 << 10;

impl<S: Socket> ConnectionShared<S> {
    /// Shuts down this side's direction, and discards the peer's bytes, within limits, until it has
    /// closed.
    pub(crate) async fn linger(&self) {
        let _ = tokio::time::timeout(TIMEOUT, self.read_rest()).await;
    }

    async fn read_rest(&self) {
        if poll_fn(|cx| self.socket.poll_end_writing(cx)).await.is_err() {
            return;
        }
        let (mut sink, mut read_len) = (self.pool.take(READ_LEN), 0);
        while read_len < LEN_MAX && poll_fn(|cx| self.socket.poll_readable(cx)).await.is_ok() {
            match self.socket.try_read(&mut [IoSliceMut::new(&mut sink)]) {
                Ok(Moved { len: 0, .. }) => return,
                Ok(Moved { len, .. }) => {
                    read_len += len;
                    // Data that is always ready would keep this loop from yielding to the runtime.
                    tokio::task::consume_budget().await;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rpc_core::pool::Pool;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::UnixStream;

    use super::*;
    use crate::connection::transport::SocketTransport;

    /// Far longer than anything here takes.
    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_peer_that_keeps_sending_is_left_after_16_mib() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let sending = tokio::spawn(async move {
            let (chunk, mut sent) = (vec![7; 64 << 10], 0_u64);
            while theirs.write_all(&chunk).await.is_ok() {
                sent += chunk.len() as u64;
            }
            sent
        });
        let shared = SocketTransport::new(ours, Pool::new(0)).shared;
        tokio::time::timeout(LIMIT, shared.read_rest()).await.unwrap();
        drop(shared);
        let sent = tokio::time::timeout(LIMIT, sending).await.unwrap().unwrap();
        assert!((LEN_MAX as u64..2 * LEN_MAX as u64).contains(&sent), "{sent}");
    }
}
