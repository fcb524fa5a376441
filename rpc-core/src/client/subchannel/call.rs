//! One call over a subchannel, from its attempts to its first answer.
//!
//! A future is moved where it is returned and where it is awaited, all of it, room for later states
//! included. So a call is one future from the stub to its connection; what most calls do not need
//! has memory of its own.
//!
//! Over a connection of another protocol, the connection manager, backoff, readiness, deadlines,
//! transparent retries and the log are those of every channel. What differs is that a connection is
//! given the whole call, encoded.

use std::borrow::Cow;
use std::future::Future;
use std::pin::{Pin, pin};
use std::time::Duration;

use futures::future::{BoxFuture, Either};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use tonic::{Code, Status};

use super::{Route, Subchannel};
use crate::call::options::MessageLimit;
use crate::client::attempts::{AttemptPath, LevelAttempts, Servers, SharedAttempts, drive};
use crate::client::call::CallMeter;
use crate::client::call::begun::{Begun, BegunWithin};
use crate::client::call::reply::{download, headers};
use crate::client::call::rules::within;
use crate::client::call::{RequestStream, Sent};
use crate::client::connection::Reply;
use crate::client::{
    Call, ClientReply, Connection as _, EncodedBody, EncodedCall, EncodedReply, Outgoing, Started,
};
use crate::payload::encode::Encode;
use crate::stream::StreamPart;
use crate::{CallKind, Deadline, Explain, NotExecuted, Readiness};

/// Maximum number of closed connections that a call may meet before it fails: the channel's, its
/// replacement, and one more.
const ATTEMPTS_MAX: u32 = 3;

/// A stub's call over a session, or any other, `F`. One type for both, because a future around two
/// futures would move each call once more.
#[must_use]
#[cfg_attr(
    feature = "metrics",
    expect(clippy::large_enum_variant, reason = "most calls are direct: a box is an allocation")
)]
pub(in crate::client) enum CallFuture<'c, 'r, F> {
    Direct {
        subchannel: Cow<'c, Subchannel>,
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
        let meter = call.metered.begin();
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
    /// Returns the status of the call.
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
                    (&**subchannel, call, &*begun, *readiness, *shared, meter)
                }
                Self::Boxed(call) => return call.await,
            };
            let (deadline, limits) = (begun.deadline(), begun.limits());
            let (method, metadata, explain, sent) = call.as_sent();
            let (message, stream) = match sent {
                Sent::Message(message) => (Some(message), None),
                Sent::Stream(stream) => (None, Some(stream)),
            };
            let call = Outgoing { method, metadata, deadline, readiness, limits, explain, message };
            let made = {
                let mut path =
                    SessionPath::new(subchannel, &call, stream, (begun, &mut *meter), shared);
                // Most calls wait for their reply and for nothing else. They are made here, since
                // each future around them would move the reply once more.
                if path.is_simple() {
                    path.rest = Some(match path.begin() {
                        Ok(StartAttempt::Started(mut started)) => {
                            path.follow(&started);
                            let reply = started.reply().await;
                            Rest::Answer(path.answered(&started, reply))
                        }
                        Ok(StartAttempt::Waits { left }) => Rest::Start { left },
                        Err(status) => Rest::Answer(Answered::Ended(Err(status))),
                    });
                }
                match path.rest {
                    Some(Rest::Answer(Answered::Ended(Ok(reply)))) => Ok(reply),
                    _ => within(deadline, pin!(drive(path))).await,
                }
            };
            // Before the log: a subscriber that blocks is not a part of the call.
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

impl Answered {
    async fn result(self) -> Result<ClientReply, Status> {
        match self {
            Self::Ended(result) => result,
            Self::Inflating(inflating) => inflating.await,
        }
    }
}

/// The rest of an attempt that was begun.
enum Rest {
    /// The start, which may meet so many closed connections.
    Start {
        left: u32,
    },
    Answer(Answered),
}

/// Attempts over the sessions of one server.
struct SessionPath<'a> {
    subchannel: &'a Subchannel,
    call: &'a Outgoing<'a>,
    stream: Option<&'a mut (dyn RequestStream + 'static)>,
    begun: &'a Begun,
    meter: &'a mut CallMeter,
    attempts: LevelAttempts<'a>,
    /// The rest of the first attempt, if it was begun before there was a loop of them.
    rest: Option<Rest>,
    /// Set once the attempt has a connection.
    is_started: bool,
}

impl<'a> SessionPath<'a> {
    #[inline]
    fn new(
        subchannel: &'a Subchannel,
        call: &'a Outgoing<'a>,
        stream: Option<&'a mut (dyn RequestStream + 'static)>,
        (begun, meter): (&'a Begun, &'a mut CallMeter),
        shared: Option<&'a SharedAttempts>,
    ) -> Self {
        let is_repeatable = call.message.is_some();
        let attempts = LevelAttempts::new(call.method, Servers::One, is_repeatable, shared);
        let (rest, is_started) = (None, false);
        Self { subchannel, call, stream, begun, meter, attempts, rest, is_started }
    }

    /// Returns true if an attempt waits for its reply and for nothing else, once it is started.
    fn is_simple(&self) -> bool {
        let Outgoing { method, deadline, explain, .. } = self.call;
        deadline.is_none() && explain.is_none() && method.kind() == CallKind::Unary
    }

    /// Begins an attempt.
    #[inline(always)]
    fn begin(&mut self) -> Result<StartAttempt, Status> {
        self.is_started = false;
        self.meter.start_attempt(|| self.call.message.map_or(0, Encode::len));
        if let Some(explain) = self.call.explain {
            explain.begin_attempt(&self.subchannel.manager.address());
        }
        self.subchannel.try_start(self.call)
    }

    #[inline(always)]
    fn follow(&mut self, started: &Started) {
        self.is_started = true;
        self.meter.follow(started);
    }

    /// Takes the reply to an attempt that is answered by one message.
    #[inline(always)]
    fn answered(&mut self, started: &Started, reply: Result<Reply, Status>) -> Answered {
        // Before the status is looked at: a failure has arrived, too.
        if let Some(explain) = self.call.explain {
            explain.received();
        }
        let reply = match reply {
            Ok(reply) => reply,
            Err(status) => return Answered::Ended(Err(status)),
        };
        self.meter.receive(reply.message.len());
        self.subchannel.answered(started, reply, self.call, self.begun)
    }
}

impl AttemptPath for SessionPath<'_> {
    type Reply = ClientReply;

    #[expect(clippy::manual_async_fn, reason = "its future would have room for arguments twice")]
    #[inline]
    fn attempt(&mut self) -> impl Future<Output = Result<ClientReply, Status>> + Send {
        async move {
            let (subchannel, call, begun) = (self.subchannel, self.call, self.begun);
            let start = match self.rest.take() {
                None => self.begin()?,
                Some(Rest::Start { left }) => StartAttempt::Waits { left },
                Some(Rest::Answer(answered)) => return answered.result().await,
            };
            let mut started = match start {
                StartAttempt::Started(started) => started,
                // In memory of its own: most calls find a connection that takes them.
                StartAttempt::Waits { left } => Box::pin(subchannel.start(call, left)).await?,
            };
            self.follow(&started);
            // Dropped with the answer to a client stream, which stops the upload: a server that
            // answers early wants no more requests.
            let upload = self.stream.as_mut().and_then(|stream| stream.start(&started, *call));
            match call.method.kind() {
                CallKind::Unary | CallKind::ClientStreaming => {
                    let reply = started.reply().await;
                    let answered = self.answered(&started, reply).result().await;
                    match call.explain {
                        None => answered,
                        Some(explain) => without_server_times(explain, answered),
                    }
                }
                CallKind::ServerStreaming | CallKind::Streaming => {
                    let metadata = headers(&mut started).await;
                    if let Some(explain) = call.explain {
                        explain.received();
                    }
                    let metadata = metadata?;
                    let manager = &subchannel.manager;
                    // The stream takes the meter: its messages are counted as they are read.
                    let begun = begun.within(call.method, manager, self.meter.take());
                    let stream = download(started, upload, begun)?;
                    Ok(ClientReply::from_stream(metadata, stream))
                }
            }
        }
    }

    fn failed(&mut self, status: Status) -> Result<Duration, Status> {
        if let Some(explain) = self.call.explain {
            explain.fail_attempt(&status);
        }
        // The start has looked for other connections already, as many as a call may meet.
        if !self.is_started {
            return Err(self.attempts.final_status(status));
        }
        self.meter.fail_attempt(&status);
        self.attempts.failed(status, || self.subchannel.manager.take_replay())
    }
}

/// The answer as the caller sees it, without the times that the server tells.
#[cold]
fn without_server_times(
    explain: &Explain,
    mut answered: Result<ClientReply, Status>,
) -> Result<ClientReply, Status> {
    match &mut answered {
        Ok(reply) => reply.take_server_times(explain),
        Err(status) => explain.take_server_times(status.metadata_mut()),
    }
    answered
}

impl Subchannel {
    /// Turns a session's answer into a reply of one message.
    #[inline(always)]
    fn answered(
        &self,
        started: &Started,
        reply: Reply,
        call: &Outgoing<'_>,
        begun: &Begun,
    ) -> Answered {
        let (limit, log) = (call.limits.responses(), begun.end_log(call.method, &self.manager));
        if !reply.is_deflated {
            return Answered::Ended(ClientReply::from_message(reply, limit, log));
        }
        let (io, receiving) = (started.io(), begun.receiving(call.method));
        Answered::Inflating(Box::pin(async move {
            ClientReply::from_message(reply.inflated(&*io, receiving).await?, limit, log)
        }))
    }

    /// Starts a call if nothing has to be waited for, and the connection has not just ended.
    #[inline(always)]
    fn try_start(&self, call: &Outgoing<'_>) -> Result<StartAttempt, Status> {
        call.check_message().map_err(NotExecuted::mark)?;
        // A look at what the driver has published: it is not asked, and nothing is waited for.
        let Some(connection) = self.manager.open() else {
            return Ok(StartAttempt::Waits { left: ATTEMPTS_MAX });
        };
        let session = connection.into_session()?;
        match session.try_start(call) {
            Ok(Some(started)) => Ok(StartAttempt::Started(started)),
            Ok(None) => Ok(StartAttempt::Waits { left: ATTEMPTS_MAX }),
            // The connection stopped taking calls between the look and the start. It counts as one
            // of those that a call may meet.
            Err(_) if !session.is_open() => Ok(StartAttempt::Waits { left: ATTEMPTS_MAX - 1 }),
            Err(status) => Err(NotExecuted::mark(status)),
        }
    }

    /// Starts a call, once there is a connection that takes it. One that ends just then is renewed.
    async fn start(&self, call: &Outgoing<'_>, mut left: u32) -> Result<Started, Status> {
        let waits = call.readiness == Readiness::WaitForReady;
        loop {
            // `wait_for_ready` goes on at 0: its deadline and the backoff bound it.
            left = left.saturating_sub(1);
            let connection = match self.manager.open() {
                Some(connection) => connection,
                None => self.connection(call.readiness, call.deadline).await?,
            };
            let session = connection.into_session()?;
            // Without a wait first: the boxed future of a wait is an allocation.
            let started = match session.try_start(call) {
                Ok(Some(started)) => return Ok(started),
                Ok(None) => Box::pin(session.start_call(call)).await,
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

impl Route<'_> {
    /// Makes a call over a connection of another protocol.
    pub(super) async fn call_encoded(self, mut call: Call<'_>) -> Result<ClientReply, Status> {
        let manager = &self.subchannel.manager;
        let begun = Begun::new(self.rules, &mut call);
        let mut meter = call.metered.begin();
        let (readiness, deadline) = (call.readiness(self.rules), begun.deadline().copied());
        let method = call.method().clone();
        let explain = call.extensions().get::<Explain>().cloned();
        // Encoded once, before the first attempt: attempts share the bytes.
        let encoded = match &explain {
            None => call.into_encoded(deadline),
            Some(explain) => explain.encode_first(|| call.into_explained(deadline)),
        };
        let call = checked(encoded, begun.limits().requests());
        let made = {
            let (subchannel, is_started, meter) = (&*self.subchannel, false, &mut meter);
            let made = async {
                let (call, method) = (call?, &method);
                let is_repeatable = call.is_repeatable();
                let attempts = LevelAttempts::new(method, Servers::One, is_repeatable, self.shared);
                let explain = explain.as_ref();
                let path = EncodedPath {
                    subchannel,
                    call,
                    readiness,
                    explain,
                    meter,
                    attempts,
                    is_started,
                };
                drive(path).await
            };
            within(deadline.as_ref(), made).await
        };
        // Behind the attempts: a response that is too long is not asked for again.
        let limit = begun.limits().responses();
        let made = made.and_then(|reply| match &reply {
            EncodedReply::Message { message, .. } => {
                meter.receive(message.len());
                limit.check(message.len()).map(|()| reply)
            }
            EncodedReply::Stream { .. } => Ok(reply),
        });
        // A stream of responses is counted when it ends.
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
}

/// Attempts over the connections of one server that speak another protocol.
struct EncodedPath<'a> {
    subchannel: &'a Subchannel,
    call: EncodedCall,
    readiness: Readiness,
    explain: Option<&'a Explain>,
    meter: &'a mut CallMeter,
    attempts: LevelAttempts<'a>,
    /// Set once the attempt has a connection.
    is_started: bool,
}

impl AttemptPath for EncodedPath<'_> {
    type Reply = EncodedReply;

    async fn attempt(&mut self) -> Result<EncodedReply, Status> {
        self.is_started = false;
        self.meter.start_attempt(|| self.call.message_len());
        // Before the look for a connection: a wait for one is part of the attempt.
        if let Some(explain) = self.explain {
            explain.begin_attempt(&self.subchannel.manager.address());
        }
        let connection = match self.subchannel.manager.open() {
            Some(connection) => connection,
            None => self.subchannel.connection(self.readiness, self.call.limit.as_ref()).await?,
        };
        let connection = connection.into_encoded()?;
        self.is_started = true;
        // A stream of requests goes along with the first attempt. There is no second one then.
        let Some(explain) = self.explain else {
            return connection.call(self.call.attempt()).await;
        };
        explain.ready(|| connection.info());
        let mut made = connection.call(self.call.attempt()).await;
        explain.received();
        match &mut made {
            Ok(EncodedReply::Message { initial, trailers, .. }) => {
                explain.take_server_times(initial);
                explain.take_server_times(trailers);
            }
            Ok(EncodedReply::Stream { .. }) => {}
            Err(status) => explain.take_server_times(status.metadata_mut()),
        }
        made
    }

    fn failed(&mut self, status: Status) -> Result<Duration, Status> {
        if let Some(explain) = self.explain {
            explain.fail_attempt(&status);
        }
        if !self.is_started {
            return Err(self.attempts.final_status(status));
        }
        self.meter.fail_attempt(&status);
        self.attempts.failed(status, || self.subchannel.manager.take_replay())
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
            // The part goes first: one that is there at the deadline is still delivered.
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
                // The peer keeps the same deadline, and may say so first: the caller gets one text
                // for both.
                let is_over = call.deadline().is_some_and(|it| it.is_cause_of(&status));
                let status = if is_over { call.over_time() } else { status };
                call.meter_mut().set_code(status.code());
                call.log_failure(&status);
                Some((Err(status), None))
            }
        }
    })
}
