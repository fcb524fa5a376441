//! tower layers around the handlers of a server: all of them, or those of one service.
//!
//! A call of any kind is a [`ServerRequest`] whose future resolves with the call's outcome: for a
//! unary answer before it is sent, for a stream after its last message. Its messages stay in the
//! memory that they arrived in and are not looked at here. A server without layers never comes by.

mod capture;
mod handle;
mod intercepted;
mod layered;
mod request;
mod response;
mod stack;

pub(super) use capture::Capture;
pub(super) use handle::handle;
pub use intercepted::{InterceptedService, intercepted};
pub use layered::{LayeredService, layered, layered_methods};
pub use request::ServerRequest;
use response::Body;
pub use response::ServerResponse;
pub(super) use stack::Layers;
pub use stack::ServerStack;
