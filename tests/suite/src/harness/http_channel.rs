//! A boxed channel for tonic's generated clients: tonic's own, or one of ours.

use std::convert::Infallible;

use farcall::grpc::GrpcOver;
use farcall::{Channel, Status};
use tonic::body::Body;
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;

/// A channel of either kind.
pub(crate) type HttpChannel =
    BoxCloneSyncService<http::Request<Body>, http::Response<Body>, Status>;

/// tonic's own, over HTTP/2.
pub(crate) fn over_http2(channel: tonic::transport::Channel) -> HttpChannel {
    let into_status = |error: tonic::transport::Error| Status::from_error(Box::new(error));
    BoxCloneSyncService::new(channel.map_err(into_status))
}

/// Ours, over whatever it is connected by.
pub(crate) fn over_farcall(channel: Channel) -> HttpChannel {
    let request = |request: http::Request<Body>| request;
    let over = GrpcOver::new(channel).map_request(request);
    BoxCloneSyncService::new(over.map_err(|never: Infallible| match never {}))
}
