//! tower layers around the handlers of a server: all of them, or those of one service.
//!
//! A call of any kind is a [`ServerRequest`] whose future resolves with the call's outcome: for a
//! unary answer before it is sent, for a stream after its last message. Its messages stay in the
//! memory that they arrived in and are not looked at here. A server without layers never comes by.

mod request;
mod response;
mod service;

pub use request::ServerRequest;
pub(super) use response::Capture;
pub use response::ServerResponse;
pub use service::{
    InterceptedService, LayeredService, ServerStack, intercepted, layered, layered_methods,
};
pub(super) use service::{Layers, handle};
