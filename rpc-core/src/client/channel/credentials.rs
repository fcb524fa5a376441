//! Credentials of calls: tokens in their metadata.

use std::fmt;
use std::sync::Arc;

use tonic::Status;
use tonic::metadata::MetadataMap;

use crate::Method;
use crate::client::Call;

/// Adds to the metadata of every call of a channel what shows who makes it, such as a token. A
/// closure that takes a method and metadata is one.
///
/// It runs in the task of the call, before each, and must not block: a token that has to be
/// fetched is kept and renewed by a task of the program's own. A call that the channel makes once
/// more, on another connection, has the metadata that it had.
///
/// # Examples
///
/// ```
/// use farcall::metadata::{AsciiMetadataValue, MetadataMap};
/// use farcall::{Channel, Method, Status};
///
/// /// A channel whose calls carry `token`. It needs `tls`.
/// # use farcall::AddressError;
/// fn with_token(address: &str, mut token: AsciiMetadataValue) -> Result<(), AddressError> {
///     // Its `Debug` does not show it.
///     token.set_sensitive(true);
///     let credentials = move |_: &Method, metadata: &mut MetadataMap| {
///         metadata.insert("authorization", token.clone());
///         Ok::<_, Status>(())
///     };
///     let channel = Channel::builder(address)?.call_credentials(credentials);
/// # drop(channel);
///     Ok(())
/// }
/// ```
pub trait CallCredentials: Send + Sync + 'static {
    /// Adds what shows who makes the call of `method`.
    ///
    /// # Errors
    ///
    /// With the status that the call ends with. It is not sent then.
    fn apply(&self, method: &Method, metadata: &mut MetadataMap) -> Result<(), Status>;
}

impl<F> CallCredentials for F
where
    F: Fn(&Method, &mut MetadataMap) -> Result<(), Status> + Send + Sync + 'static,
{
    fn apply(&self, method: &Method, metadata: &mut MetadataMap) -> Result<(), Status> {
        self(method, metadata)
    }
}

/// The credentials of a channel, if it has any. Nothing of them is ever shown.
#[derive(Clone, Default)]
pub struct Credentials(Option<Arc<dyn CallCredentials>>);

impl Credentials {
    /// Returns the credentials of a channel.
    pub fn new(credentials: impl CallCredentials) -> Self {
        Self(Some(Arc::new(credentials)))
    }

    /// Returns true if calls carry credentials.
    #[must_use]
    pub fn are_there(&self) -> bool {
        self.0.is_some()
    }

    /// Adds them to the metadata of a call.
    pub(super) fn apply(&self, call: &mut Call<'_>) -> Result<(), Status> {
        let Some(credentials) = &self.0 else { return Ok(()) };
        let (method, metadata) = call.head_mut();
        credentials.apply(method, metadata)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.are_there() { "Credentials" } else { "no Credentials" })
    }
}
