//! Options of the calls of one stub.

use std::time::Duration;

use tonic::{Extensions, Request};

use super::message_limits::MessageLimits;

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

#[cfg(test)]
mod tests {
    use super::*;

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
