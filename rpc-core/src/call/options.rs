//! Options of the calls of one stub or service, and limits on their messages.
//!
//! The limits stand beside those of the connection, which both sides know and which bound memory
//! before a message is received. These are checked where a message is encoded or decoded.

use std::time::Duration;

use tonic::{Extensions, Request, Status};

/// The longest messages of the calls of one stub, or of one service, in bytes of their encoding.
///
/// Generated code keeps one; its default limits nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageLimits {
    max_decoding: u64,
    max_encoding: u64,
    /// From which length on messages are compressed; absent where the connection's settings say.
    compress_from: Option<u32>,
}

impl MessageLimits {
    /// No limits beside those of the connection.
    pub const NONE: Self =
        Self { max_decoding: u64::MAX, max_encoding: u64::MAX, compress_from: None };

    /// The same with a limit on messages that are received.
    #[must_use]
    pub const fn with_max_decoding(mut self, bytes: usize) -> Self {
        self.max_decoding = bytes as u64;
        self
    }

    /// The same with a limit on messages that are sent.
    #[must_use]
    pub const fn with_max_encoding(mut self, bytes: usize) -> Self {
        self.max_encoding = bytes as u64;
        self
    }

    /// The same with another length from which on messages that are sent are compressed, where the
    /// peer accepts it; `u32::MAX` and more compress none.
    #[must_use]
    pub fn with_compress_from(mut self, bytes: usize) -> Self {
        self.compress_from = Some(u32::try_from(bytes).unwrap_or(u32::MAX));
        self
    }

    /// From which length on messages are compressed; absent where the connection's settings say.
    pub(crate) fn compress_from(self) -> Option<u32> {
        self.compress_from
    }

    /// The stricter of both in each direction. What `self` says of compression comes first.
    #[must_use]
    pub(crate) fn stricter(self, other: Self) -> Self {
        Self {
            max_decoding: self.max_decoding.min(other.max_decoding),
            max_encoding: self.max_encoding.min(other.max_encoding),
            compress_from: self.compress_from.or(other.compress_from),
        }
    }

    /// Returns the limit on the messages that a stub sends.
    pub(crate) fn requests(self) -> MessageLimit {
        MessageLimit { end: End::StubSends, max: self.max_encoding }
    }

    /// Returns the limit on the messages that a stub receives.
    pub(crate) fn responses(self) -> MessageLimit {
        MessageLimit { end: End::StubReceives, max: self.max_decoding }
    }

    /// Returns the limit on the messages that a service receives.
    pub(crate) fn service_requests(self) -> MessageLimit {
        MessageLimit { end: End::ServiceReceives, max: self.max_decoding }
    }

    /// Returns the limit on the messages that a service sends.
    pub(crate) fn service_responses(self) -> MessageLimit {
        MessageLimit { end: End::ServiceSends, max: self.max_encoding }
    }
}

impl Default for MessageLimits {
    fn default() -> Self {
        Self::NONE
    }
}

/// The limit on messages in one direction, at one end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageLimit {
    end: End,
    max: u64,
}

#[derive(Debug, Clone, Copy)]
enum End {
    StubSends,
    StubReceives,
    ServiceReceives,
    ServiceSends,
}

impl MessageLimit {
    /// Returns true if a message of `len` bytes is within the limit.
    #[inline]
    pub(crate) fn allows(self, len: usize) -> bool {
        len as u64 <= self.max
    }

    /// Checks the length of a message whose length has to be computed for it: nothing is computed
    /// where there is no limit.
    #[inline]
    pub(crate) fn check_len_of(self, len: impl FnOnce() -> usize) -> Result<(), Status> {
        if self.max == u64::MAX { Ok(()) } else { self.check(len()) }
    }

    /// Checks the length of a message.
    #[inline]
    pub(crate) fn check(self, len: usize) -> Result<(), Status> {
        if self.allows(len) { Ok(()) } else { Err(self.exceeded(len)) }
    }

    /// Returns the noun for the messages: `request` or `response`.
    pub(crate) fn message(self) -> &'static str {
        match self.end {
            End::StubSends | End::ServiceReceives => "request",
            End::StubReceives | End::ServiceSends => "response",
        }
    }

    #[cold]
    fn exceeded(self, len: usize) -> Status {
        let (message, owner, setting) = match self.end {
            End::StubSends => ("request", "stub", "max_encoding_message_len"),
            End::StubReceives => ("response", "stub", "max_decoding_message_len"),
            End::ServiceReceives => ("request", "service", "max_decoding_message_len"),
            End::ServiceSends => ("response", "service", "max_encoding_message_len"),
        };
        let limit = format!("the {owner}'s limit of {} ({setting})", self.max);
        let text = format!("the {message}'s message of {len} bytes is over {limit}");
        Status::resource_exhausted(text)
    }
}

/// Options of the calls of one stub. Generated code keeps them; the default sets nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallOptions {
    limits: MessageLimits,
    timeout: Option<Duration>,
    wait_for_ready: Option<bool>,
    /// Set with the first option: each call looks here alone.
    is_set: bool,
}

impl CallOptions {
    /// No options.
    pub const NONE: Self =
        Self { limits: MessageLimits::NONE, timeout: None, wait_for_ready: None, is_set: false };

    /// Sets the maximum length of responses.
    #[must_use]
    pub const fn with_max_decoding(self, bytes: usize) -> Self {
        self.with_limits(self.limits.with_max_decoding(bytes))
    }

    /// Sets the maximum length of requests.
    #[must_use]
    pub const fn with_max_encoding(self, bytes: usize) -> Self {
        self.with_limits(self.limits.with_max_encoding(bytes))
    }

    /// Sets the length from which requests are compressed.
    #[must_use]
    pub fn with_compress_from(self, bytes: usize) -> Self {
        self.with_limits(self.limits.with_compress_from(bytes))
    }

    /// Sets the timeout of calls that set none.
    #[must_use]
    pub const fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), is_set: true, ..self }
    }

    /// Sets whether calls wait while the channel cannot connect.
    #[must_use]
    pub const fn with_wait_for_ready(self, waits: bool) -> Self {
        Self { wait_for_ready: Some(waits), is_set: true, ..self }
    }

    /// Replaces the limits on messages.
    #[must_use]
    pub(crate) const fn with_limits(self, limits: MessageLimits) -> Self {
        Self { limits, is_set: true, ..self }
    }

    /// Limits on the messages of a call.
    pub(crate) fn limits(&self) -> MessageLimits {
        self.limits
    }

    /// Timeout of calls that set none.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Tells calls to wait while the channel cannot connect, or not to.
    pub(crate) fn wait_for_ready(&self) -> Option<bool> {
        self.wait_for_ready
    }

    /// Puts the options of a stub into a request's extensions, where the channel finds them. A stub
    /// without options leaves the extensions alone, since the first entry allocates.
    #[inline]
    pub fn apply<T>(&self, request: &mut Request<T>) {
        if self.is_set {
            request.extensions_mut().insert(*self);
        }
    }

    /// Returns the options that a stub has put into a request's extensions.
    pub(crate) fn of(extensions: &Extensions) -> Option<&Self> {
        extensions.get()
    }
}

impl Default for CallOptions {
    fn default() -> Self {
        Self::NONE
    }
}

/// The behavior of a call while its channel has no connection and backs off: gRPC's wait-for-ready.
///
/// The channel has one for all its calls (`ChannelBuilder::readiness`), and a stub for its own
/// (`with_wait_for_ready`). One in `request.extensions_mut()` takes their place for that call.
///
/// A call that finds an attempt to connect under way waits for it in either case. tower's balancers
/// ask a channel before they make a call on it, and make none while it has no connection: see
/// [`crate::client::LayeredChannel`].
///
/// # Examples
///
/// ```
/// use farcall::{Readiness, Request};
///
/// let mut request = Request::new(());
/// request.set_timeout(std::time::Duration::from_secs(30));
/// request.extensions_mut().insert(Readiness::WaitForReady);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Readiness {
    /// It fails at once with `UNAVAILABLE`, the reason of the last attempt, and the time of the
    /// next one. It was not executed ([`crate::NotExecuted`]).
    #[default]
    FailFast,
    /// It waits until the channel is connected, however many attempts that takes. Give it a
    /// deadline: it ends with `DEADLINE_EXCEEDED` and the reason of the last attempt, and without
    /// one it waits for ever.
    WaitForReady,
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn limits_hold_to_the_byte_and_name_themselves() {
        let limits = MessageLimits::NONE.with_max_decoding(10).with_max_encoding(20);
        let cases = [
            (limits.requests(), 20, "the request's message of 21 bytes is over the stub's"),
            (limits.responses(), 10, "the response's message of 11 bytes is over the stub's"),
            (limits.service_requests(), 10, "of 11 bytes is over the service's limit of 10"),
            (limits.service_responses(), 20, "of 21 bytes is over the service's limit of 20"),
        ];
        for (limit, max, text) in cases {
            assert!(limit.check(max).is_ok());
            let status = limit.check(max + 1).unwrap_err();
            assert_eq!(status.code(), Code::ResourceExhausted);
            assert!(status.message().contains(text), "{status}");
        }
    }

    #[test]
    fn no_length_is_computed_for_no_limit() {
        let never = || -> usize { unreachable!("there is no limit") };
        assert!(MessageLimits::NONE.requests().check_len_of(never).is_ok());
    }

    #[test]
    fn stub_without_options_adds_nothing_to_requests() {
        let mut request = Request::new(());
        CallOptions::NONE.apply(&mut request);
        assert!(request.extensions().is_empty());
        let second = Duration::from_secs(1);
        for options in [
            CallOptions::NONE.with_max_decoding(7),
            CallOptions::NONE.with_max_encoding(7),
            CallOptions::NONE.with_compress_from(7),
            CallOptions::NONE.with_timeout(second),
            CallOptions::NONE.with_wait_for_ready(false),
        ] {
            let mut request = Request::new(());
            options.apply(&mut request);
            assert_eq!(CallOptions::of(request.extensions()), Some(&options));
        }
    }
}
