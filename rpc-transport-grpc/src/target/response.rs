//! Server responses, checked before tonic's client code reads them.
//!
//! tonic trusts three things that it should not:
//! * A status in the headers. tonic takes it for the end of the call even if messages or trailers
//!   follow. A failure would hide the server's answer, and a response truncated after its message
//!   would count as complete.
//! * The codec and the encoding. tonic ignores the codec, and reports an encoding that this side
//!   lacks as `UNIMPLEMENTED`, although that is the server's mistake.
//! * The body. tonic decodes whatever arrives, so the error page of a proxy becomes a message with
//!   a broken prefix.

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

/// The headers that carry the end of a call.
const ENDS: [&str; 3] = [GRPC_STATUS, GRPC_MESSAGE, GRPC_DETAILS];

const GRPC_ENCODING: &str = "grpc-encoding";

/// Accepts a response, and repairs the parts that tonic would misread.
///
/// # Errors
///
/// Returns the status of the call if the response has no readable messages: the response's own,
/// that of HTTP, or `INTERNAL`, which gRPC prescribes for a server's mistakes.
pub(super) async fn admit<B>(
    server: &Arc<str>,
    response: Response<B>,
) -> Result<Response<Checked<B>>, Status>
where
    B: Body<Data = Bytes, Error = Status>,
{
    let (mut head, body) = response.into_parts();
    let error = HttpError::new(server, head.status, &head.headers);
    // Trailers-only responses put the status into the headers, and only there is it the end.
    if body.is_end_stream() {
        if !has_status(&head.headers) {
            return Err(error.into_status(&head.headers, &[]));
        }
        mend_end(&mut head.headers);
        // No message follows that could use it. tonic would refuse the response for an unknown
        // encoding.
        head.headers.remove(GRPC_ENCODING);
        return Ok(Response::from_parts(head, Checked::new(body, None, HeaderMap::new())));
    }
    let is_grpc = match head.headers.get(CONTENT_TYPE) {
        Some(value) => ContentType::parse(value) != ContentType::Foreign,
        // tonic's clients accept a response without a content type.
        None => head.status == StatusCode::OK,
    };
    if !is_grpc {
        // Reads the page for the message: it usually names the proxy that sent it.
        return Err(error.read(head.headers, body).await);
    }
    // With another HTTP status, the codec of the page is beside the point.
    if head.status == StatusCode::OK {
        check(server, &head.headers)?;
    }
    // A status here is only a candidate. It counts if nothing follows it.
    let ended = take_ends(&mut head.headers);
    Ok(Response::from_parts(head, Checked::new(body, Some(error), ended)))
}

fn check(server: &str, headers: &HeaderMap) -> Result<(), Status> {
    let mistake = |what: &str, value: &http::HeaderValue| {
        Err(Status::internal(format!("the server at {server} responds in {what} {value:?}")))
    };
    if let Some(value) = headers.get(CONTENT_TYPE)
        && ContentType::parse(value) == ContentType::OtherCodec
    {
        return mistake("the codec", value);
    }
    match headers.get(GRPC_ENCODING) {
        Some(value) if !is_built_in(value.as_bytes()) => mistake("the encoding", value),
        _ => Ok(()),
    }
}

/// Takes a valid end out of the headers. Drops an invalid one.
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

/// A body that always ends with a valid status.
///
/// If the body brings no status, the one from the headers follows it: a proxy may have sent a
/// response without a body as separate headers and end.
#[derive(Debug)]
pub(super) struct Checked<B> {
    body: B,
    /// The error for an end without a valid status; `None` once the body has ended.
    error: Option<HttpError>,
    ended: HeaderMap,
    has_begun: bool,
}

impl<B> Checked<B> {
    fn new(body: B, error: Option<HttpError>, ended: HeaderMap) -> Self {
        Self { body, error, ended, has_begun: false }
    }

    /// Checks that the first byte of the body is a message's flag, 0 or 1.
    fn check_data(&mut self, data: Bytes) -> Result<Frame<Bytes>, Status> {
        if let Some(flag) = data.first() {
            // The response has data, so the status in the headers was not its end.
            self.ended.clear();
            let is_message = *flag <= 1 || self.has_begun;
            self.has_begun = true;
            if !is_message && let Some(error) = self.error.take() {
                return Err(error.into_status(&HeaderMap::new(), &data));
            }
        }
        Ok(Frame::data(data))
    }

    /// Gives the trailers a valid status: their own, or that of the headers.
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
            // An HTTP/2 body has only these two kinds of frames.
            Some(Ok(Err(frame))) => {
                Some(self.check_trailers(frame.into_trailers().unwrap_or_default()))
            }
            Some(Err(status)) => {
                // The body's own error is the end. It needs no second one.
                self.error = None;
                Some(Err(status))
            }
            // Ended without trailers. tonic would report a missing status in its own terms.
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

    /// Returns the `grpc-status` of the headers and of the trailers that tonic sees.
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
    fn headers_carry_the_end_if_nothing_follows_them() {
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
    fn an_ended_body_keeps_its_status_in_the_headers() {
        let mut response = Response::new(empty());
        response.headers_mut().insert(GRPC_STATUS, "9".parse().unwrap());
        let admitted = admit(response).unwrap();
        assert_eq!(admitted.headers()[GRPC_STATUS], "9");
        assert!(admitted.body().is_end_stream());
    }

    #[test]
    fn unreadable_responses_are_the_servers_mistake() {
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
