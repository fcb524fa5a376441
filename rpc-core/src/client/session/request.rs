//! A call's request as a frame that enters the call into the session's table as it is written.

use std::sync::Arc;

use tokio::time::Instant;
use tonic::Status;

use crate::call::{refusal, server_times};
use crate::client::established::CallGuard;
use crate::client::session::places::Place;
use crate::client::session::{InFlight, Route, Session};
use crate::client::{Connection, Outgoing, Started};
use crate::compression::{Deflated, is_due};
use crate::payload::encode::Encode;
use crate::stream::{RecvStream, SendStream, SessionIo};
use crate::transport::frames::Parts;
use crate::transport::{OutFrame, TransportError, Withdrawn, WriteHead};
use crate::wire::{FrameHeader, FrameKind, metadata};
use crate::{CallKind, Explain, Method};

/// A request on its way to the transport. Dropped before it has become a [`Started`], its call is
/// in no table.
pub(super) struct Request<'a> {
    session: &'a Arc<Session>,
    call: &'a Outgoing<'a>,
    header: FrameHeader,
    block: Vec<u8>,
    message: Option<&'a dyn Encode>,
    /// Its place, if its caller has had to wait for one.
    place: Option<Place<'a>>,
    entry: Entry,
    /// Bytes that the transport had copied before, for the account of the call.
    copied_before: u64,
}

/// The state of the request's call.
enum Entry {
    /// There was no memory for its frame yet.
    None,
    /// It is in the table.
    Made { id: u64, responses: Option<Arc<RecvStream>>, send_stream: Option<Arc<SendStream>> },
    /// There is no place for it.
    Full,
    /// The session starts no such call.
    Refused(Status),
}

impl Session {
    /// Starts a call if nothing has to be waited for; `None` when the caller has to wait with
    /// [`Session::start_call`].
    ///
    /// # Errors
    ///
    /// Returns the call's status when it cannot be started. It was not executed.
    #[inline(always)]
    pub(in crate::client) fn try_start(
        self: &Arc<Self>,
        call: &Outgoing<'_>,
    ) -> Result<Option<Started>, Status> {
        // Compression has to wait, which only `start_call` can do.
        if self.compresses(call) {
            return Ok(None);
        }
        let mut request = Request::new(self, call, None);
        request.prepare()?;
        match self.core.transport.try_send(request.frame()) {
            Ok(true) => request.into_started().map(Some),
            Ok(false) => Ok(None),
            Err(_) if matches!(request.entry, Entry::Full) => Ok(None),
            Err(error) => Err(request.failed(&error)),
        }
    }

    /// Starts a call, once the peer's limit and the transport's memory allow.
    ///
    /// # Errors
    ///
    /// Returns the call's status when it cannot be started. It was not executed.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: dropped before it is ready, it does not start the call.
    pub(in crate::client) async fn start_call(
        self: &Arc<Self>,
        call: &Outgoing<'_>,
    ) -> Result<Started, Status> {
        let place = self.place().await?;
        let deflated = match call.message {
            Some(message) if self.compresses(call) => Deflated::of(message).await,
            _ => None,
        };
        let mut request = Request::new(self, call, Some(place));
        request.prepare()?;
        if let Some(deflated) = &deflated {
            request.compress(deflated);
        }
        match self.core.transport.send(request.frame()).await {
            Ok(()) => request.into_started(),
            Err(error) => Err(request.failed(&error)),
        }
    }

    /// Asks the server for its times, if its limit on metadata has room. A stream of responses ends
    /// later than the account.
    fn ask_for_times(&self, method: &Method, block: &mut Vec<u8>) {
        let len = block.len();
        let encoded = server_times::encode_wish(block);
        let max = self.core.settled.peer_limits.max_metadata_len;
        let fits = u32::try_from(block.len()).is_ok_and(|len| len <= max);
        if encoded.is_err() || !fits || method.kind().has_response_stream() {
            block.truncate(len);
        }
    }

    /// Records that the transport has a call's request, of `len` bytes.
    fn explain_sent(&self, explain: &Explain, len: u64, copied: u64) {
        let is_large = len > self.core.transport.frame_protocol().small_len_max;
        explain.sent(self.explained(len, is_large), copied, || Connection::info(self));
    }

    /// Returns true if the call's message is compressed before it is sent.
    fn compresses(&self, call: &Outgoing<'_>) -> bool {
        let from = self.core.settled.compression.from(call.limits.compress_from());
        call.message.is_some_and(|message| is_due(from, || message.len()))
    }
}

impl<'a> Request<'a> {
    #[inline]
    pub(super) fn new(
        session: &'a Arc<Session>,
        call: &'a Outgoing<'a>,
        place: Option<Place<'a>>,
    ) -> Self {
        // Without an id: the call gets one when the frame is written, so that one that is given up
        // before leaves no entry.
        let mut header = FrameHeader::bare(FrameKind::Request, 0);
        header.is_streaming = call.message.is_none();
        let (message, block, entry) = (call.message, Vec::new(), Entry::None);
        Self { session, call, header, block, message, place, entry, copied_before: 0 }
    }

    /// Encodes the request's metadata, and checks the request against the peer's limits. Called
    /// once, where the request lies: to return a checked one would move it once more.
    ///
    /// # Errors
    ///
    /// Returns the status of a call that is not made.
    #[inline(always)]
    pub(super) fn prepare(&mut self) -> Result<(), Status> {
        let Self { session, call, header, block, .. } = self;
        // First: a method that the server does not have needs no encoding.
        header.selector = session.method_id(call.method)?;
        if !call.metadata.is_empty() {
            metadata::encode(call.metadata, block)
                .map_err(|error| refusal::unencodable("request", &error))?;
        }
        if call.explain.is_some() {
            session.ask_for_times(call.method, block);
        }
        header.measure(block.len(), call.message.map_or(0, Encode::len));
        let peer_limits = &session.core.settled.peer_limits;
        refusal::check_message("request", header.message_len, "server's", peer_limits)?;
        refusal::check_metadata("request", block.len(), "server's", peer_limits)?;
        Ok(())
    }

    /// Sends the call's message compressed.
    pub(super) fn compress(&mut self, deflated: &'a Deflated) {
        self.message = Some(deflated);
        self.header.is_deflated = true;
        self.header.measure(self.block.len(), deflated.len());
    }

    /// The call of a request that the transport has.
    #[inline(always)]
    fn into_started(mut self) -> Result<Started, Status> {
        match std::mem::replace(&mut self.entry, Entry::None) {
            Entry::Made { id, responses, send_stream } => {
                if let Some(explain) = self.call.explain {
                    let len = self.parts().len() as u64;
                    self.session.explain_sent(explain, len, self.copied_before);
                }
                let guard = CallGuard::new(id, Arc::clone(self.session));
                Ok(Started { guard, responses, send_stream })
            }
            Entry::Refused(status) => Err(status),
            Entry::None | Entry::Full => {
                Err(Status::internal("the transport has sent a request unwritten"))
            }
        }
    }

    /// The status of the call of a request that the transport has not sent.
    pub(super) fn failed(mut self, error: &TransportError) -> Status {
        match std::mem::replace(&mut self.entry, Entry::None) {
            Entry::Refused(status) => return status,
            // It was written and not sent: no answer will take it out of the table.
            Entry::Made { id, .. } => self.session.finish(id),
            Entry::None | Entry::Full => {}
        }
        self.session.unsendable(error)
    }

    /// Enters the call into the table.
    #[inline(always)]
    fn enter(&mut self) -> Result<(), Entry> {
        // The clock is looked at only where the call has a deadline.
        let timed = self.call.deadline.map(|limit| (limit, Instant::now()));
        if let Some((limit, _)) = timed.filter(|(limit, now)| limit.deadline().has_passed(*now)) {
            return Err(Entry::Refused(limit.exceeded()));
        }
        let (session, kind) = (self.session, self.call.method.kind());
        let is_uploading = matches!(kind, CallKind::ClientStreaming | CallKind::Streaming);
        let send_stream = is_uploading
            .then(|| Arc::new(SendStream::new(session.core.settled.peer_limits.window())));
        let has_responses = matches!(kind, CallKind::ServerStreaming | CallKind::Streaming);
        let responses = has_responses.then(|| Arc::new(session.responses()));
        let route = responses.clone().map_or(Route::Waiting(None), Route::Stream);
        // The phase and the table in one lock section: a session that closes in between would not
        // see this call.
        let mut state = session.state();
        if let Some(status) = state.phase.refusal(&session.server) {
            return Err(Entry::Refused(status));
        }
        match self.place.take() {
            Some(place) => place.leave_to_call(&mut state.calls),
            // While callers wait, there is none.
            None if !state.calls.has_room() => return Err(Entry::Full),
            None => {}
        }
        let explain = self.call.explain.cloned();
        let method = self.call.method.descriptor();
        let in_flight = InFlight { route, send_stream: send_stream.clone(), explain, method };
        let id = state.calls.start(in_flight);
        drop(state);
        self.header.call = id;
        self.header.argument = timed.map_or(0, |(limit, now)| limit.deadline().to_wire(now));
        self.entry = Entry::Made { id, responses, send_stream };
        Ok(())
    }

    #[inline(always)]
    fn write(&mut self, head: &mut [u8]) -> Result<(), Withdrawn> {
        match self.enter() {
            Ok(()) => self.parts().write_head(head),
            Err(entry) => {
                self.entry = entry;
                Err(Withdrawn)
            }
        }
    }

    /// The frame, as a transport takes it.
    #[inline(always)]
    pub(super) fn frame(&mut self) -> OutFrame<'_> {
        let (head_len, tail) = (self.parts().head_len(), self.message.and_then(Encode::tail));
        let marks = self.call.explain.map(Explain::frame);
        OutFrame::new(head_len, tail, self).with_marks(marks)
    }

    fn parts(&self) -> Parts<'_> {
        Parts::measured(self.header, &self.block, self.message)
    }
}

impl WriteHead for Request<'_> {
    fn write_head(&mut self, head: &mut [u8]) -> Result<(), Withdrawn> {
        if let Some(explain) = self.call.explain {
            self.copied_before = self.session.copied_bytes();
            return explain.encode(|| self.write(head));
        }
        self.write(head)
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        // Dropped between writing and sending: no answer will take the call out of the table.
        if let Entry::Made { id, .. } = self.entry {
            self.session.finish(id);
        }
    }
}
