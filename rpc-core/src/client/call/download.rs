//! The response stream of a call, from its headers on.

use tokio_util::task::AbortOnDropHandle;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use crate::Deadline;
use crate::client::call::begun::BegunWithin;
use crate::client::call::meter::CallMeter;
use crate::client::connection::{Answer, CallGuard, Started, refused};
use crate::stream::{End, MessageBody, Next, OnComplete};
use crate::wire::metadata;
use crate::wire::outcome::Outcome;

/// What a response stream keeps alive: the call, the task that sends its requests, and the
/// connection manager, whose last reference closes the connection. Dropped in this order.
pub(in crate::client) struct StreamGuard {
    guard: CallGuard,
    _upload: Option<AbortOnDropHandle<()>>,
    call: BegunWithin,
    /// What a level above counts of the whole call.
    whole: Option<CallMeter>,
}

impl StreamGuard {
    /// Counts the whole call until it ends with the stream.
    pub(in crate::client) fn count_whole(&mut self, meter: CallMeter) {
        self.whole = Some(meter);
    }

    fn set_code(&mut self, code: Code) {
        self.call.meter_mut().set_code(code);
        if let Some(whole) = &mut self.whole {
            whole.set_code(code);
        }
    }
}

impl OnComplete for StreamGuard {
    fn complete(&mut self) {
        self.guard.complete();
        self.set_code(Code::Ok);
    }

    fn fail(&mut self, status: &Status) {
        self.set_code(status.code());
        self.call.log_failure(status);
    }

    fn over_time(&self) -> Status {
        self.call.over_time()
    }
}

/// Waits for the headers of a response stream.
pub(in crate::client) async fn headers(started: &mut Started) -> Result<MetadataMap, Status> {
    let block = match started.first().await {
        Next::Headers(block) => block,
        Next::Failed(status) => return Err(status),
        Next::End(End::Outcome { code, block, is_not_executed }) => {
            started.guard.complete();
            if is_not_executed {
                return Err(refused(code, block));
            }
            let outcome = Outcome::decode(code, block).map_err(|error| {
                Status::internal(format!("the response's block does not decode: {error}"))
            })?;
            outcome.result?;
            return Err(Status::internal("the server ended a stream that it had not begun"));
        }
        Next::Message(..) | Next::Deflated(..) | Next::End(End::HalfClose) => {
            return Err(Status::internal("the server sent messages before its headers"));
        }
    };
    metadata::decode(block).map_err(|error| {
        Status::internal(format!("the response's metadata does not decode: {error}"))
    })
}

/// The response stream behind its headers, which keeps the call's channel.
pub(in crate::client) fn download(
    started: Started,
    upload: Option<AbortOnDropHandle<()>>,
    call: BegunWithin,
) -> Result<MessageBody<StreamGuard>, Status> {
    let Started { guard, answer, io, .. } = started;
    let Answer::Stream(recv_stream) = answer else {
        return Err(Status::internal("the answer is one message"));
    };
    let timer = call.deadline().map(|Deadline(at)| Box::pin(tokio::time::sleep_until(at)));
    let (id, receiving) = (guard.id(), call.receiving());
    let stream_guard = StreamGuard { guard, _upload: upload, call, whole: None };
    Ok(MessageBody::new(recv_stream, io, id, receiving, timer, Some(stream_guard)))
}
