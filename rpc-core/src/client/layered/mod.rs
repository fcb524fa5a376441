//! tower layers, and tonic's interceptors, around a channel.
//!
//! A [`crate::Channel`] is a `tower::Service` of calls that own their requests, and a
//! [`LayeredChannel`] is a [`crate::Caller`] over any such service. What precedes a call's messages
//! can be read and changed; the messages stay as they are until the channel encodes them, once, in
//! the transport's memory. A channel without layers never comes by.

mod channel;
mod intercepted;
mod service;

pub use channel::LayeredChannel;
pub use intercepted::Intercepted;
