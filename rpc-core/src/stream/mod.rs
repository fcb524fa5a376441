//! Streams of messages: one direction of a call at a time, the same for both roles.
//!
//! Received frames are put in order and wait in a [`RecvStream`] until a `Streaming` reads them.
//! [`forward()`] polls the user's stream, gathers small messages into shared frames and waits for
//! the receiver's window. The windows themselves are pure machines in
//! [`crate::calls`].

mod batch;
mod body;
mod forward;
mod inflating;
mod recv_stream;
mod scripted;
mod send_stream;
mod session_io;
mod streaming;
mod window_memory;

pub(crate) use body::{MessageBody, OnComplete};
pub(crate) use forward::{Direction, forward};
pub(crate) use inflating::{Inflated, Receiving, inflated};
pub(crate) use recv_stream::{End, Inserted, Item, Next, RecvStream};
pub use scripted::StreamPart;
pub(crate) use scripted::scripted_streaming;
pub(crate) use send_stream::SendStream;
pub(crate) use session_io::{SessionIo, StreamWriter};
pub(crate) use streaming::{request_streaming, response_streaming};
pub(crate) use window_memory::WindowMemory;
