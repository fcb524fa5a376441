//! An account of one call: the stages that its time went to, its attempts, and its protocol.
//!
//! A caller asks for it with an extension of its request. The layers below find the extension, and
//! put marks on it. A call without it costs one look at each of these places: no clock is read, and
//! nothing is allocated.
//!
//! Both ends measure with their own clocks, and instants never cross. The server is asked by an
//! entry of the request's metadata, and answers with durations in the trailers, which the client
//! takes out. They only divide the time between sending and receiving, which the client has
//! measured: a server that says more is not believed.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use tonic::metadata::MetadataMap;
use tonic::{Code, Extensions, Status};

use super::explanation::{CallExplanation, CallStage, EndpointPick, ExplainedFrame};
use super::server_times::{KEY, ServerTimes};
use crate::connect::ConnectionInfo;
use crate::transport::FrameMarks;
use crate::wire::PeerText;

/// Maximum number of failed attempts that are kept. A call has eight at most.
const FAILED_MAX: usize = 8;

/// A request for an account of one call, as an extension of the call's request.
///
/// The value that the caller keeps has the account afterwards, also if the call fails or is dropped
/// while it waits. Clones share it. A value that is used for another call tells of that one.
///
/// # Examples
///
/// ```
/// use farcall::{Explain, Request};
///
/// let explain = Explain::new();
/// let mut request = Request::new("the request's message");
/// request.extensions_mut().insert(explain.clone());
/// // Once a stub has made the call with `request`:
/// println!("{}", explain.explanation());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Explain(Arc<Mutex<Marks>>);

/// The marks on a call.
#[derive(Debug, Default)]
struct Marks {
    began: Option<Instant>,
    ended: Option<Instant>,
    /// Encoding before the first attempt, for connections that take encoded calls.
    encoding: Option<(Instant, Instant)>,
    attempts: u32,
    failed: Vec<(Code, String)>,
    endpoint: Option<String>,
    pick: Option<EndpointPick>,
    attempt: AttemptMarks,
}

/// The marks on one attempt.
#[derive(Debug, Default)]
struct AttemptMarks {
    began: Option<Instant>,
    /// There is a connection, and memory for the request.
    ready: Option<Instant>,
    encoded: Option<Instant>,
    /// The transport begins to post the request.
    posting: Option<Instant>,
    posted: Option<Instant>,
    /// The peer has read a large request.
    released: Option<Instant>,
    /// A large response is announced.
    announced: Option<Instant>,
    delivered: Option<Instant>,
    /// The caller's task has the response.
    received: Option<Instant>,
    server: Option<ServerTimes>,
    connection: Option<ConnectionInfo>,
    copied: Option<u64>,
    request: Option<ExplainedFrame>,
    reply: Option<ExplainedFrame>,
}

impl Explain {
    /// Returns a request for an account.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the account as far as the call has come.
    #[must_use]
    pub fn explanation(&self) -> CallExplanation {
        let marks = self.marks();
        let (total, stages) = marks.stages();
        let attempt = &marks.attempt;
        CallExplanation {
            total,
            stages,
            attempts: marks.attempts,
            failed: marks.failed.clone(),
            endpoint: marks.endpoint.clone(),
            pick: marks.pick,
            connection: attempt.connection.clone(),
            request: attempt.request,
            reply: attempt.reply,
            copied_bytes: attempt.reply.and(attempt.copied),
        }
    }

    fn marks(&self) -> MutexGuard<'_, Marks> {
        self.0.lock()
    }

    /// Begins the account that the request of a stub's call asks for. A value that was used before
    /// is emptied: it tells of this call from now on.
    #[inline]
    pub(crate) fn begin(extensions: &Extensions) -> Option<Self> {
        let this = extensions.get::<Self>()?;
        *this.marks() = Marks { began: Some(Instant::now()), ..Marks::default() };
        Some(this.clone())
    }

    /// Begins the account in a layer, unless the stub above has begun it.
    pub(crate) fn join(&self) {
        self.marks().began.get_or_insert_with(Instant::now);
    }

    /// Records the call's end, and the failure that ended it if that is of no attempt: a deadline
    /// of this side, a response that cannot be decoded.
    pub(crate) fn end(&self, failure: Option<&Status>) {
        let mut marks = self.marks();
        marks.ended = Some(Instant::now());
        let recorded = u32::try_from(marks.failed.len()).unwrap_or(u32::MAX);
        if let Some(status) = failure.filter(|_| recorded < marks.attempts.max(1)) {
            marks.fail(status);
        }
    }

    /// Runs the encoding of a call that is encoded before its attempts.
    pub(crate) fn encode_first<T>(&self, encode: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let encoded = encode();
        self.marks().encoding = Some((began, Instant::now()));
        encoded
    }

    /// Records the choice of an endpoint for the next attempt.
    pub(crate) fn picked(&self, pick: EndpointPick) {
        self.marks().pick = Some(pick);
    }

    /// Begins an attempt at the server with this address.
    pub(crate) fn begin_attempt(&self, address: &str) {
        let mut marks = self.marks();
        let now = Instant::now();
        // For a call that was made below its stub.
        marks.began.get_or_insert(now);
        marks.attempts = marks.attempts.saturating_add(1);
        marks.endpoint = Some(address.to_owned());
        marks.attempt = AttemptMarks { began: Some(now), ..AttemptMarks::default() };
    }

    /// Records that an attempt has failed.
    pub(crate) fn fail_attempt(&self, status: &Status) {
        self.marks().fail(status);
    }

    /// Takes over the attempt of another account, whose answer is the call's. `attempts` side by
    /// side have accounts of their own.
    pub(crate) fn adopt(&self, attempt: &Self) {
        let theirs = std::mem::take(&mut *attempt.marks());
        let mut marks = self.marks();
        marks.attempt = theirs.attempt;
        marks.encoding = theirs.encoding.or(marks.encoding);
        marks.endpoint = theirs.endpoint.or(marks.endpoint.take());
        marks.pick = theirs.pick.or(marks.pick);
        marks.attempts = marks.attempts.saturating_add(theirs.attempts);
        let room = FAILED_MAX.saturating_sub(marks.failed.len());
        marks.failed.extend(theirs.failed.into_iter().take(room));
    }

    /// Records that a connection takes an encoded call.
    pub(crate) fn ready(&self, connection: impl FnOnce() -> ConnectionInfo) {
        // The look at the connection is no part of the wait for it.
        let (at, connection) = (Instant::now(), connection());
        let mut marks = self.marks();
        marks.attempt.ready = Some(at);
        marks.attempt.connection = Some(connection);
    }

    /// Runs the encoding of a request into its transport's memory.
    pub(crate) fn encode<T>(&self, encode: impl FnOnce() -> T) -> T {
        self.marks().attempt.ready = Some(Instant::now());
        let encoded = encode();
        self.marks().attempt.encoded = Some(Instant::now());
        encoded
    }

    /// Records that the transport has the request, and its connection with what that had copied
    /// before.
    pub(crate) fn sent(
        &self,
        request: ExplainedFrame,
        copied: u64,
        connection: impl FnOnce() -> ConnectionInfo,
    ) {
        let (at, connection) = (Instant::now(), connection());
        let mut marks = self.marks();
        let attempt = &mut marks.attempt;
        // A transport that waits for credits marks its posts itself.
        if attempt.posting.is_none() && !request.protocol.marks_posts {
            attempt.posted = Some(at);
        }
        attempt.request = Some(request);
        // A response may be here already. Then the counts of both are known.
        attempt.copied = match attempt.reply {
            Some(_) => attempt.copied.map(|after| after.saturating_sub(copied)),
            None => Some(copied),
        };
        attempt.connection = Some(connection);
    }

    /// Records that a large response is announced.
    pub(crate) fn announced(&self) {
        self.marks().attempt.announced = Some(Instant::now());
    }

    /// Records the arrival of a response, and what its connection has copied until now.
    pub(crate) fn delivered(&self, reply: ExplainedFrame, copied: impl FnOnce() -> u64) {
        let (at, copied) = (Instant::now(), copied());
        let mut marks = self.marks();
        let attempt = &mut marks.attempt;
        attempt.delivered = Some(at);
        attempt.reply = Some(reply);
        attempt.copied = match attempt.request {
            Some(_) => attempt.copied.map(|before| copied.saturating_sub(before)),
            None => Some(copied),
        };
    }

    /// Records that the caller's task has the response.
    pub(crate) fn received(&self) {
        self.marks().attempt.received = Some(Instant::now());
    }

    /// Takes the times that a server tells, out of what the caller sees.
    pub(crate) fn take_server_times(&self, metadata: &mut MetadataMap) {
        let value = metadata.remove(KEY);
        if let Some(times) = value.as_ref().and_then(ServerTimes::parse) {
            self.marks().attempt.server = Some(times);
        }
    }

    /// Returns the marks that a transport makes on the current attempt.
    pub(crate) fn frame(&self) -> Arc<dyn FrameMarks> {
        let attempt = self.marks().attempts;
        Arc::new(AttemptFrame { marks: Arc::clone(&self.0), attempt })
    }
}

/// The marks on the frame of one attempt. A transport may keep them for longer than the attempt:
/// those that come later are of no other one.
#[derive(Debug)]
struct AttemptFrame {
    marks: Arc<Mutex<Marks>>,
    attempt: u32,
}

impl AttemptFrame {
    fn mark(&self, mark: impl FnOnce(&mut AttemptMarks)) {
        let mut marks = self.marks.lock();
        if marks.attempts == self.attempt {
            mark(&mut marks.attempt);
        }
    }
}

impl FrameMarks for AttemptFrame {
    fn posting(&self) {
        self.mark(|attempt| attempt.posting = Some(Instant::now()));
    }

    fn posted(&self) {
        self.mark(|attempt| attempt.posted = Some(Instant::now()));
    }

    fn released(&self) {
        // Memory that was given back unused has not been read.
        self.mark(|attempt| attempt.released = attempt.posted.map(|_| Instant::now()));
    }
}

/// A walk along a call's marks that divides the time between them.
struct Timeline {
    at: Instant,
    end: Instant,
    times: [Option<Duration>; CallStage::ALL.len()],
}

impl Timeline {
    fn new(began: Instant, end: Instant) -> Self {
        Self { at: began, end: end.max(began), times: [None; CallStage::ALL.len()] }
    }

    fn add(&mut self, stage: CallStage, time: Duration) {
        let sum = &mut self.times[stage as usize];
        *sum = Some(sum.unwrap_or_default() + time);
    }

    /// Counts the time up to `mark` for `stage`. A mark before the last one counts as that.
    fn advance(&mut self, stage: CallStage, mark: Option<Instant>) {
        let Some(mark) = mark.map(|mark| mark.min(self.end)) else { return };
        self.add(stage, mark.saturating_duration_since(self.at));
        self.at = self.at.max(mark);
    }

    /// The same with what a server has measured inside that time.
    fn advance_remote(&mut self, mark: Instant, server: Option<ServerTimes>) {
        let mark = mark.clamp(self.at, self.end);
        let left = mark - self.at;
        self.at = mark;
        let Some(ServerTimes { queue, handler }) = server else {
            return self.add(CallStage::Remote, left);
        };
        // The request may reach the server before our own write returns, and the two overlap.
        let queue = queue.min(left);
        let handler = handler.min(left - queue);
        self.add(CallStage::ServerQueue, queue);
        self.add(CallStage::Handler, handler);
        self.add(CallStage::Wire, left - queue - handler);
    }

    fn stages(self) -> Vec<(CallStage, Duration)> {
        let times = CallStage::ALL.into_iter().zip(self.times);
        times.filter_map(|(stage, time)| Some((stage, time?))).collect()
    }
}

impl Marks {
    fn fail(&mut self, status: &Status) {
        if self.failed.len() < FAILED_MAX {
            let message = PeerText::new(status.message()).to_string();
            self.failed.push((status.code(), message));
        }
    }

    fn stages(&self) -> (Duration, Vec<(CallStage, Duration)>) {
        let Some(began) = self.began else { return Default::default() };
        let attempt = &self.attempt;
        let sent = attempt.posted.or(attempt.encoded).or(attempt.ready);
        let last = attempt.received.or(attempt.delivered).or(sent).or(attempt.began);
        let end = self.ended.or(last).unwrap_or(began);
        let mut timeline = Timeline::new(began, end);
        if let Some((began, ended)) = self.encoding {
            timeline.advance(CallStage::Queue, Some(began));
            timeline.advance(CallStage::Encode, Some(ended));
        }
        let before = if self.attempts > 1 { CallStage::EarlierAttempts } else { CallStage::Queue };
        timeline.advance(before, attempt.began);
        // An attempt that was never ready has waited until its end.
        timeline.advance(CallStage::Queue, Some(attempt.ready.unwrap_or(end)));
        if attempt.ready.is_some() {
            attempt.advance(&mut timeline);
        }
        (timeline.end - began, timeline.stages())
    }
}

impl AttemptMarks {
    /// Divides the time from the moment at which the request can be sent.
    fn advance(&self, timeline: &mut Timeline) {
        timeline.advance(CallStage::Encode, self.encoded);
        let sent = timeline.at;
        let answered = self.announced.or(self.delivered).or(self.received);
        let answered = answered.unwrap_or(timeline.end).min(timeline.end);
        // The answer may be here before the post returns: in process the whole call may run inside
        // of it. Then the time is not the post's.
        let in_time = |mark: &Instant| *mark <= answered;
        timeline.advance(CallStage::Credit, self.posting.filter(in_time));
        let posted = self.posted.map(|mark| if in_time(&mark) { mark } else { timeline.at });
        timeline.advance(CallStage::Post, posted);
        let is_large = self.request.is_some_and(|request| request.is_large);
        let released = self.released.filter(|_| is_large);
        timeline.advance(CallStage::Transfer, released.filter(in_time));
        // More than we have waited cannot be true.
        let window = answered.saturating_duration_since(sent);
        let server = self.server.filter(|server| server.fits(window));
        timeline.advance_remote(answered, server);
        // A call may end at any mark: the stage that it is in has the rest.
        let end = timeline.end;
        if self.announced.is_some() {
            let mark = self.delivered.or(self.received).unwrap_or(end);
            timeline.advance(CallStage::Transfer, Some(mark));
        }
        if self.delivered.is_some() {
            timeline.advance(CallStage::Delivery, Some(self.received.unwrap_or(end)));
        }
        if self.received.is_some() {
            timeline.advance(CallStage::Decode, Some(timeline.end));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tonic::metadata::AsciiMetadataValue;

    use super::*;
    use crate::call::server_times::{ArrivedCall, encode_wish};
    use crate::transport::FrameProtocol;
    use crate::wire::metadata;

    #[test]
    fn an_account_is_one_line_of_stages() {
        let mut account =
            CallExplanation { total: Duration::from_micros(212), ..Default::default() };
        assert_eq!(account.to_string(), "212 us");
        let micros = Duration::from_micros;
        account.stages = vec![(CallStage::Queue, micros(3)), (CallStage::Handler, micros(188))];
        assert_eq!(account.to_string(), "212 us: queue 3.0, handler 188");
    }

    #[test]
    fn late_marks_of_an_attempt_are_not_the_next_ones() {
        let explain = Explain::new();
        explain.begin_attempt("tcp://one");
        let first = explain.frame();
        explain.begin_attempt("tcp://two");
        let second = explain.frame();
        second.posted();
        first.posting();
        first.released();
        let marks = explain.marks();
        assert!(marks.attempt.posted.is_some());
        assert_eq!((marks.attempt.posting, marks.attempt.released), (None, None));
    }

    #[test]
    fn a_used_value_tells_of_the_next_call_alone() {
        let (explain, mut extensions) = (Explain::new(), Extensions::new());
        extensions.insert(explain.clone());
        // Dropped before its end.
        Explain::begin(&extensions).unwrap().begin_attempt("tcp://one");
        explain.fail_attempt(&Status::unavailable("gone"));
        Explain::begin(&extensions).unwrap().join();
        let account = explain.explanation();
        assert_eq!((account.attempts, account.failed.len(), account.endpoint), (0, 0, None));
    }

    #[test]
    fn a_failure_of_this_side_is_part_of_the_account() {
        let explain = Explain::new();
        explain.begin_attempt("tcp://one");
        explain.end(None);
        assert!(explain.explanation().failed.is_empty());
        explain.end(Some(&Status::deadline_exceeded("over time")));
        explain.end(Some(&Status::deadline_exceeded("over time")));
        let failed = explain.explanation().failed;
        assert_eq!(failed, [(Code::DeadlineExceeded, "over time".to_owned())]);
    }

    #[test]
    fn servers_trailer_is_read_back() {
        let mut trailers = MetadataMap::new();
        let mut block = Vec::new();
        trailers.insert("other", AsciiMetadataValue::from_static("x"));
        metadata::encode(&trailers, &mut block).unwrap();
        assert!(ArrivedCall::new(&block).is_none());
        encode_wish(&mut block).unwrap();
        let mut arrived = ArrivedCall::new(&block).unwrap();
        let stripped = metadata::decode(arrived.strip(&block)).unwrap();
        assert_eq!(stripped.into_headers(), trailers.clone().into_headers());
        arrived.dispatch();
        arrived.insert(&mut trailers);
        let explain = Explain::new();
        explain.take_server_times(&mut trailers);
        assert!(explain.marks().attempt.server.is_some());
        assert_eq!(trailers.len(), 1, "the caller does not see it");
    }

    proptest! {
        /// Marks may be missing and in any order, and a server may claim anything.
        #[test]
        fn stages_always_sum_to_the_total(
            marks in prop::collection::vec(prop::option::of(0_u64..1000), 12),
            claimed in prop::option::of((any::<u64>(), 0_u64..1000)),
            attempts in 0_u32..3,
            is_large in any::<bool>(),
        ) {
            let zero = Instant::now();
            let mark = |index: usize| marks[index].map(|at| zero + Duration::from_nanos(at));
            let server = claimed.map(|(queue, handler)| ServerTimes {
                queue: Duration::from_nanos(queue),
                handler: Duration::from_nanos(handler),
            });
            let request = ExplainedFrame { len: 1, protocol: FrameProtocol::DEFAULT, is_large };
            let attempt = AttemptMarks {
                began: mark(2),
                ready: mark(3),
                encoded: mark(4),
                posting: mark(5),
                posted: mark(6),
                released: mark(7),
                announced: mark(8),
                delivered: mark(9),
                received: mark(10),
                server,
                request: Some(request),
                ..AttemptMarks::default()
            };
            let encoding = mark(11).map(|at| (at, at + Duration::from_nanos(1)));
            let (began, ended) = (mark(0), mark(1));
            let marks = Marks { began, ended, encoding, attempts, attempt, ..Marks::default() };
            let (total, stages) = marks.stages();
            prop_assert_eq!(stages.iter().map(|(_, time)| *time).sum::<Duration>(), total);
            prop_assert!(total <= Duration::from_nanos(1000));
        }
    }
}
