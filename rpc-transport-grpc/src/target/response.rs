//! A server's response as tonic's client code may read it.
//!
//! tonic takes the status in the headers of a response for how the call ended, although messages or
//! trailers come behind them: a failure would hide what the server has answered, and a response
//! that broke off behind its message would have ended. It looks at no codec, and says
//! `UNIMPLEMENTED` of an encoding that this side lacks, where that is the server's mistake.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tonic::Status;

use crate::compression::is_built_in;
use crate::content_type::ContentType;

/// The headers that tell how a call ended.
const ENDS: [&str; 3] = [GRPC_STATUS, "grpc-message", "grpc-status-details-bin"];

const GRPC_STATUS: &str = "grpc-status";

/// Takes a response, with what tonic makes of it in order.
///
/// # Errors
///
/// When its messages cannot be read: `INTERNAL`, as gRPC has it for a server's mistakes.
pub(super) fn admit<B>(server: &str, response: Response<B>) -> Result<Response<Ending<B>>, Status>
where
    B: Body,
{
    let (mut head, body) = response.into_parts();
    // How other codes of HTTP end a call is tonic's business.
    if head.status == StatusCode::OK {
        check(server, &head.headers)?;
    }
    let ended = match body.is_end_stream() {
        true => HeaderMap::new(),
        false => take_ends(&mut head.headers),
    };
    Ok(Response::from_parts(head, Ending { body, ended }))
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
    match headers.get("grpc-encoding") {
        Some(value) if !is_built_in(value.as_bytes()) => mistake("the encoding", value),
        _ => Ok(()),
    }
}

fn take_ends(headers: &mut HeaderMap) -> HeaderMap {
    let mut ended = HeaderMap::new();
    if headers.contains_key(GRPC_STATUS) {
        for name in ENDS {
            headers.remove(name).map(|value| ended.insert(name, value));
        }
    }
    ended
}

/// A body, behind which comes what the headers said of the end if nothing else does: a proxy may
/// have sent the headers of a response without a body apart from their end.
#[derive(Debug)]
pub(super) struct Ending<B> {
    body: B,
    ended: HeaderMap,
}

impl<B: Body<Data = Bytes> + Unpin> Body for Ending<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame)))
                if frame.data_ref().is_none_or(|data| !data.is_empty()) =>
            {
                self.ended.clear();
            }
            Poll::Ready(None) if !self.ended.is_empty() => {
                let ended = std::mem::take(&mut self.ended);
                return Poll::Ready(Some(Ok(Frame::trailers(ended))));
            }
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.ended.is_empty() && self.body.is_end_stream()
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

    /// The `grpc-status` of the headers and of the trailers that tonic is shown.
    fn shown(frames: Frames) -> [Option<String>; 2] {
        let body = StreamBody::new(stream::iter(frames));
        let mut response = Response::new(body);
        response.headers_mut().insert(GRPC_STATUS, "9".parse().unwrap());
        response.headers_mut().insert("x-other", "7".parse().unwrap());
        let (head, body) = admit("grpc://a", response).unwrap().into_parts();
        assert!(head.headers.contains_key("x-other"));
        let body = body.collect().now_or_never().unwrap().unwrap();
        let trailers = body.trailers().cloned().unwrap_or_default();
        [head.headers, trailers]
            .map(|map| map.get(GRPC_STATUS).map(|value| value.to_str().unwrap().to_owned()))
    }

    #[test]
    fn headers_tell_the_end_where_nothing_comes_behind_them() {
        let data = |bytes: &'static [u8]| Ok(Frame::data(Bytes::from_static(bytes)));
        let trailers = || {
            let mut trailers = HeaderMap::new();
            trailers.insert(GRPC_STATUS, "0".parse().unwrap());
            Ok(Frame::trailers(trailers))
        };
        let status = |text: &str| Some(text.to_owned());
        assert_eq!(shown(vec![]), [None, status("9")]);
        assert_eq!(shown(vec![data(b"")]), [None, status("9")]);
        assert_eq!(shown(vec![data(b"m")]), [None, None]);
        assert_eq!(shown(vec![data(b"m"), trailers()]), [None, status("0")]);
        assert_eq!(shown(vec![trailers()]), [None, status("0")]);
    }

    #[test]
    fn a_body_that_has_ended_leaves_its_status_in_the_headers() {
        let mut response = Response::new(http_body_util::Empty::<Bytes>::new());
        response.headers_mut().insert(GRPC_STATUS, "9".parse().unwrap());
        let admitted = admit("grpc://a", response).unwrap();
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
            let mut response = Response::new(http_body_util::Empty::<Bytes>::new());
            response.headers_mut().insert(name, value.parse().unwrap());
            match admit("grpc://a", response) {
                Ok(_) => assert!(is_read, "{value}"),
                Err(status) => {
                    assert_eq!((status.code(), is_read), (tonic::Code::Internal, false), "{value}");
                    assert!(status.message().contains(value), "{status}");
                }
            }
        }
    }
}
