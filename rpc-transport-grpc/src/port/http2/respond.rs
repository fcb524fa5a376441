//! The task of one HTTP/2 request, and its response.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use bytes::Buf as _;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{HeaderMap, HeaderName, header};
use http_body::Body as _;
use rpc_core::memory::MemoryCharge;
use tonic::Status;

use super::upload::Received;
use crate::port::bodies::Outgoing;
use crate::port::flow::OwedResponse;
use crate::port::header_list;
use crate::port::held;
use crate::port::piece::Piece;
use crate::port::service::PortService;

/// HTTP/1 connection headers, which HTTP/2 forbids. A service may have set them.
const OF_CONNECTION: [HeaderName; 6] = [
    header::CONNECTION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// A response that is owed to the client.
///
/// Dropping it unsettled resets the client's stream. A handler that panics would otherwise leave
/// the stream open for the rest of the request.
struct Owed {
    sending: SendResponse<Piece>,
    is_settled: bool,
}

impl Drop for Owed {
    fn drop(&mut self) {
        if !self.is_settled {
            self.sending.send_reset(Reason::INTERNAL_ERROR);
        }
    }
}

/// Answers a request, unless its client resets the stream first.
pub(super) async fn respond(
    service: PortService,
    request: http::Request<Received>,
    sending: SendResponse<Piece>,
    charge: MemoryCharge,
    counted: OwedResponse,
) {
    let mut owed = Owed { sending, is_settled: false };
    let _counted = counted;
    // Boxed, because the runtime moves a task's future before it runs.
    let mut answering = Box::pin(service.answer(request));
    let answered = poll_fn(|cx| match answering.as_mut().poll(cx) {
        Poll::Ready(response) => Poll::Ready(Some(response)),
        // Polls the response first. Only if it is not ready does a reset cancel the handler.
        Poll::Pending => owed.sending.poll_reset(cx).map(|_| None),
    });
    let Some(response) = answered.await else { return };
    // The handler's state goes before the response is sent, which may take as long as the client
    // likes.
    drop(answering);
    let sent = send(response, &mut owed.sending, charge).await;
    owed.is_settled = sent.is_ok();
    if let Err(error) = sent {
        // After an error, h2 has closed the stream or cannot send. Dropping `owed` resets whatever
        // is left.
        tracing::debug!(target: "farcall::server", %error, "a response did not end");
    }
}

/// Answers a request that the server has no memory for.
pub(super) fn refuse(status: &Status, mut sending: SendResponse<Piece>, charge: MemoryCharge) {
    let (mut head, _) = status.clone().into_http::<tonic::body::Body>().into_parts();
    held::keep(&mut head.headers, charge);
    // Fails if the client has reset the stream. It wants no answer then.
    let _ = sending.send_response(http::Response::from_parts(head, ()), true);
}

async fn send(
    response: http::Response<Outgoing>,
    sending: &mut SendResponse<Piece>,
    charge: MemoryCharge,
) -> Result<(), h2::Error> {
    let (mut head, body) = response.into_parts();
    for name in &OF_CONNECTION {
        head.headers.remove(name);
    }
    let goes_on = header_list::fit(&mut head.headers, body.header_list_max());
    let is_whole = !goes_on || body.is_end_stream();
    let mut charge = Some(charge);
    // A response without a body ends with its headers, so they carry the call's charge.
    if is_whole {
        keep(&mut head.headers, &mut charge);
    }
    match sending.send_response(http::Response::from_parts(head, ()), is_whole) {
        Ok(_) if is_whole => Ok(()),
        Ok(stream) => send_body(body, stream, charge).await,
        Err(error) => Err(error),
    }
}

/// Sends a body as the client's windows allow. The last frame carries the call's charge.
async fn send_body(
    mut body: Outgoing,
    mut stream: SendStream<Piece>,
    mut charge: Option<MemoryCharge>,
) -> Result<(), h2::Error> {
    loop {
        // Looks for a reset first: a response whose client is gone must not wait for its handler's
        // next message.
        let next = poll_fn(|cx| match stream.poll_reset(cx) {
            Poll::Ready(reset) => Poll::Ready(Err(reset.map_or_else(|it| it, h2::Error::from))),
            Poll::Pending => Pin::new(&mut body).poll_frame(cx).map(Ok),
        });
        let frame = match next.await? {
            Some(Ok(frame)) => frame,
            Some(Err(_)) => {
                // The body failed, and HTTP/2 has no clean end for that. A plain end would look
                // like a complete response.
                stream.send_reset(Reason::INTERNAL_ERROR);
                return Ok(());
            }
            None => return stream.send_data(body.last_piece(charge.take()), true),
        };
        match frame.into_data() {
            Ok(mut piece) => {
                let is_last = body.is_end_stream();
                // Empty frames need no window.
                if piece.has_remaining() {
                    room(&mut stream).await?;
                }
                if is_last {
                    piece.hold(charge.take());
                }
                stream.send_data(piece, is_last)?;
                if is_last {
                    return Ok(());
                }
            }
            Err(frame) => {
                // Returns the capacity that was reserved but not used. Other streams of the
                // connection share it.
                stream.reserve_capacity(0);
                let mut trailers = frame.into_trailers().unwrap_or_default();
                header_list::fit(&mut trailers, body.header_list_max());
                keep(&mut trailers, &mut charge);
                return stream.send_trailers(trailers);
            }
        }
    }
}

/// Waits until the client's windows have room for one byte. h2 buffers the rest of the piece, which
/// is short.
async fn room(stream: &mut SendStream<Piece>) -> Result<(), h2::Error> {
    stream.reserve_capacity(1);
    // The client may shrink its window again before this task runs.
    while stream.capacity() == 0 {
        match poll_fn(|cx| stream.poll_capacity(cx)).await {
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(error),
            None => return Err(Reason::CANCEL.into()),
        }
    }
    Ok(())
}

fn keep(headers: &mut HeaderMap, charge: &mut Option<MemoryCharge>) {
    if let Some(charge) = charge.take() {
        held::keep(headers, charge);
    }
}
