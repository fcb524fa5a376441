//! tower layers, and tonic's interceptors, around a channel.
//!
//! A call of any kind is a [`ClientCall`]: what precedes its messages can be read and changed, the
//! messages stay as they are until the channel encodes them, once, in the transport's memory. A
//! [`crate::Channel`] is a `tower::Service` of such calls, and a [`LayeredChannel`] is a
//! [`crate::Caller`] over any such service. A channel without layers never comes by.

mod call;
mod channel;
mod intercepted;
mod reply;
mod service;

pub use call::ClientCall;
pub use channel::LayeredChannel;
pub use intercepted::Intercepted;
pub use reply::ClientReply;
