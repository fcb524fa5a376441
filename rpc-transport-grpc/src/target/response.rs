//! A server's response as tonic's client code may read it.
//!
//! tonic takes the status in the headers of a response for how the call ended, although messages or
//! trailers come behind them: a failure would hide what the server has answered, and a response
//! that broke off behind its message would have ended. It looks at no codec, and says
//! `UNIMPLEMENTED` of an encoding that this side lacks, where that is the server's mistake. It decodes
//! whatever body comes, so that the page of a proxy would be a message with a broken prefix.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tonic::Status;

use super::http_error::{GRPC_DETAILS, GRPC_MESSAGE, GRPC_STATUS};
use super::http_error::{HttpError, has_status, mend_end};
use crate::compression::is_built_in;
use crate::content_type::ContentType;

/// The headers that tell how a call ended.
const ENDS: [&str; 3] = [GRPC_STATUS, GRPC_MESSAGE, GRPC_DETAILS];

const GRPC_ENCODING: &str = "grpc-encoding";

/// Takes a response, with what tonic makes of it in order.
///
/// # Errors
///
/// With the status of the call if the response has no messages that can be read: its own, or that
/// of HTTP, or `INTERNAL`, as gRPC has it for a server's mistakes.
pub(super) async fn admit<B>(
    server: &Arc<str>,
    response: Response<B>,
) -> Result<Response<Checked<B>>, Status>
where
    B: Body<Data = Bytes, Error = Status>,
{
    let (mut head, body) = response.into_parts();
    let error = HttpError::new(server, head.status, &head.headers);
    if body.is_end_stream() {
        if !has_status(&head.headers) {
            return Err(error.into_status(&head.headers, &[]));
        }
        mend_end(&mut head.headers);
        // No message comes that could have it.
        head.headers.remove(GRPC_ENCODING);
        return Ok(Response::from_parts(head, Checked::new(body, None, HeaderMap::new())));
    }
    let is_grpc = match head.headers.get(CONTENT_TYPE) {
        Some(value) => ContentType::of(value) != ContentType::Foreign,
        // tonic's clients do without.
        None => head.status == StatusCode::OK,
    };
    if !is_grpc {
        return Err(error.read(head.headers, body).await);
    }
    if head.status == StatusCode::OK {
        check(server, &head.headers)?;
    }
    let ended = take_ends(&mut head.headers);
    Ok(Response::from_parts(head, Checked::new(body, Some(error), ended)))
}

fn check(server: &str, headers: &HeaderMap) -> Result<(), Status> {
    let mistake = |what: &str, value: &http::HeaderValue| {
        Err(Status::internal(format!("the server at {server} answers in {what} {value:?}")))
    };
    if let Some(value) = headers.get(CONTENT_TYPE)
        && ContentType::of(value) == ContentType::OtherCodec
    {
        return mistake("the codec", value);
    }
    match headers.get(GRPC_ENCODING) {
        Some(value) if !is_built_in(value.as_bytes()) => mistake("the encoding", value),
        _ => Ok(()),
    }
}

/// Takes a valid end out of the headers, and drops another one.
fn take_ends(headers: &mut HeaderMap) -> HeaderMap {
    let mut ended = HeaderMap::new();
    if headers.contains_key(GRPC_STATUS) {
        mend_end(headers);
        let is_valid = has_status(headers);
        for name in ENDS {
            let value = headers.remove(name).filter(|_| is_valid);
            value.map(|value| ended.insert(name, value));
        }
    }
    ended
}

/// A body whose end has a valid status. Behind it comes what the headers said of the end if nothing
/// else does: a proxy may have sent the headers of a response without a body apart from their end.
#[derive(Debug)]
pub(super) struct Checked<B> {
    body: B,
    /// The error of a body that ends without a valid status; `None` once it has ended.
    error: Option<HttpError>,
    ended: HeaderMap,
    has_begun: bool,
}

impl<B> Checked<B> {
    fn new(body: B, error: Option<HttpError>, ended: HeaderMap) -> Self {
        Self { body, error, ended, has_begun: false }
    }

    /// Checks that the first bytes of a body are a message's: its flag is 0 or 1.
    fn check_data(&mut self, data: Bytes) -> Result<Frame<Bytes>, Status> {
        if let Some(flag) = data.first() {
            self.ended.clear();
            let is_message = *flag <= 1 || self.has_begun;
            self.has_begun = true;
            if !is_message && let Some(error) = self.error.take() {
                return Err(error.into_status(&HeaderMap::new(), &data));
            }
        }
        Ok(Frame::data(data))
    }

    /// Gives trailers a valid status: their own, or that of the headers.
    fn check_trailers(&mut self, mut trailers: HeaderMap) -> Result<Frame<Bytes>, Status> {
        mend_end(&mut trailers);
        let ended = std::mem::take(&mut self.ended);
        if let Some(error) = self.error.take()
            && !has_status(&trailers)
        {
            if ended.is_empty() {
                return Err(error.into_status(&trailers, &[]));
            }
            trailers.extend(ended);
        }
        Ok(Frame::trailers(trailers))
    }
}

impl<B: Body<Data = Bytes, Error = Status> + Unpin> Body for Checked<B> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(match polled.map(|frame| frame.map(Frame::into_data)) {
            Some(Ok(Ok(data))) => Some(self.check_data(data)),
            // HTTP/2 has no third kind of frame in a body.
            Some(Ok(Err(frame))) => {
                Some(self.check_trailers(frame.into_trailers().unwrap_or_default()))
            }
            Some(Err(status)) => {
                self.error = None;
                Some(Err(status))
            }
            None => self.error.is_some().then(|| self.check_trailers(HeaderMap::new())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.error.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, stream};
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    type Frames = Vec<Result<Frame<Bytes>, Status>>;

    fn admit<B>(response: Response<B>) -> Result<Response<Checked<B>>, Status>
    where
        B: Body<Data = Bytes, Error = Status>,
    {
        let server = "grpc://a".into();
        let admitted = super::admit(&server, response);
        admitted.now_or_never().expect("nothing is waited for")
    }

    fn empty() -> impl Body<Data = Bytes, Error = Status> + Unpin {
        http_body_util::Empty::new().map_err(|it: std::convert::Infallible| match it {})
    }

    /// The `grpc-status` of the headers and of the trailers that tonic is shown.
    fn shown(frames: Frames) -> Result<[Option<String>; 2], Status> {
        let body = StreamBody::new(stream::iter(frames));
        let mut response = Response::new(body);
        response.headers_mut().insert(GRPC_STATUS, "9".parse().unwrap());
        response.headers_mut().insert("x-other", "7".parse().unwrap());
        let (head, body) = admit(response)?.into_parts();
        assert!(head.headers.contains_key("x-other"));
        let body = body.collect().now_or_never().unwrap()?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        Ok([head.headers, trailers]
            .map(|map| map.get(GRPC_STATUS).map(|value| value.to_str().unwrap().to_owned())))
    }

    #[test]
    fn headers_tell_the_end_where_nothing_comes_behind_them() {
        let data = |bytes: &'static [u8]| Ok(Frame::data(Bytes::from_static(bytes)));
        let trailers = |name: &'static str| {
            let mut trailers = HeaderMap::new();
            trailers.insert(name, "0".parse().unwrap());
            Ok(Frame::trailers(trailers))
        };
        let status = |text: &str| Some(text.to_owned());
        let all = [
            (vec![], status("9")),
            (vec![data(b"")], status("9")),
            (vec![trailers("x-other")], status("9")),
            (vec![data(b"\0"), trailers(GRPC_STATUS)], status("0")),
            (vec![trailers(GRPC_STATUS)], status("0")),
        ];
        for (frames, expected) in all {
            assert_eq!(shown(frames).unwrap(), [None, expected]);
        }
        for frames in [vec![data(b"\0")], vec![data(b"\0"), trailers("x-other")]] {
            assert_eq!(shown(frames).unwrap_err().code(), tonic::Code::Unknown);
        }
    }

    #[test]
    fn a_body_that_has_ended_leaves_its_status_in_the_headers() {
        let mut response = Response::new(empty());
        response.headers_mut().insert(GRPC_STATUS, "9".parse().unwrap());
        let admitted = admit(response).unwrap();
        assert_eq!(admitted.headers()[GRPC_STATUS], "9");
        assert!(admitted.body().is_end_stream());
    }

    #[test]
    fn what_cannot_be_read_is_the_servers_mistake() {
        for (name, value, is_read) in [
            ("content-type", "application/grpc+proto", true),
            ("content-type", "application/grpc+json", false),
            ("grpc-encoding", "identity", true),
            ("grpc-encoding", "gzip", true),
            ("grpc-encoding", "lzma", false),
        ] {
            let mut response = Response::new(StreamBody::new(stream::iter(Frames::new())));
            response.headers_mut().insert(name, value.parse().unwrap());
            match admit(response) {
                Ok(_) => assert!(is_read, "{value}"),
                Err(status) => {
                    assert_eq!((status.code(), is_read), (tonic::Code::Internal, false), "{value}");
                    assert!(status.message().contains(value), "{status}");
                }
            }
        }
    }
}
