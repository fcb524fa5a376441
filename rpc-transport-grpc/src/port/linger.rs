//! The end of a connection: its client hears of it before the socket is closed.
//!
//! A socket that is closed with bytes unread resets its connection, and the reset throws away what
//! its client has not read: an answer, or the GOAWAY that says why. So this side ends its own
//! direction alone, reads on, and closes the socket when its client has, or when a bound is
//! reached.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::stream::LeftStream;

/// Longest wait for a client to close. It is due a round trip after it hears of the end.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Longest wait for a client that has not answered within [`LEAVING_TIMEOUT`].
///
/// [`LEAVING_TIMEOUT`]: super::connection::LEAVING_TIMEOUT
const SILENT_TIMEOUT: Duration = Duration::from_millis(500);

/// Most that is read and thrown away, in bytes: more than the sockets on both sides hold.
const LEN_MAX: usize = 16 << 20;

/// Length of one read in bytes.
const READ_LEN: usize = 16 << 10;

/// Waits for the client to close the stream, within bounds.
pub(super) async fn linger(left: LeftStream, is_silent: bool) {
    let LeftStream { mut stream, is_shut_down } = left;
    let closed_by_client = async {
        if !is_shut_down && stream.shutdown().await.is_err() {
            return;
        }
        let (mut sink, mut read_len) = (vec![0; READ_LEN], 0);
        while read_len < LEN_MAX {
            match stream.read(&mut sink).await {
                Ok(0) | Err(_) => return,
                Ok(len) => read_len += len,
            }
            tokio::task::consume_budget().await;
        }
    };
    // A client that stays is closed all the same.
    let _ = timeout(if is_silent { SILENT_TIMEOUT } else { TIMEOUT }, closed_by_client).await;
}
