//! The end of a connection: the client learns of it before the socket closes.
//!
//! Closing a socket with unread bytes resets its connection. The reset discards data that the
//! client has not read yet, such as an answer, or the GOAWAY with the reason. This side therefore
//! shuts down only its own direction, reads on, and closes the socket once the client has closed it
//! or a limit is reached.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::stream::LeftStream;

/// Maximum wait for a client to close. It should close one round trip after it learns of the end.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum wait for a client that did not answer within [`LEAVING_TIMEOUT`].
///
/// [`LEAVING_TIMEOUT`]: super::connection::LEAVING_TIMEOUT
const SILENT_TIMEOUT: Duration = Duration::from_millis(500);

/// Maximum number of bytes read and discarded: more than the sockets of both sides hold.
const LEN_MAX: usize = 16 << 20;

/// Length of one read in bytes.
const READ_LEN: usize = 16 << 10;

/// Waits within limits for the client to close the stream.
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
            // Data that is always ready would keep this loop from yielding to the runtime.
            tokio::task::consume_budget().await;
        }
    };
    // A client that does not close in time is closed all the same.
    let _ = timeout(if is_silent { SILENT_TIMEOUT } else { TIMEOUT }, closed_by_client).await;
}
