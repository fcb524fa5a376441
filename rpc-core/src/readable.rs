//! Errors that read as a sentence wherever they are printed.
//!
//! A `main` that returns an error prints it by `Debug`, and so do `unwrap` and `expect`. What is
//! derived there is the names of fields. So the errors that users meet have a `Debug` that is their
//! text, with the causes that the text does not have, as `anyhow` has it.

use std::error::Error;
use std::fmt;

/// Writes an error's text, and below it the causes that it has.
///
/// # Errors
///
/// When `f` fails.
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

#[cfg(test)]
mod tests {
    use thiserror::Error;

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
}
