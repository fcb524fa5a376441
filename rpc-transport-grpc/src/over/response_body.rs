//! A response body with the trailers of a success, for which tonic's server code has no place.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use rpc_core::LateTrailers;
use tonic::Status;

/// A body that adds the trailers of its message stream to its own.
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

/// Adds `late` to `trailers`. Keeps the entries that carry the call's status.
fn join(trailers: &mut HeaderMap, mut late: HeaderMap) {
    let mut current = None;
    for (key, value) in trailers.drain() {
        // `drain` yields the further values of a key without the key.
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
    fn late_trailers_do_not_change_the_status() {
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
    fn every_value_of_the_status_is_kept() {
        let mut trailers = HeaderMap::new();
        for value in ["7", "8", "7"] {
            trailers.append("checksum", HeaderValue::from_static(value));
        }
        let before = trailers.clone();
        join(&mut trailers, HeaderMap::new());
        assert_eq!(trailers, before);
    }
}
