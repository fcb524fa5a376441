//! What a layer's error means to a caller.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use thiserror::Error;
use tonic::Status;
use tower::BoxError;
use tower::load_shed::error::Overloaded;
use tower::timeout::error::Elapsed;

/// The status for the error of a layer.
///
/// A [`Status`] anywhere in the error's chain is that status; tower's timeout is
/// `DEADLINE_EXCEEDED`, its load shedding is `RESOURCE_EXHAUSTED`, and any other error is
/// `UNKNOWN`, with the error's words and a [`LayerError`] as the source.
#[must_use]
pub fn into_status(error: impl Into<BoxError>) -> Status {
    let error = error.into();
    let error = match error.downcast::<Status>() {
        Ok(status) => return *status,
        Err(error) => error,
    };
    let mut link: Option<&(dyn Error + 'static)> = Some(&*error);
    while let Some(cause) = link {
        if let Some(status) = cause.downcast_ref::<Status>() {
            return status.clone();
        }
        if cause.is::<Elapsed>() {
            return Status::deadline_exceeded("a layer's timeout has passed");
        }
        if cause.is::<Overloaded>() {
            return Status::resource_exhausted("a layer sheds load: too many calls at a time");
        }
        link = cause.source();
    }
    let mut status = Status::unknown(error.to_string());
    status.set_source(Arc::new(LayerError(error)));
    status
}

/// The source of a status that a layer's error has become. The status has the error's words.
#[derive(Error)]
#[error("a layer ended the call")]
pub struct LayerError(BoxError);

impl LayerError {
    /// The layer's error.
    #[must_use]
    pub fn get_ref(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.0
    }
}

/// A status shows its source in this way: what it says itself is left out.
impl fmt::Debug for LayerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LayerError")
    }
}

#[cfg(test)]
mod tests {
    use thiserror::Error;
    use tonic::Code;

    use super::*;

    #[derive(Debug, Error)]
    #[error("outer")]
    struct Outer(#[source] Status);

    #[test]
    fn errors_of_layers_become_the_statuses_that_callers_expect() {
        assert_eq!(into_status(Elapsed::new()).code(), Code::DeadlineExceeded);
        assert_eq!(into_status(Overloaded::new()).code(), Code::ResourceExhausted);
        assert_eq!(into_status(Status::aborted("no")).code(), Code::Aborted);
        assert_eq!(into_status(Outer(Status::not_found("no"))).code(), Code::NotFound);
        let other = into_status("something else");
        assert_eq!((other.code(), other.message()), (Code::Unknown, "something else"));
        let source = other.source().unwrap().downcast_ref::<LayerError>().unwrap();
        assert_eq!(source.get_ref().to_string(), "something else");
    }
}
