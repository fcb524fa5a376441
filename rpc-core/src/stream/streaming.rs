//! tonic's `Streaming` over a received stream.

use std::marker::PhantomData;
use std::sync::Arc;

use http::StatusCode;
use prost::Message;
use tonic::Streaming;

use super::body::{HandoffDecoder, MessageBody, OnComplete};
use super::inflating::Receiving;
use super::{RecvStream, SessionIo};

/// A request stream holds nothing that would have to be told of its end.
pub(crate) struct Nothing;

impl OnComplete for Nothing {
    fn complete(&mut self) {}
}

/// The client's messages, for a handler.
pub(crate) fn request_streaming<M: Message + Default + 'static>(
    recv_stream: Arc<RecvStream>,
    io: Arc<dyn SessionIo>,
    call: u64,
    receiving: Receiving,
) -> Streaming<M> {
    let body = MessageBody::<Nothing>::new(recv_stream, io, call, receiving, None, None);
    Streaming::new_request(decoder(&body), body, None, None)
}

/// The server's messages, for a caller.
pub(crate) fn response_streaming<M, E>(body: MessageBody<E>) -> Streaming<M>
where
    M: Message + Default + 'static,
    E: OnComplete + Unpin,
{
    Streaming::new_response(decoder(&body), body, StatusCode::OK, None, None)
}

fn decoder<M, E>(body: &MessageBody<E>) -> HandoffDecoder<M> {
    HandoffDecoder { handoff: Arc::clone(&body.handoff), message: PhantomData }
}
