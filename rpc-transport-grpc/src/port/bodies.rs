//! The body of a response, whose memory counts in the server's budget until its client takes it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use rpc_core::memory::{MemoryCharge, MemoryShare};
use tonic::Status;

use super::flow::Flowing;

/// The longest piece of a response that hyper is given at once, in bytes: HTTP/2's default frame.
/// hyper asks for a piece when the client's window has room for one byte of it, and keeps the rest.
const PIECE_LEN_MAX: usize = 16 << 10;

/// A response, in pieces.
pub(super) struct Outgoing {
    body: tonic::body::Body,
    memory: MemoryShare,
    flowing: Arc<Flowing>,
    /// What is left of what the handler has answered so far, with what it counts.
    left: Bytes,
    charge: MemoryCharge,
    /// Whether a piece was given, and none asked for since.
    waits: bool,
    is_over: bool,
}

impl Outgoing {
    pub(super) fn new(body: tonic::body::Body, memory: MemoryShare, flowing: Arc<Flowing>) -> Self {
        let (left, charge) = (Bytes::new(), MemoryCharge::default());
        Self { body, memory, flowing, left, charge, waits: false, is_over: false }
    }

    fn end_wait(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.flowing.end_wait();
        }
    }

    /// The next piece of what is left.
    fn piece(&mut self) -> Frame<Bytes> {
        let piece = self.left.split_to(self.left.len().min(PIECE_LEN_MAX));
        if self.left.is_empty() {
            self.charge = MemoryCharge::default();
        }
        self.waits = true;
        self.flowing.begin_wait();
        Frame::data(piece)
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.end_wait();
        if !self.left.is_empty() {
            return Poll::Ready(Some(Ok(self.piece())));
        }
        if self.is_over {
            return Poll::Ready(None);
        }
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)).transpose()? {
            None => return Poll::Ready(None),
            Some(frame) => frame,
        };
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
        };
        if data.len() > PIECE_LEN_MAX {
            match self.memory.try_take(data.len() as u64) {
                Ok(charge) => self.charge = charge,
                Err(status) => {
                    self.is_over = true;
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers_of(&status)))));
                }
            }
        }
        self.left = data;
        Poll::Ready(Some(Ok(self.piece())))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || (self.left.is_empty() && self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.end_wait();
    }
}

/// The trailers that end a response with a status.
fn trailers_of(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    if status.add_header(&mut trailers).is_err() {
        // Words that are no header: the code alone.
        let code = http::HeaderValue::from(i32::from(status.code()));
        trailers.insert("grpc-status", code);
    }
    trailers
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use http_body_util::{BodyExt, Full};

    use super::*;

    fn outgoing(len: usize) -> (Outgoing, Arc<Flowing>) {
        let flowing = Arc::<Flowing>::default();
        let body = tonic::body::Body::new(Full::new(Bytes::from(vec![7; len])));
        (Outgoing::new(body, MemoryShare::default(), Arc::clone(&flowing)), flowing)
    }

    #[test]
    fn a_long_answer_comes_in_pieces_and_waits_between_them() {
        let len = 2 * PIECE_LEN_MAX + 5;
        let (mut body, flowing) = outgoing(len);
        let mut lens = Vec::new();
        while let Some(frame) = body.frame().now_or_never().expect("nothing is waited for") {
            lens.push(frame.unwrap().into_data().unwrap().len());
            assert!(flowing.flows().sending.is_waiting, "the client has not taken it yet");
        }
        assert_eq!(lens, [PIECE_LEN_MAX, PIECE_LEN_MAX, 5]);
        assert!(!flowing.flows().sending.is_waiting);
    }

    #[test]
    fn a_response_that_is_dropped_waits_no_longer() {
        let (mut body, flowing) = outgoing(10);
        body.frame().now_or_never().unwrap().unwrap().unwrap();
        drop(body);
        assert!(!flowing.flows().sending.is_waiting);
    }
}
