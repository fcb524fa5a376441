//! The services that `Served` accepts: HTTP services, as tonic's server takes them.

use http_body::Body;
use tower::BoxError;

/// A service over HTTP that tonic's server could also host.
pub trait HttpService:
    tower::Service<
        http::Request<tonic::body::Body>,
        Response = http::Response<Self::ResponseBody>,
        Error: Into<BoxError>,
        Future: Send,
    > + Clone
    + Send
    + Sync
    + 'static
{
    /// The body of the service's responses.
    type ResponseBody: Body<Data = bytes::Bytes, Error: Into<BoxError>> + Send + 'static;
}

impl<S, B> HttpService for S
where
    S: tower::Service<
            http::Request<tonic::body::Body>,
            Response = http::Response<B>,
            Error: Into<BoxError>,
            Future: Send,
        > + Clone
        + Send
        + Sync
        + 'static,
    B: Body<Data = bytes::Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type ResponseBody = B;
}
