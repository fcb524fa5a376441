//! tower layers, and tonic's interceptors, around a channel.
//!
//! A [`crate::Channel`] is a `tower::Service` of calls that own their requests, and a
//! [`LayeredChannel`] is a [`crate::Caller`] over any such service. What precedes a call's messages
//! can be read and changed; the messages stay as they are until the channel encodes them, once, in
//! the transport's memory. A channel without layers never comes by.

use std::future::{Future, ready};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::Either;
use tonic::service::Interceptor;
use tonic::{Request, Status};
use tower::{BoxError, Service, ServiceExt};

use crate::client::call::rules::within;
use crate::client::{Call, Caller, ClientCall, ClientReply};
use crate::layer::{RequestHead, into_status};

/// Makes calls through a `tower::Service`: a `Channel` with layers around it, or whatever
/// else takes a [`ClientCall`]. Made by `Channel::layer`.
///
/// The service is cloned for every call, as everywhere in tower; tower's layers share between
/// clones what has to be shared. The call's deadline counts while a layer waits, too.
///
/// # Examples
///
/// Several servers, of which each call takes the one with fewer calls in flight. A channel without
/// a connection is not ready, so that tower passes over it and the calls go to the others. Without
/// any connection calls wait, whatever their [`crate::Readiness`] says: give them deadlines.
///
/// ```
/// use farcall::client::LayeredChannel;
/// use farcall::{Caller, Channel};
/// use tower::ServiceBuilder;
/// use tower::balance::p2c::Balance;
/// use tower::discover::ServiceList;
/// use tower::load::{CompleteOnResponse, PendingRequestsDiscover};
///
/// /// Has to be called in a runtime: the buffer, which makes it `Clone`, is a task.
/// fn balanced(channels: Vec<Channel>) -> impl Caller + Clone {
///     let servers = ServiceList::new(channels);
///     let servers = PendingRequestsDiscover::new(servers, CompleteOnResponse::default());
///     LayeredChannel::new(ServiceBuilder::new().buffer(1024).service(Balance::new(servers)))
/// }
/// ```
#[derive(Debug, Clone)]
pub struct LayeredChannel<S> {
    service: S,
}

impl<S> LayeredChannel<S> {
    /// Makes calls through `service`.
    pub fn new(service: S) -> Self {
        Self { service }
    }
}

impl<S> Caller for LayeredChannel<S>
where
    S: Service<ClientCall, Response = ClientReply> + Clone + Send + Sync,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    fn call(&self, call: Call<'_>) -> impl Future<Output = Result<ClientReply, Status>> + Send {
        let call = call.into_owned();
        let limit = call.time_limit();
        let made = async move {
            let mut service = self.service.clone();
            let ready = service.ready().await.map_err(into_status)?;
            ready.call(call).await.map_err(into_status)
        };
        async move { within(limit.as_ref(), pin!(made)).await }
    }
}

/// Shows every request of a caller to one of tonic's interceptors before the call is made. Made by
/// `Channel::intercept`.
///
/// Clones share the interceptor, so that what it counts, it counts over all of them; it runs for
/// one call at a time and must not block.
#[derive(Debug)]
pub struct Intercepted<C, F> {
    caller: C,
    interceptor: Arc<Mutex<F>>,
}

impl<C, F: Interceptor> Intercepted<C, F> {
    /// Shows `interceptor` the requests of `caller`.
    pub fn new(caller: C, interceptor: F) -> Self {
        Self { caller, interceptor: Arc::new(Mutex::new(interceptor)) }
    }

    fn intercept(&self, call: &mut Call<'_>) -> Result<(), Status> {
        let (metadata, extensions) = call.take_head();
        let shown = Request::from_parts(metadata, extensions, ());
        let changed = {
            // Ignore poisoning: the interceptor's own state is its responsibility.
            let mut interceptor = self.interceptor.lock().unwrap_or_else(PoisonError::into_inner);
            interceptor.call(shown)?
        };
        let (metadata, extensions, ()) = changed.into_parts();
        call.set_head(metadata, extensions);
        Ok(())
    }
}

impl<C: Clone, F> Clone for Intercepted<C, F> {
    fn clone(&self) -> Self {
        Self { caller: self.caller.clone(), interceptor: Arc::clone(&self.interceptor) }
    }
}

impl<C: Caller, F: Interceptor + Send> Caller for Intercepted<C, F> {
    fn call(&self, mut call: Call<'_>) -> impl Future<Output = Result<ClientReply, Status>> + Send {
        match self.intercept(&mut call) {
            Ok(()) => Either::Left(self.caller.call(call)),
            Err(status) => Either::Right(ready(Err(status))),
        }
    }
}
