//! A call on its way through the layers and back.

use std::sync::Arc;

use tonic::Status;
use tower::{Service as _, ServiceExt};

use super::{Body, Capture, ServerRequest, ServerResponse, ServerStack};
use crate::Trailers;
use crate::server::call::context::CallScope;
use crate::server::call::handling::Handling;
use crate::server::call::reply::Responder;
use crate::server::{HandlerFuture, ServerCall, Service};

/// Runs a call of `service` under the layers of `stack`.
pub(in crate::server) fn handle(
    mut stack: ServerStack,
    service: Arc<dyn Service>,
    method: usize,
    mut call: ServerCall,
) -> HandlerFuture {
    let capture = Arc::new(Capture::inside(call.responder.capture.clone()));
    let responder = call.responder.split_off();
    let (method_called, time_limit) = (call.running.method(), call.running.time_limit());
    let around = CallScope::new(method_called, time_limit, Arc::clone(call.running.peer()));
    let request = ServerRequest::new(service, method, call, Arc::clone(&capture));
    Box::pin(around.scope(async move {
        let result = match request {
            // The deadline counts while a layer waits, too.
            Ok(request) => {
                let call = move || async move { stack.ready().await?.call(request).await };
                Handling::new(time_limit.deadline(), call).await
            }
            Err(status) => Err(status),
        };
        answer(responder, capture.seq(), result).await;
    }))
}

/// Sends what came out of the layers, or gives it to the layers around them.
async fn answer(mut responder: Responder, seq: u64, result: Result<ServerResponse, Status>) {
    if let Some(outer) = &responder.capture {
        return outer.set(result);
    }
    let ServerResponse { metadata, mut extensions, body, compress_from } = match result {
        Ok(response) => response,
        Err(status) => return responder.end(seq, Err(status)).await,
    };
    match body {
        Body::Message(message) => {
            responder.compress_from = compress_from;
            responder.send(metadata, extensions, message).await;
        }
        Body::Streamed => {
            let Trailers(trailers) = extensions.remove::<Trailers>().unwrap_or_default();
            responder.end(seq, Ok(trailers)).await;
        }
    }
}
