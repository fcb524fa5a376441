//! The server session's handler of incoming frames.
//!
//! Everything here runs in the transport's task, the first poll of a handler included. That poll
//! may block, so that the transport's driver is released before it, when the tables are complete.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::AbortHandle;
use tonic::Status;

use crate::call::options::MessageLimits;
use crate::call::refusal;
use crate::call::server_times::ArrivedCall;
use crate::calls::server::{Kept, Start};
use crate::calls::window::{Counts, ReceiveWindow};
use crate::handoff::Handoff;
use crate::limits::memory::MemoryCharge;
use crate::limits::quota::Charge;
use crate::limits::quota::PeerKey;
use crate::payload::tail_field::Detacher;
use crate::server::call::context::CallScope;
use crate::server::call::context::Head;
use crate::server::call::context::TimeLimit;
use crate::server::call::record::{CallRecord, CallStreams};
use crate::server::call::reply::{Disposition, Responder};
use crate::server::layers::handle;
use crate::server::session::Route;
use crate::server::session::ServerSession;
use crate::server::session::in_flight::{Phase, State};
use crate::server::{HandlerFuture, ServerCall};
use crate::stream::{End, Item, RecvStream, SendStream, WindowMemory};
use crate::transport::frames::{parse, received, take_apart};
use crate::transport::received::ReceivedMessage;
use crate::transport::{Admission, CloseReason, Delivery, Handler, Withheld};
use crate::wire::{FrameHeader, FrameKind, HEADER_LEN, ProtocolError};
use crate::{Deadline, limited_log};

/// From which length on a request that comes whole counts in the memory budget, in bytes. Shorter
/// ones are not worth two atomic operations each: 65,536 of them, which is the default of
/// `max_calls`, are 256 MiB.
const COUNTED_LEN: u64 = 4 << 10;

/// A request that is about to run.
struct Admitted<'a> {
    permit: Charge<PeerKey>,
    /// The memory of its request.
    received: MemoryCharge,
    route: Route<'a>,
    streams: CallStreams,
}

/// The verdict on a request that has arrived.
enum Verdict<'a> {
    Run(Admitted<'a>),
    /// It is answered with this status, and no handler sees it.
    Reject(Status),
    /// Its client gave it up while it was on its way, or the link ended: no answer is sent.
    Drop,
}

impl Handler for ServerSession {
    fn handle_announced(
        &self,
        prefix: &[u8; HEADER_LEN],
        len: u64,
    ) -> Result<Admission, ProtocolError> {
        // An error from here on ends the connection: a peer that breaks the protocol loses it.
        let header = FrameHeader::parse(prefix)?;
        // Before any memory is taken for it.
        header.check_len(len)?;
        self.core().settled.compression.check(&header)?;
        expect_announced(&header)?;
        match header.kind == FrameKind::Request {
            true => self.announce_request(&header, len),
            false => self.announce_messages(&header, len),
        }
    }

    fn handle_frame(
        &self,
        frame: Bytes,
        delivery: Delivery,
        handoff: &mut Handoff,
    ) -> Result<(), ProtocolError> {
        let header = parse(&frame, &delivery)?;
        if delivery.is_announced() {
            expect_announced(&header)?;
        }
        self.core().settled.compression.check(&header)?;
        if header.kind != FrameKind::Request {
            // A task that waits for this frame runs now.
            handoff.woke();
        }
        match header.kind {
            FrameKind::Request => self.handle_request(&header, (frame, delivery), handoff),
            FrameKind::Messages => self.handle_messages(&header, frame, &delivery),
            FrameKind::HalfClose => self.insert(&header, Item::End(End::HalfClose)),
            FrameKind::Window => {
                // This statement releases the session lock: the grant below wakes the sender.
                let send_stream = self.state().send_stream(header.call);
                if let Some(send_stream) = send_stream {
                    send_stream.handle_grant(Counts::from_wire(header.argument));
                }
                Ok(())
            }
            FrameKind::Cancel => {
                let ended = self.state().calls.cancel(header.call);
                if let Some(call) = ended {
                    end(call, refusal::given_up);
                }
                // A request that is still arriving stays in the table as cancelled. The transport
                // reports it as withheld, or delivers it and `start` discards it.
                self.core().transport.abandon(header.call);
                self.in_flight.idle.notify_waiters();
                Ok(())
            }
            FrameKind::Ping => self.core().handle_ping(&header),
            // Receiving it already counted as traffic.
            FrameKind::Pong => Ok(()),
            kind @ (FrameKind::Response | FrameKind::Headers | FrameKind::GoAway) => {
                Err(unexpected(kind))
            }
        }
    }

    fn handle_withheld(
        &self,
        prefix: &[u8; HEADER_LEN],
        reason: Withheld,
    ) -> Result<(), ProtocolError> {
        let header = FrameHeader::parse(prefix)?;
        // First, whatever the reason: its memory no longer counts.
        self.state().receive_budget.withheld(header.frame_key());
        if reason == Withheld::GivenUp && header.kind == FrameKind::Request {
            let ended = self.state().calls.withheld(header.call);
            // Its handler has not run, so that no task reads its stream.
            drop(ended);
            self.in_flight.idle.notify_waiters();
            return Ok(());
        }
        match header.kind {
            FrameKind::Request => {
                let allowed = Duration::from_micros(header.argument);
                let status = match reason {
                    Withheld::Expired => refusal::not_received_in_time(allowed),
                    reason => refusal::withheld(reason),
                };
                self.refuse(&header, status)
            }
            FrameKind::Messages
            | FrameKind::Response
            | FrameKind::Cancel
            | FrameKind::Headers
            | FrameKind::HalfClose
            | FrameKind::Window
            | FrameKind::Ping
            | FrameKind::Pong
            | FrameKind::GoAway => {
                // tonic takes a cancel that it reads from a body for the end of the requests.
                let status = match reason {
                    Withheld::GivenUp => refusal::given_up(),
                    reason => refusal::withheld(reason),
                };
                self.fail_requests(header.call, status);
                Ok(())
            }
        }
    }

    fn handle_closed(&self, reason: CloseReason) {
        // One lock section: `judge` checks the phase under this lock, so that no request starts
        // after `close` has collected the calls whose handlers are aborted.
        let ended = {
            let mut state = self.state();
            state.phase = Phase::Closed;
            // They are ended outside of the lock: what that wakes may take it.
            state.calls.close()
        };
        for call in ended {
            end(call, || refusal::requests_cut_short(&reason));
        }
        let addresses = &self.core().settled.addresses;
        match &reason {
            CloseReason::Protocol(error) => {
                limited_log!(
                    target: "farcall::server",
                    self.in_flight.log, WARN, "closed a connection", %addresses, %error
                );
            }
            CloseReason::Stalled { .. } => {
                limited_log!(
                    target: "farcall::server",
                    self.in_flight.log, WARN, "closed a stalled connection", %addresses, %reason
                );
            }
            reason => tracing::debug!(
                target: "farcall::server", %addresses, %reason, "connection closed"
            ),
        }
        self.in_flight.idle.notify_waiters();
        self.closed.cancel();
    }
}

impl ServerSession {
    fn announce_request(&self, header: &FrameHeader, len: u64) -> Result<Admission, ProtocolError> {
        // Before any reason to refuse it. A refusal of a request whose id is in use would answer
        // the call that has the id, and that call would be started when its own request arrives.
        self.state().calls.announce(header.call)?;
        match self.expect_request(header, len) {
            Ok(detacher) => {
                let deadline = Deadline::from_wire(header.argument);
                Ok(Admission::Accept { deadline, detacher })
            }
            Err(status) => {
                self.refuse(header, status)?;
                Ok(Admission::Refuse)
            }
        }
    }

    /// Makes room for a request that is announced, and for the messages that may overtake it.
    /// Returns the accessors of its message's fields.
    fn expect_request(&self, header: &FrameHeader, len: u64) -> Result<Option<Detacher>, Status> {
        if self.state().phase != Phase::Open {
            return Err(refusal::going_away());
        }
        let route = self.check_request(header)?;
        let detacher = route.service.descriptor().methods[route.method].detach.request;
        let charge = self.core().memory.try_take(len)?;
        // Made before the lock: that it is refused may be logged.
        let recv_stream = self.recv_stream(header)?;
        let mut state = self.state();
        self.core().announce(&mut state.receive_budget, header, len, charge)?;
        // On a direct link the call may have ended meanwhile; its stream is dropped then.
        if let Some(streams) = state.calls.streams_mut(header.call) {
            streams.recv_stream = recv_stream;
        }
        Ok(detacher.filter(|_| !header.is_deflated && !header.is_streaming))
    }

    fn announce_messages(
        &self,
        header: &FrameHeader,
        len: u64,
    ) -> Result<Admission, ProtocolError> {
        // Without a stream to read it, the call has been answered or refused, or its method takes
        // one message: receiving it would cost memory for nothing.
        if self.state().recv_stream(header.call).is_none() {
            return Ok(Admission::Refuse);
        }
        let charged = self.core().check(header).and_then(|()| self.core().memory.try_take(len));
        let counted = charged.and_then(|charge| {
            self.core().announce(&mut self.state().receive_budget, header, len, charge)
        });
        match counted {
            Ok(()) => Ok(Admission::Accept { deadline: None, detacher: None }),
            Err(status) => {
                self.fail_requests(header.call, status);
                Ok(Admission::Refuse)
            }
        }
    }

    #[inline(always)]
    fn handle_request(
        &self,
        header: &FrameHeader,
        (frame, delivery): (Bytes, Delivery),
        handoff: &mut Handoff,
    ) -> Result<(), ProtocolError> {
        let mut arrived = ArrivedCall::new(&frame[HEADER_LEN..][..header.metadata_len as usize]);
        // By the header alone: nothing of the frame is decoded yet.
        let verdict = self.judge(header, &delivery)?;
        let (mut block, message) = take_apart(header, frame);
        let message = ReceivedMessage::new(message, delivery.into_tail());
        if let Some(arrived) = &arrived {
            block = arrived.strip(&block);
        }
        let future: HandlerFuture = match verdict {
            Verdict::Drop => return Ok(()),
            Verdict::Reject(status) => Box::pin(self.refusing(header).fail(status)),
            Verdict::Run(Admitted { permit, received, route, streams }) => {
                let Route { service, method, kind } = route;
                let descriptor = &service.descriptor().methods[method];
                let (rules, log) = (&self.router.rules, self.router.rules.log());
                let mut record = CallRecord::begin(log, header, || Some(descriptor));
                let keeps_keys = log.is_counted && rules.is_watched();
                if let Some(record) = record.as_mut().filter(|_| keeps_keys) {
                    record.keep_keys(&block);
                }
                if let Some(arrived) = &mut arrived {
                    arrived.dispatch();
                }
                // Decoding, interceptors and the handler run from here on. The tables are complete.
                handoff.release();
                let limit = TimeLimit::new(header.argument, kind, rules.unary_timeout());
                let running = CallScope::new(descriptor, limit, Arc::clone(&self.peer));
                let responder = Responder {
                    id: header.call,
                    calls: Arc::clone(&self.in_flight),
                    disposition: Disposition::Running { _permit: permit, _received: received },
                    capture: None,
                    record,
                    compress_from: self.compress_from(header.selector),
                    arrived,
                };
                let head = Head::Encoded { block, peer: self.router.peer_extensions };
                let (is_deflated, limits) = (header.is_deflated, MessageLimits::NONE);
                // A closure makes it where it is passed: in a variable, or passed on by a function
                // of its own, it would be moved once more.
                let call = || ServerCall {
                    head,
                    message,
                    is_deflated,
                    running,
                    responder,
                    streams,
                    limits,
                };
                match &self.router.stack {
                    None => service.call(method, call()),
                    Some(stack) => handle(stack.clone(), Arc::clone(service), method, call()),
                }
            }
        };
        // `run` has spawned a task, which this worker's LIFO slot may hold.
        if self.run(header.call, future).is_pending() {
            handoff.woke();
        }
        Ok(())
    }

    /// From which length on the method's responses are compressed; absent where the client accepts
    /// none.
    fn compress_from(&self, method: u16) -> Option<u32> {
        let of_all = self.core().settled.compression.from(None)?;
        Some(self.compress_from.get(usize::from(method)).copied().unwrap_or(of_all))
    }

    /// Starts the call of a request that has arrived, and decides what becomes of it.
    #[inline(always)]
    fn judge(
        &self,
        header: &FrameHeader,
        delivery: &Delivery,
    ) -> Result<Verdict<'_>, ProtocolError> {
        let (received, early, is_draining) = {
            let mut state = self.state();
            let received = received(&mut state.receive_budget, header, delivery)?;
            if state.phase == Phase::Closed {
                // Nothing would stop its handler any more.
                return Ok(Verdict::Drop);
            }
            let Start::Run(streams) = state.calls.start(header.call)? else {
                return Ok(Verdict::Drop);
            };
            // There is one already where the request was announced before it arrived. A call that
            // is refused has no streams: messages that were sent before the client hears of the
            // refusal are dropped.
            let early = streams.recv_stream.take().filter(|_| header.is_streaming);
            state.started_count += 1;
            (received, early, state.phase != Phase::Open)
        };
        if is_draining {
            return Ok(Verdict::Reject(refusal::going_away()));
        }
        let admitted = match self.admit(header, received, early) {
            Ok(admitted) => admitted,
            Err(status) => return Ok(Verdict::Reject(status)),
        };
        // The session was not locked during `admit`. A call that ended meanwhile has no entry here,
        // and `run` aborts the task of its handler, if it has one.
        let CallStreams { recv_stream, send_stream } = &admitted.streams;
        if (recv_stream.is_some() || send_stream.is_some())
            && let Some(streams) = self.state().calls.streams_mut(header.call)
        {
            *streams = admitted.streams.clone();
        }
        Ok(Verdict::Run(admitted))
    }

    /// Checks a request that has arrived, and takes its permit and its memory, if it is not
    /// counted already as `received`; `early` is the stream of its messages, if there is one.
    #[inline(always)]
    fn admit(
        &self,
        header: &FrameHeader,
        received: Option<MemoryCharge>,
        early: Option<Arc<RecvStream>>,
    ) -> Result<Admitted<'_>, Status> {
        // An announced request was checked before, but no permit was taken for it: the limit on
        // calls may be reached by now.
        self.check_limits(header)?;
        // Before `authorize`, which is the program's own code: a client beyond its share does not
        // get there.
        let permit = self.calls.try_take(1)?;
        let route = self.allowed_route(header)?;
        let received = match received {
            None if header.frame_len() >= COUNTED_LEN => {
                self.core().memory.try_take(header.frame_len())?
            }
            received => received.unwrap_or_default(),
        };
        // Messages that overtook their announced request are in it already.
        let recv_stream = match early {
            None => self.recv_stream(header)?,
            early => early,
        };
        let send_stream = || Arc::new(SendStream::new(self.core().settled.peer_limits.window()));
        let send_stream = route.kind.has_response_stream().then(send_stream);
        Ok(Admitted { permit, received, route, streams: CallStreams { recv_stream, send_stream } })
    }

    /// The stream of a request whose method takes one, with the memory that its window binds.
    fn recv_stream(&self, header: &FrameHeader) -> Result<Option<Arc<RecvStream>>, Status> {
        if !header.is_streaming {
            return Ok(None);
        }
        let first = self.core().settled.limits.first_request_window();
        let memory = WindowMemory::open(&self.core().memory, first)?;
        let window = ReceiveWindow::widening(first, self.core().settled.limits.window());
        Ok(Some(Arc::new(RecvStream::requests(window, memory))))
    }

    fn handle_messages(
        &self,
        header: &FrameHeader,
        frame: Bytes,
        delivery: &Delivery,
    ) -> Result<(), ProtocolError> {
        // A large one counts until the stream has counted it.
        let _received = received(&mut self.state().receive_budget, header, delivery)?;
        let (_, messages) = match self.core().take_stream_apart(header, frame) {
            Ok(parts) => parts,
            Err(status) => {
                self.fail_requests(header.call, status);
                return Ok(());
            }
        };
        let item = match header.is_deflated {
            true => Item::Deflated(messages),
            false => Item::Messages(messages),
        };
        self.insert(header, item)
    }

    fn insert(&self, header: &FrameHeader, item: Item) -> Result<(), ProtocolError> {
        let recv_stream = self.state().recv_stream(header.call);
        // The call may have been answered or refused: then the frame is dropped.
        if let Some(recv_stream) = recv_stream {
            let _ = recv_stream.insert(header.argument, item)?;
        }
        Ok(())
    }

    /// Ends a request stream because of what this side cannot receive. What becomes of the call
    /// is its handler's decision, which most leave to `?`.
    fn fail_requests(&self, call: u64, status: Status) {
        let recv_stream = self.state().recv_stream(call);
        if let Some(recv_stream) = recv_stream {
            recv_stream.fail(status);
        }
    }
}

impl State {
    fn recv_stream(&self, call: u64) -> Option<Arc<RecvStream>> {
        self.calls.streams(call)?.recv_stream.clone()
    }

    fn send_stream(&self, call: u64) -> Option<Arc<SendStream>> {
        self.calls.streams(call)?.send_stream.clone()
    }
}

/// Stops the handler of a call that has ended without an answer, and its requests.
fn end(Kept { streams, task }: Kept<CallStreams, AbortHandle>, why: impl FnOnce() -> Status) {
    if let Some(task) = task {
        task.abort();
    }
    streams.end_requests(why);
}

/// Checks that a client may announce frames of the header's kind.
fn expect_announced(header: &FrameHeader) -> Result<(), ProtocolError> {
    match header.kind {
        FrameKind::Request | FrameKind::Messages => Ok(()),
        kind @ (FrameKind::Response
        | FrameKind::Cancel
        | FrameKind::Headers
        | FrameKind::HalfClose
        | FrameKind::Window
        | FrameKind::Ping
        | FrameKind::Pong
        | FrameKind::GoAway) => Err(unexpected(kind)),
    }
}

fn unexpected(kind: FrameKind) -> ProtocolError {
    ProtocolError::UnexpectedFrame { kind, role: "client" }
}
