//! A reason: a message for people, and the error behind it for programs.

use std::error::Error;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

/// A message that says why something failed, and the error behind it, if there is one. The message
/// has the text of that error, so that it reads as a sentence without its causes. Two reasons are
/// equal if their messages are.
#[derive(Clone)]
pub struct Reason {
    message: Arc<str>,
    cause: Option<Arc<dyn Error + Send + Sync>>,
}

impl Reason {
    /// A reason whose message has the text of `cause`.
    pub fn new(message: impl Into<Arc<str>>, cause: impl Error + Send + Sync + 'static) -> Self {
        Self { message: message.into(), cause: Some(Arc::new(cause)) }
    }

    /// The same, where the error is shared.
    pub fn shared(
        message: impl Into<Arc<str>>,
        cause: Arc<impl Error + Send + Sync + 'static>,
    ) -> Self {
        Self { message: message.into(), cause: Some(cause) }
    }

    /// A reason with another message, and the same error behind it.
    #[must_use]
    pub fn with_message(&self, message: impl Into<Arc<str>>) -> Self {
        Self { message: message.into(), cause: self.cause.clone() }
    }
}

impl From<String> for Reason {
    fn from(message: String) -> Self {
        Self { message: message.into(), cause: None }
    }
}

impl From<&str> for Reason {
    fn from(message: &str) -> Self {
        Self { message: message.into(), cause: None }
    }
}

impl From<io::Error> for Reason {
    fn from(error: io::Error) -> Self {
        Self::new(error.to_string(), error)
    }
}

impl Deref for Reason {
    type Target = str;

    fn deref(&self) -> &str {
        &self.message
    }
}

impl PartialEq for Reason {
    fn eq(&self, other: &Self) -> bool {
        self.message == other.message
    }
}

impl Eq for Reason {}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.message, f)
    }
}

impl Error for Reason {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_behind_a_reason_survives_another_message() {
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        let reason = Reason::from(reset).with_message("the path died");
        assert_eq!(reason.to_string(), "the path died");
        let cause = reason.source().and_then(<dyn Error>::downcast_ref::<io::Error>);
        assert_eq!(cause.map(io::Error::kind), Some(io::ErrorKind::ConnectionReset));
    }
}
