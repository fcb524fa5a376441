//! What a layer's error means to a caller.

use std::error::Error;
use std::sync::Arc;

use tonic::Status;
use tower::BoxError;
use tower::load_shed::error::Overloaded;
use tower::timeout::error::Elapsed;

/// The status for the error of a layer.
///
/// A [`Status`] anywhere in the error's chain is that status; tower's timeout is
/// `DEADLINE_EXCEEDED`, its load shedding is `RESOURCE_EXHAUSTED`, and any other error is
/// `UNKNOWN`, with the error's words and the error itself as the source.
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
    status.set_source(Arc::from(error));
    status
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
    }
}
