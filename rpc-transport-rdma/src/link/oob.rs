//! The out-of-band (OOB) channel: the byte stream on which a connection started, beside its RDMA
//! path.
//!
//! It carries nothing but its own end and one byte before it, and is what a queue pair is not: a
//! way to hear of the peer at once.

use std::sync::Arc;

use rpc_core::Reason;
use rpc_core::connect::Bootstrap;
use rpc_core::transport::{CloseReason, TransportError};
use rpc_core::wire::ProtocolError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::connection::Connection;

/// The byte that says that the path failed.
const PATH_FAILED: u8 = 1;

/// Ends a connection whose watch is dropped, as a runtime that ends drops its tasks. Its lane may
/// live on another runtime, and would not hear of the peer's end.
struct Watching(Arc<Connection>);

impl Drop for Watching {
    fn drop(&mut self) {
        // Of no effect once it has ended.
        self.0.fail(rpc_core::transport::task_dropped());
    }
}

/// Watches the bootstrap, which says one thing at most: that the path failed under the peer. Its
/// end is the peer's end, long before a queue pair would notice, and our end is said by closing it.
pub(crate) fn watch(
    bootstrap: Box<dyn Bootstrap>,
    connection: Arc<Connection>,
) -> impl Future<Output = ()> + Send {
    watch_until_end(bootstrap, Watching(connection))
}

async fn watch_until_end(mut bootstrap: Box<dyn Bootstrap>, watching: Watching) {
    let connection = &watching.0;
    let mut byte = [0];
    let reason = tokio::select! {
        () = connection.ending.cancelled() => None,
        read = bootstrap.read(&mut byte) => Some(match read {
            Ok(0) => CloseReason::Peer,
            Ok(_) if byte[0] == PATH_FAILED => {
                CloseReason::Failed("the peer reported that the RDMA path failed".into())
            }
            Ok(_) => {
                let what = "bytes on the bootstrap beside an RDMA path";
                ProtocolError::Invalid { what, value: byte[0].into() }.into()
            }
            Err(error) => {
                let message = format!("the bootstrap failed: {error}");
                CloseReason::Failed(Reason::new(message, error))
            }
        }),
    };
    match reason {
        Some(reason) => connection.fail(reason),
        None => say_why(&mut bootstrap, connection).await,
    }
    connection.ended.cancelled().await;
    // The peer may have closed its end long ago.
    let _ = bootstrap.shutdown().await;
}

/// Tells the peer when it is the path that failed: otherwise it would take this end for gone, and
/// the path for whole.
async fn say_why(bootstrap: &mut Box<dyn Bootstrap>, connection: &Connection) {
    let TransportError::Closed { reason } = connection.closed() else { return };
    if reason.is_failure() {
        tokio::select! {
            // In this order: the queue pair may be drained before this task runs.
            biased;
            // A peer that is gone needs no telling.
            _ = bootstrap.write_all(&[PATH_FAILED]) => {}
            () = connection.ended.cancelled() => {}
        }
    }
}
