//! The metrics of one call: of its attempts, one after another, and of all of it.

use std::sync::Arc;

use tonic::{Code, Status};

use crate::call::moment::Moment;
use crate::client::Started;
use crate::metrics::{AttemptEnd, ClientMeter};
use crate::stream::{RecvStream, SendStream};

/// The metrics of a call at one server. What it has begun is counted when it is dropped: as
/// `CANCELLED`, unless it was said otherwise.
#[derive(Debug)]
pub(in crate::client) struct CallMeter {
    meter: ClientMeter,
    /// Time at which the call began. Absent if a level above counts it.
    call: Option<Moment>,
    /// Time at which the present attempt began.
    attempt: Option<Moment>,
    /// Set once the attempt counts.
    is_started: bool,
    sent: u64,
    received: u64,
    code: Code,
    streams: Option<Box<Streams>>,
}

/// The streams of an attempt, which know what they have carried.
#[derive(Debug)]
struct Streams {
    send: Option<Arc<SendStream>>,
    recv: Option<Arc<RecvStream>>,
}

/// The metrics of a call of a channel, on its way to its servers.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::client) struct MeteredCall {
    meter: ClientMeter,
    /// Set if a level above counts the whole of it.
    is_attempt: bool,
}

impl MeteredCall {
    /// Returns the metrics of a call that goes to one server.
    pub(in crate::client) fn whole(meter: ClientMeter) -> Self {
        Self { meter, is_attempt: false }
    }

    /// Begins to count the whole call here, and the attempts at it where they are made.
    pub(in crate::client) fn split(&mut self) -> CallMeter {
        let call = self.meter.is_on().then(Moment::now);
        // The call takes this copy down to its servers, which then count attempts and not the call
        // again.
        self.is_attempt = true;
        let mut this = CallMeter::new(self.meter);
        this.call = call;
        this
    }

    /// Begins to count at the server that the call goes to.
    #[inline]
    pub(in crate::client) fn begin(self) -> CallMeter {
        let mut this = CallMeter::new(self.meter);
        if self.meter.is_on() {
            let began = Moment::now();
            this.call = (!self.is_attempt).then_some(began);
            this.attempt = Some(began);
        }
        this
    }
}

impl CallMeter {
    fn new(meter: ClientMeter) -> Self {
        let (sent, received, code) = (0, 0, Code::Cancelled);
        let (call, attempt, is_started, streams) = (None, None, false, None);
        Self { meter, call, attempt, is_started, sent, received, code, streams }
    }

    /// Returns true if anything is counted.
    pub(in crate::client) fn is_on(&self) -> bool {
        self.meter.is_on()
    }

    /// Counts an attempt that begins; `sent` is called for the length of its request.
    #[inline]
    pub(in crate::client) fn start_attempt(&mut self, sent: impl FnOnce() -> usize) {
        if self.meter.is_on() {
            // The first begins with the call.
            self.attempt.get_or_insert_with(Moment::now);
            self.is_started = true;
            self.meter.attempt_started();
            (self.sent, self.received) = (sent() as u64, 0);
        }
    }

    /// Counts the bytes of the streams of a call that was started.
    #[inline]
    pub(in crate::client) fn follow(&mut self, started: &Started) {
        let (send, recv) = (&started.send_stream, &started.responses);
        // An attempt that failed may have had streams, of the same kinds as this one.
        if self.meter.is_on() && (send.is_some() || recv.is_some()) {
            self.streams = Some(Box::new(Streams { send: send.clone(), recv: recv.clone() }));
        }
    }

    /// Counts bytes of a response.
    #[inline]
    pub(in crate::client) fn receive(&mut self, len: usize) {
        self.received += len as u64;
    }

    /// Sets the code that counts when this is dropped.
    pub(in crate::client) fn set_code(&mut self, code: Code) {
        self.code = code;
    }

    /// Counts an attempt that has failed; another one may follow.
    pub(in crate::client) fn fail_attempt(&mut self, status: &Status) {
        if self.meter.is_on()
            && let Some(began) = self.take_attempt()
        {
            let attempt = self.attempt_end(began.elapsed_nanos());
            self.meter.ended(status.code(), Some(attempt), None);
        }
    }

    /// Counts what is over with the first answer.
    #[inline]
    pub(in crate::client) fn finish<T>(&mut self, result: &Result<T, Status>) {
        self.code = result.as_ref().err().map_or(Code::Ok, Status::code);
        self.end();
    }

    /// Moves what goes on with a stream of responses.
    pub(in crate::client) fn take(&mut self) -> Self {
        // The meter left behind has no times, so that its drop counts nothing.
        std::mem::replace(self, Self::new(ClientMeter::default()))
    }

    #[inline]
    fn end(&mut self) {
        if self.attempt.is_some() || self.call.is_some() {
            self.end_both();
        }
    }

    /// Counts the attempt and the call, as far as they are not counted.
    #[inline(never)]
    fn end_both(&mut self) {
        let now = Moment::now();
        let attempt = self.take_attempt().map(|began| self.attempt_end(now.nanos_since(began)));
        let call = self.call.take().map(|began| now.nanos_since(began));
        self.meter.ended(self.code, attempt, call);
    }

    /// Takes the time at which the present attempt began. Absent if it never did.
    #[inline]
    fn take_attempt(&mut self) -> Option<Moment> {
        // `begin` sets the time of the first attempt in advance. Without a `start_attempt` since,
        // the call ended before any attempt, and none is counted.
        let began = self.attempt.take()?;
        std::mem::take(&mut self.is_started).then_some(began)
    }

    /// Returns the numbers of an attempt that has ended.
    #[inline]
    fn attempt_end(&mut self, nanos: u64) -> AttemptEnd {
        if self.streams.is_some() {
            self.add_streams();
        }
        AttemptEnd { nanos, sent: self.sent, received: self.received }
    }

    /// Adds the bytes that the streams of an attempt have carried.
    #[cold]
    fn add_streams(&mut self) {
        let Some(streams) = self.streams.take() else { return };
        let Streams { send, recv } = &*streams;
        self.sent += send.as_ref().map_or(0, |send| u64::from(send.sent_bytes()));
        self.received += recv.as_ref().map_or(0, |recv| u64::from(recv.received_bytes()));
    }
}

impl Drop for CallMeter {
    fn drop(&mut self) {
        self.end();
    }
}
