//! Calls whose messages pass through: those of gRPC's clients, and of proxies.
//!
//! Their makers have a stream of messages, whatever the kind of the method. Where the method takes
//! one message, the channel makes one of the stream before the call begins, so that such a call is
//! a unary one on the wire like any other, and may be repeated like any other.

use futures::Stream;
use prost::Message;
use tonic::{Request, Response, Status, Streaming};

use super::body::{Body, FallibleRequests};
use super::{Call, RequestParts};
use crate::Method;
use crate::client::Caller;

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
    method: Method,
    request: Request<S>,
) -> Result<Response<Streaming<M>>, Status>
where
    M: Message + Default + 'static,
    S: Stream<Item = Result<M, Status>> + Send + 'static,
{
    let (metadata, extensions, stream) = request.into_parts();
    let mut parts = RequestParts::new(metadata, extensions);
    let mut stream = FallibleRequests(Some(stream));
    let call = Call::new::<M>(method, &mut parts, Body::Untyped(&mut stream));
    Ok(caller.call(call).await?.into_any_stream())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, Weak};

    use futures::stream;
    use tonic::metadata::MetadataMap;

    use super::*;
    use crate::SharedMethod;
    use crate::client::ClientReply;

    /// Answers each call with an empty message, and watches its method.
    #[derive(Default)]
    struct Watching(Mutex<Vec<Weak<SharedMethod>>>);

    impl Caller for Watching {
        async fn call(&self, call: Call<'_>) -> Result<ClientReply, Status> {
            let Method::Shared(method) = call.method() else { panic!("it is called by its path") };
            self.0.lock().unwrap().push(Arc::downgrade(method));
            let (initial, trailers) = (MetadataMap::new(), MetadataMap::new());
            Ok(ClientReply::with_message(initial, trailers, Vec::new().into()))
        }
    }

    #[tokio::test]
    async fn ten_thousand_paths_are_called_and_none_is_kept() {
        let caller = Watching::default();
        for number in 0..10_000 {
            let method = Method::by_path(&format!("/paths.A/M{number}")).unwrap();
            let requests = Request::new(stream::empty());
            let response = untyped::<(), _>(&caller, method, requests).await.unwrap();
            assert_eq!(response.into_inner().message().await.unwrap(), Some(()));
        }
        let methods = caller.0.into_inner().unwrap();
        assert_eq!(methods.len(), 10_000);
        assert!(methods.iter().all(|method| method.strong_count() == 0));
    }
}
