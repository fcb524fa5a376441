//! Response bodies. Their memory counts against the server's budget until the client takes it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use rpc_core::memory::{MemoryCharge, MemoryShare};
use tonic::Status;

use super::flow::Flowing;
use super::piece::Piece;

/// Maximum length of a piece that h2 receives at once, in bytes: HTTP/2's default frame.
///
/// h2 accepts a piece once the client's window has room for one byte of it, and the response then
/// produces the next one. h2 thus holds two pieces of a stream, however little the client takes.
const PIECE_LEN_MAX: usize = 16 << 10;

/// A response body, cut into pieces.
pub(super) struct Outgoing {
    body: tonic::body::Body,
    memory: MemoryShare,
    flowing: Arc<Flowing>,
    /// The unsent rest of the handler's last frame. `charge` counts its memory.
    left: Bytes,
    charge: MemoryCharge,
    is_over: bool,
}

impl Outgoing {
    pub(super) fn new(body: tonic::body::Body, memory: MemoryShare, flowing: Arc<Flowing>) -> Self {
        let (left, charge) = (Bytes::new(), MemoryCharge::default());
        Self { body, memory, flowing, left, charge, is_over: false }
    }

    /// Charges a frame of the response.
    ///
    /// A short frame is never refused: its handler has done its work. It still counts, so the
    /// server refuses later calls instead.
    fn count(&self, len: usize) -> Result<MemoryCharge, Status> {
        match len > PIECE_LEN_MAX {
            true => self.memory.try_take(len as u64),
            false => Ok(self.memory.take(len as u64)),
        }
    }

    /// Returns an empty piece that ends a response and carries the call's charge.
    pub(super) fn last_piece(&self, call: Option<MemoryCharge>) -> Piece {
        let flowing = Arc::clone(&self.flowing);
        let mut piece = Piece::new(Bytes::new(), MemoryCharge::default(), flowing);
        piece.hold(call);
        piece
    }

    /// Returns the client's limit on a header or trailer list, in bytes.
    pub(super) fn header_list_max(&self) -> usize {
        self.flowing.header_list.len_max()
    }

    /// Cuts the next piece off the rest, with its part of the charge.
    fn piece(&mut self) -> Frame<Piece> {
        let bytes = self.left.split_to(self.left.len().min(PIECE_LEN_MAX));
        // Splits the charge along with the bytes. The piece keeps its part until h2 drops it, which
        // may be long after this body is gone.
        let charge = if self.left.is_empty() {
            std::mem::take(&mut self.charge)
        } else {
            self.charge.set(self.left.len() as u64);
            self.memory.take(bytes.len() as u64)
        };
        Frame::data(Piece::new(bytes, charge, Arc::clone(&self.flowing)))
    }
}

impl Body for Outgoing {
    type Data = Piece;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, Status>>> {
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
            Err(frame) => {
                let trailers = frame.into_trailers().unwrap_or_default();
                return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
            }
        };
        match self.count(data.len()) {
            // Charged before the data is stored: a refused answer must not stay in memory while the
            // client reads.
            Ok(charge) => self.charge = charge,
            Err(status) => {
                // The headers may be out already, so the refusal has to travel in the trailers.
                self.is_over = true;
                return Poll::Ready(Some(Ok(Frame::trailers(trailers_of(&status)))));
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

/// Returns the trailers that end a response with `status`.
fn trailers_of(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    if status.add_header(&mut trailers).is_err() {
        // A message that no header can carry: sends the code alone.
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
    fn a_long_answer_is_sent_in_pieces_that_count_until_dropped() {
        let len = 2 * PIECE_LEN_MAX + 5;
        let (mut body, flowing) = outgoing(len);
        let mut pieces = Vec::new();
        while let Some(frame) = body.frame().now_or_never().expect("nothing is waited for") {
            pieces.push(frame.unwrap().into_data().unwrap());
        }
        let lens: Vec<_> = pieces.iter().map(bytes::Buf::remaining).collect();
        assert_eq!(lens, [PIECE_LEN_MAX, PIECE_LEN_MAX, 5]);
        // h2 drops the response once it has the last piece.
        drop(body);
        while let Some(piece) = pieces.pop() {
            assert!(flowing.flows().sending.is_waiting, "the client has not taken it yet");
            drop(piece);
        }
        assert!(!flowing.flows().sending.is_waiting);
    }
}
