//! Streams of messages: one direction of a call at a time, the same for both roles.
//!
//! What arrives is put in order and waits in an [`Inbound`] until a `Streaming` reads it. What is
//! sent is polled from the user's stream by a [`pump`], which gathers small messages into shared
//! frames and waits for the receiver's window. The windows themselves are pure machines in
//! [`crate::calls`].

mod batch;
mod body;
mod host;
mod inbound;
mod outbound;
mod pump;
mod scripted;
mod streaming;
mod window_memory;

pub(crate) use body::{MessageBody, ResponseEnd};
pub(crate) use host::{StreamHost, StreamWriter};
pub(crate) use inbound::{End, Inbound, Inserted, Item, Next};
pub(crate) use outbound::Outbound;
pub(crate) use pump::{Direction, pump};
pub(crate) use scripted::{Scripted, scripted_response};
pub(crate) use streaming::{request_streaming, response_streaming};
pub(crate) use window_memory::WindowMemory;
