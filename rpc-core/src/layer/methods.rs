//! A layer around the calls of some methods, and what a layer's error means to a caller.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::TryFutureExt;
use futures::future::BoxFuture;
use thiserror::Error;
use tonic::Status;
use tower::load_shed::error::Overloaded;
use tower::timeout::error::Elapsed;
use tower::{BoxError, Layer, Service, ServiceExt};

use super::Described;
use crate::{MethodDescriptor, ServiceDescriptor};

/// A method that a service does not have.
#[derive(Clone, PartialEq, Eq, Error)]
#[error("the service {} has no method {method:?}, but {:?}", service.name, names(service))]
#[non_exhaustive]
pub struct UnknownMethod {
    /// The service.
    pub service: &'static ServiceDescriptor,
    /// The name or path that was given.
    pub method: String,
}

crate::readable_debug!(UnknownMethod);

/// A layer around the calls of some methods. Made by [`for_methods`].
#[derive(Debug, Clone)]
pub struct ForMethodsLayer<L> {
    paths: Arc<[&'static str]>,
    layer: L,
}

impl<S: Clone, L: Layer<S>> Layer<S> for ForMethodsLayer<L> {
    type Service = ForMethods<S, L::Service>;

    fn layer(&self, inner: S) -> Self::Service {
        let layered = self.layer.layer(inner.clone());
        ForMethods { paths: Arc::clone(&self.paths), inner, layered }
    }
}

/// The service that [`ForMethodsLayer`] makes.
///
/// It is always ready, since the call alone tells which of the two services is to be ready. The
/// call then waits for that one: a limit on one method holds up no call of another.
#[derive(Debug, Clone)]
pub struct ForMethods<S, T> {
    paths: Arc<[&'static str]>,
    inner: S,
    layered: T,
}

impl<S, T, R> Service<R> for ForMethods<S, T>
where
    R: Described + Send + 'static,
    S: Service<R, Error: Into<BoxError>, Future: Send> + Clone + Send + 'static,
    T: Service<R, Response = S::Response, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
{
    type Response = S::Response;
    type Error = Status;
    type Future = BoxFuture<'static, Result<S::Response, Status>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        if self.paths.contains(&request.method().path()) {
            Box::pin(self.layered.clone().oneshot(request).map_err(into_status))
        } else {
            Box::pin(self.inner.clone().oneshot(request).map_err(into_status))
        }
    }
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

fn names(service: &ServiceDescriptor) -> Vec<&'static str> {
    service.methods.iter().map(MethodDescriptor::name).collect()
}

/// The indices of the methods with these names or paths.
pub(crate) fn method_indices(
    service: &'static ServiceDescriptor,
    methods: impl IntoIterator<Item: AsRef<str>>,
) -> Result<Vec<usize>, UnknownMethod> {
    let index = |method: &str| {
        let has_name = |it: &MethodDescriptor| it.name() == method || it.path == method;
        service.methods.iter().position(has_name)
    };
    let methods = methods.into_iter().map(|method| {
        let method = method.as_ref();
        index(method).ok_or_else(|| UnknownMethod { service, method: method.to_owned() })
    });
    methods.collect()
}

/// Puts `layer` around the calls of some methods of `service`, on a client or on a server; other
/// calls pass by it. A method is named as in the `.proto` (`SayHello`) or by its path
/// (`/hello.Greeter/SayHello`). `service` is the `SERVICE` that is generated beside a stub.
///
/// On a server [`layered_methods`](crate::server::layered_methods) costs the other methods nothing.
/// Here their calls cost what they cost under any layer.
///
/// # Errors
///
/// Returns `UnknownMethod` if the service has no method of such a name.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use farcall::layer::{UnknownMethod, for_methods};
/// use farcall::{Caller, Channel, ServiceDescriptor};
/// use tower::timeout::TimeoutLayer;
///
/// /// `service` is `&greeter_rpc::SERVICE`, for example.
/// fn impatient(
///     channel: Channel,
///     service: &'static ServiceDescriptor,
/// ) -> Result<impl Caller + Clone, UnknownMethod> {
///     let timeout = TimeoutLayer::new(Duration::from_secs(1));
///     Ok(channel.layer(for_methods(service, ["SayHello"], timeout)?))
/// }
/// ```
pub fn for_methods<L>(
    service: &'static ServiceDescriptor,
    methods: impl IntoIterator<Item: AsRef<str>>,
    layer: L,
) -> Result<ForMethodsLayer<L>, UnknownMethod> {
    let indices = method_indices(service, methods)?;
    let paths = indices.into_iter().map(|index| service.methods[index].path).collect();
    Ok(ForMethodsLayer { paths, layer })
}

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
            return Status::deadline_exceeded("a layer's timeout expired");
        }
        if cause.is::<Overloaded>() {
            return Status::resource_exhausted("a layer shed the call: too many calls at a time");
        }
        link = cause.source();
    }
    let mut status = Status::unknown(error.to_string());
    status.set_source(Arc::new(LayerError(error)));
    status
}

#[cfg(test)]
mod tests {
    use thiserror::Error;
    use tonic::Code;

    use super::*;
    use crate::{CallKind, Idempotency};

    static SERVICE: ServiceDescriptor = ServiceDescriptor {
        name: "hello.Greeter",
        methods: &[method("/hello.Greeter/SayHello"), method("/hello.Greeter/SayBye")],
    };

    const fn method(path: &'static str) -> MethodDescriptor {
        let (kind, idempotency) = (CallKind::Unary, Idempotency::Unknown);
        MethodDescriptor::new(path, kind, idempotency)
    }

    #[test]
    fn methods_are_found_by_name_and_by_path() {
        let indices = method_indices(&SERVICE, ["SayBye", "/hello.Greeter/SayHello"]);
        assert_eq!(indices, Ok(vec![1, 0]));
        assert_eq!(method_indices(&SERVICE, [""; 0]), Ok(vec![]));
    }

    #[test]
    fn an_unknown_method_is_named_with_the_known_ones() {
        for name in ["Sayhello", "/hello.Greeter/Say", "hello.Greeter/SayHello", ""] {
            let error = for_methods(&SERVICE, ["SayBye", name], ()).map(drop).unwrap_err();
            let message = format!(
                r#"the service hello.Greeter has no method {name:?}, but ["SayHello", "SayBye"]"#
            );
            assert_eq!(error.to_string(), message);
        }
    }

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
