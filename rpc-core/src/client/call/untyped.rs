//! Calls whose messages pass through: those of gRPC's clients, and of proxies.
//!
//! Their makers have a stream of messages, whatever the kind of the method. Where the method takes
//! one message, the channel makes one of the stream before the call begins, so that such a call is
//! a unary one on the wire like any other, and may be repeated like any other.

use futures::Stream;
use prost::Message;
use tonic::{Request, Response, Status, Streaming};

use super::body::{Body, FallibleRequests};
use super::{Call, Known, RequestParts, UnnamedPaths, paths};
use crate::MethodDescriptor;
use crate::client::Caller;

/// How the maker of an untyped call names its method.
#[derive(Debug, Clone, Copy)]
pub enum MethodName<'a> {
    /// By its descriptor.
    Descriptor(&'static MethodDescriptor),
    /// By its path alone, `/package.Service/Method`. Layers see a call with a stream each way; the
    /// server's Hello says what it is. The path is kept, and counts among those of its maker until
    /// a server has named it.
    Path(&'a str, &'a UnnamedPaths),
}

/// Makes a call of any kind with a stream of requests, and gives its responses as a stream: the
/// metadata that came first, then the messages, then trailers. Dropping the future cancels the call
/// on the server.
///
/// A stream of requests that ends with an error has broken off: the call ends with that error, and
/// its handler never sees an end of the requests.
///
/// # Errors
///
/// With the status of the call, if it fails before its first answer.
///
/// # Cancel safety
///
/// Dropping the future cancels the call on the server.
pub async fn untyped<M, S>(
    caller: &impl Caller,
    name: MethodName<'_>,
    request: Request<S>,
) -> Result<Response<Streaming<M>>, Status>
where
    M: Message + Default + 'static,
    S: Stream<Item = Result<M, Status>> + Send + 'static,
{
    let (metadata, extensions, stream) = request.into_parts();
    let (method, known, is_named) = match name {
        MethodName::Descriptor(method) => (method, Known::Descriptor, true),
        MethodName::Path(path, unnamed) => {
            let (method, is_named) = paths::undescribed(path, unnamed)?;
            (method, Known::Path, is_named)
        }
    };
    let mut parts = RequestParts::new(metadata, extensions);
    let mut stream = FallibleRequests(Some(stream));
    let mut call = Call::new::<M>(method, &mut parts, Body::Stream(&mut stream));
    call.known = known;
    let reply = caller.call(call).await?;
    if !is_named {
        // No Hello has, over `grpc://` and by callers that are no channels. The answer does.
        paths::set_named(method.path);
    }
    Ok(reply.into_any_stream())
}
