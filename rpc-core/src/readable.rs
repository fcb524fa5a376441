//! Errors that read as a sentence wherever they are printed.
//!
//! A `main` that returns an error prints it by `Debug`, and so do `unwrap` and `expect`. What is
//! derived there is the names of fields. So the errors that users meet have a `Debug` that is their
//! text, with the causes that the text does not have, as `anyhow` has it.
//!
//! A [`Reason`] is such a message for people, and the error behind it for programs.

use std::error::Error;
use std::ops::Deref;
use std::sync::Arc;
use std::{fmt, io};

/// Implements `Debug` for errors as [`fmt_debug`] writes it.
#[doc(hidden)]
#[macro_export]
macro_rules! readable_debug {
    ($($error:ty),+ $(,)?) => {$(
        /// The error's text and its causes: what a `main` that returns it prints.
        impl ::std::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                $crate::readable::fmt_debug(self, f)
            }
        }
    )+};
}

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

/// Writes an error's text, and below it the causes that it has.
///
/// # Errors
///
/// Returns an error if `f` fails.
pub fn fmt_debug(error: &dyn Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{error}")?;
    let mut source = error.source();
    if source.is_some() {
        f.write_str("\n\nCaused by:")?;
    }
    while let Some(cause) = source {
        write!(f, "\n    {cause}")?;
        source = cause.source();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use thiserror::Error;

    use super::*;

    #[derive(Error)]
    #[error("the shop is closed")]
    struct Closed(#[source] Cause);

    #[derive(Debug, Error)]
    #[error("it is Sunday")]
    struct Cause;

    readable_debug!(Closed);

    #[test]
    fn debug_is_the_text_and_the_causes() {
        let text = format!("{:?}", Closed(Cause));
        assert_eq!(text, "the shop is closed\n\nCaused by:\n    it is Sunday");
        assert_eq!(format!("{:#?}", Closed(Cause)), text);
    }

    #[test]
    fn error_behind_a_reason_survives_another_message() {
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        let reason = Reason::from(reset).with_message("the path died");
        assert_eq!(reason.to_string(), "the path died");
        let cause = reason.source().and_then(<dyn Error>::downcast_ref::<io::Error>);
        assert_eq!(cause.map(io::Error::kind), Some(io::ErrorKind::ConnectionReset));
    }
}
