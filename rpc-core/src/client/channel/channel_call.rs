//! One call through a channel, from its attempts to its first answer.
//!
//! A future is moved where it is returned and where it is awaited, all of it, room for later states
//! included. So a call is one future from the stub to its connection; what most calls do not need
//! has memory of its own.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;

use futures::future::BoxFuture;
use tonic::Status;

use super::Channel;
use super::retry::TransparentRetries;
use crate::client::call::begun::Begun;
use crate::client::call::deadline::within;
use crate::client::call::download::{download, headers};
use crate::client::call::{RequestStream, Sent};
use crate::client::connection::Reply;
use crate::client::{Call, ClientReply, Outgoing, Started};
use crate::{CallKind, NotExecuted, Readiness};

/// How many closed connections a call may meet before it fails: the channel's, its replacement, and
/// one more.
const ATTEMPTS_MAX: u32 = 3;

/// A call that a channel makes over its session, or one that is made in another way, `F`: one
/// future for both, because one around two futures would move each call once more.
#[must_use]
pub struct ChannelCall<'c, 'r, F>(Way<'c, 'r, F>);

enum Way<'c, 'r, F> {
    Session { channel: &'c Channel, call: Call<'r>, begun: Begun, readiness: Readiness },
    Other(Pin<Box<F>>),
}

impl<F> fmt::Debug for ChannelCall<'_, '_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let method = match &self.0 {
            Way::Session { call, .. } => Some(call.method().path()),
            Way::Other(_) => None,
        };
        f.debug_struct("ChannelCall").field("over_session", &method).finish_non_exhaustive()
    }
}

impl<'c, 'r, F> ChannelCall<'c, 'r, F>
where
    F: Future<Output = Result<ClientReply, Status>> + Send,
{
    /// A call that `channel` makes, or that is made `otherwise` if there is none, or it has no
    /// session for it. It begins here, and not with its first poll.
    #[inline]
    pub fn new(
        channel: Option<&'c Channel>,
        call: Call<'r>,
        otherwise: impl FnOnce(Call<'r>) -> F,
    ) -> Self {
        match channel {
            Some(channel) if !call.is_untyped() && !channel.is_encoded => {
                Self::over_session(channel, call)
            }
            _ => Self(Way::Other(Box::pin(otherwise(call)))),
        }
    }

    /// A call of a stub that `channel` makes over its session.
    #[inline]
    pub(super) fn over_session(channel: &'c Channel, mut call: Call<'r>) -> Self {
        let begun = Begun::new(&channel.defaults, &mut call);
        let readiness = channel.readiness_of(&call);
        Self(Way::Session { channel, call, begun, readiness })
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
    // Not `async`: the future would have room for the call twice.
    pub fn make(self) -> impl Future<Output = Result<ClientReply, Status>> + Send {
        let Self(mut way) = self;
        async move {
            let (channel, call, begun, readiness) = match &mut way {
                Way::Session { channel, call, begun, readiness } => {
                    (*channel, call, &*begun, *readiness)
                }
                Way::Other(call) => return call.await,
            };
            let (deadline, limits) = (begun.deadline(), begun.limits());
            let (method, metadata, sent) = call.as_sent();
            let (message, stream) = match sent {
                Sent::Message(message) => (Some(message), None),
                Sent::Stream(stream) => (None, Some(stream)),
            };
            let call = Outgoing { method, metadata, deadline, readiness, limits, message };
            let made = pin!(channel.make(&call, stream, begun));
            begun.finish(method, &channel.manager, within(deadline, made).await)
        }
    }
}

/// What became of a call that was to be started at once.
enum Tried {
    Started(Started),
    /// It has to wait, and may meet so many closed connections.
    Waits {
        left: u32,
    },
}

/// What an answer that is one message has become.
enum Answered {
    Ended(Result<ClientReply, Status>),
    /// Its message has to be inflated first.
    Inflating(BoxFuture<'static, Result<ClientReply, Status>>),
}

impl Channel {
    /// Makes a call, again if it may be retried, until its first answer.
    #[expect(clippy::manual_async_fn, reason = "its future would have room for arguments twice")]
    fn make<'a>(
        &'a self,
        call: &'a Outgoing<'a>,
        mut stream: Option<&'a mut (dyn RequestStream + 'static)>,
        begun: &'a Begun,
    ) -> impl Future<Output = Result<ClientReply, Status>> + Send + use<'a> {
        async move {
            let mut retries = TransparentRetries::new(&self.manager, self.replays, call);
            loop {
                let started = match self.try_start(call) {
                    Ok(Tried::Started(started)) => Ok(started),
                    // In memory of its own: most calls find a connection that takes them.
                    Ok(Tried::Waits { left }) => Box::pin(self.start(call, left)).await,
                    Err(status) => Err(status),
                };
                let mut started = started.map_err(|status| retries.final_status(status))?;
                let upload = stream.as_mut().and_then(|stream| stream.start(&started, *call));
                let status = match call.method.kind() {
                    CallKind::Unary | CallKind::ClientStreaming => {
                        let inflating = match started.reply().await {
                            Ok(reply) => match self.answered(&started, reply, call, begun) {
                                Answered::Ended(result) => return result,
                                Answered::Inflating(inflating) => Ok(inflating),
                            },
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
                                let begun = begun.within(call.method, &self.manager);
                                let stream = download(started, upload, begun)?;
                                return Ok(ClientReply::of_stream(metadata, stream));
                            }
                            Err(status) => status,
                        }
                    }
                };
                retries.retry_after(status)?;
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
    fn try_start(&self, call: &Outgoing<'_>) -> Result<Tried, Status> {
        call.check_message().map_err(NotExecuted::mark)?;
        let Some(connection) = self.manager.open() else {
            return Ok(Tried::Waits { left: ATTEMPTS_MAX });
        };
        let session = connection.into_session()?;
        match Arc::clone(&session).try_start(*call) {
            Ok(Some(started)) => Ok(Tried::Started(started)),
            Ok(None) => Ok(Tried::Waits { left: ATTEMPTS_MAX }),
            Err(_) if !session.is_open() => Ok(Tried::Waits { left: ATTEMPTS_MAX - 1 }),
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
