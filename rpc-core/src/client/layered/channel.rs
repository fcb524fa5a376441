//! A stack of layers as what stubs call.

use std::future::Future;
use std::pin::pin;

use tonic::Status;
use tower::{BoxError, Service, ServiceExt};

use crate::client::call::deadline::within;
use crate::client::{Call, Caller, ClientCall, ClientReply};
use crate::layer::into_status;

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
