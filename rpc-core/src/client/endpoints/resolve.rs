//! The source of a channel's endpoints.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use thiserror::Error;
use tokio::sync::Notify;

use crate::balance::Endpoint;

/// Finds the servers behind a name, and tells when they change.
///
/// A channel asks for the next list in a loop, for as long as it lives. It keeps the last list
/// while none comes, so that calls go on while a resolver is not to be reached.
///
/// # Examples
///
/// ```
/// use farcall::balance::Endpoint;
/// use farcall::resolve::{Refresh, Resolve, ResolveError};
/// use futures::FutureExt;
/// use futures::future::BoxFuture;
/// use tokio::sync::watch;
///
/// /// Servers that another part of the program knows.
/// struct Known(watch::Receiver<Vec<Endpoint>>);
///
/// impl Resolve for Known {
///     fn name(&self) -> String {
///         "the servers of this program".to_owned()
///     }
///
///     fn next<'a>(
///         &'a mut self,
///         _refresh: &'a Refresh,
///     ) -> BoxFuture<'a, Result<Vec<Endpoint>, ResolveError>> {
///         async {
///             // The first list is there at once, the others when they change.
///             match self.0.has_changed() {
///                 Ok(_) => {
///                     let list = self.0.borrow_and_update().clone();
///                     let _ = self.0.changed().await;
///                     Ok(list)
///                 }
///                 Err(_) => std::future::pending().await,
///             }
///         }
///         .boxed()
///     }
/// }
/// ```
pub trait Resolve: Send + 'static {
    /// Returns the target's name in error messages, for example `dns:///inventory:7000`.
    fn name(&self) -> String;

    /// The next list of endpoints. The first call returns the list of that moment; the following
    /// ones return when there is reason to believe that it has changed, at the latest when
    /// [`Refresh::requested`] does. A list that is the same as before changes nothing.
    ///
    /// # Errors
    ///
    /// Returns `ResolveError` if the list cannot be had. The channel keeps the one before, and asks
    /// again after a delay that grows.
    ///
    /// # Cancel safety
    ///
    /// The channel drops the future with the resolver, and when the runtime ends that polls it.
    /// Then it calls `next` again on another runtime, and keeps the last list meanwhile. No list
    /// may be lost by that.
    fn next<'a>(
        &'a mut self,
        refresh: &'a Refresh,
    ) -> BoxFuture<'a, Result<Vec<Endpoint>, ResolveError>>;
}

impl Resolve for Box<dyn Resolve> {
    fn name(&self) -> String {
        (**self).name()
    }

    fn next<'a>(
        &'a mut self,
        refresh: &'a Refresh,
    ) -> BoxFuture<'a, Result<Vec<Endpoint>, ResolveError>> {
        (**self).next(refresh)
    }
}

/// Why the endpoints of a target cannot be had.
#[derive(Clone, Error)]
#[error("{message}")]
pub struct ResolveError {
    message: Arc<str>,
}

impl ResolveError {
    /// An error that says `message`, which should name what was asked and who did not answer.
    #[must_use]
    pub fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string().into() }
    }
}

/// Prints the message, because a user's `main` prints this.
impl fmt::Debug for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The channel's wish for a new list: an endpoint of the last one could not be connected to.
#[derive(Debug, Default)]
pub struct Refresh {
    wanted: Notify,
}

impl Refresh {
    /// Waits until the channel asks for a new list. A wish that came while none waited counts.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub async fn requested(&self) {
        self.wanted.notified().await;
    }

    /// Asks for a new list.
    pub(super) fn ask(&self) {
        // A permit is kept if no resolver waits: a wish between two lists is not lost.
        self.wanted.notify_one();
    }
}

/// A list that never changes.
#[derive(Debug)]
pub struct StaticEndpoints {
    endpoints: Option<Vec<Endpoint>>,
}

impl StaticEndpoints {
    /// These endpoints.
    #[must_use]
    pub fn new(endpoints: impl IntoIterator<Item = Endpoint>) -> Self {
        Self { endpoints: Some(endpoints.into_iter().collect()) }
    }
}

impl Resolve for StaticEndpoints {
    fn name(&self) -> String {
        let list = self.endpoints.iter().flatten().map(|endpoint| &*endpoint.address);
        list.collect::<Vec<_>>().join(",")
    }

    fn next<'a>(
        &'a mut self,
        _refresh: &'a Refresh,
    ) -> BoxFuture<'a, Result<Vec<Endpoint>, ResolveError>> {
        match self.endpoints.take() {
            Some(endpoints) => Box::pin(std::future::ready(Ok(endpoints))),
            // The channel asks in a loop. A second list, though the same, would keep it busy.
            None => Box::pin(std::future::pending()),
        }
    }
}
