//! The frame that answers a call, and the record of the call for the log, from the arrival of its
//! request to its end.
//!
//! The record goes with the obligation to answer: the session takes it when it has sent the answer,
//! and an obligation that is dropped with it stands for a call that its client has given up.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tonic::{Code, Status};

use crate::MethodDescriptor;
use crate::call::log::{CallLog, FailedCall, NameOf};
use crate::call::moment::Moment;
use crate::deadline::rounded;
use crate::limits::log::LogLimit;
use crate::metrics::ServerMeter;
use crate::payload::encode::Encode;
use crate::server::call_stats::{CallStats, EndedCallInfo, FailedCallInfo};
use crate::stream::{RecvStream, SendStream};
use crate::transport::frames::Parts;
use crate::transport::{Addresses, Transport};
use crate::wire::outcome::Outcome;
use crate::wire::{FrameHeader, FrameKind, PeerText, metadata};

/// Maximum number of metadata keys that a watcher sees, and maximum length of each in bytes.
const KEYS_MAX: (usize, usize) = (32, 64);

/// The parts of a response frame.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    pub(in crate::server) code: u16,
    /// Number of the answer's frames before this one.
    pub(in crate::server) seq: u64,
    pub(in crate::server) is_not_executed: bool,
    pub(in crate::server) is_deflated: bool,
    pub(in crate::server) block: Vec<u8>,
    pub(in crate::server) message: Option<&'a dyn Encode>,
}

impl Answer<'_> {
    /// An answer without block and message.
    pub(in crate::server) fn bare(code: u16, seq: u64) -> Self {
        let (is_not_executed, is_deflated) = (false, false);
        Self { code, seq, is_not_executed, is_deflated, block: Vec::new(), message: None }
    }

    /// The frame that carries the answer to the call `id`.
    pub(in crate::server) fn parts(&self, id: u64) -> Parts<'_> {
        let mut header = FrameHeader::bare(FrameKind::Response, id);
        header.selector = self.code;
        header.argument = self.seq;
        header.is_not_executed = self.is_not_executed;
        header.is_deflated = self.is_deflated;
        Parts::new(header, &self.block, self.message)
    }
}

/// The streams of a call, where its method has them.
#[derive(Debug, Clone, Default)]
pub(in crate::server) struct CallStreams {
    /// The client's messages.
    pub(in crate::server) recv_stream: Option<Arc<RecvStream>>,
    /// The client's window for ours.
    pub(in crate::server) send_stream: Option<Arc<SendStream>>,
}

impl CallStreams {
    /// Returns true if the method has none.
    pub(in crate::server) fn is_empty(&self) -> bool {
        self.recv_stream.is_none() && self.send_stream.is_none()
    }

    /// Ends the requests of a call that has ended, for a task that still reads them: a task that
    /// was given them by the handler would wait for ever, and keep the session.
    pub(in crate::server) fn end_requests(self, why: impl FnOnce() -> Status) {
        if let Some(recv_stream) = self.recv_stream {
            recv_stream.fail(why());
        }
    }
}

/// A call whose end may have a line in the log, or is counted.
#[derive(Debug)]
pub(crate) struct CallRecord {
    method: Option<&'static MethodDescriptor>,
    began: Moment,
    /// Timeout by the client, in microseconds. 0 stands for none.
    timeout_us: u64,
    /// The length of the request; 0 where it is a stream. Absent where it has not come.
    request_len: Option<u64>,
    meter: ServerMeter,
    /// Keys of its metadata, for a watcher.
    keys: Option<Box<[String]>>,
}

/// The log of a connection's calls, and the connection's fields in its lines.
#[derive(Clone, Copy)]
pub(in crate::server) struct CallLines<'a> {
    pub(in crate::server) log: CallLog,
    pub(in crate::server) limit: &'a LogLimit,
    pub(in crate::server) addresses: &'a Addresses,
    pub(in crate::server) transport: &'a dyn Transport,
    /// The counts for operators, if there are any.
    pub(in crate::server) stats: Option<&'a CallStats>,
}

/// The end of a call.
struct End<'a> {
    code: Code,
    message: &'a str,
    /// The client makes the call elsewhere: for its caller it has not failed.
    is_redirected: bool,
    messages: Messages,
}

/// The messages of a call, as far as they are known when it ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::server) struct Messages {
    requests: Option<u32>,
    responses: Option<u32>,
    /// The length of the response, where it is one message.
    response_len: Option<u64>,
    /// Bytes of the messages of the streams, modulo 2^32.
    streamed_requests: u32,
    streamed_responses: u32,
}

/// The client's end of a connection.
struct Peer<'a>(&'a Addresses);

impl fmt::Display for Peer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Addresses { peer: Some(peer), unix: None, stream: None, .. } => write!(f, "{peer}"),
            addresses => write!(f, "{addresses}"),
        }
    }
}

impl Messages {
    /// Those of a call with `streams` whose answer has a message of `response_len` bytes, if it has
    /// one.
    pub(in crate::server) fn of(response_len: Option<u64>, streams: &CallStreams) -> Self {
        let (requests, streamed_requests) = match &streams.recv_stream {
            Some(stream) => (stream.received_count(), stream.received_bytes()),
            None => (1, 0),
        };
        let (responses, streamed_responses) = match &streams.send_stream {
            Some(stream) => (stream.sent_count(), stream.sent_bytes()),
            None => (response_len.is_some().into(), 0),
        };
        let (requests, responses) = (Some(requests), Some(responses));
        Self { requests, responses, response_len, streamed_requests, streamed_responses }
    }

    /// Bytes of the responses.
    fn sent(&self) -> u64 {
        self.response_len.unwrap_or(0) + u64::from(self.streamed_responses)
    }
}

impl CallRecord {
    /// The record of a call whose request has arrived; absent where its end will have no line and
    /// is not counted.
    #[inline(always)]
    pub(in crate::server) fn begin(
        log: CallLog,
        header: &FrameHeader,
        method: impl FnOnce() -> Option<&'static MethodDescriptor>,
    ) -> Option<Self> {
        if !log.needs_start() && !ServerMeter::is_counting() {
            return None;
        }
        // Not before: the look-up is for calls with a line or a count alone.
        Some(Self::new(header, method()))
    }

    #[inline(never)]
    fn new(header: &FrameHeader, method: Option<&'static MethodDescriptor>) -> Self {
        let meter = ServerMeter::new(|| method);
        meter.started();
        let began = Moment::now();
        let (timeout_us, request_len) = (header.argument, Some(header.message_len));
        Self { method, began, timeout_us, request_len, meter, keys: None }
    }

    /// Keeps the keys of a request's metadata for a watcher. Those that gRPC does not allow, and
    /// those that are too long, are left out.
    pub(in crate::server) fn keep_keys(&mut self, block: &Bytes) {
        let (count_max, len_max) = KEYS_MAX;
        let keys = metadata::keys(block.clone()).filter_map(|key| {
            let is_plain = key.len() <= len_max && key.iter().all(u8::is_ascii_graphic);
            is_plain.then(|| String::from_utf8_lossy(&key).into_owned())
        });
        self.keys = Some(keys.take(count_max).collect());
    }

    /// The record of a call whose message has not come; absent where its end will have no line and
    /// is not counted. One that is completed has another record, and is not counted here.
    pub(in crate::server) fn begin_early(
        log: CallLog,
        method: Option<&'static MethodDescriptor>,
        timeout: Option<Duration>,
    ) -> Option<Self> {
        // Its start is not counted: a call whose message comes begins once more.
        let meter = ServerMeter::new(|| method);
        let began = (log.needs_start() || meter.is_on()).then(Moment::now)?;
        let timeout_us = timeout.map_or(0, |it| u64::try_from(it.as_micros()).unwrap_or(u64::MAX));
        Some(Self { method, began, timeout_us, request_len: None, meter, keys: None })
    }

    /// Counts a unary call that has succeeded with a response of `response_len` bytes, where
    /// nothing else is kept of it.
    #[inline(never)]
    pub(in crate::server) fn count_success(&self, response_len: u64) {
        let request_len = self.request_len.unwrap_or(0);
        self.meter.ended(Code::Ok, self.began.elapsed_nanos(), response_len, request_len);
    }

    /// Writes what is to be said of a call whose answer was sent.
    pub(in crate::server) fn log_answer(
        &self,
        lines: CallLines<'_>,
        answer: &Answer<'_>,
        messages: Messages,
    ) {
        if answer.code == 0 {
            let end = End { code: Code::Ok, message: "", is_redirected: false, messages };
            return self.log(lines, &end);
        }
        self.log_failure(lines, answer, messages);
    }

    /// Logs a failed call, with the status that its answer encodes.
    fn log_failure(&self, lines: CallLines<'_>, answer: &Answer<'_>, messages: Messages) {
        let outcome = Outcome::decode(answer.code, answer.block.clone().into());
        let status = outcome.ok().and_then(|outcome| outcome.result.err());
        let (code, message) = match &status {
            Some(status) => (status.code(), status.message()),
            None => (Code::from(i32::from(answer.code)), ""),
        };
        let is_redirected = answer.is_not_executed && code == Code::Unavailable;
        self.log(lines, &End { code, message, is_redirected, messages });
    }

    /// Writes what is to be said of a call that was not answered.
    pub(in crate::server) fn log_unanswered(
        &self,
        lines: CallLines<'_>,
        code: Code,
        message: &str,
    ) {
        // `begin_early` has not counted the start.
        if self.request_len.is_none() {
            self.meter.started();
        }
        let messages = Messages::default();
        self.log(lines, &End { code, message, is_redirected: false, messages });
    }

    /// Bytes of the requests.
    fn received(&self, messages: &Messages) -> u64 {
        // Other calls have the length that their header announced.
        match messages.streamed_requests {
            0 => self.request_len.unwrap_or(0),
            streamed => streamed.into(),
        }
    }

    /// Counts a call for operators, shows it to those that watch, and keeps it if it has failed.
    fn keep(&self, stats: &CallStats, lines: &CallLines<'_>, end: &End<'_>, took: Duration) {
        stats.count(self.method, end.code, took);
        if stats.is_watched() {
            self.show(stats, lines, end, took);
        }
        // A call that its client gave up is not the server's failure.
        let has_failed = !matches!(end.code, Code::Ok | Code::Cancelled);
        if has_failed && !end.is_redirected {
            stats.keep_failed(FailedCallInfo {
                at: SystemTime::now(),
                method: self.method.map_or("unknown", |it| it.path),
                peer: Peer(lines.addresses).to_string(),
                transport: lines.transport.name(),
                code: end.code,
                message: PeerText::new(end.message).to_string(),
                took,
            });
        }
    }

    #[cold]
    fn show(&self, stats: &CallStats, lines: &CallLines<'_>, end: &End<'_>, took: Duration) {
        let (method, messages) = (self.method.map_or("unknown", |it| it.path), &end.messages);
        // Described only for a watcher that chose it: the description allocates.
        stats.show(method, end.code, || EndedCallInfo {
            at: SystemTime::now(),
            method,
            peer: Peer(lines.addresses).to_string(),
            transport: lines.transport.name(),
            code: end.code,
            took,
            requests: (messages.requests.unwrap_or_default(), self.received(messages)),
            responses: (messages.responses.unwrap_or_default(), messages.sent()),
            keys: self.keys.as_deref().unwrap_or_default().to_vec(),
        });
    }

    fn log(&self, lines: CallLines<'_>, end: &End<'_>) {
        // First: the work below is not part of the call.
        let nanos = self.began.elapsed_nanos();
        let (messages, took) = (&end.messages, Duration::from_nanos(nanos));
        self.meter.ended(end.code, nanos, messages.sent(), self.received(messages));
        if let Some(stats) = lines.stats {
            self.keep(stats, &lines, end, took);
        }
        if lines.log.access || end.code != Code::Ok {
            self.write_lines(lines, end, took);
        }
    }

    fn write_lines(&self, lines: CallLines<'_>, end: &End<'_>, took: Duration) {
        let method = self.method.map_or("unknown", |it| it.path);
        let (peer, code, transport) = (Peer(lines.addresses), end.code, lines.transport.name());
        if lines.log.failures && code != Code::Ok {
            let transport = Some(transport);
            let (peer, message) = (&peer, end.message);
            let failed = FailedCall { method, peer, transport, code, message, took };
            // The limit is for failures, and this is none for the call's caller.
            if end.is_redirected { failed.log_redirected() } else { failed.log(lines.limit) }
        }
        if lines.log.access {
            let timeout = Some(self.timeout_us).filter(|timeout_us| *timeout_us > 0);
            let timeout = timeout.map(Duration::from_micros).map(rounded);
            let (took, code) = (rounded(took), NameOf(code));
            let Messages { requests, responses, response_len, .. } = end.messages;
            let is_stream = self.method.is_some_and(|method| method.kind.has_request_stream());
            let request_len = self.request_len.filter(|_| !is_stream);
            tracing::info!(
                target: "farcall::access",
                method, %peer, %transport, %code, ?took,
                timeout = timeout.map(tracing::field::debug),
                requests, request_len, responses, response_len, "call"
            );
        }
    }
}
