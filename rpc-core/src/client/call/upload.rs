//! The request stream of a call, sent by a task of its own.

use std::pin::pin;
use std::sync::Arc;

use futures::Stream;
use prost::Message;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;

use crate::client::Outgoing;
use crate::client::connection::Started;
use crate::stream::{Direction, StreamWriter, forward};
use crate::wire::FrameKind;
use crate::{Deadline, MayHaveExecuted};

/// Sends `stream` as the requests of a call. Dropped, it stops where it is.
///
/// A stream that ends with an error has broken off: the call ends with that error, and the server
/// learns that it was given up. A half-close would tell it that there is no more to come.
pub(in crate::client) fn upload<M, S>(
    stream: S,
    started: &Started,
    call: Outgoing<'_>,
) -> Option<AbortOnDropHandle<()>>
where
    M: Message + 'static,
    S: Stream<Item = Result<M, Status>> + Send + 'static,
{
    let send_stream = Arc::clone(started.send_stream.as_ref()?);
    let id = started.guard.id();
    let session = started.guard.session()?;
    let compress_from = started.io.core().settled.compression.from(call.limits.compress_from());
    let direction = Direction::requests(call.method.detach(), call.limits);
    let direction = direction.compressed_from(compress_from);
    let mut writer = StreamWriter::new(Arc::clone(&started.io), id);
    // Calls that the stream makes while it is polled belong to the maker of the stream.
    let sending = Deadline::scope(Deadline::current(), async move {
        let stream = pin!(stream);
        match forward(stream, &send_stream, &mut writer, direction).await {
            Ok(()) => writer.send_control(FrameKind::HalfClose),
            // It may have found the connection's end before the session did.
            Err(status) if session.closed().is_some() => {
                session.fail(id, MayHaveExecuted::mark(status));
            }
            Err(status) => session.fail(id, status),
        }
    });
    Some(AbortOnDropHandle::new(tokio::spawn(sending)))
}
