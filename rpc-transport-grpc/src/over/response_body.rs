//! A response's body with trailers that tonic's server code has no place for: those of a success.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use rpc_core::LateTrailers;
use tonic::Status;

/// A body whose trailers are joined by what its stream of messages has left.
#[derive(Debug)]
pub(super) struct ResponseBody {
    body: tonic::body::Body,
    trailers: LateTrailers,
}

impl ResponseBody {
    pub(super) fn new(body: tonic::body::Body, trailers: LateTrailers) -> Self {
        Self { body, trailers }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        polled.map_ok(|mut frame| {
            if let Some(trailers) = frame.trailers_mut() {
                join(trailers, self.trailers.take().into_headers());
            }
            frame
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Adds entries; those that say how the call ended stay.
fn join(trailers: &mut HeaderMap, mut late: HeaderMap) {
    let mut current = None;
    for (key, value) in trailers.drain() {
        // The later values of a key come without it, behind the first.
        match (key, &current) {
            (Some(key), _) => {
                late.insert(key.clone(), value);
                current = Some(key);
            }
            (None, Some(key)) => drop(late.append(key.clone(), value)),
            (None, None) => {}
        }
    }
    *trailers = late;
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn what_the_stream_left_does_not_change_how_the_call_ended() {
        let value = HeaderValue::from_static;
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", value("0"));
        let mut late = HeaderMap::new();
        late.insert("grpc-status", value("13"));
        late.append("checksum", value("7"));
        late.append("checksum", value("8"));
        join(&mut trailers, late);
        assert_eq!(trailers.get_all("grpc-status").iter().collect::<Vec<_>>(), ["0"]);
        assert_eq!(trailers.get_all("checksum").iter().collect::<Vec<_>>(), ["7", "8"]);
    }

    #[test]
    fn every_value_of_the_status_stays() {
        let mut trailers = HeaderMap::new();
        for value in ["7", "8", "7"] {
            trailers.append("checksum", HeaderValue::from_static(value));
        }
        let before = trailers.clone();
        join(&mut trailers, HeaderMap::new());
        assert_eq!(trailers, before);
    }
}
