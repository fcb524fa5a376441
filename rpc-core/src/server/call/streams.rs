//! The streams of a call on the server.

use std::sync::Arc;

use tonic::Status;

use crate::stream::{RecvStream, SendStream};

/// The streams of a call, where its method has them.
#[derive(Debug, Clone, Default)]
pub(in crate::server) struct CallStreams {
    /// The client's messages.
    pub(in crate::server) recv_stream: Option<Arc<RecvStream>>,
    /// The client's window for ours.
    pub(in crate::server) send_stream: Option<Arc<SendStream>>,
}

impl CallStreams {
    /// Ends the requests of a call that has ended, for a task that still reads them: a task that
    /// was given them by the handler would wait for ever, and keep the session.
    pub(in crate::server) fn end_requests(self, why: impl FnOnce() -> Status) {
        if let Some(recv_stream) = self.recv_stream {
            recv_stream.fail(why());
        }
    }
}
