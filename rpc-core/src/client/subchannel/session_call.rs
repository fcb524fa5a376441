//! One call over a subchannel, from its attempts to its first answer.
//!
//! A future is moved where it is returned and where it is awaited, all of it, room for later states
//! included. So a call is one future from the stub to its connection; what most calls do not need
//! has memory of its own.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;

use futures::future::BoxFuture;
use tonic::Status;

use super::{Route, Subchannel};
use crate::client::attempts::{LevelAttempts, Servers, SharedAttempts};
use crate::client::call::begun::Begun;
use crate::client::call::deadline::within;
use crate::client::call::download::{download, headers};
use crate::client::call::meter::CallMeter;
use crate::client::call::{RequestStream, Sent};
use crate::client::connection::Reply;
use crate::client::{Call, ClientReply, Outgoing, Started};
use crate::payload::encode::Encode;
use crate::{CallKind, NotExecuted, Readiness};

/// How many closed connections a call may meet before it fails: the channel's, its replacement, and
/// one more.
const ATTEMPTS_MAX: u32 = 3;

/// A stub's call over a session, or any other, `F`. One type for both, because a future around two
/// futures would move each call once more.
#[must_use]
pub(in crate::client) enum CallFuture<'c, 'r, F> {
    Direct {
        subchannel: &'c Subchannel,
        call: Call<'r>,
        begun: Begun,
        readiness: Readiness,
        shared: Option<&'c SharedAttempts>,
        meter: CallMeter,
    },
    Boxed(Pin<Box<F>>),
}

impl<'c, 'r, F> CallFuture<'c, 'r, F>
where
    F: Future<Output = Result<ClientReply, Status>> + Send,
{
    /// A stub's call over a session. It begins here, and not with its first poll.
    #[inline]
    pub(in crate::client) fn over_session(route: Route<'c>, mut call: Call<'r>) -> Self {
        let Route { subchannel, rules, shared } = route;
        let begun = Begun::new(rules, &mut call);
        let readiness = call.readiness(rules);
        let meter = call.metered.begin(begun.at());
        Self::Direct { subchannel, call, begun, readiness, shared, meter }
    }

    /// A call that is made in another way.
    pub(in crate::client) fn boxed(call: F) -> Self {
        Self::Boxed(Box::pin(call))
    }

    /// Makes the call, up to its first answer.
    ///
    /// # Errors
    ///
    /// With the status of the call.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the call on the server.
    #[expect(clippy::manual_async_fn, reason = "its future would have room for the call twice")]
    pub(in crate::client) fn make(
        mut self,
    ) -> impl Future<Output = Result<ClientReply, Status>> + Send {
        async move {
            let (subchannel, call, begun, readiness, shared, meter) = match &mut self {
                Self::Direct { subchannel, call, begun, readiness, shared, meter } => {
                    (*subchannel, call, &*begun, *readiness, *shared, meter)
                }
                Self::Boxed(call) => return call.await,
            };
            let (deadline, limits) = (begun.deadline(), begun.limits());
            let (method, metadata, sent) = call.as_sent();
            let (message, stream) = match sent {
                Sent::Message(message) => (Some(message), None),
                Sent::Stream(stream) => (None, Some(stream)),
            };
            let call = Outgoing { method, metadata, deadline, readiness, limits, message };
            let made = {
                let made = pin!(subchannel.make(&call, stream, (begun, &mut *meter), shared));
                within(deadline, made).await
            };
            meter.finish(&made);
            begun.finish(method, &subchannel.manager, made)
        }
    }
}

/// The result of a non-blocking start attempt.
enum StartAttempt {
    Started(Started),
    /// It has to wait, and may meet so many closed connections.
    Waits {
        left: u32,
    },
}

/// A unary reply: finished, or still to be decompressed.
enum Answered {
    Ended(Result<ClientReply, Status>),
    /// Its message has to be inflated first.
    Inflating(BoxFuture<'static, Result<ClientReply, Status>>),
}

impl Subchannel {
    /// Makes a call, again if it may be retried, until its first answer.
    #[expect(clippy::manual_async_fn, reason = "its future would have room for arguments twice")]
    fn make<'a>(
        &'a self,
        call: &'a Outgoing<'a>,
        mut stream: Option<&'a mut (dyn RequestStream + 'static)>,
        (begun, meter): (&'a Begun, &'a mut CallMeter),
        shared: Option<&'a SharedAttempts>,
    ) -> impl Future<Output = Result<ClientReply, Status>> + Send + use<'a> {
        async move {
            let is_repeatable = call.message.is_some();
            let mut attempts = LevelAttempts::new(call.method, Servers::One, is_repeatable, shared);
            loop {
                meter.start_attempt(|| call.message.map_or(0, Encode::len));
                let started = match self.try_start(call) {
                    Ok(StartAttempt::Started(started)) => Ok(started),
                    // In memory of its own: most calls find a connection that takes them.
                    Ok(StartAttempt::Waits { left }) => Box::pin(self.start(call, left)).await,
                    Err(status) => Err(status),
                };
                let mut started = started.map_err(|status| attempts.final_status(status))?;
                meter.follow(&started);
                let upload = stream.as_mut().and_then(|stream| stream.start(&started, *call));
                let status = match call.method.kind() {
                    CallKind::Unary | CallKind::ClientStreaming => {
                        let inflating = match started.reply().await {
                            Ok(reply) => {
                                meter.receive(reply.message.len());
                                match self.answered(&started, reply, call, begun) {
                                    Answered::Ended(result) => return result,
                                    Answered::Inflating(inflating) => Ok(inflating),
                                }
                            }
                            Err(status) => Err(status),
                        };
                        match inflating {
                            Ok(inflating) => return inflating.await,
                            Err(status) => status,
                        }
                    }
                    CallKind::ServerStreaming | CallKind::Streaming => {
                        match headers(&mut started).await {
                            Ok(metadata) => {
                                let begun = begun.within(call.method, &self.manager, meter.take());
                                let stream = download(started, upload, begun)?;
                                return Ok(ClientReply::of_stream(metadata, stream));
                            }
                            Err(status) => status,
                        }
                    }
                };
                meter.fail_attempt(&status);
                attempts.failed(status, || self.manager.take_replay())?;
            }
        }
    }

    /// What an answer becomes that is one message.
    fn answered(
        &self,
        started: &Started,
        reply: Reply,
        call: &Outgoing<'_>,
        begun: &Begun,
    ) -> Answered {
        let (limit, log) = (call.limits.of_responses(), begun.end_log(call.method, &self.manager));
        if !reply.is_deflated {
            return Answered::Ended(ClientReply::of_message(reply, limit, log));
        }
        let (io, receiving) = (Arc::clone(&started.io), begun.receiving(call.method));
        Answered::Inflating(Box::pin(async move {
            ClientReply::of_message(reply.inflated(&*io, receiving).await?, limit, log)
        }))
    }

    /// Starts a call if nothing has to be waited for, and the connection has not just ended.
    fn try_start(&self, call: &Outgoing<'_>) -> Result<StartAttempt, Status> {
        call.check_message().map_err(NotExecuted::mark)?;
        let Some(connection) = self.manager.open() else {
            return Ok(StartAttempt::Waits { left: ATTEMPTS_MAX });
        };
        let session = connection.into_session()?;
        match Arc::clone(&session).try_start(*call) {
            Ok(Some(started)) => Ok(StartAttempt::Started(started)),
            Ok(None) => Ok(StartAttempt::Waits { left: ATTEMPTS_MAX }),
            Err(_) if !session.is_open() => Ok(StartAttempt::Waits { left: ATTEMPTS_MAX - 1 }),
            Err(status) => Err(NotExecuted::mark(status)),
        }
    }

    /// Starts a call, once there is a connection that takes it. One that ends just then is renewed.
    async fn start(&self, call: &Outgoing<'_>, mut left: u32) -> Result<Started, Status> {
        let waits = call.readiness == Readiness::WaitForReady;
        loop {
            left = left.saturating_sub(1);
            let connection = match self.manager.open() {
                Some(connection) => connection,
                None => self.connection(call.readiness, call.deadline).await?,
            };
            let session = connection.into_session()?;
            let started = match Arc::clone(&session).try_start(*call) {
                Ok(Some(started)) => return Ok(started),
                Ok(None) => Arc::clone(&session).start(*call).await,
                Err(status) => Err(status),
            };
            match started {
                // Each failed connection increases the backoff, so that a call which waits does
                // not spin.
                Err(_) if (left > 0 || waits) && !session.is_open() => {}
                other => return other.map_err(NotExecuted::mark),
            }
        }
    }
}
