//! Streams of messages: one direction of a call at a time, the same for both roles.
//!
//! Received frames are put in order and wait in a [`RecvStream`] until a `Streaming` reads them.
//! [`forward()`] polls the user's stream, gathers small messages into shared frames and waits for
//! the receiver's window. The windows themselves are pure machines in
//! [`crate::calls`].

mod body;
mod forward;
mod io;
mod recv_stream;

pub use body::StreamPart;
pub(crate) use body::{
    MessageBody, OnComplete, request_streaming, response_streaming, scripted_streaming,
};
pub(crate) use forward::{Direction, forward};
pub(crate) use io::{Inflated, Receiving, SendStream, SessionIo, StreamWriter, inflated};
pub(crate) use recv_stream::{End, Inserted, Item, Next, RecvStream, WindowMemory};
