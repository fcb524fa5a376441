//! What can be served: services over HTTP, as tonic's server takes them.

use http_body::Body;
use tower::BoxError;

/// What `Served` takes: a service over HTTP that tonic's server would serve.
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
    /// The body of its responses.
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
