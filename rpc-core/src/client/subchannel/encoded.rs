//! Calls over connections of another protocol: the channel's part in them.
//!
//! The connection manager, backoff, readiness, deadlines, transparent retries and the log are those
//! of every channel. What differs is that a connection is given the whole call, encoded.

use futures::future::Either;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use tonic::{Code, Status};

use super::Route;
use crate::call::message_limits::MessageLimit;
use crate::client::attempts::{LevelAttempts, Servers};
use crate::client::call::begun::{Begun, BegunWithin};
use crate::client::call::deadline::within;
use crate::client::call::meter::CallMeter;
use crate::client::{Call, ClientReply, EncodedBody, EncodedCall, EncodedReply};
use crate::stream::StreamPart;
use crate::{Deadline, NotExecuted, Readiness};

impl Route<'_> {
    /// Makes a call over a connection of another protocol.
    pub(super) async fn call_encoded(self, mut call: Call<'_>) -> Result<ClientReply, Status> {
        let manager = &self.subchannel.manager;
        let begun = Begun::new(self.rules, &mut call);
        let mut meter = call.metered.begin(begun.at());
        let (readiness, deadline) = (call.readiness(self.rules), begun.deadline().copied());
        let method = call.method().clone();
        let call = checked(call.into_encoded(deadline), begun.limits().of_requests());
        let made = {
            let made = async { self.make_encoded(call?, readiness, &mut meter).await };
            within(deadline.as_ref(), made).await
        };
        let limit = begun.limits().of_responses();
        let made = made.and_then(|reply| match &reply {
            EncodedReply::Message { message, .. } => {
                meter.receive(message.len());
                limit.check(message.len()).map(|()| reply)
            }
            EncodedReply::Stream { .. } => Ok(reply),
        });
        if !matches!(made, Ok(EncodedReply::Stream { .. })) {
            meter.finish(&made);
        }
        Ok(match begun.finish(&method, manager, made)? {
            EncodedReply::Message { initial, trailers, message } => {
                ClientReply::with_message(initial, trailers, message)
            }
            EncodedReply::Stream { initial, parts } => {
                let call = begun.within(&method, manager, meter);
                ClientReply::with_stream(initial, bounded(parts, call))
            }
        })
    }

    /// Makes a call, again if it may be retried, until its first answer.
    async fn make_encoded(
        self,
        mut call: EncodedCall,
        readiness: Readiness,
        meter: &mut CallMeter,
    ) -> Result<EncodedReply, Status> {
        let (method, limit) = (call.method.clone(), call.limit);
        let Self { subchannel, shared, .. } = self;
        let mut attempts = LevelAttempts::new(&method, Servers::One, call.is_repeatable(), shared);
        loop {
            meter.start_attempt(|| call.message_len());
            let connection = match subchannel.manager.open() {
                Some(connection) => Ok(connection),
                None => subchannel.connection(readiness, limit.as_ref()).await,
            };
            let connection = connection.map_err(|status| attempts.final_status(status))?;
            match connection.into_encoded()?.call(call.attempt()).await {
                Ok(reply) => return Ok(reply),
                Err(status) => {
                    meter.fail_attempt(&status);
                    attempts.failed(status, || subchannel.manager.take_replay())?;
                }
            }
        }
    }
}

/// The call, if its messages are within the limit of its stub.
fn checked(mut call: EncodedCall, limit: MessageLimit) -> Result<EncodedCall, Status> {
    call.body = match call.body {
        EncodedBody::Message(message) => {
            limit.check(message.len()).map_err(NotExecuted::mark)?;
            EncodedBody::Message(message)
        }
        EncodedBody::Stream(messages) => {
            let check = move |message: Result<bytes::Bytes, Status>| {
                let message = message?;
                limit.check(message.len())?;
                Ok(message)
            };
            EncodedBody::Stream(messages.map(check).boxed())
        }
    };
    Ok(call)
}

/// A stream of responses until the call's deadline. It keeps the channel's connection, and its
/// failure is logged.
fn bounded(
    parts: BoxStream<'static, Result<StreamPart, Status>>,
    call: BegunWithin,
) -> impl Stream<Item = Result<StreamPart, Status>> + Send + 'static {
    let limit = call.receiving().limit;
    stream::unfold(Some((parts, call)), move |state| async move {
        let (mut parts, mut call) = state?;
        let over = match call.deadline() {
            Some(Deadline(at)) => Either::Left(tokio::time::sleep_until(at)),
            None => Either::Right(std::future::pending()),
        };
        let next = tokio::select! {
            biased;
            next = parts.next() => next?,
            () = over => Err(call.over_time()),
        };
        let next = next.and_then(|part| {
            if let StreamPart::Message(message) = &part {
                limit.check(message.len())?;
            }
            Ok(part)
        });
        match next {
            Ok(part) => {
                match &part {
                    StreamPart::Message(message) => call.meter_mut().receive(message.len()),
                    StreamPart::Trailers(_) => call.meter_mut().set_code(Code::Ok),
                }
                Some((Ok(part), Some((parts, call))))
            }
            Err(status) => {
                let is_over = call.deadline().is_some_and(|it| it.is_cause_of(&status));
                let status = if is_over { call.over_time() } else { status };
                call.meter_mut().set_code(status.code());
                call.log_failure(&status);
                Some((Err(status), None))
            }
        }
    })
}
